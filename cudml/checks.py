"""The collector of problems, and the checks that descriptors share.

A check reports what it finds and returns; `Problems.raise_if_any` raises one error with all problems.
Member names are spelled as in DirectML's documentation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeGuard

from cudml.dtypes import ElementType
from cudml.enums import DataType, FeatureLevel, TensorFlags
from cudml.errors import DescriptorError, Problem, a_type
from cudml.tensors import TensorDesc, is_injective, num_elements

UINT32_MAX = 2**32 - 1
MAX_DIMENSIONS = 8

#: Every number of dimensions.
ALL_COUNTS = tuple(range(1, MAX_DIMENSIONS + 1))

#: The sets of types that DirectML's support tables are made of.
INTS32 = (
    DataType.INT32, DataType.INT16, DataType.INT8, DataType.UINT32, DataType.UINT16, DataType.UINT8,
)  # fmt: skip
BASE8 = (DataType.FLOAT32, DataType.FLOAT16, *INTS32)
WITHOUT_8_BITS = tuple(kind for kind in BASE8 if kind not in (DataType.INT8, DataType.UINT8))
ALL11 = (DataType.FLOAT64, *BASE8, DataType.INT64, DataType.UINT64)


@dataclass(frozen=True)
class Support:
    """One row of an operator's support table: what is allowed from `level` up to the next row's level."""

    level: FeatureLevel
    dimension_counts: tuple[int, ...]
    types: Mapping[str, tuple[DataType, ...]]


class Problems:
    """Collects the problems of one descriptor."""

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.found: list[Problem] = []

    def add(self, member: str, rule: str, expected: str, got: object) -> None:
        """Report one broken rule."""
        self.found.append(Problem(member, rule, expected, str(got)))

    def raise_if_any(self) -> None:
        """Raise `DescriptorError` with all reported problems, if there are any."""
        if self.found:
            raise DescriptorError(self.operator, self.found)


def camel(member: str) -> str:
    """DirectML's spelling of a member: `output_value_tensor` -> `OutputValueTensor`."""
    return "".join(word.capitalize() for word in member.split("_"))


def type_name(element_type: object) -> str:
    """The name of a data type for messages."""
    return element_type.name if isinstance(element_type, ElementType) else repr(element_type)


def one_of(values: Sequence[Any]) -> str:
    """Join alternatives for messages: `a, b or c`."""
    names = [type_name(v) if isinstance(v, ElementType) else str(v) for v in values]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_integers(
    problems: Problems, member: str, values: object, count: int | None, low: int, high: int
) -> bool:
    """Report a member that is not a sequence of `count` integers in [low, high]; return whether it is one."""
    if not isinstance(values, tuple) or not all(is_integer(v) for v in values):
        problems.add(member, "type", "a sequence of integers", repr(values))
        return False
    if count is not None and len(values) != count:
        problems.add(member, "length", f"{count} numbers, one per dimension", f"{len(values)}: {values}")
        return False
    ok = True
    for i, value in enumerate(values):
        if not low <= value <= high:
            problems.add(f"{member}[{i}]", "range", f"{low} to {high}", value)
            ok = False
    return ok


def check_integer(problems: Problems, member: str, value: object, low: int, high: int) -> bool:
    """Report a member that is not an integer in [low, high]; return whether it is one."""
    if is_integer(value) and low <= value <= high:
        return True
    problems.add(member, "range", f"an integer from {low} to {high}", repr(value))
    return False


def check_enum(problems: Problems, member: str, value: object, kind: type[Enum]) -> bool:
    """Report a member that is not a value of an enumeration; return whether it is one."""
    if isinstance(value, kind):
        return True
    names = one_of([*kind.__members__])  # iterating over flags would leave out NONE
    problems.add(member, "type", f"a cudml.{kind.__name__}: {names}", repr(value))
    return False


def check_tensor(problems: Problems, member: str, tensor: object, *, is_output: bool = False) -> bool:
    """Report every broken rule of one tensor descriptor; return whether its sizes are valid."""
    name = camel(member)
    if not isinstance(tensor, TensorDesc):
        # An array's values would hide the message.
        got = a_type(tensor) if hasattr(tensor, "shape") else repr(tensor)
        problems.add(name, "type", "a cudml.TensorDesc", got)
        return False
    if check_enum(problems, f"{name}.DataType", tensor.data_type, DataType) and not _has_type(tensor):
        problems.add(
            f"{name}.DataType", "type", "a type of 8, 16, 32 or 64 bits", type_name(tensor.data_type)
        )
    if not check_integers(problems, f"{name}.Sizes", tensor.sizes, None, 1, UINT32_MAX):
        return False
    dimension_count = len(tensor.sizes)
    if not 1 <= dimension_count <= MAX_DIMENSIONS:
        problems.add(f"{name}.DimensionCount", "range", f"1 to {MAX_DIMENSIONS}", dimension_count)
        return False
    if num_elements(tensor.sizes) > UINT32_MAX:
        problems.add(f"{name}.Sizes", "elements", f"at most {UINT32_MAX} elements", tensor.sizes)
    strides_ok = tensor.strides is None or check_integers(
        problems, f"{name}.Strides", tensor.strides, dimension_count, 0, UINT32_MAX
    )
    if strides_ok and is_output and not is_injective(tensor.sizes, tensor.element_strides):
        expected = "strides that give every element its own place, because outputs are written"
        problems.add(f"{name}.Strides", "overlap", expected, tensor.strides)
    if _has_type(tensor) and strides_ok:
        _check_buffer(problems, name, tensor)
    _check_flags(problems, name, tensor, is_output)
    return True


def _has_type(tensor: TensorDesc) -> bool:
    """Whether a tensor can have the data type; rules that depend on an invalid type are not checked."""
    kind = tensor.data_type
    return isinstance(kind, DataType) and kind not in (DataType.UNKNOWN, DataType.UINT4, DataType.INT4)


def _check_buffer(problems: Problems, name: str, tensor: TensorDesc) -> None:
    """Check total size and alignment."""
    total = tensor.total_tensor_size_in_bytes
    if total is not None and not (is_integer(total) and total >= tensor.minimum_bytes):
        expected = f"at least {tensor.minimum_bytes}, as sizes and strides imply"
        problems.add(f"{name}.TotalTensorSizeInBytes", "size", expected, repr(total))
    alignment = tensor.guaranteed_base_offset_alignment
    size = tensor.element.size
    is_power = is_integer(alignment) and alignment > 0 and alignment & (alignment - 1) == 0
    is_none = is_integer(alignment) and alignment == 0
    if not is_none and not (is_power and alignment >= size):
        expected = f"0 or a power of two of at least {size}, the size of an element"
        problems.add(f"{name}.GuaranteedBaseOffsetAlignment", "alignment", expected, repr(alignment))


def _check_flags(problems: Problems, name: str, tensor: TensorDesc, is_output: bool) -> None:
    """Check that only inputs are `OWNED_BY_DML`."""
    is_valid = check_enum(problems, f"{name}.Flags", tensor.flags, TensorFlags)
    if is_valid and is_output and tensor.flags & TensorFlags.OWNED_BY_DML:
        problems.add(f"{name}.Flags", "flags", "NONE on an output", "OWNED_BY_DML")


def _levels_with(rows: Sequence[Support], wanted: Any) -> FeatureLevel | None:
    """The first level whose row satisfies a predicate."""
    return next((row.level for row in sorted(rows, key=lambda row: row.level) if wanted(row)), None)


def check_support(
    problems: Problems,
    rows: Sequence[Support],
    level: FeatureLevel,
    tensors: Mapping[str, TensorDesc],
) -> bool:
    """Report dimension counts and data types that the feature level does not allow.

    `rows` is the operator's table; `tensors` has, by member, the tensors with valid sizes. The message gives
    the first level that allows the refused count or type, if there is one.
    """
    first = min(row.level for row in rows)
    if level < first:
        problems.add("FeatureLevel", "level", f"{first} or above for {problems.operator}", level)
        return False
    row = max((row for row in rows if row.level <= level), key=lambda row: row.level)
    before = len(problems.found)
    for member, tensor in tensors.items():
        count = tensor.dimension_count
        if count not in row.dimension_counts:
            since = _levels_with(rows, lambda r, c=count: c in r.dimension_counts)
            expected = f"{_counts(row.dimension_counts)} at feature level {level}{_from(since)}"
            problems.add(f"{camel(member)}.DimensionCount", "dimensions", expected, count)
        kind = tensor.data_type
        if _has_type(tensor) and kind not in row.types[member]:
            since = _levels_with(rows, lambda r, m=member, k=kind: k in r.types[m])
            expected = f"{one_of(row.types[member])} at feature level {level}{_from(since)}"
            problems.add(f"{camel(member)}.DataType", "data type", expected, type_name(kind))
    return len(problems.found) == before


def _counts(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _from(since: FeatureLevel | None) -> str:
    return f" (allowed from {since})" if since is not None else ""


def check_sizes(
    problems: Problems, member: str, tensor: TensorDesc, expected: Sequence[int], because: str
) -> None:
    """Report sizes that do not follow from other members."""
    if tensor.sizes != tuple(expected):
        problems.add(f"{camel(member)}.Sizes", "sizes", f"{tuple(expected)}, {because}", tensor.sizes)


def check_same_type(
    problems: Problems, member: str, tensor: TensorDesc, other: str, expected: TensorDesc
) -> None:
    """Report a data type that differs from another tensor's."""
    if _has_type(tensor) and _has_type(expected) and tensor.data_type != expected.data_type:
        text = f"{type_name(expected.data_type)}, as {camel(other)}.DataType"
        problems.add(f"{camel(member)}.DataType", "same type", text, type_name(tensor.data_type))


def check_same_dimensions(
    problems: Problems, member: str, tensor: TensorDesc, other: str, expected: TensorDesc
) -> bool:
    """Report a dimension count that differs from another tensor's; return whether they are equal."""
    if tensor.dimension_count == expected.dimension_count:
        return True
    text = f"{expected.dimension_count}, as {camel(other)}.DimensionCount"
    problems.add(f"{camel(member)}.DimensionCount", "same dimensions", text, tensor.dimension_count)
    return False


def check_not_owned(problems: Problems, tensors: Mapping[str, TensorDesc], names: Collection[str]) -> None:
    """Report inputs flagged `OWNED_BY_DML`, for an operator that does not support the flag."""
    for member in names:
        flags = tensors[member].flags if member in tensors else None
        if isinstance(flags, TensorFlags) and flags & TensorFlags.OWNED_BY_DML:
            expected = f"NONE: {problems.operator} supports OWNED_BY_DML on no input"
            problems.add(f"{camel(member)}.Flags", "flags", expected, "OWNED_BY_DML")
