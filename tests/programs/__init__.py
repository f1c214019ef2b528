"""Short programs as users of other libraries write them: each is run with that library and with cudml.

A program is a function whose argument is the library. Both results agree: exactly where a program selects or
moves values, for a GRU within twice the library's own error in the same precision.
"""

from typing import Any

import numpy as np


def assert_agree(ours: Any, theirs: Any, exact: Any = None) -> None:
    """The same structure and types, and equal values; near `exact` where that has an array in float64."""
    if isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple))
        assert len(ours) == len(theirs)
        rows = [None] * len(theirs) if exact is None else exact
        for one, other, right in zip(ours, theirs, rows, strict=True):
            assert_agree(one, other, right)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        assert_agree([*ours.values()], [*theirs.values()], exact)
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if exact is None:
            assert np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind == "f")
        else:
            assert exact.shape == theirs.shape
            own, other = (float(np.abs(one - exact).max()) for one in (ours, theirs))
            assert own <= 2 * other, (own, other)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs
