"""Tensor descriptors: sizes, strides, bytes and overlap, as pure integers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from cudml.dtypes import ElementInfo, ElementType, element_info, element_type_of
from cudml.enums import DataType, TensorFlags
from cudml.errors import a_type


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides without gaps, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def num_elements(sizes: Iterable[int]) -> int:
    """The product of the sizes."""
    count = 1
    for size in sizes:
        count *= size
    return count


def byte_extent(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> tuple[int, int]:
    """The lowest byte and past the highest that an array addresses, from its first element.

    The strides are in bytes.
    """
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + item_bytes


def is_injective(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two indices of a non-empty tensor address the same element.

    Decides the layouts a nesting order can explain (each stride at least the extent of everything
    below it), which are all that slicing and permuting a packed tensor can give; a more intricate
    interleaving counts as overlapping.
    """
    extent = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride <= extent:
            return False
        extent += stride * (size - 1)
    return True


def plain_integer(value: Any) -> Any:
    """An integer of another library as Python's, anything else unchanged."""
    if isinstance(value, int):
        return value
    try:
        return index(value)
    except TypeError:
        return value


def plain_integers(value: Any) -> Any:
    """A sequence as a tuple, its integers as Python's; anything else unchanged."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    try:
        return tuple(map(plain_integer, value))
    except TypeError:
        return value


def make_plain(desc: object, integers: Sequence[str] = (), sequences: Sequence[str] = ()) -> None:
    """Replace members of a frozen dataclass by their plain values, which hash, compare and print alike."""
    for names, convert in ((integers, plain_integer), (sequences, plain_integers)):
        for name in names:
            object.__setattr__(desc, name, convert(getattr(desc, name)))


@dataclass(frozen=True)
class TensorDesc:
    """`DML_BUFFER_TENSOR_DESC`: how a tensor lies in a buffer.

    Nothing is checked here; an operator's check reports every broken rule of its tensors.

    Parameters
    ----------
    data_type : DataType
        Type of the elements.
    sizes : sequence of int
        Extent of each dimension, 1 to 8 of them.
    strides : sequence of int, optional
        Elements between neighbours of each dimension; None is packed row-major, 0 broadcasts.
    flags : TensorFlags
        `OWNED_BY_DML` makes an input one that is bound at initialization.
    total_tensor_size_in_bytes : int, optional
        Bytes a bound buffer has at least; None is `minimum_bytes`.
    guaranteed_base_offset_alignment : int
        0, or a power of two that divides the address of what will be bound.

    Examples
    --------
    >>> from cudml import DataType, TensorDesc
    >>> TensorDesc(DataType.FLOAT32, (2, 3)).minimum_bytes
    24
    >>> TensorDesc(DataType.INT8, (3,)).minimum_bytes
    4

    Notes
    -----
    Source: DML_BUFFER_TENSOR_DESC and DMLCalcBufferTensorSize of DirectML's documentation.
    """

    data_type: ElementType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: TensorFlags = TensorFlags.NONE
    total_tensor_size_in_bytes: int | None = None
    guaranteed_base_offset_alignment: int = 0

    if TYPE_CHECKING:  # what is given may be any sequence, what is kept is a tuple

        def __init__(
            self,
            data_type: ElementType,
            sizes: Sequence[SupportsIndex],
            strides: Sequence[SupportsIndex] | None = None,
            flags: TensorFlags = TensorFlags.NONE,
            total_tensor_size_in_bytes: SupportsIndex | None = None,
            guaranteed_base_offset_alignment: SupportsIndex = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        make_plain(
            self,
            integers=("total_tensor_size_in_bytes", "guaranteed_base_offset_alignment"),
            sequences=("sizes", "strides"),
        )

    @staticmethod
    def of(array: Any) -> "TensorDesc":
        """The descriptor of a NumPy or CuPy array, strides included where it is not packed.

        Raises
        ------
        TypeError
            It is no such array, its dtype has no DirectML data type, or a stride of a size over 1 is no
            multiple of the item size.
        """
        if not all(hasattr(array, member) for member in ("dtype", "shape", "strides")):
            raise TypeError(f"TensorDesc.of: array is {a_type(array)}, must be a NumPy or CuPy array")
        element_type = element_type_of(array.dtype)
        if not isinstance(element_type, DataType):
            raise TypeError(f"TensorDesc.of: dtype {array.dtype} has no DirectML data type")
        item_bytes = array.dtype.itemsize
        packed = packed_strides(array.shape)
        # The stride of a size of 1 is never taken, so it may be no multiple.
        strides = tuple(
            step * item_bytes if size == 1 and stride % item_bytes else stride
            for size, stride, step in zip(array.shape, array.strides, packed, strict=True)
        )
        if any(stride % item_bytes for stride in strides):
            raise TypeError(
                f"TensorDesc.of: strides {array.strides} are not multiples of the item size {item_bytes}"
            )
        strides = tuple(stride // item_bytes for stride in strides)
        return TensorDesc(element_type, array.shape, None if strides == packed else strides)

    @property
    def dimension_count(self) -> int:
        """`DimensionCount`."""
        return len(self.sizes)

    @property
    def element(self) -> ElementInfo:
        """The row of the dtype table."""
        return element_info(self.data_type)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, packed ones written out."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps (dimensions of size 1 do not count)."""
        pairs = zip(self.sizes, self.element_strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in pairs)

    @property
    def span_elements(self) -> int:
        """Elements from the first to the last addressed one, both included."""
        if self.strides is None:
            return num_elements(self.sizes)
        return 1 + sum((size - 1) * abs(s) for size, s in zip(self.sizes, self.strides, strict=True))

    @property
    def minimum_bytes(self) -> int:
        """`DMLCalcBufferTensorSize`: the span in bytes, rounded up to a multiple of 4."""
        return (self.span_elements * self.element.bits // 8 + 3) // 4 * 4

    @property
    def span_bytes(self) -> int:
        """Bytes from the first to the end of the last addressed element, not rounded."""
        return self.span_elements * self.element.bits // 8
