"""Top-k of rows that fit the warps of a block, but not one.

They are sorted in parts, whose lists are merged; for a larger k, what reaches the k-th key is chosen first,
and only that is sorted.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.columns import COLUMNS_MAX_KS
from cudml.operators.top_k.lanes import (
    SORT_ITEMS,
    SORT_MAX_ROW_LENGTH,
    SORTED_ITEMS,
    THREADS,
    WARPS,
    blocks_of_warps,
    sort_bytes,
    sorted_items_of,
)
from cudml.operators.top_k.rows import (
    CANDIDATE_BYTES,
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    are_columns,
    fine_params,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, round_up

#: `PartParams` of kernels/top_k/row_parts.cuh.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int32 num_parts, part_length")

# kernels/top_k/block_sort.cu
_MAX_SORTED_LENGTH = WARPS * SORT_MAX_ROW_LENGTH
_MAX_SORTED_K = SORTED_ITEMS[-1] * WARP_LANES

# kernels/top_k/block_choose.cu: how many elements are ranked, at least and at most.
_MIN_RANKED, _MAX_RANKED = 256, 1024


class _ChooseShape(NamedTuple):
    """Parts of a row, items of a lane, and blocks that a multiprocessor's registers hold."""

    parts: int
    items: int
    blocks: int

    @property
    def capacity(self) -> int:
        """Length of the longest row."""
        return self.parts * self.items * WARP_LANES


_CHOOSE_SHAPES = (
    _ChooseShape(4, 16, 8),
    _ChooseShape(4, 32, 5),
    _ChooseShape(6, 32, 4),
    _ChooseShape(8, 32, 3),
    _ChooseShape(12, 32, 2),
)
#: Size of an element in bytes -> the longest rows of kernels/top_k/block_choose.cu. Registers of the largest
#: shapes do not hold words.
_MAX_CHOSEN_LENGTH = {size: _CHOOSE_SHAPES[-1 if size < 4 else 2].capacity for size in (1, 2, 4)}

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

    #: Elements are chosen before they are sorted for more results than this of a word; of narrower elements,
    #: for more than warps sort.
    choose_min_word_k: int = figure(
        257,
        "machine code",
        "predicted 34 us, 43 by sorting, for 1024 x 4096 float32 and k = 512; 31 both for 256",
    )

    #: And from rows too long for warps that sort. For a k that these sort, two reasons are enough: rows up to
    #: this length, more results than lanes, and elements of a byte or ragged rows.
    choose_max_length: int = figure(
        8192,
        "machine code",
        "predicted 36 us, 38 by block_filter, for 1024 x 8192 float16 and k = 100, 53 and 45 of 12288; 34 "
        "and 55 for 4097 float32; 13.2 and 15.6 for 200 x 9000 int8, 13.6 and 21.6 of ragged float16",
    )

    #: Few narrow rows are sorted, not looked at by groups, up to this many bytes, half of it for a k up to a
    #: warp's lanes: many groups have the same largest key.
    tie_max_bytes: int = figure(
        1 << 13,
        "machine code",
        "predicted us, sorted and by groups: 8.1 and 16.1 for 4 x 1200 int8 and k = 150, 9.9 and 10.4 for "
        "5000 and 120; 7.6 and 8.6 for 4 x 2600 float16 and 41, 10.9 and 9.8 for 5000 and 120",
    )
    #: So are few ragged rows that fit a warp, of more than this many bytes, if one probably has fewer than k
    #: elements; of words that are chosen first, more.
    ragged_min_bytes: int = figure(
        512,
        "machine code",
        "predicted us, sorted by a block and by a warp: 8.3 and 9.1 for 120 x 140 float32 and k = 38, 8.2 "
        "and 11.5 for 300 and 40, 8.3 and 7.7 for 3 x 1000 and 39; 7.6 and 7.5 for 120 x 200 float16 and 30, "
        "8.2 and 10.3 for 400 and 100; 9.6 and 9.5 for 400 int8 and 100, 8.1 and 9.1 for 700 and 40; 8.1 and "
        "10.6 for 40 columns of 300 float32 and 20; 86 and 111 for 10000 x 525 float32 and 440",
    )


THRESHOLDS = Thresholds()


def can_block_sort(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the registers of a block's warps, and what is ranked fits the numbers."""
    is_narrow = selection.element.size <= _MAX_ELEMENT_BYTES
    if limits.warp_lanes != WARP_LANES or not is_narrow or selection.k > _MAX_RANKED:
        return False
    return selection.row_length <= _MAX_CHOSEN_LENGTH[selection.element.size]


def block_sort_pays(selection: Selection, limits: Limits, part: float) -> bool:
    """Whether rows that fit no warp are more than blocks at once, or columns, and no other path takes less.

    `part` is the number of their groups of `columns`, as a part of the number of multiprocessors; 0 if
    neither `columns` nor groups of neighbours pay: a block that filters each takes longer still.
    """
    t, length, k, size = THRESHOLDS, selection.row_length, selection.k, selection.element.size
    is_long = length > _MAX_SORTED_LENGTH
    if selection.num_rows <= limits.resident_blocks and (is_long or not are_columns(selection)):
        if _may_tie(selection):
            return True
        return part == 0 and (k > _MAX_SORTED_K or (not is_long and _chooses(selection)))
    if is_long and k <= _MAX_SORTED_K:
        # A filter cuts lists more often for bytes, because many tie, and for ragged rows.
        reasons = (length <= t.choose_max_length, k > WARP_LANES, size == 1 or selection.lengths is not None)
        return part == 0 and sum(reasons) > 1
    if k > COLUMNS_MAX_KS[-1]:
        return True
    takes_all = length > 2 * SORT_MAX_ROW_LENGTH
    most_part = t.max_part[takes_all][bisect_left(COLUMNS_MAX_KS, k)]
    if are_columns(selection):
        most_part *= t.part_of_columns[takes_all]
    if takes_all and size < _MAX_ELEMENT_BYTES:
        # Many tie: predicted us sorted and by columns 124 and 210 for 11492 ragged rows of 2805 uint16 and
        # k = 92, 22.4 and 27.0 for 1500 x 4000 float16 and 30, 39.7 and 43.9 for 3000 and 60.
        most_part *= 3 / 2
    return part < most_part * max(1, ceil(part / _COLUMNS_BLOCKS))


def sorts_short(selection: Selection, *, are_few: bool) -> bool:
    """Whether a block takes less time for a row that fits a warp."""
    chooses = selection.element.size == _MAX_ELEMENT_BYTES and _chooses(selection)
    if selection.lengths is None:
        return are_few and chooses
    # If each length is as likely, one of them is probably less than k.
    has_shorter = selection.num_rows * selection.k >= selection.row_length
    is_long = selection.row_length * selection.element.size > THRESHOLDS.ragged_min_bytes
    return has_shorter and is_long and (chooses or (are_few and selection.k > COLUMNS_MAX_KS[0]))


def _may_tie(selection: Selection) -> bool:
    """Whether a list of a row's largest groups is long, because many of its elements are alike."""
    row_bytes = selection.row_length * selection.element.size
    most = THRESHOLDS.tie_max_bytes // (1 if selection.k > WARP_LANES else 2)
    least = 1 if selection.element.size == 1 else COLUMNS_MAX_KS[0] + 1
    return selection.element.size < _MAX_ELEMENT_BYTES and selection.k >= least and row_bytes <= most


def _chooses(selection: Selection) -> bool:
    """Whether elements are chosen before they are sorted."""
    is_word = selection.element.size == _MAX_ELEMENT_BYTES
    least = THRESHOLDS.choose_min_word_k if is_word else _MAX_SORTED_K + 1
    return selection.k >= least or selection.row_length > _MAX_SORTED_LENGTH


def _block_choose(selection: Selection, limits: Limits) -> Steps:
    """One launch; a block owns a row, chooses what can be among the first k, and ranks it."""
    size = selection.element.size
    shape = next(s for s in _CHOOSE_SHAPES if selection.row_length <= s.capacity)
    is_ragged = selection.lengths is not None
    num_blocks = min(shape.blocks, 7) if is_ragged else shape.blocks
    part_length = round_up(-(-selection.row_length // shape.parts), VECTOR_BYTES // size)
    of_warps = shape.parts * (2 * max(size, 4) + 16)
    shared_bytes = round_up(shape.capacity * size + 4 * _MAX_RANKED + of_warps + 4, VECTOR_BYTES)
    instance = f"{selection.word}, {shape.parts}, {shape.items}"
    launch = KernelLaunch(
        source="top_k/block_choose.cu",
        function="top_k_block_choose",
        template=(selection.word, shape.parts, shape.items, *selection.raggedness),
        grid=blocks_of_warps(selection.num_rows, 1, num_blocks, shared_bytes, limits),
        block=(shape.parts * WARP_LANES, 1, 1),
        buffers=selection.operands,
        params=fine_params(
            selection,
            _PARAMS,
            list_capacity=max(_MIN_RANKED, 1 << (selection.k - 1).bit_length()),
            more={"num_parts": shape.parts, "part_length": part_length},
        ),
        shared_bytes=shared_bytes,
        constants=(
            ("kMostRanked", _MAX_RANKED),
            (f"sizeof(ChooseStorage<{instance}>)", shared_bytes),
            (f"(kChooseMinBlocks<{instance}, {str(is_ragged).lower()}>)", num_blocks),
        ),
    )
    return (launch,), ()


def block_sort(selection: Selection, limits: Limits) -> Steps:
    """One launch; two or four warps own a row, each sorts the first of a part, and they merge their lists.

    If k is large, or rows are long, a block owns a row.
    """
    if _chooses(selection):
        return _block_choose(selection, limits)
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
