"""How often top-k reads its input, on rows of 64 tiles and more and on data of several kinds.

`tests/operators/test_traffic.py` has exact numbers of short rows, whose filters have hardly begun.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from cudml.plans import Limits
from tests.support import run_plan
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import Options, launches, plan_for

#: One block a row: as many rows as there are blocks.
LIMITS = replace(GPU, num_multiprocessors=1)

#: How values are spread along rows.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.random(n),
    "half zeros": lambda rng, n: np.maximum(rng.standard_normal(n), 0),
    "ascending": lambda rng, n: np.sort(rng.standard_normal(n)),
    "descending": lambda rng, n: -np.sort(rng.standard_normal(n)),
    "few values": lambda rng, n: rng.integers(0, 40, n),
}

#: (dtype, elements of a row, k) of at least 64 tiles of kernels/top_k/filter.cuh.
FILTERED = (
    ("float32", 262_144, 50),
    ("float32", 262_144, 256),
    ("float16", 524_288, 50),
    ("int8", 262_144, 50),
    ("float64", 131_072, 512),
    ("float32", 262_144, 2048),
)


def reads_of(x: np.ndarray, k: int, path: str, limits: Limits = LIMITS) -> float:
    """How many times its size a path reads of the input; results are read again."""
    plan = plan_for(x, Options(k, path=path), limits)
    operands = {
        "input_tensor": x,
        "output_value_tensor": np.empty((*x.shape[:-1], k), x.dtype),
        "output_index_tensor": np.empty((*x.shape[:-1], k), np.uint32),
    }
    with emulator.schedule("forward"), cudml.emulator_report() as report:
        run_plan(emulator.get_device(), plan, operands)
    results = operands["output_value_tensor"].nbytes
    return (report.total("input_tensor").bytes_read - results) / x.nbytes


def rows_of(distribution: str, dtype: str, row_length: int, rng: np.random.Generator) -> np.ndarray:
    values = DISTRIBUTIONS[distribution](rng, row_length)
    if dtype == "int8":
        values = np.clip(values * 32, -128, 127)
    return values.astype(dtype)[None]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("dtype", "row_length", "k"), FILTERED)
def test_filter_reads_once(
    dtype: str, row_length: int, k: int, distribution: str, rng: np.random.Generator
) -> None:
    """And a sample of it; whatever the order of elements, since the sample is of the whole row."""
    x = rows_of(distribution, dtype, row_length, rng)
    assert reads_of(np.repeat(x, 2, 0), k, "block_filter") <= 1.05


def num_digits(x: np.ndarray, k: int, capacity: int) -> int:
    """Digits of 11 bits of the k-th unsigned number of a row until a list has room for all that may be among
    the first k, or until it is certain which are.
    """
    bits = 8 * x.itemsize
    kth = np.partition(x, -k)[-k]
    for digits in range(-(-bits // 11) + 1):
        shift = max(bits - 11 * digits, 0)
        num_above = np.count_nonzero(x >> shift > kth >> shift) if shift < bits else 0
        num_equal = np.count_nonzero(x >> shift == kth >> shift) if shift < bits else len(x)
        if num_above + num_equal <= capacity or num_equal == k - num_above:
            return digits
    return digits


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("path", ["block_radix", "grid_radix"])
def test_radix_reads_once_for_each_digit_and_for_the_list(
    path: str, distribution: str, rng: np.random.Generator
) -> None:
    """A list of ties in order may end before the row does. Blocks of a grid repeat loads at their ends."""
    x = rows_of(distribution, "float32", 262_144, rng)
    bits = x.view(np.uint32)
    keys = bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
    (launch,) = launches(plan_for(x, Options(100, path=path), LIMITS))
    members = {field.name: field.values for field in launch.params.fields}
    (capacity,) = members["list_capacity"]
    most = num_digits(keys[0], 100, capacity) + 1
    assert most - 1 < reads_of(x, 100, path) <= most * 1.02


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("k", [8, 500])
def test_a_cpu_reads_once(k: int, distribution: str, rng: np.random.Generator) -> None:
    """Whatever the elements' order: the list is cut, and the row never begun again.

    For a small k, the first 2048 elements are read twice.
    """
    x = rows_of(distribution, "float32", 64 * 1024, rng)
    twice = 2048 if k == 8 else 0
    assert reads_of(x, k, "serial", replace(LIMITS, warp_lanes=1)) == 1 + twice / x.size
