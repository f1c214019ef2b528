"""`SLICE` and `SLICE1`: copy a strided box out of a tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, SupportsIndex

from cudml.checks import (
    ALL11,
    ALL_COUNTS,
    BASE8,
    UINT32_MAX,
    WITHOUT_8_BITS,
    Problems,
    Support,
    check_integers,
    check_same_dimensions,
    check_same_type,
    check_sizes,
    check_support,
    check_tensor,
    is_integer,
)
from cudml.enums import DataType, FeatureLevel
from cudml.operators.index_space import Space, dimensions_of
from cudml.operators.slice.paths import copy_step
from cudml.plans import Limits, Plan
from cudml.tensors import PlainMembers, TensorDesc

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class SliceDesc(PlainMembers):
    """`DML_SLICE_OPERATOR_DESC`: `output[c] = input[offsets + strides * c]` for every c below `sizes`.

    `DimensionCount` is the length of the three arrays.

    Parameters
    ----------
    input_tensor, output_tensor : TensorDesc
        Same data type, same dimension count.
    offsets : sequence of int
        First element of each dimension.
    sizes : sequence of int
        Number of elements taken along each dimension: the output's sizes.
    strides : sequence of int
        Distance between taken elements, 1 or more.

    Examples
    --------
    >>> from cudml import DataType, SliceDesc, TensorDesc
    >>> a = TensorDesc(DataType.FLOAT32, (4, 4))
    >>> SliceDesc(a, TensorDesc(DataType.FLOAT32, (2, 2)), (1, 0), (2, 2), (2, 3)).strides
    (2, 3)

    Notes
    -----
    Source: DML_SLICE_OPERATOR_DESC of DirectML's documentation.
    """

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    if TYPE_CHECKING:  # any sequence is accepted, a tuple is stored

        def __init__(
            self,
            input_tensor: TensorDesc,
            output_tensor: TensorDesc,
            offsets: Sequence[SupportsIndex],
            sizes: Sequence[SupportsIndex],
            strides: Sequence[SupportsIndex],
        ) -> None: ...

    _sequences = ("offsets", "sizes", "strides")


@dataclass(frozen=True)
class Slice1Desc(PlainMembers):
    """`DML_SLICE1_OPERATOR_DESC`: step through a window of the input, backwards where a stride is negative.

    `output[c] = input[start + strides * c]`, where `start` is the window's first element, or its last
    if the stride is negative. The output may be smaller than the window allows.

    Parameters
    ----------
    input_tensor, output_tensor : TensorDesc
        Same data type, same dimension count.
    input_window_offsets : sequence of int
        First element of the window in each dimension.
    input_window_sizes : sequence of int
        Size of the window in each dimension, 1 or more; not the output's size if the stride is not 1.
    input_window_strides : sequence of int
        Distance between taken elements, any 32-bit integer except 0.

    Examples
    --------
    >>> from cudml import DataType, Slice1Desc, TensorDesc
    >>> a = TensorDesc(DataType.FLOAT32, (5,))
    >>> Slice1Desc(a, TensorDesc(DataType.FLOAT32, (2,)), (1,), (4,), (-3,)).input_window_strides
    (-3,)

    Notes
    -----
    Source: DML_SLICE1_OPERATOR_DESC of DirectML's documentation.
    """

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    input_window_offsets: tuple[int, ...]
    input_window_sizes: tuple[int, ...]
    input_window_strides: tuple[int, ...]

    if TYPE_CHECKING:  # as for SliceDesc

        def __init__(
            self,
            input_tensor: TensorDesc,
            output_tensor: TensorDesc,
            input_window_offsets: Sequence[SupportsIndex],
            input_window_sizes: Sequence[SupportsIndex],
            input_window_strides: Sequence[SupportsIndex],
        ) -> None: ...

    _sequences = ("input_window_offsets", "input_window_sizes", "input_window_strides")


def _rows(*rows: tuple[FeatureLevel, tuple[int, ...], tuple[DataType, ...]]) -> tuple[Support, ...]:
    """Support rows in which both tensors have the same counts and types."""
    return tuple(
        Support(level, counts, {"input_tensor": types, "output_tensor": types})
        for level, counts, types in rows
    )


SUPPORT = {
    SliceDesc: _rows(
        (FeatureLevel.LEVEL_1_0, (4, 5), WITHOUT_8_BITS),
        (FeatureLevel.LEVEL_2_1, (4, 5), BASE8),
        (FeatureLevel.LEVEL_3_0, ALL_COUNTS, BASE8),
        (FeatureLevel.LEVEL_4_1, ALL_COUNTS, ALL11),
    ),
    Slice1Desc: _rows(
        (FeatureLevel.LEVEL_2_1, (4, 5), BASE8),
        (FeatureLevel.LEVEL_3_0, ALL_COUNTS, BASE8),
        (FeatureLevel.LEVEL_4_1, ALL_COUNTS, ALL11),
    ),
}


def check(desc: SliceDesc | Slice1Desc, level: FeatureLevel) -> None:
    """Raise `DescriptorError` with every rule of the operator that the descriptor breaks."""
    problems = Problems(_name(desc))
    input_ok = check_tensor(problems, "input_tensor", desc.input_tensor)
    output_ok = check_tensor(problems, "output_tensor", desc.output_tensor, is_output=True)
    if input_ok and output_ok:
        tensors = {"input_tensor": desc.input_tensor, "output_tensor": desc.output_tensor}
        check_support(problems, SUPPORT[type(desc)], level, tensors)
        check_same_type(problems, "output_tensor", desc.output_tensor, "input_tensor", desc.input_tensor)
        check_same_dimensions(
            problems, "output_tensor", desc.output_tensor, "input_tensor", desc.input_tensor
        )
    # None: the tensor has no valid sizes to compare the window with.
    source, target = desc.input_tensor if input_ok else None, desc.output_tensor if output_ok else None
    if isinstance(desc, SliceDesc):
        _check_slice(problems, desc, source, target)
    else:
        _check_slice1(problems, desc, source, target)
    problems.raise_if_any()


def _check_slice(
    problems: Problems, desc: SliceDesc, source: TensorDesc | None, target: TensorDesc | None
) -> None:
    """Check that `SLICE`'s sizes are the output's, and that the last element read lies in the input."""
    count = source.dimension_count if source else None
    check_integers(problems, "Offsets", desc.offsets, count, 0, UINT32_MAX)
    sizes_ok = check_integers(problems, "Sizes", desc.sizes, count, 1, UINT32_MAX)
    check_integers(problems, "Strides", desc.strides, count, 1, UINT32_MAX)
    if sizes_ok and target and target.dimension_count == len(desc.sizes):
        check_sizes(problems, "output_tensor", target, desc.sizes, "as Sizes")
    if not source or not all(
        _has_integers(member, count) for member in (desc.offsets, desc.sizes, desc.strides)
    ):
        return
    for i, in_size in enumerate(source.sizes):
        last = desc.offsets[i] + (desc.sizes[i] - 1) * desc.strides[i]
        # Numbers out of their own range were reported above.
        in_range = desc.offsets[i] >= 0 and desc.sizes[i] >= 1 and desc.strides[i] >= 1
        if in_range and last >= in_size:
            expected = f"at most {in_size - 1}, the last element of InputTensor.Sizes[{i}] = {in_size}"
            problems.add(f"Offsets[{i}] + (Sizes[{i}] - 1) * Strides[{i}]", "bounds", expected, last)


def _has_integers(values: object, count: int | None) -> bool:
    """Whether a member is a sequence of `count` integers, of any range."""
    return isinstance(values, tuple) and len(values) == count and all(map(is_integer, values))


def _check_slice1(
    problems: Problems, desc: Slice1Desc, source: TensorDesc | None, target: TensorDesc | None
) -> None:
    """Check that `SLICE1`'s window lies in the input, and that the output is no larger than it allows."""
    count = source.dimension_count if source else None
    offsets, sizes, strides = desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides
    check_integers(problems, "InputWindowOffsets", offsets, count, 0, UINT32_MAX)
    check_integers(problems, "InputWindowSizes", sizes, count, 1, UINT32_MAX)
    if check_integers(problems, "InputWindowStrides", strides, count, _INT32_MIN, _INT32_MAX):
        for i, stride in enumerate(strides):
            if stride == 0:
                problems.add(f"InputWindowStrides[{i}]", "range", "any integer but 0", stride)
    if source and _has_integers(offsets, count) and _has_integers(sizes, count):
        for i, in_size in enumerate(source.sizes):
            end = offsets[i] + sizes[i]
            in_range = offsets[i] >= 0 and sizes[i] >= 1  # else reported above
            if in_range and end > in_size:
                expected = f"at most {in_size}, InputTensor.Sizes[{i}]"
                problems.add(f"InputWindowOffsets[{i}] + InputWindowSizes[{i}]", "bounds", expected, end)
    if target and all(_has_integers(member, target.dimension_count) for member in (sizes, strides)):
        for i, out_size in enumerate(target.sizes):
            window, stride = sizes[i], abs(strides[i])
            if window < 1 or not stride or not _INT32_MIN <= strides[i] <= _INT32_MAX:
                continue  # reported above
            largest = 1 + (window - 1) // stride
            if out_size > largest:
                expected = (
                    f"at most {largest}, as InputWindowSizes[{i}] = {window} gives with a step of {stride}"
                )
                problems.add(f"OutputTensor.Sizes[{i}]", "sizes", expected, out_size)


def plan(
    desc: SliceDesc | Slice1Desc, limits: Limits, first: int | None = None, *, path: str | None = None
) -> Plan:
    """The plan of a valid descriptor: one copy, or no step if the output is empty.

    Strides of either tensor may be negative, and elements may have any size from 1 to 16 bytes, because the
    array functions use both. Every path gives the same bits.

    `first` is the offset of the first element from the pointer, if the caller shifts the pointer; None uses
    the descriptor's offsets. `path` is a key of `PATHS` in `slice/paths.py` to take; None chooses the
    fastest. Raises ValueError if it is unknown or cannot compute this copy.
    """
    operands = ("input_tensor", "output_tensor")
    is_empty = 0 in desc.output_tensor.sizes
    return Plan(
        operator=_name(desc),
        operands=operands,
        steps=() if is_empty else (copy_step(space_of_desc(desc, first), *operands, limits, path),),
        outputs=("output_tensor",),
    )


def space_of_desc(desc: SliceDesc | Slice1Desc, first: int | None = None) -> Space:
    """The index space of a descriptor, whose operands are the source and the target.

    `first` is the offset of the first element; None uses the descriptor's offsets.
    """
    target = desc.output_tensor
    source_strides = desc.input_tensor.element_strides
    if isinstance(desc, SliceDesc):
        starts, steps = desc.offsets, desc.strides
    else:
        steps = desc.input_window_strides
        windows = zip(desc.input_window_offsets, desc.input_window_sizes, steps, strict=True)
        starts = tuple(offset + (size - 1 if step < 0 else 0) for offset, size, step in windows)
    copied_strides = tuple(map(mul, steps, source_strides))
    if first is None:
        first = sum(map(mul, starts, source_strides))
    dimensions = dimensions_of(target.sizes, copied_strides, target.element_strides)
    return Space(dimensions, (first, 0), target.element.size)


def _name(desc: SliceDesc | Slice1Desc) -> str:
    return "SLICE" if isinstance(desc, SliceDesc) else "SLICE1"
