"""Top-k of few long rows: how they are divided into groups of neighbours, and groups among blocks."""

from math import isqrt
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
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, Workspace, ceil_div, round_up

# kernels/top_k/groups.cu and list_rank.cuh
_THREADS = 512
_WARPS = _THREADS // WARP_LANES
_MAX_LISTED = 8 * _THREADS
_SPARE_ROOM = 8
_TOPS = 4 * _WARPS
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 16 + 4 * _TOPS + 12, 8)

#: `GroupParams` of kernels/top_k/groups.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int32 log_lanes, num_chunks, chunks_per_block, max_groups")


#: Largest k: the list then holds twice as many. Longer lists are cut more often (estimate).
_MAX_K = _MAX_LISTED // 2

#: Groups beyond k that are looked at again, as a part of k and at least; and the smallest capacity of the
#: list. One digit seldom tells the k-th key exactly (estimate).
_SLACK_PART = 1 / 4
_MIN_SLACK = 64
_MIN_LISTED = 256

#: Blocks that a multiprocessor runs at once. Limited by its registers (machine code).
_BLOCKS_PER_MULTIPROCESSOR = 1


class _Shape(NamedTuple):
    """For a row: lanes of a group, chunks of 32 loads, groups, groups and elements looked at again."""

    lanes: int
    chunks: int
    groups: int
    max_groups: int
    max_listed: int
    shared_bytes: int


def _shape(selection: Selection) -> _Shape:
    size, k = selection.element.size, selection.k
    per_load = VECTOR_BYTES // size
    # A row may begin with any element of a load.
    loads = ceil_div(selection.row_length + per_load - 1, per_load)
    chunks = ceil_div(loads, WARP_LANES)
    # Twice as many elements as groups are looked at again; a group takes as long as two elements.
    wanted = max(1, isqrt(2 * selection.row_length // k) // per_load)
    lanes = min(WARP_LANES, 1 << (wanted.bit_length() - 1))
    groups = chunks * WARP_LANES // lanes
    max_groups = min(round_up(k + max(int(_SLACK_PART * k), _MIN_SLACK), 8), round_up(groups, 8))
    max_listed = min(max(_MIN_LISTED, 1 << (2 * k - 1).bit_length()), _MAX_LISTED)
    list_bytes = (max_listed + _SPARE_ROOM) * (size + 4) + 4 * max_groups + groups * size
    return _Shape(lanes, chunks, groups, max_groups, max_listed, _STORAGE_BYTES + list_bytes)


def can_group(selection: Selection, limits: Limits) -> bool:
    """Whether elements lie side by side, and shared storage holds the keys of all groups of a row."""
    is_small = lie_together(selection) and selection.k <= _MAX_K
    can = limits.warp_lanes == WARP_LANES and is_small
    return can and _shape(selection).shared_bytes <= limits.shared_bytes_per_block


def groups(selection: Selection, limits: Limits) -> Steps:
    """One launch; blocks share a row, and the last of them finishes it."""
    shape = _shape(selection)
    at_once = limits.num_multiprocessors * min(
        _BLOCKS_PER_MULTIPROCESSOR,
        max(1, limits.shared_bytes_per_multiprocessor // (shape.shared_bytes + 1024)),
    )
    parts = max(1, min(at_once // selection.num_rows, ceil_div(shape.chunks, _WARPS)))
    chunks_per_block = round_up(ceil_div(shape.chunks, parts), _WARPS)
    parts = ceil_div(shape.chunks, chunks_per_block)
    launch = KernelLaunch(
        source="top_k/groups.cu",
        function="top_k_groups",
        template=(selection.word, *selection.raggedness),
        grid=(selection.num_rows * parts, 1, 1),
        block=(_THREADS, 1, 1),
        buffers=(*selection.operands, "num_done", "largest"),
        params=fine_params(
            selection,
            _PARAMS,
            blocks_per_row=parts,
            list_capacity=shape.max_listed + _SPARE_ROOM,
            more={
                "log_lanes": shape.lanes.bit_length() - 1,
                "num_chunks": shape.chunks,
                "chunks_per_block": chunks_per_block,
                "max_groups": shape.max_groups,
            },
        ),
        shared_bytes=shape.shared_bytes,
        constants=(
            ("kThreads", _THREADS),
            ("kTops", _TOPS),
            ("sizeof(GroupStorage)", _STORAGE_BYTES),
            ("kRankedPerThread", _MAX_LISTED // _THREADS),
            ("kSpareRoom", _SPARE_ROOM),
        ),
    )
    workspaces = (
        Workspace("num_done", 4 * selection.num_rows, is_left_zero=True),
        Workspace("largest", selection.num_rows * shape.groups * selection.element.size),
    )
    return (launch,), workspaces
