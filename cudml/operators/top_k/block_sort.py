"""Top-k of rows that fit the warps of a block, but not one.

Rows are sorted in parts, whose lists are merged. For a larger k, the elements that reach the k-th key are
chosen first, and only those are sorted.
"""

from typing import NamedTuple

from cudml.operators.path import Steps
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
    fine_params,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, round_up

#: `PartParams` of kernels/top_k/load_rows.cuh.
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

# Wider keys take twice as many registers and instructions: other paths are faster.
_SORT_MAX_ELEMENT_BYTES = 4


#: Smallest k for which words are chosen before they are sorted; for narrower elements, it is one more than
#: warps sort. Predicted 35 us, 41 by sorting, for 1024 x 4096 float32 and k = 512; 32 and 28 for 256 (machine
#: code).
_CHOOSE_MIN_WORD_K = 257


def can_block_sort(selection: Selection, limits: Limits) -> bool:
    """Whether a row fits the registers of a block's warps, and k is no more than the kernels rank."""
    is_narrow = selection.element.size <= _SORT_MAX_ELEMENT_BYTES
    if limits.warp_lanes != WARP_LANES or not is_narrow or selection.k > _MAX_RANKED:
        return False
    return selection.row_length <= _MAX_CHOSEN_LENGTH[selection.element.size]


def _chooses(selection: Selection) -> bool:
    """Whether elements are chosen before they are sorted."""
    is_word = selection.element.size == _SORT_MAX_ELEMENT_BYTES
    least = _CHOOSE_MIN_WORD_K if is_word else _MAX_SORTED_K + 1
    return selection.k >= least or selection.row_length > _MAX_SORTED_LENGTH


def _block_choose(selection: Selection, limits: Limits) -> Steps:
    """One launch; a block owns a row, chooses the elements that can be among the first k, and ranks them."""
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
