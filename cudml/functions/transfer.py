"""Copies between arrays, and between host memory and a device's arrays.

Copies on a CPU run in pieces, because Python handles signals only between pieces.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from cudml.devices import Array, Device

#: Elements of a piece: about 20 ms where they are not aligned, or far apart.
_PIECE_ELEMENTS = 1 << 21


def upload(device: Device, array: np.ndarray[Any, Any]) -> Array:
    """A packed copy of a NumPy array in the device's memory."""
    moved = device.empty(array.shape, array.dtype)
    if isinstance(moved, np.ndarray):
        assign(moved, array)
    else:
        moved.set(np.asarray(array, order="C"))  # `ascontiguousarray` would make a 0-d array 1-D
    return moved


def download(array: Array) -> np.ndarray[Any, Any]:
    """A device's array as a NumPy array, after the work on the current stream."""
    host: np.ndarray[Any, Any] = array if isinstance(array, np.ndarray) else array.get()
    return host


def assign(target: Array, source: Array) -> None:
    """`target[...] = source`, for two arrays in the memory of one device."""
    if not isinstance(target, np.ndarray):
        target[...] = source
        return
    source = np.broadcast_to(source, target.shape)
    for piece in _pieces(target.shape):
        target[piece] = source[piece]


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    """Indices of pieces that make up an array of a shape, none larger than `_PIECE_ELEMENTS`."""
    if prod(shape) <= _PIECE_ELEMENTS:
        yield ()
        return
    row = prod(shape[1:])
    if row > _PIECE_ELEMENTS:
        yield from ((number, *rest) for number in range(shape[0]) for rest in _pieces(shape[1:]))
        return
    num_rows = _PIECE_ELEMENTS // row
    yield from ((slice(first, first + num_rows),) for first in range(0, shape[0], num_rows))
