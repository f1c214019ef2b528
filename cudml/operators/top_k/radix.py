"""Top-k by a search for the k-th key, digit by digit: by a block for each row, or by several."""

from math import isqrt
from typing import NamedTuple

from cudml.operators.path import Steps
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
_GRID_STORAGE_BYTES = round_up(select_storage_bytes(_GRID_THREADS) + 4 * (NUM_BINS + 6), 8)
_MOST_RANKED = 8 * _GRID_THREADS

#: `GridParams` of kernels/top_k/grid_radix.cu.
_GRID_PARAMS = ParamStruct(*TOP_K_MEMBERS, "Int64 own_capacity, ranked_capacity, lists_in_order")

# kernels/top_k/tile_sort.cuh
SORT_BINS = 256

#: Blocks that a multiprocessor runs at once. Limited by its registers and lists (machine code).
_BLOCKS_PER_MULTIPROCESSOR = 2

#: Shortest stretch of a row for one block to read. Four elements per thread (estimate).
_MIN_STRETCH = 2048

#: Blocks that share a row rank its list by comparing all pairs if k is at most this number times the root of
#: the number of blocks. Pairs grow with the square, blocks share them (estimate).
_COUNTED_PER_ROOT_BLOCK = 256

#: The same where blocks can exchange candidates instead: a number for each block, and one beside. Predicted
#: for 4194304 float32 and 132 blocks: k of 1000 24.8 us by comparing and 26.0 by an exchange, 2000 32.0 and
#: 26.3; for 33 blocks, 300 28.6 and 29.5, 600 33.3 and 29.5; for 8, 150 31.2 and 30.4, 300 41.0 and 31.1.
_COUNTED_BESIDE_EXCHANGE = (10, 128)

#: Most elements of a list that is ranked by comparing. Longer lists are sorted faster (estimate).
_COUNTED_MAX_CAPACITY = 4096

#: Smallest number of elements that a list sorted by radix holds beyond k. A few more than k save passes over
#: equal digits (estimate).
_ORDERED_MIN_SLACK = 1024

#: A sample guesses a floor for rows that are at least this many times as long. A search reads the row twice
#: more than a guess that holds (estimate).
_LOADS_PER_SAMPLED = 4

#: A block has room for at least this percentage of its even share of the candidates. Neighbours may be alike
#: (estimate).
_OWN_PERCENT = 150

#: Results for each block above which blocks list short candidates in order, tile by tile, instead of sorting
#: them by a network. Predicted 126 us in order and 114 by a network for 625 results of each of 16 blocks, 65
#: and 67 for 757 of each of 132, and 68 and 81 for 1515 (machine code).
_RESULTS_IN_ORDER = 700


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
    blocks = blocks_at_once(limits, selection.num_rows, _BLOCK_THREADS, _BLOCKS_PER_MULTIPROCESSOR)
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
    slack = max(selection.k // 4, _ORDERED_MIN_SLACK)
    return round_up(min(selection.k + slack, selection.row_length), 8)


def can_share_rows(selection: Selection, limits: Limits) -> bool:
    """Whether all blocks run at once, with at least one for each row."""
    return limits.warp_lanes == WARP_LANES and selection.num_rows <= limits.resident_blocks


def _counts_pairs(selection: Selection, limits: Limits) -> bool:
    """Whether blocks that share a row put its results in order by counting, not by an exchange or a sort."""
    most = min(_counted_evenly(selection, limits), _counted_capacity(selection, limits) // 2)
    if not _is_sampled(selection, limits):
        return selection.k <= most
    if _exchanges(selection):
        of_block, beside = _COUNTED_BESIDE_EXCHANGE
        most = min(most, of_block * _blocks_per_row(selection, limits) + beside)
    _, candidates = _guessed(selection, limits)
    return selection.k <= most and candidates <= _counted_capacity(selection, limits)


def _counted_evenly(selection: Selection, limits: Limits) -> int:
    # The blocks share the comparisons of all pairs of the list, so k may grow as the root of their number.
    return _COUNTED_PER_ROOT_BLOCK * isqrt(_blocks_per_row(selection, limits))


def _counted_capacity(selection: Selection, limits: Limits) -> int:
    fitting = (limits.shared_bytes_per_block - _GRID_STORAGE_BYTES) // selection.pair_bytes
    return min(fitting, _COUNTED_MAX_CAPACITY) & -8


def _blocks_per_row(selection: Selection, limits: Limits) -> int:
    # One block per multiprocessor always fits, so the blocks of a row can wait for each other.
    most_blocks = ceil_div(selection.row_length, _MIN_STRETCH)
    return min(limits.resident_blocks // selection.num_rows, most_blocks)


def _sample_length(selection: Selection, limits: Limits) -> int:
    """The number of elements in a sample of a row."""
    loads = _blocks_per_row(selection, limits) * _SAMPLED_LOADS * _GRID_THREADS
    return loads * (VECTOR_BYTES // selection.element.size)


def _is_sampled(selection: Selection, limits: Limits) -> bool:
    """Whether elements lie side by side in a row of known length, several times as long as a sample."""
    is_long = selection.row_length >= _LOADS_PER_SAMPLED * _sample_length(selection, limits)
    return is_long and selection.lengths is None and selection.axis_strides[0] == 1


def _guessed(selection: Selection, limits: Limits) -> tuple[int, int]:
    """The rank of the floor in a sample of a row, and the most candidates that it should leave."""
    per_load = VECTOR_BYTES // selection.element.size
    sampled = _sample_length(selection, limits)
    rank = rank_in_sample(selection.k, per_load, selection.row_length, sampled // per_load)
    # `most_sampled` of the kernel plus four standard deviations, scaled from the sample to the row.
    most = rank + rank // 32 + 4
    return rank, round_up(ceil_div((most + 4 * isqrt(most)) * selection.row_length, sampled), 8)


class _Guess(NamedTuple):
    """The rank of the floor in a sample, and the most candidates of a row and of a block.

    If `lists_in_order`, a block lists its candidates in order; else it may sort them afterwards.
    """

    rank: int = 0
    row_capacity: int = 0
    own_capacity: int = 0
    lists_in_order: bool = False


def _guess(selection: Selection, limits: Limits) -> _Guess | None:
    """How a sample guesses a floor; None if the search by digits begins without a guess.

    The length of ragged rows is not known here.
    """
    if not _is_sampled(selection, limits):
        return None
    blocks = _blocks_per_row(selection, limits)
    rank, candidates = _guessed(selection, limits)
    by_counting = _counts_pairs(selection, limits)
    fitting = (limits.shared_bytes_per_block - _GRID_STORAGE_BYTES) // _own_bytes(selection)
    sorts = not by_counting and not _exchanges(selection)
    lists_in_order = sorts and selection.k > _RESULTS_IN_ORDER * blocks
    if sorts and not lists_in_order:
        # A network pads a block's candidates to a power of two.
        own_capacity = min(1 << (candidates - 1).bit_length(), 1 << (fitting.bit_length() - 1))
    else:
        # A full list in order may lack candidates.
        own_capacity = min(round_up(candidates + 1, 8), fitting & -8)
    even_share = ceil_div(candidates, blocks)
    fits = min(candidates, even_share * _OWN_PERCENT // 100) <= own_capacity
    return _Guess(rank, candidates, own_capacity, lists_in_order) if fits else None


def _exchanges(selection: Selection) -> bool:
    """Whether blocks exchange candidates instead of sorting them: short keys that tie would fill a bucket."""
    return selection.element.size >= 4


def _ranked_capacity(selection: Selection, limits: Limits) -> int:
    """The capacity of the list of exchanged elements that a block ranks at once: a power of two."""
    fitting = (limits.shared_bytes_per_block - _GRID_STORAGE_BYTES) // selection.pair_bytes
    return min(_MOST_RANKED, 1 << (fitting.bit_length() - 1))


def _own_bytes(selection: Selection) -> int:
    """Shared storage for a candidate of a block: key and index, and for an exchange its number in 16 bits."""
    return selection.pair_bytes + (2 if _exchanges(selection) else 0)


def _tile_bytes(selection: Selection) -> int:
    """`sizeof(TileSort<Word, kThreads>::Storage)`: a tile, bins of each warp, two numbers for each digit."""
    tile = _GRID_THREADS * (4 if selection.element.size == 8 else 8)
    return tile * selection.pair_bytes + SORT_BINS * (2 * _GRID_THREADS // WARP_LANES + 8)


def grid_radix(selection: Selection, limits: Limits) -> Steps:
    """A cooperative launch after a memset; several blocks own a row."""
    blocks_per_row, by_counting = _blocks_per_row(selection, limits), _counts_pairs(selection, limits)
    if by_counting:
        wanted = max(2 * selection.k, 2 * _counted_evenly(selection, limits))
        capacity = min(wanted, _counted_capacity(selection, limits)) & -8
    else:
        capacity = _ordered_capacity(selection)
    guess = _guess(selection, limits) or _Guess()
    capacity = max(capacity, guess.row_capacity)
    own_bytes, tile_bytes = guess.own_capacity * _own_bytes(selection), _tile_bytes(selection)
    ranked_capacity = _ranked_capacity(selection, limits)
    ranked_bytes = ranked_capacity * selection.pair_bytes
    sort_bytes = capacity * selection.pair_bytes if by_counting else max(tile_bytes, ranked_bytes)
    list_bytes = max(sort_bytes, own_bytes)
    num_digits = ceil_div(selection.element.bits, DIGIT_BITS)
    row_state_bytes = 4 * (64 + (num_digits + _SAMPLE_DIGITS + 1) * NUM_BINS)
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
            sample_rank=guess.rank,
            more={
                "own_capacity": guess.own_capacity,
                "ranked_capacity": ranked_capacity,
                "lists_in_order": guess.lists_in_order,
            },
        ),
        shared_bytes=_GRID_STORAGE_BYTES + list_bytes,
        cooperative=True,
        waits=("the other blocks of the row",),
        constants=(
            ("kThreads", _GRID_THREADS),
            ("sizeof(GridStorage)", _GRID_STORAGE_BYTES),
            (f"sizeof(RowState<{selection.word}>)", row_state_bytes),
            (f"TileSort<{selection.word}, kThreads>::kBins", SORT_BINS),
            (f"sizeof(TileSort<{selection.word}, kThreads>::Storage)", tile_bytes),
            ("kByCounting", BY_COUNTING),
            ("kSampledLoads", _SAMPLED_LOADS),
            (f"kExchanges<{selection.word}>", int(_exchanges(selection))),
            ("kRankedPerThread * kThreads", _MOST_RANKED),
        ),
    )
    workspaces = (
        Workspace("states", state_bytes),
        Workspace("counts", selection.num_rows * blocks_per_row * 4 * SORT_BINS),
        Workspace("lists", selection.num_rows * 2 * capacity * selection.pair_bytes),
    )
    return (Fill("states", state_bytes), launch), workspaces
