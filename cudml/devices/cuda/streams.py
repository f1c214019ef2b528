"""Streams of any library, as CuPy takes them."""

from typing import Any

from cudml.errors import a_type


class _StreamHandle:
    """The integer handle of a stream, as CuPy's launch and `Stream.from_external` take it."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def as_stream(stream: Any) -> Any:
    """Something with the handle of a stream in `ptr`, from CuPy's, another library's, or an integer."""
    if hasattr(stream, "ptr"):
        return stream
    if isinstance(stream, int) and not isinstance(stream, bool):
        return _StreamHandle(stream)
    if hasattr(stream, "__cuda_stream__"):
        return _StreamHandle(int(stream.__cuda_stream__()[1]))
    raise TypeError(
        f"stream is {a_type(stream)}, must be None, a CuPy stream, an object with __cuda_stream__ "
        "or an integer handle"
    )
