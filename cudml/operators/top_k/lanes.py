"""Top-k of rows by lanes: a thread for each row, a group of lanes, or a warp."""

from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import (
    CANDIDATE_BYTES,
    VECTOR_BYTES,
    Selection,
    blocks_at_once,
    fine_params,
)
from cudml.plans import WARP_LANES, Constants, KernelLaunch, Limits, ceil_div, round_up

# kernels/top_k/thread_list.cu
_THREAD_LIST_SIZE = 4
_THREAD_LIST_THREADS = 128

# kernels/top_k/warp_select.cu and kernels/top_k/warp_sort.cu
WARPS = 4
THREADS = WARPS * WARP_LANES

#: The largest k of each instance of kernels/top_k/warp_select.cu.
SELECT_MAX_KS = (8, 16, 32)

# kernels/top_k/row_sort.cuh: items per lane, and how many of them an instance sorts if it does not sort all.
SORT_ITEMS = (2, 8, 32)
SORTED_ITEMS = (4, 8, 16)
#: Most rows per multiprocessor, of up to 256 narrow elements, whose elements are all sorted: trials for the
#: k-th key wait for each other. Predicted 6.3 us, 7.2 with trials, for 64 x 256 float32 and k = 100; 14.0 and
#: 11.6 for 4096 rows.
_SORT_ALL_ROWS = 12


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

    def min_threads(self, element_bytes: int, first: int) -> int:
        """The minimum number of threads that the registers of a multiprocessor hold."""
        if self.capacity > 2048:
            # The 228 KiB of a multiprocessor's shared storage hold the longest rows of this many threads.
            threads = 384 if self.capacity * element_bytes > 8192 else 512
        elif self.units <= 8 and first <= (8 if self.unit > 8 else 16):
            threads = 1024
        elif first <= 8:
            threads = 640
        else:
            threads = 512 if first <= 16 or self.unit > 1 else 384
        return threads // (2 if element_bytes == 8 else 1)


_SHORTEST_SHAPES = (_Shape(4, 16, 1), _Shape(8, 8, 4))
_BYTE_SHAPES = (
    *(*_SHORTEST_SHAPES, _Shape(8, 8, 8), _Shape(8, 8, 16), _Shape(8, 12, 16), _Shape(8, 16, 16)),
    *(_Shape(16, 12, 16), _Shape(16, 16, 16), _Shape(32, 12, 16), _Shape(32, 16, 16)),
)
_HALF_SHAPES = (
    *(*_SHORTEST_SHAPES, _Shape(8, 8, 8), _Shape(8, 12, 8), _Shape(8, 8, 16)),
    *(_Shape(16, 12, 8), _Shape(16, 16, 8)),
    *(_Shape(32, 12, 8), _Shape(32, 16, 8), _Shape(32, 24, 8), _Shape(32, 32, 8)),
)
_LONG_WORD_SHAPES = (
    *(_Shape(16, 8, 4), _Shape(16, 12, 4), _Shape(16, 16, 4)),
    *(_Shape(32, 12, 4), _Shape(32, 16, 4), _Shape(32, 24, 4), _Shape(32, 32, 4)),
)
_WORD_SHAPES = (*_SHORTEST_SHAPES, *_LONG_WORD_SHAPES)
_WORD_SHAPES_OF_32 = (
    *(_Shape(4, 16, 1), _Shape(8, 16, 1), _Shape(8, 16, 2), _Shape(8, 16, 4)),
    *_LONG_WORD_SHAPES,
)
_WIDE_SHAPES = (
    *(*_SHORTEST_SHAPES, _Shape(16, 8, 4)),
    *(_Shape(32, 8, 4), _Shape(32, 12, 4), _Shape(32, 16, 4)),
)
#: Size of an element in bytes -> for each of `SELECT_MAX_KS` the shapes, those of the shortest rows first. A
#: row has at least twice as many units as the largest k.
SELECT_SHAPES = {
    1: (_BYTE_SHAPES, _BYTE_SHAPES, _SHORTEST_SHAPES),
    2: (_HALF_SHAPES, _HALF_SHAPES, _SHORTEST_SHAPES),
    4: (_WORD_SHAPES, _WORD_SHAPES, _WORD_SHAPES_OF_32),
    8: (_WIDE_SHAPES, _WIDE_SHAPES, _SHORTEST_SHAPES[:1]),
}
#: Threads of a multiprocessor that run beside each other almost as fast as alone.
_THREADS_AT_ONCE = 512

#: Size of an element in bytes -> for each of `SELECT_MAX_KS` the longest rows of that kernel; 0 for larger k.
SELECT_MAX_ROW_LENGTHS = {
    size: (*(shapes[-1].capacity for shapes in of_size), 0) for size, of_size in SELECT_SHAPES.items()
}
#: The longest rows of kernels/top_k/warp_sort.cu.
SORT_MAX_ROW_LENGTH = SORT_ITEMS[-1] * WARP_LANES


def _select_shape(selection: Selection, limits: Limits) -> tuple[_Shape, int]:
    """The shape of a selection's rows, and the largest k of the kernel.

    Of two shapes with the same unit, the one of fewer lanes takes fewer instructions, and the other less time
    if its blocks all run at once: predicted 25.6 us and 32.1 for 16384 x 257 and k = 32, 13.2 and 11.8 for
    4096 columns of it. The more slots it has beyond the first one's, the fewer of its blocks pay.
    """
    instance = bisect_left(SELECT_MAX_KS, selection.k)
    size, first = selection.element.size, SELECT_MAX_KS[instance]
    fitting = [s for s in SELECT_SHAPES[size][instance] if selection.row_length <= s.capacity]
    for few, many in pairwise(fitting[:2]):
        if many.unit == few.unit and many.units < few.units:
            threads = min(many.min_threads(size, first), _THREADS_AT_ONCE * few.capacity // many.capacity)
            if selection.num_rows <= limits.num_multiprocessors * threads // many.lanes:
                return many, first
    return fitting[0], first


def select_fits(selection: Selection, limits: Limits) -> bool:
    """Whether shared storage holds the rows of the shape. There must be a shape for the rows."""
    shape, first = _select_shape(selection, limits)
    _, shared_bytes, _ = _select_block(shape, selection.word, selection.element.size, first)
    return shared_bytes <= limits.shared_bytes_per_block


def warp_select(selection: Selection, limits: Limits) -> Steps:
    """One launch; a group of lanes owns a row."""
    shape, first = _select_shape(selection, limits)
    num_blocks, shared_bytes, constants = _select_block(shape, selection.word, selection.element.size, first)
    launch = KernelLaunch(
        source="top_k/warp_select.cu",
        function="top_k_warp_select",
        template=(selection.word, shape.lanes, shape.units, shape.unit, first, *selection.raggedness),
        grid=blocks_of_warps(selection.num_rows, WARPS * shape.rows, num_blocks, shared_bytes, limits),
        block=(THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        shared_bytes=shared_bytes,
        constants=constants,
    )
    return (launch,), ()


@lru_cache(maxsize=64)
def _select_block(shape: _Shape, word: str, element_bytes: int, first: int) -> tuple[int, int, Constants]:
    """Blocks that a multiprocessor's registers hold, shared storage, and constants of the kernel."""
    candidates_bytes = first * shape.unit * CANDIDATE_BYTES[element_bytes]
    row_bytes = shape.capacity * element_bytes + candidates_bytes + 2 * first
    shared_bytes = WARPS * shape.rows * round_up(row_bytes, VECTOR_BYTES)
    num_blocks = shape.min_threads(element_bytes, first) // THREADS
    of_shape = f"Shape<{word}, {shape.lanes}, {shape.units}, {shape.unit}, {first}>"
    constants = (
        ("kThreads", THREADS),
        (f"sizeof({of_shape}::Storage)", shared_bytes),
        (f"{of_shape}::kRows", shape.rows),
        (f"{of_shape}::kMinBlocks", num_blocks),
    )
    return num_blocks, shared_bytes, constants


def warp_sort(selection: Selection, limits: Limits) -> Steps:
    """One launch; a warp owns a row, and sorts the candidates for the first k, or all for a large k."""
    items = next(n for n in SORT_ITEMS if selection.row_length <= n * WARP_LANES)
    sorted_items = items if _sorts_whole(selection, limits) else sorted_items_of(selection, items)
    is_wide = selection.element.size > 4
    if sorted_items < items and not is_wide:
        num_blocks = 5 if sorted_items < SORTED_ITEMS[-1] else 4
    else:
        num_blocks = 2 if sorted_items == SORT_ITEMS[-1] and is_wide else 3
    shared_bytes = sort_bytes(selection, items, sorted_items)
    instance = f"{selection.word}, {items}, {sorted_items}"
    launch = KernelLaunch(
        source="top_k/warp_sort.cu",
        function="top_k_warp_sort",
        template=(selection.word, items, sorted_items, *selection.raggedness),
        grid=blocks_of_warps(selection.num_rows, WARPS, num_blocks, shared_bytes, limits),
        block=(THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        shared_bytes=shared_bytes,
        constants=(
            ("kThreads", THREADS),
            (f"sizeof(Shape<{instance}>::Storage)", shared_bytes),
            (f"(kMinBlocks<{instance}>)", num_blocks),
        ),
    )
    return (launch,), ()


def _sorts_whole(selection: Selection, limits: Limits) -> bool:
    """Whether a warp sorts all elements of a row, whatever k is: rows are short, and few."""
    is_short = selection.row_length <= SORT_ITEMS[1] * WARP_LANES and selection.element.size <= 4
    return is_short and selection.num_rows <= _SORT_ALL_ROWS * limits.num_multiprocessors


def sorted_items_of(selection: Selection, items: int) -> int:
    """How many of a lane's `items` are sorted."""
    return next((n for n in SORTED_ITEMS if selection.k <= n * WARP_LANES and n < items), items)


def sort_bytes(selection: Selection, items: int, sorted_items: int) -> int:
    """`sizeof(Shape<word, items, sorted_items>::Storage)` of kernels/top_k/row_sort.cuh."""
    return THREADS * (max(items * selection.element.size, VECTOR_BYTES) + 2 * sorted_items)


def blocks_of_warps(
    num_rows: int, rows_per_block: int, blocks: int, shared_bytes: int, limits: Limits
) -> tuple[int, int, int]:
    """The grid: blocks that all run at once, with equally many rows.

    The registers of a multiprocessor hold `blocks` of them.
    """
    by_storage = limits.shared_bytes_per_multiprocessor // shared_bytes
    at_once = limits.num_multiprocessors * max(1, min(blocks, by_storage))
    wanted = -(-num_rows // rows_per_block)
    rounds = -(-wanted // at_once)
    return -(-wanted // rounds), 1, 1


def can_warp_select(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the lanes of a shape, and k their results."""
    longest = SELECT_MAX_ROW_LENGTHS[selection.element.size][bisect_left(SELECT_MAX_KS, selection.k)]
    if limits.warp_lanes != WARP_LANES or selection.row_length > longest:
        return False
    return selection.row_length <= SORT_MAX_ROW_LENGTH or select_fits(selection, limits)


def can_warp_sort(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the registers of a warp."""
    return limits.warp_lanes == WARP_LANES and selection.row_length <= SORT_MAX_ROW_LENGTH


def can_thread_list(selection: Selection, limits: Limits) -> bool:
    """Whether a thread's registers hold the results of a row."""
    return limits.warp_lanes == WARP_LANES and selection.k <= _THREAD_LIST_SIZE


def thread_list(selection: Selection, limits: Limits) -> Steps:
    """One launch; a thread owns a row, and keeps its results in registers."""
    threads = _THREAD_LIST_THREADS
    launch = KernelLaunch(
        source="top_k/thread_list.cu",
        function="top_k_thread_list",
        template=(selection.word, selection.k, selection.element.kind == "f", *selection.raggedness),
        grid=(blocks_at_once(limits, ceil_div(selection.num_rows, threads), threads), 1, 1),
        block=(threads, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        constants=(("kThreads", threads),),
    )
    return (launch,), ()
