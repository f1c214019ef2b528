"""Arrays of other libraries on a GPU, and streams for the array functions, over a stand-in for the driver.

What runs in the stand-in's process is in `stand_in/shared.py`.
"""

import importlib.util
from typing import Any

import pytest

from tests.devices.cuda.stand_in import shared
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN


def test_arrays_are_worked_on_where_they_are(stand_in: Run) -> None:
    """Nothing is copied to the current GPU, and an output is the memory that was given."""
    seen = stand_in(shared.on_another_device)
    assert seen["is out"]
    assert seen["copies"] == [copy for copy in seen["copies"] if copy.startswith("malloc")]
    # The first element is 92 bytes after `a`; the pointer moves by 92 bytes less their alignment, 4.
    start = seen["a"] + 92 - 4
    assert seen["launches"][-2:] == [(1, [start, seen["turned"][0]]), (1, [start, seen["out"]])]
    assert all(device == 1 for device, _ in seen["launches"])
    assert seen["turned"][1] == 1
    assert seen["converted on"] == [1]
    assert seen["current"] == 0


def test_read_only_memory_is_refused_as_an_output(stand_in: Run) -> None:
    refused = ("", "slice: out is read-only, must be writable", 1)
    taken = ("", "", 2)
    assert stand_in(shared.read_only_arrays) == {
        "interface": refused,
        "dlpack": refused,
        "old dlpack": refused,
        "old dlpack with interface": refused,
        "writable interface": taken,
        "writable dlpack": taken,
        "writable old dlpack with interface": taken,
    }


#: (array, current stream) -> the steps in order, and the streams that DLPack is asked for.
ORDERS: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("interface", "default"): (
        [
            "record other's",
            "default waits for all of other's",
            "work on default",
            "record default",
            "other's waits for all of default",
        ],
        [],
    ),
    ("interface", "own"): (
        [
            "record other's",
            "own waits for all of other's",
            "work on own",
            "record own",
            "other's waits for all of own",
        ],
        [],
    ),
    ("out", "own"): (
        [
            "record other's",
            "own waits for all of other's",
            "work on own",
            "record own",
            "other's waits for all of own",
        ],
        [],
    ),
    ("interface", "other's"): (["work on other's"], []),
    ("interface without a stream", "own"): (
        ["work on own", "record own", "default waits for all of own"],
        [],
    ),
    ("dlpack", "own"): (["work on own", "record own", "default waits for all of own"], ["own"]),
    ("dlpack", "default"): (["work on default"], ["default"]),
    ("torch", "own"): (["work on own", "record own", "other's waits for all of own"], ["own"]),
    ("torch", "other's"): (["work on other's"], ["other's"]),
    ("torch", "default"): (
        ["work on default", "record default", "other's waits for all of default"],
        ["default"],
    ),
    ("dlpack out", "own"): (["work on own", "record own", "default waits for all of own"], ["own"]),
    ("dlpack out", "default"): (["work on default"], ["default"]),
    ("torch out", "other's"): (["work on other's"], ["other's"]),
}


@pytest.mark.parametrize("is_argument", [False, True], ids=["current", "argument"])
@pytest.mark.parametrize(("what", "own"), ORDERS, ids=[f"{what} on {own}" for what, own in ORDERS])
def test_work_is_ordered_with_the_stream_of_the_other_library(
    stand_in: Run, what: str, own: str, is_argument: bool
) -> None:
    """Only events order the call, after earlier and before later work; the host waits for nothing."""
    steps, asked = ORDERS[what, own]
    seen = stand_in(shared.order_of_streams, what, own, is_argument=is_argument)
    assert seen == {"steps": steps, "asked": asked}


@pytest.mark.parametrize("is_argument", [False, True], ids=["current", "argument"])
@pytest.mark.parametrize("what", ["interface", "dlpack", "torch", "out"])
def test_captured_work_is_ordered_by_the_graph(stand_in: Run, what: str, is_argument: bool) -> None:
    """An event of another stream would invalidate the capture."""
    seen = stand_in(shared.order_of_streams, what, "own", captured=True, is_argument=is_argument)
    assert seen == {"steps": ["work on own"], "asked": [] if what in ("interface", "out") else ["none"]}


@pytest.mark.parametrize("on", ["the default stream", "a current stream", "a stream", "a handle"])
def test_calls_with_outputs_and_streams_are_found(stand_in: Run, on: str) -> None:
    found = stand_in(shared.calls_that_are_found, on)
    assert found == dict.fromkeys(found, (True, True))


@pytest.mark.parametrize(("how", "counts"), [("interface", [1, 2, 1, 0]), ("dlpack", [1, 2, 1, 1])])
def test_memory_is_held_until_the_work_on_it_is_done(stand_in: Run, how: str, counts: list[int]) -> None:
    """Two arrays are held, and the third call releases them; memory ordered by its own stream is not held."""
    assert stand_in(shared.memory_that_is_held, how) == counts


def test_memory_is_held_on_the_default_stream_without_an_event_for_each_call(stand_in: Run) -> None:
    """The last array is held, and any other until the work on it is done."""
    assert stand_in(shared.memory_that_is_held_on_the_default_stream) == [1, 1, 2, 1]


def test_arrays_of_others_find_the_call_that_was_planned(stand_in: Run) -> None:
    found = stand_in(shared.warm_calls_of_others)
    assert len(found) == 12
    assert all(found.values()), found


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("handle", [0, shared.OTHER_STREAM], ids=["default", "own"])
def test_a_warm_call_of_pytorch_is_one_launch_on_its_stream(stand_in: Run, handle: int) -> None:
    """Over the stand-in the tensors only say that they are on a GPU; nothing asks them for DLPack."""
    asked = ["streamIsCapturing"] if handle else []
    expected = {"calls": [*asked, "cuLaunchKernel"], "is right": True, "asked": []}
    assert stand_in(shared.calls_of_torch, handle) == expected


def test_objects_that_do_not_keep_to_the_protocol_are_reported(stand_in: Run) -> None:
    told = stand_in(shared.refused_objects)
    expected = (
        "must be a NumPy array, a CuPy array or an object that shares memory of a CPU or a GPU as they do"
    )
    problems = {
        "mask": "with a mask",
        "order": "of dtype >f4, which no GPU reads",
        "stream 0": "whose __cuda_array_interface__ has an int 0 for a stream",
        "host": "at address 0x1000, which is in no GPU's memory",
        "no data": "whose __cuda_array_interface__ cannot be read (KeyError: 'data')",
        "strides": "of shape (4, 6) and strides (4,), which are not of one length",
    }
    assert told == {
        name: f"slice: a is a types.SimpleNamespace {problem}, {expected}"
        for name, problem in problems.items()
    }


def test_every_layout_is_shared_without_a_copy(stand_in: Run) -> None:
    for name, facts in stand_in(shared.taken_layouts).items():
        assert facts == (True,) * 5, name


@pytest.mark.parametrize("how", ["cupy", "protocol", "handle"])
def test_functions_work_on_the_stream_that_is_given(stand_in: Run, how: str) -> None:
    """Work, results and scratch are in its order, on the arrays' GPU; the current stream and GPU stay."""
    current_stream = current_device = 0
    seen: dict[str, Any] = stand_in(shared.calls_on_a_stream, how)
    right = (True, True, 1, current_stream, current_device)
    assert seen == dict.fromkeys(["top_k", "slice", "reverse_subsequences", "gru"], right)


def test_functions_refuse_invalid_streams(stand_in: Run) -> None:
    expected = "None, a CuPy stream, an object with __cuda_stream__ or an integer handle"
    assert stand_in(shared.refused_streams_of_functions) == {
        "event": f"TypeError: top_k: stream is a cupy.cuda.stream.Event, must be {expected}",
        "elsewhere": "ValueError: top_k: stream is one of cuda:1, must be one of cuda:0",
    }
