"""Top-k of rows that the shared storage of a block holds: read once, and ranked by buckets of keys."""

from typing import NamedTuple

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import (
    CANDIDATE_BYTES,
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    fine_params,
    lie_together,
    select_storage_bytes,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, ceil_div, round_up

# kernels/top_k/block_keep.cu
_THREADS = 512
_AHEAD = 8
_MAX_K = 8 * _THREADS
_COMPARED, _FULLEST = 4, 256
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 16 + 8, 16)
#: Longest row of narrow elements, whose indices in a list have 16 bits.
_MAX_NARROW_LENGTH = 1 << 16

#: `KeepParams` of kernels/top_k/block_keep.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int64 kept_bytes, loads_of_group")


#: Expected number of groups below the k-th element. If there are none, the guess of the floor is too high: in
#: random order, one guess of ninety (estimate).
_GROUPS_BELOW = 4.5


class _Shape(NamedTuple):
    """Bytes of a row, capacity of the list for many alike elements, and bytes of all shared storage."""

    kept_bytes: int
    capacity: int
    shared_bytes: int


def _shape(selection: Selection) -> _Shape:
    size, k, length = selection.element.size, selection.k, selection.row_length
    per_load = VECTOR_BYTES // size
    kept_bytes = VECTOR_BYTES * ceil_div(length + per_load - 1, per_load)
    capacity = max(256, 1 << (k - 1).bit_length())
    list_bytes = round_up((k + _FULLEST + _COMPARED) * CANDIDATE_BYTES[size], 16)
    shared_bytes = kept_bytes + max(round_up(capacity * (size + 8), 16), list_bytes)
    return _Shape(kept_bytes, capacity, _STORAGE_BYTES + shared_bytes)


def can_keep(selection: Selection, limits: Limits) -> bool:
    """Whether elements lie side by side, and shared storage holds a row and its results."""
    is_small = lie_together(selection) and selection.k <= _MAX_K and selection.num_rows < 1 << 31
    if selection.element.size < 4 and selection.row_length > _MAX_NARROW_LENGTH:
        return False
    can = limits.warp_lanes == WARP_LANES and is_small and selection.lengths is None
    return can and _shape(selection).shared_bytes <= limits.shared_bytes_per_block


def _num_groups(num_loads: int, loads: int) -> int:
    """The number of groups, each of `loads` loads of a thread; the kernel reads kAhead loads at once."""
    per_batch = _AHEAD * _THREADS
    batches, rest = divmod(num_loads, per_batch)
    # The loads of each thread in the last batch, and the threads that have one more.
    each, more = divmod(rest, _THREADS)
    last = more * ((each + 1) // loads) + (_THREADS - more) * (each // loads)
    return batches * (per_batch // loads) + last


def _loads_of_group(selection: Selection) -> int:
    """The most loads per group for which the guessed floor rarely exceeds the k-th element; 0 if none."""
    per_load = VECTOR_BYTES // selection.element.size
    for loads in (8, 4, 2, 1):
        groups = _num_groups(selection.row_length // per_load, loads)
        # The lower part of a row in random order in which `_GROUPS_BELOW` groups are expected to lie.
        rest = (_GROUPS_BELOW / max(groups, 1)) ** (1 / (loads * per_load))
        if selection.k <= (1 - rest) * selection.row_length:
            return loads
    return 0


def keep(selection: Selection, limits: Limits) -> Steps:
    """One launch of a block for each row."""
    shape = _shape(selection)
    launch = KernelLaunch(
        source="top_k/block_keep.cu",
        function="top_k_block_keep",
        template=(selection.word,),
        grid=(selection.num_rows, 1, 1),
        block=(_THREADS, 1, 1),
        buffers=selection.operands[:3],
        params=fine_params(
            selection,
            _PARAMS,
            list_capacity=shape.capacity,
            more={"kept_bytes": shape.kept_bytes, "loads_of_group": _loads_of_group(selection)},
        ),
        shared_bytes=shape.shared_bytes,
        constants=(
            ("kThreads", _THREADS),
            ("sizeof(KeepStorage)", _STORAGE_BYTES),
            ("kAhead", _AHEAD),
            ("kCompared", _COMPARED),
            ("kFullest", _FULLEST),
        ),
    )
    return (launch,), ()
