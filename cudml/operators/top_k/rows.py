"""A top-k as the kernels see it: its rows, the order of its elements, and the parameters for both."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from types import MappingProxyType

from cudml.checks import MAX_DIMENSIONS
from cudml.dtypes import ElementInfo, ElementType, ExtendedType
from cudml.enums import DataType
from cudml.operators.index_space import Dimension, Divisions
from cudml.plans import WARP_LANES, Limits, Params, ParamStruct, round_up

_MAX_OUTER_DIMENSIONS = MAX_DIMENSIONS - 1

#: The member of the lengths of ragged rows.
LENGTHS = "sequence_lengths_tensor"

#: The members of the results.
OUTPUTS = ("output_value_tensor", "output_index_tensor")

#: Kernels count the elements of a row in 32 bits.
MAX_ROW_LENGTH = 2**32 - 1

#: The bits of +inf, above which lie only NaNs.
_INFINITY: dict[ElementType, int] = {
    DataType.FLOAT16: 0x7C00,
    ExtendedType.BFLOAT16: 0x7F80,
    DataType.FLOAT32: 0x7F800000,
    DataType.FLOAT64: 0x7FF0000000000000,
}


_OUTER = f"[{_MAX_OUTER_DIMENSIONS}]"

#: `TopKParams` of kernels/top_k/rows.cuh.
TOP_K_MEMBERS = (
    "Int64 num_rows, row_length, k, input_axis_stride, value_axis_stride, index_axis_stride",
    "UInt64 negative_zero, negative_flip, positive_flip, infinity, nan_key",
    "Int32 num_outer_dimensions, index_bytes, sort_mode, blocks_per_row, sample_rank, sample_scope",
    "Int64 list_capacity",
    f"UInt64 outer_multipliers{_OUTER}",
    f"Int32 outer_shifts{_OUTER}, is_wide",
    f"Int64 outer_sizes{_OUTER}, input_strides{_OUTER}, value_strides{_OUTER}, index_strides{_OUTER}",
    f"Int64 length_strides{_OUTER}",
    "UInt64 missing",
    "Int32 length_bytes, length_is_signed",
)
TOP_K_PARAMS = ParamStruct(*TOP_K_MEMBERS)

#: `FineParams` of kernels/top_k/fine_key.cuh.
FINE_MEMBERS = (
    *TOP_K_MEMBERS,
    "UInt64 magnitude, offset, factor, zero, other_zero, first_nan, end_nan, padding",
    "Int32 vector_rows, loads_by_rows",
)
_FINE_PARAMS = ParamStruct(*FINE_MEMBERS)


#: Bytes of a load.
VECTOR_BYTES = 16

#: Size of an element in bytes -> size of its key and index: `Ranked` of kernels/top_k/ranked.cuh.
CANDIDATE_BYTES = {1: 4, 2: 4, 4: 8, 8: 16}

#: kernels/top_k/threshold.cuh
DIGIT_BITS = 11
NUM_BINS = 1 << DIGIT_BITS


#: `SortMode` of kernels/top_k/rows.cuh: how a list of keys and indices is put in order.
BY_DIGITS, BY_NETWORK, BY_COUNTING = range(3)


def select_storage_bytes(threads: int) -> int:
    """`sizeof(SelectStorage<threads>)` of `kernels/top_k/threshold.cuh`."""
    return round_up(4 * (NUM_BINS + threads // WARP_LANES + 4), 8) + 16


@dataclass(slots=True)
class Selection:
    """A top-k as the kernels see it: its rows, and what makes one element rank before another.

    `outer` are the other dimensions, coalesced, innermost first. Strides count elements of the input, the
    values, the indices and, if rows are ragged, the lengths.
    """

    element: ElementInfo
    index_bytes: int
    row_length: int
    k: int
    axis_strides: tuple[int, int, int]
    outer: tuple[Dimension, ...]
    #: How the number of a row is divided by the size of each outer dimension.
    divisions: Divisions
    is_largest: bool
    nan_last: bool
    #: The number of sequences.
    num_rows: int
    #: The kernels' unsigned type for an element's bits.
    word: str
    #: Bytes of a key and an index in a list.
    pair_bytes: int
    #: If rows are ragged, the type of their lengths, and the bits of a missing value.
    lengths: ElementInfo | None
    missing: int
    #: The buffers that every kernel takes first, and its last template arguments.
    operands: tuple[str | None, ...]
    raggedness: tuple[bool, ...]

    @property
    def is_ragged(self) -> bool:
        """Whether rows have lengths of their own."""
        return self.lengths is not None

    @property
    def mean_length(self) -> int:
        """The elements of a row; for ragged rows, the mean if all lengths are equally likely."""
        return self.row_length // (2 if self.is_ragged else 1)

    def __str__(self) -> str:
        return (
            f"a selection of {self.k} of {self.row_length} elements of {self.element.size} bytes "
            f"in {self.num_rows} rows"
        )


def blocks_at_once(limits: Limits, wanted: int, threads: int, most: int | None = None) -> int:
    """The number of blocks: no more than run at once, and at most `most` per multiprocessor."""
    by_threads = max(1, limits.max_threads_per_multiprocessor // threads)
    return min(wanted, limits.num_multiprocessors * min(most or by_threads, by_threads))


def worst_value(element: ElementInfo, *, is_largest: bool) -> int:
    """The bits of the number that ranks last: an infinity, or an integer type's minimum or maximum."""
    all_ones, sign = (1 << element.bits) - 1, 1 << (element.bits - 1)
    if element.kind == "f":
        return _INFINITY[element.element_type] | (sign if is_largest else 0)
    least = sign if element.kind == "i" else 0
    return least if is_largest else all_ones ^ least


@lru_cache(maxsize=64)
def key_order(element: ElementInfo, *, is_largest: bool, nan_last: bool) -> Mapping[str, int]:
    """The constants of `kernels/common/ordering_key.cuh`."""
    all_ones = (1 << element.bits) - 1
    sign = 1 << (element.bits - 1)
    complement = 0 if is_largest else all_ones
    if element.kind == "f":
        nan_first = is_largest and not nan_last
        return {
            "negative_zero": sign,
            "negative_flip": all_ones ^ complement,
            "positive_flip": sign ^ complement,
            "infinity": _INFINITY[element.element_type],
            "nan_key": all_ones if nan_first else 0,
        }
    flip = (sign if element.kind == "i" else 0) ^ complement
    return {
        "negative_zero": 0,
        "negative_flip": flip,
        "positive_flip": flip,
        "infinity": all_ones >> 1,
        "nan_key": 0,
    }


@lru_cache(maxsize=64)
def fine_order(element: ElementInfo, *, is_largest: bool, nan_last: bool) -> Mapping[str, int]:
    """The constants of `kernels/top_k/fine_key.cuh`."""
    ones, sign = (1 << element.bits) - 1, 1 << (element.bits - 1)
    is_float = element.kind == "f"
    magnitude = sign - 1 if is_float else 0
    infinity = _INFINITY[element.element_type] if is_float else ones >> 1

    def risen(bits: int) -> int:
        """A two's complement number in the order of the floating-point numbers."""
        return bits ^ magnitude if bits & sign else bits

    # The element whose key is 0: the lowest one, or the NaN that follows +inf.
    nans_below = is_float and is_largest and nan_last
    if nans_below:
        least = infinity + 1
    elif is_float:
        least = risen(sign | infinity)
    else:
        least = sign if element.kind == "i" else 0

    def key(bits: int) -> int:
        number = (risen(bits) - least) & ones
        return number if is_largest else ones - number

    lowest = least if is_largest else (least - 1) & ones
    last_bits = lowest ^ magnitude if lowest & sign else lowest
    spare = max(32 - element.bits, 0)
    all_key_bits = (1 << (element.bits + spare)) - 1
    offset = -least << spare
    return {
        "magnitude": magnitude << spare,
        "offset": (offset if is_largest else ~offset) & all_key_bits,
        "factor": 1 if is_largest else all_key_bits,
        "zero": max(key(0), key(sign)) << spare if is_float else 0,
        "other_zero": min(key(0), key(sign)) << spare if is_float else 0,
        "first_nan": (key(infinity) + 1 if is_float and is_largest and not nan_last else ones) << spare,
        "end_nan": (
            key(sign | infinity) if nans_below else 0 if is_largest or not is_float else key(infinity)
        )
        << spare,
        "padding": sum(last_bits << shift for shift in range(0, 64, element.bits)),
    }


def params_of(
    selection: Selection,
    struct: ParamStruct = TOP_K_PARAMS,
    *,
    list_capacity: int = 0,
    sort_mode: int = BY_DIGITS,
    blocks_per_row: int = 1,
    sample_rank: int = 0,
    sample_scope: int = 0,
    more: Mapping[str, int] = MappingProxyType({}),
) -> Params:
    """The `TopKParams` of `kernels/top_k/rows.cuh`, or a struct derived from it with more members."""
    outermost_first, lengths = selection.outer[::-1], selection.lengths
    sizes = tuple([d.size for d in outermost_first])
    # Strides by operand; those of the lengths may be missing.
    strides = [*zip(*[d.strides for d in outermost_first], strict=True)] or [()] * 4
    strides.append((0,) * len(sizes))
    order = key_order(selection.element, is_largest=selection.is_largest, nan_last=selection.nan_last)
    return Params(
        struct,
        {
            "num_rows": selection.num_rows,
            "row_length": selection.row_length,
            "k": selection.k,
            "input_axis_stride": selection.axis_strides[0],
            "value_axis_stride": selection.axis_strides[1],
            "index_axis_stride": selection.axis_strides[2],
            **order,
            "num_outer_dimensions": len(sizes),
            "index_bytes": selection.index_bytes,
            "sort_mode": sort_mode,
            "blocks_per_row": blocks_per_row,
            "sample_rank": sample_rank,
            "sample_scope": sample_scope,
            "list_capacity": list_capacity,
            "outer_multipliers": selection.divisions.multipliers[::-1],
            "outer_shifts": selection.divisions.shifts[::-1],
            "is_wide": int(selection.divisions.is_wide),
            "outer_sizes": sizes,
            "input_strides": strides[0],
            "value_strides": strides[1],
            "index_strides": strides[2],
            "length_strides": strides[3],
            "missing": selection.missing,
            "length_bytes": lengths.size if lengths else 0,
            "length_is_signed": int(lengths is not None and lengths.kind == "i"),
            **more,
        },
    )


def lie_together(selection: Selection) -> bool:
    """Whether the elements of a row are neighbours in memory."""
    return selection.axis_strides[0] == 1 or selection.row_length == 1


def are_vectors(selection: Selection) -> bool:
    """Whether rows are whole vectors side by side: if the first row begins with a whole vector, all do."""
    whole = gcd(selection.row_length, *(d.strides[0] for d in selection.outer))
    return lie_together(selection) and whole * selection.element.size % VECTOR_BYTES == 0


def fine_params(
    selection: Selection,
    struct: ParamStruct = _FINE_PARAMS,
    *,
    blocks_per_row: int = 1,
    list_capacity: int = 0,
    more: Mapping[str, int] = MappingProxyType({}),
) -> Params:
    """The `FineParams` of kernels/top_k/fine_key.cuh, or a struct derived from it with more members."""
    by_rows = bool(selection.outer) and abs(selection.outer[0].strides[0]) < abs(selection.axis_strides[0])
    order = fine_order(selection.element, is_largest=selection.is_largest, nan_last=selection.nan_last)
    more = {**order, "vector_rows": int(are_vectors(selection)), "loads_by_rows": int(by_rows), **more}
    return params_of(selection, struct, blocks_per_row=blocks_per_row, list_capacity=list_capacity, more=more)
