"""The launches of strided copies: which kernel moves a box of items from one place to another.

`SLICE` and `SLICE1` are such copies, and so is packing an operand for a matrix product.
"""

from cudml.dtypes import BITS_BY_SIZE, element_info
from cudml.operators.coalesce import (
    MAX_NARROW_COUNT,
    Space,
    coalesced,
    dimensions_of,
    magic_division,
)
from cudml.plans import KernelLaunch, Limits, Params, ceil_div
from cudml.tensors import TensorDesc

#: Operands of a copy's index space.
SOURCE, TARGET = 0, 1

#: Threads of every data-movement block, and how many blocks a multiprocessor is given before blocks
#: take several tiles each: four waves of the eight blocks that fill it.
BLOCK_THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 32

GATHER_ITEMS_PER_THREAD = 4

_MAX_DIMENSIONS = 8


def gather_launch(
    source: TensorDesc, source_buffer: str, target: TensorDesc, target_buffer: str, limits: Limits
) -> KernelLaunch:
    """The launch that copies one tensor to another of the same sizes and item size, strides free.

    Parameters
    ----------
    source, target : TensorDesc
        Where the elements lie. Source strides may be negative or 0; target strides may be negative.
        Neither is empty.
    source_buffer, target_buffer : str
        The operands or workspaces that hold them.
    """
    return copy_launch(
        Space(
            dimensions_of(target.sizes, source.element_strides, target.element_strides),
            (0, 0),
            target.element.size,
        ),
        source_buffer,
        target_buffer,
        limits,
    )


def copy_launch(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """The launch of a copy whose space has the source as its first operand and the target as its second."""
    return gather(coalesced(space, TARGET, (SOURCE, TARGET)), source_buffer, target_buffer, limits)


def gather(space: Space, source_buffer: str, target_buffer: str, limits: Limits) -> KernelLaunch:
    """Any copy: a thread finds the place of each of its items."""
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return KernelLaunch(
        source="slice/gather.cu",
        function="slice_gather",
        template=(item_type(space.item_bytes),),
        grid=(grid_blocks(num_tiles, limits), 1, 1),
        block=(BLOCK_THREADS, 1, 1),
        buffers=(source_buffer, target_buffer),
        params=Params.of(
            num_items=("Int64", space.num_items),
            num_tiles=("Int64", num_tiles),
            source_offset=("Int64", space.offsets[SOURCE]),
            target_offset=("Int64", space.offsets[TARGET]),
            **index_members(space, ("source_strides", "target_strides")),
        ),
    )


def item_type(item_bytes: int) -> str:
    """The kernels' type that moves an item."""
    return element_info(BITS_BY_SIZE[item_bytes]).cpp


def grid_blocks(num_tiles: int, limits: Limits) -> int:
    """Blocks for so many tiles: one each while that is a few waves, then the blocks stride."""
    return min(num_tiles, limits.num_multiprocessors * BLOCKS_PER_MULTIPROCESSOR)


def index_members(
    space: Space, strides: tuple[str, ...], scale: int = 1
) -> dict[str, tuple[str, int | float | tuple[int | float, ...]]]:
    """The members that `common/strided_index.cuh` reads, and the named strides of the first operands.

    `scale` multiplies the strides: 1 leaves them in items.
    """
    is_wide = space.num_items >= MAX_NARROW_COUNT
    divisions = [magic_division(d.size, 64 if is_wide else 32) for d in space.dimensions]

    def row(values: list[int]) -> tuple[int, ...]:
        return tuple(values + [0] * (_MAX_DIMENSIONS - len(values)))

    return {
        "sizes": ("Int64", row([d.size for d in space.dimensions])),
        "multipliers": ("UInt64", row([multiplier for multiplier, _ in divisions])),
        **{
            name: ("Int64", row([d.strides[k] * scale for d in space.dimensions]))
            for k, name in enumerate(strides)
        },
        "shifts": ("Int32", row([shift for _, shift in divisions])),
        "num_dimensions": ("Int32", len(space.dimensions)),
        "is_wide": ("Int32", int(is_wide)),
    }
