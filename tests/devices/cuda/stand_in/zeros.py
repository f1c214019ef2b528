"""Memory that kernels leave zero, on the CUDA device over the stand-in; results go back by value."""

import ctypes
import threading
from typing import Any
from unittest import mock

import numpy as np

from cudml.devices.cuda import zeros
from cudml.plans import Plan, Workspace
from tests.devices.cuda.stand_in.cases import SCALE_SIZES, operands, scale_launch, scale_plan, the_stand_in


def plan_with(num_bytes: int) -> Plan:
    """A launch with a temporary piece and one that is left zero."""
    launch = scale_launch(buffers=("a", "scratch", "state"))
    spaces = (Workspace("state", num_bytes, is_left_zero=True), Workspace("scratch", 8))
    return scale_plan(launch, workspaces=spaces)


class Calls:
    """Calls of programs: where their launches had the zeros, and the calls of the driver."""

    def __init__(self) -> None:
        from cudml.devices import cuda

        self.device = cuda.get_device(0)
        self.workspace = self.device.empty((256,), np.uint8)

    def __call__(self, num_bytes: int, stream: Any = None, arrays: Any = None) -> int:
        program = self.device.load(plan_with(num_bytes))
        the_stand_in().record(*SCALE_SIZES)
        program(arrays or operands(self.device), self.workspace, stream)
        (launch,) = the_stand_in().launches()
        scratch, address = (int.from_bytes(argument, "little") for argument in launch.arguments[1:3])
        assert scratch == self.workspace.data.ptr
        assert not any(ctypes.string_at(address, num_bytes))
        return address

    def captured(self, stream: Any, num_bytes: int, arrays: Any = None) -> int:
        """A call while the stream is captured."""
        the_stand_in().set(captured_stream=stream.ptr)
        try:
            return self(num_bytes, stream, arrays)
        finally:
            the_stand_in().set(captured_stream=0)

    def names(self) -> list[str]:
        """The calls of the driver and the runtime by the last call."""
        return [call.split()[0] for call in the_stand_in().calls()]


def addresses_by_stream() -> dict[str, int]:
    """Where calls on several streams have their zeros."""
    import cupy

    call, streams = Calls(), [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    found = {
        "first": call(8, streams[0]),
        "second": call(8, streams[1]),
        "first again": call(200, streams[0]),
        "first, more": call(1000, streams[0]),
        "first, then fewer": call(8, streams[0]),
        "default": call(8),
        "legacy": call(8, 1),
        "of this thread": call(8, 2),
    }
    with streams[1]:
        found["current second"] = call(8)
    thread = threading.Thread(target=lambda: found.update({"of another thread": call(8, 2)}))
    thread.start()
    thread.join()
    return found


def calls_of_a_warm_call() -> list[str]:
    """The calls of the driver and the runtime by a second call."""
    import cupy

    call, stream = Calls(), cupy.cuda.Stream(non_blocking=True)
    call(8, stream)
    call(8, stream)
    return call.names()


def pieces_of_captured_calls() -> dict[str, int]:
    """The addresses of captured calls' zeros, and how often that memory was set to zero."""
    import cupy

    call, stream = Calls(), cupy.cuda.Stream(non_blocking=True)
    arrays = [operands(call.device) for _ in range(2)]
    found = {"stream": call(8, stream), "first": call.captured(stream, 8, arrays[0])}
    found["fills"] = call.names().count("memsetAsync") + call.names().count("streamSynchronize")
    found["first again"] = call.captured(stream, 8, arrays[0])
    found["second"] = call.captured(stream, 8, arrays[1])
    found["stream again"] = call(8, stream)
    return found


def piece_where_nothing_is_left() -> dict[str, Any]:
    """A call captured before any other has cut a chunk: its calls, and which later calls share its zeros."""
    import cupy

    from cudml.devices import cuda

    call, stream = Calls(), cupy.cuda.Stream(non_blocking=True)
    fresh = zeros.Zeros(cupy, 0, call.device.scratch)
    with mock.patch.multiple(cuda.get_device(0)._programs, _zeros=fresh.address, _makers=None):
        arrays = operands(call.device)
        first = call.captured(stream, 8, arrays)
        calls = call.names()
        return {
            "calls": calls,
            "same": call.captured(stream, 8, arrays) == first,
            "own": call(8, stream) != first,
        }
