"""Top-k over lengths and k: the path that the planner chooses, and the predicted time of each that can do it.

The points of a line differ in the length alone, or in k alone. A line has powers of two, and both sides of
every change of kernels between them, where a wrong threshold would show.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from bench.prediction import scan
from bench.prediction.cases import aligned
from bench.prediction.draw import log_uniform, one
from bench.prediction.grow import ByTree
from bench.prediction.scan import Row, Scan
from bench.sources import Source
from bench.top_k import CASES
from cudml.dtypes import element_type_of
from cudml.enums import AxisDirection, DataType
from cudml.operators.top_k import operator as top_k
from cudml.operators.top_k.paths import PATHS, Features, choose_path, features_of
from cudml.operators.top_k.rows import Selection
from cudml.operators.tree import read_tree
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc
from proof.sass.launch import zeros
from proof.sass.plan import HOPPER

#: The most times as long that a size may take as its neighbour, beyond the ratio of both sizes.
MOST_JUMP = 1.5

#: Paths of a GPU.
NAMES = tuple(name for name in PATHS if name != "serial")

#: Bytes of a problem, at most.
_MAX_BYTES = 1 << 26
#: Elements that are repeated to fill a problem: no power of two, so that rows differ.
_PERIOD = (1 << 20) + 7

#: Bounds of drawn problems.
_MAX_ROWS, _MAX_LENGTH, _MAX_K = 1 << 17, 1 << 22, 1 << 13
#: One in this number of drawn problems sorts whole rows.
_WHOLE_ROWS = 16
_DTYPES = ("float32", "float32", "float16", "float64", "int8", "int32", "uint16", "int64")

Layout = Literal["rows", "columns"]


@dataclass(frozen=True, order=True)
class Point(scan.Point):
    """`k` of each of `num_rows` rows, which are contiguous, or columns of a matrix."""

    layout: Layout
    dtype: str
    num_rows: int
    row_length: int
    k: int

    #: What tables and texts call ragged or ascending rows; empty for other rows.
    mark: ClassVar[str] = ""

    def __str__(self) -> str:
        told = f", {self.mark}" if self.mark else ""
        return f"{self.num_rows} {self.layout} of {self.row_length} {self.dtype}, k {self.k}{told}"

    def cells(self) -> list[str]:
        """The fields, as the table has them, with the mark in the first."""
        layout, *others = super().cells()
        return [f"{self.mark} {layout}".lstrip(), *others]

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

    def plan(self, path: str | None = None, limits: Limits = HOPPER.limits) -> Plan:
        """The plan on a GPU, an H200 unless told otherwise, by a path or by the chosen one."""
        return top_k.plan(self.desc, limits, True, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """The same numbers for all lengths, and results that are not touched."""
        results = self.num_rows * self.k
        return {
            "input_tensor": _input(self.dtype, self.num_rows * self.row_length),
            "output_value_tensor": zeros(results * np.dtype(self.dtype).itemsize),
            "output_index_tensor": zeros(results * 8),
        }

    @property
    def contents(self) -> str:
        """Numbers of this type."""
        return self.dtype

    @property
    def kind(self) -> str:
        """The layout."""
        return self.layout

    @classmethod
    def of_cells(cls, cells: Mapping[str, str]) -> "Point":
        """The point whose fields a table has; ragged and ascending ones are marked in the first."""
        mark, _, layout = cells["layout"].rpartition(" ")
        kinds = {kind.mark: kind for kind in (Point, RaggedPoint, AscendingPoint)}
        sizes = (int(cells[name]) for name in ("num_rows", "row_length", "k"))
        return kinds[mark](layout, cells["dtype"], *sizes)


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


#: The lines of the committed table.
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
    modes = ("sort_mode", "sample_scope")
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


def jumps(rows: Iterable[Row[Point]]) -> Iterator[str]:
    """Neighbours on a line with a difference in time that their sizes do not explain."""
    yield from _jumps(rows, "row_length")
    yield from _jumps(rows, "k")


def _jumps(rows: Iterable[Row[Point]], member: str) -> Iterator[str]:
    lines: dict[Point, list[Row[Point]]] = {}
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


@dataclass(frozen=True, order=True)
class RaggedPoint(Point):
    """Rows or columns with lengths of their own, from no element to all."""

    mark = "ragged"

    @property
    def desc(self) -> top_k.TopK1Desc:
        """What `cudml.top_k` computes with `lengths`."""
        even = super().desc
        sizes = tuple(1 if d == even.axis else size for d, size in enumerate(even.input_tensor.sizes))
        members = {field.name: getattr(even, field.name) for field in fields(even)}
        return top_k.RaggedTopKDesc(
            **members, sequence_lengths_tensor=TensorDesc(DataType.UINT32, sizes), missing=0
        )

    def operands(self) -> dict[str, np.ndarray]:
        """The operands of even rows, and lengths, each equally likely."""
        lengths = np.random.default_rng(1).integers(
            0, self.row_length, self.num_rows, np.uint32, endpoint=True
        )
        return {**super().operands(), "sequence_lengths_tensor": aligned(lengths)}

    @property
    def contents(self) -> str:
        """Numbers of this type, and lengths."""
        return f"{super().contents} of {self.num_rows} rows up to {self.row_length}"


@dataclass(frozen=True, order=True)
class AscendingPoint(Point):
    """Contiguous rows in ascending order: each element is better than all before it."""

    mark = "ascending"

    def operands(self) -> dict[str, np.ndarray]:
        """The same numbers as other rows."""
        operands = super().operands()
        rows = operands["input_tensor"].view(self.dtype).reshape(self.num_rows, self.row_length)
        return {**operands, "input_tensor": aligned(np.sort(rows, axis=1)).view(np.uint8).ravel()}

    @property
    def contents(self) -> str:
        """Numbers of this type in order."""
        return f"{super().contents}, ascending rows of {self.row_length}"


def draw(random: np.random.Generator) -> Point:
    """Rows or columns, even or ragged, of any number, length and k up to what is predicted in seconds."""
    layout, dtype = one(random, "rows", "rows", "columns"), one(random, *_DTYPES)
    num_elements = _MAX_BYTES // np.dtype(dtype).itemsize
    num_rows = log_uniform(random, 1, _MAX_ROWS)
    row_length = log_uniform(random, 1, min(_MAX_LENGTH, num_elements // num_rows))
    k = log_uniform(random, 1, min(row_length, _MAX_K))
    if random.integers(_WHOLE_ROWS) == 0:
        k = row_length
    kind = one(random, Point, Point, RaggedPoint)
    return kind(layout, dtype, num_rows, row_length, k)


def served() -> list[Point]:
    """The benchmark's problems, ascending rows among them, except those larger than any drawn problem.

    Columns of several matrices are as many of one.
    """
    points: set[Point] = set()
    for case in CASES:
        if case.inner == 1:
            kind = AscendingPoint if case.pattern == "ascending" else Point
            points.add(kind("rows", case.dtype, case.num_rows, case.row_length, case.k))
        else:
            points.add(Point("columns", case.dtype, case.num_rows * case.inner, case.row_length, case.k))
    return sorted((point for point in points if _input_bytes(point) <= _MAX_BYTES), key=str)


def _input_bytes(point: Point) -> int:
    return point.num_rows * point.row_length * np.dtype(point.dtype).itemsize


def _selection_of(point: Point) -> Selection:
    return top_k.selection_of_desc(point.desc, nan_last=True)


_BY_TREE = ByTree(
    numbers=read_tree("top_k", Features._fields),
    problem_of=_selection_of,
    choose_path=choose_path,
    features_of=features_of,
    paths={name: PATHS[name] for name in NAMES if name != "serial_arg_max"},
    # By estimated times, 50,000 imagined problems that did not grow a tree cost 0.0078 by 1500 leaves, 0.0052
    # by 3000 and 0.0047 by 6000, in a file twice as large.
    most_leaves=3000,
    devices=(HOPPER.limits, replace(HOPPER.limits, max_cluster_blocks=1)),
)

SCAN = Scan("top_k", NAMES, Point, points, draw, _BY_TREE, jumps, corrects=True, served=served)
