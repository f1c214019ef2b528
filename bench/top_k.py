"""Top-k: the shapes of language models, experts, search and vision, beside torch, CuPy and NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import cudml
from bench.cases import Case, Inputs, Peer
from bench.checks import require_identical, sample_rows
from bench.sources import Source
from bench.targets import to_torch


@dataclass(frozen=True, kw_only=True)
class TopKCase(Case):
    """`k` of every row of `row_length`; `pattern` is a key of `PATTERNS`."""

    num_rows: int
    row_length: int
    k: int
    dtype: str = "float32"
    mode: Literal["largest", "smallest"] = "largest"
    pattern: str = "normal"


PATTERNS: dict[str, Callable[[Source, tuple[int, ...], str], Any]] = {
    "normal": lambda source, shape, dtype: source.normal(shape, dtype),
    "uniform": lambda source, shape, dtype: source.uniform(shape, dtype),
    "relu": lambda source, shape, dtype: source.xp.maximum(source.normal(shape, dtype), 0),
    "64 values": lambda source, shape, dtype: source.integers(shape, 0, 64, dtype),
    "bits": lambda source, shape, dtype: source.bits(shape, dtype),
}

CASES: tuple[TopKCase, ...] = (
    TopKCase(name="language model 1 x 128256 k 50", quick=True, num_rows=1, row_length=128256, k=50),
    TopKCase(name="serving 64 x 128256 k 50", num_rows=64, row_length=128256, k=50),
    TopKCase(name="experts 128 x 256 k 8", quick=True, num_rows=128, row_length=256, k=8),
    TopKCase(name="experts 16384 x 256 k 8", num_rows=16384, row_length=256, k=8),
    TopKCase(name="indexer 256 x 131072 k 2048", num_rows=256, row_length=131072, k=2048),
)


def make(case: TopKCase, source: Source) -> Inputs:
    return {"a": PATTERNS[case.pattern](source, (case.num_rows, case.row_length), case.dtype)}


def run(case: TopKCase, inputs: Inputs) -> Any:
    return cudml.top_k(inputs["a"], case.k, mode=case.mode)


def check(case: TopKCase, inputs: Inputs, got: Any) -> str:
    """A sample of rows against NumPy's stable sort; the patterns hold no NaN but for "bits" of integers."""
    values, indices = got
    rows = sample_rows(case.num_rows, 64)
    a = _to_numpy(inputs["a"][rows])
    order = _stable_order(a, case)
    require_identical(_to_numpy(indices[rows]), order, "indices")
    require_identical(_to_numpy(values[rows]), np.take_along_axis(a, order, axis=1), "values")
    return f"{len(rows)} rows exact"


def bytes_moved(case: TopKCase) -> int:
    """The input once, values and 64-bit indices once."""
    itemsize = np.dtype(case.dtype).itemsize
    return case.num_rows * (case.row_length * itemsize + case.k * (itemsize + 8))


def _stable_order(a: np.ndarray, case: TopKCase) -> np.ndarray:
    """Indices of the k first in each row, ties by lower index."""
    if case.mode == "largest":
        backwards = np.argsort(a[:, ::-1], axis=1, kind="stable")[:, ::-1][:, : case.k]
        return np.ascontiguousarray(a.shape[1] - 1 - backwards)
    return np.ascontiguousarray(np.argsort(a, axis=1, kind="stable")[:, : case.k])


def _to_numpy(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def _torch_topk(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    import torch

    a, largest = to_torch(inputs["a"]), case.mode == "largest"
    return lambda: torch.topk(a, case.k, dim=1, largest=largest)


def _torch_sort(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    import torch

    a, descending = to_torch(inputs["a"]), case.mode == "largest"

    def call() -> Any:
        values, indices = torch.sort(a, dim=1, descending=descending, stable=True)
        return values[:, : case.k].contiguous(), indices[:, : case.k].contiguous()

    return call


def _argpartition(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    """Select, then sort what was selected: what one writes with NumPy or CuPy."""
    a = inputs["a"]
    xp = np if isinstance(a, np.ndarray) else __import__("cupy")
    sign = -1 if case.mode == "largest" else 1

    def call() -> Any:
        keys = a if sign > 0 else -a
        chosen = xp.argpartition(keys, case.k - 1, axis=1)[:, : case.k]
        order = xp.argsort(xp.take_along_axis(keys, chosen, axis=1), axis=1)
        indices = xp.take_along_axis(chosen, order, axis=1)
        return xp.take_along_axis(a, indices, axis=1), indices

    return call


TIES = "ties in any order"

PEERS = {
    "torch.topk": Peer(_torch_topk, contract=TIES, needs=("torch",)),
    "torch.sort": Peer(_torch_sort, needs=("torch",)),
    "cupy.argpartition": Peer(_argpartition, contract=TIES, needs=("cupy",), devices=("cuda",)),
    "numpy.argpartition": Peer(_argpartition, contract=TIES, devices=("cpu",)),
}
