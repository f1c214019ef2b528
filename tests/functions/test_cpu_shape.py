"""The kernels for CPUs, through the array functions: chosen by default, with the bits of a GPU's kernels."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from tests.support import assert_identical

#: A call of a function; the last argument is a size of its arrays.
SizedCall = Callable[[np.random.Generator, int], Any]


def _top_k(rng: np.random.Generator, size: int) -> Any:
    return cudml.top_k(rng.integers(0, 50, (7, size, 300)).astype(np.float16), 20)


def _slice(rng: np.random.Generator, size: int) -> Any:
    return cudml.slice(rng.random((4 + size, 40, 30)), (1, 39, 2), (3 + size, 13, 14), (1, -3, 2))


def _reverse(rng: np.random.Generator, size: int) -> Any:
    return cudml.reverse_subsequences(rng.random((size, 50, 3)), rng.integers(0, 60, (size, 1, 3)), 1)


def _gru(rng: np.random.Generator, size: int) -> Any:
    x, w, r = (rng.random(shape, np.float32) for shape in ((3, size, 5), (1, 18, 5), (1, 18, 6)))
    return cudml.gru(x, w, r)


CALLS: dict[str, SizedCall] = {"top_k": _top_k, "slice": _slice, "reverse_subsequences": _reverse}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_both_shapes_give_the_same_bits(call: SizedCall, rng: np.random.Generator) -> None:
    seed = int(rng.integers(2**32))
    results = []
    for lanes in (1, 32):
        with emulator.schedule(warp_lanes=lanes):
            got = call(np.random.default_rng(seed), 5)
        results.append(got if isinstance(got, tuple) else (got,))
    for serial, parallel in zip(*results, strict=True):
        assert_identical(serial, parallel)


def test_a_schedule_is_about_the_kernels_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDML_EMULATOR")
    device = emulator.get_device()
    assert device.limits.warp_lanes == 1
    for options in ({"order": "reverse"}, {"check": True}, {"warp_lanes": 32}):
        with emulator.schedule(**options):
            assert device.limits.warp_lanes == 32
    with emulator.schedule("reverse", warp_lanes=1):
        assert device.limits.warp_lanes == 1


def test_plans_follow_the_schedule() -> None:
    tensor = cudml.TensorDesc(cudml.DataType.FLOAT32, (64, 64))
    desc = cudml.SliceDesc(
        tensor, cudml.TensorDesc(cudml.DataType.FLOAT32, (32, 32)), (0, 0), (32, 32), (2, 2)
    )
    sources = set()
    for lanes in (1, 32, 1):
        with emulator.schedule(warp_lanes=lanes):
            sources.add(cudml.compile_operator(desc, device="cpu").plan.steps[0].source)
    assert len(sources) == 2


@pytest.mark.parametrize("call", [*CALLS.values(), _gru], ids=[*CALLS, "gru"])
def test_planned_calls_follow_the_schedule(
    call: SizedCall, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrays laid out alike have a plan in each shape, and keep it."""
    monkeypatch.setenv("CUDML_PRINT_PLAN", "1")
    kernels = []
    for lanes in (1, 32, 1, 32):
        with emulator.schedule(warp_lanes=lanes):
            call(np.random.default_rng(0), 11)  # a size that no other call has
        kernels.append(re.findall(r"\w+/(\w+)\.cu", capfd.readouterr().err))
    assert kernels[0]
    assert kernels[1]
    assert kernels[0] != kernels[1]
    assert kernels[2:] == [[], []]


def test_without_settings_a_call_takes_the_kernels_of_a_cpu() -> None:
    script = "import numpy, cudml; cudml.slice(numpy.zeros((8, 8)), (0, 1), (4, 4), (2, 1))"
    environment = {name: value for name, value in os.environ.items() if name != "CUDML_EMULATOR"}
    environment["CUDML_PRINT_PLAN"] = "1"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "slice/serial.cu" in done.stderr
