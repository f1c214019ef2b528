"""The steps of `REVERSE_SUBSEQUENCES`: what reverses lanes of a given layout.

Operands of an index space here are the source, the target and the lengths; the dimension that the
lanes run along is kept apart, since only its source coordinate depends on the data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cudml.operators.index_space import (
    Dimension,
    Space,
    coalesced,
    dimensions_of,
    magic_division,
    merged,
    span_bytes,
    widened,
)
from cudml.operators.launch_shape import (
    BLOCK_THREADS,
    WARP_LANES,
    WORD_BYTES,
    Members,
    grid_blocks,
    index_members,
    item_type,
    run_shape,
    serial_blocks,
)
from cudml.operators.slice_paths import copy_step
from cudml.plans import MAX_GRID_BLOCKS, KernelLaunch, Limits, Params, Step, ceil_div, round_up
from cudml.tensors import TensorDesc

SOURCE, TARGET, LENGTHS = 0, 1, 2

#: What the gather kernel is compiled with.
GATHER_ITEMS_PER_THREAD = 4

#: Most bytes of a tile of boxes: one word less than the kernel's, since the first and the last are in part.
BOX_TILE_BYTES = (1024 - 1) * WORD_BYTES
BOX_TILE_LANES = 4096

#: Tiles are smaller where there are not enough of them for so many blocks.
BOX_BLOCKS_PER_MULTIPROCESSOR = 4
MIN_BOX_TILE_BYTES = 4096

#: Largest boxes of one lane, in bytes, by the size of their item: above, words that are shifted and reversed
#: cost no more instructions than items picked one by one. And of several lanes, which have no words.
MAX_LANE_BOX_BYTES = {1: 128, 2: 512, 4: 1024, 8: 1024, 16: 1024}
MAX_BOX_BYTES = 4096

#: Shortest lanes and rows, in bytes, that are worth shifting words for, by the size of their widest item:
#: below, moving items one by one costs no more instructions.
MIN_RUN_BYTES = {1: 24, 2: 32, 4: 96, 8: 256, 16: 512}

LINE_BYTES = 128
SECTOR_BYTES = 32

#: Strips of lanes are as wide as fits, down to half a sector, of which a neighbour takes the other half.
STRIP_BYTES = (1024, 512, 256, 128, 64, 32, 16)

#: Blocks that share a multiprocessor's shared storage where strips fit so; else one has it all.
STRIPS_PER_MULTIPROCESSOR = (3, 1)

#: Rows of strips that one thread reverses: the longest that leave a strip this small, and so in a near cache;
#: the last ones wherever a strip of them fits a block's storage.
SERIAL_ROW_BYTES = (256, 128, 64, 32, 16)
SERIAL_STRIP_BYTES = 1 << 16

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

    def members(self, space: Space, unit: int = 1) -> Members:
        """The members of `LaneSpace`, for the kernel's own index space.

        `unit` is what source and target are counted in: 1 for items, the item's size for bytes. Lengths
        count lengths.
        """
        element, offsets = self.lengths.element, self.others.offsets
        return {
            "axis_size": ("Int64", self.axis.size),
            "source_offset": ("Int64", offsets[SOURCE] * unit),
            "target_offset": ("Int64", offsets[TARGET] * unit),
            "length_offset": ("Int64", offsets[LENGTHS]),
            **index_members(space, source_strides=unit, target_strides=unit, length_strides=1),
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
    space, axis = _with_axis(lanes)
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return _launch(
        "gather",
        (item_type(space.item_bytes),),
        grid_blocks(num_tiles, limits),
        Params.of(
            **lanes.members(space),
            num_items=("Int64", space.num_items),
            num_tiles=("Int64", num_tiles),
            axis_stride=("Int64", lanes.axis.strides[SOURCE]),
            axis=("Int32", axis),
        ),
    )


def serial(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout by blocks of one thread: rows are lanes, or run at one place across lanes of one length."""
    space, axis = _with_axis(lanes)
    if space.dimensions[0].strides[LENGTHS] != 0:
        space, axis = (
            Space((space.dimensions[axis], *lanes.others.dimensions), space.offsets, space.item_bytes),
            0,
        )
    row, *rest = space.dimensions
    rows = Space(tuple(rest), space.offsets, space.item_bytes)
    num_blocks, rows_per_block = serial_blocks(rows.num_items, row.size * lanes.item_bytes, limits)
    return _launch(
        "serial",
        (item_type(lanes.item_bytes),),
        num_blocks,
        Params.of(
            **lanes.members(rows),
            num_rows=("Int64", rows.num_items),
            rows_per_block=("Int64", rows_per_block),
            row_items=("Int64", row.size),
            row_source_stride=("Int64", row.strides[SOURCE]),
            row_target_stride=("Int64", row.strides[TARGET]),
            axis_stride=("Int64", lanes.axis.strides[SOURCE]),
            axis=("Int32", axis - 1),
        ),
        block_threads=1,
    )


def serial_strip_width(lanes: Lanes, limits: Limits) -> int | None:
    """The most lanes, a power of two, whose strip one thread reverses; None where no strip fits."""
    most = 1 << (lanes.others.dimensions[0].size - 1).bit_length()
    lane_bytes = lanes.axis.size * lanes.item_bytes
    for row_bytes in SERIAL_ROW_BYTES:
        width = min(row_bytes // lanes.item_bytes, most)
        is_last = row_bytes == SERIAL_ROW_BYTES[-1]
        room = limits.shared_bytes_per_block
        if width * lane_bytes <= (room if is_last else min(room, SERIAL_STRIP_BYTES)):
            return width
    return None


def lengths_differ_in_rows(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows, each of its own length, and strips of them fit a block's storage."""
    space, axis = _with_axis(lanes)
    differ = axis > 0 and space.dimensions[0].strides[LENGTHS] != 0
    return differ and serial_strip_width(lanes, limits) is not None


def serial_columns(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes that cross rows, each of its own length, by blocks of one thread: strips in shared storage."""
    row, *outer = lanes.others.dimensions
    width = serial_strip_width(lanes, limits) or 1
    across = Dimension(ceil_div(row.size, width), tuple(width * stride for stride in row.strides))
    strips = Space((across, *outer), lanes.others.offsets, lanes.item_bytes)
    strip_bytes = width * lanes.axis.size * lanes.item_bytes
    num_blocks, strips_per_block = serial_blocks(strips.num_items, strip_bytes, limits)
    return _launch(
        "serial_columns",
        (item_type(lanes.item_bytes),),
        num_blocks,
        Params.of(
            **lanes.members(strips),
            num_strips=("Int64", strips.num_items),
            strips_per_block=("Int64", strips_per_block),
            row_items=("Int64", row.size),
            strip_items=("Int64", width),
            row_source_stride=("Int64", row.strides[SOURCE]),
            row_target_stride=("Int64", row.strides[TARGET]),
            row_length_stride=("Int64", row.strides[LENGTHS]),
            axis_source_stride=("Int64", lanes.axis.strides[SOURCE]),
            axis_target_stride=("Int64", lanes.axis.strides[TARGET]),
        ),
        block_threads=1,
        shared_bytes=round_up(strip_bytes, WORD_BYTES),
    )


def boxes_touch(lanes: Lanes, limits: Limits) -> bool:
    """Whether source and target are the same boxes one after another, small enough for a tile.

    A box is what the axis and the dimensions inside it span: one lane, or several that cross its rows.
    """
    count = 1
    for dimension in sorted((*lanes.others.dimensions, lanes.axis), key=lambda d: d.strides[TARGET]):
        if dimension.strides[:LENGTHS] != (count, count):
            return False
        count *= dimension.size
    return _box_bytes(lanes) <= BOX_TILE_BYTES


def boxes(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Small boxes one after another: many of them through shared storage at once."""
    row_lanes, axis_size = lanes.axis.strides[TARGET], lanes.axis.size
    in_lengths = merged(Dimension(d.size, (0, 0, d.strides[LENGTHS])) for d in lanes.others.dimensions)
    each = Space(in_lengths, lanes.others.offsets, lanes.item_bytes)
    share = ceil_div(lanes.num_bytes, limits.num_multiprocessors * BOX_BLOCKS_PER_MULTIPROCESSOR)
    tile_bytes = min(max(share, MIN_BOX_TILE_BYTES), BOX_TILE_BYTES)
    tile_boxes = max(1, min(tile_bytes // _box_bytes(lanes), BOX_TILE_LANES // row_lanes))
    # Where a tile can end with a word, none shares words with its neighbours.
    whole = WORD_BYTES // math.gcd(WORD_BYTES, _box_bytes(lanes))
    tile_boxes -= tile_boxes % whole if tile_boxes >= whole else 0
    num_tiles = ceil_div(each.num_items, tile_boxes * row_lanes)
    box_multiplier, box_shift = magic_division(row_lanes * axis_size, 32)
    row_multiplier, row_shift = magic_division(row_lanes, 32)
    return _launch(
        "boxes",
        (item_type(lanes.item_bytes), row_lanes > 1),
        grid_blocks(num_tiles, limits),
        Params.of(
            **lanes.members(each),
            num_lanes=("Int64", each.num_items),
            num_tiles=("Int64", num_tiles),
            box_multiplier=("UInt32", box_multiplier),
            row_multiplier=("UInt32", row_multiplier),
            box_shift=("Int32", box_shift),
            row_shift=("Int32", row_shift),
            box_items=("Int32", row_lanes * axis_size),
            row_lanes=("Int32", row_lanes),
            tile_lanes=("Int32", tile_boxes * row_lanes),
        ),
        shared_bytes=BOX_TILE_BYTES + WORD_BYTES + round_up(2 * tile_boxes * row_lanes, WORD_BYTES),
    )


def lanes_are_runs(lanes: Lanes, limits: Limits) -> bool:
    """Whether every lane is contiguous in the target, and contiguous or mirrored in the source."""
    return lanes.axis.strides in ((1, 1, 0), (-1, 1, 0))


def whole_lanes(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Contiguous lanes: two runs each, one mirrored."""
    others, along, item_bytes = lanes.others, lanes.axis, lanes.item_bytes
    # Short ones by single warps: each has words of one run then, unless both runs of a lane meet in it.
    shape = run_shape(along.size * item_bytes, lanes.num_bytes, limits, WARP_LANES)
    pieces = Space(
        (Dimension(shape.pieces_per_run, (0, 0, 0)), *others.dimensions), others.offsets, item_bytes
    )
    begin, end = lanes.extent
    return _launch(
        "lanes",
        (),
        grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits),
        Params.of(
            **lanes.members(pieces, unit=item_bytes),
            num_pieces=("Int64", pieces.num_items),
            piece_bytes=("Int64", shape.piece_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            item_bytes=("Int32", item_bytes),
            is_backwards=("Int32", int(along.strides[SOURCE] < 0)),
            **shape.members(),
        ),
    )


def rows_share_lengths(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides and have one length each."""
    return bool(lanes.others.dimensions) and lanes.others.dimensions[0].strides == (1, 1, 0)


def whole_rows(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes that cross rows of one length: whole rows move as runs."""
    others, item_bytes = lanes.others, lanes.item_bytes
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
            **lanes.members(pieces, unit=item_bytes),
            num_pieces=("Int64", pieces.num_items),
            run_bytes=("Int64", run_bytes),
            piece_bytes=("Int64", shape.piece_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            axis_stride=("Int64", lanes.axis.strides[SOURCE] * item_bytes),
            axis=("Int32", axis),
            **shape.members(),
        ),
    )


def strip_width(lanes: Lanes, limits: Limits) -> int | None:
    """The most lanes, a power of two, whose strip fits the shared storage; None where no strip does.

    Strips wider than a line are for short lanes, and there have to be enough of them.
    """
    row_size, item_bytes = lanes.others.dimensions[0].size, lanes.item_bytes
    num_rows = lanes.others.num_items // row_size
    most = min(BLOCK_THREADS, 1 << (row_size - 1).bit_length())
    # What the system keeps for itself of each block's share.
    reserved = limits.shared_bytes_per_multiprocessor - limits.shared_bytes_per_block
    for num_blocks in STRIPS_PER_MULTIPROCESSOR:
        room = limits.shared_bytes_per_multiprocessor // num_blocks - reserved
        for width in (min(strip_bytes // item_bytes, most) for strip_bytes in STRIP_BYTES):
            num_strips = num_rows * ceil_div(row_size, width)
            is_spread = num_strips >= num_blocks * limits.num_multiprocessors
            fits = width * item_bytes * lanes.axis.size <= room
            if fits and (is_spread or width * item_bytes <= LINE_BYTES):
                return width
    return None


def strips_fit(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides, and strips of them fit, a block each."""
    if not lanes.others.dimensions or lanes.others.dimensions[0].strides[:LENGTHS] != (1, 1):
        return False
    width = strip_width(lanes, limits)
    row, *outer = lanes.others.dimensions
    num_rows = math.prod(d.size for d in outer)
    return width is not None and num_rows * ceil_div(row.size, width) <= MAX_GRID_BLOCKS


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
        strips.num_items,
        Params.of(
            **lanes.members(strips),
            num_columns=("Int64", row.size),
            axis_source_stride=("Int64", along.strides[SOURCE]),
            axis_target_stride=("Int64", along.strides[TARGET]),
            column_length_stride=("Int64", row.strides[LENGTHS]),
            column_shift=("Int32", width.bit_length() - 1),
        ),
        shared_bytes=round_up(width * lanes.item_bytes * along.size, WORD_BYTES),
    )


def _with_axis(lanes: Lanes) -> tuple[Space, int]:
    """All dimensions in the target's order, the axis without a source stride, and where it stands."""
    others, along = lanes.others, lanes.axis
    placed = Dimension(along.size, (0, *along.strides[TARGET:]))
    ordered = sorted((*others.dimensions, placed), key=lambda dimension: abs(dimension.strides[TARGET]))
    axis = next(i for i, dimension in enumerate(ordered) if dimension is placed)
    return Space(tuple(ordered), others.offsets, others.item_bytes), axis


def _box_bytes(lanes: Lanes) -> int:
    """Bytes of the axis and the dimensions inside it, where those have no gaps."""
    return lanes.axis.strides[TARGET] * lanes.axis.size * lanes.item_bytes


def _launch(
    name: str,
    template: tuple[str | int | bool, ...],
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
    return row.strides[LENGTHS] != 0 and (touch or row.size * lanes.item_bytes >= SECTOR_BYTES)


def _boxes_pay(lanes: Lanes, limits: Limits) -> bool:
    """Whether the boxes are small: a larger one has runs of its own, or is a strip of columns."""
    is_lane = lanes_are_runs(lanes, limits)
    return _box_bytes(lanes) <= (MAX_LANE_BOX_BYTES[lanes.item_bytes] if is_lane else MAX_BOX_BYTES)


def _run_pays(num_items: int, item_bytes: int) -> bool:
    return num_items * item_bytes >= MIN_RUN_BYTES[item_bytes]


#: The first that can and pays is taken; the last reverses any lanes.
PATTERNS: dict[str, Pattern] = {
    "serial_columns": Pattern(
        lengths_differ_in_rows, lambda s, limits: limits.warp_lanes == 1, serial_columns
    ),
    "serial": Pattern(lambda s, limits: True, lambda s, limits: limits.warp_lanes == 1, serial),
    "boxes": Pattern(boxes_touch, _boxes_pay, boxes),
    "lanes": Pattern(lanes_are_runs, lambda s, limits: _run_pays(s.axis.size, s.item_bytes), whole_lanes),
    "rows": Pattern(
        rows_share_lengths,
        lambda s, limits: _run_pays(s.others.dimensions[0].size, s.item_bytes),
        whole_rows,
    ),
    "columns": Pattern(strips_fit, _columns_pay, columns),
    "gather": Pattern(lambda s, limits: True, lambda s, limits: True, gather),
}
