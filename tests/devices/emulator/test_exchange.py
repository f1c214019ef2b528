"""Tagged words between blocks of a running grid, in every thread order."""

from typing import Any

import numpy as np
import pytest

from cudml.devices import emulator
from tests.devices.emulator.support import EVERY_ORDER, launch
from tests.support import assert_identical
from tests.support.params import params_of

#: Blocks of whole warps, whose lanes make pairs.
NUM_BLOCKS, NUM_THREADS, NUM_ROUNDS = 4, 32, 9

#: Kernel -> type of the exchanged numbers, words for each of them.
RINGS = {"ring_of_floats": (np.float32, 3), "ring_of_pairs": (np.float16, 5)}


# The second ends before 2**32, because 0 is the number of zeroed memory. Both begin with an exchange whose
# bit differs from that memory's.
@pytest.mark.parametrize("first_round", [1, 2**32 - 11])
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
def test_ring_of_blocks(order: str, seed: int, ring: str, first_round: int, rng: np.random.Generator) -> None:
    value, num_words = RINGS[ring]
    x = rng.standard_normal((NUM_BLOCKS, NUM_THREADS), np.float32)
    # A NaN and zeros of both signs are values like any other. Numbers below 2 come in pairs, if both are; the
    # sums of a few rounds pass 2 in some threads.
    x[0, :3] = np.nan, -0.0, 0.0
    x[:, NUM_THREADS // 2 :] /= 100
    expected: Any = x
    for _ in range(NUM_ROUNDS):
        received = np.roll(expected.astype(value), 1, axis=0).astype(np.float32)
        expected = np.float32(0.5) * expected + received
    out = np.empty_like(x)
    with emulator.schedule(order=order, seed=seed):
        launch(
            "exchange.cu",
            ring,
            {"x": x, "words": np.zeros(num_words * x.size, np.uint64), "out": out},
            params_of(first_round=("UInt32", first_round), num_rounds=("Int32", NUM_ROUNDS)),
            grid=NUM_BLOCKS,
            block=NUM_THREADS,
            cooperative=True,
        )
    # Whatever its bits, a NaN arrives as one.
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert_identical(out[:, 1:], expected[:, 1:])
