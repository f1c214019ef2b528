"""Code that exists only to save time in warm calls, with the part of a call's host time that it saves.

Nothing here is needed for a correct result. A shortcut that saves less than 3 % of a warm call is not kept.
Each was measured by calls with and without it in turns: of `top_k` of a few elements on a CPU, which takes
4.4 us, and on the CUDA path by `bench/test_overhead.py`.

Others are where they are used: the last offsets in `functions/slice.py` (16 % of `slice` on the CUDA path),
the operands without arrays of `devices/cuda/sharing.py` (a DLPack tensor took 7.6 times as long as an array
before, and takes 1.5 times as long with them), and the tables of array types in `functions/calls.py`, for
every call, and in `devices/__init__.py`, for calls that are planned. `torch/` keeps calls by PyTorch's own
layouts, and calls the kernel of `topk` past the dispatcher, which saves a third of the call. Values that
planning makes for each new shape (`Space`, `Selection`, `Argument`, ...) have slots and are not frozen:
made faster than frozen values and read faster than named tuples, 4 to 6 % of planning a call. All programs
and allocators share the variables of one function (`_makers`, `_allocators` of `devices/cuda/`), instead of
having one function each: 2 to 3 %.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    from posix import environ as _raw_environment  # the dictionary behind os.environ
except ImportError:  # not POSIX: no emulator either
    _raw_environment = {}

#: The memory of this process as pointers. In a NumPy array object, the pointer to the data comes after the
#: object's header, which NumPy's C ABI guarantees to compiled extensions. Reading it there saves 0.8 us over
#: `__array_interface__`; `top_k` reads four addresses.
POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
PLACE = object.__basicsize__ // POINTER_BYTES
pointers: Any = (ctypes.c_size_t * (sys.maxsize // POINTER_BYTES)).from_address(0)


def address_of(array: Any) -> int:
    """Address of element (0, ..., 0) of a NumPy array."""
    address: int = pointers[id(array) // POINTER_BYTES + PLACE]
    return address


#: The memory of this process: `memory[start:stop]` is the bytes between two addresses. Without an object for
#: each read, reading a DLPack tensor takes 0.7 us less, 9 % of `top_k` of one.
memory: Any = (ctypes.c_char * sys.maxsize).from_address(0)

#: Returns CUDML_EMULATOR as bytes, or None; `devices/emulator/schedule.py` parses it. With os.environ.get,
#: which is slow if the name is absent, `top_k` takes 1.4 times as long.
emulator_options = partial(_raw_environment.get, b"CUDML_EMULATOR")

#: Returns CUDML_PRINT_PLAN as bytes, or None; `settings.print_plan` parses it. 2 % of planning a call.
plan_option = partial(_raw_environment.get, b"CUDML_PRINT_PLAN")

#: Makes a named tuple from a sequence without counting its members, as `_make` does: 4 % of `top_k`.
new_tuple = tuple.__new__


def construction(ndarray: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The steps of `cupy.ndarray(shape, dtype)`: `array = new(ndarray)`, `initialize(array, shape, dtype)`.

    They skip the constructor's handling of keywords: 8 % of `top_k`, 7 % of `slice`.
    """
    base = ndarray.__mro__[1]
    return base.__new__, base._init
