"""The matrix instruction against NumPy, in every thread order."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudml.devices import emulator
from tests.devices.emulator.support import EVERY_ORDER, launch
from tests.support import assert_identical
from tests.support.params import params_of

every_order = pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)


@every_order
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_product_of_halves(order: str, seed: int, dtype: Any, rng: np.random.Generator) -> None:
    """The halves are small integers, so that any order of the sums gives the same bits."""
    depth = 48
    a, b = (rng.integers(-8, 9, (rows, depth)).astype(dtype) for rows in (16, 8))
    out = rng.integers(-100, 101, (16, 8)).astype(np.float32)
    expected = out + a.astype(np.float32) @ b.astype(np.float32).T
    with emulator.schedule(order=order, seed=seed):
        params = params_of(depth=("Int32", depth))
        is_bfloat = dtype == ml_dtypes.bfloat16
        launch("matrix.cu", "product", {"a": a, "b": b, "out": out}, params, template=(is_bfloat,))
    assert_identical(out, expected)


@every_order
def test_product_of_tf32(order: str, seed: int, rng: np.random.Generator) -> None:
    """Small integers, and lower bits of the words that do not count."""
    depth = 24
    a, b = (rng.integers(-8, 9, (rows, depth)).astype(np.float32) for rows in (16, 8))
    out = rng.integers(-100, 101, (16, 8)).astype(np.float32)
    expected = out + a @ b.T
    words = [x.view(np.uint32) + rng.integers(1 << 13, size=x.shape, dtype=np.uint32) for x in (a, b)]
    with emulator.schedule(order=order, seed=seed):
        buffers = {"a": words[0], "b": words[1], "out": out}
        launch("matrix.cu", "tf32_product", buffers, params_of(depth=("Int32", depth)))
    assert_identical(out, expected)


@pytest.mark.parametrize(
    ("out", "a", "b", "expected"),
    [
        (1.0, 2.0**-12, 2.0**-12, 1.0),  # below the 24 bits of 1
        (1.0, 2.0**-12, 2.0**-11, 1 + 2.0**-23),
        (1.0, 1.5 * 2.0**-12, 2.0**-11, 1 + 2.0**-23),  # cut off, not rounded
        (-1.0, -1.5 * 2.0**-12, 2.0**-11, -1 - 2.0**-23),
        (2.0**24 - 1, 1.5, 1.0, 2.0**24),
        (0.0, -0.0, 1.0, 0.0),
        (1.0, np.inf, 1.0, np.inf),
        (1.0, np.inf, 0.0, np.nan),
        (np.nan, 1.0, 1.0, np.nan),
        (2.0**127, 2.0**64, 2.0**64, np.inf),
    ],
)
def test_sums_of_tf32_are_cut_off(out: float, a: float, b: float, expected: float) -> None:
    """As NVIDIA's tensor cores may do at worst."""
    sums = np.full((16, 8), out, np.float32)
    rows, columns = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32)
    rows[:, 0], columns[:, 0] = a, b
    buffers = {"a": rows.view(np.uint32), "b": columns.view(np.uint32), "out": sums}
    launch("matrix.cu", "tf32_product", buffers, params_of(depth=("Int32", 8)))
    np.testing.assert_array_equal(sums, np.float32(expected))


def test_each_product_of_tf32_is_cut_off() -> None:
    """Eight products below the last bit of the sum add nothing, though together they are four of its bits."""
    sums, words = np.ones((16, 8), np.float32), np.full((16, 8), 2.0**-12, np.float32).view(np.uint32)
    buffers = {"a": words, "b": words[:8].copy(), "out": sums}
    launch("matrix.cu", "tf32_product", buffers, params_of(depth=("Int32", 8)))
    np.testing.assert_array_equal(sums, np.float32(1))


@every_order
def test_two_words_at_a_time(order: str, seed: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, 64, np.uint32)
    out = np.zeros_like(x)
    with emulator.schedule(order=order, seed=seed):
        launch("matrix.cu", "pairs", {"x": x, "out": out}, params_of(depth=("Int32", 0)))
    assert_identical(out, x)
