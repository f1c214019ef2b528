"""Descriptors whose plans reach every instance of the kernels of REVERSE_SUBSEQUENCES."""

from collections.abc import Iterator

from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
from cudml.tensors import TensorDesc, packed_strides

#: (sizes, axis): long, short and single lanes along the innermost, an inner and the outermost dimension.
_LAYOUTS = (
    ((64, 65536), 1),
    ((4096, 1000), 1),
    ((100000, 7), 1),
    ((100000, 2), 1),
    ((1000, 1), 1),
    ((512, 2048), 0),
    ((512, 2047), 0),
    ((5, 3), 0),
    ((16, 300, 64), 1),
    ((16, 300, 33), 1),
    ((16, 300, 1), 1),
)


def descriptors() -> Iterator[ReverseSubsequencesDesc]:
    """Every layout with every item size, packed and with a gap in each row."""
    for element in BITS_BY_SIZE.values():
        for sizes, axis in _LAYOUTS:
            length_sizes = tuple(1 if i == axis else size for i, size in enumerate(sizes))
            lengths = TensorDesc(DataType.UINT32, length_sizes)
            packed = TensorDesc(element, sizes)
            yield ReverseSubsequencesDesc(packed, lengths, packed, axis)
            padded = TensorDesc(element, sizes, packed_strides((*sizes[:-1], sizes[-1] + 3)))
            yield ReverseSubsequencesDesc(padded, lengths, padded, axis)
