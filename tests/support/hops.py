"""`python -m tests.support.hops`: the files of cudml that a call of `top_k` goes through, in order.

The first list is for a shape that was never planned, the second for a shape whose plan is found again.
"""

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cudml
from cudml.devices import emulator

PACKAGE = Path(cudml.__file__).parent


def files_of(call: Callable[[], Any]) -> list[str]:
    """The package's files in the order in which a call enters them; equal neighbours count once."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return"):
            entered.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    own = [
        Path(file).relative_to(PACKAGE).as_posix() for file in entered if Path(file).is_relative_to(PACKAGE)
    ]
    return [file for file, _ in groupby(own)]


def main() -> None:
    """Print both lists."""
    with emulator.schedule(warp_lanes=1):
        first, other = (np.zeros((rows, 1000), np.float32) for rows in (64, 65))
        for array in (first, first):  # kernels are loaded, the shape is planned
            cudml.top_k(array, 16)
        for name, array in (("never planned", other), ("found again", first)):
            files = files_of(lambda array=array: cudml.top_k(array, 16))
            print(f"{name}: {len(files) - 1} changes of the file", *files, sep="\n  ")


if __name__ == "__main__":
    main()
