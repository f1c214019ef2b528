"""Streams of several libraries given to the CUDA device over the stand-in; results go back by value."""

import types
from typing import Any

import numpy as np

from tests.devices.cuda.stand_in.cases import operands, scale_plan, the_stand_in


def streams_of_launches() -> dict[str, tuple[int, int]]:
    """(the stream's handle, the stream that the launch was given) for every way to name a stream."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(0)
    program = device.load(scale_plan())
    arrays = operands(device)
    stream = cupy.cuda.Stream(non_blocking=True)
    protocol = types.SimpleNamespace(__cuda_stream__=lambda: (0, 0x7000))
    found = {}
    for name, handle, given in (
        ("none", 0, None),
        ("cupy", stream.ptr, stream),
        ("external", stream.ptr, cupy.cuda.Stream.from_external(stream)),
        ("integer", 0x7010, 0x7010),
        ("numpy integer", 0x7010, np.int64(0x7010)),
        ("null", 0, cupy.cuda.Stream.null),
        ("of no known device", 0x7020, cupy.cuda.ExternalStream(0x7020)),
        ("of cuda:0", 0x7020, cupy.cuda.ExternalStream(0x7020, 0)),
        ("protocol", 0x7000, protocol),
    ):
        the_stand_in().record()
        program(arrays, None, given)
        found[name] = handle, the_stand_in().launches()[0].stream
    the_stand_in().record()
    with stream:
        program(arrays, None)
    found["current"] = stream.ptr, the_stand_in().launches()[0].stream
    return found


def refused_streams() -> dict[str, tuple[str, int]]:
    """The errors for objects that are not streams of cuda:0, with the number of launches."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(0)
    program = device.load(scale_plan())
    with cupy.cuda.Device(1):
        elsewhere = cupy.cuda.Stream(non_blocking=True)
    candidates = {
        "text": "stream 1",
        "bool": True,
        "event": cupy.cuda.Event(),
        "array": cupy.ndarray((1,), np.int64),
        "class": cupy.cuda.Stream,
        "negative": -1,
        "no pair": types.SimpleNamespace(__cuda_stream__=lambda: 0x7000),
        "text in pair": types.SimpleNamespace(__cuda_stream__=lambda: (0, "x")),
        "cupy's of cuda:1": elsewhere,
        "external of cuda:1": cupy.cuda.ExternalStream(0x7000, 1),
        "torch's of cuda:1": types.SimpleNamespace(
            __cuda_stream__=lambda: (0, 0x7000), device=types.SimpleNamespace(type="cuda", index=1)
        ),
        "cuda.core's of cuda:1": types.SimpleNamespace(
            __cuda_stream__=lambda: (0, 0x7000), device=types.SimpleNamespace(device_id=1)
        ),
    }
    found = {}
    for name, candidate in candidates.items():
        the_stand_in().record()
        try:
            program(operands(device), None, candidate)
            message = ""
        except (TypeError, ValueError) as error:
            message = f"{type(error).__name__}: {error}"
        found[name] = message, len(the_stand_in().launches())
    return found


def streams_of_allocations() -> list[int]:
    """The stream that is current while memory is taken, for every way to name a stream."""
    import cupy

    from cudml.devices import cuda

    seen = []

    def allocate(size: int) -> Any:
        seen.append(cupy.cuda.get_current_stream().ptr)
        return pool.malloc(size)

    pool = cupy.get_default_memory_pool()
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocate)
    try:
        for stream in (None, 0x7030, _Handle(0x7040), cupy.cuda.Stream.from_external(_Handle(0x7050))):
            cuda.get_device(0).empty((4,), np.uint8, stream)
    finally:
        cupy.cuda.set_allocator(before)
    return seen


class _Handle:
    """A stream of another library, which is also a context, of that library's own."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle
