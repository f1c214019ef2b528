"""Copies on a CPU, by blocks of one thread."""

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import ITEM_TYPES, index_values, launch_of, serial_blocks
from cudml.operators.slice.box import BOX_MEMBERS, SOURCE, TARGET, BoxCopy
from cudml.plans import KernelLaunch, Limits, Params, ParamStruct, ceil_div

#: Longest pieces of rows for blocks of one thread: the cores of a CPU share a row.
MAX_SERIAL_PIECE_BYTES = 1 << 16

#: The struct of the kernel.
_PARAMS = ParamStruct(
    "Int64 num_pieces, pieces_per_block, row_items, piece_items, piece_step, source_offset, target_offset",
    "Int64 row_source_stride, row_target_stride",
    *BOX_MEMBERS,
)


def serial(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Any copy, by blocks of one thread: whole rows, in plain loops."""
    space = copy.space
    row, *outer = space.dimensions or (Dimension(1, (1, 1)),)
    piece_items = min(row.size, MAX_SERIAL_PIECE_BYTES // space.item_bytes)
    is_cut = piece_items < row.size
    if is_cut:
        steps = tuple(piece_items * stride for stride in row.strides)
        outer = [Dimension(ceil_div(row.size, piece_items), steps), *outer]
    pieces = Space(tuple(outer), space.offsets, space.item_bytes)
    num_blocks, pieces_per_block = serial_blocks(pieces.num_items, piece_items * space.item_bytes, limits)
    values = {
        "num_pieces": pieces.num_items,
        "pieces_per_block": pieces_per_block,
        "row_items": row.size,
        "piece_items": piece_items,
        "piece_step": piece_items if is_cut else 0,
        "source_offset": space.offsets[SOURCE],
        "target_offset": space.offsets[TARGET],
        "row_source_stride": row.strides[SOURCE],
        "row_target_stride": row.strides[TARGET],
        **index_values(pieces, source_strides=1, target_strides=1),
    }
    return launch_of(
        "slice/serial.cu",
        "slice_serial",
        (ITEM_TYPES[space.item_bytes],),
        num_blocks,
        (copy.source, copy.target),
        Params(_PARAMS, values),
        block_threads=1,
        constants=(),
    )
