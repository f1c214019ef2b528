"""What CuPy does not bind of the CUDA driver."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cudml.errors import DeviceError

#: Number of `CUstreamCaptureMode`.
_RELAXED = 2


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread do what is kept from it while a stream is captured in a graph, here or elsewhere.

    Only for what no graph contains: making a cuBLAS handle, asking an event. A capture of another mode would
    be invalidated by either.
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
    function = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int
    return function
