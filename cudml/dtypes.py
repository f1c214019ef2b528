"""The table of element types: DirectML's code, NumPy's name, the kernels' C++ type, the size."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cudml.enums import DataType


class ExtendedType(Enum):
    """Element types that the array functions accept and DirectML descriptors do not have."""

    BFLOAT16 = "bfloat16"
    BITS128 = "complex128"


ElementType = DataType | ExtendedType


@dataclass(frozen=True, eq=False)  # each row exists once
class ElementInfo:
    """The properties of an element type.

    `numpy_name` is the canonical NumPy dtype; `cpp` the type in `kernels/common/types.cuh`;
    `bits` the size (no operator supports the 4-bit types), `size` the same in bytes; `kind` is 'f', 'i' or
    'u'.
    """

    element_type: ElementType
    numpy_name: str
    cpp: str
    bits: int
    kind: str
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.bits // 8)


_TABLE = (
    ElementInfo(DataType.FLOAT32, "float32", "Float32", 32, "f"),
    ElementInfo(DataType.FLOAT16, "float16", "Float16", 16, "f"),
    ElementInfo(DataType.UINT32, "uint32", "UInt32", 32, "u"),
    ElementInfo(DataType.UINT16, "uint16", "UInt16", 16, "u"),
    ElementInfo(DataType.UINT8, "uint8", "UInt8", 8, "u"),
    ElementInfo(DataType.INT32, "int32", "Int32", 32, "i"),
    ElementInfo(DataType.INT16, "int16", "Int16", 16, "i"),
    ElementInfo(DataType.INT8, "int8", "Int8", 8, "i"),
    ElementInfo(DataType.FLOAT64, "float64", "Float64", 64, "f"),
    ElementInfo(DataType.UINT64, "uint64", "UInt64", 64, "u"),
    ElementInfo(DataType.INT64, "int64", "Int64", 64, "i"),
    ElementInfo(DataType.UINT4, "", "", 4, "u"),
    ElementInfo(DataType.INT4, "", "", 4, "i"),
    ElementInfo(ExtendedType.BFLOAT16, "bfloat16", "BFloat16", 16, "f"),
    ElementInfo(ExtendedType.BITS128, "complex128", "Bits128", 128, "u"),
)

#: The row of each element type except `UNKNOWN`.
ELEMENTS: dict[ElementType, ElementInfo] = {row.element_type: row for row in _TABLE}

#: The element types by NumPy name.
BY_NUMPY_NAME: dict[str, ElementType] = {
    row.numpy_name: row.element_type for row in _TABLE if row.numpy_name
} | {"bool": DataType.UINT8}  # False < True as 0 < 1, so ordering and moving bits both agree

#: The integer types by NumPy name, signed types first.
INTEGERS: dict[str, ElementType] = {
    row.numpy_name: row.element_type
    for row in sorted(_TABLE, key=lambda row: (row.kind, row.bits))
    if row.kind in "iu" and row.bits in (8, 16, 32, 64)
}

#: The type whose kernels move elements of a given size in bytes, regardless of their meaning.
BITS_BY_SIZE: dict[int, ElementType] = {
    1: DataType.UINT8,
    2: DataType.UINT16,
    4: DataType.UINT32,
    8: DataType.UINT64,
    16: ExtendedType.BITS128,
}


def element_type_of(dtype: Any) -> ElementType | None:
    """The element type of a NumPy or CuPy dtype in native byte order, or None."""
    return BY_NUMPY_NAME.get(dtype.name) if dtype.isnative else None
