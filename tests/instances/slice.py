"""Descriptors whose plans reach every instance of the kernels of SLICE and SLICE1."""

from collections.abc import Iterator

from cudml.dtypes import BITS_BY_SIZE
from cudml.operators.slice import Slice1Desc
from cudml.tensors import TensorDesc

#: (input sizes, window offsets, window sizes, window strides, output sizes); item sizes are multiplied in.
_PATTERNS = (
    ((1 << 20,), (0,), (1 << 20,), (1,), (1 << 20,)),
    ((1 << 20,), (3,), (1 << 19,), (1,), (1 << 19,)),
    ((1 << 20,), (0,), (1 << 20,), (-1,), (1 << 20,)),
    *(((1 << 20,), (1,), (1 << 19,), (step,), (1 << 15,)) for step in (2, 3, 4, 5, 7, 8, 16, -2, -3, -4, -8)),
    ((1000, 1000), (3, 5), (900, 801), (1, 1), (900, 801)),
    ((1000, 1000), (3, 5), (900, 801), (-1, 2), (900, 400)),
    ((64, 64, 64), (1, 2, 3), (40, 50, 60), (1, -2, -3), (40, 25, 20)),
    ((7, 5), (0, 0), (7, 5), (1, 1), (7, 5)),
    ((3, 2), (0, 0), (3, 1), (2, 1), (2, 1)),
)


def descriptors() -> Iterator[Slice1Desc]:
    """Every pattern with every item size, and matrices that are read along columns."""
    for element in BITS_BY_SIZE.values():
        for sizes, offsets, windows, steps, out_sizes in _PATTERNS:
            yield Slice1Desc(
                TensorDesc(element, sizes), TensorDesc(element, out_sizes), offsets, windows, steps
            )
        for rows, columns in ((1024, 1024), (65, 33), (4, 100000), (100000, 3)):
            transposed = TensorDesc(element, (rows, columns), (1, rows))
            packed = TensorDesc(element, (rows, columns))
            yield Slice1Desc(transposed, packed, (0, 0), (rows, columns), (1, 1))
            yield Slice1Desc(packed, transposed, (0, 0), (rows, columns), (1, -1))
