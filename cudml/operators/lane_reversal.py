"""The steps of `REVERSE_SUBSEQUENCES`: what reverses lanes of a given layout.

Operands of an index space here are the source, the target and the lengths; the dimension that the
lanes run along is kept apart, since only its source coordinate depends on the data.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cudml.operators.coalesce import Dimension, Space, coalesced, dimensions_of, span_bytes, widened
from cudml.operators.strided_copy import (
    BLOCK_THREADS,
    Members,
    copy_step,
    grid_blocks,
    index_members,
    item_type,
    run_pays,
    run_shape,
    serial_blocks,
)
from cudml.plans import KernelLaunch, Limits, Params, Step, ceil_div
from cudml.tensors import TensorDesc

SOURCE, TARGET, LENGTHS = 0, 1, 2

#: What the gather kernel is compiled with.
GATHER_ITEMS_PER_THREAD = 4

#: Strips of lanes are as wide as fits, down to one sector.
STRIP_BYTES = (128, 64, 32)

#: Blocks that share a multiprocessor's shared storage when strips are sized.
STRIPS_PER_MULTIPROCESSOR = 3

_BUFFERS = ("input_tensor", "sequence_lengths_tensor", "output_tensor")


@dataclass(frozen=True)
class Lanes:
    """The movement with the axis apart: `others` indexes the lanes, `axis` the places in one."""

    others: Space
    axis: Dimension
    lengths: TensorDesc

    @property
    def item_bytes(self) -> int:
        """Bytes moved at once."""
        return self.others.item_bytes

    @property
    def num_bytes(self) -> int:
        """All that is moved."""
        return self.others.num_items * self.axis.size * self.item_bytes

    @property
    def extent(self) -> tuple[int, int]:
        """The bytes of the source from the first to past the last, from its pointer."""
        others = self.others
        return span_bytes(Space((*others.dimensions, self.axis), others.offsets, self.item_bytes), SOURCE)

    def length_members(self) -> Members:
        """The members that tell a kernel the type of the lengths."""
        element = self.lengths.element
        return {
            "length_bytes": ("Int32", element.size),
            "length_is_signed": ("Int32", int(element.kind == "i")),
        }


@dataclass(frozen=True)
class Pattern:
    """A kernel for lanes of one kind: whether it can reverse them, whether it pays, and its launch."""

    can: Callable[[Lanes, Limits], bool]
    pays: Callable[[Lanes, Limits], bool]
    launch: Callable[[Lanes, Limits], KernelLaunch]


def reversal_step(
    source: TensorDesc, lengths: TensorDesc, target: TensorDesc, axis: int, limits: Limits
) -> Step:
    """The step that reverses the lanes of a tensor that is not empty."""
    lanes = lanes_of(source, lengths, target, axis)
    if lanes.axis.size == 1:
        copied = tuple(Dimension(d.size, d.strides[:LENGTHS]) for d in lanes.others.dimensions)
        space = Space(copied, lanes.others.offsets[:LENGTHS], lanes.item_bytes)
        return copy_step(space, _BUFFERS[0], _BUFFERS[2], limits)
    pattern = next(p for p in PATTERNS.values() if p.can(lanes, limits) and p.pays(lanes, limits))
    return pattern.launch(lanes, limits)


def lanes_of(source: TensorDesc, lengths: TensorDesc, target: TensorDesc, axis: int) -> Lanes:
    """The lanes in as few steps as can be, and items as wide as the neighbours that share a length."""
    dimensions = dimensions_of(
        target.sizes,
        source.element_strides,
        target.element_strides,
        tuple(0 if i == axis else stride for i, stride in enumerate(lengths.element_strides)),
    )
    position = len(dimensions) - 1 - axis
    along = dimensions[position]
    others = Space(dimensions[:position] + dimensions[position + 1 :], (0, 0, 0), target.element.size)
    others = coalesced(others, TARGET, moved=())
    # The axis takes part as the outermost dimension: its strides bound the width, its size never does.
    whole = Space((*others.dimensions, along), others.offsets, others.item_bytes)
    whole = widened(whole, moved=(SOURCE, TARGET), kept=1)
    return Lanes(Space(whole.dimensions[:-1], whole.offsets, whole.item_bytes), whole.dimensions[-1], lengths)


def gather(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout: a thread finds the place of each of its items and asks the lane's length."""
    others, along = lanes.others, lanes.axis
    space, axis = _with_axis(lanes)
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return _launch(
        "gather",
        (item_type(space.item_bytes),),
        grid_blocks(num_tiles, limits),
        Params.of(
            num_items=("Int64", space.num_items),
            num_tiles=("Int64", num_tiles),
            source_offset=("Int64", others.offsets[SOURCE]),
            target_offset=("Int64", others.offsets[TARGET]),
            length_offset=("Int64", others.offsets[LENGTHS]),
            axis_size=("Int64", along.size),
            axis_stride=("Int64", along.strides[SOURCE]),
            **_index_members(space, unit=1),
            axis=("Int32", axis),
            **lanes.length_members(),
        ),
    )


def serial(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout by blocks of one thread: rows are lanes, or run across them at one place."""
    others, along = lanes.others, lanes.axis
    space, axis = _with_axis(lanes)
    row, *rest = space.dimensions
    rows = Space(tuple(rest), space.offsets, space.item_bytes)
    num_blocks, rows_per_block = serial_blocks(rows.num_items, row.size * lanes.item_bytes, limits)
    return _launch(
        "serial",
        (item_type(lanes.item_bytes),),
        num_blocks,
        Params.of(
            num_rows=("Int64", rows.num_items),
            rows_per_block=("Int64", rows_per_block),
            row_items=("Int64", row.size),
            source_offset=("Int64", others.offsets[SOURCE]),
            target_offset=("Int64", others.offsets[TARGET]),
            length_offset=("Int64", others.offsets[LENGTHS]),
            row_source_stride=("Int64", row.strides[SOURCE]),
            row_target_stride=("Int64", row.strides[TARGET]),
            row_length_stride=("Int64", row.strides[LENGTHS]),
            axis_size=("Int64", along.size),
            axis_stride=("Int64", along.strides[SOURCE]),
            **_index_members(rows, unit=1),
            axis=("Int32", axis - 1),
            **lanes.length_members(),
        ),
        block_threads=1,
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
    return _launch(
        "lanes",
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        Params.of(
            num_pieces=("Int64", pieces.num_items),
            axis_size=("Int64", along.size),
            piece_bytes=("Int64", shape.piece_bytes),
            source_offset=("Int64", others.offsets[SOURCE] * item_bytes),
            target_offset=("Int64", others.offsets[TARGET] * item_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            length_offset=("Int64", others.offsets[LENGTHS]),
            **_index_members(pieces, unit=item_bytes),
            item_bytes=("Int32", item_bytes),
            is_backwards=("Int32", int(along.strides[SOURCE] < 0)),
            **shape.members(),
            **lanes.length_members(),
        ),
    )


def rows_share_lengths(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides and have one length each."""
    return bool(lanes.others.dimensions) and lanes.others.dimensions[0].strides == (1, 1, 0)


def whole_rows(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes that cross rows of one length: whole rows move as runs."""
    others, along, item_bytes = lanes.others, lanes.axis, lanes.item_bytes
    run_bytes = others.dimensions[0].size * item_bytes
    shape = run_shape(run_bytes, lanes.num_bytes, limits)
    space, axis = _with_axis(lanes)
    pieces = Space(
        (Dimension(shape.pieces_per_run, (0, 0, 0)), *space.dimensions[1:]), space.offsets, item_bytes
    )
    begin, end = lanes.extent
    return _launch(
        "rows",
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        Params.of(
            num_pieces=("Int64", pieces.num_items),
            run_bytes=("Int64", run_bytes),
            piece_bytes=("Int64", shape.piece_bytes),
            source_offset=("Int64", others.offsets[SOURCE] * item_bytes),
            target_offset=("Int64", others.offsets[TARGET] * item_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            length_offset=("Int64", others.offsets[LENGTHS]),
            axis_size=("Int64", along.size),
            axis_stride=("Int64", along.strides[SOURCE] * item_bytes),
            **_index_members(pieces, unit=item_bytes),
            axis=("Int32", axis),
            **shape.members(),
            **lanes.length_members(),
        ),
    )


def strip_width(lanes: Lanes, limits: Limits) -> int | None:
    """The most lanes, a power of two, whose strip fits the shared storage; None where no sector's does."""
    share = limits.shared_bytes_per_multiprocessor // STRIPS_PER_MULTIPROCESSOR
    most = min(share, limits.shared_bytes_per_block)
    row = 1 << (lanes.others.dimensions[0].size - 1).bit_length()
    widths = (min(width // lanes.item_bytes, row) for width in STRIP_BYTES)
    return next((width for width in widths if width * lanes.item_bytes * lanes.axis.size <= most), None)


def strips_fit(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides, and a strip of them fits."""
    if not lanes.others.dimensions or lanes.others.dimensions[0].strides[:LENGTHS] != (1, 1):
        return False
    return strip_width(lanes, limits) is not None


def columns(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes that cross rows, each of its own length: strips of them through shared storage."""
    others, along = lanes.others, lanes.axis
    row, *outer = others.dimensions
    width = strip_width(lanes, limits) or 1
    strips = Space(
        (Dimension(ceil_div(row.size, width), (0, 0, 0)), *outer), others.offsets, lanes.item_bytes
    )
    return _launch(
        "columns",
        (item_type(lanes.item_bytes),),
        grid_blocks(strips.num_items, limits),
        Params.of(
            num_strips=("Int64", strips.num_items),
            num_columns=("Int64", row.size),
            axis_size=("Int64", along.size),
            source_offset=("Int64", others.offsets[SOURCE]),
            target_offset=("Int64", others.offsets[TARGET]),
            length_offset=("Int64", others.offsets[LENGTHS]),
            axis_source_stride=("Int64", along.strides[SOURCE]),
            axis_target_stride=("Int64", along.strides[TARGET]),
            column_length_stride=("Int64", row.strides[LENGTHS]),
            **_index_members(strips, unit=1),
            column_shift=("Int32", width.bit_length() - 1),
            **lanes.length_members(),
        ),
        shared_bytes=width * lanes.item_bytes * along.size,
    )


def _with_axis(lanes: Lanes) -> tuple[Space, int]:
    """All dimensions in the target's order, the axis without a source stride, and where it stands."""
    others, along = lanes.others, lanes.axis
    placed = Dimension(along.size, (0, *along.strides[TARGET:]))
    ordered = sorted((*others.dimensions, placed), key=lambda dimension: abs(dimension.strides[TARGET]))
    axis = next(i for i, dimension in enumerate(ordered) if dimension is placed)
    return Space(tuple(ordered), others.offsets, others.item_bytes), axis


def _index_members(space: Space, unit: int) -> Members:
    """The members for the three operands; lengths count lengths, whatever the unit of the others."""
    return index_members(space, source_strides=unit, target_strides=unit, length_strides=1)


def _launch(
    name: str,
    template: tuple[str, ...],
    num_blocks: int,
    params: Params,
    shared_bytes: int = 0,
    block_threads: int = BLOCK_THREADS,
) -> KernelLaunch:
    """A launch of `reverse_subsequences/<name>.cu`."""
    return KernelLaunch(
        source=f"reverse_subsequences/{name}.cu",
        function=f"reverse_{name}",
        template=template,
        grid=(num_blocks, 1, 1),
        block=(block_threads, 1, 1),
        buffers=_BUFFERS,
        params=params,
        shared_bytes=shared_bytes,
    )


def _columns_pay(lanes: Lanes, limits: Limits) -> bool:
    """Neighbours of one length come from one row anyway; narrow rows waste sectors unless they touch."""
    row = lanes.others.dimensions[0]
    touch = lanes.axis.strides[:LENGTHS] == (row.size, row.size)
    return row.strides[LENGTHS] != 0 and (touch or row.size * lanes.item_bytes >= STRIP_BYTES[-1])


#: The first that can and pays is taken; the last reverses any lanes.
PATTERNS: dict[str, Pattern] = {
    "serial": Pattern(lambda s, limits: True, lambda s, limits: limits.warp_lanes == 1, serial),
    "lanes": Pattern(lanes_are_runs, lambda s, limits: run_pays(s.axis.size, s.item_bytes), whole_lanes),
    "rows": Pattern(
        rows_share_lengths,
        lambda s, limits: run_pays(s.others.dimensions[0].size, s.item_bytes),
        whole_rows,
    ),
    "columns": Pattern(strips_fit, _columns_pay, columns),
    "gather": Pattern(lambda s, limits: True, lambda s, limits: True, gather),
}
