"""Reversals of small boxes one after another, many at once through shared storage.

A box is the span of the axis and the dimensions inside it: one lane, or several that cross its rows.
"""

import math

from cudml.operators.index_space import Dimension, Space, magic_division, merged
from cudml.operators.launch_shape import BLOCK_CONSTANTS, BLOCK_THREADS, ITEM_TYPES, WORD_BYTES
from cudml.operators.reverse_subsequences.lanes import LANE_SPACE, LENGTHS, TARGET, Lanes, reversal_launch
from cudml.plans import (
    MAX_GRID_BLOCKS,
    WARP_LANES,
    Constants,
    KernelLaunch,
    Limits,
    ParamStruct,
    ceil_div,
    round_up,
)

#: What `reverse_subsequences/boxes.cu` is compiled with.
BOX_TILE_WORDS = 1024

#: Maximum bytes of a tile of boxes: one word less than the kernel stores, because both ends may be partial.
BOX_TILE_BYTES = (BOX_TILE_WORDS - 1) * WORD_BYTES
#: Lanes whose lengths a block loads at once.
BOX_TILE_LANES = 1024

_BOX_CONSTANTS: Constants = (
    *BLOCK_CONSTANTS,
    ("kWordBytes", WORD_BYTES),
    ("kTileWords", BOX_TILE_WORDS),
    ("kTileLanes", BOX_TILE_LANES),
)

#: Blocks of boxes per multiprocessor, below which tiles shrink: with 4, a whole wave, no block may be late.
BOX_BLOCKS_PER_MULTIPROCESSOR = 3
#: The smallest tile of boxes: a word for each thread of a block.
MIN_BOX_TILE_BYTES = 4096
#: The largest part of a tile that is left empty so that tiles end with whole words: shared words are written
#: item by item.
MAX_EMPTY_PART = 1 / 8

#: Bytes of all banks of shared storage, and of one bank.
BANKS_BYTES, BANK_BYTES = 128, 4

#: The struct of the kernel.
_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_lanes",
    "UInt32 row_multiplier",
    "Int32 row_shift, box_items, row_lanes, tile_lanes, group_shift",
)


def boxes_touch(lanes: Lanes, limits: Limits) -> bool:
    """Whether source and target are the same boxes one after another, small enough for a tile."""
    count = 1
    for dimension in sorted((*lanes.others.dimensions, lanes.axis), key=lambda d: d.strides[TARGET]):
        if dimension.strides[:LENGTHS] != (count, count):
            return False
        count *= dimension.size
    if lanes.box_bytes > BOX_TILE_BYTES:
        return False
    most_boxes = MAX_GRID_BLOCKS
    if lanes.num_bytes > most_boxes:  # else there are fewer boxes
        most_boxes *= boxes_of_tile(lanes, limits)
    return lanes.num_bytes <= most_boxes * lanes.box_bytes


def boxes_of_tile(lanes: Lanes, limits: Limits) -> int:
    """The number of boxes that a block moves."""
    share = ceil_div(lanes.num_bytes, limits.num_multiprocessors * BOX_BLOCKS_PER_MULTIPROCESSOR)
    tile_bytes = min(max(share, MIN_BOX_TILE_BYTES), BOX_TILE_BYTES)
    tile_boxes = max(1, min(tile_bytes // lanes.box_bytes, BOX_TILE_LANES // lanes.axis.strides[TARGET]))
    # If tiles can end with whole words, they share no words with their neighbours.
    whole = WORD_BYTES // math.gcd(WORD_BYTES, lanes.box_bytes)
    left = tile_boxes % whole
    return tile_boxes - left if left <= MAX_EMPTY_PART * tile_boxes else tile_boxes


def box_group_shift(lanes: Lanes, tile_lanes: int) -> int:
    """The binary logarithm of the threads that reverse a lane of a box together, for the least cost.

    Beginning a lane costs about as much as two pairs. The lanes of a warp wait for the longest of them,
    and for each other where they lie in the same banks of shared storage; neighbours across rows do not.
    """
    pairs, lane_bytes = lanes.axis.size / 2, lanes.axis.size * lanes.item_bytes
    has_rows = lanes.axis.strides[TARGET] > 1

    def cost(shift: int) -> float:
        together = WARP_LANES >> shift or 1
        longest = pairs * together / (together + 1) / (1 << shift)
        if together > 1 and not has_rows:
            span = max(BANK_BYTES, min(lanes.item_bytes << shift, BANKS_BYTES))
            banks = [lane * lane_bytes % BANKS_BYTES // span for lane in range(together)]
            longest *= max(1, max(map(banks.count, set(banks))) / 2)
        return ceil_div(tile_lanes << shift, BLOCK_THREADS) * (2 + longest)

    # As long as the block has threads left, more threads per lane cost less.
    least, most = (BLOCK_THREADS // tile_lanes).bit_length() - 1, BLOCK_THREADS.bit_length() - 1
    return most if least == most else min(range(max(0, least), most + 1), key=cost)


def boxes(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Small boxes one after another: many at once through shared storage."""
    row_lanes, axis_size = lanes.axis.strides[TARGET], lanes.axis.size
    in_lengths = merged(Dimension(d.size, (0, 0, d.strides[LENGTHS])) for d in lanes.others.dimensions)
    each = Space(in_lengths, lanes.others.offsets, lanes.item_bytes)
    tile_lanes = boxes_of_tile(lanes, limits) * row_lanes
    row_multiplier, row_shift = magic_division(row_lanes, 32)
    return reversal_launch(
        "boxes",
        _PARAMS,
        (ITEM_TYPES[lanes.item_bytes], row_lanes > 1),
        ceil_div(each.num_items, tile_lanes),
        {
            **lanes.values(each),
            "num_lanes": each.num_items,
            "row_multiplier": row_multiplier,
            "row_shift": row_shift,
            "box_items": row_lanes * axis_size,
            "row_lanes": row_lanes,
            "tile_lanes": tile_lanes,
            "group_shift": box_group_shift(lanes, tile_lanes),
        },
        shared_bytes=BOX_TILE_BYTES + WORD_BYTES + round_up(2 * tile_lanes, WORD_BYTES),
        constants=_BOX_CONSTANTS,
    )
