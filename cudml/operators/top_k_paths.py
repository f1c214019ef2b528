"""How a top-k is computed: what the kernels are told, the paths through them, and which is fastest.

Every path gives the same bits, because every kernel orders by key and then by index.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

from cudml.dtypes import ElementInfo, ElementType, ExtendedType
from cudml.enums import DataType
from cudml.operators.index_space import Dimension, dimensions_of, merged, without_ones
from cudml.plans import WAIT_REPORT, Fill, KernelLaunch, Limits, Params, Step, Workspace, ceil_div, round_up
from cudml.tensors import TensorDesc

#: The steps of a plan and the workspaces they use.
Steps = tuple[tuple[Step, ...], tuple[Workspace, ...]]

_OPERANDS = ("input_tensor", "output_value_tensor", "output_index_tensor")
_WARP_LANES = 32
_MAX_OUTER_DIMENSIONS = 7

#: Kernels count the elements of a row in 32 bits.
MAX_ROW_LENGTH = 2**32 - 1

#: The bits of +inf, above which lie only NaNs.
_INFINITY: dict[ElementType, int] = {
    DataType.FLOAT16: 0x7C00,
    ExtendedType.BFLOAT16: 0x7F80,
    DataType.FLOAT32: 0x7F800000,
    DataType.FLOAT64: 0x7FF0000000000000,
}

# kernels/top_k/warp_select.cu and warp_sort.cu
_WARP_THREADS = 128
_WARP_ITEMS = (2, 8, 32)
_WARP_SELECT_MAX_K = 32

# kernels/top_k/thread_list.cu
_THREAD_LIST_SIZES = (4, 16)
_THREAD_LIST_THREADS = 128

# kernels/top_k/block_radix.cu
_BLOCK_THREADS = 512
_BLOCKS = 2  # that a multiprocessor runs at once
_NETWORK_MAX_K = 512
_NETWORK_CAPACITY = 4 * _BLOCK_THREADS

# kernels/top_k/block_filter.cu and filter.cuh
_FILTER_THREADS = 256
_FILTER_BLOCKS = 3  # that a multiprocessor runs at once
_FILTER_MIN_STRETCH = 1 << 15
_FILTER_MIN_ROW_LENGTH = 1 << 12
_FILTER_MIN_SLACK = 512

# kernels/top_k/grid_radix.cu
_GRID_THREADS = 512
_GRID_MIN_ROW_LENGTH = 1 << 15
_GRID_MIN_STRETCH = 2048

# kernels/top_k/serial.cu
_SERIAL_GROUP = 32
_SERIAL_STORAGE_BYTES = 4 * 256
_SERIAL_SLACK = 2  # of k
_SERIAL_MIN_SLACK = 64
_SERIAL_MIN_ELEMENTS = 1 << 13  # of a block: to begin one takes as long as some hundred
_SERIAL_MAX_LISTS = 64  # in memory, for as many blocks at once

# kernels/top_k/radix_sort.cuh
_SORT_BINS = 128

# kernels/top_k/threshold.cuh
_DIGIT_BITS = 11
_NUM_BINS = 1 << _DIGIT_BITS
_ORDERED_MIN_SLACK = 1024


@dataclass(frozen=True)
class Selection:
    """A top-k as the kernels see it: rows of one length, and what makes one element rank before another.

    `outer` are the other dimensions, coalesced, innermost first; the strides of a dimension, as those of
    the axis, are of input, values and indices, in elements.
    """

    element: ElementInfo
    index_bytes: int
    row_length: int
    k: int
    axis_strides: tuple[int, int, int]
    outer: tuple[Dimension, ...]
    is_largest: bool
    nan_last: bool

    @property
    def num_rows(self) -> int:
        """How many sequences there are."""
        count = 1
        for dimension in self.outer:
            count *= dimension.size
        return count

    @property
    def word(self) -> str:
        """The unsigned type of an element's bits, as kernels spell it."""
        return f"UInt{self.element.bits}"

    @property
    def pair_bytes(self) -> int:
        """Bytes of a key and an index in a list."""
        return self.element.size + 4


def selection_of(
    source: TensorDesc,
    values: TensorDesc,
    indices: TensorDesc,
    *,
    axis: int,
    k: int,
    is_largest: bool,
    nan_last: bool,
) -> Selection:
    """The selection of a descriptor's members."""
    if source.sizes[axis] > MAX_ROW_LENGTH:
        got, expected = source.sizes[axis], f"at most {MAX_ROW_LENGTH}"
        raise ValueError(f"top_k: the size of axis {axis} is {got}, must be {expected}")
    strides = (source.element_strides, values.element_strides, indices.element_strides)
    sizes = tuple(1 if d == axis else size for d, size in enumerate(source.sizes))
    # In the order the input lies in memory, so that neighbouring rows are read together.
    outer = sorted(without_ones(dimensions_of(sizes, *strides)), key=lambda d: abs(d.strides[0]))
    return Selection(
        element=source.element,
        index_bytes=indices.element.size,
        row_length=source.sizes[axis],
        k=k,
        axis_strides=(strides[0][axis], strides[1][axis], strides[2][axis]),
        outer=merged(outer),
        is_largest=is_largest,
        nan_last=nan_last,
    )


def key_order(element: ElementInfo, *, is_largest: bool, nan_last: bool) -> dict[str, int]:
    """The constants of `kernels/common/ordering_key.cuh`."""
    all_ones = (1 << element.bits) - 1
    sign = 1 << (element.bits - 1)
    complement = 0 if is_largest else all_ones
    if element.kind == "f":
        nan_first = is_largest and not nan_last
        return {
            "negative_zero": sign,
            "negative_flip": all_ones ^ complement,
            "positive_flip": sign ^ complement,
            "infinity": _INFINITY[element.element_type],
            "nan_key": all_ones if nan_first else 0,
        }
    flip = (sign if element.kind == "i" else 0) ^ complement
    return {
        "negative_zero": 0,
        "negative_flip": flip,
        "positive_flip": flip,
        "infinity": all_ones >> 1,
        "nan_key": 0,
    }


def _params(
    selection: Selection, *, list_capacity: int = 0, sorts_pairs: bool = False, blocks_per_row: int = 1
) -> Params:
    """The `TopKParams` of `kernels/top_k/rows.cuh`."""
    outermost_first = selection.outer[::-1]
    unused = (0,) * (_MAX_OUTER_DIMENSIONS - len(outermost_first))
    order = key_order(selection.element, is_largest=selection.is_largest, nan_last=selection.nan_last)
    outer_strides = [tuple(d.strides[i] for d in outermost_first) + unused for i in range(3)]
    return Params.of(
        num_rows=("Int64", selection.num_rows),
        row_length=("Int64", selection.row_length),
        k=("Int64", selection.k),
        input_axis_stride=("Int64", selection.axis_strides[0]),
        value_axis_stride=("Int64", selection.axis_strides[1]),
        index_axis_stride=("Int64", selection.axis_strides[2]),
        **{name: ("UInt64", value) for name, value in order.items()},
        num_outer_dimensions=("Int32", len(outermost_first)),
        index_bytes=("Int32", selection.index_bytes),
        sorts_pairs=("Int32", int(sorts_pairs)),
        blocks_per_row=("Int32", blocks_per_row),
        list_capacity=("Int64", list_capacity),
        outer_sizes=("Int64", tuple(d.size for d in outermost_first) + unused),
        input_strides=("Int64", outer_strides[0]),
        value_strides=("Int64", outer_strides[1]),
        index_strides=("Int64", outer_strides[2]),
    )


def _blocks(limits: Limits, num_blocks: int, threads: int, most: int | None = None) -> int:
    """No more blocks than the device runs at once, `most` a multiprocessor: each takes row after row."""
    by_threads = max(1, limits.max_threads_per_multiprocessor // threads)
    return min(num_blocks, limits.num_multiprocessors * min(most or by_threads, by_threads))


def _serial(selection: Selection, limits: Limits) -> Steps:
    # The list is cut when the slack is full.
    slack = max(_SERIAL_SLACK * selection.k, _SERIAL_MIN_SLACK)
    capacity = min(round_up(selection.k + slack, _SERIAL_GROUP), selection.row_length)
    key_bytes = max(selection.element.size, 4)
    list_bytes = round_up(capacity, _SERIAL_GROUP) * (2 * key_bytes + 8)
    in_shared = _SERIAL_STORAGE_BYTES + list_bytes <= limits.shared_bytes_per_block
    rows_per_block = ceil_div(_SERIAL_MIN_ELEMENTS, selection.row_length)
    blocks = _blocks(limits, ceil_div(selection.num_rows, rows_per_block), 1)
    if not in_shared:
        blocks = min(blocks, _SERIAL_MAX_LISTS)
    launch = KernelLaunch(
        source="top_k/serial.cu",
        function="top_k_serial",
        template=(selection.word,),
        grid=(blocks, 1, 1),
        block=(1, 1, 1),
        buffers=(*_OPERANDS, None if in_shared else "lists"),
        params=_params(selection, list_capacity=capacity),
        shared_bytes=_SERIAL_STORAGE_BYTES + (list_bytes if in_shared else 0),
    )
    num_bytes = blocks * list_bytes
    return (launch,), () if in_shared else (Workspace("lists", num_bytes),)


def _fits_warp(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the registers of a warp."""
    return limits.warp_lanes == _WARP_LANES and selection.row_length <= _WARP_ITEMS[-1] * _WARP_LANES


def _can_warp_select(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits a warp and a result of each rank fits a lane."""
    return _fits_warp(selection, limits) and selection.k <= _WARP_SELECT_MAX_K


def _on_warps(function: str, selection: Selection, limits: Limits) -> Steps:
    """A kernel that gives each warp a row."""
    items = next(n for n in _WARP_ITEMS if selection.row_length <= n * _WARP_LANES)
    rows_per_block = _WARP_THREADS // _WARP_LANES
    launch = KernelLaunch(
        source=f"top_k/{function}.cu",
        function=f"top_k_{function}",
        template=(selection.word, items),
        grid=(_blocks(limits, ceil_div(selection.num_rows, rows_per_block), _WARP_THREADS), 1, 1),
        block=(_WARP_THREADS, 1, 1),
        buffers=_OPERANDS,
        params=_params(selection),
    )
    return (launch,), ()


def _thread_list(selection: Selection, limits: Limits) -> Steps:
    threads = _THREAD_LIST_THREADS
    launch = KernelLaunch(
        source="top_k/thread_list.cu",
        function="top_k_thread_list",
        template=(selection.word, next(n for n in _THREAD_LIST_SIZES if selection.k <= n)),
        grid=(_blocks(limits, ceil_div(selection.num_rows, threads), threads), 1, 1),
        block=(threads, 1, 1),
        buffers=_OPERANDS,
        params=_params(selection),
    )
    return (launch,), ()


def _can_keep_in_threads(selection: Selection, limits: Limits) -> bool:
    """Whether a thread's registers hold the results of a row."""
    return limits.warp_lanes == _WARP_LANES and selection.k <= _THREAD_LIST_SIZES[-1]


def _block_radix(selection: Selection, limits: Limits) -> Steps:
    by_network = selection.k <= _NETWORK_MAX_K
    if by_network:
        capacity, num_lists = _NETWORK_CAPACITY, 1
    else:
        capacity, num_lists = _ordered_capacity(selection), 2
    list_bytes = num_lists * capacity * selection.pair_bytes
    blocks = _blocks(limits, selection.num_rows, _BLOCK_THREADS, _BLOCKS)
    storage_bytes = _select_storage_bytes(_BLOCK_THREADS)
    in_shared = storage_bytes + list_bytes <= limits.shared_bytes_per_block
    launch = KernelLaunch(
        source="top_k/block_radix.cu",
        function="top_k_block_radix",
        template=(selection.word,),
        grid=(blocks, 1, 1),
        block=(_BLOCK_THREADS, 1, 1),
        buffers=(*_OPERANDS, None if in_shared else "lists"),
        params=_params(selection, list_capacity=capacity, sorts_pairs=by_network),
        shared_bytes=storage_bytes + (list_bytes if in_shared else 0),
    )
    return (launch,), () if in_shared else (Workspace("lists", blocks * list_bytes),)


def _filter_shape(selection: Selection) -> tuple[int, int]:
    """Elements of a block's list, bytes of its shared storage."""
    # `Filter::kTile` of kernels/top_k/filter.cuh.
    loads_ahead = 1 if selection.element.size == 1 else 4
    tile = _FILTER_THREADS * (16 // selection.element.size) * loads_ahead
    # The list is cut when the slack is full: that takes e times the elements before, or more.
    slack = max(selection.k, _FILTER_MIN_SLACK)
    capacity = tile + round_up(selection.k + slack, 8)
    storage_bytes = round_up(_select_storage_bytes(_FILTER_THREADS) + 4, 8)
    return capacity, storage_bytes + capacity * selection.pair_bytes


def _can_filter(selection: Selection, limits: Limits) -> bool:
    """Whether the list fits shared storage, and the first k a network."""
    is_small = limits.warp_lanes == _WARP_LANES and selection.k <= _NETWORK_MAX_K
    return is_small and _filter_shape(selection)[1] <= limits.shared_bytes_per_block


def _block_filter(selection: Selection, limits: Limits) -> Steps:
    capacity, shared_bytes = _filter_shape(selection)
    resident = limits.num_multiprocessors * _FILTER_BLOCKS
    longest = selection.row_length // _FILTER_MIN_STRETCH
    parts = max(1, min(resident // selection.num_rows, longest))
    workspaces: tuple[Workspace, ...] = ()
    clearing: tuple[Step, ...] = ()
    if parts > 1:
        kept_bytes = selection.num_rows * round_up(parts * selection.k, 8) * selection.pair_bytes
        workspaces = (Workspace("num_done", 4 * selection.num_rows), Workspace("kept", kept_bytes))
        clearing = (Fill("num_done", 4 * selection.num_rows),)
    launch = KernelLaunch(
        source="top_k/block_filter.cu",
        function="top_k_block_filter",
        template=(selection.word,),
        grid=(_blocks(limits, selection.num_rows * parts, _FILTER_THREADS), 1, 1),
        block=(_FILTER_THREADS, 1, 1),
        buffers=(*_OPERANDS, "num_done" if parts > 1 else None, "kept" if parts > 1 else None),
        params=_params(selection, list_capacity=capacity, blocks_per_row=parts),
        shared_bytes=shared_bytes,
    )
    return (*clearing, launch), workspaces


def _ordered_capacity(selection: Selection) -> int:
    """Elements of a list that is sorted by radix: room for some too many saves telling them apart."""
    slack = max(selection.k // 4, _ORDERED_MIN_SLACK)
    return round_up(min(selection.k + slack, selection.row_length), 8)


def _select_storage_bytes(threads: int) -> int:
    """`sizeof(SelectStorage<threads>)` of `kernels/top_k/threshold.cuh`."""
    return round_up(4 * (_NUM_BINS + threads // _WARP_LANES + 4), 8) + 8


def _can_share_rows(selection: Selection, limits: Limits) -> bool:
    """Whether each row can have blocks of its own that all run at once."""
    return limits.warp_lanes == _WARP_LANES and selection.num_rows <= limits.resident_blocks


def _grid_radix(selection: Selection, limits: Limits) -> Steps:
    # One block a multiprocessor always fits, so that the blocks of a row can wait for each other.
    blocks_per_row = min(
        limits.resident_blocks // selection.num_rows, ceil_div(selection.row_length, _GRID_MIN_STRETCH)
    )
    storage_bytes = round_up(_select_storage_bytes(_GRID_THREADS) + 4 * (_NUM_BINS + 1), 8)
    # Counting compares every pair of the list, shared out over the blocks: k may grow as their root.
    shared_capacity = min((limits.shared_bytes_per_block - storage_bytes) // selection.pair_bytes, 4096) & -8
    evenly = 256 * isqrt(blocks_per_row)
    by_counting = selection.k <= min(evenly, shared_capacity // 2)
    if by_counting:
        capacity = min(max(2 * selection.k, 2 * evenly), shared_capacity) & -8
        list_shared_bytes = capacity * selection.pair_bytes
    else:
        capacity = _ordered_capacity(selection)
        list_shared_bytes = 0
    num_digits = ceil_div(selection.element.bits, _DIGIT_BITS)
    state_bytes = selection.num_rows * 4 * (64 + num_digits * _NUM_BINS)
    launch = KernelLaunch(
        source="top_k/grid_radix.cu",
        function="top_k_grid_radix",
        template=(selection.word,),
        grid=(selection.num_rows * blocks_per_row, 1, 1),
        block=(_GRID_THREADS, 1, 1),
        buffers=(*_OPERANDS, "states", "counts", "lists", WAIT_REPORT),
        params=_params(
            selection, list_capacity=capacity, sorts_pairs=by_counting, blocks_per_row=blocks_per_row
        ),
        shared_bytes=storage_bytes + list_shared_bytes,
        cooperative=True,
        waits=("the other blocks of the row",),
    )
    workspaces = (
        Workspace("states", state_bytes),
        Workspace("counts", selection.num_rows * blocks_per_row * 4 * _SORT_BINS),
        Workspace("lists", selection.num_rows * 2 * capacity * selection.pair_bytes),
    )
    return (Fill("states", state_bytes), launch), workspaces


@dataclass(frozen=True)
class Path:
    """A way to compute a top-k: which problems it takes, and its steps for one of them."""

    can_do: Callable[[Selection, Limits], bool]
    steps: Callable[[Selection, Limits], Steps]


def _for_warps(function: str) -> Callable[[Selection, Limits], Steps]:
    return lambda selection, limits: _on_warps(function, selection, limits)


PATHS = {
    "serial": Path(lambda selection, limits: limits.warp_lanes == 1, _serial),
    "thread_list": Path(_can_keep_in_threads, _thread_list),
    "warp_select": Path(_can_warp_select, _for_warps("warp_select")),
    "warp_sort": Path(_fits_warp, _for_warps("warp_sort")),
    "block_filter": Path(_can_filter, _block_filter),
    "block_radix": Path(lambda selection, limits: limits.warp_lanes == _WARP_LANES, _block_radix),
    "grid_radix": Path(_can_share_rows, _grid_radix),
}


def choose_path(selection: Selection, limits: Limits) -> str:
    """The name of the fastest path."""
    if limits.warp_lanes != _WARP_LANES:
        return "serial"
    if _prefers_threads(selection, limits):
        return "thread_list"
    if _can_warp_select(selection, limits):
        return "warp_select"
    if _fits_warp(selection, limits):
        return "warp_sort"
    leaves_half_idle = 2 * selection.num_rows <= limits.resident_blocks
    is_long = selection.row_length >= _GRID_MIN_ROW_LENGTH
    # Reading twice costs little as long as the second time finds the rows in the cache.
    in_cache = selection.num_rows * selection.row_length * selection.element.size <= limits.l2_bytes // 2
    if _can_filter(selection, limits) and selection.row_length >= _FILTER_MIN_ROW_LENGTH:
        return "grid_radix" if leaves_half_idle and is_long and in_cache else "block_filter"
    return "grid_radix" if leaves_half_idle and is_long else "block_radix"


def _prefers_threads(selection: Selection, limits: Limits) -> bool:
    """Whether a thread a row reads best: rows side by side in memory, and enough to fill the device."""
    if selection.k > _THREAD_LIST_SIZES[-1]:
        return False
    rows_are_adjacent = bool(selection.outer) and abs(selection.outer[0].strides[0]) == 1
    rows_in_flight = limits.num_multiprocessors * limits.max_threads_per_multiprocessor // 4
    return rows_are_adjacent and selection.row_length > 1 and selection.num_rows >= rows_in_flight
