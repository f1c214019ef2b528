"""DLPack: read the location and type of another library's array.

A capsule is neither renamed nor its deleter called: it keeps owning the memory, and its own destructor
releases it when the last reference to the capsule is gone.

Source: "Python Specification for DLPack" and `dlpack.h` 1.1.
"""

import ctypes
from functools import lru_cache
from importlib import import_module
from struct import Struct, unpack
from typing import Any

import numpy as np

from cudml.devices.exchange import ExchangeError, Exported, Form, form_of
from cudml.devices.shortcuts import memory
from cudml.tensors import packed_strides

#: `DLDeviceType` values of memory that a CPU addresses: its own, and memory pinned by CUDA.
CPU_TYPES = (1, 3)
#: `DLDeviceType` values of memory that a GPU addresses: its own, and CUDA's managed memory.
CUDA, MANAGED = 2, 13
CUDA_TYPES = (CUDA, MANAGED)

#: The newest supported version.
VERSION = (1, 1)

#: Bits of `flags` in a versioned capsule: memory that must not be written, and a copy, in which anything
#: written would be lost.
READ_ONLY = 1 | 2

#: `DLDataTypeCode` of NumPy's types -> the kind and the sizes in bits.
_KINDS = {0: ("i", (8, 16, 32, 64)), 1: ("u", (8, 16, 32, 64)), 2: ("f", (16, 32, 64)), 5: ("c", (64, 128))}
_BOOL = 6
try:
    _ml_dtypes: Any = import_module("ml_dtypes")
except Exception:  # absent, or built for another NumPy: an error only for arrays that need it
    _ml_dtypes = None

#: `DLDataTypeCode` of the types of ml_dtypes -> the name there and the size in bits.
_ML_DTYPES = {
    4: ("bfloat16", 16),
    7: ("float8_e3m4", 8),
    8: ("float8_e4m3", 8),
    9: ("float8_e4m3b11fnuz", 8),
    10: ("float8_e4m3fn", 8),
    11: ("float8_e4m3fnuz", 8),
    12: ("float8_e5m2", 8),
    13: ("float8_e5m2fnuz", 8),
    14: ("float8_e8m0fnu", 8),
}


# `DLTensor` in C: address, device type and number, which are skipped, number of dimensions, type, pointers to
# the shape and the strides, and an offset in bytes. A versioned capsule has before it the version, the
# context and the deleter, which are skipped, and flags.
_TENSOR = "P8xi4sPPQ"
_unpack_old, _unpack_versioned = Struct(f"@{_TENSOR}").unpack_from, Struct(f"@II16xQ{_TENSOR}").unpack_from

# `DLDataType` in C: code, bits and lanes.
_unpack_type = Struct("@BBH").unpack

# Takes the addresses of an object and of a name; raises ValueError unless it is a capsule of that name.
# A function object of its own, because others declare the argument types of `pythonapi`'s.
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_names = ctypes.create_string_buffer(b"dltensor_versioned"), ctypes.create_string_buffer(b"dltensor")
_VERSIONED, _OLD = map(ctypes.addressof, _names)


def device_of(candidate: Any) -> tuple[int, int] | None:
    """The `DLDeviceType` and device number of an object; None if it has no `__dlpack_device__`.

    Raises ExchangeError if `__dlpack_device__` raises, or returns something else.
    """
    method = getattr(candidate, "__dlpack_device__", None)
    if method is None:
        return None
    try:
        answer = method()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ExchangeError(f"whose __dlpack_device__() raises {_told(error)}") from error
    try:
        kind, number = answer
        return int(kind), int(number)
    except (TypeError, ValueError) as error:
        raise ExchangeError(f"whose __dlpack_device__() is {answer!r}") from error


def exported(candidate: Any, stream: int | None = None) -> Exported:
    """The memory that an object shares through `__dlpack__`, ordered by a stream on a GPU.

    `stream` is a handle as defined by the protocol: 1 is the legacy default stream, -1 asks for no ordering;
    it is None on a CPU.

    Raises ExchangeError if the object shares no memory, or elements without a NumPy dtype.
    """
    order = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = candidate.__dlpack__(**order, max_version=VERSION)
        except TypeError:  # a library that predates versioned capsules
            capsule = candidate.__dlpack__(**order)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ExchangeError(f"whose __dlpack__() raises {_told(error)}") from error
    try:
        address, form, flags = read_versioned(capsule)
    except ValueError:
        address, form = _read_old(capsule)
        is_read_only = _is_read_only(candidate)
    else:
        is_read_only = bool(flags & READ_ONLY)
    return Exported(address, form, capsule, is_read_only)


def read_versioned(capsule: Any) -> tuple[int, Form, int]:
    """The address (0 if empty), the form and the flags of a tensor.

    Raises ValueError unless it is a versioned capsule of DLPack, ExchangeError if the version is unknown or
    the elements have no NumPy dtype.
    """
    major, minor, flags, data, ndim, element, shape, strides, offset = _unpack_versioned(
        memory, _pointer_at(id(capsule), _VERSIONED)
    )
    if major != VERSION[0]:
        raise ExchangeError(f"of version {major}.{minor} of DLPack, 1 is known")
    size = 8 * ndim
    if strides == shape + size:  # most libraries keep them together
        form = _form(element, ndim, memory[shape : strides + size])
    else:
        form = _form(element, ndim, _numbers(ndim, shape, strides))
    return data + offset if form.num_bytes else 0, form, flags


def _read_old(capsule: Any) -> tuple[int, Form]:
    """`read_versioned` for a capsule without a version, which has no flags."""
    try:
        pointer = _pointer_at(id(capsule), _OLD)
    except ValueError:
        raise ExchangeError(f"whose __dlpack__() is {capsule!r}, not an unused capsule of DLPack") from None
    data, ndim, element, shape, strides, offset = _unpack_old(memory, pointer)
    form = _form(element, ndim, _numbers(ndim, shape, strides))
    return data + offset if form.num_bytes else 0, form


def _numbers(ndim: int, shape: int, strides: int) -> bytes:
    """The 64-bit numbers at the addresses of the shape and, unless null, of the strides."""
    places = (shape, strides) if strides else (shape,)
    return b"".join([memory[place : place + 8 * ndim] for place in places])


@lru_cache(maxsize=1024)
def _form(element: bytes, ndim: int, numbers: bytes) -> Form:
    """The form of a tensor, from its type, and its shape and strides if it has any."""
    dtype = _dtype(*_unpack_type(element))
    values = unpack(f"@{len(numbers) // 8}q", numbers)
    shape, in_elements = values[:ndim], values[ndim:]
    if len(in_elements) < ndim:
        in_elements = packed_strides(shape)
    # Wrapped to 64 bits, as in C: CuPy exports a stride of -2 as a number that wraps around to -2 * itemsize.
    strides = tuple(ctypes.c_int64(step * dtype.itemsize).value for step in in_elements)
    return form_of(shape, strides, dtype)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _is_read_only(candidate: Any) -> bool:
    """Whether the memory of a capsule without flags is read-only: yes, unless another protocol denies it."""
    interface = getattr(candidate, "__cuda_array_interface__", None)
    if interface is not None:
        return bool(interface["data"][1])
    try:
        return memoryview(candidate).readonly
    except (BufferError, TypeError, ValueError):
        return True


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    kind, sizes = _KINDS.get(code, ("", ()))
    if lanes == 1 and bits in sizes:
        return np.dtype(f"{kind}{bits // 8}")
    if lanes == 1 and (code, bits) == (_BOOL, 8):
        return np.dtype(bool)
    name, size = _ML_DTYPES.get(code, ("", 0))
    if lanes != 1 or bits != size or not name:
        raise ExchangeError(f"of DLPack type {code}, {bits} bits and {lanes} lanes, not a NumPy dtype")
    scalar_type = getattr(_ml_dtypes, name, None)
    if scalar_type is None:
        raise ExchangeError(f"of {name}, which takes ml_dtypes: pip install -U ml_dtypes")
    dtype: np.dtype[Any] = np.dtype(scalar_type)
    return dtype
