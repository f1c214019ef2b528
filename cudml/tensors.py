"""Tensor descriptors, and arithmetic on sizes, strides and bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar

from cudml.dtypes import BY_NUMPY_NAME, ELEMENTS, ElementInfo, ElementType, element_type_of
from cudml.enums import DataType, TensorFlags
from cudml.errors import a_type


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides without gaps, in elements."""
    step, strides = 1, []
    for size in sizes[::-1]:
        strides.append(step)
        step *= size
    return tuple(strides[::-1])


# The tensors of an operator often have the same sizes.
_known_packed_strides = lru_cache(maxsize=256)(packed_strides)


def num_elements(sizes: Iterable[int]) -> int:
    """The product of the sizes."""
    return prod(sizes)


def byte_extent(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> tuple[int, int]:
    """The first byte that an array addresses and the byte past the last, relative to its first element.

    Strides are in bytes.
    """
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + item_bytes


def is_injective(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two indices of a non-empty tensor address the same element.

    Recognises nested layouts, in which each stride exceeds the extent of all smaller ones. These include
    everything that slicing and permuting a packed tensor can give; other interleavings count as overlapping.
    """
    extent = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride <= extent:
            return False
        extent += stride * (size - 1)
    return True


_INT = {int}


def plain_integer(value: Any) -> Any:
    """Convert an integer of another library to int; return anything else unchanged."""
    if value is None or isinstance(value, int):
        return value
    try:
        return index(value)
    except TypeError:
        return value


def plain_integers(value: Any) -> Any:
    """Convert a sequence to a tuple and its integers to int; return anything else unchanged."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    if type(value) is tuple and {*map(type, value)} == _INT:
        return value
    try:
        return tuple(map(plain_integer, value))
    except TypeError:
        return value


_Desc = TypeVar("_Desc", bound="PlainMembers")


class PlainMembers:
    """Makes members of a frozen dataclass plain, so that equal objects hash and print alike."""

    _integers: ClassVar[tuple[str, ...]] = ()
    _sequences: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self._integers:
            value = getattr(self, name)
            if type(value) is not int:
                object.__setattr__(self, name, plain_integer(value))
        for name in self._sequences:
            value = getattr(self, name)
            if (plain := plain_integers(value)) is not value:
                object.__setattr__(self, name, plain)

    @classmethod
    def of_plain(cls: type[_Desc], members: dict[str, Any]) -> _Desc:
        """The object with these members, which are plain already; members with a default may be left out.

        The object takes over the dictionary.
        """
        desc = object.__new__(cls)
        object.__setattr__(desc, "__dict__", members)
        return desc


@dataclass(frozen=True)
class TensorDesc(PlainMembers):
    """`DML_BUFFER_TENSOR_DESC`: the layout of a tensor in a buffer.

    Construction checks nothing; an operator's check reports every broken rule of its tensors.

    Parameters
    ----------
    data_type : DataType
        Type of the elements.
    sizes : sequence of int
        Size of each of the 1 to 8 dimensions.
    strides : sequence of int, optional
        Stride of each dimension in elements; None means packed row-major, a stride of 0 broadcasts.
    flags : TensorFlags
        An input with `OWNED_BY_DML` is bound at initialization.
    total_tensor_size_in_bytes : int, optional
        Minimum size of a bound buffer; None means `minimum_bytes`.
    guaranteed_base_offset_alignment : int
        0, or a power of two that divides the address of the bound buffer.

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

    # Sizes and strides distinguish tensors; hashing an enumeration is slow.
    data_type: ElementType = field(hash=False)
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: TensorFlags = field(default=TensorFlags.NONE, hash=False)
    total_tensor_size_in_bytes: int | None = None
    guaranteed_base_offset_alignment: int = 0

    if TYPE_CHECKING:  # any sequence is accepted, a tuple is stored

        def __init__(
            self,
            data_type: ElementType,
            sizes: Sequence[SupportsIndex],
            strides: Sequence[SupportsIndex] | None = None,
            flags: TensorFlags = TensorFlags.NONE,
            total_tensor_size_in_bytes: SupportsIndex | None = None,
            guaranteed_base_offset_alignment: SupportsIndex = 0,
        ) -> None: ...

    _integers = ("total_tensor_size_in_bytes", "guaranteed_base_offset_alignment")
    _sequences = ("sizes", "strides")

    @staticmethod
    def of(array: Any) -> "TensorDesc":
        """The descriptor of a NumPy or CuPy array; strides are None if it is packed.

        Raises
        ------
        TypeError
            Not such an array, a dtype without a DirectML data type, or a stride of a dimension larger than 1
            that is not a multiple of the item size.
        """
        if not all(hasattr(array, member) for member in ("dtype", "shape", "strides")):
            raise TypeError(f"TensorDesc.of: array is {a_type(array)}, must be a NumPy or CuPy array")
        element_type = element_type_of(array.dtype)
        if not isinstance(element_type, DataType):
            names = ", ".join(name for name, kind in BY_NUMPY_NAME.items() if isinstance(kind, DataType))
            raise TypeError(
                f"TensorDesc.of: array is of dtype {array.dtype}, must be {names}, in native byte order"
            )
        item_bytes = array.dtype.itemsize
        packed = packed_strides(array.shape)
        # The stride of a dimension of size 1 is never used, so it need not be a multiple.
        strides = tuple(
            step * item_bytes if size == 1 and stride % item_bytes else stride
            for size, stride, step in zip(array.shape, array.strides, packed, strict=True)
        )
        if any(stride % item_bytes for stride in strides):
            expected = f"multiples of {item_bytes}, the bytes of an item"
            raise TypeError(f"TensorDesc.of: array.strides is {array.strides}, must be {expected}")
        strides = tuple(stride // item_bytes for stride in strides)
        return TensorDesc(element_type, array.shape, None if strides == packed else strides)

    @property
    def dimension_count(self) -> int:
        """`DimensionCount`."""
        return len(self.sizes)

    @property
    def element(self) -> ElementInfo:
        """The element type's row of the dtype table."""
        return ELEMENTS[self.data_type]

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, also for packed tensors."""
        return _known_packed_strides(self.sizes) if self.strides is None else self.strides

    @property
    def is_packed(self) -> bool:
        """Whether the elements are row-major without gaps; strides of dimensions of size 1 are ignored."""
        pairs = zip(self.sizes, self.element_strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in pairs)

    @property
    def span_elements(self) -> int:
        """Number of elements from the first to the last addressed one, inclusive."""
        if self.strides is None:
            return num_elements(self.sizes)
        return 1 + sum((size - 1) * abs(s) for size, s in zip(self.sizes, self.strides, strict=True))

    @property
    def minimum_bytes(self) -> int:
        """`DMLCalcBufferTensorSize`: the span in bytes, rounded up to a multiple of 4."""
        return (self.span_elements * self.element.bits // 8 + 3) // 4 * 4

    @property
    def span_bytes(self) -> int:
        """Bytes from the start of the first to the end of the last addressed element, not rounded."""
        return self.span_elements * self.element.bits // 8


def tensor_of(kind: ElementType, sizes: tuple[int, ...], array: Any = None) -> TensorDesc:
    """The descriptor of an array that is broadcast to `sizes`; packed if there is no array yet."""
    sizes = sizes or (1,)
    if array is None or (array.flags.c_contiguous and array.shape == sizes):
        return TensorDesc.of_plain({"data_type": kind, "sizes": sizes})
    item_bytes, shape = array.dtype.itemsize, array.shape
    leading = (0,) * (len(sizes) - len(shape))
    own = zip(sizes[len(leading) :], shape, array.strides, strict=False)
    # The stride of a dimension of size 1 may be anything.
    strides = leading + tuple(
        step // item_bytes if size == n and step % item_bytes == 0 else 0 for size, n, step in own
    )
    tensor = TensorDesc.of_plain({"data_type": kind, "sizes": sizes, "strides": strides})
    return TensorDesc.of_plain({"data_type": kind, "sizes": sizes}) if tensor.is_packed else tensor
