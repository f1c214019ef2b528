"""A CUDA driver function without a binding in CuPy."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cudml.devices import locks
from cudml.errors import DeviceError

#: Value of `CUstreamCaptureMode`.
_RELAXED = 2


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Allow this thread driver calls that are otherwise forbidden while any thread captures a stream.

    Only for calls that do not belong in a graph: creating a cuBLAS handle, querying an event. In another
    mode, either would invalidate the capture.
    """
    mode = ctypes.c_int(_RELAXED)
    _exchange_mode(mode)
    try:
        yield
    finally:
        _exchange_mode(mode)


def _exchange_mode(mode: ctypes.c_int) -> None:
    status = _exchange_function()(ctypes.byref(mode))
    if status:
        raise DeviceError(f"cuThreadExchangeStreamCaptureMode failed with status {status}")


@cache
def _exchange_function() -> Any:
    with locks.no_fork:
        function = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int
    return function
