"""Top-k over lengths and k: the path that the planner chooses, and the predicted time of each that can do it.

A line is what differs in the length alone, or in k alone. It has powers of two, and both sides of every
change of kernels between them, where a wrong threshold would show.
"""

import csv
import functools
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.prediction import model
from bench.prediction.cases import Planned, launches_of
from bench.prediction.model import Prediction, library_call, predict
from bench.prediction.paths import MOST_OF_BEST, chosen_of, least_clocks, plans_of
from bench.results import RESULTS
from bench.sources import Source
from cudml.dtypes import element_type_of
from cudml.enums import AxisDirection, DataType
from cudml.operators import top_k
from cudml.operators.top_k_paths import PATHS
from cudml.plans import KernelLaunch, Plan
from cudml.settings import cache_dir
from cudml.tensors import TensorDesc
from tests.machine_code.plan import HOPPER
from tests.machine_code.sass import machine, rates
from tests.machine_code.sass.launch import Launch, zeros

TABLE = RESULTS / "top_k_scan.csv"

#: The most times that one size may take of what its neighbour takes, beyond the ratio of both sizes.
MOST_JUMP = 1.5

#: Paths of a GPU.
NAMES = tuple(name for name in PATHS if name != "serial")

#: Bytes of a problem, at most.
_MAX_BYTES = 1 << 26
#: Elements that are repeated to fill a problem: no power of two, so that rows differ.
_PERIOD = (1 << 20) + 7

Layout = Literal["rows", "columns"]


@dataclass(frozen=True, order=True)
class Point:
    """`k` of each of `num_rows` rows, which are contiguous, or columns of a matrix."""

    layout: Layout
    dtype: str
    num_rows: int
    row_length: int
    k: int

    def __str__(self) -> str:
        return f"{self.num_rows} {self.layout} of {self.row_length} {self.dtype}, k {self.k}"

    @property
    def desc(self) -> top_k.TopK1Desc:
        """What `cudml.top_k` computes."""
        element = element_type_of(np.dtype(self.dtype))
        assert element is not None
        axis = 1 if self.layout == "rows" else 0

        def sizes(length: int) -> tuple[int, int]:
            return (self.num_rows, length) if axis else (length, self.num_rows)

        values, indices = (TensorDesc(kind, sizes(self.k)) for kind in (element, DataType.INT64))
        source = TensorDesc(element, sizes(self.row_length))
        return top_k.TopK1Desc(source, values, indices, axis, self.k, AxisDirection.DECREASING)

    def plan(self, path: str | None = None) -> Plan:
        """The plan on an H200, by a path or by the chosen one."""
        return top_k.plan(self.desc, HOPPER.limits, True, path=path)

    def chosen(self) -> str:
        """The path that the planner takes."""
        return chosen_of(self.plan, NAMES)

    def times(self, chosen: str) -> dict[str, float]:
        """Predicted microseconds of the chosen path, and of the others that may be as fast."""
        plans = plans_of(self.plan, NAMES)
        least = _time_of(plans.pop(chosen), self)
        others = {name: _time_of(plan, self, MOST_OF_BEST * least) for name, plan in plans.items()}
        return {chosen: least} | {name: time for name, time in others.items() if time is not None}


@dataclass(frozen=True)
class Row:
    """A point: the chosen path, and the microseconds of each path that can do it."""

    point: Point
    chosen: str
    times: Mapping[str, float]

    @property
    def time_us(self) -> float:
        """Of the chosen path."""
        return self.times[self.chosen]

    @property
    def best(self) -> str:
        """The path that takes the least time."""
        return min(self.times, key=self.times.__getitem__)

    def __str__(self) -> str:
        others = sorted((time, name) for name, time in self.times.items() if name != self.chosen)
        told = "  ".join(f"{name} {time:.4g}" for time, name in others)
        return f"{self.point!s:<52}{self.chosen:<13}{self.time_us:>9.4g} us   {told}"


def row_of(point: Point) -> Row:
    """Plan and predict a point."""
    chosen = point.chosen()
    return Row(point, chosen, {name: round(time, 2) for name, time in point.times(chosen).items()})


@dataclass(frozen=True)
class Lines:
    """The problems of a layout and a type: lines over lengths for some k, and over k for some lengths."""

    layout: Layout
    dtype: str
    num_rows: tuple[int, ...]
    ks: tuple[int, ...]
    lengths: tuple[int, ...] = ()
    max_length: int = 1 << 18

    def points(self) -> set[Point]:
        """All of them, with both sides of each change of kernels."""
        found: set[Point] = set()
        for num_rows in self.num_rows:
            most = min(self.max_length, _MAX_BYTES // (num_rows * np.dtype(self.dtype).itemsize))
            for k in self.ks:
                found |= _line(Point(self.layout, self.dtype, num_rows, 0, k), "row_length", max(k, 16), most)
            for length in self.lengths:
                if length <= most:
                    found |= _line(
                        Point(self.layout, self.dtype, num_rows, length, 0), "k", 1, min(length, 4096)
                    )
        return found


#: What the committed table has.
GRID = (
    Lines("rows", "float32", (1, 64), (8, 100)),
    Lines("rows", "float32", (1024, 16384), (1, 8, 32, 100, 1000), (256, 1024), 1 << 12),
    Lines("rows", "float16", (16384,), (8,), (), 1 << 11),
    Lines("rows", "int8", (16384,), (8,), (), 1 << 11),
    Lines("rows", "int64", (16384,), (8,), (), 1 << 10),
    Lines("columns", "float32", (64, 4096), (1, 3, 10, 32, 64), (), 1 << 14),
)


def points(grid: Iterable[Lines] = GRID) -> list[Point]:
    """The points of a grid, in order."""
    return sorted(set().union(*(lines.points() for lines in grid)))


def _line(base: Point, member: str, least: int, most: int) -> set[Point]:
    """Powers of two, and neighbours between which the kernels change."""

    @functools.cache
    def kernels(size: int) -> tuple[Any, ...]:
        return kernels_of(replace(base, **{member: size}).plan())

    def changes(low: int, high: int) -> Iterator[int]:
        if high - low == 1:
            yield from (low, high)
        elif kernels(low) != kernels(high):
            middle = (low + high) // 2
            yield from changes(low, middle) if kernels(low) != kernels(middle) else ()
            yield from changes(middle, high) if kernels(middle) != kernels(high) else ()

    powers = [1 << n for n in range(least.bit_length() - 1, most.bit_length()) if 1 << n >= least]
    sizes = sorted({least, *powers})
    edges = {size for low, high in pairwise(sizes) for size in changes(low, high)}
    return {replace(base, **{member: size}) for size in edges.union(sizes)}


def kernels_of(plan: Plan) -> tuple[Any, ...]:
    """The kernels of a plan and the modes that they are in."""
    launches = [step for step in plan.steps if isinstance(step, KernelLaunch)]
    modes = ("sorts_pairs", "sample_scope")
    return tuple((one.name_expression, *(one.params.values.get(mode) for mode in modes)) for one in launches)


@functools.cache
def _noise(dtype: str) -> np.ndarray:
    source, is_float = Source(np, 7), np.dtype(dtype).kind == "f"
    drawn: np.ndarray = (source.normal if is_float else source.bits)((_PERIOD,), dtype)
    return drawn


@functools.lru_cache(maxsize=2)
def _input(dtype: str, count: int) -> np.ndarray:
    noise = _noise(dtype)
    whole = zeros(count * noise.itemsize).view(dtype)
    for start in range(0, count, _PERIOD):
        part = whole[start : start + _PERIOD]
        part[...] = noise[: part.size]
    return whole.view(np.uint8)


def _time_of(plan: Plan, point: Point, most: float = math.inf) -> float | None:
    """Predicted microseconds; None if issuing the instructions alone takes more than `most`."""
    results = point.num_rows * point.k
    operands = {
        "input_tensor": _input(point.dtype, point.num_rows * point.row_length),
        "output_value_tensor": zeros(results * np.dtype(point.dtype).itemsize),
        "output_index_tensor": zeros(results * 8),
    }
    launches = launches_of(Planned(plan, operands))
    parts = []
    for step in plan.steps:
        if not isinstance(step, KernelLaunch):
            parts.append(library_call(step))
            continue
        _, launch = next(launches)
        if launch.joint_blocks == 1 and most < math.inf and _kept(step, launch, point, _least).time_us > most:
            return None
        parts.append(_kept(step, launch, point, predict))
    return reduce(add, parts).time_us


def _least(launch: Launch) -> Prediction:
    """No more than the time of a launch of which each block issues what the one in the middle does."""
    return Prediction(1, model.LAUNCH_US, 0, least_clocks(launch), {}, {})


@functools.cache
def _model() -> bytes:
    """What predictions depend on beside the launch: the machine and its constants."""
    sources = [*sorted(machine.SOURCES.iterdir()), Path(model.__file__), Path(rates.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()


def _kept(
    step: KernelLaunch, launch: Launch, point: Point, how: Callable[[Launch], Prediction]
) -> Prediction:
    """The prediction of a launch, kept on disk by what decides it, so that a scan repeats what changed."""
    shape = (launch.grid, launch.block, launch.shared_bytes, launch.cluster_blocks, launch.resident_blocks)
    decides = (how.__name__, shape, launch.joint_blocks, step.buffers, point.dtype, launch.code.constants)
    key = hashlib.sha256(_model() + bytes(launch.code.instructions) + step.params.pack())
    key.update(repr(decides).encode())
    path = cache_dir() / "predictions" / f"{key.hexdigest()}.json"
    if path.exists():
        return Prediction(**json.loads(path.read_text()))
    made = how(launch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(made)))
    return made


def jumps(rows: Iterable[Row]) -> Iterator[str]:
    """Neighbours of a line of which one takes much longer, by more than its size."""
    yield from _jumps(rows, "row_length")
    yield from _jumps(rows, "k")


def _jumps(rows: Iterable[Row], member: str) -> Iterator[str]:
    lines: dict[Point, list[Row]] = {}
    for row in rows:
        lines.setdefault(replace(row.point, **{member: 0}), []).append(row)
    for line in lines.values():
        in_order = sorted(line, key=lambda row: getattr(row.point, member))
        for less, more in pairwise(in_order):
            growth = getattr(more.point, member) / getattr(less.point, member)
            ratio = max(more.time_us / (less.time_us * growth), less.time_us / more.time_us)
            if ratio > MOST_JUMP:
                size = getattr(less.point, member)
                yield f"{ratio:.2f} times: {member} {size}, {less.chosen} {less.time_us} us, and {more}"


def dear(rows: Iterable[Row]) -> Iterator[str]:
    """Points of which another path is predicted to take less time."""
    for row in rows:
        ratio = row.time_us / row.times[row.best]
        if ratio > MOST_OF_BEST:
            yield f"{ratio:.2f} times the time of {row.best}: {row}"


def table_text(version: str, rows: Iterable[Row]) -> str:
    """The file's text."""
    text = io.StringIO()
    text.write(f"# Predicted, not measured. NVRTC {version}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(field.name for field in fields(Point)), "chosen", *NAMES])
    for row in rows:
        writer.writerow([*astuple(row.point), row.chosen, *(row.times.get(name, "") for name in NAMES)])
    return text.getvalue()


def read(path: Path = TABLE) -> tuple[str, list[Row]]:
    """The version of NVRTC that made the code, and the rows; no rows if there is no file."""
    if not path.exists():
        return "none", []
    first, *lines = path.read_text().splitlines()
    rows = []
    for line in csv.DictReader(lines):
        point = Point(
            "rows" if line["layout"] == "rows" else "columns",
            line["dtype"],
            *(int(line[name]) for name in ("num_rows", "row_length", "k")),
        )
        times = {name: float(line[name]) for name in NAMES if line.get(name)}
        rows.append(Row(point, line["chosen"], times))
    return first.removeprefix("# Predicted, not measured. NVRTC "), rows
