"""The path for k = 1: ties of equal and of different bits, rows of every length, and parts of a row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cudml.devices import Device, emulator
from cudml.enums import DataType
from cudml.operators.top_k import arg_max as top_k_arg_max
from cudml.operators.top_k.rows import MAX_ROW_LENGTH
from cudml.plans import KernelLaunch, Params, ParamStruct, Plan
from proof.sass.plan import HOPPER
from tests.operators.top_k.test_results import hard_values
from tests.support.top_k_runs import DTYPES, Options, check_top_k, launches, plan_for

ORDERS = [(largest, nan_last) for largest in (True, False) for nan_last in (True, False)]

FIRST = Options(1, path="arg_max")


def kernels(x: np.ndarray, device: Device) -> str:
    (launch,) = launches(plan_for(x, FIRST, device.limits))
    return launch.name_expression


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [7, 90, 1000])
def test_few_of_the_hardest_values(
    device: Device, dtype: np.dtype, size: int, rng: np.random.Generator
) -> None:
    """Rows of one, two or three kinds of elements: of NaNs alone, of zeros of both signs, of the least."""
    kinds = hard_values(dtype, 60, rng)
    rows = [rng.choice(rng.choice(kinds, 1 + n % 3), size) for n in range(24)]
    if dtype.kind not in "iu":
        rows += [rng.choice(np.array(some).astype(dtype), size) for some in ([0.0, -0.0], [0.0, -0.0, -3])]
        rows += [rng.choice(np.array([np.inf, -np.inf, some]).astype(dtype), size) for some in (np.nan, 0)]
    for largest, nan_last in ORDERS:
        check_top_k(device, np.array(rows), replace(FIRST, largest=largest, nan_last=nan_last))


@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "float64"])
def test_rows_of_every_length(device: Device, word: str, rng: np.random.Generator) -> None:
    """Neighbouring rows of odd lengths begin at every place of a load; few values tie everywhere."""
    found = set()
    for length in (1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257, 1023, 1025, 2049, 4099, 20_001):
        x = rng.integers(0, 3, (17, length)).astype(word)
        found.add(kernels(x, device))
        for largest in (True, False):
            check_top_k(device, x, replace(FIRST, largest=largest, index_type=DataType.UINT64))
    assert len(found) == 3


@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "float64"])
def test_columns_by_lanes_of_either_number(device: Device, word: str, rng: np.random.Generator) -> None:
    """Columns that fill a part of the device are read by four lanes each, fewer columns by a warp each."""
    found = set()
    for num_columns, length in ((150, 3), (150, 33), (150, 129), (9, 3), (9, 33), (9, 129)):
        limits = replace(device.limits, num_multiprocessors=2)
        x = rng.integers(0, 3, (length, num_columns)).astype(word)
        options = replace(FIRST, axis=0)
        (launch,) = launches(plan_for(x, options, limits))
        found.add(launch.name_expression)
        for largest in (True, False):
            check_top_k(device, x, replace(options, largest=largest), limits)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("axis", "num_rows", "length", "word", "lanes"),
    [
        (1, 100, 256, "uint8", 4),
        (1, 2000, 66, "float32", 32),
        (1, 3000, 66, "float32", 4),
        (1, 6000, 256, "float32", 32),
        (1, 7000, 256, "float32", 4),
        (1, 20_000, 260, "float32", 32),
        (1, 20_000, 257, "float32", 4),
        (1, 20_000, 513, "float32", 32),
        (1, 20_000, 2000, "uint8", 4),
        (0, 100, 16, "float32", 32),
        (0, 2000, 16, "float32", 32),
        (0, 2100, 16, "float32", 4),
        (0, 4000, 32, "float32", 32),
        (0, 4100, 32, "float32", 4),
        (0, 6700, 1000, "float32", 32),
        (0, 6800, 1000, "float32", 4),
    ],
)
def test_lanes_of_a_row(axis: int, num_rows: int, length: int, word: str, lanes: int) -> None:
    """Four lanes a row must fill a part of the device: more for each batch of loads, up to a tenth."""
    sizes = (num_rows, length) if axis else (length, num_rows)
    x = np.broadcast_to(np.zeros((), word), sizes)
    (launch,) = launches(plan_for(x, replace(FIRST, axis=axis), HOPPER.limits))
    assert launch.template[1] == lanes


@pytest.mark.parametrize("word", ["uint8", "float16", "float32", "float64"])
def test_the_first_at_every_place(device: Device, word: str) -> None:
    """One element above all others, at each place of a row in turn."""
    for length in (5, 37, 150, 700):
        check_top_k(device, np.eye(length, dtype=word), FIRST)


@pytest.mark.parametrize("word", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_ties_between_the_parts_of_a_row(
    device: Device,
    axis: int,
    num_rows: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Several blocks share a row; the last blocks may have no elements."""
    monkeypatch.setattr(top_k_arg_max, "_SHARED_MIN_ROW_BYTES", 1)
    monkeypatch.setattr(top_k_arg_max, "_MIN_STRETCH_BYTES", 100)
    limits = replace(device.limits, num_multiprocessors=16)
    for length in (5000, 5119, 5120, 5121):
        x = np.zeros((num_rows, length), word)
        for row in x:
            row[rng.integers(0, length, 5)] = 1
        given = x if axis == 1 else np.ascontiguousarray(x.T)
        for largest in (True, False):
            options = replace(FIRST, largest=largest, axis=axis)
            (launch,) = launches(plan_for(given, options, limits))
            assert launch.grid[0] >= 2 * num_rows
            check_top_k(device, given, options, limits)


@pytest.mark.parametrize(
    ("axis", "word", "longest"), [(1, "uint8", 393_215), (0, "uint8", 12_287), (0, "float64", 12_287)]
)
def test_blocks_share_what_takes_many_sectors(axis: int, word: str, longest: int) -> None:
    """Elements that do not lie together take one sector each, whatever their size."""
    limits = replace(emulator.get_device().limits, num_multiprocessors=132)
    for length, are_shared in ((longest, False), (longest + 1, True)):
        x = np.broadcast_to(np.zeros((), word), (2, length) if axis == 1 else (length, 2))
        (launch,) = launches(plan_for(x, replace(FIRST, axis=axis), limits))
        assert (launch.grid[0] > 1) is are_shared


@pytest.mark.parametrize("num_parts", [1, 2, 3, 13, 264])
@pytest.mark.parametrize("short_of_longest", [0, 1, 62, 63, 64, 65, 2**31])
def test_parts_cover_the_longest_rows(num_parts: int, short_of_longest: int) -> None:
    """Each part begins where the last one ends, at a multiple of 64; rows are too long to be allocated."""
    length = MAX_ROW_LENGTH - short_of_longest
    begins, ends = np.zeros((2, num_parts), np.int64)
    step = KernelLaunch(
        source=str(Path(__file__).parent / "kernels" / "stretches.cu"),
        function="stretches",
        template=(),
        grid=(num_parts, 1, 1),
        block=(1, 1, 1),
        buffers=("begins", "ends"),
        params=Params(ParamStruct("Int64 row_length"), {"row_length": length}),
    )
    emulator.get_device().load(Plan("test", ("begins", "ends"), (step,)))([begins, ends], None)
    assert (begins[0], ends[-1]) == (0, length)
    assert (begins[1:] == ends[:-1]).all()
    assert (begins[1:] % 64 == 0).all()
    assert (ends > begins).all()
