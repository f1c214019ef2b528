"""Ranking by buckets of keys: numbers of both signs, whose keys are mostly near zero."""

from dataclasses import replace

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import Options, check_top_k

LENGTH = 1300


def _spreads(rng: np.random.Generator) -> dict[str, np.ndarray]:
    normal = rng.standard_normal(LENGTH)
    exponents = rng.uniform(-13, 13, LENGTH)
    return {
        "normal": normal,
        "any magnitude": np.sign(normal) * 2**exponents,
        "few negative": np.where(rng.random(LENGTH) < 0.01, -1, 1) * np.abs(normal),
        "zeros of both signs": np.where(rng.random(LENGTH) < 0.4, normal, np.copysign(0, normal)),
        "not negative": np.maximum(normal, 0),
        "not positive": np.minimum(normal, 0),
        "with NaNs": np.where(rng.random(LENGTH) < 0.1, np.nan, normal),
    }


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "int32", "int64"])
@pytest.mark.parametrize("path", ["cluster", "block_keep", "groups"])
def test_numbers_of_both_signs(path: str, dtype: str, largest: bool, rng: np.random.Generator) -> None:
    for values in _spreads(rng).values():
        x = np.nan_to_num(values * 1000).astype(dtype) if "int" in dtype else values.astype(dtype)
        for k in (60,) if path == "groups" else (60, 640, 700, 1250, LENGTH):
            check_top_k(emulator.get_device(), x[None], Options(k, path=path, largest=largest))


def _compared_bytes(x: np.ndarray, options: Options) -> int:
    """Bytes read from shared storage, mostly those of elements that are compared."""
    with cudml.emulator_report() as report:
        check_top_k(emulator.get_device(), x, options, replace(GPU, num_multiprocessors=1))
    return sum(launch.shared.bytes_read for launch in report.launches)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("path", ["cluster", "block_keep"])
def test_numbers_near_zero_fill_no_bucket(path: str, dtype: str, rng: np.random.Generator) -> None:
    """Numbers of both signs are compared with about as few others as those of one sign."""
    x = rng.standard_normal((1, LENGTH)).astype(dtype)
    of_one_sign = _compared_bytes(np.abs(x), Options(1000, path=path))
    assert _compared_bytes(x, Options(1000, path=path)) < 1.5 * of_one_sign
