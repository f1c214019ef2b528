"""CUDA driver functions without a binding in CuPy."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cudml import locks
from cudml.errors import DeviceError

#: Value of `CUstreamCaptureMode`.
_RELAXED = 2
#: Value of `CUlaunchAttributeID`.
_CLUSTER_DIMENSION = 4
#: Value of `CUresult`.
_INVALID_CLUSTER_SIZE = 912


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


def stream_id(handle: int) -> int:
    """The number of a stream, which no other stream of the process ever has; handles are reused.

    Handle 2, the per-thread default stream, has one number for each calling thread.
    """
    number = ctypes.c_ulonglong()
    _call("cuStreamGetId", handle, ctypes.byref(number))
    return number.value


class _LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`; the value is a union of 64 bytes, here of three numbers."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


def max_active_clusters(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    cluster_blocks: int,
) -> int:
    """How many clusters of a launch the current GPU can run at once; the function is a driver's handle."""
    attribute = _LaunchAttribute(_CLUSTER_DIMENSION, 0, (cluster_blocks, 1, 1))
    config = _LaunchConfig(grid, block, shared_bytes, None, ctypes.pointer(attribute), 1)
    number = ctypes.c_int()
    try:
        _call("cuOccupancyMaxActiveClusters", ctypes.byref(number), function, ctypes.byref(config))
    except _StatusError as error:
        if error.status == _INVALID_CLUSTER_SIZE:  # no part of the GPU is as large as a cluster
            return 0
        raise
    return number.value


def _exchange_mode(mode: ctypes.c_int) -> None:
    _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


#: The functions' argument types.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuOccupancyMaxActiveClusters": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "cuStreamGetId": (ctypes.c_void_p, ctypes.c_void_p),
    "cuThreadExchangeStreamCaptureMode": (ctypes.c_void_p,),
}


class _StatusError(DeviceError):
    """A function of the driver failed with this value of `CUresult`."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} failed with status {status}")
        self.status = status


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raises DeviceError if it fails."""
    status = _function(name)(*arguments)
    if status:
        raise _StatusError(name, status)


@cache
def _function(name: str) -> Any:
    with locks.no_fork:
        function = ctypes.CDLL("libcuda.so.1")[name]
    function.argtypes, function.restype = _ARGUMENTS[name], ctypes.c_int
    return function
