"""Top-k of few long rows: a cluster of blocks reads a row once and keeps it on chip."""

from dataclasses import dataclass
from typing import NamedTuple

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.rows import (
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    fine_params,
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
    """How much is listed, and when clusters pay."""

    #: Largest k: the list then holds twice as many.
    max_k: int = figure(_MAX_LISTED // 2, "estimate", "longer lists are cut more often")

    #: Most rows for each multiprocessor.
    max_rows: int = figure(4, "estimate", "more rows keep every multiprocessor busy by a block each")

    #: Elements that are listed, at least.
    min_listed: int = figure(256, "estimate", "each block may list some more than its share")

    #: A row has a cluster of its own if k is at least this, of bytes, which tie more often, the second,
    min_k: tuple[int, int] = figure(
        (65, 129),
        "machine code",
        "predicted us by clusters and the best other path: 9.3 and 9.1 for 131072 float32 and k = 64, 17.6 "
        "and 14.0 for int8 and 100; 10.2 and 13.3 for 3 x 17000 int8 and 150",
    )

    #: and a row of bytes is no longer than this,
    max_row_of_bytes: int = figure(
        1 << 17,
        "machine code",
        "predicted us by clusters and the best other path: 13.7 and 22.3 for 20 x 70000 int8 and k = 600, "
        "40.4 and 36.0 for 31 x 168341 and 971",
    )

    #: if it has at least this many elements for each result,
    min_length_per_result: int = figure(
        3,
        "machine code",
        "predicted us by clusters and the best other path: 55 and 37 for 8 x 4096 float64 and k = 2048, 12.3 "
        "and 17.6 for 24 x 8192; 17.9 and 17.2 for 8 x 6144 float32 and 2048; 14.6 and 20.1 for 4 x 8000 "
        "float16 and 1040",
    )
    #: and, of elements up to a word, the row this many bytes,
    min_row_bytes: int = figure(
        1 << 13,
        "machine code",
        "predicted us by clusters and the best other path: 13.8 and 28.2 for 4 x 2400 float32 and k = 600, "
        "12.2 and 8.0 for 1300 and 70, 13.4 and 9.9 for 1300 and 260",
    )

    #: or if no other path than a block pays, and k is at least this,
    min_last_k: int = figure(
        161,
        "machine code",
        "predicted us by clusters and by block_filter: 9.6 and 13.5 for 4 x 1300 float32 and k = 1040, 9.2 "
        "and 10.7 for 700 int64 and 260; for 10 ragged rows of 600 int64 12.7 and 10.3 for 130, 8.8 and 10.3 "
        "for 180",
    )

    #: of a ragged one of words,
    min_ragged_bytes: int = figure(
        3 << 13,
        "machine code",
        "predicted us by clusters and by groups: 12.6 and 9.6 for 4 x 5000 float32 and k = 120, 13.5 and 9.7 "
        "for 2600 and 200, 9.9 and 10.7 for 7000 and 600",
    )

    #: and if the blocks of all clusters are at most this part of the multiprocessors, where all run at once,
    max_part: float = figure(
        10 / 11, "micro-figure", "30 clusters of 4 large blocks run at once on 132 multiprocessors, 15 of 8"
    )

    #: or at most twice as many, for at least this k and rows of at least this many bytes.
    min_k_of_second: int = figure(
        641,
        "machine code",
        "predicted us by clusters and by groups: 20.2 and 22.7 for 40 x 100000 float32 and k = 700, 20.0 and "
        "19.7 for 400; 16.7 and 17.2 for 40 x 50000 and 700",
    )
    min_bytes_of_second: int = figure(
        1 << 17,
        "machine code",
        "predicted 18.2 us by clusters, 20.9 by groups, for 31 x 32768 float32 and k = 2048; of 8192 35.7 "
        "and 19.3",
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
    t, lie_together = THRESHOLDS, selection.axis_strides[0] == 1 or selection.row_length == 1
    are_few = selection.num_rows <= t.max_rows * limits.num_multiprocessors
    is_small = lie_together and are_few and selection.k <= t.max_k
    can = limits.warp_lanes == WARP_LANES and limits.max_cluster_blocks >= _BLOCKS[0] and is_small
    return can and _shape(selection, limits).shared_bytes <= limits.shared_bytes_per_block


def cluster_pays(selection: Selection, limits: Limits, *, is_last: bool = False) -> bool:
    """Whether rows are few, and k is neither small nor most of a row.

    If it `is_last`, the others are paths of a block for each row, and k may be most of it.
    """
    t, size, k = THRESHOLDS, selection.element.size, selection.k
    row_bytes = selection.row_length * size
    waves = 2 if k >= t.min_k_of_second and row_bytes >= t.min_bytes_of_second else 1
    blocks = _shape(selection, limits).blocks * selection.num_rows
    can_run = blocks <= waves * t.max_part * limits.num_multiprocessors
    can_run &= size > 1 or row_bytes <= t.max_row_of_bytes
    if is_last:
        return can_run and k >= t.min_last_k
    is_long = selection.row_length >= t.min_length_per_result * k and (
        size == 8 or row_bytes >= t.min_row_bytes
    )
    is_cut = selection.lengths is not None and size == 4 and row_bytes < t.min_ragged_bytes
    return can_run and k >= t.min_k[size == 1] and is_long and not is_cut


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
