"""Reversals around the thresholds that decide between their paths: lanes, rows, boxes and strips of lanes."""

import math
from dataclasses import dataclass

import numpy as np

from bench.prediction import scan
from bench.prediction.cases import aligned
from bench.prediction.scan import Scan
from bench.prediction.scans.slice import NUM_BYTES, near
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators import reverse_subsequences
from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
from cudml.operators.reverse_subsequences_paths import PATHS, THRESHOLDS
from cudml.plans import Plan
from cudml.tensors import TensorDesc
from tests.machine_code.plan import HOPPER
from tests.machine_code.sass.launch import zeros

#: Paths of a GPU; when the driver copies rests on measured times.
NAMES = tuple(name for name in PATHS if name not in ("serial", "serial_columns", "copy"))


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

    def plan(self, path: str | None = None) -> Plan:
        """The plan on an H200, by a path or by the chosen one."""
        return reverse_subsequences.plan(self.desc, HOPPER.limits, path=path)

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


def points() -> list[Point]:
    """The committed ones."""
    found = []
    for item in BITS_BY_SIZE:
        for size in near(THRESHOLDS.max_box_bytes, item, (0.001, 0.008, 0.06, 0.5, 0.9, 1.5)):
            found.append(Point(item, (NUM_BYTES // (size * item), size), 1))
    for item, least in THRESHOLDS.min_run_bytes.items():
        for size in near(least, item):
            found.append(Point(item, (NUM_BYTES // (size * item), size), 1, gap=2))
    for item, least in THRESHOLDS.min_row_bytes.items():
        for size in sorted({*near(least, item), *near(THRESHOLDS.max_box_bytes // 64, item)}):
            sizes = (NUM_BYTES // (64 * size * item), 64, size)
            found += [Point(item, sizes, 1, gap, "row") for gap in (0, 2)]
    for item in (1, 2, 4):
        for box in near(THRESHOLDS.max_box_bytes, item):
            found.append(Point(item, (NUM_BYTES // (box * item), max(3, box // 9), 9), 1))
        for row in near(THRESHOLDS.min_strip_row_bytes, item):
            found.append(Point(item, (NUM_BYTES // (256 * row * item), 256, row), 1, gap=4))
    return found


SCAN = Scan("reverse_subsequences", NAMES, Point, points)
