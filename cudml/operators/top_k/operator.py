"""`TOP_K1` and `TOP_K`: the k largest or smallest elements of every sequence along an axis, in order."""

from dataclasses import dataclass
from operator import attrgetter

from cudml.checks import (
    ALL_COUNTS,
    BASE8,
    MAX_DIMENSIONS,
    UINT32_MAX,
    WITHOUT_8_BITS,
    Problems,
    Support,
    check_enum,
    check_integer,
    check_same_dimensions,
    check_same_type,
    check_sizes,
    check_support,
    check_tensor,
)
from cudml.enums import AxisDirection, DataType, FeatureLevel
from cudml.operators.index_space import dimensions_of, divisions_of, in_memory_order
from cudml.operators.path import named_path
from cudml.operators.top_k.paths import PATHS, choose_path
from cudml.operators.top_k.rows import LENGTHS, MAX_ROW_LENGTH, OUTPUTS, Selection
from cudml.plans import Limits, Plan
from cudml.tensors import PlainMembers, TensorDesc, num_elements


@dataclass(frozen=True)
class TopK1Desc(PlainMembers):
    """`DML_TOP_K1_OPERATOR_DESC`: the first `k` elements of each sequence along `axis`, and their indices.

    A NaN ranks above +inf. All NaNs are equal, and so are -0.0 and +0.0. In both directions, ties are broken
    by the lower index. Values keep their bits.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements to select from.
    output_value_tensor : TensorDesc
        The selected elements: the input's data type, and its sizes with `k` along the axis.
    output_index_tensor : TensorDesc
        Their indices along the axis, UINT32 or UINT64; the sizes of `output_value_tensor`.
    axis : int
        The dimension to select along.
    k : int
        The number of elements to select, from 1 to the size of that dimension.
    axis_direction : AxisDirection
        DECREASING selects the largest, the largest first; INCREASING the smallest, the smallest first.

    Examples
    --------
    >>> from cudml import AxisDirection, DataType, TensorDesc, TopK1Desc
    >>> a = TensorDesc(DataType.FLOAT32, (2, 8))
    >>> values, indices = TensorDesc(DataType.FLOAT32, (2, 3)), TensorDesc(DataType.UINT32, (2, 3))
    >>> TopK1Desc(a, values, indices, 1, 3, AxisDirection.DECREASING).k
    3

    Notes
    -----
    Source: DML_TOP_K1_OPERATOR_DESC of DirectML's documentation, which leaves NaN open; the order of NaN
    is that of ONNX's TopK.
    """

    input_tensor: TensorDesc
    output_value_tensor: TensorDesc
    output_index_tensor: TensorDesc
    axis: int
    k: int
    axis_direction: AxisDirection

    _integers = ("axis", "k")


@dataclass(frozen=True)
class TopKDesc(PlainMembers):
    """`DML_TOP_K_OPERATOR_DESC`: `TopK1Desc` with `axis_direction` DECREASING.

    Parameters
    ----------
    input_tensor, output_value_tensor, output_index_tensor, axis, k
        As in `TopK1Desc`.

    Examples
    --------
    >>> from cudml import DataType, TensorDesc, TopKDesc
    >>> a = TensorDesc(DataType.FLOAT32, (2, 8))
    >>> values, indices = TensorDesc(DataType.FLOAT32, (2, 3)), TensorDesc(DataType.UINT32, (2, 3))
    >>> TopKDesc(a, values, indices, 1, 3).k
    3

    Notes
    -----
    Source: DML_TOP_K_OPERATOR_DESC of DirectML's documentation. Its data types below feature level 2_1 are
    taken to be those of SLICE.
    """

    input_tensor: TensorDesc
    output_value_tensor: TensorDesc
    output_index_tensor: TensorDesc
    axis: int
    k: int

    _integers = ("axis", "k")


@dataclass(frozen=True)
class RaggedTopKDesc(TopK1Desc):
    """`TopK1Desc` for the first elements of each sequence; the array function uses it for `lengths`.

    If a sequence has fewer than `k` elements, its results end with the value `missing` and an index whose
    bits are all set. DirectML has no such operator.

    Parameters
    ----------
    sequence_lengths_tensor : TensorDesc
        The number of elements of each sequence that count: any integer type, the sizes of the input with 1
        along the axis. A length above the size of the axis counts all elements, a negative one none.
    missing : int
        The bits of a missing value.
    """

    sequence_lengths_tensor: TensorDesc
    missing: int


def _row(
    level: FeatureLevel, counts: tuple[int, ...], values: tuple[DataType, ...], indices: tuple[DataType, ...]
) -> Support:
    types = {"input_tensor": values, "output_value_tensor": values, "output_index_tensor": indices}
    return Support(level, counts, types)


_WITH_64_BITS = (*BASE8, DataType.INT64, DataType.UINT64)
_ROWS = (
    _row(FeatureLevel.LEVEL_2_1, (4,), BASE8, (DataType.UINT32,)),
    _row(FeatureLevel.LEVEL_3_1, ALL_COUNTS, BASE8, (DataType.UINT32,)),
    _row(FeatureLevel.LEVEL_5_0, ALL_COUNTS, _WITH_64_BITS, (DataType.UINT64, DataType.UINT32)),
)

SUPPORT = {
    TopK1Desc: _ROWS,
    TopKDesc: (_row(FeatureLevel.LEVEL_1_0, (4,), WITHOUT_8_BITS, (DataType.UINT32,)), *_ROWS),
}


def check(desc: TopK1Desc | TopKDesc, level: FeatureLevel) -> None:
    """Raise `DescriptorError` with every rule of the operator that the descriptor breaks."""
    problems = Problems("TOP_K1" if isinstance(desc, TopK1Desc) else "TOP_K")
    tensors = {
        "input_tensor": desc.input_tensor,
        "output_value_tensor": desc.output_value_tensor,
        "output_index_tensor": desc.output_index_tensor,
    }
    sound = {
        member: tensor
        for member, tensor in tensors.items()
        if check_tensor(problems, member, tensor, is_output=member != "input_tensor")
    }
    check_support(problems, SUPPORT[type(desc)], level, sound)
    if isinstance(desc, TopK1Desc):
        check_enum(problems, "AxisDirection", desc.axis_direction, AxisDirection)
    k_ok = check_integer(problems, "K", desc.k, 1, UINT32_MAX)
    if "input_tensor" in sound:
        _check_against_input(problems, desc, sound, k_ok)
    else:
        check_integer(problems, "Axis", desc.axis, 0, MAX_DIMENSIONS - 1)
    problems.raise_if_any()


def _check_against_input(
    problems: Problems, desc: TopK1Desc | TopKDesc, sound: dict[str, TensorDesc], k_ok: bool
) -> None:
    """Check the outputs, the axis and k against the input's sizes and data type."""
    source = desc.input_tensor
    axis_ok = check_integer(problems, "Axis", desc.axis, 0, source.dimension_count - 1)
    if axis_ok and k_ok and desc.k > source.sizes[desc.axis]:
        expected = f"at most {source.sizes[desc.axis]}, InputTensor.Sizes[{desc.axis}]"
        problems.add("K", "range", expected, desc.k)
        k_ok = False
    if "output_value_tensor" in sound:
        check_same_type(problems, "output_value_tensor", desc.output_value_tensor, "input_tensor", source)
    for member in ("output_value_tensor", "output_index_tensor"):
        if member not in sound:
            continue
        output = sound[member]
        if check_same_dimensions(problems, member, output, "input_tensor", source) and axis_ok and k_ok:
            expected_sizes = [*source.sizes]
            expected_sizes[desc.axis] = desc.k
            check_sizes(problems, member, output, expected_sizes, "InputTensor.Sizes with K along Axis")


def selection_of_desc(desc: TopK1Desc | TopKDesc, nan_last: bool) -> Selection:
    """The selection of a descriptor; `nan_last` ranks NaN behind every number in both directions."""
    source, axis = desc.input_tensor, desc.axis
    if source.sizes[axis] > MAX_ROW_LENGTH:
        got, expected = source.sizes[axis], f"at most {MAX_ROW_LENGTH}"
        raise ValueError(f"top_k: the size of axis {axis} is {got}, must be {expected}")
    values, indices = desc.output_value_tensor, desc.output_index_tensor
    strides = [source.element_strides, values.element_strides, indices.element_strides]
    ragged = desc if isinstance(desc, RaggedTopKDesc) else None
    if ragged is not None:
        strides.append(ragged.sequence_lengths_tensor.element_strides)
    direction = desc.axis_direction if isinstance(desc, TopK1Desc) else AxisDirection.DECREASING
    element, index_bytes = source.element, indices.element.size
    sizes = (*source.sizes[:axis], 1, *source.sizes[axis + 1 :])
    num_rows = num_elements(sizes)
    # In the input's memory order, so that neighbouring rows are read together.
    outer = in_memory_order(dimensions_of(sizes, *strides), 0)
    return Selection(
        element=element,
        index_bytes=index_bytes,
        row_length=source.sizes[axis],
        k=desc.k,
        axis_strides=(strides[0][axis], strides[1][axis], strides[2][axis]),
        outer=outer,
        divisions=divisions_of(map(attrgetter("size"), outer), num_rows),
        num_rows=num_rows,
        word=f"UInt{element.bits}",
        pair_bytes=element.size + 4,
        is_largest=direction == AxisDirection.DECREASING,
        nan_last=nan_last,
        lengths=ragged.sequence_lengths_tensor.element if ragged else None,
        missing=ragged.missing if ragged else 0,
        operands=("input_tensor", *OUTPUTS, LENGTHS if ragged else None),
        raggedness=(True,) if ragged else (),
    )


def plan(
    desc: TopK1Desc | TopKDesc, limits: Limits, nan_last: bool = False, *, path: str | None = None
) -> Plan:
    """The plan of a valid descriptor of a non-empty tensor.

    The data type may also be FLOAT64 or BFLOAT16, the index type INT64 and strides negative: the array
    functions use them. Every path gives the same bits, so only the time depends on the choice.

    `nan_last` ranks NaN behind every number in both directions, as `numpy.top_k` does. `path` is a key of
    `PATHS` to take; None chooses the fastest. Raises ValueError if it is unknown or cannot compute this, or
    the axis is longer than 4294967295.
    """
    selection = selection_of_desc(desc, nan_last)
    taken = (
        choose_path(selection, limits).path if path is None else named_path(PATHS, path, selection, limits)
    )
    steps, workspaces = taken.steps(selection, limits)
    inputs = ("input_tensor",) if selection.lengths is None else ("input_tensor", LENGTHS)
    return Plan(
        operator="TOP_K1" if isinstance(desc, TopK1Desc) else "TOP_K",
        operands=(*inputs, *OUTPUTS),
        outputs=OUTPUTS,
        steps=steps,
        workspaces=workspaces,
    )
