"""How a top-k is computed: the paths through the kernels, and the choice between them.

Every path gives the same bits, because every kernel orders by key and then by index. A tree chooses by
features of the problem; `choices/top_k.csv` has it.
"""

from typing import NamedTuple

from cudml.operators.path import BY_TREE, Choice, Path, by_name, first_that_can
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
from cudml.operators.top_k.rows import Selection, lie_together
from cudml.operators.top_k.serial import can_serial, can_serial_arg_max, serial, serial_arg_max
from cudml.operators.tree import MOST_BYTES, Tree, read_tree
from cudml.plans import WARP_LANES, Limits

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


#: Most rows per multiprocessor that count as a feature, unless `MOST_BYTES` are more rows.
_MOST_ROWS = 8


class Features(NamedTuple):
    """The features for the tree; sizes are relative to the device, so that the tree serves other devices."""

    rows_per_multiprocessor: float
    elements_per_multiprocessor: float
    results_per_multiprocessor: float
    part_of_l2: float
    row_length: int
    row_bytes: int
    k: int
    length_per_result: float
    element_bytes: int
    is_float: bool
    lies_together: bool
    is_ragged: bool
    has_clusters: bool


def features_of(selection: Selection, limits: Limits) -> Features:
    """The features of a selection on a device."""
    length, k, size = selection.row_length, selection.k, selection.element.size
    row_bytes = selection.mean_length * size
    most_rows = max(_MOST_ROWS, MOST_BYTES // max(row_bytes, 1)) * limits.num_multiprocessors
    num_rows = min(selection.num_rows, most_rows)
    rows = num_rows / limits.num_multiprocessors
    return Features(
        rows_per_multiprocessor=rows,
        elements_per_multiprocessor=rows * selection.mean_length,
        results_per_multiprocessor=rows * k,
        part_of_l2=num_rows * row_bytes / limits.l2_bytes,
        row_length=length,
        row_bytes=length * size,
        k=k,
        length_per_result=length / k,
        element_bytes=size,
        is_float=selection.element.kind == "f",
        lies_together=lie_together(selection),
        is_ragged=selection.is_ragged,
        has_clusters=limits.max_cluster_blocks > 1,
    )


def choose_path(selection: Selection, limits: Limits, tree: Tree | None = None) -> Choice[Selection]:
    """The path that is estimated to be the fastest, by the given tree or the operator's own."""
    if limits.warp_lanes != WARP_LANES:
        return Choice(PATHS["serial_arg_max" if selection.k == 1 else "serial"], "blocks of one thread")
    ranked = (tree or read_tree("top_k", Features._fields)).ranked(features_of(selection, limits))
    # Any GPU can take `block_radix`; a leaf's paths may need clusters, or more shared storage.
    found = first_that_can(PATHS, ranked, selection, limits, PATHS["block_radix"])
    return Choice(found, BY_TREE)
