"""Memory that kernels leave zero: a piece for each stream and captured call, zero before its first use."""

from tests.devices.cuda.stand_in import zeros
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN


def test_calls_on_a_stream_share_a_piece_and_streams_do_not(stand_in: Run) -> None:
    found = stand_in(zeros.addresses_by_stream)
    assert found["first again"] == found["first"]
    assert found["first, then fewer"] == found["first, more"] != found["first"]
    assert found["current second"] == found["second"]
    assert found["legacy"] == found["default"]
    apart = ["first", "first, more", "second", "default", "of this thread", "of another thread"]
    assert len({found[name] for name in apart}) == len(apart)


def test_a_warm_call_only_launches(stand_in: Run) -> None:
    assert stand_in(zeros.calls_of_a_warm_call) == [
        *("streamIsCapturing", "cuStreamGetId"),
        "cuLaunchKernel",
    ]


def test_a_captured_call_has_a_piece_of_its_own(stand_in: Run) -> None:
    """Its replays may run beside calls on the stream, and beside replays of a call with other outputs."""
    found = stand_in(zeros.pieces_of_captured_calls)
    assert found["first again"] == found["first"]
    assert found["stream again"] == found["stream"]
    assert len({found["first"], found["second"], found["stream"]}) == 3
    assert found["fills"] == 0, "they were zero before"


def test_a_graph_sets_zeros_itself_that_no_chunk_had(stand_in: Run) -> None:
    """Only calls that are not captured make a chunk, and wait for it."""
    found = stand_in(zeros.piece_where_nothing_is_left)
    assert found["calls"][-2:] == ["memsetAsync", "cuLaunchKernel"]
    assert "streamSynchronize" not in found["calls"]
    assert found["same"]
    assert found["own"]
