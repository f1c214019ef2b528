"""Numbers of a choice by problems with known times: `python -m bench plan OPERATOR --write`."""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest

from bench.prediction import estimates, grow
from bench.prediction import plan as command
from bench.prediction.scan import Row, Scan, scan_of
from bench.prediction.scans import top_k
from bench.prediction.tune import MOST_KNOWN, ByNumbers, Tuning
from cudml.operators import choice, tree
from cudml.operators.path import Choice, Path
from cudml.operators.tree import Ranked, Tree, tree_of
from cudml.plans import Limits


@dataclass(frozen=True)
class Numbers:
    first_length: int = 100
    unused: int = 7


PATHS: dict[str, Path[int]] = {
    name: Path(name, "", lambda row_length, limits: True, lambda row_length, limits: ((), ()))
    for name in ("short", "long")
}


def choose(row_length: int, limits: Limits, numbers: Numbers) -> Choice[int]:
    return Choice(PATHS["short" if row_length < numbers.first_length else "long"], "")


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


def test_a_path_that_was_not_predicted_counts_as_slow() -> None:
    rows = Tuning([row(200, short=3.0)], CHOOSING).chosen(Numbers())
    assert rows[0].chosen == "long"
    assert rows[0].time_us == MOST_KNOWN * 3.0


@pytest.fixture
def file(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> File:
    """Where the command writes its numbers."""
    monkeypatch.setattr(choice, "path_of", lambda operator: tmp_path / "numbers")
    monkeypatch.setattr(command, "nvrtc_version", lambda: "13.0")
    return tmp_path / "numbers"


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of a tenth of the work, which are good enough for few problems."""
    monkeypatch.setitem(estimates._BOOSTING, "max_iter", 100)
    monkeypatch.setattr(grow, "_IMAGINED", 10)


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


def options(seed: int, *, anew: bool = False) -> argparse.Namespace:
    return argparse.Namespace(seed=seed, anew=anew)


#: A choice by two numbers; the unused one is kept, as by measured times.
SCAN = Scan(
    "none", tuple(PATHS), top_k.Point, lambda: [], top_k.draw, replace(CHOOSING, measured=("unused",))
)


def drawn_rows(scan: Any, count: int, seed: int) -> list[top_k.Point]:
    lengths = np.random.default_rng(seed).integers(1, 1000, count)
    return [top_k.Point("rows", "float32", 1, int(length), 1) for length in lengths]


def test_the_command_writes_numbers_that_choose_better(
    file: File, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "drawn", drawn_rows)
    monkeypatch.setattr(command, "rows_of", rows_with(Numbers(400)))
    assert command._tune(SCAN, drawn_rows(SCAN, 100, 3), options(3)) == 0
    assert "first_length 100 -> " in capsys.readouterr().out
    members = json.loads(file.read_text())
    origin = "Measured: unused. Predicted, not measured. NVRTC 13.0. regret: "
    assert members.pop("source").startswith(origin)
    assert 350 < members.pop("first_length") < 450
    assert members == {"unused": Numbers().unused}


def test_the_command_writes_numbers_that_choose_as_well_for_others(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take as much time by either path; the known problems gain."""
    known = drawn_rows(SCAN, 100, 3)

    def rows_of(scan: Any, points: list[Any]) -> list[Row[Any]]:
        rows = rows_with(Numbers(400))(scan, points)
        return rows if points == known else [replace(row, times=dict.fromkeys(PATHS, 1.0)) for row in rows]

    monkeypatch.setattr(command, "drawn", drawn_rows)
    monkeypatch.setattr(command, "rows_of", rows_of)
    assert command._tune(SCAN, known, options(3)) == 0
    assert 350 < json.loads(file.read_text())["first_length"] < 450


def test_the_command_writes_nothing_that_does_not(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "drawn", drawn_rows)
    monkeypatch.setattr(command, "rows_of", rows_with(Numbers()))
    assert command._tune(SCAN, drawn_rows(SCAN, 60, 3), options(3)) == 1
    assert not file.exists()


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("operator", ["top_k", "slice", "reverse_subsequences"])
def test_the_command_keeps_a_tree_that_chooses_better(
    operator: str, anew: bool, file: File, tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept tree chooses better than a tree that is grown from a few problems, or than no other one."""
    pytest.importorskip("sklearn", reason="a tree is grown by scikit-learn")
    scan = replace(scan_of(operator), points=lambda: [], served=lambda: [])
    monkeypatch.setattr(tree, "path_of", lambda operator: file)
    monkeypatch.setattr(Scan, "drawn_table", tmp_path / "table")
    monkeypatch.setattr(command, "rows_of", rows_with(scan.choosing.numbers))
    # Measured times contradict those of the rows, and a leaf may change for them.
    monkeypatch.setattr(Scan, "measured", lambda scan: ("", []))
    assert command._tune(scan, command.drawn(scan, 60, 3), options(3, anew=anew)) == 1
    assert not file.exists()
    assert len(scan.read(tmp_path / "table")[1]) == 60


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("anew", [False, True])
def test_the_command_makes_a_tree_that_chooses_better(
    anew: bool, tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short tree is right for the times. Drawn and served problems are added to earlier ones."""
    pytest.importorskip("sklearn", reason="a tree is grown by scikit-learn")
    served = scan_of("top_k").served()
    scan = replace(scan_of("top_k"), points=lambda: [], served=lambda: served)
    before = scan.choosing.numbers
    row_length = before.features.index("row_length")
    question = (row_length, 500, Ranked(["warp_sort"]), Ranked(["block_radix"]))
    rows_of = rows_with(Tree(before.features, question))
    file, table = tmp_path / "tree", tmp_path / "table"
    first, drawn, others = (command.drawn(scan, *of) for of in ((100, 1), (200, 3), (100, 5)))
    table.write_text(scan.table_text("Predicted", rows_of(scan, first)))
    monkeypatch.setattr(tree, "path_of", lambda operator: file)
    monkeypatch.setattr(Scan, "drawn_table", table)
    measured = rows_of(scan, command.drawn(scan, 17, 7))
    monkeypatch.setattr(Scan, "measured", lambda self: ("Measured on a GPU", measured))
    monkeypatch.setattr(command, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr(command, "rows_of", rows_of)
    assert command._tune(scan, drawn, options(3, anew=anew)) == 0
    points = [row.point for row in scan.read(table)[1]]
    assert points[:100] == first
    assert set(points[100:300]) <= set(command.drawn(scan, 2000, 3))
    assert set(points[100:300]) != set(drawn)
    assert points[300:] == served
    assert len(set(points)) == len(points)
    source, *lines = file.read_text().splitlines()
    origin = "Measured on a GPU, 14 points; else: Predicted, not measured. NVRTC 13.0."
    assert source.startswith(f"# {origin} regret: ")
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


@pytest.mark.parametrize("arguments", [["top_k", "--anew"], ["gru", "--random", "1", "--write", "--anew"]])
def test_a_tree_is_grown_to_be_written(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert "--anew grows a tree for --write" in capsys.readouterr().err
