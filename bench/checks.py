"""Comparisons that raise, for arrays of NumPy or CuPy."""

from typing import Any

import numpy as np

from bench.cases import WrongResultError


def require_identical(got: Any, expected: Any, what: str = "result") -> None:
    """Raise unless both have the same shape, dtype and bits; a NaN equals only a NaN with the same bits."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise WrongResultError(f"{what} is {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
    if not got.size:
        return
    different = (_bytes(got) != _bytes(expected)).any(axis=-1)
    count = int(different.sum())
    if count:
        first = np.unravel_index(int(different.argmax()), got.shape)
        raise WrongResultError(
            f"{what}: {count} of {got.size} elements differ, first at {tuple(map(int, first))}: "
            f"got {got[first]!r}, expected {expected[first]!r}"
        )


def error_of(got: Any, expected: Any) -> float:
    """The root mean square difference; the maximum difference of a correct result would depend on chance."""
    return (
        float(((got.astype(np.float64) - expected.astype(np.float64)) ** 2).mean() ** 0.5)
        if got.size
        else 0.0
    )


def require_error_within(got: Any, expected: Any, allowed: float, what: str = "result") -> float:
    """Raise unless the error against a more exact `expected` is at most `allowed`; a NaN always raises.

    Returns the error.
    """
    if got.shape != expected.shape:
        raise WrongResultError(f"{what} has shape {got.shape}, expected {expected.shape}")
    error = error_of(got, expected)
    if not error <= allowed:
        raise WrongResultError(f"{what}: error {error:.3g}, allowed {allowed:.3g}")
    return error


def sample_rows(num_rows: int, count: int) -> list[int]:
    """At most `count` rows, evenly spaced from the first to the last."""
    count = min(count, num_rows)
    return [round(i * (num_rows - 1) / max(count - 1, 1)) for i in range(count)]


def _bytes(array: Any) -> Any:
    """Elements as rows of bytes, in order."""
    flat = array.reshape(-1)
    return flat.copy().view(np.uint8).reshape(-1, array.dtype.itemsize)
