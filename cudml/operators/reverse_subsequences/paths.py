"""The paths of `REVERSE_SUBSEQUENCES`: the ways to reverse lanes of a given layout."""

import math
from typing import NamedTuple

from cudml.checks import MAX_DIMENSIONS
from cudml.operators.index_space import Dimension, Space, magic_division, merged
from cudml.operators.launch_shape import (
    BLOCK_CONSTANTS,
    BLOCK_THREADS,
    ITEM_TYPES,
    RUN_CONSTANTS,
    WORD_BYTES,
    grid_blocks,
    launch_of,
    most_serial_blocks,
    run_shape,
    serial_blocks,
)
from cudml.operators.path import (
    BY_TREE,
    Choice,
    Path,
    by_name,
    first_that_can,
    named_path,
    single_step,
)
from cudml.operators.reverse_subsequences.lanes import (
    LENGTHS,
    PARAMS,
    SOURCE,
    TARGET,
    Lanes,
    box_group_shift,
    lanes_of,
)
from cudml.operators.slice.paths import copy_step
from cudml.operators.tree import MOST_BYTES, Tree, read_tree
from cudml.plans import (
    MAX_GRID_BLOCKS,
    MEMORY_PIECE_BYTES,
    WARP_LANES,
    Constants,
    KernelLaunch,
    Limits,
    Params,
    Step,
    Value,
    ceil_div,
    round_up,
)
from cudml.tensors import TensorDesc

#: What the kernels are compiled with.
GATHER_ITEMS_PER_THREAD = 4
BOX_TILE_WORDS = 1024

# kernels/common/tiles.cuh, on the CPU with the widest registers.
TILE_BYTES = 32
MIRRORED_BYTES = 64
LINE_BYTES = 64

#: Maximum bytes of a tile of boxes: one word less than the kernel stores, because both ends may be partial.
BOX_TILE_BYTES = (BOX_TILE_WORDS - 1) * WORD_BYTES
#: As many lanes as a block loads lengths for at once.
BOX_TILE_LANES = 1024

_BOX_CONSTANTS: Constants = (
    *BLOCK_CONSTANTS,
    ("kWordBytes", WORD_BYTES),
    ("kTileWords", BOX_TILE_WORDS),
    ("kTileLanes", BOX_TILE_LANES),
)


#: Blocks of boxes per multiprocessor, below which tiles shrink: with 4, a whole wave, none may be late.
BOX_BLOCKS_PER_MULTIPROCESSOR = 3
#: The smallest tile of boxes: a word for each thread of a block.
MIN_BOX_TILE_BYTES = 4096
#: The largest part of a tile that is left empty so that tiles end with whole words: shared words are written
#: item by item.
MAX_EMPTY_PART = 1 / 8

#: Strips of lanes are as wide as fits, because rows are then longer to load, down to half a sector: a
#: neighbour uses the other half.
STRIP_BYTES = (1024, 512, 256, 128, 64, 32, 16)
#: Strips wider than a line of the cache are for short lanes, and only if there are enough of them.
WIDE_STRIP_BYTES = 128
#: Blocks that share a multiprocessor's shared storage if their strips fit, as many as its registers hold;
#: otherwise one has it all.
STRIPS_PER_MULTIPROCESSOR = (3, 1)

#: The part of the L2 that a panel of lanes takes in the source: half of the L2 may hold copies for the other
#: half of the multiprocessors, and stores pass through it as well.
PANEL_PART_OF_CACHE = 4
#: The widest panel: a tile of the gather is a row of it.
MOST_PANEL_LANES = BLOCK_THREADS * GATHER_ITEMS_PER_THREAD

#: Bytes of a row of the strips that one thread reverses: the most whose strip fits a block's storage. Memory
#: is read at full speed from 512 bytes on.
SERIAL_ROW_BYTES = (1024, 512, 256, 128, 64, 32, 16)
#: Rows longer than this are taken only if there are enough strips for every block: in caches, they are no
#: faster.
LONG_SERIAL_ROW_BYTES = 256
#: Smallest output, in bytes, that one thread writes past the caches: smaller ones stay in them.
SERIAL_STREAMED_BYTES = 3 << 20

_BUFFERS = ("input_tensor", "sequence_lengths_tensor", "output_tensor")


def reversal_step(
    source: TensorDesc,
    lengths: TensorDesc,
    target: TensorDesc,
    axis: int,
    limits: Limits,
    path: str | None = None,
) -> Step:
    """The step that reverses the lanes of a tensor that is not empty.

    Raises ValueError if `path` is not a key of `PATHS`, or cannot compute this reversal.
    """
    lanes = lanes_of(source, lengths, target, axis)
    taken = choose_path(lanes, limits).path if path is None else named_path(PATHS, path, lanes, limits)
    ((step,), _) = taken.steps(lanes, limits)
    return step


def any_lanes(lanes: Lanes, limits: Limits) -> bool:
    """Every layout."""
    return True


def are_single(lanes: Lanes, limits: Limits) -> bool:
    """Whether a lane is one element, which a reversal leaves in place."""
    return lanes.axis.size == 1


def copied(lanes: Lanes, limits: Limits) -> Step:
    """Lanes of one element: a copy, by a path of slices."""
    dimensions = tuple(Dimension(d.size, d.strides[:LENGTHS]) for d in lanes.others.dimensions)
    space = Space(dimensions, lanes.others.offsets[:LENGTHS], lanes.item_bytes)
    return copy_step(space, _BUFFERS[0], _BUFFERS[2], limits)


def gather(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout: a thread computes where each of its items lies and reads the lane's length."""
    space, axis = in_panels(*_with_axis(lanes), limits)
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return _launch(
        "gather",
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


def serial(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout, by blocks of one thread: a row is a lane, or crosses lanes of one length."""
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
    # What is read before a lane is not written with the lane before it, or else loads would wait for stores.
    # A pitch that is no large power of two spreads the lanes of a tile over the sets of a cache.
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
    # Strips that begin where lines do may be one more.
    reach = row.size + (LINE_BYTES // lanes.item_bytes - 1 if is_large else 0)
    across = Dimension(ceil_div(reach, width), tuple(width * stride for stride in row.strides))
    strips = Space((across, *outer), lanes.others.offsets, lanes.item_bytes)
    num_blocks, strips_per_block = serial_blocks(strips.num_items, width * lane_bytes, limits)
    return _launch(
        "serial_columns",
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


def boxes_touch(lanes: Lanes, limits: Limits) -> bool:
    """Whether source and target are the same boxes one after another, small enough for a tile.

    A box is the span of the axis and the dimensions inside it: one lane, or several that cross its rows.
    """
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


def boxes(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Small boxes one after another: many at once through shared storage."""
    row_lanes, axis_size = lanes.axis.strides[TARGET], lanes.axis.size
    in_lengths = merged(Dimension(d.size, (0, 0, d.strides[LENGTHS])) for d in lanes.others.dimensions)
    each = Space(in_lengths, lanes.others.offsets, lanes.item_bytes)
    tile_lanes = boxes_of_tile(lanes, limits) * row_lanes
    row_multiplier, row_shift = magic_division(row_lanes, 32)
    return _launch(
        "boxes",
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
    space, axis = _with_axis(lanes)
    pieces = Space(
        (Dimension(shape.pieces_per_run, (0, 0, 0)), *space.dimensions[1:]), space.offsets, item_bytes
    )
    begin, end = lanes.extent
    return _launch(
        "rows",
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


def strip_width(lanes: Lanes, limits: Limits) -> int | None:
    """The maximum number of lanes, a power of two, whose strip fits the shared storage; None if none does.

    Strips wider than a cache line are for short lanes, and only if there are enough of them.
    """
    row_size, item_bytes = lanes.others.dimensions[0].size, lanes.item_bytes
    num_rows = lanes.others.num_items // row_size
    most = min(BLOCK_THREADS, 1 << (row_size - 1).bit_length())
    # The part of each block's share that the system reserves.
    reserved = limits.shared_bytes_per_multiprocessor - limits.shared_bytes_per_block
    for num_blocks in STRIPS_PER_MULTIPROCESSOR:
        room = limits.shared_bytes_per_multiprocessor // num_blocks - reserved
        for width in (min(strip_bytes // item_bytes, most) for strip_bytes in STRIP_BYTES):
            num_strips = num_rows * ceil_div(row_size, width)
            is_spread = num_strips >= num_blocks * limits.num_multiprocessors
            fits = width * item_bytes * lanes.axis.size <= room
            if fits and (is_spread or width * item_bytes <= WIDE_STRIP_BYTES):
                return width
    return None


def strips_fit(lanes: Lanes, limits: Limits) -> bool:
    """Whether lanes cross rows that are contiguous on both sides, and their strips fit a block each."""
    if not lanes.others.dimensions or lanes.others.dimensions[0].strides[:LENGTHS] != (1, 1):
        return False
    width = strip_width(lanes, limits)
    row, *outer = lanes.others.dimensions
    num_rows = math.prod(d.size for d in outer)
    return width is not None and num_rows * ceil_div(row.size, width) <= MAX_GRID_BLOCKS


def columns(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Lanes of their own lengths that cross rows: strips of them through shared storage."""
    others, along = lanes.others, lanes.axis
    row, *outer = others.dimensions
    width = strip_width(lanes, limits) or 1
    strips = Space(
        (Dimension(ceil_div(row.size, width), (0, 0, 0)), *outer), others.offsets, lanes.item_bytes
    )
    return _launch(
        "columns",
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


def _with_axis(lanes: Lanes) -> tuple[Space, int]:
    """All dimensions in the target's order, the axis without a source stride, and the axis's position."""
    others, along = lanes.others, lanes.axis
    placed = Dimension(along.size, (0, *along.strides[TARGET:]))
    ordered = sorted((*others.dimensions, placed), key=lambda dimension: abs(dimension.strides[TARGET]))
    axis = next(i for i, dimension in enumerate(ordered) if dimension is placed)
    return Space(tuple(ordered), others.offsets, others.item_bytes), axis


def _launch(
    name: str,
    template: tuple[str | int | bool, ...],
    num_blocks: int,
    values: dict[str, Value],
    shared_bytes: int = 0,
    block_threads: int = BLOCK_THREADS,
    constants: Constants = BLOCK_CONSTANTS,
) -> KernelLaunch:
    """A launch of `reverse_subsequences/<name>.cu`."""
    return launch_of(
        f"reverse_subsequences/{name}.cu",
        f"reverse_{name}",
        template,
        num_blocks,
        _BUFFERS,
        Params(PARAMS[name], values),
        shared_bytes=shared_bytes,
        block_threads=block_threads,
        constants=constants,
    )


PATHS = by_name(
    Path("copy", "lanes of one element", are_single, single_step(copied)),
    Path(
        "serial_columns",
        "lanes across rows, each of its own length, on a CPU",
        lengths_differ_in_rows,
        single_step(serial_columns),
    ),
    Path("serial", "any layout on a CPU", any_lanes, single_step(serial)),
    Path("boxes", "small boxes one after another", boxes_touch, single_step(boxes)),
    Path("lanes", "long contiguous lanes", lanes_are_runs, single_step(whole_lanes)),
    Path("rows", "lanes across long rows of one length each", rows_share_lengths, single_step(whole_rows)),
    Path("columns", "lanes across rows, each of its own length", strips_fit, single_step(columns)),
    Path("gather", "any layout", any_lanes, single_step(gather)),
)


class Features(NamedTuple):
    """What the tree asks of a reversal; members about a path are 0 where it cannot compute it."""

    bytes_per_multiprocessor: float
    item_bytes: int
    #: The largest power of two, a word at most, that divides the steps in bytes between rows of the source.
    alignment: int
    axis_size: int
    lane_bytes: int
    lengths_differ_in_rows: bool
    # boxes
    box_bytes: int
    # lanes or rows
    run_bytes: int
    run_threads_per_multiprocessor: float
    # columns
    strip_row_bytes: int
    strips_per_multiprocessor: float


def features_of(lanes: Lanes, limits: Limits) -> Features:
    """The features of a reversal on a device."""
    others, along, item_bytes = lanes.others, lanes.axis, lanes.item_bytes
    share = min(1, MOST_BYTES * limits.num_multiprocessors / lanes.num_bytes) / limits.num_multiprocessors
    row_size = others.dimensions[0].size if others.dimensions else 1
    innermost = min((*others.dimensions, along), key=lambda d: abs(d.strides[TARGET]))
    run_bytes = run_threads = strip_row_bytes = num_strips = 0
    if rows_share_lengths(lanes, limits):
        run_bytes = row_size * item_bytes
    elif lanes_are_runs(lanes, limits):
        run_bytes = along.size * item_bytes
    if run_bytes:
        shape = run_shape(run_bytes, lanes.num_bytes, limits)
        run_threads = lanes.num_bytes // run_bytes * shape.pieces_per_run * shape.group_lanes
    if strips_fit(lanes, limits):
        width = strip_width(lanes, limits) or 1
        strip_row_bytes = min(width, row_size) * item_bytes
        num_strips = others.num_items // row_size * ceil_div(row_size, width)
    return Features(
        bytes_per_multiprocessor=lanes.num_bytes * share,
        item_bytes=item_bytes,
        alignment=math.gcd(
            WORD_BYTES, *(d.strides[SOURCE] * item_bytes for d in (along, *others.dimensions[1:]))
        ),
        axis_size=along.size,
        lane_bytes=along.size * item_bytes,
        lengths_differ_in_rows=innermost.strides[LENGTHS] != 0,
        box_bytes=lanes.box_bytes if boxes_touch(lanes, limits) else 0,
        run_bytes=run_bytes,
        run_threads_per_multiprocessor=run_threads * share,
        strip_row_bytes=strip_row_bytes,
        strips_per_multiprocessor=num_strips * share,
    )


def choose_path(lanes: Lanes, limits: Limits, tree: Tree | None = None) -> Choice[Lanes]:
    """The path that is estimated to be the fastest, by a tree or by the operator's own."""
    if are_single(lanes, limits):
        return Choice(PATHS["copy"], "lanes of one element")
    if limits.warp_lanes == 1:
        name = "serial_columns" if lengths_differ_in_rows(lanes, limits) else "serial"
        return Choice(PATHS[name], "blocks of one thread")
    ranked = (tree or read_tree("reverse_subsequences", Features._fields)).ranked(features_of(lanes, limits))
    path = first_that_can(PATHS, ranked, lanes, limits, PATHS["gather"])
    return Choice(path, BY_TREE)
