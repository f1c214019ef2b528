"""Descriptors whose plans reach every instance of the kernels of SLICE and SLICE1."""

from collections.abc import Iterator

import numpy as np

from cudml.dtypes import BITS_BY_SIZE
from cudml.operators.slice.operator import Slice1Desc, plan, space_of_desc
from cudml.operators.slice.paths import PATHS, box_copy
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc, packed_strides
from proof.instances import Promise, by_every_path, random_size

#: Runs move in words of 16 bytes whatever their items.
PROMISES = {
    "slice_runs": Promise(wide_loads=True, wide_stores=True, min_warps=24, min_flight_kib=48),
    "slice_planes": Promise(wide_loads=True, wide_stores=True, min_warps=32),
    "slice_gather": Promise(min_warps=24),
    "slice_transpose": Promise(min_warps=24, min_flight_kib=48),
}

#: (input sizes, window offsets, window sizes, window strides, output sizes), in items.
_PATTERNS = (
    ((1 << 25,), (0,), (1 << 25,), (-1,), (1 << 25,)),
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
        for rows, columns in ((2048, 1024), (65, 33), (4, 100000), (100000, 3)):
            transposed = TensorDesc(element, (rows, columns), (1, rows))
            packed = TensorDesc(element, (rows, columns))
            yield Slice1Desc(transposed, packed, (0, 0), (rows, columns), (1, 1))
            yield Slice1Desc(packed, transposed, (0, 0), (rows, columns), (1, -1))
        for pixel in (2, 3, 4):
            planes, pixels = (1000, pixel, 1000), (1000, 1000, pixel)
            for sizes, lines in ((planes, (1, pixel)), (pixels, (1, 1000))):
                strides = (1000 * pixel, *lines)
                source = TensorDesc(element, sizes, strides)
                yield Slice1Desc(source, TensorDesc(element, sizes), (0, 0, 0), sizes, (1, 1, 1))


def plans(descriptor: Slice1Desc, limits: Limits) -> Iterator[Plan]:
    """A plan by every path that can compute it."""
    copy = box_copy(space_of_desc(descriptor), "input_tensor", "output_tensor")
    return by_every_path(lambda path: plan(descriptor, limits, path=path), PATHS, copy, limits)


def any_descriptor(rng: np.random.Generator) -> Slice1Desc:
    """Up to 4 dimensions in any order in memory, with gaps, and any window and steps."""
    rank = int(rng.integers(1, 5))
    sizes = tuple(random_size(rng, 1 << (24 // rank)) for _ in range(rank))
    offsets = tuple(int(rng.integers(size)) if rng.integers(2) else 0 for size in sizes)
    windows = tuple(size - offset for size, offset in zip(sizes, offsets, strict=True))
    steps = tuple(int(rng.choice([1, 1, 1, 2, 3, 4, 7, 8, 20])) * int(rng.choice([1, 1, -1])) for _ in sizes)
    out_sizes = tuple(1 + (w - 1) // abs(step) for w, step in zip(windows, steps, strict=True))
    element = BITS_BY_SIZE[int(rng.choice(list(BITS_BY_SIZE)))]
    return Slice1Desc(
        TensorDesc(element, sizes, any_strides(rng, sizes)),
        TensorDesc(element, out_sizes, any_strides(rng, out_sizes)),
        offsets,
        windows,
        steps,
    )


def any_strides(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Packed in half of the cases, else in any order and with gaps now and then."""
    if rng.integers(2):
        return None
    order = rng.permutation(len(sizes))
    padded = [sizes[d] + int(rng.choice([0, 0, 1, 3, 16])) for d in order]
    strides = dict(zip(order.tolist(), packed_strides(padded), strict=True))
    return tuple(strides[d] for d in range(len(sizes)))
