"""Top-k of rows that fit the warps of a block, but not one: sorted in parts, whose lists are merged."""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf

from cudml.operators.path import Steps, figure
from cudml.operators.top_k_columns import COLUMNS_MAX_KS
from cudml.operators.top_k_selection import Selection, are_columns
from cudml.operators.top_k_short import (
    CANDIDATE_BYTES,
    FINE_MEMBERS,
    SORT_ITEMS,
    SORT_MAX_ROW_LENGTH,
    SORTED_ITEMS,
    THREADS,
    VECTOR_BYTES,
    WARPS,
    blocks_of_warps,
    fine_params,
    sort_bytes,
    sorted_items_of,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, round_up

#: `PartParams` of kernels/top_k/block_sort.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int32 num_parts, part_length")

_MAX_ROW_LENGTH = WARPS * SORT_MAX_ROW_LENGTH
_MAX_K = SORTED_ITEMS[-1] * WARP_LANES

# Blocks of `columns` that a multiprocessor runs at once.
_COLUMNS_BLOCKS = 2

# Wider keys take twice as many registers and instructions: other paths are faster.
_MAX_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Thresholds:
    """When sorting the parts of a row pays."""

    #: Rows in two parts, and in four, are sorted where their groups of `columns` are less than this part of
    #: the multiprocessors, for k up to 16, 32, 64 and 128, and for each wave of its blocks, of which two run
    #: at once. For a larger k they always are.
    max_part: tuple[tuple[float, ...], ...] = figure(
        ((2 / 5, 4 / 3, 2.0, inf), (2 / 5, 1 / 2, 1.1, 3 / 2)),
        "machine code",
        "predicted 15 us, 21 by columns, for 2000 x 1500 float16 and k = 50; 28 and 34 for 4096 x 2048 and "
        "64; of float32 24 and 42 for 1024 x 2049 and 128, 32 and 37 for 2100 x 3000 and 50, 32 and 24 for "
        "20; 33 and 42 for 4230 x 1500 and 50",
    )

    #: Columns in two parts, and in four, where they are less than so much of it.
    part_of_columns: tuple[float, float] = figure(
        (0.55, 0.4),
        "machine code",
        "predicted 17 us, 30 by columns, for 1024 columns of 2048 float32 and k = 64, 51 and 33 of 4096; 42 "
        "and 39 for 1024 of 4096",
    )

    #: The longest rows of 32-bit elements if a lane sorts most items.
    max_word_length: int = figure(
        3072,
        "machine code",
        "predicted 178 us, 214 by block_filter, for 5600 x 3000 float32 and k = 300; 18.5 and 15.7 for "
        "140 x 4096 and 512",
    )


THRESHOLDS = Thresholds()


def can_block_sort(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the registers of a block's warps, and k those of one."""
    is_narrow = selection.element.size <= _MAX_ELEMENT_BYTES
    fits = selection.row_length <= _MAX_ROW_LENGTH and selection.k <= _MAX_K
    return limits.warp_lanes == WARP_LANES and is_narrow and fits


def block_sort_pays(selection: Selection, limits: Limits, part: float) -> bool:
    """Whether rows that fit no warp are more than blocks at once, or columns, and no other path takes less.

    `part` is the number of their groups of `columns`, as a part of the number of multiprocessors; 0 if
    `columns` does not pay whatever it is: a block for each row takes longer still.
    """
    t = THRESHOLDS
    # Few rows are looked at by groups of neighbours, which columns do not have.
    if selection.num_rows <= limits.resident_blocks and not are_columns(selection):
        return False
    if selection.k > COLUMNS_MAX_KS[-1]:
        sorts_most = sorted_items_of(selection, SORT_ITEMS[-1]) == SORTED_ITEMS[-1]
        is_word = selection.element.size == _MAX_ELEMENT_BYTES
        return selection.row_length <= t.max_word_length or not (sorts_most and is_word)
    is_long = selection.row_length > 2 * SORT_MAX_ROW_LENGTH
    most = t.max_part[is_long][bisect_left(COLUMNS_MAX_KS, selection.k)]
    if are_columns(selection):
        most *= t.part_of_columns[is_long]
    return part < most * max(1, ceil(part / _COLUMNS_BLOCKS))


def block_sort(selection: Selection, limits: Limits) -> Steps:
    """One launch; two or four warps own a row, each sorts the first of a part, and they merge their lists."""
    size, items = selection.element.size, SORT_ITEMS[-1]
    num_parts = 2 if selection.row_length <= 2 * SORT_MAX_ROW_LENGTH else WARPS
    part_length = round_up(-(-selection.row_length // num_parts), VECTOR_BYTES // size)
    sorted_items = sorted_items_of(selection, items)
    num_blocks = 5 if sorted_items < SORTED_ITEMS[-1] else 4
    list_bytes = THREADS * sorted_items * CANDIDATE_BYTES[size]
    shared_bytes = sort_bytes(selection, items, sorted_items) + list_bytes + 4 * WARPS
    launch = KernelLaunch(
        source="top_k/block_sort.cu",
        function="top_k_block_sort",
        template=(selection.word, sorted_items, *selection.raggedness),
        grid=blocks_of_warps(selection.num_rows, WARPS // num_parts, num_blocks, shared_bytes, limits),
        block=(THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection, _PARAMS, more={"num_parts": num_parts, "part_length": part_length}),
        shared_bytes=shared_bytes,
        constants=(
            ("kThreads", THREADS),
            ("kPartItems", items),
            (f"sizeof(PartStorage<{selection.word}, {sorted_items}>)", shared_bytes),
            (f"kPartMinBlocks<{sorted_items}>", num_blocks),
        ),
    )
    return (launch,), ()
