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
def test_two_words_at_a_time(order: str, seed: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, 64, np.uint32)
    out = np.zeros_like(x)
    with emulator.schedule(order=order, seed=seed):
        launch("matrix.cu", "pairs", {"x": x, "out": out}, params_of(depth=("Int32", 0)))
    assert_identical(out, x)
