"""The path that is chosen is within a tenth of the best predicted one, on a grid around the thresholds.

The table has every point; what is chosen is compared with it for each of them, and times for some.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.prediction.paths import MOST_OF_BEST
from bench.prediction.table import TOLERANCE
from tests.machine_code.compiler import unavailable
from tests.machine_code.path_grid import GRID, Point, read_rows, row_of

RECORDED = {(row.operator, row.point): row for row in read_rows()}

#: Points on both sides of a threshold that are run without the option.
QUICK = (
    *("rows of 49, items of 1", "rows of 145, items of 1"),
    *("rows of 769, every 2, items of 1", "rows of 1537, every 3, items of 1"),
    *("lanes of 131, items of 1", "lanes of 24553, items of 1"),
)


def _points() -> Iterator[Any]:
    for operator, points in GRID.items():
        for point in points():
            marks = () if point.name in QUICK else (pytest.mark.predictions,)
            yield pytest.param(operator, point, id=f"{operator}-{point.name}", marks=marks)


def test_chosen_paths_are_those_of_the_table() -> None:
    """`python -m tests.machine_code.path_grid` renews it."""
    chosen = {
        (operator, point.name): point.chosen() for operator, points in GRID.items() for point in points()
    }
    assert list(chosen) == list(RECORDED)
    assert chosen == {key: row.chosen for key, row in RECORDED.items()}


def test_chosen_paths_are_hardly_dearer_than_the_best() -> None:
    assert {key: row.ratio for key, row in RECORDED.items() if row.ratio > MOST_OF_BEST} == {}


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize(("operator", "point"), list(_points()))
def test_times_are_those_of_the_table(operator: str, point: Point) -> None:
    row, recorded = row_of(operator, point), RECORDED[operator, point.name]
    assert row.ratio <= MOST_OF_BEST, row
    assert row.times[row.chosen] == pytest.approx(recorded.times[recorded.chosen], rel=TOLERANCE), row


def test_quick_points_are_of_the_grid() -> None:
    names = [point.name for points in GRID.values() for point in points()]
    assert set(QUICK) <= set(names)
    assert len(names) == len(set(names))
