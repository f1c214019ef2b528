"""Top-k of long rows that are filtered as they are read: how they are divided, sampled and merged."""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, exp, inf, isqrt, log, sqrt

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.rows import Selection, blocks_at_once, params_of, select_storage_bytes
from cudml.plans import WARP_LANES, KernelLaunch, Limits, Workspace, ceil_div, round_up

# kernels/top_k/block_filter.cu and filter.cuh
_THREADS = 256
_MAX_K = 4096
_MIN_ENOUGH = 128
_MAX_MERGED = 4096
_FIRST_OF_PART, _ACROSS_PART, _ACROSS_ROW = range(3)

#: `sizeof(FilterStorage)` of kernels/top_k/block_filter.cu.
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 8, 8)


@dataclass(frozen=True)
class Thresholds:
    """How rows are divided and sampled."""

    #: Shortest stretch of a row for one block to filter, and the fixed cost of a stretch, in elements.
    min_stretch: int = figure(1 << 11, "estimate", "each block's k results are merged by the last one")
    part_elements: int = figure(1 << 13, "estimate", "two tiles: a sample, the list, its merge")

    #: Longest row whose parts share one sample: if its guess fails, one block filters the whole row.
    max_shared_row: int = figure(1 << 21, "estimate", "a few megabytes")

    #: A part is sampled before it is read if it is at least this many samples long.
    min_sampled_tiles: int = figure(32, "estimate", "the sample is then 3 % of it, and 6 % of its sectors")

    #: Loads of a part for one of its sample, and the fewest loads of a sample; it has at most a tile.
    loads_per_sampled: int = figure(
        24,
        "machine code",
        "the least predicted time of 15 shapes together; a smaller sample lists more elements of each part",
    )
    min_sampled: int = figure(
        192,
        "machine code",
        "as above; parts of less than 60 KB would load more than 1.05 times their elements",
    )

    #: How often a guess may be too high, so that a block filters the row again: in random order, and where
    #: all elements of a load are alike.
    too_high: float = figure(
        1e-7, "estimate", "it takes as long as the first time, or longer if blocks shared the row"
    )
    too_high_alike: float = figure(
        1e-3, "machine code", "with 1e-4, 10 x 900000 and k = 256 take 6 % longer, because more is listed"
    )

    #: Smallest number of elements that the filter's list holds beyond k and a tile.
    min_slack: int = figure(
        512, "estimate", "the list is cut when they are full, which is rare for random rows"
    )

    #: Rows of 8-byte elements that fit a warp are filtered if their blocks take at most these waves: for
    #: any k, and for more results than the first of these numbers and the second.
    short_waves: tuple[float, float, float] = figure(
        (1, 2, inf),
        "machine code",
        "predicted us, filtered and sorted by a warp, of 1024 int64: 100 rows, k = 1000 11.0 and 48.2; 264, "
        "k = 40 9.2 and 11.9; 528, k = 150 16.8 and 17.1; 1024, k = 500 34.0 and 33.1; 16384, k = 1000 458 "
        "and 856",
    )
    short_min_ks: tuple[int, int] = figure(
        (256, 512),
        "machine code",
        "a warp sorts twice as many from there: predicted 15.9 us, filtered, and 27.4 for 482 rows of 396 "
        "int64 and k = 351; 21.8 and 17.7 for 600 columns of 413 and 186",
    )

    #: Of at most this many elements, columns are not filtered, nor are more rows than multiprocessors.
    short_max_alone: int = figure(
        64,
        "machine code",
        "predicted 6.0 us, filtered, and 6.7 for 75 rows of 8 int64 and k = 8; 7.9 and 6.8 for 150 rows of "
        "33; 7.0 and 6.7 for 6 columns of 30",
    )

    #: Ragged rows, in which fewer elements may lie than are listed, are searched by digits for more results
    #: than this if their bytes for each result are at most the second number.
    dear_min_ragged_k: int = figure(
        512,
        "machine code",
        "predicted us by block_radix and filtered: 14.2 and 25.4 for 5 x 7000 int8 and k = 600, 28.1 and "
        "34.6 for 180 x 7000 float16 and 1800; 20.5 and 33.9 for 27 columns of 1622 int32 and 1428",
    )
    dear_max_bytes_per_result: int = figure(
        16,
        "machine code",
        "predicted us by block_radix and filtered: 38.0 and 40.9 for 180 x 7000 float32 and k = 1800, 32.6 "
        "and 21.7 for 1200; 37.9 and 35.8 for 180 x 20000 float16 and 1500",
    )
    #: The most elements for each result of others: for more than half of the largest k, of rows that are at
    #: most as many as multiprocessors; for more than a quarter of it, of narrow elements, or of bytes where
    #: rows are more.
    dear_max_length_per_result: tuple[int, int] = figure(
        (12, 6),
        "machine code",
        "predicted us by digits and filtered: 44.8 and 50.3 for 40 x 30000 float32 and k = 2500, 67.9 and "
        "65.4 of 100000; 31.5 and 48.2 for 130 x 10000, 50.6 and 53.0 of 30000; 16.6 and 36.9 for 5 x 7000 "
        "int8; 40.8 and 65.7 for 600 x 6000 int8 and 1200, 60.1 and 46.2 of 12000; 55.5 and 58.6 for 600 x "
        "6000 float16, 22.7 and 36.6 for 27 x 12000 and 2000",
    )

    #: Blocks that a multiprocessor runs at once.
    blocks_per_multiprocessor: int = figure(2, "machine code", "limited by its registers and lists")


THRESHOLDS = Thresholds()


def _tile(selection: Selection) -> int:
    """`Filter::kTile` of kernels/top_k/filter.cuh, also the most elements of a sample."""
    loads_ahead = 2 if selection.element.size == 1 else 4
    return _THREADS * (16 // selection.element.size) * loads_ahead


def _shape(selection: Selection, tiles_per_check: int = 1) -> tuple[int, int]:
    """Elements of a block's list, bytes of its shared storage."""
    # The list is cut when the slack is full, which takes at least e times as many elements each time.
    slack = max(selection.k, THRESHOLDS.min_slack)
    capacity = tiles_per_check * _tile(selection) + round_up(selection.k + slack, 8)
    return capacity, _STORAGE_BYTES + capacity * selection.pair_bytes


def _blocks(shared_bytes: int, limits: Limits) -> int:
    """Blocks that a multiprocessor runs at once."""
    by_storage = limits.shared_bytes_per_multiprocessor // shared_bytes
    return min(THRESHOLDS.blocks_per_multiprocessor, max(1, by_storage))


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


def filter_pays_for_short(selection: Selection, limits: Limits) -> bool:
    """Whether a block for a row takes less time than a warp that holds it in registers."""
    t = THRESHOLDS
    waves = selection.num_rows / (limits.num_multiprocessors * t.blocks_per_multiprocessor)
    most_waves = t.short_waves[bisect_left(t.short_min_ks, selection.k)]
    if selection.row_length <= t.short_max_alone:
        most_waves = 1 / t.blocks_per_multiprocessor if selection.axis_strides[0] == 1 else 0
    is_wide = selection.element.size == 8
    return is_wide and waves <= most_waves


def filters_dearly(selection: Selection, limits: Limits) -> bool:
    """Whether cutting lists takes longer than a search by digits, which reads rows of words several times."""
    t, length, k = THRESHOLDS, selection.row_length, selection.k
    size = selection.element.size
    if size == 8:
        return False
    if selection.lengths is not None and length * size <= t.dear_max_bytes_per_result * k:
        return k > t.dear_min_ragged_k
    of_words, of_narrow = t.dear_max_length_per_result
    are_few = selection.num_rows <= limits.num_multiprocessors
    if are_few and 2 * k > _MAX_K:
        return k < length <= of_words * k
    return size < (4 if are_few else 2) and 4 * k > _MAX_K and length <= of_narrow * k


#: For more expected events a bound is returned, because the number of terms grows with them.
_MOST_TERMS = 1 << 8


def poisson_quantile(expected: float, probability: float) -> int:
    """The least number that a Poisson distribution reaches with less than this probability.

    Of more than 256 expected events, a number that is not less: Bernstein's bound.
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
    neighbours are much alike, the number of loads that consist of first elements does. If all of these are
    neighbours, as in a sorted row, it is what evenly spaced loads meet of them.
    """
    expected = k * num_loads * per_load / sampled
    distance = max(1, sampled // per_load // num_loads)
    in_order = ceil_div(k // per_load + 2, distance)
    alike = poisson_quantile(expected / per_load, THRESHOLDS.too_high_alike) - 1
    return max(poisson_quantile(expected, THRESHOLDS.too_high), max(in_order, alike) * per_load + 1)


def _sample(selection: Selection, parts: int) -> tuple[int, int]:
    """The scope of a part's sample, and the rank in it that the floor is guessed by.

    Ragged rows have no guess, because their lengths are not known here.
    """
    if selection.lengths is not None:
        return _FIRST_OF_PART, 0
    tile, per_load = _tile(selection), 16 // selection.element.size
    part_length = selection.row_length // parts
    across_row = parts > 1 and selection.row_length <= THRESHOLDS.max_shared_row
    if not (across_row or part_length >= THRESHOLDS.min_sampled_tiles * tile):
        return _FIRST_OF_PART, 0
    share = (part_length // 64 + 1) * 64 // per_load // THRESHOLDS.loads_per_sampled
    num_loads = min(tile // per_load, max(THRESHOLDS.min_sampled, share))
    sampled = selection.row_length if across_row else part_length
    rank = rank_in_sample(selection.k, per_load, sampled, num_loads)
    if rank > num_loads * per_load // 4:
        return _FIRST_OF_PART, 0
    return (_ACROSS_ROW if across_row else _ACROSS_PART), rank


def kept_at_most(selection: Selection) -> int:
    """The elements that lists which are merged are shortened to."""
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
    longest = max(1, min(selection.row_length // THRESHOLDS.min_stretch, resident))

    def cost(parts: int) -> float:
        waves = ceil_div(selection.num_rows * parts, resident)
        return waves * (selection.row_length / parts + THRESHOLDS.part_elements)

    if selection.num_rows >= resident * 8:
        return 1
    return min(range(1, longest + 1), key=cost)


def block_filter(selection: Selection, limits: Limits) -> Steps:
    """One launch; blocks may share a row, and the last of them merge what all have kept."""
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
            ("kLoadsPerSampled", THRESHOLDS.loads_per_sampled),
            ("kMinSampled", THRESHOLDS.min_sampled),
        ),
    )
    return (launch,), workspaces
