"""Rows that a warp sorts: the cut of rows of any distribution, and words without room for whole keys."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import emulator
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import Options, check_top_k, possible_paths

#: Few blocks at once.
ONE = replace(GPU, num_multiprocessors=1)

_Numbers = Callable[[np.random.Generator, int], np.ndarray]

#: Functions that make a row's numbers, from 0 to 1.
NUMBERS: dict[str, _Numbers] = {
    "uniform": lambda rng, count: rng.random(count),
    "a few far above": lambda rng, count: np.where(np.arange(count) % 97 == 5, 1, 1e-6 * rng.random(count)),
    "of every magnitude": lambda rng, count: np.exp2(-100 * rng.random(count)),
    "closer and closer": lambda rng, count: 1 - rng.permutation(np.exp2(-0.05 * np.arange(count))),
    "half equal": lambda rng, count: np.maximum(rng.random(count), 0.5),
    "two": lambda rng, count: rng.integers(0, 2, count).astype(float),
    "ascending": lambda rng, count: np.sort(rng.random(count)),
    "descending": lambda rng, count: np.sort(rng.random(count))[::-1],
    "equal but for the sample": lambda rng, count: np.where(
        np.arange(count) % 33 == 0, rng.random(count), 0.5
    ),
}


@pytest.mark.parametrize("dtype", ["uint16", "float32", "float64", "int64"])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("path", ["warp_sort", "block_sort"])
def test_numbers_of_any_distribution(path: str, numbers: str, dtype: str, rng: np.random.Generator) -> None:
    """k is the number of sorted items, or less."""
    parts = 1 if path == "warp_sort" else 3
    for row_length, k in ((250, 128), (250, 70), (1000, 128), (1000, 100), (1000, 256), (1000, 500)):
        options = Options(k, largest=bool(rng.integers(2)), path=path)
        num_rows = 2 if row_length > 256 else 13  # all elements of a dozen rows would be sorted
        rows = [NUMBERS[numbers](rng, parts * row_length) for _ in range(num_rows)]
        scale = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 1e6
        x = (np.stack(rows) * (scale // 2)).astype(dtype)
        if path in possible_paths(x, options, ONE):
            check_top_k(emulator.get_device(), x, options, ONE)
