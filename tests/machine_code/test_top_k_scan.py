"""The planner of top-k over lengths and k, in the committed table of predicted times.

The aim is that it takes the best path, and that no size takes much longer than its neighbour; exceptions are
counted. `python -m bench plan top_k` writes the table. With `--predictions` all points are predicted again,
without it some. Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install 'cudml[nvrtc]'`.
"""

from dataclasses import replace
from typing import Any

import pytest

from bench.prediction import plan as command
from bench.prediction import scan
from bench.prediction.scan import Point, Row
from bench.prediction.table import TOLERANCE
from tests.machine_code.compiler import nvrtc_version, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

VERSION, RECORDED = scan.read()

#: Points on both sides of thresholds that are predicted without the option.
QUICK = {
    Point("rows", "float32", 16384, 64, 32),
    Point("rows", "float32", 16384, 65, 32),
    Point("rows", "float32", 1024, 1024, 8),
    Point("rows", "float32", 1024, 1025, 8),
    Point("columns", "float32", 4096, 1024, 1),
}


#: Sizes that take over 1.5 times what a neighbour takes, and points for which another path is 10 % faster.
#: Most are rows that fit no warp, or begin anywhere, and few columns. A number that falls is lowered here.
JUMPS, DEAR = 26, 41


def test_exceptions_do_not_increase() -> None:
    jumps, dear = [*scan.jumps(RECORDED)], [*scan.dear(RECORDED)]
    assert (len(jumps), len(dear)) == (JUMPS, DEAR), "\n".join([*jumps, *dear])


def test_table_has_every_point() -> None:
    """Both sides of every change of kernels are among them, so a threshold that moves is seen."""
    assert [row.point for row in RECORDED] == scan.points()
    assert {row.point for row in RECORDED} >= QUICK


def test_planner_takes_the_recorded_paths() -> None:
    taken = {str(row.point): row.point.chosen() for row in RECORDED}
    assert taken == {str(row.point): row.chosen for row in RECORDED}


def _points() -> list[Any]:
    quick = {row.point: () if row.point in QUICK else (pytest.mark.predictions,) for row in RECORDED}
    return [pytest.param(row, id=str(row.point), marks=quick[row.point]) for row in RECORDED]


@pytest.mark.parametrize("row", _points())
def test_point_takes_the_recorded_times(row: Row) -> None:
    if nvrtc_version() != VERSION:
        pytest.skip(f"the table is by NVRTC {VERSION}, this is {nvrtc_version()}")
    times = scan.row_of(row.point).times
    assert times == pytest.approx(row.times, rel=TOLERANCE), "run `python -m bench plan top_k`"


def test_findings_are_reported() -> None:
    """A neighbour that takes twice as long, and a path that takes half as long."""
    (row,) = (row for row in RECORDED if row.point == Point("rows", "float32", 16384, 64, 8))
    time = row.time_us
    later = replace(row, point=replace(row.point, row_length=65), times={row.chosen: 1.6 * time})
    assert [text[:4] for text in scan.jumps([row, later])] == ["1.58"]
    assert [*scan.jumps([row, replace(later, times={row.chosen: 1.5 * time})])] == []
    sooner = replace(row, times={row.chosen: time, "columns": time / 1.2})
    assert [text[:30] for text in scan.dear([sooner])] == ["1.20 times the time of columns"]
    assert [*scan.dear([replace(row, times={row.chosen: time, "columns": time / 1.09})])] == []


def test_command_prints_other_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of given options, and no file is written."""
    before = scan.TABLE.read_bytes()
    command.main(["top_k", "--rows", "7", "--k", "3", "--max-length", "32"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" float32")[0] for line in lines[:2]] == ["7 rows of 16", "7 rows of 32"]
    assert lines[2].startswith("2 points")
    assert scan.TABLE.read_bytes() == before
