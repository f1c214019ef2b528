"""Reversals on a CPU, by blocks of one thread."""

import math

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import ITEM_TYPES, most_serial_blocks, serial_blocks
from cudml.operators.reverse_subsequences.lanes import (
    LANE_SPACE,
    LENGTHS,
    SOURCE,
    TARGET,
    Lanes,
    reversal_launch,
    with_axis,
)
from cudml.plans import KernelLaunch, Limits, ParamStruct, ceil_div, round_up

# kernels/common/tiles.cuh, on the CPU with the widest registers.
TILE_BYTES = 32
MIRRORED_BYTES = 64
LINE_BYTES = 64

#: Bytes of a row of the strips that one thread reverses; the first whose strip fits a block's storage is
#: taken. Memory is read at full speed from 512 bytes on.
SERIAL_ROW_BYTES = (1024, 512, 256, 128, 64, 32, 16)
#: Rows longer than this are taken only if there are enough strips for every block: in caches, they are no
#: faster.
LONG_SERIAL_ROW_BYTES = 256
#: Smallest output, in bytes, that one thread writes past the caches: smaller ones stay in them.
SERIAL_STREAMED_BYTES = 3 << 20

#: The structs of the kernels.
_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_rows, rows_per_block, row_items, row_source_stride, row_target_stride, axis_stride",
    "Int32 axis",
)
_COLUMNS_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_strips, strips_per_block, row_items, strip_items, lane_items",
    "Int64 row_source_stride, row_target_stride, row_length_stride",
    "Int64 axis_source_stride, axis_target_stride",
    "Int32 is_large",
)


def serial(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout, by blocks of one thread: a row is a lane, or crosses lanes of one length."""
    space, axis = with_axis(lanes)
    if space.dimensions[0].strides[LENGTHS] != 0:
        space, axis = (
            Space((space.dimensions[axis], *lanes.others.dimensions), space.offsets, space.item_bytes),
            0,
        )
    row, *rest = space.dimensions
    rows = Space(tuple(rest), space.offsets, space.item_bytes)
    num_blocks, rows_per_block = serial_blocks(rows.num_items, row.size * lanes.item_bytes, limits)
    return reversal_launch(
        "serial",
        _PARAMS,
        (ITEM_TYPES[lanes.item_bytes],),
        num_blocks,
        {
            **lanes.values(rows),
            "num_rows": rows.num_items,
            "rows_per_block": rows_per_block,
            "row_items": row.size,
            "row_source_stride": row.strides[SOURCE],
            "row_target_stride": row.strides[TARGET],
            "axis_stride": lanes.axis.strides[SOURCE],
            "axis": axis - 1,
        },
        block_threads=1,
        constants=(),
    )


def serial_strip_shape(lanes: Lanes, limits: Limits) -> tuple[int, int, int] | None:
    """A strip of one thread: its lanes, a power of two, the bytes per lane and the bytes of storage.

    None if no strip fits.
    """
    row, *outer = lanes.others.dimensions
    num_rows = math.prod(d.size for d in outer)
    most = 1 << (row.size - 1).bit_length()
    # A gap between lanes keeps the bytes that are read before a lane apart from those written with the
    # previous lane: otherwise loads would wait for stores. A pitch that is no large power of two spreads the
    # lanes of a tile over the sets of a cache.
    lane_bytes = round_up(lanes.axis.size * lanes.item_bytes, MIRRORED_BYTES) + MIRRORED_BYTES + TILE_BYTES
    num_blocks = most_serial_blocks(limits)
    for row_bytes in SERIAL_ROW_BYTES:
        width = max(1, min(row_bytes // lanes.item_bytes, most))
        num_strips = num_rows * ceil_div(row.size, width)
        # Lengths, lanes with gaps before the first and behind the last, and the rows of a row of tiles.
        stored = 3 * MIRRORED_BYTES + width * (8 + lane_bytes + TILE_BYTES)
        if stored <= limits.shared_bytes_per_block and (
            num_strips >= num_blocks or row_bytes <= LONG_SERIAL_ROW_BYTES
        ):
            return width, lane_bytes, stored
    return None


def lengths_differ_in_rows(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes have lengths of their own and cross rows, and strips of them fit a block's storage."""
    if not lanes.others.dimensions:
        return False
    row = lanes.others.dimensions[0].strides
    differ = row[LENGTHS] != 0 and row[TARGET] <= abs(lanes.axis.strides[TARGET])
    return differ and serial_strip_shape(lanes, limits) is not None


def serial_columns(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes of their own lengths that cross rows, by blocks of one thread: strips in shared storage."""
    row, *outer = lanes.others.dimensions
    shape = serial_strip_shape(lanes, limits)
    if shape is None:
        raise ValueError("serial_columns: no strip of these lanes fits a block's storage")
    width, lane_bytes, stored = shape
    is_large = lanes.num_bytes >= SERIAL_STREAMED_BYTES
    # If strips begin at cache lines, a row may have one strip more.
    reach = row.size + (LINE_BYTES // lanes.item_bytes - 1 if is_large else 0)
    across = Dimension(ceil_div(reach, width), tuple(width * stride for stride in row.strides))
    strips = Space((across, *outer), lanes.others.offsets, lanes.item_bytes)
    num_blocks, strips_per_block = serial_blocks(strips.num_items, width * lane_bytes, limits)
    return reversal_launch(
        "serial_columns",
        _COLUMNS_PARAMS,
        (ITEM_TYPES[lanes.item_bytes],),
        num_blocks,
        {
            **lanes.values(strips),
            "num_strips": strips.num_items,
            "strips_per_block": strips_per_block,
            "row_items": row.size,
            "strip_items": width,
            "lane_items": lane_bytes // lanes.item_bytes,
            "row_source_stride": row.strides[SOURCE],
            "row_target_stride": row.strides[TARGET],
            "row_length_stride": row.strides[LENGTHS],
            "axis_source_stride": lanes.axis.strides[SOURCE],
            "axis_target_stride": lanes.axis.strides[TARGET],
            "is_large": int(is_large),
        },
        block_threads=1,
        shared_bytes=stored,
        constants=(
            (f"{TILE_BYTES} % kTileBytes", 0),
            (f"{MIRRORED_BYTES} % kMirroredBytes", 0),
            (f"{LINE_BYTES} % kLineBytes", 0),
        ),
    )
