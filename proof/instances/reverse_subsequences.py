"""Descriptors whose plans reach every instance of the kernels of REVERSE_SUBSEQUENCES."""

from collections.abc import Iterator

import numpy as np

from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators.reverse_subsequences.lanes import lanes_of
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc, plan
from cudml.operators.reverse_subsequences.paths import PATHS
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc, packed_strides
from proof.instances import Promise, by_every_path, random_size
from proof.instances.slice import any_strides

#: Lanes and rows move in words of 16 bytes whatever their items; boxes and columns are loaded in such words.
PROMISES = {
    "reverse_lanes": Promise(wide_loads=True, wide_stores=True, min_warps=24, min_flight_kib=48),
    "reverse_rows": Promise(wide_loads=True, wide_stores=True, min_warps=24, min_flight_kib=48),
    "reverse_gather": Promise(min_warps=24),
    "reverse_boxes": Promise(wide_loads=True, min_warps=16, min_flight_kib=48),
    "reverse_columns": Promise(wide_loads=True, min_warps=8, min_flight_kib=48),
}

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
    ((1000, 5, 3), 1),
    ((4000, 5, 7), 1),
    ((16, 300, 64), 1),
    ((16, 300, 33), 1),
    ((16, 300, 1), 1),
)


def descriptors() -> Iterator[ReverseSubsequencesDesc]:
    """Every layout with every item size: packed, with lengths that lanes share, with a gap in each row."""
    for element in BITS_BY_SIZE.values():
        for sizes, axis in _LAYOUTS:
            length_sizes = tuple(1 if i == axis else size for i, size in enumerate(sizes))
            lengths = TensorDesc(DataType.UINT32, length_sizes)
            packed = TensorDesc(element, sizes)
            yield ReverseSubsequencesDesc(packed, lengths, packed, axis)
            per_sequence = TensorDesc(
                DataType.UINT32,
                length_sizes,
                (1, *(0 for _ in sizes[1:])) if axis else (0,) * len(sizes),
            )
            yield ReverseSubsequencesDesc(packed, per_sequence, packed, axis)
            padded = TensorDesc(element, sizes, packed_strides((*sizes[:-1], sizes[-1] + 3)))
            yield ReverseSubsequencesDesc(padded, lengths, padded, axis)


def plans(descriptor: ReverseSubsequencesDesc, limits: Limits) -> Iterator[Plan]:
    """A plan by every path that can compute it."""
    lanes = lanes_of(
        descriptor.input_tensor,
        descriptor.sequence_lengths_tensor,
        descriptor.output_tensor,
        descriptor.axis,
    )
    return by_every_path(lambda path: plan(descriptor, limits, path=path), PATHS, lanes, limits)


def any_descriptor(rng: np.random.Generator) -> ReverseSubsequencesDesc:
    """Up to 4 dimensions in any order in memory, with gaps, lengths of one or of many lanes."""
    rank = int(rng.integers(1, 5))
    axis = int(rng.integers(rank))
    sizes = tuple(random_size(rng, 1 << (24 // rank)) for _ in range(rank))
    length_sizes = tuple(1 if d == axis else size for d, size in enumerate(sizes))
    shared = tuple(int(rng.integers(2)) for _ in sizes) if rng.integers(2) else (1,) * rank
    strides = tuple(s * keep for s, keep in zip(packed_strides(length_sizes), shared, strict=True))
    element = BITS_BY_SIZE[int(rng.choice(list(BITS_BY_SIZE)))]
    return ReverseSubsequencesDesc(
        TensorDesc(element, sizes, any_strides(rng, sizes)),
        TensorDesc(DataType.UINT32 if rng.integers(2) else DataType.UINT64, length_sizes, strides),
        TensorDesc(element, sizes, any_strides(rng, sizes)),
        axis,
    )
