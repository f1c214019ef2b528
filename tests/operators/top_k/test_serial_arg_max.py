"""The path for k = 1 on a CPU: rows and columns of every width, and with the registers of other CPUs."""

from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.enums import DataType
from tests.operators.top_k.test_ragged import check
from tests.operators.top_k.test_results import hard_values
from tests.support.kernel_cases import CPU
from tests.support.layouts import lay_out
from tests.support.top_k_runs import DTYPES, Options, check_in_layouts, check_top_k, element_type

FIRST = Options(1, path="serial_arg_max")
ORDERS = [
    replace(FIRST, largest=largest, nan_last=nan_last)
    for largest in (True, False)
    for nan_last in (True, False)
]


def hardest_rows(dtype: np.dtype, num_rows: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of one, two or three kinds of elements: NaNs, zeros of both signs, extremes."""
    kinds = hard_values(dtype, 60, rng)
    rows = [rng.choice(rng.choice(kinds, 1 + n % 3), size) for n in range(num_rows - 2)]
    zeros = np.array([0.0, -0.0] if dtype.kind not in "iu" else [0, 0]).astype(dtype)
    return np.array([*rows, rng.choice(zeros, size), rng.choice(zeros[::-1], size)])


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_hardest_rows_and_columns(dtype: np.dtype, rng: np.random.Generator) -> None:
    """Sizes below a register, below a batch of registers, and above; rows of bytes exceed a byte's count."""
    device = emulator.get_device()
    for size in (1, 2, 7, 40, 65, 511, 600, 1300):
        x = hardest_rows(dtype, 24, size, rng)
        columns = np.ascontiguousarray(x.T)
        for options in ORDERS:
            check_top_k(device, x, options, CPU)
            check_top_k(device, columns, replace(options, axis=0), CPU)


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "float64"])
def test_the_first_at_every_place(word: str) -> None:
    """One element above all others, at each place of a row or a column in turn; nothing beside it is read."""
    device = emulator.get_device()
    for length in (5, 37, 150, 700):
        eye = np.eye(length, dtype=word)
        for axis in (0, 1):
            check_top_k(device, eye, replace(FIRST, axis=axis), CPU)
    with emulator.schedule(check=True, warp_lanes=1):
        check_top_k(device, np.eye(70, 150, dtype=word), FIRST, CPU)
        check_top_k(device, np.eye(150, 70, dtype=word), replace(FIRST, axis=0), CPU)


@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "float64"])
def test_rows_apart(word: str, rng: np.random.Generator) -> None:
    """Padded, mirrored and broadcast rows, and columns of several matrices between gaps."""
    device, dtype = emulator.get_device(), np.dtype(word)
    sizes = (3, 90, 70)
    kind = element_type(np.zeros(1, dtype))
    layouts = {
        "gaps": {"pads": (0, 1, 3), "byte_offset": dtype.itemsize},
        "mirrored": {"flips": (False, True, True)},
        "another order": {"order": (1, 2, 0), "pads": (0, 2, 1)},
        "one row": {"broadcast": (True, False, False)},
        "one element": {"broadcast": (False, False, True)},
    }
    for how in layouts.values():
        x = lay_out(sizes, kind, **how)
        raw = np.zeros(x.num_bytes, np.uint8)
        view = x.view(raw).view(dtype)
        view[...] = rng.integers(0, 4, sizes)
        for axis in range(3):
            out = (*sizes[:axis], 1, *sizes[axis + 1 :])
            results = lay_out(out, kind, pads=(1, 0, 2)), lay_out(out, DataType.UINT64)
            options = replace(FIRST, axis=axis, index_type=DataType.UINT64, largest=axis != 1)
            check_in_layouts(device, raw, x, *results, options, dtype, CPU)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_ragged_rows_and_columns(dtype: str, rng: np.random.Generator) -> None:
    """Lengths of 0, of the axis and past it; elements past a row's length rank before the counted ones."""
    x = rng.integers(0, 3, (70, 700)).astype(dtype)
    lengths = rng.integers(0, 800, (70, 1))
    lengths[:4, 0] = 0, 1, 700, 800
    x[np.arange(700) >= lengths] = 9
    for largest in (True, False):
        options = replace(FIRST, axis=1, largest=largest)
        assert check(x, lengths, options, CPU)
        assert check(np.ascontiguousarray(x.T), lengths.T, replace(options, axis=0), CPU)


@pytest.mark.parametrize("word", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_lengths_of_columns(word: str, rng: np.random.Generator) -> None:
    """Lengths of every type, some negative or the largest, cut from a longer row; and one for all columns."""
    x = np.ascontiguousarray(rng.integers(-3, 3, (60, 300)).astype(np.int8))
    least, most = np.iinfo(word).min, np.iinfo(word).max
    wide = rng.integers(0, 70, (1, 900)).astype(word)
    wide[0, :9] = [least, most, 0, 60, 61, 1, most - 1, 59, 2]
    for lengths in (wide[:, :300], wide[:, ::3], wide[:, 899:599:-1], wide[:, 4:5]):
        assert check(x, lengths, replace(FIRST, axis=0), CPU)
