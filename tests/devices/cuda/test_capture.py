"""The memory that a call keeps when its stream is captured in a graph, over a stand-in for the driver.

`test_graph_capture.py` tests on a GPU that replays give the right bits.
"""

import pytest

from tests.devices.cuda.stand_in import captured
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN

FOREIGN = "gru into another library's"


@pytest.mark.parametrize("call", captured.CALLS)
def test_memory_of_a_captured_call_is_not_given_away(stand_in: Run, call: str) -> None:
    """A replay writes to all of that memory: scratch, converted arguments and outputs."""
    fate = stand_in(captured.fate_of_memory, call, captured=True)
    assert fate["given"] == 0
    assert (fate["stays"] > 0) == (call == FOREIGN), "it goes with the outputs, where they can be followed"


@pytest.mark.parametrize("call", captured.CALLS)
def test_memory_of_another_call_goes_back_at_its_end(stand_in: Run, call: str) -> None:
    fate = stand_in(captured.fate_of_memory, call, captured=False)
    assert fate["given"] > 0
    assert fate["stays"] == 0


def test_capture_is_asked_for_only_where_there_is_scratch_and_it_can_be(stand_in: Run) -> None:
    calls = stand_in(captured.calls_of_warm_functions)
    num_questions = {name: list_.count("streamIsCapturing") for name, list_ in calls.items()}
    assert num_questions == {"own without": 0, "own with": 1, "default without": 0, "default with": 0}
    assert calls["own without"] == ["cuLaunchKernel"]


def test_captures_of_the_same_outputs_share_their_scratch(stand_in: Run) -> None:
    """Capturing again allocates only what it needs in addition; an earlier graph keeps its memory."""
    seen = stand_in(captured.scratch_of_captures_again)
    assert seen["pieces"] == [1, 0, 0, 0, 1, 0, 0]
    first, larger = seen["places"][0], seen["places"][4]
    assert first != larger
    assert seen["places"] == [first] * 4 + [larger, first, larger]
    assert not seen["stays"]


def test_captures_of_the_same_outputs_share_what_arguments_are_converted_to(stand_in: Run) -> None:
    for name, held in stand_in(captured.conversions_of_captures_again).items():
        assert held == [held[0]] * 7 + [0], name
        assert held[0] > 0, name


@pytest.mark.parametrize("is_captured", [False, True])
def test_captured_calls_have_scratch_of_their_own(stand_in: Run, is_captured: bool) -> None:
    """Their graphs may be replayed at the same time."""
    first, second = stand_in(captured.scratch_of_two_calls, is_captured)
    assert (first != second) == is_captured


def test_a_library_that_captures_keeps_the_scratch_that_it_allocates(stand_in: Run) -> None:
    """It is not tied to the outputs, so the library may use it again for later nodes of the graph."""
    memory = stand_in(captured.scratch_of_another_allocator)
    assert memory["lent"] > 0
    assert memory["alive"] == memory["own"] == 0
