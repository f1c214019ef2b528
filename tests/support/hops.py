"""What a call goes through in Python, counted by the interpreter's profiling hook."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import cudml

PACKAGE = str(Path(cudml.__file__).parent)


class Hops(NamedTuple):
    """The files of the package's functions that a call enters, in order; how often the file changes, on the
    way in or back; and how many functions of Python are called, the package's or others'."""

    entered: list[str]
    num_changes: int
    num_calls: int


def hops_of(call: Callable[[], Any]) -> Hops:
    """Make a call once, and count."""
    events: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return"):
            events.append((event, frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    own = [(event, file.removeprefix(PACKAGE)) for event, file in events if file.startswith(PACKAGE)]
    return Hops(
        [file for event, file in own if event == "call"],
        sum(former != file for (_, former), (_, file) in pairwise(own)),
        sum(event == "call" for event, _ in events),
    )


def hops_of_top_k(xp: Any) -> tuple[Hops, Hops]:
    """A call of `top_k` for arrays of a new shape, whose kernel is loaded, and a warm one; `xp` is an array
    library."""
    import numpy as np

    first, later = (xp.ndarray((rows, 1000), np.float32) for rows in (64, 65))
    for array in (first, first):
        cudml.top_k(array, 16)
    return hops_of(lambda: cudml.top_k(later, 16)), hops_of(lambda: cudml.top_k(first, 16))
