"""`top_k` along an axis that is longer than a kernel's row: the results are those of one row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import Device
from cudml.functions import top_k as function
from cudml.functions.top_k_parts import PartedTopK
from proof.oracle.top_k import ragged_top_k, top_k
from tests.support import assert_identical, to_device, to_numpy
from tests.support.function_arrays import REALS, strided, values

#: Length of the longest row in these tests; parts have half of it, and one element.
LONGEST = 199


@pytest.fixture
def short_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows of more than `LONGEST` elements are selected from in parts."""
    _forget()
    monkeypatch.setattr(function, "MAX_ROW_LENGTH", LONGEST)
    yield
    _forget()


def _forget() -> None:
    function._top_k.calls.clear()
    function._ragged_top_k.calls.clear()


def _calls_of_parts() -> int:
    calls = [*function._top_k.calls.values(), *function._ragged_top_k.calls.values()]
    return sum(isinstance(call.launch, PartedTopK) for call in calls)


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", REALS[-1]])
@pytest.mark.parametrize(("shape", "axis"), [((7, 260), 1), ((201, 3, 2), 0), ((2, 200, 3), 1), ((301,), 0)])
@pytest.mark.parametrize("k", [1, 20, 60])
def test_results(
    dtype: Any, shape: tuple[int, ...], axis: int, k: int, device: Device, rng: np.random.Generator
) -> None:
    array = values(rng, shape, dtype)
    for mode in ("largest", "smallest"):
        for nan in ("last", "greatest"):
            found = cudml.top_k(to_device(device, array), k, axis=axis, mode=mode, nan=nan)
            expected = top_k(array, k, axis, largest=mode == "largest", nan_last=nan == "last")
            assert_identical(to_numpy(found.values), expected[0])
            assert_identical(to_numpy(found.indices), expected[1])
    assert _calls_of_parts() == 4


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("lengths_dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_ragged_rows(lengths_dtype: Any, device: Device, rng: np.random.Generator) -> None:
    """Lengths at, before and after the ends of parts and of the row."""
    array = values(rng, (2, 220, 9), np.float32)
    limits = np.iinfo(lengths_dtype)
    lengths = np.array([0, 1, 19, 100, 101, 119, 120, 127, limits.max], lengths_dtype)
    lengths[0] = max(limits.min, -1)
    if limits.max > 220:
        lengths[-4:-1] = 200, 201, 220
    for mode in ("largest", "smallest"):
        given = to_device(device, array), to_device(device, lengths)
        found = cudml.top_k(given[0], 20, axis=1, mode=mode, lengths=given[1])
        expected = ragged_top_k(array, lengths, 20, 1, largest=mode == "largest", nan_last=True)
        assert_identical(to_numpy(found.values), expected[0])
        assert_identical(to_numpy(found.indices), expected[1])
    assert _calls_of_parts() == 2


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("index_dtype", [np.int32, np.uint32, np.uint64])
def test_outputs_that_are_given(index_dtype: Any, device: Device, rng: np.random.Generator) -> None:
    """The outputs have any strides and index types."""
    array = rng.standard_normal((2, 3, 230), np.float32)
    shape = (2, 3, 5)
    out = tuple(strided(device, np.zeros(shape, dtype), "gaps") for dtype in (np.float32, index_dtype))
    cudml.top_k(strided(device, array, "backwards"), 5, out=out)
    expected = top_k(array, 5)
    assert_identical(to_numpy(out[0]), expected[0])
    assert_identical(to_numpy(out[1]), expected[1].astype(index_dtype))


@pytest.mark.usefixtures("short_rows")
def test_more_than_eight_dimensions(rng: np.random.Generator) -> None:
    array = rng.integers(0, 9, (1, 2, 1, 1, 2, 1, 1, 230, 1, 2))
    values, indices = cudml.top_k(array, 3, axis=7)
    order = np.argsort(-array, axis=7, kind="stable")[..., :3, :, :]
    assert_identical(indices, order)
    assert_identical(values, np.take_along_axis(array, order, 7))


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize(("length", "most"), [(300, 66), (260, 69), (201, 99)])
def test_more_results_than_a_row_has(length: int, most: int, rng: np.random.Generator) -> None:
    array = rng.permutation(length)
    expected = f"top_k: k is {most + 1}, must be at most {most} for an axis of {length} elements"
    with pytest.raises(ValueError, match=expected):
        cudml.top_k(array, most + 1)
    assert cudml.top_k(array, most).values.tolist() == [*range(length - 1, length - most - 1, -1)]


def test_an_axis_of_more_than_2_to_the_32nd() -> None:
    """All unwritten pages of the array are the same page of memory."""
    num_elements = 2**32 + 1000
    array = np.zeros(num_elements, np.uint8)
    best = {5: 1, 2**31 - 1: 3, 2**31: 3, 2**32 - 1: 2, 2**32: 3, num_elements - 1: 1}
    for place, value in best.items():
        array[place] = value
    values, indices = cudml.top_k(array, 7)
    assert values.tolist() == [3, 3, 3, 2, 1, 1, 0]
    assert indices.tolist() == [2**31 - 1, 2**31, 2**32, 2**32 - 1, 5, num_elements - 1, 0]
