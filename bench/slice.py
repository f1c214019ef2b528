"""Slice: cases from 4 KB to 4 GB, beside CuPy's and torch's slicing made contiguous."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cudml
from bench.cases import Case, Inputs, Peer
from bench.checks import require_identical
from bench.sources import Source
from bench.targets import to_torch


@dataclass(frozen=True, kw_only=True)
class SliceCase(Case):
    """`y[i] = x[offset + i * stride]` in every dimension, `sizes` long; a negative stride runs backwards."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"


def _rows(mib: int, dtype: str, quick: bool = False) -> SliceCase:
    """The middle half of every row of a matrix: rows of 8 KiB, `mib` MiB of them."""
    num_rows, columns = mib * 128, 8192 // np.dtype(dtype).itemsize
    return SliceCase(
        name=f"rows {mib} MiB {dtype}",
        quick=quick,
        shape=(num_rows, 2 * columns),
        offsets=(0, columns // 2),
        sizes=(num_rows, columns),
        strides=(1, 1),
        dtype=dtype,
    )


CASES: tuple[SliceCase, ...] = (
    _rows(1, "float32", quick=True),
    _rows(256, "float32"),
    SliceCase(
        name="every 2nd column 128 MiB float32",
        shape=(8192, 8192),
        offsets=(0, 0),
        sizes=(8192, 4096),
        strides=(1, 2),
    ),
    SliceCase(
        name="reversed columns 256 MiB float32",
        shape=(8192, 8192),
        offsets=(0, 8191),
        sizes=(8192, 8192),
        strides=(1, -1),
    ),
    SliceCase(name="4 KiB float32", quick=True, shape=(2048,), offsets=(512,), sizes=(1024,), strides=(1,)),
)


def make(case: SliceCase, source: Source) -> Inputs:
    return {"x": source.bits(case.shape, case.dtype)}


def run(case: SliceCase, inputs: Inputs) -> Any:
    return cudml.slice(inputs["x"], case.offsets, case.sizes, case.strides)


def check(case: SliceCase, inputs: Inputs, got: Any) -> str:
    require_identical(got, inputs["x"][_index(case)])
    return "exact"


def bytes_moved(case: SliceCase) -> int:
    """Output elements read once and written once; what lies between them is not counted."""
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


def _torch(case: SliceCase, inputs: Inputs) -> Callable[[], Any] | None:
    if min(case.strides) < 0:  # torch has no negative strides
        return None
    import torch

    x, index = to_torch(inputs["x"]), _index(case)
    return lambda: x[index].clone(memory_format=torch.contiguous_format)


PEERS = {
    "cupy": Peer(_array_library, needs=("cupy",), devices=("cuda",)),
    "numpy": Peer(_array_library, devices=("cpu",)),
    "torch": Peer(_torch, needs=("torch",)),
}
