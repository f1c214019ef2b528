"""Reversals of any layout on a GPU: each item is gathered."""

import math

from cudml.checks import MAX_DIMENSIONS
from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import BLOCK_CONSTANTS, BLOCK_THREADS, ITEM_TYPES, grid_blocks
from cudml.operators.reverse_subsequences.lanes import (
    LANE_SPACE,
    LENGTHS,
    SOURCE,
    Lanes,
    reversal_launch,
    with_axis,
)
from cudml.plans import MEMORY_PIECE_BYTES, WARP_LANES, KernelLaunch, Limits, ParamStruct, ceil_div

#: What `reverse_subsequences/gather.cu` is compiled with.
GATHER_ITEMS_PER_THREAD = 4

#: The part of the L2 that a panel of lanes takes in the source: half of the L2 may hold copies for the other
#: half of the multiprocessors, and stores pass through it as well.
PANEL_PART_OF_CACHE = 4
#: The widest panel: a tile of the gather is a row of it.
MOST_PANEL_LANES = BLOCK_THREADS * GATHER_ITEMS_PER_THREAD

#: The struct of the kernel.
_PARAMS = ParamStruct(*LANE_SPACE, "Int64 num_items, num_tiles, axis_stride", "Int32 axis")


def gather(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout: a thread computes where each of its items lies and reads the lane's length."""
    space, axis = in_panels(*with_axis(lanes), limits)
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return reversal_launch(
        "gather",
        _PARAMS,
        (ITEM_TYPES[space.item_bytes],),
        grid_blocks(num_tiles, limits),
        {
            **lanes.values(space),
            "num_items": space.num_items,
            "num_tiles": num_tiles,
            "axis_stride": lanes.axis.strides[SOURCE],
            "axis": axis,
        },
        constants=(*BLOCK_CONSTANTS, ("kItemsPerThread", GATHER_ITEMS_PER_THREAD)),
    )


def in_panels(space: Space, axis: int, limits: Limits) -> tuple[Space, int]:
    """The space panel by panel of lanes, and the position of the axis in it.

    Neighbours of different lengths come from different rows. In the target's order, the items of a piece of
    memory are needed far apart, up to all rows of the tensor, and each reads the piece again. So the axis
    moves inwards to the row, and the row is cut into panels as wide as a part of the L2 allows.
    """
    row, *others = space.dimensions
    if axis == 0 or row.strides[LENGTHS] == 0:
        return space, axis
    along = others.pop(axis - 1)
    most = limits.l2_bytes // PANEL_PART_OF_CACHE // (along.size * space.item_bytes)
    if math.prod(d.size for d in space.dimensions[:axis]) <= most:
        return space, axis
    least = ceil_div(MEMORY_PIECE_BYTES, space.item_bytes)
    most = min(row.size, most, MOST_PANEL_LANES)
    # The largest divisor, because a space has no partial panel; if possible, one of whole warps.
    widths = (
        width
        for step in (WARP_LANES, 1)
        for width in range(most - most % step, least - 1, -step)
        if row.size % width == 0
    )
    width = next(widths, 0)
    if width == row.size:
        return Space((row, along, *others), space.offsets, space.item_bytes), 1
    if not width or len(space.dimensions) == MAX_DIMENSIONS:
        return space, axis
    panels = Dimension(row.size // width, tuple(width * stride for stride in row.strides))
    cut = (Dimension(width, row.strides), along, panels, *others)
    return Space(cut, space.offsets, space.item_bytes), 1
