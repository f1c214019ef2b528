"""The paths of copies, which move a box of items from one place to another, and the choice between them.

`SLICE` and `SLICE1` are such copies, and so is packing an operand for a matrix product.

A plan outlives the buffers it runs on, so it does not know how pointers are aligned. The kernels check, and
branch once for the whole launch.
"""

from typing import NamedTuple

from cudml.operators.index_space import MAX_ITEM_BYTES, Space, coalesced, dimensions_of, widened
from cudml.operators.launch_shape import WORD_BYTES
from cudml.operators.path import BY_TREE, Choice, Path, by_name, first_that_can, named_path, single_step
from cudml.operators.slice.box import SOURCE, TARGET, BoxCopy
from cudml.operators.slice.crossings import (
    TRANSPOSED_TILE_BYTES,
    alignment_of,
    filled_part,
    has_crossing,
    has_pixels,
    planes,
    transpose,
)
from cudml.operators.slice.gather import any_copy, gather
from cudml.operators.slice.runs import is_run, runs
from cudml.operators.slice.serial import serial
from cudml.operators.tree import MOST_BYTES, Tree, read_tree
from cudml.plans import Copy, Limits, Step
from cudml.tensors import TensorDesc


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

    On an H200, the driver copies 4 KiB in 4.3 us and 16 MiB in 11.7, `runs` in 5.0 and 12.6. For 1 GiB the
    driver reaches 4.3 TB/s, a kernel of 16-byte copies 3.9. If the GiB is not aligned, `runs` takes 528 us,
    and PyTorch's copy, which is the driver's, 795 (bench/results/nvidia-h200.csv and nvidia-h200-micro.csv).
    """
    return is_stretch(copy, limits) and copy.space.item_bytes == MAX_ITEM_BYTES


PATHS = by_name(
    Path("driver", "one stretch of bytes", is_stretch, single_step(driver_copy)),
    Path("serial", "any copy on a CPU", any_copy, single_step(serial)),
    Path("runs", "long rows, contiguous or mirrored", is_run, single_step(runs)),
    Path("transpose", "lines of the target across lines of the source", has_crossing, single_step(transpose)),
    Path("planes", "pixels of 2 to 4 narrow items to planes, or back", has_pixels, single_step(planes)),
    Path("gather", "any copy", any_copy, single_step(gather)),
)


class Features(NamedTuple):
    """The features of a copy for the tree; members about a path are 0 if the path cannot compute it."""

    bytes_per_multiprocessor: float
    item_bytes: int
    #: Bytes of the innermost dimension.
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
    space, row, item_bytes, pixels = copy.space, copy.row, copy.space.item_bytes, copy.pixels
    bytes_per_multiprocessor = min(copy.num_bytes / limits.num_multiprocessors, MOST_BYTES)
    line_bytes = line_step_bytes = pixel_items = num_planes = plane_bytes = 0
    tile_fill = tiles_per_multiprocessor = 0.0
    splits_pixels = has_whole_words = False
    if copy.crossing:
        line = space.dimensions[copy.crossing]
        line_bytes, line_step_bytes = line.size * item_bytes, abs(line.strides[TARGET]) * item_bytes
        tile_fill = filled_part(row.size, line.size, item_bytes)
        tiles_per_multiprocessor = bytes_per_multiprocessor / (tile_fill * TRANSPOSED_TILE_BYTES)
    if pixels is not None:
        pixel_items, splits_pixels, num_planes = pixels.pixel_items, pixels.splits, pixels.num_planes
        plane_bytes = pixels.line.size * item_bytes
        has_whole_words = plane_bytes % WORD_BYTES == 0 and (
            alignment_of(pixels, TARGET, item_bytes) == WORD_BYTES
        )
    # In the order of the members: with names, a choice takes a fifth longer.
    return Features(
        bytes_per_multiprocessor,
        item_bytes,
        row.size * item_bytes,
        abs(row.strides[SOURCE]),
        abs(row.strides[TARGET]),
        copy.least_step * item_bytes,
        line_bytes,
        line_step_bytes,
        tile_fill,
        tiles_per_multiprocessor,
        pixel_items,
        splits_pixels,
        num_planes,
        plane_bytes,
        has_whole_words,
    )


def choose_path(copy: BoxCopy, limits: Limits, tree: Tree | None = None) -> Choice[BoxCopy]:
    """The path that is estimated to be the fastest, by the given tree or the operator's own."""
    # On a CPU, `serial` copies with all cores, and the C library with one.
    if limits.warp_lanes == 1:
        return Choice(PATHS["serial"], "blocks of one thread")
    if is_for_the_driver(copy, limits):
        return Choice(PATHS["driver"], f"one stretch of {copy.num_bytes} bytes in words of {MAX_ITEM_BYTES}")
    ranked = (tree or read_tree("slice", Features._fields)).ranked(features_of(copy, limits))
    path = first_that_can(PATHS, ranked, copy, limits, PATHS["gather"])
    return Choice(path, BY_TREE)
