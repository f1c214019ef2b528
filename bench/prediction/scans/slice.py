"""Slices around the thresholds that decide between their paths: rows, rows with a stride, matrices."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bench.prediction import scan
from bench.prediction.scan import Scan
from cudml.dtypes import BITS_BY_SIZE
from cudml.operators import slice
from cudml.operators.slice import SliceDesc
from cudml.operators.slice_paths import PATHS, THRESHOLDS
from cudml.plans import Plan
from cudml.tensors import TensorDesc
from tests.machine_code.plan import HOPPER
from tests.machine_code.sass.launch import zeros

#: Paths of a GPU; when the driver copies rests on measured times.
NAMES = tuple(name for name in PATHS if name not in ("serial", "driver"))

#: Bytes of an output: enough that the launch is a small part of the time.
NUM_BYTES = 128 << 20


@dataclass(frozen=True)
class Point(scan.Point):
    """A copy from a tensor of strides to a packed one."""

    item_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        sizes, strides = (" x ".join(map(str, numbers)) for numbers in (self.sizes, self.strides))
        return f"{sizes} of {self.item_bytes} bytes, strides {strides}"

    @property
    def desc(self) -> SliceDesc:
        """What `cudml.slice` computes."""
        source = TensorDesc(BITS_BY_SIZE[self.item_bytes], self.sizes, self.strides)
        target = TensorDesc(BITS_BY_SIZE[self.item_bytes], self.sizes)
        return SliceDesc(source, target, (0,) * len(self.sizes), self.sizes, (1,) * len(self.sizes))

    def plan(self, path: str | None = None) -> Plan:
        """The plan on an H200, by a path or by the chosen one."""
        return slice.plan(self.desc, HOPPER.limits, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """Memory that is not touched."""
        desc = self.desc
        return {name: zeros(getattr(desc, name).span_bytes) for name in ("input_tensor", "output_tensor")}


def near(least: int, item: int, factors: Iterable[float] = (0.5, 1, 1.5, 4)) -> list[int]:
    """Counts of items around a threshold in bytes: odd, so that nothing is widened."""
    return sorted({max(3, int(least * factor) // item) | 1 for factor in factors})


def points() -> list[Point]:
    """The committed ones."""
    found = []
    for item, least in THRESHOLDS.min_run_bytes.items():
        for row in near(least, item):
            found.append(Point(item, (NUM_BYTES // (row * item), row), (row + 2, 1)))
    for item, least in THRESHOLDS.min_strided_row_bytes.items():
        for stride in (2, 3, 8):
            for row in near(least, item):
                found.append(Point(item, (NUM_BYTES // (row * item), row), (row * stride + 1, stride)))
    for item in (1, 2, 4, 8):  # one of the dimensions is short
        found += [_across(item, other, line) for line in (2, 3, 4, 16, 33, 64) for other in (3, 64)]
    for (item, pixel), least in THRESHOLDS.min_split_plane_bytes.items():
        found += [_across(item, pixel, line) for line in near(least, item)]
    for (item, pixel), least in THRESHOLDS.min_joined_plane_bytes.items():
        found += [_across(item, line, pixel) for line in near(least, item)]
    for item in BITS_BY_SIZE:  # matrices that fill a quarter of their tiles and more
        shapes = ((129, 129), (200, 200), (65, 512), (512, 65), (33, 600))
        found += [_across(item, other, line) for other, line in shapes]
    return list(dict.fromkeys(found))


def _across(item: int, other: int, line: int) -> Point:
    """Matrices whose lines in the target are columns in the source."""
    count = max(1, NUM_BYTES // math.prod((item, other, line)))
    return Point(item, (count, other, line), (other * line, 1, other))


SCAN = Scan("slice", NAMES, Point, points)
