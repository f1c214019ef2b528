"""CuPy's kernels for a reversal, recorded and run as machine code: what they compute with the case's lengths.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install 'cudml[nvrtc]'`.
"""

import ctypes
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import reverse_subsequences
from bench.prediction import peers
from bench.prediction.cases import Untouched
from bench.sources import Source
from tests.machine_code.compiler import unavailable
from tests.machine_code.sass.launch import Launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is a shared library of Linux")

#: Four blocks of 128 threads, of which none is left out.
CASE = replace(reverse_subsequences.CASES[0], shape=(3, 20, 8), axis=1)
SEED = 5


def reversed_by_cupy(cache_folder: str) -> np.ndarray:
    """In a process of its own, because the stand-in comes before CuPy."""
    os.environ["CUPY_CACHE_DIR"] = cache_folder
    recorder = peers.Recorder()
    inputs = reverse_subsequences.make(CASE, Untouched(recorder.xp, SEED))
    _on_host(inputs["x"])[...] = elements()
    steps = recorder.steps(reverse_subsequences.PEERS["cupy"].prepare(CASE, inputs))
    peers.run_all([step for step in steps if isinstance(step, Launch)])
    return _on_host(recorder.result).copy()


def _on_host(array: Any) -> np.ndarray:
    """The elements of an array over the stand-in, whose memory is the host's."""
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.data.ptr)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def elements() -> np.ndarray:
    """Each its own number."""
    return np.arange(np.prod(CASE.shape), dtype=np.float32).reshape(CASE.shape)


def test_a_reversal_has_the_lengths_of_the_case(tmp_path: Path) -> None:
    # Not a mark: it imports CuPy, which the other process must not.
    if reason := unavailable():
        pytest.skip(reason)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(reversed_by_cupy, str(tmp_path)).result(120)
    inputs = reverse_subsequences.make(CASE, Source(np, SEED)) | {"x": elements()}
    assert np.unique(inputs["sequence_lengths"]).size > 5
    reverse_subsequences.check(CASE, inputs, result)
