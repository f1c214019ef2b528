"""How many files a call goes through, counted by the interpreter's profiling hook."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from tests.support.function_arrays import INTEGERS, layer

PACKAGE = str(Path(cudml.__file__).parent)

#: The most files that a warm call goes through.
MAX_FILES = 5


def visited(call: Callable[[], Any]) -> list[str]:
    """The files of the package's functions that a call enters, in order."""
    files: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.append(frame.f_code.co_filename.removeprefix(PACKAGE))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def calls() -> dict[str, Callable[[], Any]]:
    """A call of each function with arrays of its own, `gru` with lengths of each type, and a dispatch."""
    rng = np.random.default_rng(0)
    a, lengths = rng.standard_normal((8, 100), np.float32), np.full((8, 1), 3, np.uint32)
    tensor = cudml.TensorDesc(cudml.DataType.FLOAT32, (1, 1, 8, 100))
    counts = cudml.TensorDesc(cudml.DataType.UINT32, (1, 1, 8, 1))
    desc = cudml.ReverseSubsequencesDesc(tensor, counts, tensor, axis=3)
    operator, out = cudml.compile_operator(desc, device="cpu"), np.empty_like(a)
    found: dict[str, Callable[[], Any]] = {
        "top_k": lambda: cudml.top_k(a, 4),
        "slice": lambda: cudml.slice(a, (0, 1), (4, 5)),
        "reverse_subsequences": lambda: cudml.reverse_subsequences(a, lengths),
        "dispatch": lambda: operator.dispatch(
            input_tensor=a, sequence_lengths_tensor=lengths, output_tensor=out
        ),
    }
    arrays = layer(rng, "forward")
    for dtype in INTEGERS:
        given = arrays | {"sequence_lengths": np.ones(arrays["x"].shape[1], dtype)}
        found[f"gru, {dtype}"] = lambda given=given: cudml.gru(**given)
    return found


NAMES = ["top_k", "slice", "reverse_subsequences", "dispatch", *(f"gru, {dtype}" for dtype in INTEGERS)]


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_call_goes_through_few_files(name: str) -> None:
    with emulator.schedule(warp_lanes=1):
        call = calls()[name]
        for _ in range(2):  # planned, then found at these addresses
            call()
        files = visited(call)
    assert files
    # On a CPU, a copy of lengths that need no conversion is in a file of its own.
    assert len(set(files)) <= MAX_FILES + (name == "gru, uint32"), sorted(set(files))
