"""Planners against the committed tables of predicted times: `python -m bench plan OPERATOR` writes them.

With `--predictions` all points are predicted again, without it some. Predictions are skipped where CuPy,
NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.prediction import plan as command
from bench.prediction import scan
from bench.prediction.draw import figures_of
from bench.prediction.scan import OPERATORS, Row, scan_of
from bench.prediction.scans import gru, reverse_subsequences, slice, top_k
from bench.prediction.table import TOLERANCE
from proof.sass.compiler import nvrtc_version, unavailable

needs_compiler = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

SCANS = {operator: scan_of(operator) for operator in OPERATORS}
RECORDED = {operator: scan.read() for operator, scan in SCANS.items()}

#: Points on both sides of thresholds, which are predicted without the option.
QUICK = {
    "top_k": [
        top_k.Point("rows", "float32", 16384, 64, 32),
        top_k.Point("rows", "float32", 16384, 65, 32),
        top_k.Point("rows", "float32", 1024, 1536, 8),
        top_k.Point("rows", "float32", 1024, 1537, 8),
        top_k.Point("columns", "float32", 4096, 1024, 1),
    ],
    "slice": [
        slice.Point(1, (2739137, 49), (51, 1)),
        slice.Point(1, (925639, 145), (147, 1)),
        slice.Point(1, (174535, 769), (1539, 2)),
        slice.Point(1, (87324, 1537), (4612, 3)),
    ],
    "reverse_subsequences": [
        reverse_subsequences.Point(1, (1024562, 131), 1),
        reverse_subsequences.Point(1, (5466, 24553), 1),
    ],
    "gru": [
        gru.Point("float32", 8, 96),
        gru.Point("float32", 8, 104),
        gru.Point("float16", 32, 128),
        gru.Point("float16", 32, 136),
    ],
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_table_has_every_point(operator: str) -> None:
    """Top-k's points have both sides of every change of kernels, so a threshold that moves is seen."""
    _, rows = RECORDED[operator]
    points = [row.point for row in rows]
    assert points == SCANS[operator].points()
    assert len(set(points)) == len(points)
    assert set(points) >= set(QUICK[operator])


def test_a_point_on_the_lines_differs_in_one_field() -> None:
    point = top_k.Point("rows", "float32", 64, 100, 8)
    of_one = replace(top_k.SCAN, points=lambda: [point])
    near = {point, replace(point, k=9), replace(point, row_length=7000), replace(point, layout="columns")}
    ragged = top_k.RaggedPoint("rows", "float32", 64, 100, 8)
    assert of_one.on_lines([*near, replace(point, k=9, row_length=7000), ragged]) == near


@pytest.mark.parametrize("operator", OPERATORS)
def test_planner_takes_the_recorded_paths(operator: str) -> None:
    _, rows = RECORDED[operator]
    taken = {str(row.point): SCANS[operator].chosen(row.point) for row in rows}
    assert taken == {str(row.point): row.chosen for row in rows}


#: Points for which another path is 10 % faster: by predicted times, and by measured ones where there are any.
#: The trees follow measured times. Lower a number here when it falls. Top-k has a test of its own,
#: `test_top_k_scan.py`.
DEAR = {"slice": (9, 2), "reverse_subsequences": (4, 0), "gru": (0, 0)}


@pytest.mark.parametrize("operator", DEAR)
def test_faster_paths_do_not_increase(operator: str) -> None:
    _, rows = RECORDED[operator]
    slower = [[*scan.dear(rows)], [*scan.dear(SCANS[operator].as_measured(rows))]]
    assert tuple(map(len, slower)) == DEAR[operator], "\n".join(chain(*slower))


def test_measured_times_take_the_place_of_predicted_ones() -> None:
    operator = SCANS["slice"]
    measured = operator.measured()[1]
    other = replace(measured[0], times={"gather": 1.0})
    unknown = replace(other, point=replace(other.point, item_bytes=32))
    assert operator.as_measured([other, unknown]) == [replace(other, times=measured[0].times), unknown]


def test_measured_times_of_a_changed_kernel_follow_its_prediction() -> None:
    """Point by point; the times of other paths are those of the table."""
    operator = SCANS["top_k"]
    tables = (operator.measured_table(gpu) for gpu in ("nvidia-h200", "nvidia-h200-predicted"))
    measured, before = ({row.point: row.times for row in operator.read(table)[1]} for table in tables)
    now = {row.point: row.times for row in RECORDED["top_k"][1]}
    factors = []
    for row in operator.measured()[1]:
        old, new = before.get(row.point, {}), now.get(row.point, {})
        for name, time in measured[row.point].items():
            factors.append(new[name] / old[name] if name in old.keys() & new.keys() else 1)
            assert row.times[name] == pytest.approx(time * factors[-1]), f"{name}, {row.point}"
    assert min(factors) < 0.8
    assert set(before) <= set(measured)


def test_predictions_are_corrected_by_the_median_of_measured_ones() -> None:
    """The median is of one path, for rows and columns apart; an unmeasured path keeps its time."""
    operator = SCANS["top_k"]
    predicted = {row.point: row.times for row in RECORDED["top_k"][1]}
    ratios: dict[str, list[float]] = {"rows": [], "columns": []}
    for row in operator.measured()[1]:
        if "warp_select" in predicted.get(row.point, {}):
            ratios[row.point.layout].append(row.times["warp_select"] / predicted[row.point]["warp_select"])
    times = {"warp_select": 10.0, "unknown": 10.0}
    for layout, of_layout in ratios.items():
        row = Row(top_k.Point(layout, "int8", 5, 7, 1), "unknown", times)
        (got,) = operator.corrected([row])
        assert got.times == {"warp_select": pytest.approx(10 * np.median(of_layout)), "unknown": 10}
    assert np.median(ratios["columns"]) > 1.05 * np.median(ratios["rows"])


@pytest.mark.parametrize("operator", ["top_k", "slice", "reverse_subsequences"])
def test_times_are_corrected_where_that_pays(operator: str) -> None:
    """On half of the measured points: paths of least predicted time, corrected by the other half or not."""
    always = replace(SCANS[operator], corrects=True)
    predicted = {row.point: row for row in RECORDED[operator][1]}
    measured = [row for row in always.measured()[1] if row.point in predicted]
    regrets: dict[str, list[float]] = {"predicted": [], "corrected": []}
    for half in (0, 1):
        known = measured[half::2]
        rows = [predicted[row.point] for row in known]
        corrected = always.corrected(rows, measured[1 - half :: 2])
        for by, found in (("predicted", rows), ("corrected", corrected)):
            for row, one in zip(found, known, strict=True):
                best = min(row.times.keys() & one.times.keys(), key=row.times.__getitem__)
                regrets[by].append(one.times[best] / one.times[one.best])
    print({by: figures_of(of_points) for by, of_points in regrets.items()})
    by_corrected, by_predicted = (np.mean(np.log(regrets[by])) for by in ("corrected", "predicted"))
    assert (by_corrected < by_predicted) == SCANS[operator].corrects
    assert (SCANS[operator].corrected(rows) != rows) == SCANS[operator].corrects
    assert always.corrected(rows, measured=[]) == rows


def _rows() -> list[Any]:
    return [
        pytest.param(
            operator,
            row,
            id=f"{operator}-{row.point}",
            marks=() if row.point in QUICK[operator] else pytest.mark.predictions,
        )
        for operator, (_, rows) in RECORDED.items()
        for row in rows
    ]


@needs_compiler
@pytest.mark.parametrize(("operator", "row"), _rows())
def test_point_takes_the_recorded_times(operator: str, row: Row[Any]) -> None:
    origin = RECORDED[operator][0]
    if scan.predicted_by(nvrtc_version()) != origin:
        pytest.skip(f"the table is {origin}, this is {nvrtc_version()}")
    times = SCANS[operator].row_of(row.point).times
    assert times == pytest.approx(row.times, rel=TOLERANCE), f"run `python -m bench plan {operator}`"


def test_a_dear_choice_is_reported() -> None:
    """A choice that takes 1.2 times as long as another path, but not one that takes 1.1 times as long."""
    (row,) = (row for row in RECORDED["slice"][1] if row.point == QUICK["slice"][0])
    sooner = replace(row, times={row.chosen: 12.0, "runs": 10.0})
    assert [text[:27] for text in scan.dear([sooner])] == ["1.20 times the time of runs"]
    assert [*scan.dear([replace(row, times={row.chosen: 12.0, "runs": 11.0})])] == []


@needs_compiler
def test_a_launch_runs_after_those_whose_output_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier launches run even if their own predictions are kept."""
    monkeypatch.setattr(scan, "cache_dir", lambda: tmp_path)
    point = top_k.Point("columns", "float32", 64, 2048, 3)
    plan = point.plan("columns")
    assert [step.function for step in plan.steps] == ["top_k_columns", "top_k_columns_merge"]
    time_us = scan._time_of(plan, point)
    _, second = sorted((tmp_path / "predictions").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    second.unlink()
    assert scan._time_of(plan, point) == time_us
    assert second.exists()


@needs_compiler
def test_command_prints_some_points(capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes no file."""
    before = SCANS["slice"].table.read_bytes()
    assert command.main(["slice", "--point", str(QUICK["slice"][0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2739137 x 49 of 1 bytes, strides 51 x 1")
    assert lines[1] == "1 points, 0 findings"
    assert SCANS["slice"].table.read_bytes() == before
    with pytest.raises(SystemExit):
        command.main(["slice", "--point", "of no scan"])
    assert "no point has 'of no scan' in its text" in capsys.readouterr().err
