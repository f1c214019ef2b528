"""Exceptions in the planner of top-k over lengths and k; `test_scans.py` compares the table.

The aim is that it takes the best path, and that no size takes much longer than its neighbour.
"""

from dataclasses import replace

import pytest

from bench.prediction import plan as command
from bench.prediction.scan import dear
from bench.prediction.scans.top_k import SCAN, Point, jumps
from proof.sass.compiler import unavailable

_, RECORDED = SCAN.read()

#: Sizes that take over 1.5 times what a neighbour takes, and points for which another path is 10 % faster.
#: A number that falls is lowered here. The jump is of 16384 rows of float16, k = 8: 1025 elements take
#: another shape of `warp_select`, and no path is faster. Of shapes that are not compiled, 16 lanes with 8
#: units of 16 elements would take 27.0 us, 1.498 times as much.
JUMPS, DEAR = 1, 0


def test_exceptions_do_not_increase() -> None:
    jumping, slower = [*jumps(RECORDED)], [*dear(RECORDED)]
    assert (len(jumping), len(slower)) == (JUMPS, DEAR), "\n".join([*jumping, *slower])


def test_jumps_are_reported() -> None:
    """A neighbour that takes twice as long."""
    (row,) = (row for row in RECORDED if row.point == Point("rows", "float32", 16384, 64, 8))
    later = replace(row, point=replace(row.point, row_length=65), times={row.chosen: 1.6 * row.time_us})
    assert [text[:4] for text in jumps([row, later])] == ["1.58"]
    assert [*jumps([row, replace(later, times={row.chosen: 1.5 * row.time_us})])] == []


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_command_prints_other_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of given options, and no file is written."""
    before = SCAN.table.read_bytes()
    command.main(["top_k", "--rows", "7", "--k", "3", "--max-length", "32"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" float32")[0] for line in lines[:2]] == ["7 rows of 16", "7 rows of 32"]
    assert lines[2].startswith("2 points")
    assert SCAN.table.read_bytes() == before
