"""What the filter of long rows lets through while it reads them, against floors of both signs."""

from dataclasses import replace
from math import exp, lgamma, log

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.operators.top_k_filter import poisson_quantile, rank_in_sample
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import DTYPES, Options, check_top_k

#: Elements of a tile, at most: the first tile alone makes the first floor.
TILE = 8192
#: On which one block reads a row.
LIMITS = replace(GPU, num_multiprocessors=1)

largest_or_smallest = pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("nan_last", [True, False], ids=["nan last", "nan greatest"])
@largest_or_smallest
@every_dtype
def test_every_pattern_of_16_bits(
    dtype: np.dtype, largest: bool, nan_last: bool, rng: np.random.Generator
) -> None:
    """Of an element's first bits, or its 8: NaNs of both signs and all payloads, zeros, infinities."""
    bits = 8 * dtype.itemsize
    word = np.dtype(f"u{dtype.itemsize}").type
    patterns = np.arange(1 << 16).astype(word) << word(max(bits - 16, 0))
    rows = []
    for sign in (0, 1 << (bits - 1)):
        middle = patterns[TILE : 2 * TILE] & word((1 << (bits - 1)) - 1) | word(sign)
        # Negative NaNs meet the floor that the first tile made, of either sign.
        rows.append(np.concatenate([rng.permutation(middle), patterns[::-1]]))
    x = np.stack(rows).view(dtype)
    options = Options(3000, -1, largest, nan_last, "block_filter")
    check_top_k(emulator.get_device(), x, options, LIMITS)


@largest_or_smallest
@every_dtype
def test_the_first_number_above_a_floor(dtype: np.dtype, largest: bool, rng: np.random.Generator) -> None:
    """After a tile of lesser elements, equal ones fill the list, so that the floor becomes exactly theirs."""
    bits = 8 * dtype.itemsize
    x = np.full((2, 8 * TILE), 1 << (bits - 2), f"u{dtype.itemsize}")
    x[1] |= 1 << (bits - 1)
    for row, step in zip(x, (1, 1 if dtype.kind in "iu" else -1), strict=True):
        above = np.array(step if largest else -step).astype(x.dtype)
        row[:TILE] -= 2 * above
        row[rng.choice(row.size, 100, replace=False)] += above
    options = Options(3000, largest=largest, path="block_filter")
    check_top_k(emulator.get_device(), x.view(dtype), options, LIMITS)


@pytest.mark.parametrize("expected", [0.003, 0.4, 1.05, 17.0, 120.0, 2000.0])
@pytest.mark.parametrize("probability", [1e-3, 1e-7])
def test_quantile_of_a_poisson_distribution(expected: float, probability: float) -> None:
    number = poisson_quantile(expected, probability)

    def at_least(least: int) -> float:
        return sum(exp(n * log(expected) - expected - lgamma(n + 1)) for n in range(least, least + 150))

    assert at_least(number) < probability <= at_least(number - 1)


@pytest.mark.parametrize("per_load", [2, 4, 8, 16])
@pytest.mark.parametrize("k", [1, 50, 256, 4000])
def test_neighbours_do_not_exceed_the_rank(per_load: int, k: int) -> None:
    """The first k elements side by side, wherever they begin: as many as loads of a sample have of them."""
    for num_loads, row_length in ((192, 100_000), (400, 1 << 18), (1000, 1_000_003)):
        in_row = row_length // per_load
        sampled = np.arange(num_loads) * ((2**32 - 1) // num_loads + 1) * in_row >> 32
        begin = np.arange(row_length - k)
        first, last = begin // per_load, (begin + k - 1) // per_load
        met = np.searchsorted(sampled, last, "right") - np.searchsorted(sampled, first)
        assert met.max() * per_load < rank_in_sample(k, per_load, row_length, num_loads)
