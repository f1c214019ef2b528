"""SLICE and SLICE1 by their formulas, element by element."""

import numpy as np


def slice_elements(a: np.ndarray, offsets: tuple, sizes: tuple, strides: tuple) -> np.ndarray:
    """SLICE: `output[c] = a[offsets + strides * c]`, `sizes` long."""
    result = np.empty(sizes, a.dtype)
    for c in np.ndindex(*sizes):
        result[c] = a[tuple(o + s * i for o, s, i in zip(offsets, strides, c, strict=True))]
    return result


def slice1_elements(
    a: np.ndarray, offsets: tuple, windows: tuple, strides: tuple, sizes: tuple
) -> np.ndarray:
    """SLICE1: a negative stride starts at the window's last element; `sizes` are the output's."""
    starts = [o + (w - 1 if s < 0 else 0) for o, w, s in zip(offsets, windows, strides, strict=True)]
    result = np.empty(sizes, a.dtype)
    for c in np.ndindex(*sizes):
        result[c] = a[tuple(o + s * i for o, s, i in zip(starts, strides, c, strict=True))]
    return result
