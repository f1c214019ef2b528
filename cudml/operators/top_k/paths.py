"""How a top-k is computed: the paths through the kernels, and which is fastest.

Every path gives the same bits, because every kernel orders by key and then by index.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil

from cudml.operators.path import Choice, Path, by_name, figure
from cudml.operators.top_k.arg_max import arg_max, arg_max_pays, can_arg_max
from cudml.operators.top_k.block_sort import block_sort, block_sort_pays, can_block_sort, sorts_short
from cudml.operators.top_k.cluster import can_cluster, cluster, cluster_pays
from cudml.operators.top_k.columns import COLUMNS, COLUMNS_MAX_KS, can_filter_columns, filter_columns
from cudml.operators.top_k.filter import (
    block_filter,
    can_filter,
    filter_pays_for_short,
    filters_dearly,
    kept_at_most,
    num_parts,
)
from cudml.operators.top_k.groups import can_group, groups
from cudml.operators.top_k.lanes import (
    SORT_MAX_ROW_LENGTH,
    THREAD_LIST_SIZE,
    can_thread_list,
    can_warp_select,
    can_warp_sort,
    is_few,
    thread_list,
    warp_select,
    warp_sort,
)
from cudml.operators.top_k.radix import block_radix, can_share_rows, can_take_blocks, grid_radix
from cudml.operators.top_k.rows import Selection, are_columns, are_vectors
from cudml.operators.top_k.serial import can_serial, can_serial_arg_max, serial, serial_arg_max
from cudml.plans import WARP_LANES, Limits

# Of long rows kernels/top_k/columns.cu is predicted to be fast for elements of a word, and narrower ones.
_COLUMNS_WORD_BYTES = 4


@dataclass(frozen=True)
class Thresholds:
    """The numbers that decide between the paths of a top-k."""

    #: One thread per row pays if there are rows for this part of the threads that the device holds.
    threads_min_part: float = figure(
        1 / 4,
        "machine code",
        "predicted us by threads and by groups of lanes, for 67584 columns of 1000 float32 and k = 3: 69, "
        "89; by threads and otherwise for k = 1: 8.8, 10.4 of 64 float32, 182, 203 for 100000 of 1000 int64, "
        "8.0, 7.4 for 33792 of 64 float32",
    )

    #: For k above 1, it pays for this part if columns are no longer, or their elements have 8 bytes.
    threads_short_part: tuple[float, int] = figure(
        (1 / 8, 64),
        "machine code",
        "predicted us by threads and by groups of lanes, for 33792 columns: 8.5, 10.5 of 64 float32, 9.2, "
        "9.5 of 64 int8, 19, 16 of 256 float16, 24, 35 of 200 int64; for 16896 of 64 float32: 8.2, 7.6",
    )

    #: So it does for rows of few elements, wherever they lie. Longest rows: of any number of rows, how many
    #: more elements if there is a row for each thread that the device holds, and the most; for k = 1 and
    #: more, of elements of 1, 2, 4 and 8 bytes.
    threads_row_lengths: tuple[tuple[tuple[int, int, int], ...], ...] = figure(
        (
            ((8, 400, 100), (8, 200, 48), (8, 130, 40), (2, 120, 24)),
            ((10, 400, 128), (10, 400, 128), (10, 240, 128), (15, 400, 160)),
        ),
        "machine code",
        "predicted us by threads and by the path otherwise chosen, for float32: 6.6, 20.1 for 131072 x 8 "
        "and k = 2, 21.8, 37.9 for 131072 x 100 and k = 3, 6.0, 6.5 for 16384 x 16 and 6.2, 5.6 for 1024 x "
        "24 and k = 4, 10.2, 11.6 for 131072 x 40 and k = 1; for float64: 7.4, 69.6 for 131072 x 4 and k = "
        "2, 6.2, 6.6 for 1024 x 13 and k = 3; for int64 and k = 4: 394, 569 for a million x 128, 735, 612 of "
        "256; for int8 and k = 1: 6.4, 9.4 for 32768 x 40, 110, 164 for a million x 100, 31, 24 for 131072 x "
        "200",
    )

    #: The same for the first of a column, which takes lanes less time than that of a row.
    threads_first_of_columns: tuple[int, int, int] = figure(
        (2, 24, 8),
        "machine code",
        "predicted us by threads and by lanes for k = 1: 5.8, 5.7 for 33792 columns of 16 float32, 6.3, 5.8 "
        "for 20000 of 10 float64",
    )

    #: Groups of lanes select elements of a word, whatever the k of the kernel, and narrower ones from rows of
    #: at most this length,
    select_max_any_k: int = figure(
        64,
        "machine code",
        "predicted 10 us, 19 by sorting, for 16384 x 64 float16 and k = 20; of 65, 62 and 25",
    )

    #: else for at most this many results; few rows, if shorter than the third number, for at most the second.
    select_max_k: int = figure(
        16,
        "machine code",
        "predicted 8.0 us, 7.8 by sorting, for 1024 rows of 257 float32 and k = 17; 6.6 and 7.7 for k = 16",
    )
    select_max_few_k: int = figure(
        8, "machine code", "predicted 9.3 us, 6.7 by sorting, for 1024 rows of 65 and k = 16; 6.1 for k = 8"
    )
    select_min_few_length: int = figure(
        257,
        "machine code",
        "predicted 7.3 us, 7.1 by sorting, for 1024 x 256 and k = 16; of 257, 6.6 and 7.7",
    )

    #: Longer rows are looked at by groups of neighbours if they are at most as many as blocks run at once.
    select_max_few_length: int = figure(
        2048, "machine code", "predicted 8.3 us, 8.0 by groups, for 132 x 3000 float32 and k = 8"
    )

    #: Of 32-bit elements these are filtered together if their groups are between these parts of the number of
    #: multiprocessors: the blocks of `columns` all run at once, and lanes have several rows each.
    columns_part_of_words: tuple[float, float] = figure(
        (1.5, 2.0),
        "machine code",
        "predicted 26 us by lanes, 22 by columns, for 4096 x 3000 and k = 8; 15 and 21 of 2100 rows, 71 and "
        "74 of 16384",
    )

    #: Shorter rows of 64-bit elements have too few groups of neighbours for more than `select_max_few_k`.
    select_min_wide_length: int = figure(
        81, "machine code", "predicted 39.9 us, 38.6 by columns, for 16384 x 80 and k = 9; of 96, 34.6 and 39"
    )

    #: So have columns up to this length.
    select_min_columns_length: int = figure(
        80,
        "machine code",
        "predicted 10.1 us, 8.4 by columns, for 4096 columns of 65 and k = 10; of 128, 8 and 9",
    )

    #: Neighbouring short rows are filtered together for at most this many results,
    columns_max_k: int = figure(
        32,
        "machine code",
        "predicted 62 us, 70 by sorting, for 16384 rows of 128 int64 and k = 32; lists of more do not fit",
    )

    #: up to this length; longer rows of narrow elements are selected;
    columns_max_short_length: int = figure(
        128,
        "machine code",
        "predicted 19 us by lanes, 25 by sorting, for 16384 rows of 256 float16 and k = 20; of 128 43 and 24",
    )

    #: where their groups are at least this part of the number of multiprocessors (so are rows that lanes
    #: would select for a k above `select_max_k`),
    columns_min_part: float = figure(
        1.0,
        "machine code",
        "predicted 10.6 us by lanes, 11.6 by sorting, for 2112 x 1024 and k = 20; of 1024 rows 9.1 and 9.0",
    )

    #: and, for a k above 16, fill more than this part of their waves.
    columns_min_filled: float = figure(
        3 / 5,
        "machine code",
        "predicted us by columns and by sorting: 26.1 and 20.4 for 4600 rows of 110 int64 and k = 32, 26.1 "
        "both for 5500, 33.1 and 35.8 for 8400; 10.5 and 7.7 for 2500 of float16",
    )

    #: Rows that fit no warp are where their groups are at least this part, for k up to 16, 32, 64 and 128,
    columns_min_part_of_long: tuple[float, ...] = figure(
        (1 / 4, 2 / 5, 2 / 5, 1.0),
        "machine code",
        "predicted 11 us, 22 by block_filter, for 1024 x 1025 and k = 8, 22 and 29 for 64, 37.6 and 38.6 for "
        "128; of 264 rows 11 and 9 for 8, of 528 22 and 17 for 64",
    )
    #: and so long at most if their groups are as many as multiprocessors. More groups take longer rows, up to
    #: the second number times as many.
    columns_max_length_per_part: tuple[int, ...] = figure(
        (1 << 32, 1 << 15, 1 << 12, 3 << 9),
        "machine code",
        "predicted 38 us, 47 by block_filter, for 1024 x 16384 and k = 32; 41 and 53 for 2112 x 4096 and 64, "
        "38 and 30 of 1024 rows; 36 and 54 for 2112 x 1025 and 65, 70 and 53 of 4096",
    )
    columns_max_part: float = figure(2.0, "machine code", "two blocks run at once on a multiprocessor")

    #: And columns of at least this many bytes whose groups are at least this part, by k.
    columns_min_bytes: int = figure(
        (5 << 19) + 1,
        "machine code",
        "predicted 15.5 us, 12.0 by block_filter, for 264 columns of 2048; of 512 columns 15.5 and 18.6; "
        "14.6 and 16.3 for 64 of 10241 and k = 3",
    )
    columns_min_part_of_columns: tuple[float, ...] = figure(
        (0.0, 1 / 8, 2 / 5, 1.0),
        "machine code",
        "predicted as long as block_filter for 264 columns of 8192 and k = 32, and 512 and 64; 82 us and 89 "
        "for 1024 and 100",
    )

    #: Columns that are at most as many as blocks run at once are searched by digits if they are longer than
    #: this, too short to be shared, and take at most this many bytes.
    radix_columns_min_length: int = figure(
        2048,
        "machine code",
        "predicted 10.3 us, 13.4 by filtering, for 64 columns of 4096 float32 and k = 3; 9.5 and 9.9 of 2048",
    )
    radix_columns_max_bytes: int = figure(
        5 << 19,
        "machine code",
        "predicted 11.4 us, 13.9 by filtering, for 132 columns of 4096 float32 and k = 3; 14.9 and 14.2 of "
        "5500",
    )

    #: By a block each up to this length, for k up to `filter_max_shared_k`. Longer ones are shared if they
    #: are at most this part of the blocks that run at once.
    radix_columns_max_length: int = figure(
        3 << 12,
        "machine code",
        "predicted us by a block and by several: 15.3 and 12.7 for 6 columns of 12000 float32 and k = 60, "
        "13.0 and 14.2 of 6000; 28.9 and 32.3 of 12000 and k = 1000, 46.4 and 36.3 of 30000",
    )
    grid_columns_max_part: float = figure(
        1 / 4,
        "machine code",
        "predicted us shared and filtered: 14.8 and 15.1 for 16 columns of 30000 int8 and k = 4, 31.4 and "
        "14.6 for 50",
    )

    #: Rows are looked at by groups where they are at most as many as blocks run at once, and take at most
    #: this part of the L2 cache.
    groups_max_part: float = figure(
        3 / 4,
        "machine code",
        "predicted us by groups and by filtering: 18.0 and 20.0 for 64 x 102401 float32 and k = 8, 22.8 and "
        "20.8 for 100 x 80000, 26.8 and 24.2 for 64 x 200000; 33 and 30 for 10 x 1000000 and 256",
    )

    #: Rows are at least this many times as long as k.
    groups_min_length_per_result: int = figure(
        4,
        "machine code",
        "predicted 18 us, 26 by block_radix, for 16 x 8192 float32 and k = 2048; of 4096 elements 46 and 23",
    )

    #: Unless it is one row longer than this, or than this part of it if k is more than `filter_max_shared_k`,
    #: or that many times as long for at most 64 results.
    groups_max_lone_row: int = figure(
        1 << 18, "machine code", "predicted 11.3 us, 12.3 by grid_radix, for 262144 float32 and k = 100"
    )
    groups_lone_part: float = figure(
        1 / 2, "machine code", "predicted 26.6 us, 21.7 by grid_radix, for 262144 float32 and k = 2048"
    )

    groups_lone_few: int = figure(
        4,
        "machine code",
        "predicted us by groups and grid_radix: 9.7 and 12.8 for 300000 float32 and k = 50, 10.9 and 14.5 "
        "for 900000 and 28, 17.4 and 16.8 for 2000000 and 50",
    )

    #: Or bytes, if k times the length is more than this for a k above 128: many tie with the k-th.
    groups_max_ties: int = figure(
        1 << 22,
        "machine code",
        "predicted us by groups and the best other path: 11.4 and 12.1 for 4 x 12000 int8 and k = 200, 28.2 "
        "and 13.0 for 800, 19.2 and 13.4 for 4 x 50000 and 200, 33.6 and 17.4 for 4 x 200000 and 800",
    )
    #: Several blocks share a row if there are rows for at most this part of the blocks that run at once,
    grid_max_part: float = figure(1 / 2, "estimate", "otherwise a block per row leaves less than half idle")

    #: and rows are at least this long.
    grid_min_row_length: int = figure(1 << 15, "estimate", "shorter rows take less time than the barriers")

    #: Rows are read twice instead of filtered if they take at most this part of the L2 cache,
    cached_max_part: float = figure(1 / 2, "estimate", "the second pass finds them there")

    #: and there are at most this many.
    cached_max_rows: int = figure(8, "machine code", "for 8 rows of 248320 float16 both take equally long")

    #: Blocks that share a row filter it if k is at most the first number, if they keep at most the second
    #: number of elements, which the last blocks merge, or if rows take more than this part of the cache.
    filter_max_shared_k: int = figure(512, "estimate", "the merge of a very long row takes less than a read")
    filter_max_merged: int = figure(
        1 << 16,
        "machine code",
        "predicted 33 us, 22 by radix, for 262144 float32 and k = 2048: 128 blocks keep 2048 elements each",
    )
    radix_max_part: float = figure(
        2.0, "machine code", "predicted 67 us, 80 by filtering, for 4 x 4194304 float32 and k = 1000"
    )


THRESHOLDS = Thresholds()


PATHS = by_name(
    Path("serial_arg_max", "a k of 1 on a CPU", can_serial_arg_max, serial_arg_max),
    Path("serial", "any rows on a CPU", can_serial, serial),
    Path(
        "thread_list",
        "a small k of rows of few elements, or of many side by side",
        can_thread_list,
        thread_list,
    ),
    Path("arg_max", "a k of 1", can_arg_max, arg_max),
    Path("columns", "a small k of rows side by side in memory, or many", can_filter_columns, filter_columns),
    Path("warp_select", "a small k of short rows", can_warp_select, warp_select),
    Path("warp_sort", "short rows", can_warp_sort, warp_sort),
    Path("block_sort", "k up to 1024 of narrow rows of some thousand elements", can_block_sort, block_sort),
    Path("groups", "fewer results than groups of neighbours in a long row", can_group, groups),
    Path("cluster", "more results of few rows that fit a cluster", can_cluster, cluster),
    Path("block_filter", "k up to some thousands of long rows, read once", can_filter, block_filter),
    Path("block_radix", "any rows, a block each", can_take_blocks, block_radix),
    Path("grid_radix", "fewer long rows than multiprocessors", can_share_rows, grid_radix),
)


def choose_path(selection: Selection, limits: Limits) -> Choice[Selection]:
    """The path that is estimated to be the fastest, and why."""
    t, length = THRESHOLDS, selection.row_length
    if limits.warp_lanes != WARP_LANES:
        path = "serial_arg_max" if selection.k == 1 else "serial"
        return Choice(PATHS[path], "blocks of one thread")
    if _fits_threads(selection, limits) and can_thread_list(selection, limits):
        return Choice(PATHS["thread_list"], f"{selection.num_rows} rows of {length} elements, a thread each")
    if (why := _why_threads(selection, limits)) is not None:
        return Choice(PATHS["thread_list"], why)
    if can_arg_max(selection, limits) and arg_max_pays(selection, limits):
        return Choice(PATHS["arg_max"], f"the first of {length} elements")
    if can_warp_select(selection, limits) and _select_pays(selection, limits):
        return Choice(PATHS["warp_select"], f"rows of {length} elements by groups of lanes")
    if can_warp_sort(selection, limits):
        return _choose_short(selection, limits)
    part = _part_of_groups(selection, limits)
    if can_block_sort(selection, limits) and block_sort_pays(selection, limits, part):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    if can_filter_columns(selection, limits) and (
        _are_large_columns(selection, limits) or _columns_pay_for_long(selection, limits)
    ):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if cluster_pays(selection, limits) and can_cluster(selection, limits):
        return Choice(PATHS["cluster"], f"{selection.num_rows} rows for a cluster each")
    if _groups_pay(selection, limits) and can_group(selection, limits):
        return Choice(PATHS["groups"], f"{selection.num_rows} rows for {limits.resident_blocks} blocks")
    if can_block_sort(selection, limits) and block_sort_pays(selection, limits, 0):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    if (by_digits := _path_of_few_columns(selection, limits)) is not None:
        return Choice(PATHS[by_digits], f"{selection.num_rows} columns of {length} elements")
    leaves_idle = selection.num_rows <= t.grid_max_part * limits.resident_blocks
    is_shared = leaves_idle and length >= t.grid_min_row_length
    why_shared = (
        f"{selection.num_rows} rows for {limits.resident_blocks} blocks, of {length} elements, "
        f"{t.grid_min_row_length} or more"
    )
    if can_filter(selection, limits):
        # Reading twice costs little if the second pass finds the rows in the cache.
        is_cached = selection.num_bytes <= t.cached_max_part * limits.l2_bytes
        parts = num_parts(selection, limits)
        merged = parts * kept_at_most(selection)
        is_read_again = selection.k > t.filter_max_shared_k and merged > t.filter_max_merged
        is_dear = filters_dearly(selection, parts)
        is_near = selection.num_bytes <= t.radix_max_part * limits.l2_bytes
        if is_shared and (is_read_again or is_dear) and is_near:
            return Choice(PATHS["grid_radix"], why_shared)
        most_rows = t.cached_max_rows * (1 if selection.k <= t.filter_max_shared_k else 2)
        if is_shared and is_cached and selection.num_rows <= most_rows:
            return Choice(PATHS["grid_radix"], f"{why_shared}, in the cache")
        if is_dear:
            return Choice(PATHS["block_radix"], f"{selection.k} results of {length} elements, dear to list")
        return Choice(PATHS["block_filter"], f"rows of {length} elements, too long for a warp")
    if is_shared:
        return Choice(PATHS["grid_radix"], why_shared)
    return Choice(PATHS["block_radix"], "nothing else pays")


def _path_of_few_columns(selection: Selection, limits: Limits) -> str | None:
    """The search by digits that takes the least time for columns that are few and of some thousand words."""
    t, length = THRESHOLDS, selection.row_length
    is_small = selection.num_bytes <= t.radix_columns_max_bytes
    are_fewer = selection.num_rows <= limits.resident_blocks and is_small
    is_wide = selection.element.size > _COLUMNS_WORD_BYTES
    is_long = t.radix_columns_min_length < length < t.grid_min_row_length
    if not (are_fewer and is_long and are_columns(selection)) or is_wide:
        return None
    # Sorting more results takes several blocks as long as a row that is twice as long.
    longest = t.radix_columns_max_length * (1 if selection.k <= t.filter_max_shared_k else 2)
    if length < longest:
        return "block_radix"
    if selection.num_rows <= t.grid_columns_max_part * limits.resident_blocks:
        return "grid_radix"
    return None if selection.k <= t.filter_max_shared_k else "block_radix"


def _choose_short(selection: Selection, limits: Limits) -> Choice[Selection]:
    """The path of rows that fit a warp, and have too many results for its lanes."""
    length = selection.row_length
    if _columns_pay_for_short(selection, limits) and can_filter_columns(selection, limits):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if filter_pays_for_short(selection, limits) and can_filter(selection, limits):
        # Predicted us by digits and filtered: 6.6 and 7.5 for 10 columns of 70 int64 and k = 2, 7.8 and 7.6
        # for k = 12; 8.0 and 9.0 for 130 ragged rows of 200 and 8. Lanes take 8.5, 13.9 and 12.7.
        by_digits = selection.k <= THRESHOLDS.select_max_few_k and _is_slow_for_lanes(selection)
        path = PATHS["block_radix" if by_digits else "block_filter"]
        return Choice(path, f"rows of {length} elements, too wide for a warp")
    if is_few(selection, limits) and can_block_sort(selection, limits) and sorts_short(selection):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    return Choice(PATHS["warp_sort"], f"rows of {length} elements in registers")


def _select_pays(selection: Selection, limits: Limits) -> bool:
    """Whether groups of lanes take no longer than a warp that sorts, or than columns of many rows."""
    t, length, k = THRESHOLDS, selection.row_length, selection.k
    is_shortest, is_wide = length <= t.select_max_any_k, selection.element.size > _COLUMNS_WORD_BYTES
    are_many = _part_of_groups(selection, limits) >= t.columns_min_part
    is_narrow, lie_apart = selection.element.size < _COLUMNS_WORD_BYTES, are_columns(selection)
    if length > SORT_MAX_ROW_LENGTH and are_many and lie_apart:
        return False
    if length > t.select_max_few_length:
        first, last = t.columns_part_of_words
        is_word = selection.element.size == _COLUMNS_WORD_BYTES
        is_one_wave = is_word and first <= _part_of_groups(selection, limits) <= last
        return selection.num_rows > limits.resident_blocks and not is_one_wave
    if length > SORT_MAX_ROW_LENGTH:
        is_less = selection.num_rows <= limits.resident_blocks
        # Of bytes, and of elements that lanes gather, units are wide, and their candidates many.
        is_dear = is_narrow if lie_apart else selection.element.size == 1 and is_less
        return not (is_dear and block_sort_pays(selection, limits, _part_of_groups(selection, limits)))
    is_quick_for_blocks = selection.num_rows <= limits.resident_blocks and _is_slow_for_lanes(selection)
    if is_quick_for_blocks and filter_pays_for_short(selection, limits):
        return False
    # Lanes without elements see nothing but ties.
    if k > t.select_max_few_k and selection.lengths is not None and _is_slow_for_lanes(selection):
        return False
    takes_long = is_shortest or not is_wide
    if not are_many and selection.lengths is not None and takes_long:
        return False
    is_alone = is_few(selection, limits) and not are_vectors(selection)
    if is_shortest and (is_alone or filter_pays_for_short(selection, limits)):
        return False
    # Predicted us by a warp for each and by lanes: 5.7 and 6.5 for 256 columns of 64 float32, 6.2 and 6.9 for
    # 300 of 100, 7.5 and 14.1 for 300 of 800 float16.
    longest = t.select_max_any_k if is_wide else t.columns_max_short_length
    if not are_many and lie_apart and (is_narrow or length <= longest):
        return False
    if k <= t.select_max_few_k:
        return True
    if are_many and k > t.select_max_k:
        is_word = selection.element.size == _COLUMNS_WORD_BYTES
        return is_word or (not is_wide and (is_shortest or length > t.columns_max_short_length))
    if not is_shortest and length <= t.select_min_columns_length and lie_apart:
        return False
    if not are_many:
        return k <= t.select_max_k and length >= t.select_min_few_length
    return is_shortest or not is_wide or length >= t.select_min_wide_length


def _is_slow_for_lanes(selection: Selection) -> bool:
    """Whether wide rows are columns or ragged, and not of the shortest."""
    is_wide = selection.element.size > _COLUMNS_WORD_BYTES
    is_long = selection.row_length > THRESHOLDS.select_max_any_k
    return is_wide and is_long and (are_columns(selection) or selection.lengths is not None)


def _columns_pay_for_short(selection: Selection, limits: Limits) -> bool:
    """Whether rows that fit a warp take no longer together."""
    t = THRESHOLDS
    are_many = _part_of_groups(selection, limits) >= t.columns_min_part
    longest = t.columns_max_short_length
    if selection.lengths is not None and _is_slow_for_lanes(selection):
        # Predicted us by columns, by a warp each, and by lanes: 37.0, 56.6 and 70.0 for 12000 ragged rows of
        # 200 int64 and k = 12, 65.1, 79.3 and 84.3 of 900; 73.2 and 83.0 of 500 and k = 25, 98.3 and 85.0 of
        # 900.
        longest = SORT_MAX_ROW_LENGTH // (1 if selection.k <= COLUMNS_MAX_KS[0] else 2)
    is_short = selection.row_length <= longest
    part = _part_of_groups(selection, limits)
    fills = part > t.columns_min_filled * t.columns_max_part * ceil(part / t.columns_max_part)
    is_paid = selection.k <= COLUMNS_MAX_KS[0] or fills
    return are_many and is_short and is_paid and selection.k <= t.columns_max_k


def _groups_pay(selection: Selection, limits: Limits) -> bool:
    """Whether long rows are few, and what is looked at again is found in the cache."""
    t = THRESHOLDS
    # As a part of the longest, for k up to 64, to `filter_max_shared_k`, and more.
    part = (t.groups_lone_few, 1, t.groups_lone_part)[
        bisect_left((COLUMNS_MAX_KS[2], t.filter_max_shared_k), selection.k)
    ]
    is_too_long = selection.num_rows == 1 and selection.row_length > part * t.groups_max_lone_row
    are_fewer = selection.num_rows <= limits.resident_blocks
    is_long = selection.row_length >= t.groups_min_length_per_result * selection.k
    is_near = selection.num_bytes <= t.groups_max_part * limits.l2_bytes
    may_tie = selection.element.size == 1 and selection.k > COLUMNS_MAX_KS[-1]
    ties = may_tie and selection.k * selection.row_length > t.groups_max_ties
    return are_fewer and is_long and not is_too_long and is_near and not ties


def _columns_pay_for_long(selection: Selection, limits: Limits) -> bool:
    """Whether rows that fit no warp take no longer together than each by a block."""
    t, instance = THRESHOLDS, bisect_left(COLUMNS_MAX_KS, selection.k)
    part = _part_of_groups(selection, limits)
    longest = t.columns_max_length_per_part[instance] * min(part, t.columns_max_part)
    is_narrow = selection.element.size <= _COLUMNS_WORD_BYTES
    return is_narrow and part >= t.columns_min_part_of_long[instance] and selection.row_length <= longest


def _part_of_groups(selection: Selection, limits: Limits) -> float:
    """Groups of rows that are filtered together, as a part of the number of multiprocessors."""
    return -(-selection.num_rows // COLUMNS) / limits.num_multiprocessors


def _are_large_columns(selection: Selection, limits: Limits) -> bool:
    """Whether rows are columns of a matrix that is wide, and takes longer to read than to begin."""
    # Many blocks filter a single group, and their results merge slowly: predicted us by columns and by
    # block_filter 52.7 and 38.8 for 16 columns of 200000 float32 and k = 10, 24.6 and 36.1 for k = 2, of int8
    # 24.5 and 15.0.
    is_quick = selection.k <= THREAD_LIST_SIZE and selection.element.size > 1
    is_large = (
        selection.num_rows >= COLUMNS * (1 if is_quick else 2)
        and selection.num_bytes >= THRESHOLDS.columns_min_bytes
    )
    least = THRESHOLDS.columns_min_part_of_columns[bisect_left(COLUMNS_MAX_KS, selection.k)]
    return is_large and are_columns(selection) and _part_of_groups(selection, limits) >= least


def _fits_threads(selection: Selection, limits: Limits) -> bool:
    """Whether rows are so short that a thread takes no longer for one than a group of lanes."""
    if selection.k == 1 and are_columns(selection):
        least, more, most = THRESHOLDS.threads_first_of_columns
    else:
        by_size = THRESHOLDS.threads_row_lengths[0 if selection.k == 1 else 1]
        least, more, most = by_size[selection.element.size.bit_length() - 1]
    return selection.row_length <= min(most, least + more * selection.num_rows // limits.resident_threads)


def _why_threads(selection: Selection, limits: Limits) -> str | None:
    """Why one thread per row pays: rows are neighbours in memory, and fill the device."""
    if selection.k > THREAD_LIST_SIZE:
        return None
    part, (short_part, short) = THRESHOLDS.threads_min_part, THRESHOLDS.threads_short_part
    if selection.k > 1 and (selection.row_length <= short or selection.element.size == 8):
        part = short_part
    least = int(part * limits.resident_threads)
    if not are_columns(selection) or selection.num_rows < least:
        return None
    return f"{selection.num_rows} rows side by side, {least} or more"
