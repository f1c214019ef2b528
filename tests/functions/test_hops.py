"""How many files a call goes through, counted by the interpreter's profiling hook."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from tests.devices.cuda.stand_in import cases
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run
from tests.support.function_arrays import INTEGERS, layer
from tests.support.hops import hops_of, hops_of_top_k

#: The most files that a warm call goes through.
MAX_FILES = 5

#: How often a call for a new shape may change the file: on a GPU, and on the CPU, where the schedule of the
#: emulator's threads is looked up in between.
MAX_CHANGES, MAX_CHANGES_ON_CPU = 35, 60

#: Functions of Python that such a call may call, as a multiple of a warm one's.
MAX_CALLS = 20


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
        files = hops_of(call).entered
    assert files
    assert len(set(files)) <= MAX_FILES, sorted(set(files))


def test_a_new_shape_goes_straight_on_the_cpu() -> None:
    with emulator.schedule(warp_lanes=1):
        planned, warm = hops_of_top_k(np)
    assert planned.num_changes <= MAX_CHANGES_ON_CPU, planned.entered
    assert planned.num_calls <= MAX_CALLS * warm.num_calls


class TestCuda:
    pytestmark = NEEDS_STAND_IN

    def test_a_new_shape_goes_straight(self, stand_in: Run) -> None:
        planned, warm = stand_in(cases.hops_of_top_k)
        assert planned.num_changes <= MAX_CHANGES, planned.entered
        assert planned.num_calls <= MAX_CALLS * warm.num_calls
