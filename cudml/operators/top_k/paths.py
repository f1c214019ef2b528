"""How a top-k is computed: the paths through the kernels.

Every path gives the same bits, because every kernel orders by key and then by index.
"""

from cudml.operators.path import Path, by_name
from cudml.operators.top_k.arg_max import arg_max, can_arg_max
from cudml.operators.top_k.block_sort import block_sort, can_block_sort
from cudml.operators.top_k.cluster import can_cluster, cluster
from cudml.operators.top_k.columns import can_filter_columns, filter_columns
from cudml.operators.top_k.filter import block_filter, can_filter
from cudml.operators.top_k.groups import can_group, groups
from cudml.operators.top_k.keep import can_keep, keep
from cudml.operators.top_k.lanes import (
    can_thread_list,
    can_warp_select,
    can_warp_sort,
    thread_list,
    warp_select,
    warp_sort,
)
from cudml.operators.top_k.radix import block_radix, can_share_rows, can_take_blocks, grid_radix
from cudml.operators.top_k.serial import can_serial, can_serial_arg_max, serial, serial_arg_max

PATHS = by_name(
    Path("serial_arg_max", "a k of 1 on a CPU", can_serial_arg_max, serial_arg_max),
    Path("serial", "any rows on a CPU", can_serial, serial),
    Path(
        "thread_list",
        "a small k of rows of few elements, or of many side by side",
        can_thread_list,
        thread_list,
    ),
    Path("arg_max", "a k of 1", can_arg_max, arg_max),
    Path("columns", "a small k of rows side by side in memory, or many", can_filter_columns, filter_columns),
    Path("warp_select", "a small k of short rows", can_warp_select, warp_select),
    Path("warp_sort", "short rows", can_warp_sort, warp_sort),
    Path("block_sort", "k up to 1024 of narrow rows of some thousand elements", can_block_sort, block_sort),
    Path("groups", "fewer results than groups of neighbours in a long row", can_group, groups),
    Path("cluster", "few long rows, by a cluster of blocks each", can_cluster, cluster),
    Path("block_keep", "many results of rows that fit the shared storage of a block", can_keep, keep),
    Path("block_filter", "k up to some thousands of long rows, read once", can_filter, block_filter),
    Path("block_radix", "any rows, a block each", can_take_blocks, block_radix),
    Path("grid_radix", "fewer long rows than multiprocessors", can_share_rows, grid_radix),
)
