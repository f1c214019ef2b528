"""The steps of strided copies: what moves a box of items from one place to another.

`SLICE` and `SLICE1` are such copies, and so is packing an operand for a matrix product.

Plans outlive the buffers they run on, so none knows how a pointer is aligned: the kernels look, and
branch once for the whole launch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cudml.operators.index_space import (
    MAX_ITEM_BYTES,
    Dimension,
    Space,
    coalesced,
    dimensions_of,
    is_packed,
    reach_items,
    span_bytes,
)
from cudml.operators.launch_shape import (
    BLOCK_THREADS,
    WARP_LANES,
    WORD_BYTES,
    grid_blocks,
    index_members,
    item_type,
    run_shape,
    serial_blocks,
)
from cudml.plans import Copy, KernelLaunch, Limits, Params, Step, ceil_div, round_up
from cudml.tensors import TensorDesc

#: Operands of a copy's index space.
SOURCE, TARGET = 0, 1

#: What the kernels are compiled with.
GATHER_ITEMS_PER_THREAD = {1: 8, 2: 8, 4: 8, 8: 4, 16: 4}
STRIDED_THREADS = 128
STRIDED_MAX_STRIDE = 8
STRIDED_MAX_ITEM_BYTES = 4
# A gap of 4 bytes after every 128 keeps lanes out of each other's banks.
STRIDED_SHARED_BYTES = STRIDED_THREADS * (STRIDED_MAX_STRIDE + 1) * WORD_BYTES // 128 * 132
TRANSPOSED_TILE_BYTES = 16384
TRANSPOSED_SHARED_BYTES = TRANSPOSED_TILE_BYTES // 4 * 5
TRANSPOSED_WORD_BYTES = 4

#: Shortest runs, in bytes, that are worth shifting words for, by the size of their widest item. The gather
#: takes about 25 instructions an item; each lane of a run some 450, and 65 a word.
MIN_RUN_BYTES = {1: 64, 2: 128, 4: 512, 8: 512, 16: 512}

#: Shortest rows with a stride that fill enough of a tile, in bytes of the target.
MIN_STRIDED_ROW_BYTES = 512

#: Least of a tile that is worth moving through it, on average: below, most of a block's time is waiting.
MIN_TRANSPOSED_BYTES = 2048

#: Pieces of rows with a small stride: enough for this many warps a multiprocessor.
STRIDED_PIECES_PER_MULTIPROCESSOR = 64

#: Rows are cut for blocks of one thread.
MAX_SERIAL_PIECE_BYTES = 1 << 16

#: Shortest stretch that is left to the driver's own copy. On an H200 it moves 4.0 TB/s at this size and
#: 4.3 at 4 GiB, a kernel of 16-byte copies 3.8 and 3.85; at 16 MiB and below it is not ahead
#: (bench/results/nvidia-h200-micro.csv, group bandwidth).
MIN_DRIVER_COPY_BYTES = 64 << 20


@dataclass(frozen=True)
class Pattern:
    """A kernel for copies of one kind: whether it can do a copy, whether it pays, and its launch."""

    can: Callable[[Space], bool]
    pays: Callable[[Space, Limits], bool]
    launch: Callable[[Space, str, str, Limits], KernelLaunch]


def tensor_copy_step(
    source: TensorDesc, source_buffer: str, target: TensorDesc, target_buffer: str, limits: Limits
) -> Step:
    """The step that copies one tensor to another of the same sizes and item size, strides free.

    Parameters
    ----------
    source, target : TensorDesc
        Where the elements lie. Source strides may be negative or 0; target strides may be negative.
        Neither is empty.
    source_buffer, target_buffer : str
        The operands or workspaces that hold them.
    """
    dimensions = dimensions_of(target.sizes, source.element_strides, target.element_strides)
    return copy_step(Space(dimensions, (0, 0), target.element.size), source_buffer, target_buffer, limits)


def copy_step(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> Step:
    """The step of a copy whose space has the source as its first operand and the target as its second."""
    space = coalesced(space, TARGET, (SOURCE, TARGET))
    if is_stretch(space) and stretch_pays(space, limits):
        return Copy(
            source_buffer,
            target_buffer,
            space.num_items * space.item_bytes,
            source_offset=space.offsets[SOURCE] * space.item_bytes,
            target_offset=space.offsets[TARGET] * space.item_bytes,
        )
    pattern = next(p for p in PATTERNS.values() if p.can(space) and p.pays(space, limits))
    return pattern.launch(space, source_buffer, target_buffer, limits)


def is_stretch(space: Space) -> bool:
    """Whether all of a coalesced space is one stretch on both sides: two such dimensions would be merged."""
    return all(dimension.strides == (1, 1) for dimension in space.dimensions)


def stretch_pays(space: Space, limits: Limits) -> bool:
    """Whether the driver's copy is better than a kernel for a stretch.

    That is known of whole words at whole words alone, and not so of a CPU: kernels copy there with all its
    cores, the C library with one.
    """
    num_bytes = space.num_items * space.item_bytes
    is_of_words = space.item_bytes == MAX_ITEM_BYTES
    return limits.warp_lanes > 1 and is_of_words and num_bytes >= MIN_DRIVER_COPY_BYTES


def gather(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Any copy: a thread finds the place of each of its items."""
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD[space.item_bytes])
    reach = max(reach_items(space, operand) for operand in (SOURCE, TARGET))
    return KernelLaunch(
        source="slice/gather.cu",
        function="slice_gather",
        template=(item_type(space.item_bytes),),
        grid=(grid_blocks(num_tiles, limits), 1, 1),
        block=(BLOCK_THREADS, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_items=("Int64", space.num_items),
            source_offset=("Int64", space.offsets[SOURCE]),
            target_offset=("Int64", space.offsets[TARGET]),
            **index_members(space, reach=reach, source_strides=1, target_strides=1),
            target_is_packed=("Int32", int(is_packed(space, TARGET))),
        ),
    )


def serial(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Any copy by blocks of one thread: whole rows, in plain loops."""
    row, *outer = space.dimensions or (Dimension(1, (1, 1)),)
    piece_items = min(row.size, MAX_SERIAL_PIECE_BYTES // space.item_bytes)
    is_cut = piece_items < row.size
    if is_cut:
        steps = tuple(piece_items * stride for stride in row.strides)
        outer = [Dimension(ceil_div(row.size, piece_items), steps), *outer]
    pieces = Space(tuple(outer), space.offsets, space.item_bytes)
    num_blocks, pieces_per_block = serial_blocks(pieces.num_items, piece_items * space.item_bytes, limits)
    return KernelLaunch(
        source="slice/serial.cu",
        function="slice_serial",
        template=(item_type(space.item_bytes),),
        grid=(num_blocks, 1, 1),
        block=(1, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_pieces=("Int64", pieces.num_items),
            pieces_per_block=("Int64", pieces_per_block),
            row_items=("Int64", row.size),
            piece_items=("Int64", piece_items),
            piece_step=("Int64", piece_items if is_cut else 0),
            source_offset=("Int64", space.offsets[SOURCE]),
            target_offset=("Int64", space.offsets[TARGET]),
            row_source_stride=("Int64", row.strides[SOURCE]),
            row_target_stride=("Int64", row.strides[TARGET]),
            **index_members(pieces, source_strides=1, target_strides=1),
        ),
    )


def is_run(space: Space) -> bool:
    """Whether rows are contiguous in the target and contiguous or mirrored in the source."""
    return bool(space.dimensions) and space.dimensions[0].strides in ((1, 1), (-1, 1))


def run_pays(space: Space, limits: Limits) -> bool:
    """Whether a run is long enough for words, rather than items one by one."""
    return space.dimensions[0].size * space.item_bytes >= MIN_RUN_BYTES[space.item_bytes]


def runs(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Contiguous or mirrored rows: words of 16 bytes, shifted and reversed in registers."""
    run, *outer = space.dimensions
    is_reversed = run.strides[SOURCE] < 0
    lowest = space.offsets[SOURCE] - (run.size - 1 if is_reversed else 0)
    shape = run_shape(run.size * space.item_bytes, space.num_items * space.item_bytes, limits)
    pieces = Space((Dimension(shape.pieces_per_run, (0, 0)), *outer), space.offsets, space.item_bytes)
    begin, end = span_bytes(space, SOURCE)
    return KernelLaunch(
        source="slice/runs.cu",
        function="slice_runs",
        template=(),
        grid=(grid_blocks(ceil_div(pieces.num_items, shape.pieces_per_block), limits), 1, 1),
        block=(BLOCK_THREADS, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_pieces=("Int64", pieces.num_items),
            run_bytes=("Int64", run.size * space.item_bytes),
            piece_bytes=("Int64", shape.piece_bytes),
            source_offset=("Int64", lowest * space.item_bytes),
            target_offset=("Int64", space.offsets[TARGET] * space.item_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            **index_members(pieces, source_strides=space.item_bytes, target_strides=space.item_bytes),
            item_bytes=("Int32", space.item_bytes),
            is_reversed=("Int32", int(is_reversed)),
            **shape.members(),
        ),
    )


def has_small_stride(space: Space) -> bool:
    """Whether rows are contiguous in the target and take every s-th narrow item of the source."""
    if not space.dimensions or space.item_bytes > STRIDED_MAX_ITEM_BYTES:
        return False
    source_stride, target_stride = space.dimensions[0].strides
    return target_stride == 1 and 2 <= abs(source_stride) <= STRIDED_MAX_STRIDE


def strided(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Rows with a small stride: whole stretches of source, picked from in shared storage."""
    row, *outer = space.dimensions
    stride = row.strides[SOURCE]
    tile_words = STRIDED_MAX_STRIDE // abs(stride)
    tile_items = tile_words * WARP_LANES * WORD_BYTES // space.item_bytes
    share = ceil_div(space.num_items, limits.num_multiprocessors * STRIDED_PIECES_PER_MULTIPROCESSOR)
    piece_items = min(round_up(share, tile_items), 4 * tile_items)
    pieces = Space(
        (Dimension(ceil_div(row.size, piece_items), (0, 0)), *outer), space.offsets, space.item_bytes
    )
    begin, end = span_bytes(space, SOURCE)
    return KernelLaunch(
        source="slice/strided.cu",
        function="slice_strided",
        template=(item_type(space.item_bytes),),
        grid=(grid_blocks(ceil_div(pieces.num_items, STRIDED_THREADS // WARP_LANES), limits), 1, 1),
        block=(STRIDED_THREADS, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_pieces=("Int64", pieces.num_items),
            row_items=("Int64", row.size),
            piece_items=("Int64", piece_items),
            source_offset=("Int64", space.offsets[SOURCE] * space.item_bytes),
            target_offset=("Int64", space.offsets[TARGET] * space.item_bytes),
            source_begin=("Int64", begin),
            source_end=("Int64", end),
            **index_members(pieces, source_strides=space.item_bytes, target_strides=space.item_bytes),
            stride=("Int32", stride),
            tile_words=("Int32", tile_words),
        ),
        shared_bytes=STRIDED_SHARED_BYTES,
    )


def crossing(space: Space) -> int | None:
    """The dimension that is contiguous in the source where the target's contiguous one is not."""
    if not space.dimensions or space.dimensions[0].strides[TARGET] != 1:
        return None
    return next((i for i, d in enumerate(space.dimensions) if i and abs(d.strides[SOURCE]) == 1), None)


def transposed_pays(space: Space, limits: Limits) -> bool:
    """Whether the lines of both sides fill enough of their tiles, and the target's jumps in the source."""
    line, other = space.dimensions[0], space.dimensions[crossing(space) or 0]
    sides = tile_sides(line.size, other.size, space.item_bytes)
    num_tiles = ceil_div(line.size, sides[0]) * ceil_div(other.size, sides[1])
    filled = line.size * other.size * space.item_bytes
    return abs(line.strides[SOURCE]) > 1 and filled >= MIN_TRANSPOSED_BYTES * num_tiles


def tile_sides(line_items: int, other_items: int, item_bytes: int) -> tuple[int, int]:
    """A tile's items along a line of the target and along one of the source, powers of two.

    It is as square as can be, unless one of the two is so short that the other side had better be longer.
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


def transpose(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Lines of the target across lines of the source: tiles through shared storage."""
    position = crossing(space)
    line, other = space.dimensions[0], space.dimensions[position or 0]
    outer = tuple(d for i, d in enumerate(space.dimensions) if i not in (0, position))
    sides = tile_sides(line.size, other.size, space.item_bytes)
    counts = (
        Dimension(ceil_div(line.size, sides[0]), (0, 0)),
        Dimension(ceil_div(other.size, sides[1]), (0, 0)),
    )
    tiles = Space((*counts, *outer), space.offsets, space.item_bytes)
    return KernelLaunch(
        source="slice/transpose.cu",
        function="slice_transpose",
        template=(item_type(space.item_bytes),),
        grid=(grid_blocks(tiles.num_items, limits), 1, 1),
        block=(BLOCK_THREADS, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_tiles=("Int64", tiles.num_items),
            source_offset=("Int64", space.offsets[SOURCE]),
            target_offset=("Int64", space.offsets[TARGET]),
            target_line_items=("Int64", line.size),
            source_line_items=("Int64", other.size),
            target_line_stride=("Int64", line.strides[SOURCE]),
            source_line_stride=("Int64", other.strides[TARGET]),
            **index_members(tiles, source_strides=1, target_strides=1),
            source_step=("Int32", other.strides[SOURCE]),
            target_side_shift=("Int32", sides[0].bit_length() - 1),
            source_side_shift=("Int32", sides[1].bit_length() - 1),
            source_keeps_words=("Int32", int(keeps_words((line, *outer), SOURCE, space.item_bytes))),
            target_keeps_words=("Int32", int(keeps_words((other, *outer), TARGET, space.item_bytes))),
        ),
        shared_bytes=TRANSPOSED_SHARED_BYTES,
    )


def keeps_words(dimensions: Iterable[Dimension], operand: int, item_bytes: int) -> bool:
    """Whether a step along any of the dimensions leads from an aligned word to another one."""
    return all(d.strides[operand] * item_bytes % TRANSPOSED_WORD_BYTES == 0 for d in dimensions)


#: The first that can and pays is taken; the last does any copy.
PATTERNS: dict[str, Pattern] = {
    "serial": Pattern(lambda space: True, lambda space, limits: limits.warp_lanes == 1, serial),
    "runs": Pattern(is_run, run_pays, runs),
    "transpose": Pattern(lambda space: crossing(space) is not None, transposed_pays, transpose),
    "strided": Pattern(
        has_small_stride,
        lambda space, limits: space.dimensions[0].size * space.item_bytes >= MIN_STRIDED_ROW_BYTES,
        strided,
    ),
    "gather": Pattern(lambda space: True, lambda space, limits: True, gather),
}
