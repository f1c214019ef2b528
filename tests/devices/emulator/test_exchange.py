"""Tagged words between blocks of a running grid, in every thread order."""

from typing import Any

import numpy as np
import pytest

from cudml.devices import emulator
from tests.devices.emulator.support import EVERY_ORDER, launch
from tests.support import assert_identical
from tests.support.params import params_of

#: The number of threads is a multiple of both formats' words.
NUM_BLOCKS, NUM_THREADS, NUM_ROUNDS = 4, 36, 5

FORMATS = {"TaggedFloats": (np.uint64, np.float32), "TaggedHalves": (np.uint32, np.float16)}


# The second passes 2**16: a tagged half holds only the lower 16 bits of the round.
@pytest.mark.parametrize("first_round", [1, 2**16 - 2])
@pytest.mark.parametrize("words_of", FORMATS)
@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
def test_ring_of_blocks(
    order: str, seed: int, words_of: str, first_round: int, rng: np.random.Generator
) -> None:
    word, value = FORMATS[words_of]
    x = rng.standard_normal((NUM_BLOCKS, NUM_THREADS), np.float32)
    # A NaN and zeros of both signs are values like any other.
    x[0, :3] = np.nan, -0.0, 0.0
    expected: Any = x
    for _ in range(NUM_ROUNDS):
        received = np.roll(expected.astype(value), 1, axis=0).astype(np.float32)
        expected = np.float32(0.5) * expected + received
    out = np.empty_like(x)
    with emulator.schedule(order=order, seed=seed):
        launch(
            "exchange.cu",
            "ring",
            {"x": x, "words": np.zeros(3 * x.size, word), "out": out},
            params_of(first_round=("UInt32", first_round), num_rounds=("Int32", NUM_ROUNDS)),
            template=(words_of,),
            grid=NUM_BLOCKS,
            block=NUM_THREADS,
            cooperative=True,
        )
    # Whatever its bits, a NaN arrives as one.
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert_identical(out[:, 1:], expected[:, 1:])
