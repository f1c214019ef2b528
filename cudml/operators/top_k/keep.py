"""Top-k of rows that the shared storage of a block holds: read once, and ranked by buckets of keys."""

from dataclasses import dataclass
from typing import NamedTuple

from cudml.operators.path import Steps, figure
from cudml.operators.top_k.lanes import SORT_MAX_ROW_LENGTH
from cudml.operators.top_k.rows import (
    CANDIDATE_BYTES,
    FINE_MEMBERS,
    VECTOR_BYTES,
    Selection,
    fine_params,
    select_storage_bytes,
)
from cudml.plans import WARP_LANES, KernelLaunch, Limits, ParamStruct, ceil_div, round_up

# kernels/top_k/block_keep.cu
_THREADS = 512
_AHEAD = 8
_MAX_K = 8 * _THREADS
_COMPARED, _FULLEST = 4, 256
_STORAGE_BYTES = round_up(select_storage_bytes(_THREADS) + 16 + 8, 16)
#: Elements of a row whose indices have 16 bits, as those of narrow ones in a list.
_MAX_NARROW_LENGTH = 1 << 16

#: `KeepParams` of kernels/top_k/block_keep.cu.
_PARAMS = ParamStruct(*FINE_MEMBERS, "Int64 kept_bytes, loads_of_group")


@dataclass(frozen=True)
class Thresholds:
    """How a floor is guessed, and when a block for each row pays."""

    #: Groups that are expected to lie below the k-th element: it is rare that none does, and the guess of the
    #: floor too high.
    groups_below: float = figure(4.5, "estimate", "in random order, one guess of ninety is too high")

    #: More results than lanes; of rows that are at most as many as multiprocessors, more than this.
    min_few_k: int = figure(
        65,
        "machine code",
        "predicted us by a block each and by groups: 8.9 and 8.6 for 58 x 4278 float32 and k = 54, 8.4 and "
        "9.2 for 90 x 2545 and 75",
    )

    #: Rows that may have a cluster each are at most this long, of elements of 1, 2, 4 and 8 bytes.
    max_of_clusters: tuple[int, int, int, int] = figure(
        (12_000, 13_000, 13_000, 3000),
        "machine code",
        "predicted us by a block and by a cluster each: 10.9 and 18.2 for 5 x 9323 int8 and k = 878, 13.5 "
        "and 11.1 for 19606 and 641; 8.6 and 9.7 for 4 x 11973 float16 and 422; 9.1 and 9.7 for 7 x 10943 "
        "float32 and 1144, 9.1 and 9.8 for 18 x 13000 and 900; 8.3 and 9.7 for 6 x 3264 float64 and 249, "
        "10.3 and 9.9 for 4 x 3488",
    )

    #: Rows that fit a warp, and are at most as many as multiprocessors, are at least this long,
    min_short_length: tuple[int, int, int, int] = figure(
        (900, 900, 400, 400),
        "machine code",
        "predicted us by a block and by a warp each: 8.1 and 8.8 for 102 x 1016 int8 and k = 643, 7.7 and "
        "7.3 for 24 x 759 and 67; 7.4 and 8.0 for 130 x 400 float32 and 100, 7.7 and 7.4 for 257 and 100; "
        "7.4 and 9.4 for 762 int64 and 148",
    )
    #: and rows that are more than blocks at once, or they have this many results; of words that fit no two
    #: warps, the second number.
    min_length_of_many: tuple[int, int, int, int] = figure(
        (12_289, 4097, 4097, 1400),
        "machine code",
        "predicted us by a block each and otherwise: 69.0 and 145 for 3923 x 4827 float16 and k = 251, 110 "
        "and 106 for 4013 x 3957 and 790; 81.4 and 119 for 3269 x 4113 float32 and 401, 85.4 and 70.3 for "
        "4568 x 2445 and 298; 28.4 and 44.7 for 1041 x 1435 int64 and 664",
    )
    min_k_of_many: tuple[int, int] = figure(
        (1025, 513),
        "machine code",
        "predicted us by a block each and otherwise: 40.3 and 49.4 for 1799 x 2945 float32 and k = 519, 57.8 "
        "and 195 for 2932 x 3550 int32 and 1054; 52.6 and 145 for 2311 x 1818 int8 and 1064",
    )

    #: Rows between both fit no warp; narrow ones that fit four have this many results.
    min_k_of_narrow: int = figure(
        129,
        "machine code",
        "predicted us by a block each and by sorted parts: 10.5 and 9.2 for 259 x 3680 float16 and k = 67, "
        "8.5 and 11.9 for 163 x 2831 uint16 and 369",
    )

    #: Elements for each result: of bytes, which tie more often, and of others if rows take more than half of
    #: the shared storage, and are more than multiprocessors or narrow.
    max_length_per_result: tuple[int, int, int, int] = figure(
        (25, 48, 100, 48),
        "machine code",
        "predicted us by a block each and filtered: 32.1 and 40.3 for 172 x 37529 int8 and k = 1565, 36.6 "
        "and 35.3 for 135 x 45642 and 1266; 119 and 131 for 1243 x 45518 uint16 and 954, 58.4 and 52.0 for "
        "330 x 55264 and 714; 27.4 and 34.3 for 416 x 22572 float32 and 253; 82.8 and 86.0 for 721 x 23235 "
        "int64 and 619, 57.5 and 54.1 for 725 x 14632 and 260",
    )

    #: The most results as a part of a row of floats of a word or more: the k-th of as many numbers of either
    #: sign may be near zero.
    max_part_of_floats: float = figure(
        0.45,
        "machine code",
        "predicted us by a block each and filtered: 13.0 and 31.4 for 31 x 4250 float64 and k = 1990, 30.1 "
        "and 17.9 for 76 x 2769 float32 and 1763",
    )

    #: Blocks that a multiprocessor runs at once.
    blocks_per_multiprocessor: int = figure(2, "machine code", "limited by its registers")


THRESHOLDS = Thresholds()


class _Shape(NamedTuple):
    """Bytes of a row, elements of the list of many that are alike, and bytes of all shared storage."""

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
    lie_together = selection.axis_strides[0] == 1 or selection.row_length == 1
    is_small = lie_together and selection.k <= _MAX_K and selection.num_rows < 1 << 31
    if selection.element.size < 4 and selection.row_length > _MAX_NARROW_LENGTH:
        return False
    can = limits.warp_lanes == WARP_LANES and is_small and selection.lengths is None
    return can and _shape(selection).shared_bytes <= limits.shared_bytes_per_block


def _num_groups(num_loads: int, loads: int) -> int:
    """Groups of `loads` loads of a thread, of which the kernel reads kAhead at once."""
    per_batch = _AHEAD * _THREADS
    batches, rest = divmod(num_loads, per_batch)
    last = sum(min(_THREADS, max(0, rest - (end - 1) * _THREADS)) for end in range(loads, _AHEAD + 1, loads))
    return batches * (per_batch // loads) + last


def _loads_of_group(selection: Selection) -> int:
    """The largest groups whose least one rarely exceeds the k-th element; 0 if there are none."""
    per_load = VECTOR_BYTES // selection.element.size
    for loads in (8, 4, 2, 1):
        groups = _num_groups(selection.row_length // per_load, loads)
        # The part of a row in whose lower rest so many groups are expected to lie, if it is in random order.
        rest = (THRESHOLDS.groups_below / max(groups, 1)) ** (1 / (loads * per_load))
        if selection.k <= (1 - rest) * selection.row_length:
            return loads
    return 0


def keep_pays(selection: Selection, limits: Limits, *, may_cluster: bool) -> bool:
    """Whether a block for each row takes less time than a warp, a filter, a search or a cluster."""
    t, length, k = THRESHOLDS, selection.row_length, selection.k
    size, rows = selection.element.size, selection.num_rows
    width = size.bit_length() - 1
    is_float = selection.element.kind == "f" and size >= 4
    if k <= WARP_LANES or (is_float and k > t.max_part_of_floats * length):
        return False
    is_large = 2 * _shape(selection).shared_bytes > limits.shared_bytes_per_multiprocessor
    are_few = rows <= limits.num_multiprocessors
    may_be_long = size >= 4 and are_few
    if (size == 1 or (is_large and not may_be_long)) and length > t.max_length_per_result[width] * k:
        return False
    if rows > t.blocks_per_multiprocessor * limits.num_multiprocessors:
        is_word = size == 4 and length > 2 * SORT_MAX_ROW_LENGTH
        return k >= t.min_k_of_many[is_word] or length >= t.min_length_of_many[width]
    if may_cluster and length > t.max_of_clusters[width]:
        return False
    if not are_few:
        is_narrow = size < 4 and k < t.min_k_of_narrow and length <= 4 * SORT_MAX_ROW_LENGTH
        return length > SORT_MAX_ROW_LENGTH and not is_narrow
    return k >= t.min_few_k and length >= t.min_short_length[width]


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
