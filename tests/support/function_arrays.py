"""Arrays for the array functions: values with many ties, in several layouts, and the arrays of a GRU."""

from typing import Any

import ml_dtypes
import numpy as np

from cudml.devices import Device
from cudml.enums import RecurrentNetworkDirection
from tests.support import to_device

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
REALS = ["bool", *INTEGERS, "float16", "float32", "float64", ml_dtypes.bfloat16]

#: The layouts of `strided`.
LAYOUTS = ["packed", "fortran", "backwards", "gaps"]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random values with many ties; floats include NaN, infinities and both zeros."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fV" and dtype.itemsize <= 8:
        pool = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 3.0]).astype(dtype)
    elif dtype.kind == "b":
        pool = np.array([False, True])
    else:
        pool = np.frombuffer(rng.bytes(8 * dtype.itemsize), dtype)
    return pool[rng.integers(0, len(pool), shape)]


def strided(device: Device, array: np.ndarray, how: str) -> Any:
    """An array on the device with the given elements, in one of `LAYOUTS`."""
    if how == "packed":
        return to_device(device, array)
    if how == "fortran":
        return to_device(device, np.ascontiguousarray(array.T)).T
    if how == "backwards":
        flip = (slice(None, None, -1),) * array.ndim
        return to_device(device, np.ascontiguousarray(array[flip]))[flip]
    wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    inner = (slice(1, None, 2),) * array.ndim
    wide[inner] = array
    return to_device(device, wide)[inner]


DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}


def layer(rng: np.random.Generator, direction: str, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Arrays of a layer with T 5, N 3, I 4, H 6."""
    d = 2 if direction == "bidirectional" else 1
    shapes = {"x": (5, 3, 4), "w": (d, 18, 4), "r": (d, 18, 6), "b": (d, 36), "h0": (d, 3, 6)}
    arrays = {name: rng.uniform(-0.5, 0.5, shape).astype(dtype) for name, shape in shapes.items()}
    return arrays | {"sequence_lengths": np.array([5, 0, 3], np.int64)}
