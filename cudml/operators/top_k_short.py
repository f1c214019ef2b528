"""Top-k of rows that fit a warp: the shapes of its kernels."""

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from types import MappingProxyType
from typing import NamedTuple

from cudml.operators.path import Steps
from cudml.operators.top_k_selection import TOP_K_MEMBERS, Selection, fine_order, params_of
from cudml.plans import WARP_LANES, Constants, KernelLaunch, Limits, Params, ParamStruct, round_up

_VECTOR_BYTES = 16

#: Shared storage of a block of kernels/top_k/warp_select.cu, unless a warp needs more.
_SELECT_BLOCK_BYTES = 32 << 10

#: The largest k of each of its instances.
_SELECT_FIRSTS = (8, 16, 32)

# kernels/top_k/warp_sort.cu: items per lane, and how many of them an instance sorts that does not sort all.
_SORT_THREADS = 128
_SORT_ITEMS = (2, 8, 32)
_SORTED_ITEMS = (4, 8)

#: Size of an element in bytes -> that of its key and index: `Ranked` of kernels/top_k/ranked.cuh.
_CANDIDATE_BYTES = {1: 4, 2: 4, 4: 8, 8: 16}


#: `FineParams` of kernels/top_k/fine_key.cuh.
FINE_MEMBERS = (
    *TOP_K_MEMBERS,
    "UInt64 magnitude, offset, factor, zero, other_zero, first_nan, end_nan, padding",
    "Int32 vector_rows, loads_by_rows",
)
_FINE_PARAMS = ParamStruct(*FINE_MEMBERS)


class _Shape(NamedTuple):
    """`Shape` of kernels/top_k/warp_select.cu: lanes per row, units per lane, elements per unit."""

    lanes: int
    units: int
    unit: int

    @property
    def capacity(self) -> int:
        """Length of the longest row."""
        return self.lanes * self.units * self.unit

    @property
    def rows(self) -> int:
        """Rows per warp."""
        return WARP_LANES // self.lanes

    @property
    def max_warps(self) -> int:
        """Largest number of warps per block: small where registers limit how many run at once."""
        return 4 if self.unit == 1 else 8


_SELECT_SHAPES = (_Shape(4, 16, 1), _Shape(8, 8, 4), _Shape(16, 16, 4))
_CAPACITIES = [shape.capacity for shape in _SELECT_SHAPES]

#: The longest rows of the two kernels.
SELECT_MAX_ROW_LENGTH = _CAPACITIES[-1]
SORT_MAX_ROW_LENGTH = _SORT_ITEMS[-1] * WARP_LANES

#: The smallest `select_max_k`.
SELECT_ANY_MAX_K = _SELECT_FIRSTS[-2]


def select_max_k(selection: Selection) -> int:
    """The largest k of kernels/top_k/warp_select.cu: longer or wider rows are sorted sooner."""
    is_narrow = selection.element.size < 4 and selection.row_length <= _CAPACITIES[1]
    return _SELECT_FIRSTS[-1 if is_narrow or selection.row_length <= _CAPACITIES[0] else -2]


def warp_select(selection: Selection, limits: Limits) -> Steps:
    """One launch; a group of lanes owns a row."""
    shape = _SELECT_SHAPES[bisect_left(_CAPACITIES, selection.row_length)]
    first = _SELECT_FIRSTS[bisect_left(_SELECT_FIRSTS, selection.k)]
    num_warps, shared_bytes, constants = _select_block(shape, selection.word, selection.element.size, first)
    launch = KernelLaunch(
        source="top_k/warp_select.cu",
        function="top_k_warp_select",
        template=(selection.word, shape.lanes, shape.units, shape.unit, first, *selection.raggedness),
        grid=_grid(selection.num_rows, num_warps * shape.rows, num_warps, shared_bytes, limits),
        block=(num_warps * WARP_LANES, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        shared_bytes=shared_bytes,
        constants=constants,
    )
    return (launch,), ()


@lru_cache(maxsize=64)
def _select_block(shape: _Shape, word: str, element_bytes: int, first: int) -> tuple[int, int, Constants]:
    """Warps per block, bytes of its shared storage, and the constants that the kernel shares."""
    candidates_bytes = first * shape.unit * _CANDIDATE_BYTES[element_bytes]
    row_bytes = shape.capacity * element_bytes + candidates_bytes + 2 * first
    warp_bytes = shape.rows * round_up(row_bytes, _VECTOR_BYTES)
    room = max(1, min(_SELECT_BLOCK_BYTES // warp_bytes, shape.max_warps))
    num_warps = 1 << (room.bit_length() - 1)
    shared_bytes = num_warps * warp_bytes
    of_shape = f"Shape<{word}, {shape.lanes}, {shape.units}, {shape.unit}, {first}>"
    constants = (
        (f"{of_shape}::kThreads", num_warps * WARP_LANES),
        (f"sizeof({of_shape}::Storage)", shared_bytes),
        (f"{of_shape}::kRows", shape.rows),
    )
    return num_warps, shared_bytes, constants


def warp_sort(selection: Selection, limits: Limits) -> Steps:
    """One launch; a warp owns a row, and sorts what can be among the first k, or all if k is large."""
    items = next(n for n in _SORT_ITEMS if selection.row_length <= n * WARP_LANES)
    chosen = next((n for n in _SORTED_ITEMS if selection.k <= n * WARP_LANES and n < items), items)
    num_warps = _SORT_THREADS // WARP_LANES
    row_bytes = max(items * selection.element.size, _VECTOR_BYTES) + 2 * chosen
    shared_bytes = num_warps * WARP_LANES * row_bytes
    launch = KernelLaunch(
        source="top_k/warp_sort.cu",
        function="top_k_warp_sort",
        template=(selection.word, items, chosen, *selection.raggedness),
        grid=_grid(selection.num_rows, num_warps, num_warps, shared_bytes, limits),
        block=(_SORT_THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        shared_bytes=shared_bytes,
        constants=(
            ("kThreads", _SORT_THREADS),
            (f"sizeof(Shape<{selection.word}, {items}, {chosen}>::Storage)", shared_bytes),
        ),
    )
    return (launch,), ()


def _grid(
    num_rows: int, rows_per_block: int, num_warps: int, shared_bytes: int, limits: Limits
) -> tuple[int, int, int]:
    """Blocks for all rows, at most those that the device's threads and shared storage can run at once."""
    by_threads = limits.max_threads_per_multiprocessor // (num_warps * WARP_LANES)
    by_storage = limits.shared_bytes_per_multiprocessor // shared_bytes
    at_once = limits.num_multiprocessors * max(1, min(by_threads, by_storage))
    return min(-(-num_rows // rows_per_block), at_once), 1, 1


def are_vectors(selection: Selection) -> bool:
    """Whether rows are whole vectors side by side: no row begins within one if the first does not."""
    lie_together = selection.axis_strides[0] == 1 or selection.row_length == 1
    whole = gcd(selection.row_length, *(d.strides[0] for d in selection.outer))
    return lie_together and whole * selection.element.size % _VECTOR_BYTES == 0


def fine_params(
    selection: Selection,
    struct: ParamStruct = _FINE_PARAMS,
    *,
    blocks_per_row: int = 1,
    list_capacity: int = 0,
    more: Mapping[str, int] = MappingProxyType({}),
) -> Params:
    """The `FineParams` of kernels/top_k/fine_key.cuh, or a struct derived from it with more members."""
    by_rows = bool(selection.outer) and abs(selection.outer[0].strides[0]) < abs(selection.axis_strides[0])
    order = fine_order(selection.element, is_largest=selection.is_largest, nan_last=selection.nan_last)
    more = {**order, "vector_rows": int(are_vectors(selection)), "loads_by_rows": int(by_rows), **more}
    return params_of(selection, struct, blocks_per_row=blocks_per_row, list_capacity=list_capacity, more=more)
