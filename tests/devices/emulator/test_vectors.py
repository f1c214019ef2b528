"""Vectors of floats on the CPU: their functions against float64, and their lanes."""

import re
from typing import Any

import numpy as np
import pytest

from cudml.devices import emulator, sources
from tests.devices.emulator.support import launch
from tests.support import assert_identical
from tests.support.params import params_of

NUM = 1 << 20

#: The largest error that is allowed, in units in the last place.
MOST_UNITS = 3.0

FUNCTIONS: dict[str, Any] = {
    "exponential": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hyperbolic_tangent": np.tanh,
}


def run(x: np.ndarray, *, check: bool = False) -> np.ndarray:
    out = np.zeros((4, x.size), np.float32)
    with emulator.schedule(check=check):
        launch(
            "vectors.cu",
            "vector_functions",
            {"x": x, "out": out},
            params_of(num_items=("Int64", x.size)),
            block=1,
        )
    return out


def inputs(rng: np.random.Generator) -> np.ndarray:
    """Every magnitude with random bits, and many numbers of the size that gates have."""
    x = rng.integers(0, 2**32, NUM, np.uint32).view(np.float32)
    x[: NUM // 2] = rng.normal(0, 4, NUM // 2)
    x[NUM // 2 : NUM * 5 // 8] = rng.uniform(-110, 95, NUM // 8)
    corners = (0.0, -0.0, 1e-45, -1e-45, 1e-38, 0.34657359, -0.34657359, 1e30, -1e30, np.inf, -np.inf, np.nan)
    x[: len(corners)] = corners
    return x


@np.errstate(all="ignore")
@pytest.mark.parametrize(("row", "name"), list(enumerate(FUNCTIONS)))
def test_functions_are_within_three_units_in_the_last_place(
    row: int, name: str, rng: np.random.Generator
) -> None:
    x = inputs(rng)
    got = run(x)[row]
    exact = FUNCTIONS[name](x.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    rounded = exact.astype(np.float32)
    special = np.isnan(x) | np.isinf(rounded)
    np.testing.assert_array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
    # Results below the smallest normal number may be 0.
    tiny = np.finfo(np.float32).tiny
    unit = np.where(abs(rounded) < tiny, tiny, np.spacing(abs(rounded)))[~special]
    error = abs(got[~special] - exact[~special]) / unit
    worst = int(np.argmax(error))
    assert error[worst] <= MOST_UNITS, f"{error[worst]:.2f} units at {x[~special][worst]!r}"


@np.errstate(all="ignore")
def test_sign_of_zero_and_fused_products(rng: np.random.Generator) -> None:
    x = inputs(rng)
    out = run(x)
    np.testing.assert_array_equal(np.signbit(out[2]), np.signbit(x))
    wide = x.astype(np.float64)
    # The product of two floats is exact in float64, and so is their sum if the exponents are similar.
    alike = (abs(x) > 1e-3) & (abs(x) < 1e3)
    assert_identical(out[3][alike], (wide * wide + wide).astype(np.float32)[alike])


def test_columns_of_rows(rng: np.random.Generator) -> None:
    num_columns, stride = 24, 29
    x, out = rng.standard_normal((16, stride), np.float32), np.zeros(16 * num_columns + 1, np.float32)
    params = params_of(num_columns=("Int64", num_columns), stride=("Int64", stride))
    launch("vectors.cu", "transposed", {"x": x, "out": out}, params, block=1)
    lanes = int(out[lanes_at := out.nonzero()[0][-1]])
    assert lanes in (4, 8, 16)
    assert lanes_at == lanes * num_columns
    assert_identical(out[:lanes_at], np.ascontiguousarray(x[:lanes, :num_columns].T).ravel())


def test_lanes_change_no_bits(rng: np.random.Generator) -> None:
    """Code of check mode is compiled for the baseline CPU, with vectors of its size."""
    x = inputs(rng)[:4096]
    assert_identical(run(x), run(x, check=True))


@pytest.mark.parametrize(("name", "at_least"), [("vectors", 9), ("tiles", 4)])
def test_the_twin_has_the_functions_of_the_device_header(name: str, at_least: int) -> None:
    pattern = re.compile(r"__device__ __forceinline__ (\w+) (\w+)\(")
    header = f"common/{name}.cuh"
    device = set(pattern.findall((sources.kernel_root() / header).read_text()))
    twin = set(pattern.findall((emulator.build.SIMT / "overlay" / header).read_text()))
    assert len(device) >= at_least
    assert device <= twin
