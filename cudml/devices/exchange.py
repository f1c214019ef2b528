"""Arrays of other libraries, shared without a copy through DLPack or the CUDA array interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cudml.errors import a_type
from cudml.tensors import byte_extent, num_elements, packed_strides


class ExchangeError(Exception):
    """Why an object cannot be shared; the text completes a sentence that starts with the object."""


@dataclass(eq=False, slots=True)
class Form:
    """How an array lies in memory, from its first element.

    Attributes
    ----------
    strides : tuple of int
        The strides in bytes.
    low, num_bytes : int
        The lowest byte that is addressed, and the bytes from there to the highest, inclusive.
    is_packed : bool
        Whether the array is C-contiguous.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    low: int
    num_bytes: int
    is_packed: bool


def form_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Form:
    """The form of an array of this shape and dtype with these strides in bytes."""
    low, high = byte_extent(shape, strides, dtype.itemsize)
    steps = zip(shape, strides, packed_strides(shape), strict=True)
    is_packed = 0 in shape or all(n == 1 or at == dtype.itemsize * step for n, at, step in steps)
    return Form(shape, strides, dtype, low, high - low, is_packed)


class Exported(NamedTuple):
    """The memory of another library's array.

    `number` is that of the GPU, None for memory of a CPU. `stream` is the handle of the stream on which the
    library uses the memory, or None if unknown. The memory lives as long as `owner`.
    """

    address: int
    form: Form
    owner: Any
    is_read_only: bool
    number: int | None = None
    stream: int | None = None


class Taken(NamedTuple):
    """An array of a device's own type; `exported` is set if another library owns its memory."""

    array: Any
    exported: Exported | None = None


def cuda_array(candidate: Any) -> Exported:
    """Read the `__cuda_array_interface__` of an object, versions 0 to 3.

    Raises ExchangeError if the interface is invalid, has a mask, or a dtype in another byte order.
    """
    try:
        told = candidate.__cuda_array_interface__
        shape = tuple(map(int, told["shape"]))
        address, is_read_only = told["data"]
        dtype = np.dtype(told["typestr"])
        strides, stream = told.get("strides"), told.get("stream")
        if strides is None:
            strides = (dtype.itemsize * step for step in packed_strides(shape))
        strides = tuple(map(int, strides))
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ExchangeError(f"whose __cuda_array_interface__ cannot be read ({problem})") from error
    if told.get("mask") is not None:
        raise ExchangeError("with a mask")
    if not dtype.isnative:
        raise ExchangeError(f"of dtype {dtype}, which no GPU reads")
    if len(strides) != len(shape):
        raise ExchangeError(f"of shape {shape} and strides {strides}, which are not of one length")
    place = int(address or 0) if num_elements(shape) else 0
    form = form_of(shape, strides, dtype)
    return Exported(place, form, candidate, bool(is_read_only), stream=_handle(stream))


@dataclass
class _Place:
    """Memory with NumPy's array interface."""

    __array_interface__: dict[str, Any]


def array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """A NumPy array of packed elements at an address in CPU memory, which the caller keeps alive."""
    sizes = tuple(map(int, shape))
    if 0 in sizes:  # NumPy takes no null pointer
        return np.empty(sizes, dtype)
    size = num_elements(sizes) * dtype.itemsize
    place = _Place({"version": 3, "data": (int(address), False), "shape": (size,), "typestr": "|u1"})
    return np.asarray(place).view(dtype).reshape(sizes)


def _handle(stream: Any) -> int | None:
    """The stream of an interface: a handle, or None if there is nothing to wait for."""
    if stream is None:
        return None
    if not isinstance(stream, int) or stream <= 0:  # the protocol disallows 0 as ambiguous
        raise ExchangeError(f"whose __cuda_array_interface__ has {a_type(stream)} {stream!r} for a stream")
    return stream
