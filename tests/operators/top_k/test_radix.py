"""Searches of digits: keys that differ in few of their bits, and floors that are guessed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cudml
from bench.traffic import DISTRIBUTIONS
from cudml.devices import emulator
from cudml.enums import DataType
from cudml.operators.top_k import operator
from cudml.operators.top_k.rows import BY_COUNTING, BY_DIGITS
from tests.support.kernel_cases import GPU, top_k
from tests.support.top_k_runs import Options, check_top_k, launches, plan_for, possible_paths

#: Ranges of bits, from the highest on, in which the elements of a row differ: within a digit of eleven bits,
#: across two, the lowest, the highest, and none.
DIFFERING = ((3, 6), (8, 14), (16, 32), (26, 32), (30, 32), (0, 2), (0, 0))


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("path", ["block_radix", "grid_radix"])
def test_keys_that_differ_in_few_bits(path: str, bits: int, largest: bool, rng: np.random.Generator) -> None:
    """Keys differ in one range, in two with equal bits between, or between one lane and the others.

    In a row alone, a few keys have any bits, and the others differ in few.
    """
    device = emulator.get_device()
    for first, end in DIFFERING:
        rows = []
        for other in (0, 1 << (bits - 12) if bits > 12 else 0):
            mask = sum(1 << (bits - 1 - place * bits // 32) for place in range(first, end)) | other
            alike = int(rng.integers(0, 1 << 63)) * 2 + 1
            varying = rng.integers(0, 1 << 63, 3000, np.uint64) * np.uint64(2) & np.uint64(mask)
            rows.append(np.uint64(alike & ~mask & (1 << bits) - 1) | varying)
        of_lane = np.arange(3000) // (128 // bits) % 32
        for lanes in (of_lane == rng.integers(32), of_lane != rng.integers(32)):
            rows.append(rows[0] & ~np.uint64(mask) | lanes * np.uint64(mask & -mask))
        any_bits = rng.integers(0, 1 << 63, 3000, np.uint64) * np.uint64(2) & np.uint64((1 << bits) - 1)
        mixed = np.where(rng.random(3000) < 0.02, any_bits, rows[0])
        for x in (np.stack(rows), mixed[None]):
            x = x.astype(f"u{bits // 8}")
            for k in (1, 40, 700):
                options = Options(k, path=path, largest=largest)
                assert path in possible_paths(x, options, device.limits)
                check_top_k(device, x, options)


#: Distributions of a row's elements: a guess from a sample holds, or leaves too few or too many.
SPREADS = (
    "normal", "half zeros", "few values", "ascending", "descending", "greatest where sampled",
    "least where sampled", "one large value in every 64th place", "ids with few negatives",
)  # fmt: skip


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("spread", SPREADS)
def test_a_floor_guessed_from_a_sample(
    spread: str, dtype: str, largest: bool, rng: np.random.Generator
) -> None:
    """Rows with NaNs; few candidates, whose pairs are compared, or more, which are exchanged or sorted."""
    limits = replace(GPU, num_multiprocessors=2)
    # A part has eight loads for one of the sample, and begins anywhere in a load.
    row_length = 8 * 1024 * 2 * 16 // np.dtype(dtype).itemsize - 40
    normal, uniform = rng.standard_normal(row_length), rng.random(row_length)
    values = DISTRIBUTIONS[spread](normal, uniform)
    if dtype == "float64" or dtype == "float32":
        values[rng.choice(row_length, 20, replace=False)] = np.nan
    elif dtype == "int64" and spread != "ids with few negatives":
        values = values * 2.0**40 + 2.0**50
    x = np.clip(values * 20, -128, 127) if dtype == "int8" else values
    x = np.concatenate([[0], x]).astype(dtype)[1:][None]
    for k in (60, 270, 1500):
        options = Options(k, path="grid_radix", largest=largest)
        (launch,) = launches(plan_for(x, options, limits))
        assert launch.params.values["sample_rank"] > 0
        assert (launch.params.values["sort_mode"] == BY_COUNTING) == (k == 60)
        check_top_k(emulator.get_device(), x, options, limits)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_candidates_are_exchanged_unless_a_bucket_is_too_full(dtype: str, rng: np.random.Generator) -> None:
    """Blocks rank elements that differ, or tie. A row with a bucket that is too full is searched."""
    limits = replace(GPU, num_multiprocessors=4, shared_bytes_per_block=1 << 17)
    num_loads = 4 * 1024 * 8
    row_length = num_loads * 16 // np.dtype(dtype).itemsize
    # Floating-point numbers of one power of two, whose keys are as far apart as they are.
    different = (1 << 20) + rng.permutation(row_length)
    far_above = np.where(np.arange(row_length) % 512 == 0, 1 << 30, 0)
    rows = {
        "different": different,
        "in tens": different // 10,
        "in heaps of 100": different // 100,
        "beside some far above": different + far_above,
    }
    options = Options(12_000, path="grid_radix")
    for which, row in rows.items():
        x = row.astype(dtype)[None]
        with cudml.emulator_report() as report:
            check_top_k(emulator.get_device(), x, options, limits)
        reads = report.total("input_tensor").bytes_read / x.nbytes
        assert reads > 2 if which == "beside some far above" else reads < 1.2, which


def test_rows_whose_floor_is_not_guessed() -> None:
    """Short, ragged and strided rows, and a k that gives a block more candidates than it has room for."""
    limits = replace(GPU, num_multiprocessors=2)
    long = 4 * 1024 * 2 * 4

    def rank(row_length: int, k: int, axis: int = 1, **more: Any) -> int:
        desc = top_k((1, row_length) if axis else (row_length, 2), k, axis=axis, **more)
        (launch,) = launches(operator.plan(desc, limits, path="grid_radix"))
        found: int = launch.params.values["sample_rank"]
        return found

    assert rank(long, 300) > 0
    assert rank(long - 1, 300) == 0
    assert rank(long, 300, length_type=DataType.INT32) == 0
    assert rank(2 * long, 300, axis=0) == 0
    assert rank(4 * long, 20_000) > 0
    assert rank(4 * long, 40_000) == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64"])
def test_lists_of_several_tiles(dtype: str, rng: np.random.Generator) -> None:
    """Blocks with one tile, with a full and a short one, and with many; keys that tie keep their order."""
    limits = replace(GPU, num_multiprocessors=2)
    full = 2 * 512 * (4 if dtype == "int64" else 8)  # a tile for each block
    x = rng.integers(-100, 100, (1, 4 * full + 50)).astype(dtype)
    for k in (full - 1, full, full + 3, 4 * full):
        (launch,) = launches(plan_for(x, Options(k, path="grid_radix"), limits))
        assert launch.grid == (2, 1, 1)
        check_top_k(emulator.get_device(), x, Options(k, path="grid_radix"), limits)


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["float16", "int16", "uint16"])
def test_every_element_of_16_bits(dtype: str, largest: bool, rng: np.random.Generator) -> None:
    """Elements are made from their keys, but for zeros and NaNs, which keep their bits."""
    x = rng.permutation(1 << 16).astype(np.uint16).view(dtype)[None]
    options = Options(x.size, path="grid_radix", largest=largest)
    check_top_k(emulator.get_device(), x, options, replace(GPU, num_multiprocessors=2))


@pytest.mark.parametrize("length_offset", [-40, 0, 1, 4000])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_lists_of_parts_of_any_length(dtype: str, length_offset: int, rng: np.random.Generator) -> None:
    """A part's last tile may be short, and begin anywhere in a load; it lists many elements, or few."""
    limits = replace(GPU, num_multiprocessors=2)
    row_length = 8 * 1024 * 2 * 16 // np.dtype(dtype).itemsize + length_offset
    # All are negative: a zero read past a part's end would rank first.
    distances = 40 + np.clip(rng.standard_normal(row_length + 1) * 15, -39, 80)
    distances[row_length // 3 : row_length // 2] /= 3
    x = (-np.ceil(distances)).astype(dtype)[1:][None]
    options = Options(row_length // 8, path="grid_radix")
    (launch,) = launches(plan_for(x, options, limits))
    assert launch.params.values["sample_rank"] > 0
    assert launch.params.values["sort_mode"] == BY_DIGITS
    assert launch.params.values["lists_in_order"] == (dtype in ("float16", "int8"))
    check_top_k(emulator.get_device(), x, options, limits)


def test_more_candidates_than_are_compared(rng: np.random.Generator) -> None:
    """A sample of a very long row leaves more candidates than are compared, which are exchanged."""
    limits = replace(GPU, num_multiprocessors=1)
    x = rng.standard_normal((1, 1 << 19))
    options = Options(100, path="grid_radix")
    (launch,) = launches(plan_for(x[:, : 1 << 17], options, limits))
    assert launch.params.values["sort_mode"] == BY_COUNTING
    (launch,) = launches(plan_for(x, options, limits))
    assert launch.params.values["sort_mode"] == BY_DIGITS
    with cudml.emulator_report() as report:
        check_top_k(emulator.get_device(), x, options, limits)
    assert report.total("input_tensor").bytes_read < 1.1 * x.nbytes
