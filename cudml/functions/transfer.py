"""Copies between host memory and a device's arrays, for data that starts or ends on the host."""

from typing import Any

import numpy as np

from cudml.devices import Array, Device


def upload(device: Device, array: np.ndarray[Any, Any]) -> Array:
    """A packed copy of a NumPy array in the device's memory."""
    moved = device.empty(array.shape, array.dtype)
    if isinstance(moved, np.ndarray):
        moved[...] = array
    else:
        moved.set(np.ascontiguousarray(array))
    return moved


def download(array: Array) -> np.ndarray[Any, Any]:
    """A device's array as a NumPy array, after the work on the current stream."""
    host: np.ndarray[Any, Any] = array if isinstance(array, np.ndarray) else array.get()
    return host
