"""Arrays of other libraries, shared without a copy: what DLPack and the CUDA array interface tell of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.errors import a_type
from cudml.tensors import num_elements, packed_strides


class ExchangeError(Exception):
    """Why an object cannot be shared, as the end of a sentence that starts with the object."""


@dataclass(frozen=True)
class Exported:
    """The memory of another library's array.

    `strides` are in bytes. `number` is that of the GPU, None where the protocol does not say. `stream` is the
    handle of the stream in whose order the library uses the memory, None where that is not known. The memory
    stays for as long as `owner` does.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    is_read_only: bool
    number: int | None = None
    stream: int | None = None


@dataclass(frozen=True)
class Taken:
    """An argument as an array of a device's own type; `exported` is set where another library's memory is."""

    array: Any
    exported: Exported | None = None


def cuda_array(candidate: Any) -> Exported:
    """What the `__cuda_array_interface__` of an object says, versions 0 to 3.

    Raises
    ------
    ExchangeError
        It is none, has a mask, or a dtype in another byte order.
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
    return Exported(place, shape, strides, dtype, candidate, bool(is_read_only), stream=_handle(stream))


def _handle(stream: Any) -> int | None:
    """The stream of an interface: an integer, None for nothing to wait for."""
    if stream is None:
        return None
    if not isinstance(stream, int) or stream <= 0:  # 0 is ruled out, because it would be ambiguous
        raise ExchangeError(f"whose __cuda_array_interface__ has {a_type(stream)} {stream!r} for a stream")
    return stream
