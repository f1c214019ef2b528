"""A grid of slices and reversals around the thresholds that decide between paths, and their predicted times.

`python -m tests.machine_code.path_grid [OPERATOR [NAME]]` writes those whose name contains a text, or all, to
bench/results/predicted-paths.csv.
"""

import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.prediction.cases import Planned, aligned, launches_of
from bench.prediction.model import predict
from bench.prediction.paths import MOST_OF_BEST, chosen_of, least_clocks, plans_of
from bench.results import RESULTS
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators import (
    reverse_subsequences,
    reverse_subsequences_paths,
    slice,
    slice_paths,
)
from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
from cudml.operators.slice import SliceDesc
from cudml.plans import Plan
from cudml.tensors import TensorDesc
from tests.machine_code.plan import HOPPER
from tests.machine_code.sass.launch import Launch, zeros
from tests.machine_code.sass.rates import CLOCK_HZ

TABLE = RESULTS / "predicted-paths.csv"

#: Bytes of an output: enough that the launch is a small part of the time.
_BYTES = 128 << 20

#: Paths of a CPU, and of the driver, whose choice rests on measured times.
_OTHERS = ("serial", "serial_columns", "driver", "copy")


@dataclass(frozen=True)
class Point:
    """A problem near a threshold."""

    name: str
    desc: SliceDesc | ReverseSubsequencesDesc

    def plan(self, path: str | None = None) -> Plan:
        """The plan on an H200, by a path or by the chosen one."""
        module = slice if isinstance(self.desc, SliceDesc) else reverse_subsequences
        return module.plan(self.desc, HOPPER.limits, path=path)  # type: ignore[arg-type]

    @property
    def names(self) -> list[str]:
        """The paths of a GPU."""
        paths = slice_paths.PATHS if isinstance(self.desc, SliceDesc) else reverse_subsequences_paths.PATHS
        return [name for name in paths if name not in _OTHERS]

    def times(self) -> dict[str, float]:
        """Predicted microseconds of the chosen path, and of the others that may be faster."""
        chosen = self.chosen()
        plans = plans_of(self.plan, self.names)
        launches = {name: self._launch(plan) for name, plan in plans.items()}
        times = {chosen: predict(launches.pop(chosen)).time_us}
        for name, launch in launches.items():
            if least_clocks(launch) / CLOCK_HZ * 1e6 < times[chosen]:
                times[name] = predict(launch).time_us
        return times

    def chosen(self) -> str:
        """The path that is chosen."""
        return chosen_of(self.plan, self.names)

    def _launch(self, plan: Plan) -> Launch:
        tensors = {name: getattr(self.desc, name) for name in plan.operands}
        operands = {name: zeros(tensor.span_bytes) for name, tensor in tensors.items()}
        if isinstance(self.desc, ReverseSubsequencesDesc):
            count, most = math.prod(tensors["sequence_lengths_tensor"].sizes), self._axis_size
            lengths = np.random.default_rng(1).integers(0, most, count, np.uint32, endpoint=True)
            operands["sequence_lengths_tensor"] = aligned(lengths)
        ((_, launch),) = launches_of(Planned(plan, operands))
        return launch

    @property
    def _axis_size(self) -> int:
        assert isinstance(self.desc, ReverseSubsequencesDesc)
        return self.desc.input_tensor.sizes[self.desc.axis]


def _copy(name: str, item: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Point:
    """A copy from a tensor of strides to a packed one."""
    source, target = TensorDesc(BITS_BY_SIZE[item], sizes, strides), TensorDesc(BITS_BY_SIZE[item], sizes)
    ones = (1,) * len(sizes)
    return Point(f"{name}, items of {item}", SliceDesc(source, target, (0,) * len(sizes), sizes, ones))


def _reversal(
    name: str, item: int, sizes: tuple[int, ...], axis: int, pad: int = 0, of_one_length: bool = False
) -> Point:
    """A reversal whose rows have a gap, or one length each."""
    lane_sizes = tuple(1 if d == axis else size for d, size in enumerate(sizes))
    rows = [math.prod(sizes[d + 1 : -1]) * (sizes[-1] + pad) for d in range(len(sizes) - 1)]
    tensor = TensorDesc(BITS_BY_SIZE[item], sizes, (*rows, 1))
    lengths = TensorDesc(DataType.UINT32, lane_sizes)
    if of_one_length:
        lengths = TensorDesc(DataType.UINT32, lane_sizes, (1, *(0 for _ in sizes[1:])))
    return Point(f"{name}, items of {item}", ReverseSubsequencesDesc(tensor, lengths, tensor, axis))


def _near(least: int, item: int, *factors: float) -> list[int]:
    """Counts of items around a threshold in bytes: odd, so that nothing is widened."""
    return sorted({max(3, int(least * factor) // item) | 1 for factor in factors or (0.5, 1, 1.5, 4)})


def slices() -> Iterator[Point]:
    """Rows, rows with a stride, and lines of one side across those of the other."""
    thresholds = slice_paths.THRESHOLDS
    for item, least in thresholds.min_run_bytes.items():
        for row in _near(least, item):
            yield _copy(f"rows of {row}", item, (_BYTES // (row * item), row), (row + 2, 1))
    for item, least in thresholds.min_strided_row_bytes.items():
        for stride in (2, 3, 8):
            for row in _near(least, item):
                sizes, strides = (_BYTES // (row * item), row), (row * stride + 1, stride)
                yield _copy(f"rows of {row}, every {stride}", item, sizes, strides)
    for item in (1, 2, 4, 8):
        for line in (2, 3, 4, 16, 33, 64):
            for other in (3, 64):
                count = max(1, _BYTES // (line * other * item))
                yield _copy(f"{other} x {line} across", item, (count, other, line), (other * line, 1, other))
    for item in BITS_BY_SIZE:  # matrices that fill a quarter of their tiles and more
        for other, line in ((129, 129), (200, 200), (65, 512), (512, 65), (33, 600)):
            count = _BYTES // (line * other * item)
            yield _copy(f"{other} x {line} across", item, (count, other, line), (other * line, 1, other))


def reversals() -> Iterator[Point]:
    """Lanes with and without gaps, rows of one length, boxes and strips of lanes."""
    thresholds = reverse_subsequences_paths.THRESHOLDS
    for item in BITS_BY_SIZE:
        for size in _near(thresholds.max_box_bytes, item, 0.001, 0.008, 0.06, 0.5, 0.9, 1.5):
            yield _reversal(f"lanes of {size}", item, (_BYTES // (size * item), size), 1)
    for item, least in thresholds.min_run_bytes.items():
        for size in _near(least, item):
            yield _reversal(f"lanes of {size} with gaps", item, (_BYTES // (size * item), size), 1, pad=2)
    for item, least in thresholds.min_row_bytes.items():
        for size in sorted({*_near(least, item), *_near(thresholds.max_box_bytes // 64, item)}):
            name, sizes = f"rows of {size} of one length", (_BYTES // (64 * size * item), 64, size)
            yield _reversal(name, item, sizes, 1, of_one_length=True)
            yield _reversal(f"{name} with gaps", item, sizes, 1, pad=2, of_one_length=True)
    for item in (1, 2, 4):
        for box in _near(thresholds.max_box_bytes, item):
            count, axis = _BYTES // (box * item), max(3, box // 9)
            yield _reversal(f"boxes of {axis} x 9", item, (count, axis, 9), 1)
        for row in _near(thresholds.min_strip_row_bytes, item):
            count = _BYTES // (256 * row * item)
            yield _reversal(f"columns in rows of {row} with gaps", item, (count, 256, row), 1, pad=4)


GRID = {"slice": slices, "reverse_subsequences": reversals}


@dataclass(frozen=True)
class Row:
    """A point of the grid: the path that is chosen, and the predicted microseconds of those that were run."""

    operator: str
    point: str
    chosen: str
    times: dict[str, float]

    @property
    def ratio(self) -> float:
        """The time of the chosen path over the least."""
        return self.times[self.chosen] / min(self.times.values())

    def __str__(self) -> str:
        told = f"{self.ratio:.2f} {' '.join(f'{name} {time}' for name, time in self.times.items())}"
        return f"{self.operator:<12.12} {self.point:<60}{self.chosen:<10}{told}"


def row_of(operator: str, point: Point) -> Row:
    """Predict a point; the fastest path comes first."""
    times = sorted(point.times().items(), key=lambda item: item[1])
    return Row(operator, point.name, point.chosen(), {name: round(time, 1) for name, time in times})


def read_rows() -> list[Row]:
    """The rows of the table."""
    with TABLE.open(newline="") as file:
        lines = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Row(r["operator"], r["point"], r["chosen"], _times(r["times"])) for r in lines]


def _times(text: str) -> dict[str, float]:
    words = text.split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def write_rows(rows: list[Row]) -> None:
    """Put rows among those of the table, in the order of the grid."""
    known = {(row.operator, row.point): row for row in (*(read_rows() if TABLE.exists() else ()), *rows)}
    with TABLE.open("w", newline="") as file:
        file.write("# Predicted, not measured: microseconds on an H200 by path, the fastest one first\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("operator", "point", "chosen", "times"))
        for operator, points in GRID.items():
            for key in ((operator, point.name) for point in points()):
                if row := known.get(key):
                    times = " ".join(f"{name} {time}" for name, time in row.times.items())
                    writer.writerow((*key, row.chosen, times))


def main() -> None:
    """Predict points and write them."""
    operator, name = (*sys.argv[1:], "", "")[:2]
    for of_grid, points in GRID.items():
        for point in points() if operator in ("", of_grid) else ():
            if name in point.name:
                row = row_of(of_grid, point)
                print(row, "DEAR" if row.ratio > MOST_OF_BEST else "", flush=True)
                write_rows([row])


if __name__ == "__main__":
    main()
