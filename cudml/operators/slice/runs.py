"""Copies of contiguous or mirrored rows."""

from cudml.operators.index_space import Dimension, Space, span_bytes
from cudml.operators.launch_shape import RUN_CONSTANTS, grid_blocks, index_values, launch_of, run_shape
from cudml.operators.slice.box import BOX_MEMBERS, SOURCE, TARGET, BoxCopy
from cudml.plans import KernelLaunch, Limits, Params, ParamStruct, ceil_div

#: The struct of the kernel.
_PARAMS = ParamStruct(
    "Int64 num_pieces, run_bytes, piece_bytes, source_offset, target_offset, source_begin, source_end",
    *BOX_MEMBERS,
    "Int32 item_bytes, is_reversed, group_shift",
)


def is_run(copy: BoxCopy, limits: Limits) -> bool:
    """Whether rows are contiguous in the target and contiguous or mirrored in the source."""
    space = copy.space
    return bool(space.dimensions) and space.dimensions[0].strides in ((1, 1), (-1, 1))


def runs(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Contiguous or mirrored rows: words of 16 bytes, shifted and reversed in registers."""
    space = copy.space
    run, *outer = space.dimensions
    is_reversed = run.strides[SOURCE] < 0
    lowest = space.offsets[SOURCE] - (run.size - 1 if is_reversed else 0)
    shape = run_shape(run.size * space.item_bytes, space.num_items * space.item_bytes, limits)
    pieces = Space((Dimension(shape.pieces_per_run, (0, 0)), *outer), space.offsets, space.item_bytes)
    begin, end = span_bytes(space, SOURCE)
    values = {
        "num_pieces": pieces.num_items,
        "run_bytes": run.size * space.item_bytes,
        "piece_bytes": shape.piece_bytes,
        "source_offset": lowest * space.item_bytes,
        "target_offset": space.offsets[TARGET] * space.item_bytes,
        "source_begin": begin,
        "source_end": end,
        **index_values(pieces, source_strides=space.item_bytes, target_strides=space.item_bytes),
        "item_bytes": space.item_bytes,
        "is_reversed": int(is_reversed),
        "group_shift": shape.group_shift,
    }
    return launch_of(
        "slice/runs.cu",
        "slice_runs",
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        (copy.source, copy.target),
        Params(_PARAMS, values),
        constants=RUN_CONSTANTS,
    )
