"""A stream with the handle of a destroyed stream shares no counters with it: its kernels may still run."""

from tests.devices.cuda.stand_in import renewed_streams
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN


def test_stream_with_the_handle_of_a_destroyed_one_has_zeros_of_its_own(stand_in: Run) -> None:
    found = stand_in(renewed_streams.pieces_of_a_renewed_handle)
    former, handle = found["handles"]
    assert former == handle, "the stand-in gives a handle again"
    first, second, again = found["pieces"]
    assert first != second == again


def test_thread_with_the_number_of_a_former_one_has_zeros_of_its_own(stand_in: Run) -> None:
    found = stand_in(renewed_streams.pieces_of_renewed_threads)
    assert len(set(found["threads"])) < len(found["threads"]), "Python gives a thread's number again"
    assert len(set(found["pieces"])) == len(found["pieces"])
