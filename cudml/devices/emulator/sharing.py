"""Tensors of other libraries in a CPU's memory, as NumPy arrays that share it."""

from typing import Any

import numpy as np

from cudml.devices import dlpack
from cudml.devices.exchange import Exported, Taken


def take(candidate: Any) -> Taken:
    """The NumPy array that shares the memory of an object whose `__dlpack_device__` is a CPU.

    Raises
    ------
    cudml.devices.exchange.ExchangeError
        It shares none, or something that NumPy has not.
    """
    exported = dlpack.exported(candidate)
    if exported.address:
        array = np.asarray(_Memory(exported)).view(exported.dtype)
    else:
        array = np.empty(exported.shape, exported.dtype)
        array.flags.writeable = not exported.is_read_only
    return Taken(array, exported)


class _Memory:
    """Memory as NumPy's array interface has it; an array of it keeps this object, and that the owner."""

    def __init__(self, exported: Exported) -> None:
        self._owner = exported.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (exported.address, exported.is_read_only),
            "shape": exported.shape,
            "strides": exported.strides,
            # A type of ml_dtypes is bytes to the interface, and a view is made of them.
            "typestr": exported.dtype.str,
        }
