"""Operands with the values where instructions go wrong, and exact arithmetic for what NumPy rounds twice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TYPES: dict[str, np.dtype[Any]] = {
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
NUM_VALUES = 512
_BITS = (0, 1, 2, 5, 31, 32, 33, 63, 64, 255, 0x7FFF, 0x80, 0x8000, 0xFFFF)


def edges(name: str) -> Array:
    """Values of a type at its limits."""
    dtype = TYPES[name]
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        least, tiny = limits.smallest_subnormal, limits.smallest_normal
        values = [0, 1, 1.5, 2.5, 3, 127.5, 1000.25, limits.max, tiny, tiny * 3, least, tiny - least, np.inf]
        values += [0.1, 32767.5, 2.0**15] if dtype.itemsize == 2 else [2.0**31, 2.0**32, 2.0**63, 2.0**64]
        return np.array([*values, *np.negative(values), np.nan], dtype)
    bits = 8 * dtype.itemsize
    numbers = {
        (sign * x) % 2**bits for x in (*_BITS, 2 ** (bits - 1), 2 ** (bits - 1) - 1) for sign in (1, -1)
    }
    return np.array(sorted(numbers), f"uint{bits}").view(dtype)


def operand_values(names: Sequence[str], rng: np.random.Generator) -> list[Array]:
    """An array for each type: half edges, half any bits; in some places equal to the first array."""
    arrays = []
    for name in names:
        dtype = TYPES[name]
        array = np.frombuffer(rng.bytes(NUM_VALUES * dtype.itemsize), dtype).copy()
        if dtype.kind == "f":  # random bits are rarely near each other, so a third are normal
            array[::3] = rng.normal(size=array[::3].size)
        is_edge = rng.random(NUM_VALUES) < 0.6
        array[is_edge] = rng.choice(edges(name), is_edge.sum())
        if arrays and arrays[0].dtype == dtype:
            array[::8] = arrays[0][::8]
        arrays.append(array)
    return arrays


def ints(array: Array) -> Array:
    """As Python's integers, which do not wrap."""
    return array.astype(object)


def wrapped(values: Array, name: str) -> Array:
    """The lowest bits of Python's integers as a type."""
    dtype = TYPES[name]
    bits = 8 * dtype.itemsize
    return (values % 2**bits).astype(f"uint{bits}").view(dtype)


def flushed(values: Array) -> Array:
    """Subnormal numbers of single precision as zeros of their sign."""
    is_subnormal = np.abs(values) < np.finfo(np.float32).smallest_normal
    return np.where(is_subnormal, np.copysign(np.float32(0), values), values)


def sum_to_odd(a: Array, b: Array) -> Array:
    """The sum of doubles, with its last bit set if it is inexact, so that a second rounding is right."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)  # 2Sum, exact
    is_even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    is_off = np.isfinite(total) & (error != 0) & is_even
    return np.where(is_off, np.nextafter(total, towards), total)


def rounded(exact: Array, mode: str = "rn") -> Array:
    """Doubles in single precision; `mode` as PTX names it: to nearest, zero, -inf, +inf."""
    nearest = exact.astype(np.float32)
    wide = nearest.astype(np.float64)
    too_high, too_low = wide > exact, wide < exact
    if mode == "rz":
        too_high, too_low = too_high & (exact > 0), too_low & (exact < 0)
    down, up = (np.nextafter(nearest, np.float32(end)) for end in (-np.inf, np.inf))
    if mode in ("rm", "rz"):
        nearest = np.where(too_high, down, nearest)
    if mode in ("rp", "rz"):
        nearest = np.where(too_low, up, nearest)
    return nearest


def fma(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c of single precision, rounded once."""
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    result = rounded(sum_to_odd(a * b, c), mode)
    # Rounding down, a sum of opposite numbers is -0.
    is_cancelled = np.isfinite(c) & (a * b == -c) & (np.signbit(a * b) != np.signbit(c))
    return np.where(is_cancelled & (mode == "rm"), np.float32(-0.0), result)
