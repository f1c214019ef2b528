"""Copies of boxes whose source and target are contiguous along different dimensions.

Tiles go through shared storage; pixels of a few narrow items through registers.
"""

from collections.abc import Iterable
from math import gcd
from typing import cast

from cudml.operators.index_space import Dimension, Space, span_bytes
from cudml.operators.launch_shape import (
    BLOCK_CONSTANTS,
    BLOCK_THREADS,
    ITEM_TYPES,
    RUN_CONSTANTS,
    WORD_BYTES,
    grid_blocks,
    index_values,
    launch_of,
)
from cudml.operators.slice.box import BOX_MEMBERS, SOURCE, TARGET, BoxCopy, Pixels
from cudml.plans import KernelLaunch, Limits, Params, ParamStruct, ceil_div

#: What the kernels are compiled with.
TRANSPOSED_TILE_BYTES = 16384
TRANSPOSED_SHARED_BYTES = TRANSPOSED_TILE_BYTES // 4 * 5
TRANSPOSED_WORD_BYTES = 4
PLANES_GROUP_LANES = (32, 16, 8, 4)

#: The structs of the kernels.
_TRANSPOSED_PARAMS = ParamStruct(
    "Int64 num_tiles, source_offset, target_offset, target_line_items, source_line_items",
    "Int64 target_line_stride, source_line_stride",
    *BOX_MEMBERS,
    "Int32 source_step, target_side_shift, source_side_shift, source_keeps_words, target_keeps_words",
)
_PLANES_PARAMS = ParamStruct(
    "Int64 num_pieces, line_items, source_offset, target_offset, source_begin, source_end, plane_stride",
    *BOX_MEMBERS,
    "Int32 num_planes, source_alignment, target_alignment, group_shift",
)


def has_crossing(copy: BoxCopy, limits: Limits) -> bool:
    """Whether one dimension is contiguous in the source and another one in the target."""
    return copy.crossing > 0


def tile_sides(line_items: int, other_items: int, item_bytes: int) -> tuple[int, int]:
    """A tile's items along a line of the target and along one of the source, powers of two.

    The tile is as square as possible, unless one line is so short that a longer other side is better.
    """
    items_shift = (TRANSPOSED_TILE_BYTES // item_bytes).bit_length() - 1
    line_shift = items_shift // 2
    least = max((TRANSPOSED_WORD_BYTES // item_bytes).bit_length() - 1, 0)
    needed = [max((size - 1).bit_length(), least) for size in (line_items, other_items)]
    if needed[0] < line_shift:
        line_shift = needed[0]
    elif needed[1] < items_shift - line_shift:
        line_shift = items_shift - needed[1]
    return 1 << line_shift, 1 << (items_shift - line_shift)


def filled_part(line_items: int, other_items: int, item_bytes: int) -> float:
    """The part of its tiles that a matrix fills."""
    sides = tile_sides(line_items, other_items, item_bytes)
    num_tiles = ceil_div(line_items, sides[0]) * ceil_div(other_items, sides[1])
    return line_items * other_items * item_bytes / (num_tiles * TRANSPOSED_TILE_BYTES)


def transpose(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Lines of the target across lines of the source: tiles through shared storage."""
    space = copy.space
    position = copy.crossing
    line, other = space.dimensions[0], space.dimensions[position]
    outer = tuple(d for i, d in enumerate(space.dimensions) if i not in (0, position))
    sides = tile_sides(line.size, other.size, space.item_bytes)
    counts = (
        Dimension(ceil_div(line.size, sides[0]), (0, 0)),
        Dimension(ceil_div(other.size, sides[1]), (0, 0)),
    )
    tiles = Space((*counts, *outer), space.offsets, space.item_bytes)
    item = ITEM_TYPES[space.item_bytes]
    values = {
        "num_tiles": tiles.num_items,
        "source_offset": space.offsets[SOURCE],
        "target_offset": space.offsets[TARGET],
        "target_line_items": line.size,
        "source_line_items": other.size,
        "target_line_stride": line.strides[SOURCE],
        "source_line_stride": other.strides[TARGET],
        **index_values(tiles, source_strides=1, target_strides=1),
        "source_step": other.strides[SOURCE],
        "target_side_shift": sides[0].bit_length() - 1,
        "source_side_shift": sides[1].bit_length() - 1,
        "source_keeps_words": int(keeps_words((line, *outer), SOURCE, space.item_bytes)),
        "target_keeps_words": int(keeps_words((other, *outer), TARGET, space.item_bytes)),
    }
    return launch_of(
        "slice/transpose.cu",
        "slice_transpose",
        (item,),
        grid_blocks(tiles.num_items, limits),
        (copy.source, copy.target),
        Params(_TRANSPOSED_PARAMS, values),
        shared_bytes=TRANSPOSED_SHARED_BYTES,
        constants=(
            *BLOCK_CONSTANTS,
            ("kTileBytes", TRANSPOSED_TILE_BYTES),
            ("sizeof(WordOf<UInt8>::Type)", TRANSPOSED_WORD_BYTES),
            (f"sizeof(Storage<{item}>)", TRANSPOSED_SHARED_BYTES),
        ),
    )


def has_pixels(copy: BoxCopy, limits: Limits) -> bool:
    """Whether pixels of 2 to 4 narrow items lie on one side, and planes on the other."""
    return copy.pixels is not None


def planes(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Pixels to planes or planes to pixels: words of every plane, permuted in registers."""
    space = copy.space
    pixels = cast(Pixels, copy.pixels)  # a path is taken only where it can: `has_pixels`
    item_bytes = space.item_bytes
    line_words = ceil_div(pixels.line.size * item_bytes, WORD_BYTES)
    group_lanes = piece_lanes(line_words)
    piece_items = group_lanes * WORD_BYTES // item_bytes
    steps = tuple(piece_items * stride for stride in pixels.line.strides)
    pieces = Space(
        (Dimension(ceil_div(line_words, group_lanes), steps), *pixels.outer), pixels.offsets, item_bytes
    )
    shared_bytes = BLOCK_THREADS * pixels.pixel_items * WORD_BYTES
    begin, end = span_bytes(space, SOURCE)
    values = {
        "num_pieces": pieces.num_items,
        "line_items": pixels.line.size,
        "source_offset": pixels.offsets[SOURCE] * item_bytes,
        "target_offset": pixels.offsets[TARGET] * item_bytes,
        "source_begin": begin,
        "source_end": end,
        "plane_stride": pixels.plane_stride * item_bytes,
        **index_values(pieces, source_strides=item_bytes, target_strides=item_bytes),
        "num_planes": pixels.num_planes,
        "source_alignment": alignment_of(pixels, SOURCE, item_bytes),
        "target_alignment": alignment_of(pixels, TARGET, item_bytes),
        "group_shift": group_lanes.bit_length() - 1,
    }
    return launch_of(
        "slice/planes.cu",
        "slice_planes",
        (ITEM_TYPES[item_bytes], str(pixels.pixel_items), "true" if pixels.splits else "false"),
        grid_blocks(ceil_div(pieces.num_items, BLOCK_THREADS // group_lanes), limits),
        (copy.source, copy.target),
        Params(_PLANES_PARAMS, values),
        shared_bytes=shared_bytes,
        constants=(
            *RUN_CONSTANTS,
            (f"sizeof(Storage<{pixels.pixel_items}>)", shared_bytes),
        ),
    )


def piece_lanes(line_words: int) -> int:
    """The lanes per piece of a line: few are left without a word, and pieces, each with two ends, are few."""
    return min(PLANES_GROUP_LANES, key=lambda lanes: ceil_div(line_words, lanes) * (lanes + 2))


def alignment_of(pixels: Pixels, operand: int, item_bytes: int) -> int:
    """The bytes, at most a word, that divide the distances of an operand's stretches from its first one."""
    strides = [dimension.strides[operand] for dimension in pixels.outer]
    if pixels.splits == (operand == TARGET):
        strides.append(pixels.plane_stride)
    return gcd(WORD_BYTES, *(stride * item_bytes for stride in strides))


def keeps_words(dimensions: Iterable[Dimension], operand: int, item_bytes: int) -> bool:
    """Whether a step along each of the dimensions leads from an aligned word to an aligned word."""
    return all(d.strides[operand] * item_bytes % TRANSPOSED_WORD_BYTES == 0 for d in dimensions)
