"""Convert streams of any library to streams that CuPy accepts."""

from typing import Any

import numpy as np

from cudml.errors import a_type

#: The handles of CUDA's legacy default stream, which every GPU has.
LEGACY_STREAMS = (0, 1)

#: CuPy's `device_id` of a stream that belongs to every GPU, or to an unknown one.
_ANY_DEVICE = -1

_EXPECTED = "None, a CuPy stream, an object with __cuda_stream__ or an integer handle"


class StreamHandle:
    """The handle of a stream, as CuPy's launches, events and `Stream.from_external` accept it."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


class Streams:
    """Converts streams for the GPU with a number."""

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy_stream = cupy.cuda.Stream
        self._number = number

    def __call__(self, stream: Any) -> Any:
        """An object whose `ptr` is the handle of the stream.

        The GPU of a bare handle is not known; the driver refuses a launch on a stream of another GPU.

        Raises TypeError unless it is a CuPy stream, an object with `__cuda_stream__` or an integer,
        ValueError for a stream of another GPU or a negative handle.
        """
        if type(stream) is int and stream >= 0:  # first, because adapters give one in each call
            return StreamHandle(stream)
        if isinstance(stream, self._cupy_stream):
            self._check_device(stream.device_id)
            return stream
        if isinstance(stream, (int, np.integer)) and not isinstance(stream, (bool, np.bool_)):
            return _handle(int(stream))
        method = getattr(stream, "__cuda_stream__", None)
        if method is None or isinstance(stream, type):
            raise TypeError(f"stream is {a_type(stream)}, must be {_EXPECTED}")
        self._check_device(_number_of(stream))
        # The protocol's version and the handle; only version 0 exists.
        answer = method()
        if (
            not isinstance(answer, tuple)
            or len(answer) != 2
            or not all(isinstance(part, (int, np.integer)) for part in answer)
        ):
            got = f"{a_type(stream)} whose __cuda_stream__() is {answer!r}"
            raise TypeError(f"stream is {got}, must return (0, handle) from it")
        return _handle(int(answer[1]))

    def _check_device(self, number: int | None) -> None:
        if number not in (self._number, _ANY_DEVICE, None):
            raise ValueError(f"stream is one of cuda:{number}, must be one of cuda:{self._number}")


def _handle(ptr: int) -> StreamHandle:
    if ptr < 0:
        raise ValueError(f"stream is the handle {ptr}, must be 0 or more")
    return StreamHandle(ptr)


def _number_of(stream: Any) -> int | None:
    """The number of the GPU of another library's stream, or None if it does not tell."""
    device = getattr(stream, "device", None)
    for holder, name in ((stream, "device_id"), (device, "index"), (device, "device_id")):
        number = getattr(holder, name, None)
        if isinstance(number, (int, np.integer)):
            return int(number)
    return None
