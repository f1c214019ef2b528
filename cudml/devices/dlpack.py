"""DLPack: read the location and type of another library's array.

A capsule is neither renamed nor its deleter called: it keeps owning the memory, and its own destructor
releases it when the last reference to the capsule is gone.

Source: "Python Specification for DLPack" and `dlpack.h` 1.1.
"""

import ctypes
from typing import Any

import numpy as np

from cudml.devices.exchange import ExchangeError, Exported
from cudml.tensors import num_elements, packed_strides

#: `DLDeviceType` values of memory that a CPU addresses: its own, and memory pinned by CUDA.
CPU_TYPES = (1, 3)
#: Those of memory that a GPU addresses: its own, and CUDA's managed memory.
CUDA_TYPES = (2, 13)
MANAGED_TYPE = 13

#: The newest supported version.
_VERSION = (1, 1)

# Bits of `flags` in a versioned capsule.
_READ_ONLY, _IS_COPIED = 1, 2

#: `DLDataTypeCode` of NumPy's types -> the kind and the sizes in bits.
_KINDS = {0: ("i", (8, 16, 32, 64)), 1: ("u", (8, 16, 32, 64)), 2: ("f", (16, 32, 64)), 5: ("c", (64, 128))}
_BOOL = 6
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


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_is_valid, _pointer_of = _api.PyCapsule_IsValid, _api.PyCapsule_GetPointer
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer_of.argtypes, _pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


def device_of(candidate: Any) -> tuple[int, int] | None:
    """The `DLDeviceType` and device number of an object; None if it has no `__dlpack_device__`.

    Raises
    ------
    ExchangeError
        `__dlpack_device__` raises, or returns something else.
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

    Raises
    ------
    ExchangeError
        The object shares no memory, or elements without a NumPy dtype.
    """
    order = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = candidate.__dlpack__(**order, max_version=_VERSION)
        except TypeError:  # a library that predates versioned capsules
            capsule = candidate.__dlpack__(**order)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ExchangeError(f"whose __dlpack__() raises {_told(error)}") from error
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if managed.major != _VERSION[0]:
            raise ExchangeError(f"of version {managed.major}.{managed.minor} of DLPack, 1 is known")
        # Anything written to a copy would be lost.
        is_read_only = bool(managed.flags & (_READ_ONLY | _IS_COPIED))
        tensor = managed.tensor
    elif _is_valid(capsule, b"dltensor"):
        is_read_only = _is_read_only(candidate)
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    else:
        raise ExchangeError(f"whose __dlpack__() is {capsule!r}, no unused capsule of DLPack")
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    shape = tuple(tensor.shape[: tensor.ndim])
    steps = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else packed_strides(shape)
    return Exported(
        address=(tensor.data or 0) + tensor.byte_offset if num_elements(shape) else 0,
        shape=shape,
        # In the 64 bits of C: CuPy exports a stride of -2 as that which gives -2 * itemsize when it wraps.
        strides=tuple(ctypes.c_int64(step * dtype.itemsize).value for step in steps),
        dtype=dtype,
        owner=capsule,
        is_read_only=is_read_only,
        number=tensor.device_id if tensor.device_type in CUDA_TYPES else None,
    )


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
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (AttributeError, ImportError) as error:
        raise ExchangeError(f"of {name}, which takes ml_dtypes: pip install -U ml_dtypes") from error
    return dtype
