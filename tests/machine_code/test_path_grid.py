"""The path that is chosen is within a tenth of the best predicted one, on a grid around the thresholds.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install 'cudml[nvrtc]'`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.machine_code.compiler import unavailable
from tests.machine_code.path_grid import GRID, Point

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

MOST = 1.1

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
            yield pytest.param(point, id=f"{operator}-{point.name}", marks=marks)


@pytest.mark.parametrize("point", list(_points()))
def test_chosen_path_is_hardly_dearer_than_the_best(point: Point) -> None:
    times = point.times()
    assert times[point.chosen()] <= MOST * min(times.values()), (point.chosen(), times)


def test_quick_points_are_of_the_grid() -> None:
    names = [point.name for points in GRID.values() for point in points()]
    assert set(QUICK) <= set(names)
    assert len(names) == len(set(names))
