"""NumPy arrays that share CPU memory of other libraries."""

from typing import Any

import numpy as np

from cudml.devices import dlpack
from cudml.devices.exchange import Exported, Taken


def take(candidate: Any) -> Taken:
    """The NumPy array that shares the memory of an object whose `__dlpack_device__` is a CPU.

    Raises ExchangeError if the object shares no memory, or elements that NumPy does not support.
    """
    exported = dlpack.exported(candidate)
    if exported.address:
        array = np.asarray(_Memory(exported)).view(exported.form.dtype)
    else:
        array = np.empty(exported.form.shape, exported.form.dtype)
        array.flags.writeable = not exported.is_read_only
    return Taken(array, exported)


class _Memory:
    """Memory with NumPy's array interface; an array of it keeps this object, and so the owner, alive."""

    def __init__(self, exported: Exported) -> None:
        self._owner = exported.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (exported.address, exported.is_read_only),
            "shape": exported.form.shape,
            "strides": exported.form.strides,
            # Types of ml_dtypes are raw bytes in the interface; the caller views them as the type.
            "typestr": exported.form.dtype.str,
        }
