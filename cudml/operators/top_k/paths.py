"""How a top-k is computed: the paths through the kernels, and which is fastest.

Every path gives the same bits, because every kernel orders by key and then by index.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf, log2

from cudml.operators.path import Choice, Path, by_name, figure
from cudml.operators.top_k import radix
from cudml.operators.top_k.arg_max import arg_max, arg_max_pays, can_arg_max
from cudml.operators.top_k.block_sort import block_sort, block_sort_pays, can_block_sort, sorts_short
from cudml.operators.top_k.cluster import can_cluster, cluster, cluster_pays
from cudml.operators.top_k.columns import COLUMNS, COLUMNS_MAX_KS, can_filter_columns, filter_columns
from cudml.operators.top_k.filter import (
    block_filter,
    can_filter,
    filter_pays_for_short,
    filters_dearly,
)
from cudml.operators.top_k.groups import can_group, groups
from cudml.operators.top_k.keep import can_keep, keep, keep_pays
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

    #: One thread per row pays if there are rows for this part of the threads that the device holds: for the
    #: first of columns,
    threads_first_min_part: float = figure(
        1 / 4,
        "machine code",
        "predicted us by threads and otherwise for k = 1: 8.8, 10.4 for 67584 columns of 64 float32, 182, "
        "203 for 100000 of 1000 int64, 8.0, 7.4 for 33792 of 64 float32",
    )

    #: and for more results of rows up to this length, and of longer ones, of elements of 1 or 2, 4 and 8
    #: bytes. Fewer ragged rows are enough, by the factor after: lanes wait for the longest.
    threads_short_length: int = figure(
        128,
        "machine code",
        "predicted us by threads and by lanes: 12.6 and 16.0 for 30000 x 150 float32 and k = 2, 17.5 and "
        "12.6 for 20000 x 250",
    )
    threads_min_part: tuple[tuple[float, float], ...] = figure(
        ((1 / 16, 1 / 4), (1 / 16, 1 / 8), (1 / 32, 1 / 16)),
        "machine code",
        "predicted us by threads and by lanes for k = 2: 10.0 and 10.3 for 20000 x 100 float32, 22.3 and "
        "25.3 for 60000 x 250; 11.6 and 17.9 for 16000 columns of 100 int64, 42.0 and 51.5 of 600; 25.8 and "
        "26.4 for 70000 x 250 int8",
    )
    threads_ragged_part: float = figure(
        1 / 2,
        "machine code",
        "predicted us by threads and by lanes for k = 2: 8.4 and 12.5 for 30000 ragged rows of 50 float32, "
        "8.2 both for 10000 columns; 15.4 and 25.3 for 50000 of 200 int8, 15.2 and 14.3 for 20000 columns",
    )

    #: So it does for rows of few elements, wherever they lie. Longest rows: of any number of rows, how many
    #: more elements if there is a row for each thread that the device holds, and the most; for k = 1 and
    #: more, of elements of 1, 2, 4 and 8 bytes.
    threads_row_lengths: tuple[tuple[tuple[int, int, int], ...], ...] = figure(
        (
            ((16, 365, 100), (12, 280, 100), (8, 180, 60), (6, 300, 100)),
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
        (2, 105, 64),
        "machine code",
        "predicted us by threads and by lanes for k = 1: 5.8, 5.7 for 33792 columns of 16 float32, 6.3, 5.8 "
        "for 20000 of 10 float64; 6.5, 8.1 for 60000 of 24 float32",
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

    #: Lanes without elements see nothing but ties, so more ragged rows are filtered together, for any k:
    #: where their groups are at least these parts, of elements of 8 bytes the second,
    columns_min_ragged_part: tuple[float, float] = figure(
        (1 / 2, 1 / 12),
        "machine code",
        "predicted us by columns, by a warp each, and by lanes: 7.4, 8.9 and 12.2 for 1200 ragged rows of "
        "100 float32 and k = 12, 7.5, 8.0 and 12.2 for 500; 9.1, 12.3 and 24.5 for 400 of int64",
    )

    #: and of these lengths for k up to 16 and 32, narrow ones of half of them.
    columns_max_ragged_length: tuple[int, int] = figure(
        (1024, 768),
        "machine code",
        "predicted us by columns, by a warp each, and by lanes: 65.1, 79.3 and 84.3 for 12000 ragged rows of "
        "900 int64 and k = 12; 43.6 and 52.7 for 5000 of 700 and k = 25, 98.3 and 85.0 for 12000 of 900; "
        "28.5, 33.1 and 35.6 for 20000 of 250 float16 and 12, 46.0, 45.2 and 49.2 of 700",
    )

    #: Rows that fit no warp are where their groups are at least this part, for k up to 16, 32, 64 and 128,
    columns_min_part_of_long: tuple[float, ...] = figure(
        (1 / 4, 2 / 5, 2 / 5, 1.0),
        "machine code",
        "predicted 11 us, 22 by block_filter, for 1024 x 1025 and k = 8, 22 and 29 for 64, 37.6 and 38.6 for "
        "128; of 264 rows 11 and 9 for 8, of 528 22 and 17 for 64",
    )
    #: and at most of these lengths if their groups are as many as multiprocessors. More groups take longer
    #: rows, up to the second number times as many.
    columns_max_length_per_part: tuple[int, ...] = figure(
        (1 << 32, 1 << 15, 1 << 12, 3 << 9),
        "machine code",
        "predicted 38 us, 47 by block_filter, for 1024 x 16384 and k = 32; 41 and 53 for 2112 x 4096 and 64, "
        "38 and 30 of 1024 rows; 36 and 54 for 2112 x 1025 and 65, 70 and 53 of 4096",
    )
    columns_max_part: float = figure(2.0, "machine code", "two blocks run at once on a multiprocessor")

    #: The longest rows of 8-byte elements.
    columns_max_wide_length: int = figure(
        1 << 12,
        "machine code",
        "predicted us by columns and by block_filter: 15.5 and 29.1 for 1400 x 1100 int64 and k = 4, 35.7 "
        "and 30.6 of 3000; 15.9 and 17.4 for 600 x 1100 and 12, 64.8 and 106 for 4500 x 3000 float64",
    )

    #: And columns of at least this many bytes. Columns for each multiprocessor, for k up to
    #: `THREAD_LIST_SIZE` and as above; the factor for 8-byte elements. Bytes tie often: for a k that threads
    #: keep, they are not filtered together.
    columns_min_bytes: int = figure(
        (5 << 19) + 1,
        "machine code",
        "predicted 15.5 us, 12.0 by block_filter, for 264 columns of 2048; of 512 columns 15.5 and 18.6; "
        "14.6 and 16.3 for 64 of 10241 and k = 3",
    )
    columns_min_rows: tuple[float, ...] = figure(
        (1 / 8, 2 / 11, 3 / 4, 1.0, 4.0),
        "machine code",
        "predicted us by columns and by block_filter: 17.4 and 18.0 for 20 of 40000 float32 and k = 4, 23.9 "
        "and 19.2 for 12, 35.6 and 48.9 for 26 of 193275 float16 and 7; 39.5 and 72.8 for 140 of 50000 and "
        "28, 46.0 and 35.1 for 64; 70.7 and 106 for 270 and 60, 75.3 and 73.6 for 140; 79.1 and 85.1 for "
        "800 of 8000 and 100; 30.0 and 14.8 for 64 of 240000 int8 and 4",
    )
    columns_wide_times: int = figure(
        3,
        "machine code",
        "predicted us by columns and by block_filter: 23.8 and 26.5 for 64 of 30000 int64 and k = 4, 33.6 "
        "and 27.7 for 12, 46.7 and 52.5 of 140",
    )

    #: Columns that are at most as many as blocks run at once are searched by digits. A small k, at most; the
    #: lengths that they exceed, for a small k and a larger one; the most elements of all columns together,
    #: twice as many of ragged ones.
    radix_columns_few_k: int = figure(
        2,
        "machine code",
        "predicted us by digits and by lanes: 7.5 and 7.9 for 40 columns of 900 float32 and k = 2; 7.9 and "
        "7.2 for 64 of 513 and 3",
    )
    radix_columns_min_length: tuple[int, int] = figure(
        (512, 2048),
        "machine code",
        "predicted us by digits and otherwise: 7.0 and 8.0 for 4 columns of 900 float32 and k = 2, 7.1 and "
        "6.9 of 300; 9.5 and 8.2 for 64 columns of 2048 and 3, 10.3 and 13.4 of 4096",
    )
    radix_columns_max_elements: int = figure(
        5 << 17,
        "machine code",
        "predicted us by digits and by filtering: 11.4 and 13.9 for 132 columns of 4096 float32 and k = 3, "
        "14.9 and 14.2 of 5500; 16.2 and 18.0 for 10 columns of 50000 int64 and 20, 25.0 and 22.2 for 20",
    )

    #: Rows are looked at by groups where they are at most as many as blocks run at once, and all, and each,
    #: take at most this part of the L2 cache, for k up to 16, 64, 512 and more.
    groups_max_part: tuple[tuple[float, float], ...] = figure(
        ((1 / 2, 1 / 12), (3 / 4, 1 / 12), (3 / 4, 1 / 32), (1.0, 1 / 96)),
        "machine code",
        "predicted us by groups and the best other path: 18.5 and 19.2 for 100 x 60000 float32 and k = 10, "
        "30.2 and 26.4 of 120000, 32.0 and 32.6 for 300, 36.2 and 43.3 for 1000; 12.4 and 16.4 for 2 x "
        "1000000 and 10, 18.1 and 17.1 for 100, 33.1 and 22.3 for 1000; 19.9 and 17.8 for 1000000 float64 "
        "and 6, 19.0 and 16.8 for 260000 and 300",
    )

    #: Rows are at least this many times as long as k, of elements narrower than a word the second.
    groups_min_length_per_result: tuple[int, int] = figure(
        (4, 12),
        "machine code",
        "predicted us by groups and the best other path: 18 and 26 for 16 x 8192 float32 and k = 2048, 46 "
        "and 23 of 4096; 18.7 and 10.9 for 130 x 5000 float16 and 600, 12.3 and 12.9 of 8000",
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

    #: and a row has this many elements, and the second number for each result, if the blocks count the
    #: elements before each of a list,
    grid_counted_min_length: tuple[int, int] = figure(
        (1 << 13, 10),
        "machine code",
        "predicted us shared and by a block each: 12.8 and 13.7 for 10 columns of 8192 float32 and k = 20, "
        "21.9 and 18.3 for 450, 17.8 and 26.9 of 25000",
    )

    #: else if it has this many, and each pass of a sort reads the results again. Both are divided by the part
    #: of the blocks that would be idle.
    grid_min_length: int = figure(
        13 << 11,
        "machine code",
        "predicted us shared and by a block each, whole rows: 37.0 and 44.3 for 27 x 6000 float32, 43.5 and "
        "44.3 of 45, 61.9 and 56.9 for 66 x 8192; 75.6 and 123 for 27 x 8192 int64; 26.7 and 25.6 for 27 x "
        "8192 int8",
    )

    #: Blocks that share a row and count read it twice instead of filtering it if rows are at most as many as
    #: the first number, and take at most this part of the L2 cache,
    cached_max: tuple[int, float] = figure(
        (8, 1 / 6),
        "estimate",
        "the second pass finds them there; for 8 x 248320 float16 both take equally long",
    )

    #: and for a larger k than this, whose lists merge slowly, either of the two bounds that follow.
    filter_max_shared_k: int = figure(
        256,
        "machine code",
        "predicted us shared and filtered: 13.9 and 25.9 for 2 columns of 93043 int64 and k = 389, 12.9 and "
        "11.8 for 2 x 25733 and 7",
    )
    counted_max: tuple[int, float] = figure(
        (16, 1 / 4),
        "machine code",
        "predicted us shared and filtered: 18.7 and 22.7 for 9 x 110648 float16 and k = 508, 20.0 and 23.5 "
        "for 6 x 260000 int64 and 300, 36.8 and 26.5 for 6 x 1000000 float32",
    )
    counted_few_max: tuple[int, float] = figure(
        (4, 2.0),
        "machine code",
        "predicted us shared and filtered: 67 and 80 for 4 x 4194304 float32 and k = 1000, 35.8 and 42.6 for "
        "2 x 3711198 int32 and 457",
    )

    #: Blocks that sort read rows again from this k on, half of it for ragged rows, of at most
    #: `sorted_max_elements` together.
    sorted_min_k: int = figure(
        2049,
        "machine code",
        "predicted us shared and filtered: 72.9 and 120 for 6 columns of 1008607 float16 and k = 2235, 55.8 "
        "and 32.7 for 6 x 723083 int32 and 1347; 37.2 and 74.1 for 9 ragged columns of 266394 uint16 and "
        "1780",
    )
    #: The fewest elements together of 8-byte integers: floats share first digits, so a filter of them cuts
    #: more lists.
    sorted_min_wide_integers: int = figure(
        1 << 20,
        "machine code",
        "predicted us shared and filtered: 54 and 44 for 27 x 8192 int64 and k = 3000, 39 and 66 of float64; "
        "60 and 48 for 6 x 62074 int64 and 3683, 113 and 170 for 2 columns of 2093319 and 3515",
    )
    sorted_max_elements: int = figure(
        7 << 20,
        "machine code",
        "predicted us shared and filtered: 109 and 166 for 2 x 3191593 float64 and k = 2324, 125 "
        "and 56 for 10 x 817581 and 2182, 213 and 68 for 46 x 581831 int8 and 2682",
    )

    #: Rows whose floor a sample guesses are at most these parts of the blocks that run at once, for k up to
    #: each of the first numbers and for more, of elements of 1, 2, 4 and 8 bytes.
    guess_ks: tuple[int, ...] = figure((64, 512, 2048), "machine code", "of the next number")
    guess_max_part: tuple[tuple[float, float, float, float], ...] = figure(
        (
            (0, 0, 0, 0),
            (1 / 64, 1 / 64, 1 / 32, 1 / 32),
            (1 / 32, 1 / 32, 1 / 32, 1 / 64),
            (1 / 8, 1 / 8, 1 / 8, 1 / 16),
        ),
        "machine code",
        "predicted us with a guess and by the best other path: 27 and 52 for 8650752 float32 and k = 300, 42 "
        "and 266 for 4000; 28.4 and 38.8 for 4 x 2162688 and 300, 33 and 29 for 8 x 1048576; 41.9 and 84.6 "
        "for 4 x 2162688 and 1500; 54 and 58 for 16 x 524288 and 4000; of int64 56 and 52 for 4 x 1081344 "
        "and 1500; 68 and 72 for 8 x 524288 and 4000, 75 and 70 for 16 x 262144",
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
    Path("block_keep", "many results of rows that fit the shared storage of a block", can_keep, keep),
    Path("block_filter", "k up to some thousands of long rows, read once", can_filter, block_filter),
    Path("block_radix", "any rows, a block each", can_take_blocks, block_radix),
    Path("grid_radix", "fewer long rows than multiprocessors", can_share_rows, grid_radix),
)


def choose_path(selection: Selection, limits: Limits) -> Choice[Selection]:
    """The path that is estimated to be the fastest, and why."""
    length = selection.row_length
    if limits.warp_lanes != WARP_LANES:
        path = "serial_arg_max" if selection.k == 1 else "serial"
        return Choice(PATHS[path], "blocks of one thread")
    if can_thread_list(selection, limits) and _threads_pay(selection, limits):
        return Choice(PATHS["thread_list"], f"{selection.num_rows} rows of {length} elements, a thread each")
    if can_arg_max(selection, limits) and arg_max_pays(selection, limits):
        return Choice(PATHS["arg_max"], f"the first of {length} elements")
    if selection.k <= THRESHOLDS.radix_columns_few_k and _are_few_columns(selection, limits):
        return _by_digits(selection, limits)
    if can_warp_select(selection, limits) and _select_pays(selection, limits):
        return Choice(PATHS["warp_select"], f"rows of {length} elements by groups of lanes")
    may_cluster = cluster_pays(selection, limits) and can_cluster(selection, limits)
    if can_keep(selection, limits) and keep_pays(selection, limits, may_cluster=may_cluster):
        return Choice(PATHS["block_keep"], f"rows of {length} elements, kept by a block each")
    if can_warp_sort(selection, limits):
        return _choose_short(selection, limits)
    part = _part_of_groups(selection, limits)
    if can_block_sort(selection, limits) and block_sort_pays(selection, limits, part):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    if can_filter_columns(selection, limits) and (
        _are_large_columns(selection, limits) or _columns_pay_for_long(selection, limits)
    ):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if may_cluster:
        return Choice(PATHS["cluster"], f"{selection.num_rows} rows for a cluster each")
    if can_share_rows(selection, limits) and _guess_pays(selection, limits):
        return Choice(PATHS["grid_radix"], f"{selection.num_rows} rows of {length} elements, read once")
    if _groups_pay(selection, limits) and can_group(selection, limits):
        return Choice(PATHS["groups"], f"{selection.num_rows} rows for {limits.resident_blocks} blocks")
    if can_block_sort(selection, limits) and block_sort_pays(selection, limits, 0):
        return Choice(PATHS["block_sort"], f"rows of {length} elements by the warps of a block")
    if cluster_pays(selection, limits, is_last=True) and can_cluster(selection, limits):
        return Choice(PATHS["cluster"], f"{selection.num_rows} rows for a cluster each")
    reads_again = _shares_rows(selection, limits) and _reads_again(selection, limits)
    is_dear = reads_again or filters_dearly(selection, limits) or _are_few_columns(selection, limits)
    if can_filter(selection, limits) and not is_dear:
        return Choice(PATHS["block_filter"], f"rows of {length} elements, too long for a warp")
    return _by_digits(selection, limits)


def _by_digits(selection: Selection, limits: Limits) -> Choice[Selection]:
    """A search by digits, by several blocks for each row or by one."""
    path = "grid_radix" if _shares_rows(selection, limits) else "block_radix"
    why = f"{selection.num_rows} rows of {selection.row_length} elements for {limits.resident_blocks} blocks"
    return Choice(PATHS[path], why)


def _mean_length(selection: Selection) -> int:
    """The elements of a row; of ragged ones, if each length is as likely."""
    return selection.row_length // (1 if selection.lengths is None else 2)


def _guess_pays(selection: Selection, limits: Limits) -> bool:
    """Whether a search by digits whose floor a sample guesses takes few rows less time than a filter."""
    t = THRESHOLDS
    most_rows = t.guess_max_part[bisect_left(t.guess_ks, selection.k)][
        selection.element.size.bit_length() - 1
    ]
    are_few = selection.num_rows <= most_rows * limits.resident_blocks
    return are_few and radix.guesses(selection, limits)


def _reads_again(selection: Selection, limits: Limits) -> bool:
    """Whether blocks that share a row search it by digits sooner than they filter it and merge lists."""
    t, k = THRESHOLDS, selection.k
    num_elements = selection.num_rows * _mean_length(selection)
    if not radix.counts_pairs(selection, limits):
        # A filter has no sample of ragged rows.
        least_k = t.sorted_min_k // (1 if selection.lengths is None else 2)
        is_wide_integer = selection.element.size == 8 and selection.element.kind != "f"
        least = t.sorted_min_wide_integers if is_wide_integer else 0
        # Few blocks take long for the sort: predicted us shared and filtered 62 and 49 for 32 x 131072
        # float32 and k = 3000, 41.8 and 65.9 for 24 x 65536 and 4000.
        are_many = 8 * selection.num_rows > limits.resident_blocks
        most = t.sorted_max_elements // (2 if are_many else 1)
        return k >= least_k and least <= num_elements <= most
    l2_part = num_elements * selection.element.size / limits.l2_bytes
    bounds = (t.cached_max,) if k <= t.filter_max_shared_k else (t.counted_max, t.counted_few_max)
    return any(selection.num_rows <= most_rows and l2_part <= most_part for most_rows, most_part in bounds)


def _shares_rows(selection: Selection, limits: Limits) -> bool:
    """Whether a search by digits takes several blocks for each row less time than one."""
    t, k = THRESHOLDS, selection.k
    if not can_share_rows(selection, limits):
        return False
    part = selection.num_rows / limits.resident_blocks
    if part > t.grid_max_part:
        return False
    least, per_result = t.grid_counted_min_length
    if radix.counts_pairs(selection, limits):
        return (selection.row_length - per_result * k) * (1 - part) >= least
    passes = ceil(selection.element.bits / log2(radix.SORT_BINS))
    return (selection.row_length + passes * k) * (1 - part) >= t.grid_min_length


def _are_few_columns(selection: Selection, limits: Limits) -> bool:
    """Whether columns are so few and short that a search by digits takes less time than a filter."""
    t, num_elements = THRESHOLDS, selection.num_rows * _mean_length(selection)
    are_fewer = selection.num_rows <= limits.resident_blocks and num_elements <= t.radix_columns_max_elements
    is_sorted = selection.element.size <= _COLUMNS_WORD_BYTES or radix.counts_pairs(selection, limits)
    return (
        are_fewer
        and are_columns(selection)
        and selection.row_length > t.radix_columns_min_length[selection.k > t.radix_columns_few_k]
        and is_sorted
    )


def _choose_short(selection: Selection, limits: Limits) -> Choice[Selection]:
    """The path of rows that fit a warp, and have too many results for its lanes."""
    length = selection.row_length
    if _columns_pay_for_short(selection, limits) and can_filter_columns(selection, limits):
        return Choice(PATHS["columns"], f"{selection.num_rows} rows of {length} elements, filtered together")
    if filter_pays_for_short(selection, limits) and can_filter(selection, limits):
        if cluster_pays(selection, limits, is_last=True) and can_cluster(selection, limits):
            return Choice(PATHS["cluster"], f"{selection.num_rows} rows for a cluster each")
        # Predicted us by digits and filtered: 6.6 and 7.5 for 10 columns of 70 int64 and k = 2, 7.8 and 7.6
        # for k = 12; 8.0 and 9.0 for 130 ragged rows of 200 and 8. Lanes take 8.5, 13.9 and 12.7.
        by_digits = selection.k <= THRESHOLDS.select_max_few_k and _is_slow_for_lanes(selection)
        path = PATHS["block_radix" if by_digits else "block_filter"]
        return Choice(path, f"rows of {length} elements, too wide for a warp")
    if can_block_sort(selection, limits) and sorts_short(selection, are_few=is_few(selection, limits)):
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
        is_dear |= selection.lengths is not None and k > t.select_max_few_k
        return not (is_dear and block_sort_pays(selection, limits, _part_of_groups(selection, limits)))
    is_quick_for_blocks = selection.num_rows <= limits.resident_blocks and _is_slow_for_lanes(selection)
    if is_quick_for_blocks and filter_pays_for_short(selection, limits):
        return False
    # Lanes without elements see nothing but ties.
    is_ragged = selection.lengths is not None and not is_shortest
    if is_ragged and (
        k > t.select_max_few_k or (is_wide and not are_many and _columns_pay_for_short(selection, limits))
    ):
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
        are_more = _part_of_groups(selection, limits) >= t.columns_max_part
        is_longer = length > t.columns_max_short_length
        return is_word or (not is_wide and (is_shortest or (is_longer and are_more)))
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
    t, size, k = THRESHOLDS, selection.element.size, selection.k
    part = _part_of_groups(selection, limits)
    longest, min_part = t.columns_max_short_length, t.columns_min_part
    fills = part > t.columns_min_filled * t.columns_max_part * ceil(part / t.columns_max_part)
    is_paid = k <= COLUMNS_MAX_KS[0] or (fills and k <= t.columns_max_k)
    if size == 8 and k > COLUMNS_MAX_KS[0] and WARP_LANES < selection.row_length <= 2 * WARP_LANES:
        # Predicted us by a warp each and by columns: 26.8 and 42.4 for 12000 x 60 int64 and k = 18, 26.7 and
        # 23.0 of 30.
        return False
    if selection.lengths is not None and selection.row_length > t.select_max_any_k:
        min_part, is_paid = t.columns_min_ragged_part[size == 8], fills or part <= t.columns_max_part
        if k <= t.columns_max_k:
            longest = t.columns_max_ragged_length[k > COLUMNS_MAX_KS[0]]
        longest //= 2 if size < _COLUMNS_WORD_BYTES else 1
    return part >= min_part and selection.row_length <= longest and is_paid


def _groups_pay(selection: Selection, limits: Limits) -> bool:
    """Whether long rows are few, and what is looked at again is found in the cache."""
    t = THRESHOLDS
    row_bytes = selection.row_length * selection.element.size
    most_of_all, most_of_row = t.groups_max_part[bisect_left((16, 64, 512), selection.k)]
    most_rows = min(limits.resident_blocks, most_of_all * limits.l2_bytes / row_bytes)
    mean_bytes = _mean_length(selection) * selection.element.size
    is_near = selection.num_rows <= most_rows and mean_bytes <= most_of_row * limits.l2_bytes
    is_narrow = selection.element.size < _COLUMNS_WORD_BYTES
    is_long = selection.row_length >= t.groups_min_length_per_result[is_narrow] * selection.k
    may_tie = selection.element.size == 1 and selection.k > COLUMNS_MAX_KS[-1]
    ties = may_tie and selection.k * selection.row_length > t.groups_max_ties
    return is_long and is_near and not ties


def _columns_pay_for_long(selection: Selection, limits: Limits) -> bool:
    """Whether rows that fit no warp take no longer together than each by a block."""
    t, instance = THRESHOLDS, bisect_left(COLUMNS_MAX_KS, selection.k)
    part, size = _part_of_groups(selection, limits), selection.element.size
    least, longest = t.columns_min_part_of_long[instance], t.columns_max_length_per_part[instance]
    if selection.lengths is not None and size < _COLUMNS_WORD_BYTES and instance == 0 and part < least:
        # Narrow elements tie, and ragged rows have no sample: predicted us by columns and by block_filter
        # 18.4 and 30.4 for 297 ragged rows of 10206 float16 and k = 2, 24.9 and 22.8 for 174 of 89804.
        least, longest = 1 / COLUMNS, 1 << 18
    if size > _COLUMNS_WORD_BYTES:
        longest = t.columns_max_wide_length
    return part >= least and selection.row_length <= longest * min(part, t.columns_max_part)


def _part_of_groups(selection: Selection, limits: Limits) -> float:
    """Groups of rows that are filtered together, as a part of the number of multiprocessors."""
    return -(-selection.num_rows // COLUMNS) / limits.num_multiprocessors


def _are_large_columns(selection: Selection, limits: Limits) -> bool:
    """Whether rows are columns of a matrix that is wide, and takes longer to read than to begin."""
    t, size = THRESHOLDS, selection.element.size
    least = t.columns_min_rows[bisect_left((THREAD_LIST_SIZE, *COLUMNS_MAX_KS), selection.k)]
    least *= t.columns_wide_times if size > _COLUMNS_WORD_BYTES else 1
    are_many = selection.num_rows >= least * limits.num_multiprocessors
    may_tie = size == 1 and selection.k <= THREAD_LIST_SIZE
    is_large = selection.num_bytes >= t.columns_min_bytes
    return are_columns(selection) and are_many and is_large and not may_tie


def _threads_pay(selection: Selection, limits: Limits) -> bool:
    """Whether a thread takes no longer for a row than a group of lanes: rows are short, or many."""
    t, size = THRESHOLDS, selection.element.size
    part_of_threads = selection.num_rows / limits.resident_threads
    if selection.k == 1 and are_columns(selection):
        least, more, most = t.threads_first_of_columns
        min_part = t.threads_first_min_part
    else:
        least, more, most = t.threads_row_lengths[min(selection.k, 2) - 1][size.bit_length() - 1]
        is_long = selection.row_length > t.threads_short_length
        min_part = t.threads_min_part[max(0, size.bit_length() - 2)][is_long] if selection.k > 1 else inf
        if selection.lengths is not None:
            min_part *= t.threads_ragged_part
    return part_of_threads >= min_part or selection.row_length <= min(most, least + more * part_of_threads)
