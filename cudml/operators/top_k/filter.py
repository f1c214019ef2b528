"""Top-k of long rows that are filtered as they are read: how they are divided, sampled and merged."""

from math import ceil, exp, isqrt, log, sqrt

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import Selection, blocks_at_once, params_of, select_storage_bytes
from cudml.plans import WARP_LANES, KernelLaunch, Limits, Workspace, ceil_div, round_up

# kernels/top_k/block_filter.cu and filter.cuh
_THREADS = 256
_MAX_K = 4096
# Blocks that the registers of a multiprocessor hold at once; longer lists allow one.
_BLOCKS = 2
_MIN_ENOUGH = 128
_MAX_MERGED = 4096
_FIRST_OF_PART, _ACROSS_PART, _ACROSS_ROW = range(3)

#: `sizeof(FilterStorage)` of kernels/top_k/block_filter.cu.
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 8, 8)


#: Shortest stretch of a row for one block to filter. Each block's k results are merged by the last one
#: (estimate).
_MIN_STRETCH = 1 << 11

#: The fixed cost of a stretch, in elements: two tiles for a sample, the list, its merge (estimate).
_PART_ELEMENTS = 1 << 13

#: Longest row whose parts share one sample: if its guess fails, one block filters the whole row. A few
#: megabytes (estimate).
_MAX_SHARED_ROW = 1 << 21

#: A part is sampled before it is read if it is at least this many samples long. The sample is then 3 % of it,
#: and 6 % of its sectors (estimate).
_MIN_SAMPLED_TILES = 32

#: Loads of a part per load of its sample, which is at most a tile. By the least predicted time of 15 shapes
#: together; a smaller sample lists more elements of each part (machine code).
_LOADS_PER_SAMPLED = 24

#: Fewest loads of a sample. By the same shapes; parts of less than 60 KB would load more than 1.05 times
#: their elements (machine code).
_MIN_SAMPLED = 192

#: How often a guess may be too high in random order, so that a block filters the row again. It takes as long
#: as the first time, or longer if blocks shared the row (estimate).
_TOO_HIGH = 1e-7

#: The same if all elements of a load are alike. With 1e-4, 10 x 900000 and k = 256 take 6 % longer, because
#: more is listed (machine code).
_TOO_HIGH_ALIKE = 1e-3

#: Smallest number of elements that the filter's list holds beyond k and a tile. The list is cut when it is
#: full, which is rare for random rows (estimate).
_MIN_SLACK = 512


def _tile(selection: Selection) -> int:
    """`Filter::kTile` of kernels/top_k/filter.cuh, also the most elements of a sample."""
    loads_ahead = 2 if selection.element.size == 1 else 4
    return _THREADS * (16 // selection.element.size) * loads_ahead


def _shape(selection: Selection, tiles_per_check: int = 1) -> tuple[int, int]:
    """Elements of a block's list, bytes of its shared storage."""
    # The list is cut when the slack is full, which takes at least e times as many elements each time.
    slack = max(selection.k, _MIN_SLACK)
    capacity = tiles_per_check * _tile(selection) + round_up(selection.k + slack, 8)
    return capacity, _STORAGE_BYTES + capacity * selection.pair_bytes


def _blocks(shared_bytes: int, limits: Limits) -> int:
    """Blocks that a multiprocessor runs at once."""
    by_storage = limits.shared_bytes_per_multiprocessor // shared_bytes
    return min(_BLOCKS, max(1, by_storage))


def _fastest_shape(selection: Selection, limits: Limits) -> tuple[int, int]:
    """The shape with the fewest checks of the list's length, if that costs no block."""
    shape, larger = _shape(selection), _shape(selection, tiles_per_check=2)
    fits = larger[1] <= limits.shared_bytes_per_block
    is_free = fits and _blocks(larger[1], limits) == _blocks(shape[1], limits)
    return larger if is_free and _may_skip_checks(selection) else shape


def _may_skip_checks(selection: Selection) -> bool:
    """`Filter::kMaySkipChecks` of kernels/top_k/filter.cuh."""
    return selection.element.size == 8


def can_filter(selection: Selection, limits: Limits) -> bool:
    """Whether the list fits the shared storage, and k the sorting network."""
    is_small = limits.warp_lanes == WARP_LANES and selection.k <= _MAX_K
    return is_small and _shape(selection)[1] <= limits.shared_bytes_per_block


#: For more expected events a bound is returned, because the number of terms grows with them.
_MOST_TERMS = 1 << 8


def poisson_quantile(expected: float, probability: float) -> int:
    """The least number that a Poisson distribution reaches with less than this probability.

    For more than 256 expected events, an upper bound of that number, by Bernstein.
    """
    if expected > _MOST_TERMS:
        third = -log(probability) / 3
        return ceil(expected + third + sqrt(third * third + 6 * third * expected))
    # By logarithms, because the first terms may be less than the least float.
    number, log_term, below = 0, -expected, 0.0
    while 1 - below >= probability:
        below += exp(log_term)
        number += 1
        log_term += log(expected / number)
    return number


def rank_in_sample(k: int, per_load: int, sampled: int, num_loads: int) -> int:
    """A rank that the k-th of `sampled` elements rarely exceeds in a sample.

    In random order, the number of the first k elements in a sample follows a Poisson distribution. If
    neighbours are much alike, the number of loads that consist of first elements does. If all first elements
    are neighbours, as in a sorted row, the evenly spaced loads among them are counted.
    """
    expected = k * num_loads * per_load / sampled
    distance = max(1, sampled // per_load // num_loads)
    in_order = ceil_div(k // per_load + 2, distance)
    alike = poisson_quantile(expected / per_load, _TOO_HIGH_ALIKE) - 1
    return max(poisson_quantile(expected, _TOO_HIGH), max(in_order, alike) * per_load + 1)


def _sample(selection: Selection, parts: int) -> tuple[int, int]:
    """The scope of a part's sample, and the rank of the guessed floor in the sample.

    Ragged rows have no guess, because their lengths are not known here.
    """
    if selection.lengths is not None:
        return _FIRST_OF_PART, 0
    tile, per_load = _tile(selection), 16 // selection.element.size
    part_length = selection.row_length // parts
    across_row = parts > 1 and selection.row_length <= _MAX_SHARED_ROW
    if not (across_row or part_length >= _MIN_SAMPLED_TILES * tile):
        return _FIRST_OF_PART, 0
    share = (part_length // 64 + 1) * 64 // per_load // _LOADS_PER_SAMPLED
    num_loads = min(tile // per_load, max(_MIN_SAMPLED, share))
    sampled = selection.row_length if across_row else part_length
    rank = rank_in_sample(selection.k, per_load, sampled, num_loads)
    if rank > num_loads * per_load // 4:
        return _FIRST_OF_PART, 0
    return (_ACROSS_ROW if across_row else _ACROSS_PART), rank


def kept_at_most(selection: Selection) -> int:
    """The length to which a merged list, or a whole row's list, is shortened."""
    return max(_MIN_ENOUGH, 1 << (selection.k - 1).bit_length())


def _merges(parts: int, enough: int) -> tuple[int, int]:
    """`Merges::of` of kernels/top_k/block_filter.cu: groups of parts that merge first, elements in memory."""
    group_size, num_groups = parts, 0
    if parts * enough > _MAX_MERGED:
        group_size = isqrt(parts - 1) + 1
        num_groups = ceil_div(parts, group_size)
    # `most_kept` of the kernel.
    most_kept = 2 * enough if group_size * 2 * enough <= _MAX_MERGED else enough
    return num_groups, (parts + num_groups) * most_kept


def num_parts(selection: Selection, limits: Limits) -> int:
    """The number of blocks that share a row, chosen so that few multiprocessors are idle at the end."""
    resident = limits.num_multiprocessors * _blocks(_shape(selection)[1], limits)
    longest = max(1, min(selection.row_length // _MIN_STRETCH, resident))

    def cost(parts: int) -> float:
        waves = ceil_div(selection.num_rows * parts, resident)
        return waves * (selection.row_length / parts + _PART_ELEMENTS)

    if selection.num_rows >= resident * 8:
        return 1
    return min(range(1, longest + 1), key=cost)


def block_filter(selection: Selection, limits: Limits) -> Steps:
    """One launch; blocks may share a row, and the last of them merge the kept lists."""
    capacity, shared_bytes = _fastest_shape(selection, limits)
    parts = num_parts(selection, limits)
    workspaces: tuple[Workspace, ...] = ()
    if parts > 1:
        num_groups, num_kept = _merges(parts, kept_at_most(selection))
        kept_bytes = num_kept * selection.pair_bytes
        states = Workspace("states", 8 * selection.num_rows * (num_groups + 1), is_left_zero=True)
        workspaces = (states, Workspace("kept", selection.num_rows * kept_bytes))
    sample_scope, sample_rank = _sample(selection, parts)
    launch = KernelLaunch(
        source="top_k/block_filter.cu",
        function="top_k_block_filter",
        template=(selection.word, *selection.raggedness),
        grid=(blocks_at_once(limits, selection.num_rows * parts, _THREADS), 1, 1),
        block=(_THREADS, 1, 1),
        buffers=(*selection.operands, "states" if parts > 1 else None, "kept" if parts > 1 else None),
        params=params_of(
            selection,
            list_capacity=capacity,
            blocks_per_row=parts,
            sample_rank=sample_rank,
            sample_scope=sample_scope,
        ),
        shared_bytes=shared_bytes,
        constants=(
            ("kThreads", _THREADS),
            ("sizeof(FilterStorage)", _STORAGE_BYTES),
            (f"Filter<{selection.word}, kThreads>::kTile", _tile(selection)),
            (f"Filter<{selection.word}, kThreads>::kMaySkipChecks", int(_may_skip_checks(selection))),
            ("kAcrossPart", _ACROSS_PART),
            ("kAcrossRow", _ACROSS_ROW),
            ("kMinEnough", _MIN_ENOUGH),
            ("kMaxMerged", _MAX_MERGED),
            ("kLoadsPerSampled", _LOADS_PER_SAMPLED),
            ("kMinSampled", _MIN_SAMPLED),
        ),
    )
    return (launch,), workspaces
