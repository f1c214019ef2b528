"""Copies of any layout on a GPU: each item is gathered."""

from cudml.operators.index_space import is_packed, span_items
from cudml.operators.launch_shape import (
    BLOCK_CONSTANTS,
    BLOCK_THREADS,
    ITEM_TYPES,
    grid_blocks,
    index_values,
    launch_of,
)
from cudml.operators.slice.box import BOX_MEMBERS, SOURCE, TARGET, BoxCopy
from cudml.plans import MEMORY_PIECE_BYTES, KernelLaunch, Limits, Params, ParamStruct, ceil_div

#: What `slice/gather.cu` is compiled with.
GATHER_ITEMS_PER_THREAD = {1: 8, 2: 8, 4: 8, 8: 4, 16: 4}
GATHER_FEW_ITEMS_PER_THREAD = 2
_GATHER_CONSTANTS = {
    item_bytes: (
        *BLOCK_CONSTANTS,
        (f"kItemsPerThread<{ITEM_TYPES[item_bytes]}>", count),
        ("kFewItemsPerThread", GATHER_FEW_ITEMS_PER_THREAD),
    )
    for item_bytes, count in GATHER_ITEMS_PER_THREAD.items()
}

#: The struct of the kernel.
_PARAMS = ParamStruct(
    "Int64 num_items, source_offset, target_offset", *BOX_MEMBERS, "Int32 target_is_packed, source_is_far"
)


def any_copy(copy: BoxCopy, limits: Limits) -> bool:
    """Every copy."""
    return True


def gather(copy: BoxCopy, limits: Limits) -> KernelLaunch:
    """Any copy: a thread computes where each of its items lies."""
    space = copy.space
    num_items, item_bytes = space.num_items, space.item_bytes
    # Whether no two neighbours lie in the same piece of memory that is read at once.
    is_far = copy.least_step * item_bytes >= MEMORY_PIECE_BYTES
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
        Params(_PARAMS, values),
        constants=_GATHER_CONSTANTS[item_bytes],
    )
