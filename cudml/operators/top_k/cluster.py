"""Top-k of few long rows: a cluster of blocks reads a row once, and few of its loads again."""

from typing import NamedTuple

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import (
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    fine_params,
    lie_together,
    select_storage_bytes,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, ceil_div, round_up

# kernels/top_k/cluster.cu and list_rank.cuh
_THREADS = 512
#: Blocks of a cluster by instance; the first is the most that every device with clusters supports.
_BLOCKS = (8, 4, 2, 1)
#: The part of the multiprocessors on which clusters find room, one large block on each: 15 clusters of 8, 30
#: of 4 and 66 of 2 were measured on 132 multiprocessors.
_ROOM = {8: 10 / 11, 4: 10 / 11, 2: 1, 1: 1}
_MAX_LISTED = 8 * _THREADS
#: Most loads of a block: their indices have 16 bits.
_MAX_LOADS = 1 << 16
_SPARE_ROOM = 8
_MAX_TOPS = 4 * _THREADS // WARP_LANES
#: `FewStorage` of kernels/top_k/cluster_share.cuh.
_FEW_PLACES = 256
_FEW_BYTES = 12 * _FEW_PLACES + 4 * _BLOCKS[0] + 8
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 16 + 8 * _MAX_TOPS + 24 + 32 + _FEW_BYTES, 16)

#: `ClusterParams` of kernels/top_k/cluster.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int64 listed_bytes, largest_bytes")


#: Largest k: the list then holds twice as many. Longer lists are cut more often (estimate).
_MAX_K = _MAX_LISTED // 2

#: Smallest capacity of a list, in elements. Predicted 19 us, 27 with 2048, which saves sorted rows a cut but
#: ranks ties, for 64 x 131072 float32 of 252 values and k = 64 (machine code).
_MIN_LISTED = 256


class _Shape(NamedTuple):
    """Blocks of a cluster, and loads of each; elements of a list; bytes of a block's list, of the largest
    keys of its loads, and of all its shared storage."""

    blocks: int
    loads: int
    max_listed: int
    listed_bytes: int
    largest_bytes: int
    shared_bytes: int


def _shape(selection: Selection, limits: Limits) -> _Shape:
    """The most blocks per row that let all clusters run at once, but no fewer than can hold a row."""
    shape = _shape_of(selection, _BLOCKS[0])
    for blocks in _BLOCKS[1:]:
        fewer = _shape_of(selection, blocks)
        if _waves(selection, shape, limits) <= 1 or not _fits(fewer, limits):
            break
        shape = fewer
    return shape


def _shape_of(selection: Selection, blocks: int) -> _Shape:
    size = selection.element.size
    per_load = VECTOR_BYTES // size
    # A row may begin with any element of a load.
    chunks = ceil_div(ceil_div(selection.row_length + per_load - 1, per_load), WARP_LANES)
    loads = ceil_div(chunks, blocks) * WARP_LANES
    wanted = max(_MIN_LISTED, 1 << (2 * selection.k - 1).bit_length())
    if selection.is_ragged:
        # All elements of a row with fewer loads than results are listed.
        fewest = min(selection.row_length, selection.k * per_load)
        wanted = max(wanted, 1 << (fewest - 1).bit_length())
    max_listed = min(wanted, _MAX_LISTED)
    list_bytes = max_listed * (size + 4)
    # Every block gathers all lists in the place of the largest keys of its loads.
    largest_bytes = round_up(max(loads * size, list_bytes + _SPARE_ROOM * (size + 4)), 8)
    shared_bytes = _STORAGE_BYTES + list_bytes + largest_bytes + 2 * loads
    return _Shape(blocks, loads, max_listed, list_bytes, largest_bytes, shared_bytes)


def _fits(shape: _Shape, limits: Limits) -> bool:
    """Whether a block holds its share of a row."""
    return shape.loads <= _MAX_LOADS and shape.shared_bytes <= limits.shared_bytes_per_block


def can_cluster(selection: Selection, limits: Limits) -> bool:
    """Whether elements lie side by side, and a cluster holds what it finds in a row."""
    is_small = lie_together(selection) and selection.k <= _MAX_K
    can = limits.warp_lanes == WARP_LANES and limits.max_cluster_blocks >= _BLOCKS[0] and is_small
    return can and _fits(_shape(selection, limits), limits)


def _waves(selection: Selection, shape: _Shape, limits: Limits) -> float:
    return shape.blocks * selection.num_rows / (_ROOM[shape.blocks] * limits.num_multiprocessors)


def cluster(selection: Selection, limits: Limits) -> Steps:
    """One launch; each row has a cluster, which waits for no other."""
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
            more={"listed_bytes": shape.listed_bytes, "largest_bytes": shape.largest_bytes},
        ),
        shared_bytes=shape.shared_bytes,
        cluster_blocks=shape.blocks,
        constants=(
            ("kThreads", _THREADS),
            ("sizeof(ClusterStorage)", _STORAGE_BYTES),
            ("kSpareRoom", _SPARE_ROOM),
        ),
    )
    return (launch,), ()
