"""Which path of a top-k is estimated to be the fastest.

`choose_path` asks the rules below, which compare a selection with the numbers of `thresholds.py`.
"""

from bisect import bisect_left
from math import ceil, inf, log2

from cudml.operators.path import Choice
from cudml.operators.top_k import radix
from cudml.operators.top_k.arg_max import can_arg_max, lanes_of_row
from cudml.operators.top_k.block_sort import (
    MAX_SORTED_K,
    MAX_SORTED_LENGTH,
    SORT_MAX_ELEMENT_BYTES,
    can_block_sort,
    chooses,
)
from cudml.operators.top_k.cluster import can_cluster, cluster_blocks, cluster_waves
from cudml.operators.top_k.columns import COLUMNS, COLUMNS_BLOCKS, COLUMNS_MAX_KS, can_filter_columns
from cudml.operators.top_k.filter import FILTER_MAX_K, can_filter
from cudml.operators.top_k.groups import can_group
from cudml.operators.top_k.keep import KEEP_BLOCKS, can_keep, keeps_one
from cudml.operators.top_k.lanes import (
    SORT_MAX_ROW_LENGTH,
    THREAD_LIST_SIZE,
    can_thread_list,
    can_warp_select,
    can_warp_sort,
    is_few,
    sorts_whole,
)
from cudml.operators.top_k.paths import PATHS
from cudml.operators.top_k.radix import can_share_rows
from cudml.operators.top_k.rows import Selection, are_columns, are_vectors, lie_together
from cudml.operators.top_k.thresholds import THRESHOLDS, Thresholds
from cudml.plans import WARP_LANES, Limits

# Of long rows kernels/top_k/columns.cu is predicted to be fast for elements of a word, and narrower ones.
_COLUMNS_WORD_BYTES = 4


def choose_path(selection: Selection, limits: Limits, t: Thresholds = THRESHOLDS) -> Choice[Selection]:
    """The path that is estimated to be the fastest, and why."""
    length = selection.row_length
    if limits.warp_lanes != WARP_LANES:
        path = "serial_arg_max" if selection.k == 1 else "serial"
        return Choice(PATHS[path], "blocks of one thread")
    if can_thread_list(selection, limits) and _threads_pay(selection, limits, t):
        return Choice(PATHS["thread_list"], f"{selection.num_rows} rows of {length} elements, a thread each")
    if can_arg_max(selection, limits) and _arg_max_pays(selection, limits, t):
        return Choice(PATHS["arg_max"], f"the first of {length} elements")
    if can_keep(selection, limits) and _keep_pays(selection, limits, t):
        return Choice(PATHS["block_keep"], f"rows of {length} elements, kept by a block each")
    if can_warp_select(selection, limits) and _select_pays(selection, limits, t):
        return Choice(PATHS["warp_select"], f"rows of {length} elements by groups of lanes")
    if can_warp_sort(selection, limits):
        return _choose_short(selection, limits, t)
    part = _part_of_groups(selection, limits)
    if can_block_sort(selection, limits) and _block_sort_pays(selection, limits, t, part):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    if can_filter_columns(selection, limits) and (
        _are_large_columns(selection, limits, t) or _columns_pay_for_long(selection, limits, t)
    ):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if _groups_pay(selection, limits, t) and can_group(selection, limits):
        return Choice(PATHS["groups"], f"{selection.num_rows} rows for {limits.resident_blocks} blocks")
    if can_cluster(selection, limits) and (
        _cluster_pays(selection, limits, t) or _waves_of_clusters_pay(selection, limits, t)
    ):
        return Choice(PATHS["cluster"], f"{selection.num_rows} rows for a cluster each")
    if can_share_rows(selection, limits) and _guess_pays(selection, limits, t):
        return Choice(PATHS["grid_radix"], f"{selection.num_rows} rows of {length} elements, read once")
    if can_block_sort(selection, limits) and _block_sort_pays(selection, limits, t, 0):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    reads_again = _shares_rows(selection, limits, t) and _reads_again(selection, limits, t)
    is_dear = reads_again or _filters_dearly(selection, limits, t)
    is_dear |= _are_few_columns(selection, limits, t) and not _lists_all(selection)
    if can_filter(selection, limits) and not is_dear:
        return Choice(PATHS["block_filter"], f"rows of {length} elements, too long for a warp")
    return _by_digits(selection, limits, t)


def _by_digits(selection: Selection, limits: Limits, t: Thresholds) -> Choice[Selection]:
    """A search by digits, by several blocks for each row or by one."""
    path = "grid_radix" if _shares_rows(selection, limits, t) else "block_radix"
    why = f"{selection.num_rows} rows of {selection.row_length} elements for {limits.resident_blocks} blocks"
    return Choice(PATHS[path], why)


def _choose_short(selection: Selection, limits: Limits, t: Thresholds) -> Choice[Selection]:
    """The path of rows that fit a warp, and have too many results for its lanes."""
    length = selection.row_length
    if _columns_pay_for_short(selection, limits, t) and can_filter_columns(selection, limits):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if _blocks_pay_for_columns(selection, limits, t) and can_filter(selection, limits):
        return Choice(PATHS["block_filter"], f"{selection.num_rows} columns, read by a block each")
    if can_block_sort(selection, limits) and _sorts_short(selection, limits, t):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    return Choice(PATHS["warp_sort"], f"rows of {length} elements in registers")


def _threads_pay(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether a thread takes no longer for a row than a group of lanes: rows are short, or many."""
    part_of_threads = selection.num_rows / limits.resident_threads
    if selection.k == 1 and are_columns(selection):
        least, more, most = t.threads_first_of_columns
        min_part = t.threads_first_min_part
    else:
        least, more, most = t.threads_row_lengths[min(selection.k, 2) - 1][selection.width]
        is_long = selection.row_length > t.threads_short_length
        min_part = t.threads_min_part[max(0, selection.width - 1)][is_long]
        if selection.k == 1 or (lie_together(selection) and not selection.is_ragged):
            min_part = inf
    return part_of_threads >= min_part or selection.row_length <= min(most, least + more * part_of_threads)


def _arg_max_pays(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether reading only for the first element is as fast as any other way.

    Neighbouring lanes have neighbouring rows. Blocks do not: each reads the sectors that others read.
    """
    is_shortest = WARP_LANES < selection.row_length <= t.select_max_any_k
    if is_shortest and are_columns(selection) and is_few(selection, limits):
        return False  # a warp that sorts them was measured to take less time
    num_elements = selection.num_rows * selection.mean_length
    is_cached = num_elements <= t.arg_max_most_apart
    is_shared = selection.num_rows < COLUMNS and num_elements <= t.arg_max_most_shared
    longest = t.arg_max_max_apart_length[selection.element.size > _COLUMNS_WORD_BYTES]
    by_lanes = selection.row_length <= longest and lanes_of_row(selection, limits) is not None
    return lie_together(selection) or is_cached or is_shared or by_lanes


def _blocks_pay_for_columns(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether columns are so few and long that a block reads one sooner than the lanes of a warp do."""
    are_few = selection.num_rows <= t.blocks_max_columns * limits.num_multiprocessors
    is_long = selection.row_length >= t.blocks_min_column_length
    most_k = t.blocks_max_column_k[selection.element.size > _COLUMNS_WORD_BYTES]
    return are_columns(selection) and are_few and is_long and selection.k <= most_k


def _select_pays(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether groups of lanes take no longer than a warp that sorts, or than columns of many rows."""
    if _blocks_pay_for_columns(selection, limits, t):
        return False
    if selection.row_length > SORT_MAX_ROW_LENGTH:
        return _select_pays_for_long(selection, limits, t)
    is_lost = selection.is_ragged and _select_loses_ragged(selection, limits, t)
    return not is_lost and _select_pays_for_short(selection, limits, t)


def _select_pays_for_long(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """The same of rows that fit no warp, beside `columns` and `block_sort`."""
    size, part = selection.element.size, _part_of_groups(selection, limits)
    if are_columns(selection):
        return False
    are_more = selection.num_rows > limits.resident_blocks
    if selection.row_length > t.select_max_few_length:
        fills_columns = size == _COLUMNS_WORD_BYTES and part >= t.columns_min_part_of_words
        return are_more and not fills_columns
    # Units of bytes are wide, and their candidates many.
    is_dear = size == 1 and not are_more
    is_dear |= selection.is_ragged and (selection.k > t.select_max_few_k or size < _COLUMNS_WORD_BYTES)
    return not (is_dear and _block_sort_pays(selection, limits, t, part))


def _select_loses_ragged(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether ragged rows that fit a warp take longer: lanes without elements see nothing but ties."""
    is_shortest = selection.row_length <= t.select_max_any_k
    if not is_shortest and selection.k > t.select_max_few_k:
        return True
    if not is_shortest and selection.element.size > _COLUMNS_WORD_BYTES:
        return False
    return _part_of_groups(selection, limits) < t.select_min_ragged_part[selection.width]


def _select_pays_for_short(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """The same of rows that fit a warp, beside it, `columns` and paths of a block for each row."""
    length, k = selection.row_length, selection.k
    size, part = selection.element.size, _part_of_groups(selection, limits)
    is_wide, is_word = size > _COLUMNS_WORD_BYTES, size == _COLUMNS_WORD_BYTES
    is_shortest, are_many = length <= t.select_max_any_k, part >= t.columns_min_part
    lie_apart = are_columns(selection)
    is_sorted = (is_shortest or sorts_whole(selection, limits)) and not are_vectors(selection)
    if is_few(selection, limits) and (is_wide or is_sorted):
        # Few warps hide no latency. A warp that sorts has fewer dependent steps, unless lanes load vectors.
        return False
    if not are_many and lie_apart and (is_shortest or size < _COLUMNS_WORD_BYTES):
        return False
    if lie_apart and not selection.is_ragged and _are_long_for_lanes(selection, part, t):
        return False
    if k <= t.select_max_few_k:
        return True
    if are_many and k > t.select_max_k:
        is_longer = length >= t.select_min_narrow_length and part >= t.columns_max_part
        if is_word:
            return lie_apart or length <= t.select_max_words_length
        return not is_wide and (is_shortest or is_longer)
    if not is_shortest and length <= t.select_min_many_columns_length and lie_apart:
        return False
    return are_many or (k <= t.select_max_k and length >= t.select_min_few_length)


def _are_long_for_lanes(selection: Selection, part: float, t: Thresholds) -> bool:
    """Whether columns are so long that lanes, which read a line each, take more time than other paths."""
    length = selection.row_length
    if part < t.columns_min_part:
        return length > t.select_max_few_columns_length
    above, longest = t.columns_lengths_of_few_words
    are_quick_together = _are_few_words(selection, part, t) and above < length <= longest
    return are_quick_together or length > t.select_max_columns_length


def _are_few_words(selection: Selection, part: float, t: Thresholds) -> bool:
    """Whether elements are words, of so few groups that `columns` takes little more time than to begin."""
    return selection.element.size == _COLUMNS_WORD_BYTES and part <= t.select_max_columns_part


def _keep_pays(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether a block for each row takes less time than a warp, a filter, a search or a cluster."""
    length, k, width = selection.row_length, selection.k, selection.width
    size, rows = selection.element.size, selection.num_rows
    are_few = rows <= limits.num_multiprocessors
    if are_few and k < t.keep_min_few_k[width]:
        return False
    is_small = not are_few and k < t.keep_min_k
    if is_small and _part_of_groups(selection, limits) > t.columns_max_part:
        return False
    of_more = t.keep_min_length_of_small_k if is_small else t.keep_min_length
    if length < (t.keep_min_few_length if are_few else of_more)[width]:
        return False
    if k <= t.keep_small_k and length > t.keep_max_small_length[width]:
        return False
    may_be_whole = are_few and k == length
    if selection.element.kind == "f" and size >= 4 and not may_be_whole:
        is_filtered = size == 8 and (not are_few or 2 * k <= FILTER_MAX_K)
        has_others = can_block_sort(selection, limits) or is_filtered
        if k > t.keep_max_part_of_floats[has_others] * length:
            return False
    if size == 1 and length > t.keep_max_bytes_per_result[are_few] * k:
        return False
    is_alone = size == 4 and not are_few and keeps_one(selection, limits)
    if is_alone and length > t.keep_max_words_per_result * k:
        return False
    if rows > KEEP_BLOCKS * limits.num_multiprocessors:
        fits_warps = length <= SORT_MAX_ROW_LENGTH * (2 if size <= _COLUMNS_WORD_BYTES else 1)
        least_of_many = t.keep_min_k_of_warps if fits_warps else t.keep_min_k_of_many[width]
        return k >= least_of_many or length >= t.keep_min_length_of_many[width]
    are_pairs = rows > t.keep_min_part_of_pairs[width] * limits.num_multiprocessors
    is_paired = k >= t.keep_min_k_of_pairs and are_pairs
    if length <= t.keep_max_of_clusters[width] * (2 if is_paired else 1):
        return True
    return not (can_cluster(selection, limits) and _cluster_pays(selection, limits, t))


def _block_sort_pays(selection: Selection, limits: Limits, t: Thresholds, part: float) -> bool:
    """Whether rows that fit no warp are more than blocks at once, or columns, and no other path takes less.

    `part` is the number of their groups of `columns`, as a part of the number of multiprocessors; 0 if
    neither `columns` nor groups of neighbours pay: a block that filters each takes longer still.
    """
    length, k, size = selection.row_length, selection.k, selection.element.size
    if _blocks_pay_for_columns(selection, limits, t):
        return False
    is_long, takes_all = length > MAX_SORTED_LENGTH, length > 2 * SORT_MAX_ROW_LENGTH
    if selection.num_rows <= limits.resident_blocks and (is_long or not are_columns(selection)):
        if _may_tie(selection, t):
            return True
        return part == 0 and (k > MAX_SORTED_K or (not is_long and chooses(selection)))
    if is_long and k <= MAX_SORTED_K:
        # A filter cuts lists more often for elements that tie, and for ragged rows.
        may_tie = size == 1 or (size < _COLUMNS_WORD_BYTES and are_columns(selection))
        is_cut = may_tie or selection.is_ragged
        reasons = (length <= t.sort_max_length, k > WARP_LANES, is_cut)
        return part == 0 and sum(reasons) > 1
    if k > COLUMNS_MAX_KS[-1]:
        return True
    most_part = t.sort_max_part[takes_all][bisect_left(COLUMNS_MAX_KS, k)]
    if are_columns(selection):
        most_part *= t.sort_part_of_columns[takes_all]
    if selection.is_ragged:
        most_part *= t.sort_ragged_times[takes_all]
    if takes_all and size < SORT_MAX_ELEMENT_BYTES:
        most_part *= t.sort_narrow_times
    return part < most_part * max(1, ceil(part / COLUMNS_BLOCKS))


def _sorts_short(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether a block takes less time for a row that fits a warp."""
    is_word = selection.element.size == SORT_MAX_ELEMENT_BYTES
    if chooses(selection):
        are_fewer = selection.num_rows <= limits.num_multiprocessors and not are_vectors(selection)
        return are_fewer or (is_word and is_few(selection, limits))
    is_long = are_columns(selection) and selection.row_length >= t.sort_min_few_columns_length
    return is_few(selection, limits) and is_word and is_long and not selection.is_ragged


def _may_tie(selection: Selection, t: Thresholds) -> bool:
    """Whether a list of a row's largest groups is long, because many of its elements are alike."""
    row_bytes = selection.mean_length * selection.element.size
    most = t.sort_tie_max_bytes // (1 if selection.k > WARP_LANES else 2)
    return selection.element.size < SORT_MAX_ELEMENT_BYTES and row_bytes <= most


def _columns_pay_for_short(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether rows that fit a warp take no longer together."""
    size, length, k = selection.element.size, selection.row_length, selection.k
    if size > _COLUMNS_WORD_BYTES or (selection.is_ragged and k > COLUMNS_MAX_KS[0]):
        return False
    part = _part_of_groups(selection, limits)
    lie_apart = are_columns(selection)
    longest, min_part = t.columns_max_short_length[lie_apart], t.columns_min_part
    fills = part > t.columns_min_filled * COLUMNS_BLOCKS * ceil(part / COLUMNS_BLOCKS)
    most_k = t.columns_max_k[lie_apart and _are_few_words(selection, part, t)]
    is_paid = k <= COLUMNS_MAX_KS[0] or (fills and k <= most_k)
    if selection.is_ragged and length > t.select_max_any_k:
        min_part, is_paid = t.columns_min_ragged_part, fills or part <= t.columns_max_part
        longest = t.columns_max_ragged_length // (2 if size < _COLUMNS_WORD_BYTES else 1)
    return part >= min_part and length <= longest and is_paid


def _columns_pay_for_long(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether rows that fit no warp take no longer together than each by a block."""
    instance = bisect_left(COLUMNS_MAX_KS, selection.k)
    part, size = _part_of_groups(selection, limits), selection.element.size
    least, longest = t.columns_min_part_of_long[instance], t.columns_max_length_per_part[instance]
    if lie_together(selection):
        if selection.row_length > t.columns_max_together_length:
            return False
    elif selection.is_ragged and size < _COLUMNS_WORD_BYTES and instance == 0 and part < least:
        # Narrow elements tie, and a filter has no sample of ragged rows.
        least, longest = 1 / COLUMNS, t.columns_max_ragged_narrow_length[size - 1]
    if size > _COLUMNS_WORD_BYTES:
        longest = t.columns_max_wide_length
    return part >= least and selection.row_length <= longest * min(part, t.columns_max_part)


def _are_large_columns(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether rows are columns of a matrix that is wide, and takes longer to read than to begin."""
    size = selection.element.size
    least = t.columns_min_rows[bisect_left((THREAD_LIST_SIZE, *COLUMNS_MAX_KS), selection.k)]
    least *= t.columns_wide_times if size > _COLUMNS_WORD_BYTES else 1
    are_many = selection.num_rows >= least * limits.num_multiprocessors
    may_tie = size == 1 and selection.k <= THREAD_LIST_SIZE
    is_large = selection.num_bytes >= t.columns_min_bytes
    return are_columns(selection) and are_many and is_large and not may_tie


def _part_of_groups(selection: Selection, limits: Limits) -> float:
    """Groups of rows that are filtered together, as a part of the number of multiprocessors."""
    return -(-selection.num_rows // COLUMNS) / limits.num_multiprocessors


def _cluster_pays(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether all clusters run at once, or other paths cut the lists of ragged rows often."""
    length, k = selection.row_length, selection.k
    if _has_uneven_buckets(selection):
        return False
    if selection.num_rows <= 2 and length * selection.element.size > t.cluster_max_bytes_of_few:
        return False  # all multiprocessors read such a row sooner than those of a cluster
    waves = cluster_waves(selection, limits)
    if not selection.is_ragged:
        return length >= t.cluster_min_length and waves <= 1
    has_many = k >= t.cluster_min_ragged_k
    if waves <= 1:
        return length >= t.cluster_min_length and (has_many or not _is_unbounded(selection, t))
    return has_many and length >= t.cluster_min_ragged_length_per_result * k


def _waves_of_clusters_pay(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether blocks that hold a row each take turns, while a filter would cut its lists often."""
    has_many = selection.k >= t.cluster_min_k_of_waves and not _has_uneven_buckets(selection)
    return has_many and not selection.is_ragged and cluster_blocks(selection, limits) == 1


def _has_uneven_buckets(selection: Selection) -> bool:
    """Whether most of a row of doubles is ranked: many of their keys share a bucket."""
    return (
        selection.element.size == 8
        and selection.element.kind == "f"
        and 2 * selection.k > selection.row_length
    )


def _is_unbounded(selection: Selection, t: Thresholds) -> bool:
    """Whether ragged rows have hardly more loads than results, so that a cluster finds no bound."""
    length, k = selection.row_length, selection.k
    return selection.is_ragged and 2 * k < length < t.cluster_min_ragged_length_per_result * k


def _guess_pays(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether a search by digits whose floor a sample guesses takes few rows less time than a filter."""
    most_part = t.guess_max_part[bisect_left(t.guess_ks, selection.k)]
    are_few = selection.num_rows <= most_part * limits.resident_blocks
    return are_few and radix.guesses(selection, limits)


def _groups_pay(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether k is so small, and rows so few or short, that a cluster for each takes longer.

    On devices without clusters: whether the cache holds the groups that are read again.
    """
    length, k, num_bytes = selection.row_length, selection.k, selection.num_bytes
    if length < t.cluster_min_length:
        return False
    if limits.max_cluster_blocks == 1:
        are_few = selection.num_rows <= limits.resident_blocks
        most_of_row = t.groups_max_results * limits.l2_bytes / k
        is_cached = num_bytes <= min(t.groups_max_part * limits.l2_bytes, most_of_row * selection.num_rows)
        is_long = length * selection.element.size >= t.groups_min_bytes_per_result * k
        return are_few and is_cached and is_long
    most_rows = limits.resident_blocks if num_bytes <= t.groups_max_bytes else t.groups_max_rows
    most_k = t.groups_max_k[selection.element.size == 8]
    is_small = k <= most_k or (k < t.cluster_min_ragged_k and _is_unbounded(selection, t))
    return selection.num_rows <= most_rows and is_small


def _filters_dearly(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether cutting lists takes longer than a search by digits, which reads rows of words several times."""
    length, k = selection.row_length, selection.k
    size = selection.element.size
    if size == 8:
        return selection.is_ragged and k >= t.filter_dear_min_ragged_wide_k
    if selection.is_ragged and length * size <= t.filter_dear_max_bytes_per_result * k:
        return True
    of_words, of_narrow = t.filter_dear_max_length_per_result
    are_few = selection.num_rows <= limits.num_multiprocessors
    if are_few and 2 * k > FILTER_MAX_K:
        return k < length <= of_words * k
    return size < (4 if are_few else 2) and 4 * k > FILTER_MAX_K and length <= of_narrow * k


def _reads_again(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether blocks that share a row search it by digits sooner than they filter it and merge lists."""
    k = selection.k
    num_elements = selection.num_rows * selection.mean_length
    if not radix.counts_pairs(selection, limits):
        # A filter has no sample of ragged rows.
        least_k = t.sorted_min_k // (2 if selection.is_ragged else 1)
        is_wide_integer = selection.element.size == 8 and selection.element.kind != "f"
        least = t.sorted_min_wide_integers if is_wide_integer else 0
        # Few blocks for each of many rows take long for the sort.
        are_many = selection.num_rows > t.sorted_many_part * limits.resident_blocks
        most = t.sorted_max_elements[selection.width] // (2 if are_many else 1)
        return k >= least_k and least <= num_elements <= most
    l2_part = num_elements * selection.element.size / limits.l2_bytes
    if are_columns(selection):
        l2_part *= t.cached_times_of_columns
    bounds = (t.cached_max,) if k <= t.filter_max_shared_k else (t.counted_max, t.counted_few_max)
    return any(selection.num_rows <= most_rows and l2_part <= most_part for most_rows, most_part in bounds)


def _shares_rows(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether a search by digits takes several blocks for each row less time than one."""
    k, length = selection.k, selection.row_length
    if selection.is_ragged:
        length = int(length * t.grid_ragged_length)
    if not can_share_rows(selection, limits):
        return False
    part = selection.num_rows / limits.resident_blocks
    if part > t.grid_max_part:
        return False
    if radix.counts_pairs(selection, limits):
        return length * (1 - part) >= t.grid_counted_min_length
    passes = ceil(selection.element.bits / log2(radix.SORT_BINS))
    return (length + passes * k) * (1 - part) >= t.grid_min_length[selection.width]


def _are_few_columns(selection: Selection, limits: Limits, t: Thresholds) -> bool:
    """Whether columns are so few and short that a search by digits takes less time than a filter."""
    num_elements = selection.num_rows * selection.mean_length
    are_fewer = selection.num_rows <= limits.resident_blocks and num_elements <= t.radix_columns_max_elements
    is_sorted = selection.element.size <= _COLUMNS_WORD_BYTES or radix.counts_pairs(selection, limits)
    return (
        are_fewer
        and are_columns(selection)
        and selection.row_length > t.radix_columns_min_length
        and is_sorted
    )


def _lists_all(selection: Selection) -> bool:
    """Whether a filter of rows with distinct elements lists all of them, and cuts no list."""
    return selection.k == selection.row_length and selection.element.size > 1
