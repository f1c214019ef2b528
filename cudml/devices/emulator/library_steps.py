"""Steps of a plan that NumPy and the C library run: products, fills and copies, on addresses.

Large steps run in pieces, because Python handles signals only between pieces.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cudml.devices.interface import Array
from cudml.plans import Copy, Fill, LibraryStep, MatMul

#: Number of elements of a half-precision operand of a matrix product that are converted at a time.
_CONVERTED_ELEMENTS = 1 << 20

#: Size of a piece: multiply-adds of a product, bytes of a fill or copy; 10 to 50 ms on one core. Writing an
#: element of a product costs as much as `_WRITE_PRODUCTS` multiply-adds.
_PIECE_PRODUCTS = 1 << 29
_WRITE_PRODUCTS = 64
_PIECE_BYTES = 1 << 26

#: Terms of a piece, for sums of more terms than one piece may have. Pieces are so short that the errors of
#: BLAS, which sums the terms of a piece, stay small, and so long that the errors of adding pieces do, too.
_PIECE_TERMS = 1 << 18

#: The bits of a float32 that TF32 has, and half of the last of them.
_TF32_BITS, _TF32_HALF = np.uint32(0xFFFFE000), np.uint32(0x1000)

#: Products with at most this many multiplications run in the calling thread. For these, the threads of
#: NumPy's BLAS gain little, and may wait milliseconds for cores that another process uses.
_SMALL_PRODUCT = 1 << 22


def prepare(step: LibraryStep) -> Callable[[Mapping[str, int]], None]:
    """Make a function that runs the step on the addresses of its buffers."""
    if isinstance(step, Fill):
        return lambda addresses: _fill(step, addresses)
    if isinstance(step, Copy):
        return lambda addresses: _copy(step, addresses)
    return lambda addresses: _matmul(step, addresses)


def accesses(step: LibraryStep) -> list[tuple[str, int, int, bool]]:
    """The memory that the step accesses, reads first: (buffer, byte offset, bytes, whether written)."""
    if isinstance(step, Fill):
        return [(step.buffer, 0, step.num_bytes, True)]
    if isinstance(step, Copy):
        return [
            (step.source, step.source_offset, step.num_bytes, False),
            (step.target, step.target_offset, step.num_bytes, True),
        ]
    size = _dtype(step.element).itemsize
    return [
        (step.a, step.a_offset * size, step.m * step.k * size, False),
        (step.b, step.b_offset * size, step.n * step.k * size, False),
        (step.out, step.out_offset * 4, step.m * step.n * 4, True),
    ]


def _fill(step: Fill, addresses: Mapping[str, int]) -> None:
    for first in range(0, step.num_bytes, _PIECE_BYTES):
        num_bytes = min(_PIECE_BYTES, step.num_bytes - first)
        ctypes.memset(addresses[step.buffer] + first, step.value, num_bytes)


def _copy(step: Copy, addresses: Mapping[str, int]) -> None:
    source, target = addresses[step.source] + step.source_offset, addresses[step.target] + step.target_offset
    move(target, source, step.num_bytes)


def move(target: int, source: int, num_bytes: int) -> None:
    """Copy bytes from one address to another; they do not overlap."""
    for first in range(0, num_bytes, _PIECE_BYTES):
        ctypes.memmove(target + first, source + first, min(_PIECE_BYTES, num_bytes - first))


def _matmul(step: MatMul, addresses: Mapping[str, int]) -> None:
    """`out = a @ b.T` in float32; operands are converted, or rounded to TF32, a piece at a time.

    A piece of one operand may be read for few rows of the other, so both are bounded by their bytes. The sums
    over pieces of the terms are added in order. Infinities and NaN raise no warning, independent of
    `np.seterr`.
    """
    dtype = _dtype(step.element)
    left = _matrix(addresses[step.a], step.a_offset, step.m, step.k, dtype)
    right = _matrix(addresses[step.b], step.b_offset, step.n, step.k, dtype)
    result = _matrix(addresses[step.out], step.out_offset, step.m, step.n, np.float32)
    is_whole = 4 * step.k <= _PIECE_BYTES
    terms, multiply = (step.k, _multiply) if is_whole else (_PIECE_TERMS, _add_product)
    most_rows = _PIECE_BYTES // (4 * terms)
    columns = min(step.n, most_rows)
    rows = max(1, min(most_rows, _PIECE_PRODUCTS // (columns * (terms + _WRITE_PRODUCTS))))
    if step.element != "float32" or step.allows_tf32:
        rows = min(rows, max(1, _CONVERTED_ELEMENTS // terms))
    with np.errstate(all="ignore"):
        if not is_whole:
            result[:] = 0
        for column in range(0, step.n, columns):
            across = slice(column, column + columns)
            for term in range(0, step.k, terms):
                along = slice(term, term + terms)
                factor = _floats(right[across, along], step)
                for first in range(0, step.m, rows):
                    down = slice(first, first + rows)
                    other = _floats(left[down, along], step)
                    multiply(other, factor, result[down, across])


def _dtype(element: str) -> np.dtype[Any]:
    """The dtype that reads a product's operands; for bfloat16, which NumPy lacks, it reads the bits."""
    return np.dtype(np.uint16 if element == "bfloat16" else element)


def _floats(matrix: Array, step: MatMul) -> Array:
    """The float32 numbers of an operand that `_dtype` reads, as the product takes them."""
    if step.element == "bfloat16":
        return np.left_shift(matrix, 16, dtype=np.uint32).view(np.float32)
    if step.allows_tf32 and step.element == "float32":
        return as_tf32(matrix)
    return matrix.astype(np.float32, copy=False)


def as_tf32(matrix: Array) -> Array:
    """The nearest numbers with the 10 bits of mantissa of TF32; NaN stays NaN."""
    rounded = (matrix.view(np.uint32) + _TF32_HALF & _TF32_BITS).view(np.float32)
    return np.where(np.isnan(matrix), matrix, rounded)


def _multiply(left: Array, right: Array, result: Array) -> None:
    if len(left) * right.size <= _SMALL_PRODUCT:
        np.einsum("mk,nk->mn", left, right, out=result)
    else:
        np.matmul(left, right.T, out=result)


def _add_product(left: Array, right: Array, result: Array) -> None:
    result += np.matmul(left, right.T)


def _matrix(address: int, offset: int, rows: int, columns: int, dtype: Any) -> Array:
    """A packed matrix in memory that the caller owns."""
    itemsize = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * (rows * columns * itemsize)).from_address(address + offset * itemsize)
    return np.frombuffer(memory, dtype).reshape(rows, columns)
