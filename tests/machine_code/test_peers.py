"""CuPy's kernels for a reversal, recorded and run as machine code: what they compute with the case's lengths.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from bench import reverse_subsequences
from bench.prediction import peers
from bench.prediction.cases import Untouched
from bench.sources import Source
from proof.sass.compiler import unavailable
from proof.sass.launch import Launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in needs Linux")

#: Four blocks of 128 threads, none left out.
CASE = replace(reverse_subsequences.CASES[0], shape=(3, 20, 8), axis=1)
SEED = 5


def reversed_by_cupy() -> np.ndarray:
    """CuPy's reversal; it needs a process of its own, because the stand-in must load before CuPy."""
    recorder = peers.Recorder()
    inputs = reverse_subsequences.make(CASE, Untouched(recorder.xp, SEED))
    inputs["x"].set(elements())
    steps = recorder.steps(reverse_subsequences.PEERS["cupy"].prepare(CASE, inputs))
    peers.run_all([step for step in steps if isinstance(step, Launch)])
    found: np.ndarray = recorder.result.get()
    return found


def elements() -> np.ndarray:
    """The input, with a number of its own in each place."""
    return np.arange(np.prod(CASE.shape), dtype=np.float32).reshape(CASE.shape)


def test_a_reversal_has_the_lengths_of_the_case() -> None:
    # Not a mark: `unavailable` imports CuPy, which the other process, with this file, must not do.
    if reason := unavailable():
        pytest.skip(reason)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(reversed_by_cupy).result(120)
    inputs = reverse_subsequences.make(CASE, Source(np, SEED)) | {"x": elements()}
    assert np.unique(inputs["sequence_lengths"]).size > 5
    reverse_subsequences.check(CASE, inputs, result)
