"""Drawn problems of `python -m bench plan OPERATOR --random N`, and the regret that it prints."""

import math

import numpy as np
import pytest

from bench.prediction import plan as command
from bench.prediction.draw import box, drawn, log_uniform, regret_line
from bench.prediction.scan import OPERATORS, Row, scan_of
from bench.prediction.scans import gru, top_k
from cudml.operators.top_k.rows import LENGTHS
from proof.sass.compiler import unavailable


def _row(chosen_us: float, other_us: float) -> Row[gru.Point]:
    return Row(gru.Point("float32", 1, 64), "block", {"block": chosen_us, "grid": other_us})


def test_regret_is_the_chosen_time_over_the_best() -> None:
    rows = [_row(1, 2)] * 18 + [_row(3, 2), _row(8, 2)]
    assert regret_line(rows, 5) == (
        f"regret: geomean {(1.5 * 4) ** (1 / 20):.3f} p95 1.500 worst 4.000 (20 problems, seed 5)"
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_drawn_problems_repeat_and_go_on(operator: str) -> None:
    scan = scan_of(operator)
    points = drawn(scan, 40, 3)
    assert len({*points}) == 40
    assert drawn(scan, 12, 3) == points[:12]
    assert drawn(scan, 12, 4) != points[:12]
    for point in points:
        assert scan.chosen(point) in scan.plans(point)


def test_drawn_top_k_covers_the_domain() -> None:
    """Every layout and width, ragged or not, few rows and many, short and long, whole rows sorted."""
    points: list[top_k.Point] = drawn(top_k.SCAN, 400, 1)
    assert {point.layout for point in points} == {"rows", "columns"}
    assert {np.dtype(point.dtype).itemsize for point in points} == {1, 2, 4, 8}
    ragged = [point for point in points if isinstance(point, top_k.RaggedPoint)]
    assert 0 < len(ragged) < len(points)
    assert all((LENGTHS in point.plan().operands) == (point in ragged) for point in points)
    for low, high in ((1, 1), (2, 63), (65, 1023), (1 << 16, 1 << 17)):
        assert any(low <= point.num_rows <= high for point in points), (low, high)
    assert max(point.row_length for point in points) > 1 << 20
    assert any(point.k == point.row_length > 100 for point in points)


def test_numbers_are_log_uniform() -> None:
    """As many below the geometric mean of the bounds as above, and both bounds are met."""
    random = np.random.default_rng(1)
    numbers = [log_uniform(random, 1, 63) for _ in range(4000)]
    assert (min(numbers), max(numbers)) == (1, 63)
    assert 0.47 < sum(number < 8 for number in numbers) / len(numbers) < 0.53


def test_boxes_fill_what_they_are_given() -> None:
    random = np.random.default_rng(1)
    for num_dimensions in (1, 2, 3, 4):
        for num_items in (1, 7, 1 << 20):
            sizes = box(random, num_items, num_dimensions)
            assert len(sizes) == num_dimensions
            assert num_items / 2**num_dimensions < math.prod(sizes) <= num_items


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_command_ends_with_the_regret(capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes no table."""
    before = gru.SCAN.table.read_bytes()
    assert command.main(["gru", "--random", "1", "--seed", "6"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(str(*drawn(gru.SCAN, 1, 6)))
    assert last.startswith("regret: geomean 1.000 p95 1.000 worst 1.000")
    assert gru.SCAN.table.read_bytes() == before


def test_drawn_problems_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["gru", "--random", "3", "--measure"])
    assert "--random draws problems for predictions" in capsys.readouterr().err
