"""Slice: cases from 4 KB to 4 GB, compared with contiguous copies of CuPy's and torch's slices."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cudml
from bench.cases import Case, Inputs, Peer
from bench.checks import require_identical
from bench.peers import device_copy
from bench.sources import Source
from bench.targets import to_torch


@dataclass(frozen=True, kw_only=True)
class SliceCase(Case):
    """`y[i] = x[offset + i * stride]` in every dimension, for `sizes` elements; strides may be negative.

    `order` names the dimensions of x in memory order, outermost first; if empty, they are in order.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"
    order: tuple[int, ...] = ()


def _case(
    use: str,
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str = "float32",
    quick: bool = False,
) -> SliceCase:
    """A case, named by its use, its output, and its strides if one is not 1."""
    stepped = f" by {strides}" if set(strides) != {1} else ""
    return SliceCase(
        name=f"{use} {' x '.join(map(str, sizes))}{stepped} {dtype}",
        quick=quick,
        shape=shape,
        offsets=offsets,
        sizes=sizes,
        strides=strides,
        dtype=dtype,
    )


def _rows(num_rows: int, columns: int, dtype: str, offset: int = 16, quick: bool = False) -> SliceCase:
    """A part of every row, which starts `offset` elements into it."""
    shape = (num_rows, columns + offset + 16)
    return _case("part of rows", shape, (0, offset), (num_rows, columns), (1, 1), dtype, quick)


def _stepped(step: int, dtype: str = "float32", mib: int = 128) -> SliceCase:
    """Every few elements of a vector, `mib` MiB of output; a negative step starts at the end."""
    size = (mib << 20) // np.dtype(dtype).itemsize
    extent = size * abs(step)
    return _case("every few", (extent,), (0 if step > 0 else extent - 1,), (size,), (step,), dtype)


def _vector(kib: int, dtype: str = "float32", offset: int = 4, quick: bool = False) -> SliceCase:
    """A part of a vector, `kib` KiB of output."""
    size = (kib << 10) // np.dtype(dtype).itemsize
    return _case("part of a vector", (size + 2 * offset,), (offset,), (size,), (1,), dtype, quick)


def _across(use: str, sizes: tuple[int, ...], order: tuple[int, ...], dtype: str) -> SliceCase:
    """A whole input whose dimensions are in another order than those of the output."""
    return replace(_case(use, sizes, (0,) * len(sizes), sizes, (1,) * len(sizes), dtype), order=order)


CASES: tuple[SliceCase, ...] = (
    _rows(32768, 2048, "float32"),
    _stepped(2),
    _stepped(-1),
    _vector(1 << 20),
    _case("crop of images", (64, 3, 1024, 1024), (0, 0, 100, 101), (64, 3, 800, 800), (1, 1, 1, 1), "uint8"),
    _stepped(3),
    _stepped(4),
    _stepped(8),
    _stepped(-2),
    _stepped(16),
    _stepped(2, "float16"),
    _stepped(2, "uint8"),
    _stepped(-1, "uint8"),
    _stepped(-1, "float16"),
    _stepped(-1, "float64"),
    _stepped(-1, "complex128"),
    _vector(1 << 20, "uint8", offset=3),
    _vector(1 << 20, "float16", offset=1),
    _rows(65536, 1000, "float16", offset=1),
    _rows(1 << 22, 16, "float32", offset=8),
    _rows(1 << 22, 5, "float32", offset=3),
    _case("mirrored images", (64, 3, 512, 512), (0, 0, 0, 511), (64, 3, 512, 512), (1, 1, 1, -1)),
    _case("upside down", (8192, 8192), (8191, 0), (8192, 8192), (-1, 1)),
    _case("half of both", (16384, 16384), (0, 0), (8192, 8192), (2, 2)),
    _case("last steps", (64, 1024, 1024), (0, 1023, 0), (64, 1, 1024), (1, 1, 1)),
    _case("one column", (1 << 20, 64), (0, 7), (1 << 20, 1), (1, 1)),
    _across("columns as rows", (16384, 16384), (1, 0), "uint8"),
    _across("columns as rows", (8192, 16384), (1, 0), "float16"),
    _across("columns as rows", (8192, 8192), (1, 0), "float32"),
    _across("columns as rows", (8191, 8193), (1, 0), "float16"),
    _across("columns as rows", (4096, 8192), (1, 0), "float64"),
    _across("columns as rows", (4096, 4096), (1, 0), "complex128"),
    _across("pixels as planes", (64, 3, 1024, 1024), (0, 2, 3, 1), "uint8"),
    _across("planes as pixels", (64, 1024, 1024, 3), (0, 3, 1, 2), "uint8"),
    _across("channels first", (64, 64, 128, 128), (0, 2, 3, 1), "float16"),
    _vector(4 << 20),
    _vector(64 << 10),
    _vector(16 << 10),
    _vector(1 << 10),
    _vector(64),
    _vector(4, quick=True),
    _rows(128, 2048, "float32", quick=True),
    _rows(4096, 100, "float32", quick=True),
    _rows(20000, 5, "float32", offset=3, quick=True),
    _rows(2048, 1000, "uint8", offset=3, quick=True),
)


def make(case: SliceCase, source: Source) -> Inputs:
    order = case.order or tuple(range(len(case.shape)))
    x = source.bits(tuple(case.shape[d] for d in order), case.dtype)
    return {"x": x.transpose(np.argsort(order).tolist()) if case.order else x}


def run(case: SliceCase, inputs: Inputs) -> Any:
    return cudml.slice(inputs["x"], case.offsets, case.sizes, case.strides)


def check(case: SliceCase, inputs: Inputs, got: Any) -> str:
    require_identical(got, inputs["x"][_index(case)])
    return "exact"


def bytes_moved(case: SliceCase) -> int:
    """Bytes of the output elements, read once and written once; skipped elements are not counted."""
    return 2 * math.prod(case.sizes) * np.dtype(case.dtype).itemsize


def _index(case: SliceCase) -> tuple[slice, ...]:
    """The basic index that selects the same elements."""
    index = []
    for offset, size, stride in zip(case.offsets, case.sizes, case.strides, strict=True):
        stop = offset + size * stride
        index.append(slice(offset, stop if stop >= 0 else None, stride))
    return tuple(index)


def _array_library(case: SliceCase, inputs: Inputs) -> Callable[[], Any]:
    x, index = inputs["x"], _index(case)
    return lambda: x[index].copy()


def _torch(case: SliceCase, inputs: Inputs) -> Callable[[], Any]:
    """A contiguous copy; torch has no negative strides, but `flip` copies from the end."""
    import torch

    x = to_torch(inputs["x"])
    flipped = [d for d, stride in enumerate(case.strides) if stride < 0]
    index = _index(_forwards(case))
    if flipped:
        return lambda: x[index].flip(flipped)
    return lambda: x[index].clone(memory_format=torch.contiguous_format)


def _forwards(case: SliceCase) -> SliceCase:
    """The same elements in the order of the input."""
    firsts = [
        offset + (size - 1) * stride if stride < 0 else offset
        for offset, size, stride in zip(case.offsets, case.sizes, case.strides, strict=True)
    ]
    return replace(case, offsets=tuple(firsts), strides=tuple(map(abs, case.strides)))


PEERS = {
    "copy": device_copy(bytes_moved),
    "cupy": Peer(_array_library, needs=("cupy",), devices=("cuda",)),
    "numpy": Peer(_array_library, devices=("cpu",)),
    "torch": Peer(_torch, needs=("torch",)),
}
