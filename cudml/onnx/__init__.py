"""ONNX models: GRU, TopK, ReverseSequence and Slice run by cudml, the rest by ONNX Runtime.

`import cudml.onnx as onnxruntime` is enough for a program of ONNX Runtime: `InferenceSession` is `Session`,
and every other name is the one of `onnxruntime`.
"""

from typing import Any

from cudml.errors import not_installed

try:
    import onnxruntime

    from cudml.onnx.binding import IOBinding
    from cudml.onnx.session import Session
except ModuleNotFoundError as error:
    raise not_installed("onnx", "onnx", error) from None

__all__ = ["IOBinding", "InferenceSession", "Session"]

InferenceSession = Session


def __getattr__(name: str) -> Any:
    if name.startswith("__") or not hasattr(onnxruntime, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, nor has onnxruntime")
    return getattr(onnxruntime, name)
