"""Descriptors whose plans reach every instance of the kernels of TOP_K1 and TOP_K."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cudml.dtypes import BITS_BY_SIZE, ElementType
from cudml.enums import AxisDirection, DataType
from cudml.operators.top_k.columns import COLUMNS
from cudml.operators.top_k.lanes import SELECT_MAX_KS, SELECT_SHAPES
from cudml.operators.top_k.operator import RaggedTopKDesc, TopK1Desc, plan, selection_of_desc
from cudml.operators.top_k.paths import PATHS
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc
from proof.instances import Promise, by_every_path, random_size
from proof.instances.slice import any_strides
from proof.sass.architectures import ARCHITECTURES

#: As many columns as the blocks of one architecture filter at once if two blocks share each column.
_SHARED_COLUMNS = tuple(
    ((10_000, COLUMNS * architecture.num_multiprocessors), 0, k)
    for architecture in ARCHITECTURES
    for k in (32, 64, 128)
)

#: Types of floating-point numbers, which have kernels of their own where a thread owns a row.
_FLOATS = (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64)

#: Rows that a thread owns.
_THREAD_SHAPES = (((1024, 2), 1, 1), *(((1024, 4), 1, k) for k in (2, 3, 4)))

#: (sizes, axis, k): one for every path and size of a path.
_SHAPES = (
    *_THREAD_SHAPES,
    ((100, 32), 1, 1),
    ((100, 200), 1, 1),
    ((100, 260), 1, 1),
    ((64, 128_256), 1, 1),
    *(((4096, length), 1, k) for length in (64, 128, 256, 512, 1024, 2048) for k in (8, 16, 32, 33)),
    ((4096, 256), 1, 129),
    ((4096, 1024), 1, 129),
    ((4096, 1024), 1, 257),
    ((4096, 1024), 1, 513),
    ((1024, 100), 0, 513),
    *(((length, 64), 0, 10) for length in (700, 2000)),
    ((1000, 1000), 0, 300),
    ((1024, 4096), 0, 32),
    *(((4096, 2000), 1, k) for k in (128, 129, 257)),
    *(((4096, length), 1, 1000) for length in (2000, 4000, 6000, 8000, 12_000)),
    *(((length, 2000), 0, 1000) for length in (4000, 6000, 8000, 12_000)),
    *(((400, length), 1, k) for length in (4096, 8192) for k in (8, 16, 32)),
    ((100, 1 << 20), 0, 4),
    *(((4000, 4096), 0, k) for k in (10, 32, 64, 128)),
    ((100_000, 150), 0, 10),
    *_SHARED_COLUMNS,
    ((8192, 64), 0, 10),
    ((2049, 2), 0, 2049),
    ((4096, 20_000), 1, 5000),
    ((4096, 30_000), 1, 29_000),
    ((4096, 20_000), 1, 50),
    ((4096, 20_000), 1, 2048),
    ((300, 9000), 1, 2000),
    ((4, 1 << 15), 1, 50),
    ((1, 1 << 15), 1, 8),
    ((120, 9000), 1, 100),
    *(((num_rows, 1 << 15), 1, 100) for num_rows in (4, 24, 60, 120)),
    ((1, 1 << 24), 1, 50),
    ((4, 1 << 15), 1, 5000),
    ((3000, 64), 0, 3000),
)

PROMISES = {
    "top_k_arg_max": Promise(wide_loads=True),
    "top_k_arg_max_block": Promise(wide_loads=True),
    "top_k_block_filter": Promise(wide_loads=True),
    "top_k_block_choose": Promise(wide_loads=True),
    "top_k_block_keep": Promise(wide_loads=True),
    "top_k_block_sort": Promise(wide_loads=True),
    "top_k_block_radix": Promise(wide_loads=True),
    "top_k_cluster": Promise(wide_loads=True),
    "top_k_grid_radix": Promise(wide_loads=True),
    "top_k_groups": Promise(wide_loads=True),
    "top_k_warp_select": Promise(wide_loads=True),
}


#: The same for ragged rows, whose instances differ by a few lines: one for every path, with the size of a
#: word.
_RAGGED_SHAPES = (
    *((*shape, size) for shape in _THREAD_SHAPES for size in (1, 2, 4, 8)),
    ((100, 32), 1, 1, 4),
    ((64, 128_256), 1, 1, 4),
    ((4096, 64), 1, 8, 4),
    ((4096, 256), 1, 8, 2),
    ((4096, 1024), 1, 129, 4),
    ((4096, 1024), 1, 257, 8),
    *(((4096, 2000), 1, k, size) for k, size in ((128, 4), (129, 4), (257, 2))),
    *(((4096, length), 1, 1000, 4) for length in (2000, 4000, 6000)),
    *(((4096, length), 1, 1000, 2) for length in (8000, 12_000)),
    ((100, 1 << 20), 0, 4, 4),
    *(((4000, 4096), 0, k, 4) for k in (10, 32, 64, 128)),
    ((100_000, 150), 0, 10, 8),
    *((*shape, 4) for shape in _SHARED_COLUMNS),
    ((8192, 64), 0, 10, 4),
    ((4096, 20_000), 1, 5000, 4),
    ((4096, 30_000), 1, 29_000, 4),
    ((4096, 20_000), 1, 50, 2),
    ((4096, 20_000), 1, 2048, 4),
    ((4, 1 << 15), 1, 50, 4),
    ((4, 1 << 15), 1, 100, 4),
    ((24, 1 << 15), 1, 100, 4),
    ((4, 1 << 15), 1, 5000, 8),
)


def _rows_of_lanes(element_bytes: int) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Rows of each shape that groups of lanes own: few, which may have more lanes each, and many."""
    for shapes, k in zip(SELECT_SHAPES[element_bytes], SELECT_MAX_KS, strict=True):
        for shape in shapes:
            yield from (((num_rows, shape.capacity), 1, k) for num_rows in (1, 16_384))


def descriptors() -> Iterator[TopK1Desc]:
    """Every shape with every width of a word, and the ragged ones."""
    for size in (1, 2, 4, 8):
        for shape in (*_SHAPES, *_rows_of_lanes(size)):
            yield TopK1Desc(*_members(*shape, BITS_BY_SIZE[size]))
    for *shape, size in _RAGGED_SHAPES:
        yield _ragged(*shape, BITS_BY_SIZE[size])
    for value in _FLOATS:
        for shape in _THREAD_SHAPES:
            yield TopK1Desc(*_members(*shape, value))
            yield _ragged(*shape, value)


def plans(descriptor: TopK1Desc, limits: Limits) -> Iterator[Plan]:
    """A plan by every path that can compute it."""
    selection = selection_of_desc(descriptor, nan_last=False)
    return by_every_path(lambda path: plan(descriptor, limits, path=path), PATHS, selection, limits)


def _ragged(sizes: tuple[int, ...], axis: int, k: int, value: ElementType) -> RaggedTopKDesc:
    lengths = TensorDesc(DataType.INT32, tuple(1 if d == axis else n for d, n in enumerate(sizes)))
    return RaggedTopKDesc(*_members(sizes, axis, k, value), lengths, 0)


def _members(sizes: tuple[int, ...], axis: int, k: int, value: ElementType) -> tuple[Any, ...]:
    out = tuple(k if d == axis else n for d, n in enumerate(sizes))
    tensors = TensorDesc(value, sizes), TensorDesc(value, out), TensorDesc(DataType.UINT32, out)
    return *tensors, axis, k, AxisDirection.DECREASING


def any_descriptor(rng: np.random.Generator) -> TopK1Desc:
    """Up to 3 dimensions in any order in memory, every type of a descriptor, any axis and k."""
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(rank))
    sizes = tuple(random_size(rng, 1 << (24 if d == axis else 12)) for d in range(rank))
    k = min(random_size(rng, 1 << 16), sizes[axis])
    out = tuple(k if d == axis else size for d, size in enumerate(sizes))
    element = BITS_BY_SIZE[int(rng.choice([1, 2, 4, 8]))]
    return TopK1Desc(
        TensorDesc(element, sizes, any_strides(rng, sizes)),
        TensorDesc(element, out, any_strides(rng, out)),
        TensorDesc(DataType.UINT32 if rng.integers(2) else DataType.UINT64, out),
        axis,
        k,
        AxisDirection(int(rng.integers(2))),
    )
