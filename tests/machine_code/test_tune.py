"""Numbers of a choice by problems with known times: `python -m bench plan OPERATOR --write`."""

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.prediction import plan as command
from bench.prediction.scan import Row, Scan, scan_of
from bench.prediction.scans import top_k
from bench.prediction.tune import MOST_KNOWN, ByNumbers, Tuning
from cudml.operators import choice, tree
from cudml.operators.reverse_subsequences.thresholds import THRESHOLDS as REVERSAL
from cudml.operators.slice.thresholds import THRESHOLDS as SLICE
from cudml.operators.tree import Question, Tree, tree_of


@dataclass(frozen=True)
class Numbers:
    first_length: int = 100
    bounds_ks: tuple[int, int] = (8, 16)
    factors: tuple[float, float] = (math.inf, 0)


def choose(row_length: int, numbers: Numbers) -> str:
    return "short" if row_length < numbers.first_length else "long"


CHOOSING = ByNumbers(Numbers(), lambda point: point.row_length, choose)


def row(length: int, **times: float) -> Row[top_k.Point]:
    return Row(top_k.Point("rows", "float32", 1, length, 1), next(iter(times)), times)


def tuned(
    rows: list[Row[top_k.Point]], numbers: Numbers, choosing: ByNumbers[top_k.Point, Numbers] = CHOOSING
) -> Numbers:
    for changed, _ in Tuning(rows, choosing).changes(numbers):
        numbers = changed
    return numbers


def test_a_threshold_moves_to_where_times_cross() -> None:
    rows = [row(n, short=n, long=200.0) for n in range(1, 400, 7)]
    found = tuned(rows, Numbers())
    assert 190 <= found.first_length <= 212
    assert replace(found, first_length=100) == Numbers()


def test_measured_numbers_are_kept() -> None:
    rows = [row(n, short=n, long=200.0) for n in range(1, 400, 7)]
    assert tuned(rows, Numbers(), replace(CHOOSING, measured=("first_length",))) == Numbers()


def test_one_problem_moves_nothing_and_two_do() -> None:
    alone = [row(120, short=1.0, long=2.0)]
    assert tuned(alone, Numbers()) == Numbers()
    assert tuned([*alone, row(121, short=1.0, long=2.0)], Numbers()).first_length > 121


def test_losses_count_beside_gains() -> None:
    rows = [row(120, short=1.0, long=1.2), row(121, short=1.0, long=1.2), row(110, short=2.0, long=1.0)]
    assert tuned(rows, Numbers()) == Numbers()


def test_bounds_of_classes_keep_their_order() -> None:
    def choose_by_second(length: int, numbers: Numbers) -> str:
        return "short" if length < numbers.bounds_ks[1] else "long"

    rows = [row(n, long=1.0, short=2.0) for n in range(1, 16)]
    tuning = Tuning(rows, replace(CHOOSING, choose=choose_by_second))
    least = min(numbers.bounds_ks[1] for numbers, _ in tuning.changes(Numbers()))
    assert least >= Numbers().bounds_ks[0]


def test_a_path_that_was_not_predicted_counts_as_slow() -> None:
    rows = Tuning([row(200, short=3.0)], CHOOSING).chosen(Numbers())
    assert rows[0].chosen == "long"
    assert rows[0].time_us == MOST_KNOWN * 3.0


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command writes its numbers."""
    monkeypatch.setattr(choice, "path_of", lambda operator: tmp_path / "numbers")
    monkeypatch.setattr(command, "nvrtc_version", lambda: "13.0")
    return tmp_path / "numbers"


def rows_with(numbers: Any) -> Any:
    """Rows for which the choice by these numbers is the best, and every other path takes twice as long."""

    def rows_of(scan: Any, points: list[Any]) -> list[Row[Any]]:
        choosing = scan.choosing
        best = [choosing.choose(choosing.problem_of(point), numbers) for point in points]
        return [
            Row(point, name, {other: 1.0 if other == name else 2.0 for other in scan.names})
            for point, name in zip(points, best, strict=True)
        ]

    return rows_of


@pytest.mark.parametrize(
    ("operator", "numbers", "name", "count"),
    [
        ("slice", SLICE, "max_gathered_run_bytes", 320),
        ("reverse_subsequences", REVERSAL, "gather_item_clocks", 120),
    ],
)
def test_the_command_writes_numbers_that_choose_better(
    operator: str,
    numbers: Any,
    name: str,
    count: int,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = getattr(numbers, name)
    eighth = tuple(number // 8 for number in before) if isinstance(before, tuple) else before // 8
    monkeypatch.setattr(command, "rows_of", rows_with(replace(numbers, **{name: eighth})))
    assert _command(operator, count) == 0
    assert name in capsys.readouterr().out
    members = json.loads(file.read_text())
    origin, measured = scan_of(operator).measured()
    num_tuned = len(measured) - len(measured[::8])
    kinds = f"{origin}, {num_tuned} points; else: Predicted, not measured. NVRTC 13.0. "
    assert origin.startswith("Measured on NVIDIA H200")
    assert members["source"].startswith(kinds)
    assert np.sum(members[name]) < np.sum(before)


@pytest.mark.parametrize(("operator", "numbers"), [("slice", SLICE), ("reverse_subsequences", REVERSAL)])
def test_the_command_writes_nothing_that_does_not(
    operator: str, numbers: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "rows_of", rows_with(numbers))
    assert _command(operator, 60) == 1
    assert not file.exists()


def test_the_command_keeps_a_tree_that_chooses_better(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than one that is grown from a few problems."""
    pytest.importorskip("sklearn", reason="a tree is grown by scikit-learn")
    scan = replace(scan_of("top_k"), points=lambda: [])
    monkeypatch.setattr(tree, "path_of", lambda operator: file)
    monkeypatch.setattr(Scan, "drawn_table", tmp_path / "table")
    monkeypatch.setattr(command, "rows_of", rows_with(scan.choosing.numbers))
    assert command._tune(scan, command.drawn(scan, 60, 3), argparse.Namespace(seed=3)) == 1
    assert not file.exists()
    assert len(scan.read(tmp_path / "table")[1]) == 60


def test_the_command_grows_a_tree_that_chooses_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By times by which a short tree is right. Drawn problems are added to those of before."""
    pytest.importorskip("sklearn", reason="a tree is grown by scikit-learn")
    scan = replace(scan_of("top_k"), points=lambda: [])
    before = scan.choosing.numbers
    is_short = Question(before.features.index("row_length"), 500, 1)
    rows_of = rows_with(Tree(before.features, (is_short, ("warp_sort",), ("block_radix",))))
    file, table = tmp_path / "tree", tmp_path / "table"
    first, drawn, others = (command.drawn(scan, *of) for of in ((100, 1), (200, 3), (100, 5)))
    table.write_text(scan.table_text("Predicted", rows_of(scan, first)))
    monkeypatch.setattr(tree, "path_of", lambda operator: file)
    monkeypatch.setattr(Scan, "drawn_table", table)
    monkeypatch.setattr(Scan, "measured", lambda self: ("", []))
    monkeypatch.setattr(command, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr(command, "rows_of", rows_of)
    assert command._tune(scan, drawn, argparse.Namespace(seed=3)) == 0
    points = [row.point for row in scan.read(table)[1]]
    assert points[:100] == first
    assert set(points[100:]) <= set(command.drawn(scan, 2000, 3))
    assert set(points[100:]) != set(drawn)
    assert len(set(points)) == 300
    source, *lines = file.read_text().splitlines()
    assert source.startswith("# Predicted, not measured. NVRTC 13.0. regret: ")
    assert source.endswith("(60 problems, seed 4)")
    chosen = Tuning(rows_of(scan, others), scan.choosing).chosen
    regrets = [
        [row.time_us / row.times[row.best] for row in chosen(one)]
        for one in (before, tree_of(lines, before.features))
    ]
    assert np.mean(regrets[1]) < np.mean(regrets[0]) - 0.1


def test_a_choice_is_tuned_by_drawn_problems(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["top_k", "--write"])
    assert "--write tunes by problems of --random" in capsys.readouterr().err


def _command(operator: str, count: int) -> int:
    scan = command.scan_of(operator)
    options = argparse.Namespace(random=count, seed=3)
    return command._tune(scan, command.drawn(scan, count, 3), options)
