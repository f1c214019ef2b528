"""The two devices, and the choice between them.

A device knows arrays, streams and how to run a `Plan`, but no operator.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from cudml.devices import cuda, dlpack, emulator
from cudml.devices.exchange import Taken
from cudml.devices.interface import Array, Device, LaunchTooLargeError, Layout, Program

__all__ = [
    "Array",
    "Device",
    "LaunchTooLargeError",
    "Layout",
    "Program",
    "cuda",
    "device_of",
    "emulator",
    "get_device",
    "operand_makers",
    "own_types",
    "take",
]


def get_device(name: str | None = None) -> Device:
    """The device named "cuda", "cuda:1" or "cpu"; None means the current GPU, else the CPU.

    Raises ValueError for another name; DeviceError if the named GPU cannot be used, and for None if CUDA was
    used before this process was forked.
    """
    if name == "cpu":
        return emulator.get_device()
    if name is None:
        status = cuda.status()
        wants_cuda = status.usable or status.is_lost_by_fork
        return cuda.get_device(None) if wants_cuda else emulator.get_device()
    kind, colon, number = name.partition(":")
    if kind == "cuda" and (not colon or number.isdecimal()):
        return cuda.get_device(int(number) if colon else None)
    raise ValueError(f"device is {name!r}, must be 'cpu', 'cuda' or 'cuda:N' with N a device number")


#: Array types of the devices' own libraries that `take` has met -> a function that returns an array's key,
#: and the devices by key.
own_types: dict[type, tuple[Callable[[Any], Any], Mapping[Any, Device]]] = {}


#: Once `take` has met an array in a GPU's memory: a function that quickly makes an operand of a `Program`
#: from another library's array. It takes the array, the stream of the work (None: the current one) and
#: whether the work writes the array. It returns None if `take` has to do it. Otherwise it returns the
#: operand, with its address `ptr` and its `layout`, as of `Device.address_and_layout`, and the argument of
#: `Device.hold` if this is the only operand; None in place of that if the work needs `Device.order_after`.
operand_makers: list[Callable[[Any, Any, bool], tuple[Any, dict[int, Any] | None] | None]] = []


def take(candidate: Any) -> tuple[Taken, Device] | None:
    """Take an array of any library as an array of a device's own type that shares its memory.

    Returns the array and the device, or None if the object is not an array.

    Raises ExchangeError if the object violates the protocol by which it would share its memory, DeviceError
    if it is in GPU memory that cannot be used.
    """
    if isinstance(candidate, np.ndarray):
        own_types.setdefault(np.ndarray, (type, {np.ndarray: emulator.get_device()}))
        array = candidate if type(candidate) is np.ndarray else candidate.view(np.ndarray)
        return Taken(array), emulator.get_device()
    if cuda.is_own(candidate):
        array, number_of = cuda.plain(candidate), attrgetter("data.device_id")
        device = cuda.get_device(number_of(array))
        own_types.setdefault(type(array), (number_of, cuda.devices))
        return Taken(array), device
    where = dlpack.device_of(candidate)
    if where is not None and where[0] in dlpack.CPU_TYPES:
        return emulator.take(candidate), emulator.get_device()
    if _is_on_gpu(candidate, where):
        taken = cuda.take(candidate, where)
        operand_makers[:] = [cuda.operand_maker()]
        return taken, cuda.get_device(taken.array.data.device_id)
    return None


def device_of(candidate: Any) -> Device | None:
    """The device on which `take` would return an object, or None; raises as `take` does."""
    if isinstance(candidate, np.ndarray):
        return emulator.get_device()
    if cuda.is_own(candidate):
        return cuda.get_device(candidate.data.device_id)
    where = dlpack.device_of(candidate)
    if where is not None and where[0] in dlpack.CPU_TYPES:
        return emulator.get_device()
    return cuda.get_device(cuda.number_of(candidate, where)) if _is_on_gpu(candidate, where) else None


def _is_on_gpu(candidate: Any, where: tuple[int, int] | None) -> bool:
    """Whether an object is in GPU memory; `where` is DLPack's answer, which takes precedence."""
    if where is not None:
        return where[0] in dlpack.CUDA_TYPES
    return hasattr(candidate, "__cuda_array_interface__")
