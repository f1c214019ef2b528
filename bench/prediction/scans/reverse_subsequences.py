"""Reversals around the sizes at which their paths change: lanes, rows, boxes and strips of lanes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.prediction import scan
from bench.prediction.cases import aligned
from bench.prediction.draw import box, log_uniform, one
from bench.prediction.grow import ByTree
from bench.prediction.scan import Scan
from bench.prediction.scans.slice import NUM_BYTES, near
from bench.sources import Source
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators.reverse_subsequences import operator as reverse_subsequences
from cudml.operators.reverse_subsequences.boxes import BOX_TILE_BYTES
from cudml.operators.reverse_subsequences.lanes import Lanes, lanes_of
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc
from cudml.operators.reverse_subsequences.paths import (
    PATHS,
    Features,
    choose_path,
    features_of,
)
from cudml.operators.tree import read_tree
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc
from proof.sass.launch import zeros
from proof.sass.plan import HOPPER

#: Paths of a GPU; lanes of one element are copied by a path of slices.
NAMES = tuple(name for name in PATHS if name not in ("serial", "serial_columns", "copy"))

#: Sizes in bytes around which points of large outputs lie: by item, lanes between gaps, which the gather
#: moves if they are shorter, and rows of one length, which strips move; and the narrowest rows of strips.
_LANE_BYTES = {1: 40, 2: 64, 4: 128, 8: 256, 16: 512}
_ROW_BYTES = {1: 40, 2: 64, 4: 192, 8: 256, 16: 512}
_STRIP_ROW_BYTES = 5


@dataclass(frozen=True)
class Point(scan.Point):
    """Lanes along an axis, `gap` items between rows; `lengths` is "own", or "row" if rows share theirs."""

    item_bytes: int
    sizes: tuple[int, ...]
    axis: int
    gap: int = 0
    lengths: str = "own"

    def __str__(self) -> str:
        gap = f", gaps of {self.gap}" if self.gap else ""
        shared = ", rows of one length" if self.lengths == "row" else ""
        sizes = " x ".join(map(str, self.sizes))
        return f"{sizes} of {self.item_bytes} bytes, axis {self.axis}{gap}{shared}"

    @property
    def desc(self) -> ReverseSubsequencesDesc:
        """What `cudml.reverse_subsequences` computes."""
        sizes = self.sizes
        lane_sizes = tuple(1 if d == self.axis else size for d, size in enumerate(sizes))
        rows = [math.prod(sizes[d + 1 : -1]) * (sizes[-1] + self.gap) for d in range(len(sizes) - 1)]
        tensor = TensorDesc(BITS_BY_SIZE[self.item_bytes], sizes, (*rows, 1))
        lengths = TensorDesc(DataType.UINT32, lane_sizes)
        if self.lengths == "row":
            lengths = TensorDesc(DataType.UINT32, lane_sizes, (1, *(0 for _ in sizes[1:])))
        return ReverseSubsequencesDesc(tensor, lengths, tensor, self.axis)

    def plan(self, path: str | None = None, limits: Limits = HOPPER.limits) -> Plan:
        """The plan on a GPU, an H200 unless told otherwise, by a path or by the chosen one."""
        return reverse_subsequences.plan(self.desc, limits, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """Memory that is not touched, and lengths from none to the whole axis."""
        desc = self.desc
        count = math.prod(desc.sequence_lengths_tensor.sizes)
        most = self.sizes[self.axis]
        lengths = np.random.default_rng(1).integers(0, most, count, np.uint32, endpoint=True)
        return {
            "input_tensor": zeros(desc.input_tensor.span_bytes),
            "sequence_lengths_tensor": aligned(lengths),
            "output_tensor": zeros(desc.output_tensor.span_bytes),
        }

    def drawn(self, source: Source) -> dict[str, Any]:
        """Any bits."""
        return {"input_tensor": source.bits((self.desc.input_tensor.span_bytes,), np.uint8)}


def points() -> list[Point]:
    """The points of the committed table."""
    found = []
    for item in BITS_BY_SIZE:
        for size in near(BOX_TILE_BYTES, item, (0.001, 0.008, 0.06, 0.5, 0.9, 1.5)):
            found.append(Point(item, (NUM_BYTES // (size * item), size), 1))
    for item, least in _LANE_BYTES.items():
        for size in near(least, item):
            found.append(Point(item, (NUM_BYTES // (size * item), size), 1, gap=2))
    for item, least in _ROW_BYTES.items():
        for size in sorted({*near(least, item), *near(BOX_TILE_BYTES // 64, item)}):
            sizes = (NUM_BYTES // (64 * size * item), 64, size)
            found += [Point(item, sizes, 1, gap, "row") for gap in (0, 2)]
    for item in (1, 2, 4):
        for size in near(BOX_TILE_BYTES, item):
            found.append(Point(item, (NUM_BYTES // (size * item), max(3, size // 9), 9), 1))
        for row in near(_STRIP_ROW_BYTES, item):
            found.append(Point(item, (NUM_BYTES // (256 * row * item), 256, row), 1, gap=4))
    return found


def draw(random: np.random.Generator) -> Point:
    """Tensors of two to four dimensions, any axis, with gaps between rows, and lengths of both kinds."""
    item = one(random, *BITS_BY_SIZE)
    num_bytes = log_uniform(random, 1 << 10, NUM_BYTES // 2)
    sizes = box(random, num_bytes // item, int(random.integers(2, 5)))
    gap = one(random, 0, 0, log_uniform(random, 1, 16))
    return Point(item, sizes, int(random.integers(len(sizes))), gap, one(random, "own", "own", "row"))


def _lanes_of(point: Point) -> Lanes:
    desc = point.desc
    return lanes_of(desc.input_tensor, desc.sequence_lengths_tensor, desc.output_tensor, desc.axis)


_BY_TREE = ByTree(
    numbers=read_tree("reverse_subsequences", Features._fields),
    problem_of=_lanes_of,
    choose_path=choose_path,
    features_of=features_of,
    paths={name: PATHS[name] for name in NAMES},
    # The worst regret of 3,000 problems, each kept back once, was 1.459 by 600 leaves, 2.158 by 300 and 2.121
    # by 1200.
    most_leaves=600,
)

SCAN = Scan("reverse_subsequences", NAMES, Point, points, draw, _BY_TREE)
