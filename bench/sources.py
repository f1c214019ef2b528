"""Inputs generated on the device that uses them, with the same bits from NumPy and CuPy."""

import math
from typing import Any

import numpy as np


class Source:
    """Arrays of random data, different in each call.

    Every word is a hash of its position and of the number of the draw (the finaliser of MurmurHash3, by
    Austin Appleby, public domain), so a case has the same bits on every device and needs no random library.
    """

    def __init__(self, xp: Any, seed: int) -> None:
        self.xp = xp
        self._draw = seed * 1000

    def _words(self, count: int) -> Any:
        xp = self.xp
        self._draw += 1
        words = xp.arange(count, dtype=np.uint32)
        words += np.uint32((self._draw * 0x9E3779B9) & 0xFFFFFFFF)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            words ^= words >> np.uint32(shift)
            words *= np.uint32(factor)
        return words

    def bits(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Random bits; floats include NaN, infinities and subnormals."""
        dtype = np.dtype(dtype)
        num_bytes = math.prod(shape) * dtype.itemsize
        data = self._words(-(-num_bytes // 4)).view(np.uint8)[:num_bytes]
        return data.view(dtype).reshape(shape)

    def integers(self, shape: tuple[int, ...], low: int, high: int, dtype: Any) -> Any:
        """Approximately uniform integers with low <= x < high; high - low is at most 2**32."""
        words = self._words(math.prod(shape)).astype(np.uint64)
        words *= np.uint64(high - low)
        words >>= np.uint64(32)
        return (words.astype(np.int64) + low).astype(dtype).reshape(shape)

    def uniform(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Numbers with 0 <= x < 1 and 24 random bits."""
        words = self._words(math.prod(shape))
        words >>= np.uint32(8)
        numbers = words.astype(np.float32)
        numbers *= np.float32(2.0**-24)
        return numbers.astype(dtype, copy=False).reshape(shape)

    def normal(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Standard normal numbers, by the Box-Muller transform."""
        xp = self.xp
        radius = xp.sqrt(-2 * xp.log(1 - self.uniform(shape)))
        radius *= xp.cos(np.float32(2 * math.pi) * self.uniform(shape))
        return radius.astype(dtype, copy=False)
