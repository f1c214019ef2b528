"""Arrays laid out in byte buffers: permuted, padded, negative and zero strides, gaps, any byte offset."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cudml.devices import Device
from cudml.dtypes import ELEMENTS, ElementType
from cudml.tensors import TensorDesc, packed_strides
from tests.support import to_device, to_numpy


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in a buffer: strides in elements and the byte of element (0, ..., 0)."""

    desc: TensorDesc
    first: int
    num_bytes: int

    def view(self, raw: np.ndarray) -> np.ndarray:
        """The tensor inside a buffer of `num_bytes` bytes."""
        size = self.desc.element.size
        flat = np.ndarray((0,), np.dtype(f"V{size}"), raw, self.first)
        strides = tuple(stride * size for stride in self.desc.element_strides)
        return np.lib.stride_tricks.as_strided(flat, self.desc.sizes, strides)

    def operand(self, buffer: Any) -> Any:
        """The operand of a program: element (0, ..., 0) first; on the CPU, the extent is right, too."""
        return self.view(buffer) if isinstance(buffer, np.ndarray) else buffer[self.first :]

    def fill(self, rng: np.random.Generator) -> np.ndarray:
        """A new buffer of random bytes."""
        return rng.integers(0, 256, self.num_bytes, np.uint8)


def lay_out(
    sizes: Sequence[int],
    element_type: ElementType,
    *,
    order: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    flips: Sequence[bool] | None = None,
    broadcast: Sequence[bool] | None = None,
    byte_offset: int = 0,
) -> Layout:
    """A layout whose dimensions lie in `order` (outermost first), each `pads` elements longer than its size.

    `flips` makes strides negative, `broadcast` zero. `byte_offset` moves the whole tensor.
    """
    rank = len(sizes)
    strides = [0] * rank
    step = 1
    for d in reversed(order if order is not None else range(rank)):
        strides[d] = step
        step *= sizes[d] + (pads[d] if pads is not None else 0)
    for d in range(rank):
        if broadcast is not None and broadcast[d]:
            strides[d] = 0
        if flips is not None and flips[d]:
            strides[d] = -strides[d]
    low = sum(min((size - 1) * stride, 0) for size, stride in zip(sizes, strides, strict=True))
    high = sum(max((size - 1) * stride, 0) for size, stride in zip(sizes, strides, strict=True))
    item = ELEMENTS[element_type].size
    packed = tuple(strides) == packed_strides(sizes)
    desc = TensorDesc(element_type, tuple(sizes), None if packed else tuple(strides))
    return Layout(desc, byte_offset - low * item, byte_offset + (high - low + 1) * item)


@st.composite
def layouts(
    draw: st.DrawFn,
    sizes: Sequence[int],
    element_type: ElementType,
    *,
    broadcast: bool = True,
) -> Layout:
    """Any layout of a tensor, aligned to its items; zero strides only where `broadcast`."""
    rank = len(sizes)
    flags = st.lists(st.booleans(), min_size=rank, max_size=rank)
    none = st.none()
    return lay_out(
        sizes,
        element_type,
        order=draw(none | st.permutations(range(rank))),
        pads=draw(none | st.lists(st.integers(0, 2), min_size=rank, max_size=rank)),
        flips=draw(none | flags),
        broadcast=draw(none | flags) if broadcast else None,
        byte_offset=draw(st.integers(0, 16)) * ELEMENTS[element_type].size,
    )


def run_on_bytes(
    device: Device, plan: Any, raw: dict[str, np.ndarray], places: dict[str, Layout], output: str
) -> np.ndarray:
    """Run a plan on buffers of bytes and return the output's whole buffer, gaps included."""
    buffers = {name: at_alignment(device, bytes_) for name, bytes_ in raw.items()}
    device.load(plan)([places[name].operand(buffers[name]) for name in plan.operands], None)
    return to_numpy(buffers[output])


def at_alignment(device: Device, raw: np.ndarray, alignment: int = 64) -> Any:
    """The bytes in the device's memory at a multiple of `alignment`, so that only offsets matter."""
    moved = device.empty((len(raw) + alignment,), np.uint8)
    start = -device.address(moved) % alignment
    moved[start : start + len(raw)] = to_device(device, raw)
    return moved[start : start + len(raw)]
