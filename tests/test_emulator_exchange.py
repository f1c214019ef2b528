"""Tagged words between blocks of a running grid, in every thread order."""

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.plans import Params
from tests.emulator_support import EVERY_ORDER, launch
from tests.support import assert_identical

NUM_BLOCKS, NUM_THREADS, NUM_ROUNDS = 4, 33, 5


@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
def test_ring_of_blocks(order: str, seed: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((NUM_BLOCKS, NUM_THREADS), np.float32)
    # Not a number and zeros of both signs are values like any other.
    x[0, :3] = np.nan, -0.0, 0.0
    expected = x
    for _ in range(NUM_ROUNDS):
        expected = np.float32(0.5) * expected + np.roll(expected, 1, axis=0)
    out = np.empty_like(x)
    with emulator.schedule(order=order, seed=seed):
        launch(
            "exchange.cu",
            "ring",
            {"x": x, "words": np.zeros(3 * x.size, np.uint64), "out": out},
            Params.of(num_rounds=("Int32", NUM_ROUNDS)),
            grid=NUM_BLOCKS,
            block=NUM_THREADS,
            cooperative=True,
        )
    # Whatever its bits, a NaN arrives as one.
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert_identical(out[:, 1:], expected[:, 1:])
