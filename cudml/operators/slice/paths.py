"""The paths of strided copies, which move a box of items from one place to another.

`SLICE` and `SLICE1` are such copies, and so is packing an operand for a matrix product.

A plan outlives the buffers it runs on, so it does not know how pointers are aligned. The kernels check, and
branch once for the whole launch.
"""

from typing import NamedTuple

from cudml.operators.index_space import (
    MAX_ITEM_BYTES,
    Dimension,
    Space,
    coalesced,
    dimensions_of,
    is_packed,
    span_bytes,
    span_items,
    widened,
)
from cudml.operators.launch_shape import (
    BLOCK_CONSTANTS,
    BLOCK_THREADS,
    ITEM_TYPES,
    RUN_CONSTANTS,
    WORD_BYTES,
    grid_blocks,
    index_values,
    launch_of,
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
from cudml.operators.slice.box import BOX_MEMBERS, SOURCE, TARGET, BoxCopy
from cudml.operators.slice.crossings import (
    TRANSPOSED_TILE_BYTES,
    alignment_of,
    crossing,
    filled_part,
    has_crossing,
    has_pixels,
    pixels_of,
    planes,
    transpose,
)
from cudml.operators.tree import MOST_BYTES, Tree, read_tree
from cudml.plans import (
    MEMORY_PIECE_BYTES,
    Copy,
    KernelLaunch,
    Limits,
    Params,
    ParamStruct,
    Step,
    ceil_div,
)
from cudml.tensors import TensorDesc

#: What the kernels are compiled with.
GATHER_ITEMS_PER_THREAD = {1: 8, 2: 8, 4: 8, 8: 4, 16: 4}
GATHER_FEW_ITEMS_PER_THREAD = 2

#: Longest pieces of rows for blocks of one thread: the cores of a CPU share a row.
MAX_SERIAL_PIECE_BYTES = 1 << 16

#: What `slice/gather.cu` is compiled with, by the size of its items.
_GATHER_CONSTANTS = {
    item_bytes: (
        *BLOCK_CONSTANTS,
        (f"kItemsPerThread<{ITEM_TYPES[item_bytes]}>", count),
        ("kFewItemsPerThread", GATHER_FEW_ITEMS_PER_THREAD),
    )
    for item_bytes, count in GATHER_ITEMS_PER_THREAD.items()
}

#: The structs of the kernels.
_GATHER_PARAMS = ParamStruct(
    "Int64 num_items, source_offset, target_offset", *BOX_MEMBERS, "Int32 target_is_packed, source_is_far"
)
_SERIAL_PARAMS = ParamStruct(
    "Int64 num_pieces, pieces_per_block, row_items, piece_items, piece_step, source_offset, target_offset",
    "Int64 row_source_stride, row_target_stride",
    *BOX_MEMBERS,
)
_RUNS_PARAMS = ParamStruct(
    "Int64 num_pieces, run_bytes, piece_bytes, source_offset, target_offset, source_begin, source_end",
    *BOX_MEMBERS,
    "Int32 item_bytes, is_reversed, group_shift",
)


def tensor_copy_step(
    source: TensorDesc, source_buffer: str, target: TensorDesc, target_buffer: str, limits: Limits
) -> Step:
    """The step that copies one tensor to another of the same sizes and item size, with any strides.

    Source strides may be negative or 0, target strides negative; neither tensor is empty. The buffers are the
    operands or workspaces that hold them.
    """
    dimensions = dimensions_of(target.sizes, source.element_strides, target.element_strides)
    return copy_step(Space(dimensions, (0, 0), target.element.size), source_buffer, target_buffer, limits)


def copy_step(
    space: Space, source_buffer: str, target_buffer: str, limits: Limits, path: str | None = None
) -> Step:
    """The step of a copy whose space has the source as its first operand and the target as its second.

    Raises ValueError if `path` is not a key of `PATHS`, or cannot compute this copy.
    """
    copy = box_copy(space, source_buffer, target_buffer)
    taken = choose_path(copy, limits).path if path is None else named_path(PATHS, path, copy, limits)
    ((step,), _) = taken.steps(copy, limits)
    return step


def box_copy(space: Space, source_buffer: str, target_buffer: str) -> BoxCopy:
    """A copy in as few dimensions as possible, with items as wide as both sides allow."""
    return BoxCopy(widened(coalesced(space, TARGET), (SOURCE, TARGET)), source_buffer, target_buffer)


def is_stretch(copy: BoxCopy, limits: Limits) -> bool:
    """Whether a space is one stretch on both sides; coalescing would have merged two such dimensions."""
    dimensions = copy.space.dimensions
    return not dimensions or (len(dimensions) == 1 and dimensions[0].strides == (1, 1))


def driver_copy(copy: BoxCopy, limits: Limits) -> Copy:
    """One stretch of bytes, by the driver's own copy."""
    space = copy.space
    return Copy(
        copy.source,
        copy.target,
        copy.num_bytes,
        source_offset=space.offsets[SOURCE] * space.item_bytes,
        target_offset=space.offsets[TARGET] * space.item_bytes,
    )


def is_for_the_driver(copy: BoxCopy, limits: Limits) -> bool:
    """Whether a copy is one stretch of whole, aligned words.

    On an H200, the driver copies 4 KiB in 4.3 us and 16 MiB in 11.7, `runs` in 5.0 and 12.6. Of 1 GiB it
    moves 4.3 TB/s, a kernel of 16-byte copies 3.9. If the GiB is not aligned, `runs` takes 528 us, PyTorch's
    copy 795, which is the driver's (bench/results/nvidia-h200.csv and nvidia-h200-micro.csv).
    """
    return is_stretch(copy, limits) and copy.space.item_bytes == MAX_ITEM_BYTES


def has_far_items(space: Space) -> bool:
    """Whether no two neighbours share what the memory reads at once."""
    least = ceil_div(MEMORY_PIECE_BYTES, space.item_bytes)
    return all(abs(d.strides[SOURCE]) >= least for d in space.dimensions)


def gather(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Any copy: a thread computes where each of its items lies."""
    space = copy.space
    num_items, item_bytes = space.num_items, space.item_bytes
    is_far = has_far_items(space)
    items_each = GATHER_FEW_ITEMS_PER_THREAD if is_far else GATHER_ITEMS_PER_THREAD[item_bytes]
    num_tiles = ceil_div(num_items, BLOCK_THREADS * items_each)
    # Items from a pointer to the farthest item, before or behind it.
    source_low, source_end = span_items(space, SOURCE)
    target_low, target_end = span_items(space, TARGET)
    reach = max(source_end, target_end, -source_low, -target_low)
    values = {
        "num_items": num_items,
        "source_offset": space.offsets[SOURCE],
        "target_offset": space.offsets[TARGET],
        **index_values(space, reach=reach, source_strides=1, target_strides=1),
        "target_is_packed": int(is_packed(space, TARGET)),
        "source_is_far": int(is_far),
    }
    return launch_of(
        "slice/gather.cu",
        "slice_gather",
        (ITEM_TYPES[item_bytes],),
        grid_blocks(num_tiles, limits),
        (copy.source, copy.target),
        Params(_GATHER_PARAMS, values),
        constants=_GATHER_CONSTANTS[item_bytes],
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
        Params(_SERIAL_PARAMS, values),
        block_threads=1,
        constants=(),
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
        Params(_RUNS_PARAMS, values),
        constants=RUN_CONSTANTS,
    )


def any_copy(copy: BoxCopy, limits: Limits) -> bool:
    """Every copy."""
    return True


PATHS = by_name(
    Path("driver", "one stretch of bytes", is_stretch, single_step(driver_copy)),
    Path("serial", "any copy on a CPU", any_copy, single_step(serial)),
    Path("runs", "long rows, contiguous or mirrored", is_run, single_step(runs)),
    Path("transpose", "lines of the target across lines of the source", has_crossing, single_step(transpose)),
    Path("planes", "pixels of 2 to 4 narrow items to planes, or back", has_pixels, single_step(planes)),
    Path("gather", "any copy", any_copy, single_step(gather)),
)


class Features(NamedTuple):
    """What the tree asks of a copy; members about a path are 0 where it cannot compute it."""

    bytes_per_multiprocessor: float
    item_bytes: int
    #: Of the innermost dimension.
    row_bytes: int
    #: Items between neighbours of a row, in either tensor.
    source_step: int
    target_step: int
    #: Bytes between the nearest neighbours in the source.
    least_step_bytes: int
    # transpose: the dimension that is contiguous in the source, and the bytes between its items in the target
    line_bytes: int
    line_step_bytes: int
    tile_fill: float
    tiles_per_multiprocessor: float
    # planes
    pixel_items: int
    splits_pixels: bool
    num_planes: int
    plane_bytes: int
    has_whole_words: bool


def features_of(copy: BoxCopy, limits: Limits) -> Features:
    """The features of a copy on a device."""
    space, row, item_bytes = copy.space, copy.row, copy.space.item_bytes
    line_bytes = line_step_bytes = 0
    tile_fill = tiles_each = 0.0
    bytes_each = min(copy.num_bytes / limits.num_multiprocessors, MOST_BYTES)
    if position := crossing(space):
        line = space.dimensions[position]
        line_bytes, line_step_bytes = line.size * item_bytes, abs(line.strides[TARGET]) * item_bytes
        tile_fill = filled_part(row.size, line.size, item_bytes)
        tiles_each = bytes_each / (tile_fill * TRANSPOSED_TILE_BYTES)
    pixels, plane_bytes, has_whole_words = pixels_of(space), 0, False
    if pixels is not None:
        plane_bytes = pixels.line.size * item_bytes
        alignment = alignment_of(pixels, TARGET, item_bytes)
        has_whole_words = plane_bytes % WORD_BYTES == alignment % WORD_BYTES == 0
    return Features(
        bytes_per_multiprocessor=bytes_each,
        item_bytes=item_bytes,
        row_bytes=row.size * item_bytes,
        source_step=abs(row.strides[SOURCE]),
        target_step=abs(row.strides[TARGET]),
        least_step_bytes=min([abs(d.strides[SOURCE]) for d in space.dimensions], default=1) * item_bytes,
        line_bytes=line_bytes,
        line_step_bytes=line_step_bytes,
        tile_fill=tile_fill,
        tiles_per_multiprocessor=tiles_each,
        pixel_items=pixels.pixel_items if pixels else 0,
        splits_pixels=pixels is not None and pixels.splits,
        num_planes=pixels.num_planes if pixels else 0,
        plane_bytes=plane_bytes,
        has_whole_words=has_whole_words,
    )


def choose_path(copy: BoxCopy, limits: Limits, tree: Tree | None = None) -> Choice[BoxCopy]:
    """The path that is estimated to be the fastest, by a tree or by the operator's own."""
    # On a CPU, this copies with all cores and the C library with one.
    if limits.warp_lanes == 1:
        return Choice(PATHS["serial"], "blocks of one thread")
    if is_for_the_driver(copy, limits):
        return Choice(PATHS["driver"], f"one stretch of {copy.num_bytes} bytes in words of {MAX_ITEM_BYTES}")
    ranked = (tree or read_tree("slice", Features._fields)).ranked(features_of(copy, limits))
    path = first_that_can(PATHS, ranked, copy, limits, PATHS["gather"])
    return Choice(path, BY_TREE)
