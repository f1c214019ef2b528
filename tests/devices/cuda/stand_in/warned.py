"""Calls on other libraries' arrays and streams with CuPy's warnings made errors, over the stand-in."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.devices.cuda.stand_in.cases import the_stand_in
from tests.devices.cuda.stand_in.shared import OTHER_STREAM, WithDlpack, WithInterface


class OtherStream:
    """A stream of another library."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, OTHER_STREAM


def errors_where_warnings_are() -> dict[str, tuple[str, int]]:
    """The error of each call, and how often it waited for an event."""
    import cupy

    import cudml
    from cudml.devices import cuda

    array, out = cupy.ndarray((4, 6), np.float32), cupy.ndarray((4, 6), np.float32)
    turned = (3, 5), (4, 6), (-1, -1)
    calls: dict[str, Callable[[], Any]] = {
        "input": lambda: cudml.slice(WithInterface(array, OTHER_STREAM), *turned),
        "output": lambda: cudml.slice(array, *turned, out=WithInterface(out, OTHER_STREAM)),
        "dlpack": lambda: cudml.slice(WithDlpack(array), *turned),
        "handle": lambda: cudml.slice(array, *turned, stream=OTHER_STREAM),
        "stream": lambda: cudml.slice(array, *turned, stream=OtherStream()),
        "memory": lambda: cuda.get_device().empty((4,), np.uint8, OtherStream()),
    }
    found = {}
    for name, call in calls.items():
        the_stand_in().record()
        message = ""
        with warnings.catch_warnings(), cupy.cuda.Stream(non_blocking=True):
            warnings.simplefilter("error")
            try:
                call()
            except Warning as warning:
                message = f"{type(warning).__name__}: {warning}"
        waits = [line for line in the_stand_in().calls() if line.startswith("streamWaitEvent")]
        found[name] = message, len(waits)
    return found
