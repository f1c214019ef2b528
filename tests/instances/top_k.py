"""Descriptors whose plans reach every instance of the kernels of TOP_K1 and TOP_K."""

from collections.abc import Iterator

from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import AxisDirection, DataType
from cudml.operators.top_k import TopK1Desc
from cudml.tensors import TensorDesc
from tests.instances import Promise

#: (sizes, axis, k): one for every path and size of a path.
_SHAPES = (
    ((4096, 64), 1, 8),
    ((4096, 64), 1, 33),
    ((4096, 256), 1, 8),
    ((4096, 256), 1, 33),
    ((4096, 1024), 1, 8),
    ((4096, 1024), 1, 33),
    ((100, 1 << 20), 0, 4),
    ((100, 1 << 20), 0, 16),
    ((4096, 20_000), 1, 50),
)

PROMISES = {"top_k_block_radix": Promise(wide_loads=True)}


def descriptors() -> Iterator[TopK1Desc]:
    """Every shape with every width of a word."""
    for size in (1, 2, 4, 8):
        for sizes, axis, k in _SHAPES:
            out = tuple(k if d == axis else n for d, n in enumerate(sizes))
            value = BITS_BY_SIZE[size]
            yield TopK1Desc(
                TensorDesc(value, sizes),
                TensorDesc(value, out),
                TensorDesc(DataType.UINT32, out),
                axis,
                k,
                AxisDirection.DECREASING,
            )
