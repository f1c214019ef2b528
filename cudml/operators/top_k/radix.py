"""Top-k by a search for the k-th key, digit by digit: by a block for each row, or by several."""

from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.filter import rank_in_sample
from cudml.operators.top_k.rows import (
    BY_COUNTING,
    BY_DIGITS,
    BY_NETWORK,
    DIGIT_BITS,
    NUM_BINS,
    TOP_K_MEMBERS,
    VECTOR_BYTES,
    Selection,
    blocks_at_once,
    params_of,
    select_storage_bytes,
)
from cudml.plans import (
    WAIT_REPORT,
    WARP_LANES,
    Fill,
    KernelLaunch,
    Limits,
    ParamStruct,
    Workspace,
    ceil_div,
    round_up,
)

# kernels/top_k/block_radix.cu
_BLOCK_THREADS = 512
_NETWORK_MAX_K = 512
_NETWORK_CAPACITY = 4 * _BLOCK_THREADS

# kernels/top_k/grid_radix.cu
_GRID_THREADS = 512
_SAMPLE_DIGITS = 3
_SAMPLED_LOADS = 2

#: `GridParams` of kernels/top_k/grid_radix.cu.
_GRID_PARAMS = ParamStruct(*TOP_K_MEMBERS, "Int64 own_capacity")

# kernels/top_k/radix_sort.cuh
SORT_BINS = 128


@dataclass(frozen=True)
class Thresholds:
    """How rows are divided among blocks, and how lists are put in order."""

    #: Blocks that a multiprocessor runs at once.
    blocks_per_multiprocessor: int = figure(2, "machine code", "limited by its registers and lists")

    #: Shortest stretch of a row for one block to read.
    min_stretch: int = figure(2048, "estimate", "four elements per thread")

    #: Blocks that share a row rank its list by comparing all pairs if k is at most the first number times
    #: the root of the number of blocks, and the list has at most the second number of elements.
    counted_per_root_block: int = figure(256, "estimate", "pairs grow with the square, blocks share them")
    counted_max_capacity: int = figure(4096, "estimate", "longer lists are sorted faster than compared")

    #: Smallest number of elements that a list sorted by radix holds beyond k.
    ordered_min_slack: int = figure(1024, "estimate", "a few more than k save passes over equal digits")

    #: A sample guesses a floor for rows whose parts have at least this many times its loads.
    loads_per_sampled: int = figure(4, "estimate", "a search reads the row twice more than a guess that holds")

    #: Even shares of candidates that a block has room for at least, and of how many it sorts, at most.
    own_shares: int = figure(2, "estimate", "neighbours may be alike")
    max_own: int = figure(
        1 << 12,
        "machine code",
        "predicted us with a guess and without: 59 and 111 for 16777216 float32 and k = 25000, 356 and 243 "
        "for 1677721",
    )


THRESHOLDS = Thresholds()


def can_take_blocks(selection: Selection, limits: Limits) -> bool:
    """Whether the device has warps."""
    return limits.warp_lanes == WARP_LANES


def block_radix(selection: Selection, limits: Limits) -> Steps:
    """One launch; a block owns a row."""
    by_network = selection.k <= _NETWORK_MAX_K
    if by_network:
        capacity, num_lists = _NETWORK_CAPACITY, 1
    else:
        capacity, num_lists = _ordered_capacity(selection), 2
    list_bytes = num_lists * capacity * selection.pair_bytes
    blocks = blocks_at_once(limits, selection.num_rows, _BLOCK_THREADS, THRESHOLDS.blocks_per_multiprocessor)
    storage_bytes = select_storage_bytes(_BLOCK_THREADS)
    in_shared = storage_bytes + list_bytes <= limits.shared_bytes_per_block
    launch = KernelLaunch(
        source="top_k/block_radix.cu",
        function="top_k_block_radix",
        template=(selection.word, not in_shared, *selection.raggedness),
        grid=(blocks, 1, 1),
        block=(_BLOCK_THREADS, 1, 1),
        buffers=(*selection.operands, None if in_shared else "lists"),
        params=params_of(
            selection, list_capacity=capacity, sort_mode=BY_NETWORK if by_network else BY_DIGITS
        ),
        shared_bytes=storage_bytes + (list_bytes if in_shared else 0),
        constants=(
            ("kThreads", _BLOCK_THREADS),
            ("sizeof(SelectStorage<kThreads>)", storage_bytes),
            ("kByNetwork", BY_NETWORK),
        ),
    )
    return (launch,), () if in_shared else (Workspace("lists", blocks * list_bytes),)


def _ordered_capacity(selection: Selection) -> int:
    """The capacity of a list that is sorted by radix: a few more than k save passes over equal digits."""
    slack = max(selection.k // 4, THRESHOLDS.ordered_min_slack)
    return round_up(min(selection.k + slack, selection.row_length), 8)


def can_share_rows(selection: Selection, limits: Limits) -> bool:
    """Whether all blocks run at once, with at least one for each row."""
    return limits.warp_lanes == WARP_LANES and selection.num_rows <= limits.resident_blocks


class _Guess(NamedTuple):
    """The rank in a sample of the floor, and the most candidates of a row and of a block."""

    rank: int
    row_capacity: int
    own_capacity: int


def _guess(selection: Selection, blocks: int, shared_bytes: int) -> _Guess | None:
    """How a sample guesses a floor; None if the row is read by digits at once.

    The length of ragged rows is not known here. `blocks` share a row, each with `shared_bytes` for a list.
    """
    per_load, loads = VECTOR_BYTES // selection.element.size, blocks * _SAMPLED_LOADS * _GRID_THREADS
    sampled, fitting = loads * per_load, shared_bytes // selection.pair_bytes
    is_long = selection.row_length >= THRESHOLDS.loads_per_sampled * sampled
    if not is_long or selection.lengths is not None or selection.axis_strides[0] != 1:
        return None
    rank = rank_in_sample(selection.k, per_load, selection.row_length, loads)
    # `most_sampled` of the kernel, and four standard deviations of it, in the row.
    most = rank + rank // 32 + 4
    candidates = round_up(ceil_div((most + 4 * isqrt(most)) * selection.row_length, sampled), 8)
    # The network that puts a block's candidates in order pads them to a power of two.
    own_capacity = min(1 << (candidates - 1).bit_length(), 1 << (fitting.bit_length() - 1))
    share = ceil_div(candidates, blocks)
    fits = share <= THRESHOLDS.max_own and THRESHOLDS.own_shares * share <= own_capacity
    return _Guess(rank, candidates, own_capacity) if fits else None


def grid_radix(selection: Selection, limits: Limits) -> Steps:
    """A cooperative launch after a memset; several blocks own a row."""
    # One block per multiprocessor always fits, so the blocks of a row can wait for each other.
    most_blocks = ceil_div(selection.row_length, THRESHOLDS.min_stretch)
    blocks_per_row = min(limits.resident_blocks // selection.num_rows, most_blocks)
    storage_bytes = round_up(select_storage_bytes(_GRID_THREADS) + 4 * (NUM_BINS + 2), 8)
    # Counting compares every pair of the list, shared out over the blocks: k may grow as their root.
    fitting = (limits.shared_bytes_per_block - storage_bytes) // selection.pair_bytes
    shared_capacity = min(fitting, THRESHOLDS.counted_max_capacity) & -8
    evenly = THRESHOLDS.counted_per_root_block * isqrt(blocks_per_row)
    by_counting = selection.k <= min(evenly, shared_capacity // 2)
    if by_counting:
        capacity = min(max(2 * selection.k, 2 * evenly), shared_capacity) & -8
    else:
        capacity = _ordered_capacity(selection)
    most_bytes = limits.shared_bytes_per_block - storage_bytes
    guess = _guess(selection, blocks_per_row, most_bytes)
    if by_counting and guess and guess.row_capacity > shared_capacity:
        guess = None
    if guess:
        capacity = max(capacity, guess.row_capacity)
    rank, own_capacity = (guess.rank, guess.own_capacity) if guess else (0, 0)
    list_shared_bytes = max(capacity if by_counting else 0, own_capacity) * selection.pair_bytes
    num_digits = ceil_div(selection.element.bits, DIGIT_BITS)
    row_state_bytes = 4 * (64 + (num_digits + _SAMPLE_DIGITS) * NUM_BINS)
    state_bytes = selection.num_rows * row_state_bytes
    launch = KernelLaunch(
        source="top_k/grid_radix.cu",
        function="top_k_grid_radix",
        template=(selection.word, *selection.raggedness),
        grid=(selection.num_rows * blocks_per_row, 1, 1),
        block=(_GRID_THREADS, 1, 1),
        buffers=(*selection.operands, "states", "counts", "lists", WAIT_REPORT),
        params=params_of(
            selection,
            _GRID_PARAMS,
            list_capacity=capacity,
            sort_mode=BY_COUNTING if by_counting else BY_DIGITS,
            blocks_per_row=blocks_per_row,
            sample_rank=rank,
            more={"own_capacity": own_capacity},
        ),
        shared_bytes=storage_bytes + list_shared_bytes,
        cooperative=True,
        waits=("the other blocks of the row",),
        constants=(
            ("kThreads", _GRID_THREADS),
            ("sizeof(GridStorage)", storage_bytes),
            (f"sizeof(RowState<{selection.word}>)", row_state_bytes),
            ("RadixSort<kThreads>::kBins", SORT_BINS),
            ("kByCounting", BY_COUNTING),
            ("kSampledLoads", _SAMPLED_LOADS),
        ),
    )
    workspaces = (
        Workspace("states", state_bytes),
        Workspace("counts", selection.num_rows * blocks_per_row * 4 * SORT_BINS),
        Workspace("lists", selection.num_rows * 2 * capacity * selection.pair_bytes),
    )
    return (Fill("states", state_bytes), launch), workspaces
