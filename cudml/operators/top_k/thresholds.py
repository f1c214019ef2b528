"""The numbers that decide between the paths of a top-k; `choices/top_k.json` has their values.

A part is a number of rows divided by the threads or the blocks that run at once, or bytes divided by those
of the L2 cache, so that it holds on other devices. "Groups" are the 16 rows that a block of `columns`
filters together, divided by the number of multiprocessors. "By width" means elements of 1, 2, 4 and 8
bytes.
"""

from dataclasses import dataclass

from cudml.operators.choice import numbers_of

IntByWidth = tuple[int, int, int, int]
FloatByWidth = tuple[float, float, float, float]
#: The longest row for any number of rows, the elements to add if every thread has a row, and the most.
RowLengths = tuple[int, int, int]


@dataclass(frozen=True)
class Thresholds:
    """What `choose_path` compares a selection with."""

    # thread_list

    #: Least part of the threads, for k = 1 of columns.
    threads_first_min_part: float
    #: Longest row that counts as short in the next line.
    threads_short_length: int
    #: Least part of the threads for k > 1 of rows whose elements lie apart, or that are ragged: of short rows
    #: and of longer ones, for elements up to 2, of 4 and of 8 bytes.
    threads_min_part: tuple[tuple[float, float], ...]
    #: Rows short enough wherever they lie: for k = 1 and for k > 1, by width.
    threads_row_lengths: tuple[tuple[RowLengths, ...], ...]
    #: The same for k = 1 of columns.
    threads_first_of_columns: RowLengths

    # arg_max

    #: Most elements of all rows together, if a row's do not lie side by side.
    arg_max_most_apart: int
    #: The same of rows that are fewer than a block of `columns` filters together.
    arg_max_most_shared: int
    #: Longest row of any number that lanes read, if its elements do not lie side by side; the second for
    #: 8-byte elements.
    arg_max_max_apart_length: tuple[int, int]

    # block_filter and block_radix of columns

    #: Most columns for a block each, as a part of the multiprocessors.
    blocks_max_columns: float
    #: The shortest of them, and the largest k; the second for 8-byte elements.
    blocks_min_column_length: int
    blocks_max_column_k: tuple[int, int]

    # warp_select

    #: Longest row for any k that it has an instance for.
    select_max_any_k: int
    #: Largest k of longer rows, for any width.
    select_max_k: int
    #: Shortest of many narrow rows for a larger k, unless they are of the shortest.
    select_min_narrow_length: int
    #: Largest k of few rows.
    select_max_few_k: int
    #: Shortest of few rows for the larger k.
    select_min_few_length: int
    #: Longest row if rows are at most as many as blocks run at once.
    select_max_few_length: int
    #: Longest of many rows of words, not columns, whose lanes select more results than `select_max_k`.
    select_max_words_length: int
    #: Longest of many columns, and of fewer.
    select_max_columns_length: int
    select_max_few_columns_length: int
    #: Most groups that count as few in the next line.
    select_max_columns_part: float
    #: Columns of words in few groups take less time together if they are longer than this, up to the second.
    columns_lengths_of_few_words: tuple[int, int]
    #: Shortest of many columns for a k above `select_max_few_k`.
    select_min_many_columns_length: int
    #: Fewest groups of ragged rows, by width.
    select_min_ragged_part: FloatByWidth

    # columns

    #: Fewest groups for long rows of words.
    columns_min_part_of_words: float
    #: Largest k for rows that fit a warp, and for columns of words in few groups.
    columns_max_k: tuple[int, int]
    #: Longest row that fits a warp: of rows, and of columns of a matrix.
    columns_max_short_length: tuple[int, int]
    #: Fewest groups for rows that fit a warp.
    columns_min_part: float
    #: Least part of its waves that they fill, for k > 16.
    columns_min_filled: float
    #: Fewest groups of ragged rows that fit a warp.
    columns_min_ragged_part: float
    #: Longest of these; half of it for narrow elements.
    columns_max_ragged_length: int
    #: Fewest groups of rows that fit no warp, for k up to 16, 32, 64 and 128.
    columns_min_part_of_long: tuple[float, ...]
    #: Longest of these if groups are as many as multiprocessors, for the same k.
    columns_max_length_per_part: tuple[int, ...]
    #: Most groups that lengthen them in proportion.
    columns_max_part: float
    #: Longest of these of 8-byte elements.
    columns_max_wide_length: int
    #: Longest of these whose elements lie side by side.
    columns_max_together_length: int
    #: Longest ragged row of elements of one and two bytes that lie apart, for k up to 16.
    columns_max_ragged_narrow_length: tuple[int, int]
    #: Fewest bytes of a large matrix, whose columns are filtered together.
    columns_min_bytes: int
    #: Fewest columns of it for each multiprocessor, for a k that a thread keeps, and up to 16, 32, 64 and
    #: 128.
    columns_min_rows: tuple[float, ...]
    #: Factor of these for 8-byte elements.
    columns_wide_times: float

    # block_radix and grid_radix, for few columns

    #: Length that columns exceed.
    radix_columns_min_length: int
    #: Most elements of all columns together.
    radix_columns_max_elements: int

    # block_sort

    #: Most groups for rows in two parts and in four, for k up to 16, 32, 64 and 128, in each wave of
    #: `columns`.
    sort_max_part: tuple[tuple[float, ...], ...]
    #: Factor of these for columns, in two parts and in four.
    sort_part_of_columns: tuple[float, float]
    #: Factor of these for narrow rows in four parts, whose elements tie.
    sort_narrow_times: float
    #: Longest row that counts as one of the reasons to choose before sorting.
    sort_max_length: int
    #: Most bytes of few narrow rows, whose keys tie; half of it for a k up to a warp's lanes.
    sort_tie_max_bytes: int
    #: Factor of the most groups of ragged rows, in two parts and in four.
    sort_ragged_times: tuple[float, float]
    #: Least length of few columns of words that the warps of a block sort.
    sort_min_few_columns_length: int

    # groups

    #: Largest k; the second for 8-byte elements.
    groups_max_k: tuple[int, int]
    #: Most rows that are few, and most bytes of all rows if they are more.
    groups_max_rows: int
    groups_max_bytes: int
    #: Without clusters: largest part of the L2 cache that all rows take, and that a row takes times k; fewest
    #: bytes of a row for each result.
    groups_max_part: float
    groups_max_results: float
    groups_min_bytes_per_result: int

    # cluster

    #: Shortest row if all clusters run at once, and of groups.
    cluster_min_length: int
    #: Most bytes of one or two rows.
    cluster_max_bytes_of_few: int
    #: Least k of more rows than multiprocessors, if a block holds a row.
    cluster_min_k_of_waves: int
    #: Least k of ragged rows if clusters do not run at once, and fewest elements for each result, if they are
    #: more than two.
    cluster_min_ragged_k: int
    cluster_min_ragged_length_per_result: float

    # block_keep

    #: Least k of rows that are at most as many as multiprocessors, by width, and of others of any length.
    keep_min_few_k: IntByWidth
    keep_min_k: int
    #: Shortest row, by width: of rows that are at most as many as multiprocessors, and of rows that are
    #: more, but run at once.
    keep_min_few_length: IntByWidth
    keep_min_length: IntByWidth
    #: The same for a smaller k than `keep_min_k`, of more rows, but no more groups than multiprocessors.
    keep_min_length_of_small_k: FloatByWidth
    #: Longest row for a k up to the first number, by width.
    keep_small_k: int
    keep_max_small_length: IntByWidth
    #: Longest row, by width, that may have a cluster instead.
    keep_max_of_clusters: IntByWidth
    #: Least k, and part of the multiprocessors that rows exceed, for rows of twice this length: a cluster has
    #: at most two blocks then.
    keep_min_k_of_pairs: int
    keep_min_part_of_pairs: FloatByWidth
    #: Shortest row, by width, of more rows than blocks that run at once.
    keep_min_length_of_many: IntByWidth
    #: Least k of shorter ones, by width, and of rows that fit two warps, or one if elements have 8 bytes.
    keep_min_k_of_many: IntByWidth
    keep_min_k_of_warps: int
    #: Most elements of bytes for each result; the second of rows that are at most as many as multiprocessors.
    keep_max_bytes_per_result: tuple[int, int]
    #: The same of words, in more rows that take more than half of the shared storage.
    keep_max_words_per_result: int
    #: Largest k as a part of a row of floats of a word or more, except of few whole rows; the second for rows
    #: that `block_sort` can do, and for many of 8-byte elements.
    keep_max_part_of_floats: tuple[float, float]

    # block_filter

    #: Least k of ragged rows of 8-byte elements whose lists are cut dearly.
    filter_dear_min_ragged_wide_k: int
    #: Most bytes for each result of ragged rows whose lists are cut dearly.
    filter_dear_max_bytes_per_result: int
    #: Most elements for each of many results of rows whose lists are cut dearly; the second for narrow
    #: ones.
    filter_dear_max_length_per_result: tuple[float, float]

    # grid_radix

    #: Largest part of the blocks.
    grid_max_part: float
    #: Shortest row if blocks compare all pairs of a list. Like the next number, divided by the part of the
    #: blocks that would be idle.
    grid_counted_min_length: int
    #: Shortest row if blocks sort the list, by width.
    grid_min_length: IntByWidth
    #: The length of ragged rows that counts, as a part of the longest.
    grid_ragged_length: float
    #: Most rows, and largest part of the L2 cache, for two reads instead of a filter, and a k up to the
    #: next number.
    cached_max: tuple[int, float]
    filter_max_shared_k: int
    #: The same for a larger k; either may hold.
    counted_max: tuple[int, float]
    counted_few_max: tuple[int, float]
    #: Factor of this part for columns, whose elements are loaded one by one.
    cached_times_of_columns: float
    #: Least k if blocks sort the list; half of it for ragged rows.
    sorted_min_k: int
    #: Fewest elements of all rows together, if they are 8-byte integers.
    sorted_min_wide_integers: int
    #: Most elements of all rows together, by width; half of it for rows that exceed a part of the blocks.
    sorted_max_elements: IntByWidth
    sorted_many_part: float
    #: Bounds of k between the lines of the next number.
    guess_ks: tuple[int, ...]
    #: Largest part of the blocks for rows whose floor a sample guesses.
    guess_max_part: tuple[float, ...]


THRESHOLDS = numbers_of("top_k", Thresholds)
