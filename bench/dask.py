"""`python -m bench dask`: the top-k of chunked arrays on the CPU, beside Dask's own.

Dask's `topk` gives values and `argtopk` indices, so both are computed; they leave the order of ties open.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np

import cudml.dask
from proof.oracle.top_k import top_k


class Case(NamedTuple):
    """Sizes, sizes of the chunks, and k, along the last axis; few values make many ties."""

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    k: int
    num_values: int | None = None

    def __str__(self) -> str:
        sizes, chunks = (" x ".join(map(str, shape)) for shape in (self.sizes, self.chunks))
        kind = "float32" if self.num_values is None else f"int32 of {self.num_values} values"
        return f"{sizes} in {chunks}, k {self.k}, {kind}"


CASES = (
    Case((1 << 25,), (1 << 21,), 100),
    Case((1 << 25,), (1 << 21,), 100, 1000),
    Case((2048, 16384), (512, 4096), 10),
    Case((2048, 16384), (2048, 1024), 64),
)


def main(arguments: list[str]) -> int:
    """Print the median times of both; return 1 if a result of cudml is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench dask", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="calls of each (default %(default)s)")
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide all sizes, k excepted (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    num_wrong = 0
    for case in CASES:
        sizes, chunks = (tuple(max(1, n // options.shrink) for n in ns) for ns in (case.sizes, case.chunks))
        case = case._replace(sizes=sizes, chunks=chunks)
        elements = _elements(case)
        array = da.from_array(elements, chunks=chunks)
        found = _compute(*cudml.dask.top_k(array, case.k))
        expected = top_k(elements, case.k, -1)
        is_right = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        num_wrong += not is_right
        calls: dict[str, Callable[[], Any]] = {
            "cudml.dask": lambda array=array, k=case.k: _compute(*cudml.dask.top_k(array, k)),
            "dask": lambda array=array, k=case.k: _compute(da.topk(array, k), da.argtopk(array, k)),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):  # in turn, so that other load disturbs both alike
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
        ours, theirs = (statistics.median(times[name]) * 1e3 for name in calls)
        print(
            f"{case!s:<64} cudml.dask {ours:>8.1f} ms  dask {theirs:>8.1f} ms  {theirs / ours:>5.2f} x  "
            f"{'ok' if is_right else 'WRONG'}",
            flush=True,
        )
    return 1 if num_wrong else 0


def _elements(case: Case) -> np.ndarray:
    rng = np.random.default_rng(0)
    if case.num_values is None:
        return rng.standard_normal(case.sizes, np.float32)
    return rng.integers(case.num_values, size=case.sizes, dtype=np.int32)


def _compute(*arrays: da.Array) -> tuple[Any, ...]:
    with dask.config.set(scheduler="threads"):
        results: tuple[Any, ...] = dask.compute(*arrays)
    return results
