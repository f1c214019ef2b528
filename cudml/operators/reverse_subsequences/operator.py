"""`REVERSE_SUBSEQUENCES`: reverse the first elements of every lane along an axis."""

from dataclasses import dataclass

from cudml.checks import (
    ALL11,
    ALL_COUNTS,
    BASE8,
    MAX_DIMENSIONS,
    Problems,
    Support,
    check_integer,
    check_same_dimensions,
    check_same_type,
    check_sizes,
    check_support,
    check_tensor,
)
from cudml.enums import DataType, FeatureLevel
from cudml.operators.reverse_subsequences.paths import reversal_step
from cudml.plans import Limits, Plan
from cudml.tensors import PlainMembers, TensorDesc


@dataclass(frozen=True)
class ReverseSubsequencesDesc(PlainMembers):
    """`DML_REVERSE_SUBSEQUENCES_OPERATOR_DESC`: each lane's first `length` elements in reverse order.

    `output[i] = input[length - 1 - i]` for i below the lane's length, `input[i]` from there on. A
    length beyond the axis counts as the size of the axis; lengths 0 and 1 change nothing.

    Parameters
    ----------
    input_tensor : TensorDesc
        What to reverse.
    sequence_lengths_tensor : TensorDesc
        One UINT32 or UINT64 length per lane: the input's sizes with 1 at the axis.
    output_tensor : TensorDesc
        Same sizes and data type as the input.
    axis : int
        Dimension that the lanes run along.

    Examples
    --------
    >>> from cudml import DataType, ReverseSubsequencesDesc, TensorDesc
    >>> a = TensorDesc(DataType.FLOAT32, (2, 3))
    >>> ReverseSubsequencesDesc(a, TensorDesc(DataType.UINT32, (2, 1)), a, 1).axis
    1

    Notes
    -----
    Source: DML_REVERSE_SUBSEQUENCES_OPERATOR_DESC of DirectML's documentation.
    """

    input_tensor: TensorDesc
    sequence_lengths_tensor: TensorDesc
    output_tensor: TensorDesc
    axis: int

    _integers = ("axis",)


def _row(
    level: FeatureLevel,
    counts: tuple[int, ...],
    types: tuple[DataType, ...],
    length_types: tuple[DataType, ...],
) -> Support:
    members = {"input_tensor": types, "sequence_lengths_tensor": length_types, "output_tensor": types}
    return Support(level, counts, members)


SUPPORT = (
    _row(FeatureLevel.LEVEL_2_1, (4,), BASE8, (DataType.UINT32,)),
    _row(FeatureLevel.LEVEL_3_0, (4, 5), BASE8, (DataType.UINT32,)),
    _row(FeatureLevel.LEVEL_4_0, ALL_COUNTS, BASE8, (DataType.UINT32,)),
    _row(FeatureLevel.LEVEL_5_0, ALL_COUNTS, ALL11, (DataType.UINT64, DataType.UINT32)),
)


def check(desc: ReverseSubsequencesDesc, level: FeatureLevel) -> None:
    """Raise `DescriptorError` with every rule of the operator that the descriptor breaks."""
    problems = Problems("REVERSE_SUBSEQUENCES")
    tensors = {
        member: getattr(desc, member)
        for member in ("input_tensor", "sequence_lengths_tensor", "output_tensor")
        if check_tensor(problems, member, getattr(desc, member), is_output=member == "output_tensor")
    }
    check_support(problems, SUPPORT, level, tensors)
    if "input_tensor" not in tensors:
        check_integer(problems, "Axis", desc.axis, 0, MAX_DIMENSIONS - 1)
        problems.raise_if_any()
    source = desc.input_tensor
    axis_ok = check_integer(problems, "Axis", desc.axis, 0, source.dimension_count - 1)
    if "output_tensor" in tensors:
        check_same_type(problems, "output_tensor", desc.output_tensor, "input_tensor", source)
        if check_same_dimensions(problems, "output_tensor", desc.output_tensor, "input_tensor", source):
            check_sizes(problems, "output_tensor", desc.output_tensor, source.sizes, "as InputTensor.Sizes")
    if "sequence_lengths_tensor" in tensors:
        lengths = desc.sequence_lengths_tensor
        is_alike = check_same_dimensions(problems, "sequence_lengths_tensor", lengths, "input_tensor", source)
        if is_alike and axis_ok:
            sizes = tuple(1 if i == desc.axis else size for i, size in enumerate(source.sizes))
            because = "InputTensor.Sizes with 1 at Axis"
            check_sizes(problems, "sequence_lengths_tensor", lengths, sizes, because)
    problems.raise_if_any()


def plan(desc: ReverseSubsequencesDesc, limits: Limits, *, path: str | None = None) -> Plan:
    """The plan of a valid descriptor: one step, or none if the output is empty.

    Strides may be negative, elements may have any size from 1 to 16 bytes, and lengths may be integers of any
    type (a negative one counts as 0), because the array functions use all three. Every path gives the same
    bits.

    `path` is a key of `PATHS` in `reverse_subsequences/paths.py` to take; None chooses the fastest. Raises
    ValueError if it is unknown or cannot reverse these lanes.
    """
    tensors = desc.input_tensor, desc.sequence_lengths_tensor, desc.output_tensor
    return Plan(
        operator="REVERSE_SUBSEQUENCES",
        operands=("input_tensor", "sequence_lengths_tensor", "output_tensor"),
        steps=() if 0 in desc.output_tensor.sizes else (reversal_step(*tensors, desc.axis, limits, path),),
        outputs=("output_tensor",),
    )
