"""ONNX models: GRU, TopK, ReverseSequence and Slice run by cudml, the rest by ONNX Runtime."""

from cudml.errors import not_installed

try:
    from cudml.onnx.session import Session
except ModuleNotFoundError as error:
    raise not_installed("onnx", "onnx", error) from None

__all__ = ["Session"]
