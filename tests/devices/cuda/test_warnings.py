"""No deprecated part of CuPy is used: its warnings are errors here."""

from tests.devices.cuda.stand_in import warned
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN


def test_arrays_and_streams_of_others_cause_no_warning(stand_in: Run) -> None:
    """The streams that an interface names are waited for, before the work and after it."""
    assert stand_in(warned.errors_where_warnings_are) == {
        "input": ("", 2),
        "output": ("", 2),
        "dlpack": ("", 1),
        "handle": ("", 0),
        "stream": ("", 0),
        "memory": ("", 0),
    }
