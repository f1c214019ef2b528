"""The path for rows side by side: lists that fill, ties, groups of too few rows, and parts of a row."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import Device
from tests.operators.top_k.test_results import hard_values
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import Options, check_top_k, launches, plan_for

#: Sizes along the axis and across it, and k.
SHAPES = (
    (300, 40, 10),
    (2500, 7, 32),
    (3000, 33, 1),
    (1500, 20, 17),
    (20, 40, 20),
    (900, 20, 64),
    (1500, 9, 100),
)

CONTENTS: dict[str, Callable[[np.dtype, tuple[int, int], np.random.Generator], np.ndarray]] = {
    "few values": lambda dtype, sizes, rng: rng.integers(0, 40, sizes).astype(dtype),
    "hardest values": lambda dtype, sizes, rng: hard_values(dtype, sizes[0] * sizes[1], rng).reshape(sizes),
    "ascending": lambda dtype, sizes, rng: np.sort(rng.integers(0, 120, sizes).astype(dtype), 0),
    "all equal": lambda dtype, sizes, rng: np.ones(sizes, dtype),
}


def _largest_k(word: str) -> int:
    """The largest k of the path."""
    return 32 if np.dtype(word).itemsize == 8 else 128


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "int64"])
def test_columns(device: Device, word: str, content: str, rng: np.random.Generator) -> None:
    for length, num_rows, k in SHAPES:
        if k > _largest_k(word):
            continue
        x = CONTENTS[content](np.dtype(word), (length, num_rows), rng)
        for largest in (True, False):
            options = Options(k, 0, largest, bool(rng.integers(2)), "columns")
            check_top_k(device, x, options, replace(GPU, num_multiprocessors=1))


@pytest.mark.parametrize("word", ["uint8", "float32", "int64"])
def test_parts_of_columns_are_merged(device: Device, word: str, rng: np.random.Generator) -> None:
    """Ties lie in all parts; the last part may be short of k."""
    limits = replace(GPU, num_multiprocessors=8)
    for length, k in ((4096, 30), (5 * 1024 + 1, 30), (4096, _largest_k(word))):
        x = rng.integers(0, 3, (length, 5)).astype(word)
        options = Options(k, 0, path="columns")
        assert len(launches(plan_for(x, options, limits))) == 2
        check_top_k(device, x, options, limits)


def test_lists_of_every_length(device: Device, rng: np.random.Generator) -> None:
    """The first and the last k of each instance; cuts leave few elements or many."""
    for k in (1, 16, 17, 32, 33, 63, 64, 65, 127, 128):
        for length in (k, k + 1, 256, 257, 800, 2500):
            if k <= length:
                x = rng.integers(0, 300, (length, 17)).astype(np.float32)
                check_top_k(device, x, Options(k, 0, path="columns"), replace(GPU, num_multiprocessors=1))
