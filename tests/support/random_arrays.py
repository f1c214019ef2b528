"""Random arrays for the differential tests: edge-case values, and layouts with gaps, steps and reversals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.devices import Device
from tests.support import to_device


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bits, a handful of values at the type's edges (so: ties), one value, or a ramp."""
    size = math.prod(shape)
    kind = rng.choice(["bits", "edges", "constant", "ramp"])
    if kind == "bits" and dtype.kind != "b":
        return np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).reshape(shape).copy()
    if kind == "ramp" and dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            ramp = np.arange(size).astype(dtype).reshape(shape)
        return ramp if rng.integers(2) else ramp[::-1].copy()
    edges = edge_values(dtype)
    return rng.choice(edges[:1] if kind == "constant" else edges, shape)


def edge_values(dtype: np.dtype) -> np.ndarray:
    """Values of a type that often break orderings."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    tiny = 1e-300 if dtype.kind == "c" else np.array(1, f"u{dtype.itemsize}").view(dtype)
    return np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, tiny], dtype)


@dataclass(frozen=True)
class Layout:
    """How an array lies in a packed one: cut out of it, transposed, then broadcast to `shape`."""

    packed_shape: tuple[int, ...]
    cuts: tuple[slice, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def view(self, packed: Any) -> Any:
        """The view of a packed array of one dimension, of any array library."""
        cut = packed.reshape(self.packed_shape)[self.cuts].transpose(self.order)
        return cut if cut.shape == self.shape else np.broadcast_to(cut, self.shape)

    @property
    def packed_size(self) -> int:
        """Elements of the packed array."""
        return math.prod(self.packed_shape)


def random_layout(
    rng: np.random.Generator, shape: Sequence[int], *, negative: bool = False, broadcast: bool = False
) -> Layout:
    """Packed in half of the cases; otherwise with gaps, steps, a transposition, and other allowed changes."""
    shape = tuple(shape)
    rank = len(shape)
    if rng.integers(2):
        return Layout(shape, (slice(None),) * rank, tuple(range(rank)), shape)
    sizes = [1 if broadcast and rng.random() < 0.2 else size for size in shape]
    places = rng.permutation(rank).tolist()
    packed_shape, cuts = [], []
    for axis in places:
        step, before, after = (int(number) for number in rng.integers((1, 0, 0), (4, 3, 3)))
        extent = (sizes[axis] - 1) * step + 1 if sizes[axis] else 0
        packed_shape.append(before + extent + after)
        indices = range(before, before + extent, step)
        if negative and indices and rng.integers(2):
            cuts.append(slice(indices[-1], indices[0] - 1 if indices[0] else None, -step))
        else:
            cuts.append(slice(before, before + extent, step))
    return Layout(tuple(packed_shape), tuple(cuts), tuple(np.argsort(places).tolist()), shape)


@dataclass
class Placed:
    """An array on a device in its layout, and what all the memory around it held."""

    view: Any
    packed: Any
    layout: Layout
    before: np.ndarray


def place(rng: np.random.Generator, device: Device, layout: Layout, dtype: np.dtype) -> Placed:
    """A new array of random values in a layout."""
    before = random_values(rng, (layout.packed_size,), dtype)
    packed = to_device(device, before)
    return Placed(layout.view(packed), packed, layout, before)


def values_of(placed: Placed) -> np.ndarray:
    """The array's content when it was placed."""
    return placed.layout.view(placed.before)


def memory_with(placed: Placed, values: np.ndarray) -> np.ndarray:
    """All the memory of a placed array once `values` are written to it and nothing around it."""
    packed = placed.before.copy()
    placed.layout.view(packed)[...] = values
    return packed
