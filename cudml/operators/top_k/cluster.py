"""Top-k of few long rows: a cluster of blocks reads a row once and keeps it on chip."""

from dataclasses import dataclass
from typing import NamedTuple

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.rows import (
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    fine_params,
    lie_together,
    select_storage_bytes,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, ceil_div, round_up

# kernels/top_k/cluster.cu and bucket_rank.cuh
_THREADS = 512
#: Blocks of a cluster by instance, the most that every device with clusters supports first.
_BLOCKS = (8, 4)
_MAX_LISTED = 8 * _THREADS
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 16 + 16 + 12, 16)

#: `ClusterParams` of kernels/top_k/cluster.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int64 kept_bytes, listed_bytes")


@dataclass(frozen=True)
class Thresholds:
    """How much is listed, and how many clusters run at once."""

    #: Largest k: the list then holds twice as many.
    max_k: int = figure(_MAX_LISTED // 2, "estimate", "longer lists are cut more often")

    #: Most rows for each multiprocessor.
    max_rows: int = figure(4, "estimate", "more rows keep every multiprocessor busy by a block each")

    #: Elements that are listed, at least.
    min_listed: int = figure(256, "estimate", "each block may list some more than its share")

    #: All clusters run at once if their blocks are at most this part of the multiprocessors.
    max_part: float = figure(
        10 / 11, "micro-figure", "30 clusters of 4 large blocks run at once on 132 multiprocessors, 15 of 8"
    )


THRESHOLDS = Thresholds()


class _Shape(NamedTuple):
    """Blocks of a cluster; elements of a list; bytes of a block's share of a row, of its list, and of all its
    shared storage."""

    blocks: int
    max_listed: int
    kept_bytes: int
    listed_bytes: int
    shared_bytes: int


def _shape(selection: Selection, limits: Limits) -> _Shape:
    """More blocks share a row if all clusters of them run at once, or if fewer cannot hold it."""
    many, few = (_shape_of(selection, blocks) for blocks in _BLOCKS)
    run_at_once = many.blocks * selection.num_rows <= THRESHOLDS.max_part * limits.num_multiprocessors
    return many if run_at_once or few.shared_bytes > limits.shared_bytes_per_block else few


def _shape_of(selection: Selection, blocks: int) -> _Shape:
    size = selection.element.size
    per_load = VECTOR_BYTES // size
    # A row may begin with any element of a load.
    chunks = ceil_div(ceil_div(selection.row_length + per_load - 1, per_load), WARP_LANES)
    loads = ceil_div(chunks, blocks) * WARP_LANES
    max_listed = min(max(THRESHOLDS.min_listed, 1 << (2 * selection.k - 1).bit_length()), _MAX_LISTED)
    list_bytes = max_listed * (size + 4)
    # Where its share of the row was, every block gathers all lists; its own is where its largest keys were.
    kept_bytes = max(loads * VECTOR_BYTES, list_bytes)
    listed_bytes = round_up(max(loads * size, list_bytes), 8)
    shared_bytes = _STORAGE_BYTES + kept_bytes + listed_bytes + 2 * loads
    return _Shape(blocks, max_listed, kept_bytes, listed_bytes, shared_bytes)


def can_cluster(selection: Selection, limits: Limits) -> bool:
    """Whether elements of few rows lie side by side, and the shared storage of a cluster holds a row."""
    t = THRESHOLDS
    are_few = selection.num_rows <= t.max_rows * limits.num_multiprocessors
    is_small = lie_together(selection) and are_few and selection.k <= t.max_k
    can = limits.warp_lanes == WARP_LANES and limits.max_cluster_blocks >= _BLOCKS[0] and is_small
    return can and _shape(selection, limits).shared_bytes <= limits.shared_bytes_per_block


def cluster_waves(selection: Selection, limits: Limits) -> float:
    """How many times as many clusters there are as run at once; at most 1 if all do."""
    blocks = _shape(selection, limits).blocks * selection.num_rows
    return blocks / (THRESHOLDS.max_part * limits.num_multiprocessors)


def cluster(selection: Selection, limits: Limits) -> Steps:
    """One launch of a cluster for each row, which waits for no other."""
    shape = _shape(selection, limits)
    launch = KernelLaunch(
        source="top_k/cluster.cu",
        function="top_k_cluster",
        template=(selection.word, shape.blocks, *selection.raggedness),
        grid=(selection.num_rows * shape.blocks, 1, 1),
        block=(_THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(
            selection,
            _PARAMS,
            blocks_per_row=shape.blocks,
            list_capacity=shape.max_listed,
            more={"kept_bytes": shape.kept_bytes, "listed_bytes": shape.listed_bytes},
        ),
        shared_bytes=shape.shared_bytes,
        cluster_blocks=shape.blocks,
        constants=(
            ("kThreads", _THREADS),
            ("sizeof(ClusterStorage)", _STORAGE_BYTES),
        ),
    )
    return (launch,), ()
