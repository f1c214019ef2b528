"""Reversals that move runs: contiguous lanes, or rows that lanes of one length cross."""

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import RUN_CONSTANTS, grid_blocks, run_shape
from cudml.operators.reverse_subsequences.lanes import LANE_SPACE, SOURCE, Lanes, reversal_launch, with_axis
from cudml.plans import KernelLaunch, Limits, ParamStruct, ceil_div

#: The structs of the kernels.
_LANES_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_pieces, piece_bytes, source_begin, source_end",
    "Int32 item_bytes, is_backwards, group_shift",
)
_ROWS_PARAMS = ParamStruct(
    *LANE_SPACE,
    "Int64 num_pieces, run_bytes, piece_bytes, source_begin, source_end, axis_stride",
    "Int32 axis, item_bytes, group_shift",
)


def lanes_are_runs(lanes: Lanes, limits: Limits) -> bool:
    """Whether every lane is contiguous in the target, and contiguous or mirrored in the source."""
    return lanes.axis.strides in ((1, 1, 0), (-1, 1, 0))


def whole_lanes(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Contiguous lanes: two runs each, one mirrored."""
    others, along, item_bytes = lanes.others, lanes.axis, lanes.item_bytes
    shape = run_shape(along.size * item_bytes, lanes.num_bytes, limits)
    pieces = Space(
        (Dimension(shape.pieces_per_run, (0, 0, 0)), *others.dimensions), others.offsets, item_bytes
    )
    begin, end = lanes.extent
    return reversal_launch(
        "lanes",
        _LANES_PARAMS,
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        {
            **lanes.values(pieces, unit=item_bytes),
            "num_pieces": pieces.num_items,
            "piece_bytes": shape.piece_bytes,
            "source_begin": begin,
            "source_end": end,
            "item_bytes": item_bytes,
            "is_backwards": int(along.strides[SOURCE] < 0),
            "group_shift": shape.group_shift,
        },
        constants=RUN_CONSTANTS,
    )


def rows_share_lengths(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides and have one length each."""
    return bool(lanes.others.dimensions) and lanes.others.dimensions[0].strides == (1, 1, 0)


def whole_rows(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes that cross rows of one length: whole rows move as runs."""
    others, item_bytes = lanes.others, lanes.item_bytes
    run_bytes = others.dimensions[0].size * item_bytes
    shape = run_shape(run_bytes, lanes.num_bytes, limits)
    space, axis = with_axis(lanes)
    pieces = Space(
        (Dimension(shape.pieces_per_run, (0, 0, 0)), *space.dimensions[1:]), space.offsets, item_bytes
    )
    begin, end = lanes.extent
    return reversal_launch(
        "rows",
        _ROWS_PARAMS,
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        {
            **lanes.values(pieces, unit=item_bytes),
            "num_pieces": pieces.num_items,
            "run_bytes": run_bytes,
            "piece_bytes": shape.piece_bytes,
            "source_begin": begin,
            "source_end": end,
            "axis_stride": lanes.axis.strides[SOURCE] * item_bytes,
            "axis": axis,
            "item_bytes": item_bytes,
            "group_shift": shape.group_shift,
        },
        constants=RUN_CONSTANTS,
    )
