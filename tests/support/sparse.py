"""Many gigabytes of memory, and tensors in it; a test touches only a few pages."""

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudml.dtypes import ElementType
from cudml.tensors import TensorDesc

#: A stride, in elements, past 2**32. Cut to 32 bits it is a small positive number, so a kernel that cuts it
#: goes to a wrong place of the same tensor.
WIDE = 2**32 + 64

#: Linux's flag, which `mmap` has from Python 3.13 on.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def sparse_memory(num_bytes: int) -> np.ndarray:
    """Zeros; a page takes memory only once it is written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, num_bytes, flags)
    memory.madvise(getattr(mmap, "MADV_NOHUGEPAGE", 15))
    return np.frombuffer(memory, np.uint8)


def sparse_tensor(sizes: Sequence[int], dtype: Any, strides: Sequence[int], skew: int = 0) -> np.ndarray:
    """A tensor of zeros from byte `skew` on; strides count elements and may be negative or 0."""
    item = np.dtype(dtype).itemsize
    steps = [(n - 1) * s for n, s in zip(sizes, strides, strict=True)]
    low, high = (sum(f(step, 0) for step in steps) for f in (min, max))
    memory = sparse_memory((high - low + 1) * item + skew)
    first = memory[skew - low * item :].view(dtype)
    return np.lib.stride_tricks.as_strided(first, sizes, [s * item for s in strides])


def described(array: np.ndarray, kind: ElementType) -> TensorDesc:
    """The descriptor of an array whose elements are of a type."""
    return TensorDesc(kind, array.shape, tuple(s // array.itemsize for s in array.strides))


def wide_strides(sizes: Sequence[int], num_packed: int) -> tuple[int, ...]:
    """Strides: the innermost `num_packed` are packed, all others are above 2**32."""
    strides: list[int] = []
    step = 1
    for number, size in enumerate(reversed(sizes)):
        if number == num_packed:
            step = max(step, WIDE)
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
