"""DLPack capsules that NumPy and CuPy do not make."""

import ctypes
from typing import Any

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p

#: Offset of the type code in a versioned capsule: behind version, context, deleter and flags, and the
#: tensor's address, device and number of dimensions.
_CODE_OFFSET = 32 + 20
_BFLOAT = 4


def taken_for_bfloat16(capsule: Any) -> Any:
    """A versioned capsule of uint16, which becomes one of bfloat16."""
    place = _pointer_of(capsule, b"dltensor_versioned") + _CODE_OFFSET
    ctypes.c_uint8.from_address(place).value = _BFLOAT
    return capsule
