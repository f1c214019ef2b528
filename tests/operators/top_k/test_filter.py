"""What the filter of long rows lets through while it reads them, against floors of both signs."""

from dataclasses import replace
from math import exp, lgamma, log

import numpy as np
import pytest

from bench.traffic import Case
from cudml.devices import emulator
from cudml.operators.top_k.filter import poisson_quantile, rank_in_sample
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import DTYPES, Options, check_top_k, launches, plan_for

#: Elements of a tile, at most: the first tile alone makes the first floor.
TILE = 8192
#: A device on which one block reads a row.
LIMITS = replace(GPU, num_multiprocessors=1)

largest_or_smallest = pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("nan_last", [True, False], ids=["nan last", "nan greatest"])
@largest_or_smallest
@every_dtype
def test_every_pattern_of_16_bits(
    dtype: np.dtype, largest: bool, nan_last: bool, rng: np.random.Generator
) -> None:
    """An element's first 16 bits, or its 8: NaNs of both signs and all payloads, zeros, infinities."""
    bits = 8 * dtype.itemsize
    word = np.dtype(f"u{dtype.itemsize}").type
    patterns = np.arange(1 << 16).astype(word) << word(max(bits - 16, 0))
    rows = []
    for sign in (0, 1 << (bits - 1)):
        middle = patterns[TILE : 2 * TILE] & word((1 << (bits - 1)) - 1) | word(sign)
        # Negative NaNs meet a floor of either sign, made by the first tile.
        rows.append(np.concatenate([rng.permutation(middle), patterns[::-1]]))
    x = np.stack(rows).view(dtype)
    options = Options(3000, -1, largest, nan_last, "block_filter")
    check_top_k(emulator.get_device(), x, options, LIMITS)


@largest_or_smallest
@every_dtype
def test_the_first_number_above_a_floor(dtype: np.dtype, largest: bool, rng: np.random.Generator) -> None:
    """After a tile of lesser elements, equal ones fill the list, so that the floor becomes their value."""
    bits = 8 * dtype.itemsize
    x = np.full((2, 8 * TILE), 1 << (bits - 2), f"u{dtype.itemsize}")
    x[1] |= 1 << (bits - 1)
    for row, step in zip(x, (1, 1 if dtype.kind in "iu" else -1), strict=True):
        above = np.array(step if largest else -step).astype(x.dtype)
        row[:TILE] -= 2 * above
        row[rng.choice(row.size, 100, replace=False)] += above
    options = Options(3000, largest=largest, path="block_filter")
    check_top_k(emulator.get_device(), x.view(dtype), options, LIMITS)


@largest_or_smallest
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("num_blocks", "num_sampled"), [(1, 1024), (8, 192)])
def test_a_guess_that_is_too_high(num_blocks: int, num_sampled: int, dtype: str, largest: bool) -> None:
    """A block filters its row again; if several blocks share a row, the last one filters all of it.

    The sample has the first of every 64 loads.
    """
    per_load = 16 // np.dtype(dtype).itemsize
    case = Case("block_filter", dtype, 2, num_sampled * 64 * per_load, 50, "normal")
    values = case.input().astype(np.float64)
    sampled = np.arange(case.row_length) // per_load % 64 == 0
    values[:, sampled] = 8 + values[:, sampled] % 4
    x = (values if largest else -values).astype(dtype)
    processors = 1 if num_blocks == 1 else 8
    options, limits = replace(case.options, largest=largest), replace(LIMITS, num_multiprocessors=processors)
    (launch,) = launches(plan_for(x, options, limits))
    assert launch.grid == (2 * num_blocks, 1, 1)
    check_top_k(emulator.get_device(), x, options, limits)


@every_dtype
def test_a_later_sample_keeps_the_list(dtype: np.dtype) -> None:
    """Elements that ascend fill the list again and again, behind greater ones at the row's start."""
    k, count, greatest = 300, 12 * TILE, 100 if dtype.itemsize == 1 else 30_000
    x = np.arange(count) * greatest // (2 * count)
    x[:k:2] = greatest
    rows = np.stack([x, x]).astype(dtype)
    check_top_k(emulator.get_device(), rows, Options(k, path="block_filter"), LIMITS)


def test_lists_are_cut_seldom_where_elements_ascend() -> None:
    """The first sample does not show the order. Cuts show in the bytes that list and searches read."""

    def bytes_of_lists(distribution: str) -> int:
        (launch,) = Case("block_filter", "float32", 1, 1 << 18, 50, distribution).report().launches
        return launch.shared.bytes_read

    assert bytes_of_lists("ascending, least where sampled") < 8 * bytes_of_lists("normal")


@pytest.mark.parametrize("expected", [0.003, 0.4, 1.05, 17.0, 120.0, 300.0, 2000.0])
@pytest.mark.parametrize("probability", [1e-3, 1e-7])
def test_quantile_of_a_poisson_distribution(expected: float, probability: float) -> None:
    """For more than 256 expected events, the result is a bound, at most a thirtieth above the quantile."""
    number = poisson_quantile(expected, probability)

    def at_least(least: int) -> float:
        return sum(exp(n * log(expected) - expected - lgamma(n + 1)) for n in range(least, least + 150))

    beyond = number // 30 if expected > 256 else 1
    assert at_least(number) < probability <= at_least(number - beyond)


@pytest.mark.parametrize("per_load", [2, 4, 8, 16])
@pytest.mark.parametrize("k", [1, 50, 256, 4000])
def test_neighbours_do_not_exceed_the_rank(per_load: int, k: int) -> None:
    """Wherever the first k elements lie side by side, a sample has fewer of them than its rank."""
    for num_loads, row_length in ((192, 100_000), (400, 1 << 18), (1000, 1_000_003)):
        in_row = row_length // per_load
        sampled = np.arange(num_loads) * ((2**32 - 1) // num_loads + 1) * in_row >> 32
        begin = np.arange(row_length - k)
        first, last = begin // per_load, (begin + k - 1) // per_load
        met = np.searchsorted(sampled, last, "right") - np.searchsorted(sampled, first)
        assert met.max() * per_load < rank_in_sample(k, per_load, row_length, num_loads)
