"""Reverse: lanes of every length, compared with a gather by indices in CuPy, NumPy and torch."""

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
from bench.targets import library_of, to_torch


@dataclass(frozen=True, kw_only=True)
class ReverseCase(Case):
    """The first elements of every lane along `axis` reversed; lengths uniform up to its size, or all full.

    If lengths are shared, the innermost dimension has a single length, which is broadcast.
    """

    shape: tuple[int, ...]
    axis: int
    dtype: str = "float32"
    full_lengths: bool = False
    length_dtype: str = "uint32"
    shared_lengths: bool = False


def _case(
    use: str,
    shape: tuple[int, ...],
    axis: int,
    dtype: str = "float32",
    full_lengths: bool = False,
    quick: bool = False,
) -> ReverseCase:
    """A case, named by its parameters."""
    name = f"{use} {' x '.join(map(str, shape))} axis {axis} {dtype}{' full' if full_lengths else ''}"
    return ReverseCase(name=name, quick=quick, shape=shape, axis=axis, dtype=dtype, full_lengths=full_lengths)


def _batch(shared_lengths: bool) -> ReverseCase:
    """A batch of sequences whose features have separate lengths, or a common one."""
    case = _case("features of one length" if shared_lengths else "features", (64, 32, 64), 1, quick=True)
    return replace(case, length_dtype="int64", shared_lengths=shared_lengths)


CASES: tuple[ReverseCase, ...] = (
    _case("rows", (65536, 1024), 1),
    _case("columns", (1024, 65536), 0),
    _case("sequences", (64, 1024, 1024), 1, "float16"),
    _case("whole rows", (65536, 1024), 1, full_lengths=True),
    _case("short rows", (1 << 23, 8), 1),
    _case("one row", (1, 1 << 28), 1),
    _case("rows", (1 << 18, 4096), 1),
    _case("rows", (65536, 4096), 1, "uint8"),
    _case("rows", (65536, 2048), 1, "float16"),
    _case("rows", (65536, 512), 1, "float64"),
    _case("rows", (65536, 256), 1, "complex128"),
    _case("odd rows", (65536, 1023), 1, "float16"),
    _case("odd rows", (65536, 4095), 1, "uint8"),
    _case("columns", (1024, 65536), 0, "uint8"),
    _case("odd columns", (1024, 65535), 0, "float16"),
    _case("narrow sequences", (4096, 2048, 8), 1, "float16"),
    _case("long columns", (10_000, 16384), 0),
    _case("short rows", (1 << 24, 12), 1, "uint8"),
    _case("small boxes", (1 << 18, 12, 20), 1, "float16"),
    _case("time major sequences", (1024, 64, 512), 0),
    _case("rows", (1024, 1024), 1),
    _case("rows", (64, 256), 1),
    _case("rows", (256, 1024), 1, quick=True),
    _case("columns", (1024, 256), 0, quick=True),
    _batch(shared_lengths=False),
    _batch(shared_lengths=True),
)


def make(case: ReverseCase, source: Source) -> Inputs:
    length = case.shape[case.axis]
    lanes = tuple(1 if d == case.axis else n for d, n in enumerate(case.shape))
    low = length if case.full_lengths else 0
    own = (*lanes[:-1], 1) if case.shared_lengths else lanes
    lengths = source.integers(own, low, length + 1, case.length_dtype)
    return {
        "x": source.bits(case.shape, case.dtype),
        "sequence_lengths": source.xp.broadcast_to(lengths, lanes),
    }


def run(case: ReverseCase, inputs: Inputs) -> Any:
    return cudml.reverse_subsequences(inputs["x"], inputs["sequence_lengths"], axis=case.axis)


def check(case: ReverseCase, inputs: Inputs, got: Any) -> str:
    """Compare the whole result with a gather by the array library."""
    require_identical(got, _array_library(case, inputs)())
    return "exact"


def bytes_moved(case: ReverseCase) -> int:
    """Bytes of every element read once and written once, and of the lengths."""
    elements = math.prod(case.shape)
    lengths = elements // case.shape[case.axis] // (case.shape[-1] if case.shared_lengths else 1)
    moved = 2 * elements * np.dtype(case.dtype).itemsize
    return moved + lengths * np.dtype(case.length_dtype).itemsize


def _positions(xp: Any, case: ReverseCase, lengths: Any) -> Any:
    """The input index of each output element along the axis."""
    along = [1] * len(case.shape)
    along[case.axis] = -1
    position = xp.arange(case.shape[case.axis], dtype=np.int64).reshape(along)
    lengths = lengths.astype(np.int64)
    return xp.where(position < lengths, lengths - 1 - position, position)


def _array_library(case: ReverseCase, inputs: Inputs) -> Callable[[], Any]:
    """The positions are computed from the lengths in every call, as the operator does."""
    x, lengths = inputs["x"], inputs["sequence_lengths"]
    xp = library_of(x)
    return lambda: xp.take_along_axis(x, _positions(xp, case, lengths), axis=case.axis)


def _gather_only(case: ReverseCase, inputs: Inputs) -> Callable[[], Any]:
    import torch

    x = to_torch(inputs["x"])
    positions = to_torch(_positions(library_of(inputs["x"]), case, inputs["sequence_lengths"]))
    return lambda: torch.gather(x, case.axis, positions)


PEERS = {
    "copy": device_copy(bytes_moved),
    "cupy": Peer(_array_library, needs=("cupy",), devices=("cuda",)),
    "numpy": Peer(_array_library, devices=("cpu",)),
    "torch.gather": Peer(_gather_only, contract="the positions are computed beforehand", needs=("torch",)),
}
