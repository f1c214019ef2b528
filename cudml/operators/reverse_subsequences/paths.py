"""The paths of `REVERSE_SUBSEQUENCES`: the ways to reverse lanes of a given layout."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
    Choice,
    Path,
    Reason,
    by_name,
    figure,
    first_that_pays,
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
from cudml.plans import (
    MAX_GRID_BLOCKS,
    SECTOR_BYTES,
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


@dataclass(frozen=True)
class Thresholds:
    """The numbers that decide between the paths of a reversal, and how its work is divided."""

    #: If there are too few tiles of boxes for this many blocks, tiles shrink, down to the minimum below.
    box_blocks_per_multiprocessor: int = figure(
        3, "machine code", "a wave of 4 with room; predicted us for 1024 x 1024 words, 3 and 4: 6.8 and 8.3"
    )
    min_box_tile_bytes: int = figure(4096, "estimate", "a word for each thread of a block")

    #: Smallest outputs, in bytes, that boxes pay for: if lanes cross rows and strips of columns fit; and if
    #: lanes are contiguous and items have up to 4 bytes;
    min_crossing_boxes_bytes: int = figure(
        1 << 16,
        "machine code",
        "predicted us, boxes and columns: for 3 x 69 x 23 bytes, axis 0, 7.4 and 5.4, 139 x 3 of 8, axis 0, "
        "6.1 and 5.0, 2 x 102 x 5 x 13 bytes, axis 2, 6.3 and 5.4",
    )
    min_contiguous_boxes_bytes: int = figure(
        1 << 11, "machine code", "predicted us for 33 x 10 words, axis 1, boxes and gather: 6.1 and 5.5"
    )
    #: shortest rows of one length, in bytes, that are moved as runs instead.
    min_row_beside_boxes_bytes: int = figure(
        1024,
        "machine code",
        "predicted us for 506 x 2 x 5871 bytes, axis 1, boxes and rows: 14.1 and 8.0",
    )

    #: Largest boxes.
    max_box_bytes: int = figure(
        BOX_TILE_BYTES,
        "machine code",
        "all that fit a tile; predicted us for 128 MiB, boxes and runs: in lanes of 97 bytes 65 and 269, "
        "16001 bytes 63 and 76, 4097 halves 71 and 70, 3999 words 63 and 74, 1001 items of 16 bytes 63 and "
        "71; in rows of one length of 129 bytes 90 and 93, 241 bytes 70 and 74, 97 halves 64 and 69",
    )

    #: The largest part of a tile that is left empty so that tiles end with whole words.
    max_empty_part: float = figure(1 / 8, "estimate", "words that tiles share are written item by item")

    #: Shortest rows of one length, in bytes, that are moved as runs, by the size of their widest item.
    min_row_bytes: Mapping[int, int] = figure(
        {1: 40, 2: 64, 4: 192, 8: 256, 16: 512},
        "machine code",
        "predicted us for 128 MiB in rows with gaps, columns and runs: of 25 bytes 411 and 489, 65 bytes 202 "
        "and 176; of 33 halves 172 and 167; of 33 words 72 and 84; of 33 items of 8 bytes 67 and 68",
    )

    #: The same, in items, where strips do not pay; any rows of outputs of up to `max_short_bytes`.
    min_row_items: int = figure(
        12,
        "machine code",
        "predicted us, rows and gather: 329717 x 4 x 13 bytes, axis 1, 73 and 99, 56290 x 7 bytes, axis 0, "
        "7.8 and 6.9; 1086 x 11 bytes 5.3 and 6.2",
    )
    max_short_bytes: int = figure(
        1 << 19, "machine code", "here what a thread computes before its first load decides, not the loads"
    )

    #: Shortest lanes, in bytes, that are worth shifting words for, by the size of their widest item.
    min_run_bytes: Mapping[int, int] = figure(
        {1: 40, 2: 64, 4: 128, 8: 256, 16: 512},
        "machine code",
        "predicted us for 128 MiB in lanes with gaps, runs and gather: of 25 bytes 847 and 616, 65 bytes 382 "
        "and 618; of 33 halves 329 and 315, 65 halves 181 and 313; of 25 words 205 and 168, 37 144 and 169",
    )
    #: The same for outputs of up to `max_short_bytes`.
    min_short_run_bytes: int = figure(
        640,
        "machine code",
        "predicted us, lanes and gather: for 8 x 32 words 6.6 and 5.0, 602 x 64 words 6.9 and 6.3, 152 x 365 "
        "items of 16 bytes 6.2 and 6.4",
    )

    #: Narrowest rows between gaps whose lanes are worth taking in strips.
    min_strip_row_bytes: int = figure(
        5,
        "machine code",
        "predicted us for 128 MiB in rows with gaps, columns and gather: of 5 bytes 518 and 713, 9 bytes 339 "
        "and 704, 3 halves 366 and 343, 5 halves 242 and 342, 3 words 157 and 179",
    )

    #: Clocks of a strip, at least, and the bytes of it that are moved per clock, by the size of an item; only
    #: some of a thread's loads are in flight. Where rows begin with whole words, several times as many bytes.
    strip_clocks: Mapping[int, int] = figure(
        {1: 1000, 2: 800, 4: 700, 8: 650, 16: 600},
        "machine code",
        "predicted us for 43565 strips of 35 x 20 bytes 200, 17086 of 512 x 2 halves 58, 3161 of 4 x 7 items "
        "of 16 bytes 12.1",
    )
    strip_bytes_per_clock: Mapping[int, int] = figure(
        {1: 4, 2: 6, 4: 9, 8: 10, 16: 20},
        "machine code",
        "predicted us for a strip of 28 KB of bytes 8.8, two of 55 KB of halves 8.7, nine of 42 KB of words "
        "7.7, ten of 61 KB of 8 bytes 7.8, 12 of 232 KB of 16 bytes 11.0; 4.9 for a small one",
    )
    strip_factor_of_words: Mapping[int, int] = figure(
        {1: 3, 2: 3, 4: 3, 8: 2, 16: 1},
        "machine code",
        "predicted us for eight strips of 131 KB of words 6.6",
    )
    #: Clocks that single items take longer than small strips, and how many a multiprocessor moves per clock.
    gather_clocks: int = figure(2400, "machine code", "predicted us for small problems: 6.3 and 5.0")
    gather_items_per_clock: float = figure(
        0.7, "machine code", "predicted us for 2 x 32 x 2486 x 32 bytes 37.7, 746 x 748 of 8 bytes 11.0"
    )
    #: Bytes that a multiprocessor moves per clock at most, its share of the memory: by single items or strips
    #: of them, and by strips narrower than a sector, whose other half is read again.
    memory_bytes_per_clock: float = figure(
        9, "machine code", "predicted us for 34 MB, 27 x 78639 items of 16 bytes, columns 21.2, gather 25.9"
    )
    narrow_strip_bytes_per_clock: float = figure(
        5,
        "machine code",
        "predicted us for strips of 16 bytes, columns and gather: 33 x 3890 x 42 of 8 bytes 41.5 and 26.4, "
        "10 x 7982 x 39 of 16 bytes 46.1 and 34.7, 13 x 8489 x 139 words 83.8 and 99.6",
    )
    #: Clocks that rows of one length take longer than small strips.
    row_clocks: int = figure(900, "machine code", "predicted us for small problems: 5.3 and 5.0")

    #: Strips of lanes are as wide as fits, down to half a sector; a neighbour then uses the other half.
    strip_bytes: tuple[int, ...] = figure(
        (1024, 512, 256, 128, 64, 32, 16), "estimate", "wider strips have longer rows to load"
    )

    #: Strips wider than this are for short lanes, and only if there are enough of them.
    wide_strip_bytes: int = figure(128, "estimate", "a line of the cache")

    #: Blocks that share a multiprocessor's shared storage if their strips fit; otherwise one has it all.
    strips_per_multiprocessor: tuple[int, ...] = figure(
        (3, 1), "machine code", "as many as its registers hold"
    )

    #: Bytes of a row of the strips that one thread reverses: the most whose strip fits a block's storage.
    serial_row_bytes: tuple[int, ...] = figure(
        (1024, 512, 256, 128, 64, 32, 16),
        "measured",
        "memory is read at full speed from 512 bytes on",
    )

    #: Rows longer than this are taken only if there are enough strips for every block.
    long_serial_row_bytes: int = figure(256, "measured", "in caches, longer ones are no faster")

    #: Smallest output, in bytes, that one thread writes past the caches.
    serial_streamed_bytes: int = figure(
        3 << 20,
        "measured",
        "us through caches and past them: (1024, 512) float32 140 and 200, (1024, 768) 282 and 283, "
        "(1024, 1024) 413 and 389",
    )


THRESHOLDS = Thresholds()

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
    space, axis = _with_axis(lanes)
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
    for row_bytes in THRESHOLDS.serial_row_bytes:
        width = max(1, min(row_bytes // lanes.item_bytes, most))
        num_strips = num_rows * ceil_div(row.size, width)
        # Lengths, lanes with gaps before the first and behind the last, and the rows of a row of tiles.
        stored = 3 * MIRRORED_BYTES + width * (8 + lane_bytes + TILE_BYTES)
        if stored <= limits.shared_bytes_per_block and (
            num_strips >= num_blocks or row_bytes <= THRESHOLDS.long_serial_row_bytes
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
    is_large = lanes.num_bytes >= THRESHOLDS.serial_streamed_bytes
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
    share = ceil_div(lanes.num_bytes, limits.num_multiprocessors * THRESHOLDS.box_blocks_per_multiprocessor)
    tile_bytes = min(max(share, THRESHOLDS.min_box_tile_bytes), BOX_TILE_BYTES)
    tile_boxes = max(1, min(tile_bytes // lanes.box_bytes, BOX_TILE_LANES // lanes.axis.strides[TARGET]))
    # If tiles can end with whole words, they share no words with their neighbours.
    whole = WORD_BYTES // math.gcd(WORD_BYTES, lanes.box_bytes)
    left = tile_boxes % whole
    return tile_boxes - left if left <= THRESHOLDS.max_empty_part * tile_boxes else tile_boxes


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
    for num_blocks in THRESHOLDS.strips_per_multiprocessor:
        room = limits.shared_bytes_per_multiprocessor // num_blocks - reserved
        for width in (min(strip_bytes // item_bytes, most) for strip_bytes in THRESHOLDS.strip_bytes):
            num_strips = num_rows * ceil_div(row_size, width)
            is_spread = num_strips >= num_blocks * limits.num_multiprocessors
            fits = width * item_bytes * lanes.axis.size <= room
            if fits and (is_spread or width * item_bytes <= THRESHOLDS.wide_strip_bytes):
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


def why_columns(lanes: Lanes, limits: Limits) -> str | None:
    """Rows that are wide enough, or touch, in strips that are estimated to be faster than other paths.

    Narrow rows between gaps waste sectors. A strip takes a block, however small it is, and a few tall ones
    leave multiprocessors without work.
    """
    row, least = lanes.others.dimensions[0], THRESHOLDS.min_strip_row_bytes
    row_bytes, touch = row.size * lanes.item_bytes, lanes.axis.strides[:LENGTHS] == (row.size, row.size)
    if not (touch or row_bytes >= least):
        return None
    own, others = _strip_clocks(lanes, limits), _clocks_beside_strips(lanes, limits)
    if own > others:
        return None
    where = "one after another" if touch else f"{least} or more"
    return f"lanes across rows of {row_bytes} bytes, {where}; estimated clocks {own}, others {others}"


def _strip_clocks(lanes: Lanes, limits: Limits) -> int:
    """Clocks that the strips of `columns` are estimated to take, without the launch."""
    row_size, width = lanes.others.dimensions[0].size, strip_width(lanes, limits) or 1
    num_strips = lanes.others.num_items // row_size * ceil_div(row_size, width)
    strip_bytes = min(width, row_size) * lanes.item_bytes * lanes.axis.size
    bytes_per_clock = THRESHOLDS.strip_bytes_per_clock[lanes.item_bytes]
    across = (lanes.axis, *lanes.others.dimensions[1:])
    if all(dimension.strides[SOURCE] * lanes.item_bytes % WORD_BYTES == 0 for dimension in across):
        bytes_per_clock *= THRESHOLDS.strip_factor_of_words[lanes.item_bytes]
    clocks = max(strip_bytes // bytes_per_clock, THRESHOLDS.strip_clocks[lanes.item_bytes])
    is_narrow = min(width, row_size) * lanes.item_bytes < SECTOR_BYTES
    share = THRESHOLDS.narrow_strip_bytes_per_clock if is_narrow else THRESHOLDS.memory_bytes_per_clock
    num_waves = ceil_div(num_strips, limits.num_multiprocessors)
    return max(num_waves * clocks, _clocks_of_all(lanes, share, limits))


def _clocks_of_all(lanes: Lanes, bytes_per_clock: float, limits: Limits) -> int:
    """Clocks in which all multiprocessors move the output, each at this rate."""
    return int(lanes.num_bytes / (bytes_per_clock * limits.num_multiprocessors))


def _clocks_beside_strips(lanes: Lanes, limits: Limits) -> int:
    """The same of the gather, or of rows if they have one length each and the output is small."""
    most = THRESHOLDS.memory_bytes_per_clock
    items = min(THRESHOLDS.gather_items_per_clock * lanes.item_bytes, most)
    gather = THRESHOLDS.gather_clocks + _clocks_of_all(lanes, items, limits)
    if lanes.num_bytes > THRESHOLDS.max_short_bytes or not rows_share_lengths(lanes, limits):
        return gather
    return min(gather, THRESHOLDS.row_clocks + _clocks_of_all(lanes, most, limits))


def why_rows_else(lanes: Lanes, limits: Limits) -> str | None:
    """Rows whose strips do not pay: a thread for each item computes more than one for each word."""
    items, least = lanes.others.dimensions[0].size, THRESHOLDS.min_row_items
    num_bytes, most = lanes.num_bytes, THRESHOLDS.max_short_bytes
    if items >= least:
        return f"rows of {items} items, {least} or more"
    return f"rows of {num_bytes} bytes together, {most} or fewer" if num_bytes <= most else None


def why_boxes(lanes: Lanes, limits: Limits) -> str | None:
    """Small boxes; a larger box has runs of its own, or is a strip of columns."""
    if lanes.axis.strides[TARGET] > 1:  # lanes cross rows
        if lanes.num_bytes < THRESHOLDS.min_crossing_boxes_bytes and strips_fit(lanes, limits):
            return None
        has_rows = rows_share_lengths(lanes, limits)
        if has_rows and _row_bytes(lanes) >= THRESHOLDS.min_row_beside_boxes_bytes:
            return None
    elif lanes.num_bytes < THRESHOLDS.min_contiguous_boxes_bytes and lanes.item_bytes <= 4:
        return None
    box_bytes, most = lanes.box_bytes, THRESHOLDS.max_box_bytes
    return f"boxes of {box_bytes} bytes, {most} or fewer" if box_bytes <= most else None


def _row_bytes(lanes: Lanes) -> int:
    """What the innermost dimension across lanes moves."""
    return lanes.others.dimensions[0].size * lanes.item_bytes


def why_lanes(lanes: Lanes, limits: Limits) -> str | None:
    """Lanes with enough bytes to be moved in words."""
    num_bytes = lanes.axis.size * lanes.item_bytes
    least = THRESHOLDS.min_run_bytes[lanes.item_bytes]
    if lanes.num_bytes <= THRESHOLDS.max_short_bytes:
        least = max(least, THRESHOLDS.min_short_run_bytes)
    return f"lanes of {num_bytes} bytes, {least} or more" if num_bytes >= least else None


def why_rows(lanes: Lanes, limits: Limits) -> str | None:
    """Rows with enough bytes to be moved in words."""
    num_bytes, least = _row_bytes(lanes), THRESHOLDS.min_row_bytes[lanes.item_bytes]
    return f"rows of {num_bytes} bytes, {least} or more" if num_bytes >= least else None


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

#: The paths on a GPU in order of preference, and why each pays. The gather is the last.
_PREFERRED: tuple[tuple[Path[Lanes], Reason[Lanes]], ...] = (
    (PATHS["boxes"], why_boxes),
    (PATHS["lanes"], why_lanes),
    (PATHS["rows"], why_rows),
    (PATHS["columns"], why_columns),
    (PATHS["rows"], why_rows_else),
)


def choose_path(lanes: Lanes, limits: Limits) -> Choice[Lanes]:
    """The path that is estimated to be the fastest, and why."""
    if are_single(lanes, limits):
        return Choice(PATHS["copy"], "lanes of one element")
    if limits.warp_lanes == 1:
        path = "serial_columns" if lengths_differ_in_rows(lanes, limits) else "serial"
        return Choice(PATHS[path], "blocks of one thread")
    return first_that_pays(_PREFERRED, PATHS["gather"], lanes, limits)
