"""Top-k by a stable sort of unsigned keys: never by negation, never by reversal."""

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def ascending_keys(x: np.ndarray, *, largest: bool, nan_last: bool) -> np.ndarray:
    """Unsigned integers that ascend in the order of rank; equal elements have equal keys."""
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").astype(np.uint64).reshape(x.shape)
    width = 8 * x.dtype.itemsize
    sign = np.uint64(1 << (width - 1))
    everything = np.uint64(2**width - 1)
    if x.dtype.kind in "ub":
        return everything - bits if largest else bits
    if x.dtype.kind == "i":
        bits = bits ^ sign
        return everything - bits if largest else bits
    with np.errstate(invalid="ignore"):  # bfloat16 compares NaN with a warning
        is_nan, is_zero = x != x, x == 0
    bits = np.where(is_zero, np.uint64(0), bits)
    bits = np.where(bits & sign, everything - bits, bits | sign)
    keys = everything - bits if largest else bits
    return np.where(is_nan, np.uint64(0) if largest and not nan_last else everything, keys)


def top_k(
    x: np.ndarray, k: int, axis: int = -1, *, largest: bool = True, nan_last: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Values and int64 indices of the first `k` along an axis."""
    keys = ascending_keys(x, largest=largest, nan_last=nan_last)
    order = np.argsort(keys, axis=axis, kind="stable")
    indices = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, indices, axis), indices


def ragged_top_k(
    x: np.ndarray,
    lengths: np.ndarray,
    k: int,
    axis: int = -1,
    *,
    largest: bool = True,
    nan_last: bool = False,
    missing: np.generic | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`top_k` of the first elements of every row; results that a short row lacks are `missing` and -1."""
    lengths = np.broadcast_to(lengths, (*x.shape[: axis % x.ndim], 1, *x.shape[axis % x.ndim + 1 :]))
    shape = (*x.shape[: axis % x.ndim], k, *x.shape[axis % x.ndim + 1 :])
    values, indices = np.empty(shape, x.dtype), np.full(shape, -1)
    values[...] = worst(x.dtype, largest=largest) if missing is None else missing
    rows = [np.moveaxis(array, axis, -1) for array in (x, lengths, values, indices)]
    for place in np.ndindex(rows[0].shape[:-1]):
        row, own_length, row_values, row_indices = (array[place] for array in rows)
        length = min(max(int(own_length[0]), 0), len(row))
        count = min(length, k)
        found = top_k(row[:length], count, largest=largest, nan_last=nan_last)
        row_values[:count], row_indices[:count] = found
    return values, indices


def worst(dtype: np.dtype, *, largest: bool) -> np.generic:
    """The number that ranks last of all numbers of a type."""
    if dtype.kind == "b":
        return np.bool_(not largest)
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)
    return dtype.type(-np.inf if largest else np.inf)
