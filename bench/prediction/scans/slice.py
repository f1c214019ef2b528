"""Slices around the sizes at which their paths change: rows, rows with a stride, matrices."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.prediction import scan
from bench.prediction.draw import box, log_uniform, one
from bench.prediction.grow import ByTree
from bench.prediction.scan import Scan
from bench.sources import Source
from cudml.dtypes import BITS_BY_SIZE
from cudml.operators.launch_shape import BLOCK_THREADS
from cudml.operators.slice import operator as slice
from cudml.operators.slice.box import BoxCopy
from cudml.operators.slice.gather import GATHER_ITEMS_PER_THREAD
from cudml.operators.slice.operator import SliceDesc
from cudml.operators.slice.paths import (
    PATHS,
    Features,
    box_copy,
    choose_path,
    features_of,
)
from cudml.operators.tree import read_tree
from cudml.plans import SECTOR_BYTES, Limits, Plan
from cudml.tensors import TensorDesc
from proof.sass.launch import zeros
from proof.sass.plan import HOPPER

#: Paths of a GPU, without the driver's copy, whose choice rests on measured times.
NAMES = tuple(name for name in PATHS if name not in ("serial", "driver"))

#: Bytes of an output: enough that the launch is a small part of the time.
NUM_BYTES = 128 << 20

#: Bytes of a drawn output, at most; with steps between its items, the source has up to eight times as many.
_MAX_DRAWN_BYTES = 64 << 20

#: Sizes around which points lie, by item: runs, and outputs small enough to be gathered.
_RUN_BYTES = {1: 96, 2: 192, 4: 512, 8: 1024, 16: 870}
_GATHERED_RUN_BYTES = {1: 1 << 20, 2: 32 << 20, 4: 40 << 20, 8: 32 << 20, 16: 32 << 20}
_GATHERED_MATRIX_BYTES = {1: 1 << 20, 2: 1 << 19, 4: 1 << 19, 8: 1 << 19, 16: 1 << 19}

#: The same of lines of planes, for pixels of 2, 3 and 4 items that are split, or joined.
_SPLIT_PLANE_BYTES = {1: (64, 64, 64), 2: (400, 400, 340)}
_JOINED_PLANE_BYTES = {1: (24, 24, 24), 2: (180, 82, 120)}

#: Rows of every second, third and eighth item: bytes of the target around which lengths are, by item.
_STRIDED_ROW_BYTES = {1: 1536, 2: 65536, 4: 65536}


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

    def plan(self, path: str | None = None, limits: Limits = HOPPER.limits) -> Plan:
        """The plan on a GPU, an H200 unless told otherwise, by a path or by the chosen one."""
        return slice.plan(self.desc, limits, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """Memory that is not touched."""
        desc = self.desc
        return {name: zeros(getattr(desc, name).span_bytes) for name in ("input_tensor", "output_tensor")}

    def drawn(self, source: Source) -> dict[str, Any]:
        """Any bits."""
        return {"input_tensor": source.bits((self.desc.input_tensor.span_bytes,), np.uint8)}


def near(least: int, item: int, factors: Iterable[float] = (0.5, 1, 1.5, 4)) -> list[int]:
    """Counts of items around a threshold in bytes: odd, so that nothing is widened."""
    return sorted({max(3, int(least * factor) // item) | 1 for factor in factors})


def points() -> list[Point]:
    """The points of the committed table."""
    found = []
    for item, least in _RUN_BYTES.items():
        for row in near(least, item):
            found.append(Point(item, (NUM_BYTES // (row * item), row), (row + 2, 1)))
    for item, row_bytes in _STRIDED_ROW_BYTES.items():
        for stride in (2, 3, 8):
            for row in near(row_bytes, item):
                found.append(Point(item, (NUM_BYTES // (row * item), row), (row * stride + 1, stride)))
    for item in (1, 2, 4, 8):  # one of the dimensions is short
        found += [_across(item, other, line) for line in (2, 3, 4, 16, 33, 64) for other in (3, 64)]
    for item, leasts in _SPLIT_PLANE_BYTES.items():
        for pixel, least in enumerate(leasts, 2):
            found += [_across(item, pixel, line) for line in near(least, item)]
    for item, leasts in _JOINED_PLANE_BYTES.items():
        for pixel, least in enumerate(leasts, 2):
            found += [_across(item, line, pixel) for line in near(least, item)]
    for item in BITS_BY_SIZE:  # matrices that fill a quarter of their tiles and more
        shapes = ((129, 129), (200, 200), (65, 512), (512, 65), (33, 600))
        found += [_across(item, other, line) for other, line in shapes]
    for item, most in _GATHERED_RUN_BYTES.items():
        found += [Point(item, (count, 999), (1001, 1)) for count in near(most, item * 999, (0.5, 1.5))]
    for item, most in _GATHERED_MATRIX_BYTES.items():
        for line in near(most, item * 333, (0.5, 1.5)):
            found.append(Point(item, (333, line), (1, 333)))
    for item, count in GATHER_ITEMS_PER_THREAD.items():
        longest = BLOCK_THREADS * count * item // SECTOR_BYTES  # line that a block gathers in whole sectors
        found += [_across(item, 512, line) for line in near(longest, 1, (0.75, 1.25))]
    return list(dict.fromkeys(found))


def _across(item: int, other: int, line: int) -> Point:
    """Matrices whose lines in the target are columns in the source."""
    count = max(1, NUM_BYTES // math.prod((item, other, line)))
    return Point(item, (count, other, line), (other * line, 1, other))


def draw(random: np.random.Generator) -> Point:
    """Boxes of one to four dimensions in any order, with gaps between rows and steps between items.

    One in four has a dimension of a pixel's items.
    """
    item = one(random, *BITS_BY_SIZE)
    num_bytes = log_uniform(random, 1 << 10, _MAX_DRAWN_BYTES)
    if one(random, False, False, False, True):
        pixel = one(random, 2, 3, 3, 4)
        sizes = box(random, num_bytes // item // pixel, int(random.integers(1, 4)))
        place = int(random.integers(len(sizes) + 1))
        sizes = (*sizes[:place], pixel, *sizes[place:])
    else:
        sizes = box(random, num_bytes // item, int(random.integers(1, 5)))
    order = [*range(len(sizes))]  # from the slowest dimension of the source to the fastest
    if one(random, False, False, True):
        random.shuffle(order)
    strides = [0] * len(sizes)
    stride = log_uniform(random, 2, 8) if one(random, False, False, True) else 1
    for dimension in reversed(order):
        strides[dimension] = stride
        gap = log_uniform(random, 1, 16) if one(random, False, True) else 0
        stride = stride * sizes[dimension] + gap
    return Point(item, sizes, tuple(strides))


def _copy_of(point: Point) -> BoxCopy:
    return box_copy(slice.space_of_desc(point.desc), "input_tensor", "output_tensor")


_BY_TREE = ByTree(
    numbers=read_tree("slice", Features._fields),
    problem_of=_copy_of,
    choose_path=choose_path,
    features_of=features_of,
    paths={name: PATHS[name] for name in NAMES},
    # The number for reversals; others were not tried.
    most_leaves=600,
)

SCAN = Scan("slice", NAMES, Point, points, draw, _BY_TREE)
