"""RAFT's top-k, its host code over the stand-in for the CUDA runtime: exact results, and times as recorded.

Skipped where RAFT, NVRTC, nvdisasm or nvcc is not installed: `pip install --group nvrtc --group peers`. The
first run compiles RAFT's templates, which takes minutes.
"""

import ctypes

import pytest

from bench import native, top_k
from bench.prediction import native_peers
from proof.runtime import library as stand_in
from proof.sass.compiler import unavailable

WHY = unavailable() or stand_in.unavailable() or native.unavailable(native.LIBRARIES["raft"])
pytestmark = pytest.mark.skipif(WHY is not None, reason=f"RAFT: {WHY}")

RAFT = "raft.select_k"
OF_NAME = {case.name: case for case in top_k.CASES}
RECORDED = native_peers.read()


@pytest.mark.parametrize(
    "name",
    [
        "latency 1 x 1000 k 5 float32",  # warps sort
        "language model 1 x 32000 k 50 float16",  # two passes of them
        "whole rows 16 x 2000 k 2000 float32",  # by digits, and a sort of CUB's
    ],
)
def test_results_are_exact_and_times_as_recorded(name: str) -> None:
    row = native_peers.predicted(OF_NAME[name], RAFT)
    assert row is not None
    assert row.note == ""
    assert native_peers.differences(RECORDED, [row]) == []


def test_a_sort_with_items_that_are_not_there() -> None:
    """CUB's radix sort stores registers that nobody wrote."""
    row = native_peers.predicted(top_k.TopKCase(name="", num_rows=2, row_length=20160, k=1000), RAFT)
    assert row is not None
    assert row.note == ""


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes its workspace from the loaded runtime, and gives it back."""
    recorder = native_peers.Recorder()
    memory = recorder.runtime._memory
    library = native_peers.loaded("raft")
    library.raft_resources.restype = ctypes.c_void_p
    a = recorder.runtime.empty((16, 2000), "float32")
    a[...] = 1
    values, indices = recorder.runtime.empty(a.shape, "float32"), recorder.runtime.empty(a.shape, "int64")
    taken, before = [], len(memory)
    allocate = recorder.runtime.empty

    def noted(*given: object) -> object:
        taken.append(given)
        return allocate(*given)

    monkeypatch.setattr(recorder.runtime, "empty", noted)
    arguments = [ctypes.c_void_p(library.raft_resources())]
    arguments += [ctypes.c_void_p(array.ctypes.data) for array in (a, values, indices)]
    counts = [ctypes.c_int64(count) for count in (16, 2000, 2000)]
    assert library.raft_select_k_float32(*arguments, *counts, 1, None) == 0
    assert recorder.runtime.error() is None
    assert len(taken) > 1
    assert len(memory) == before
