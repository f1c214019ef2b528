"""Reversals of lanes that cross rows, each of its own length: strips of them through shared storage."""

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import BLOCK_THREADS, ITEM_TYPES, WORD_BYTES
from cudml.operators.reverse_subsequences.lanes import (
    LANE_SPACE,
    LENGTHS,
    SOURCE,
    TARGET,
    Lanes,
    reversal_launch,
)
from cudml.plans import MAX_GRID_BLOCKS, KernelLaunch, Limits, ParamStruct, ceil_div, round_up

#: Strips of lanes are as wide as fits, so that their rows are longer to load. The narrowest are half a
#: sector: a neighbouring strip uses the other half.
STRIP_BYTES = (1024, 512, 256, 128, 64, 32, 16)
#: Strips wider than a line of the cache are for short lanes, and only if there are enough of them.
WIDE_STRIP_BYTES = 128
#: Blocks that share a multiprocessor's shared storage: as many as its registers hold if their strips fit,
#: otherwise one.
STRIPS_PER_MULTIPROCESSOR = (3, 1)

#: The struct of the kernel.
_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_columns, axis_source_stride, axis_target_stride, column_length_stride",
    "Int32 column_shift",
)


def strip_width(lanes: Lanes, limits: Limits) -> int | None:
    """The maximum number of lanes, a power of two, whose strip fits the shared storage of a block.

    None if lanes do not cross rows that are contiguous on both sides, if no strip fits, or if there are too
    many. Strips wider than a cache line are for short lanes, and only if there are enough of them.
    """
    if not lanes.others.dimensions or lanes.others.dimensions[0].strides[:LENGTHS] != (1, 1):
        return None
    row_size, item_bytes = lanes.others.dimensions[0].size, lanes.item_bytes
    num_rows, lane_bytes = lanes.others.num_items // row_size, lanes.axis.size * item_bytes
    most = min(BLOCK_THREADS, 1 << (row_size - 1).bit_length())
    # The part of each block's share that the system reserves.
    reserved = limits.shared_bytes_per_multiprocessor - limits.shared_bytes_per_block
    for num_blocks in STRIPS_PER_MULTIPROCESSOR:
        room = limits.shared_bytes_per_multiprocessor // num_blocks - reserved
        for strip_bytes in STRIP_BYTES:
            width = min(strip_bytes // item_bytes, most)
            if width * lane_bytes > room:
                continue
            num_strips = num_rows * ceil_div(row_size, width)
            is_spread = num_strips >= num_blocks * limits.num_multiprocessors
            if is_spread or width * item_bytes <= WIDE_STRIP_BYTES:
                return width if num_strips <= MAX_GRID_BLOCKS else None
    return None


def strips_fit(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides, and their strips fit a block each."""
    return strip_width(lanes, limits) is not None


def columns(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes of their own lengths that cross rows: strips of them through shared storage."""
    others, along = lanes.others, lanes.axis
    row, *outer = others.dimensions
    width = strip_width(lanes, limits) or 1
    strips = Space(
        (Dimension(ceil_div(row.size, width), (0, 0, 0)), *outer), others.offsets, lanes.item_bytes
    )
    return reversal_launch(
        "columns",
        _PARAMS,
        (ITEM_TYPES[lanes.item_bytes],),
        strips.num_items,
        {
            **lanes.values(strips),
            "num_columns": row.size,
            "axis_source_stride": along.strides[SOURCE],
            "axis_target_stride": along.strides[TARGET],
            "column_length_stride": row.strides[LENGTHS],
            "column_shift": width.bit_length() - 1,
        },
        shared_bytes=round_up(width * lanes.item_bytes * along.size, WORD_BYTES),
    )
