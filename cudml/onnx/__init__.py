"""ONNX models: GRU, TopK, ReverseSequence and Slice run by cudml, the rest by ONNX Runtime."""

from cudml.onnx.session import Session

__all__ = ["Session"]
