"""GRU of every common hidden size and batch, by the path that an H200 takes, against the formulas."""

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.enums import DataType
from cudml.operators.gru.operator import layer_of
from cudml.operators.gru.paths import estimated_clocks
from proof.sass.plan import HOPPER
from tests.support.gru_runs import (
    MATRIX_PATHS,
    SINGLE_PATHS,
    Options,
    assert_as_precise_as_numpy,
    random_layer,
    run_gru,
)
from tests.support.kernel_cases import gru as descriptor

HIDDEN = (1, 7, 31, 32, 33, 64, 65, 100, 112, 128, 129, 192, 256, 400, 512, 600, 700, 1000, 1024, 1536, 2048)
BATCHES = (1, 3, 8, 17, 32, 128)

#: Products of a gate's weights and states in a step at most by matrix instructions, which the emulator takes
#: half a microsecond for. Larger layers have more blocks, chunks and rounds of the same kind.
MOST_MATRIX_PRODUCTS = 1 << 21


@pytest.mark.parametrize("linear_before_reset", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_every_hidden_size(
    hidden: int, dtype: type, linear_before_reset: bool, rng: np.random.Generator
) -> None:
    """The path is that of many steps; two of them are run."""
    options = Options(linear_before_reset=linear_before_reset)
    kind = DataType.FLOAT32 if dtype is np.float32 else DataType.FLOAT16
    for batch in BATCHES:
        desc = descriptor(256, batch, 8, hidden, data_type=kind, linear_before_reset=linear_before_reset)
        clocks = estimated_clocks(layer_of(desc), HOPPER.limits)
        path = min(clocks, key=clocks.__getitem__)
        if path in (*MATRIX_PATHS, *SINGLE_PATHS) and batch * hidden**2 > MOST_MATRIX_PRODUCTS:
            continue
        arrays = random_layer(rng, (2, batch, 8, hidden), options, dtype=dtype)
        with emulator.schedule("forward", warp_lanes=32):
            got = run_gru(emulator.get_device(), arrays, options, path=path, limits=HOPPER.limits)
        assert_as_precise_as_numpy(got, arrays, options)
