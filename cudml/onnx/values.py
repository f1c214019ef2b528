"""Values on their way between cudml and ONNX Runtime: arrays and `OrtValue`s that share memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from cudml.devices import take

#: What ONNX Runtime raises; the classes have no base of their own.
ORT_ERRORS = (
    *(_state.EPFail, _state.Fail, _state.InvalidArgument, _state.InvalidGraph, _state.InvalidProtobuf),
    *(_state.NoSuchFile, _state.NotImplemented, _state.RuntimeException),
)

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@dataclass
class Gpu:
    """The GPU on which both run, and the stream that orders their work."""

    cupy: Any
    number: int
    stream: Any

    @staticmethod
    def of(providers: list[Any], stream: Any) -> "Gpu | None":
        """That of the first provider, whose options then name the stream; None if that is not CUDA's."""
        name, options = providers[0] if isinstance(providers[0], tuple) else (providers[0], {})
        if name != CUDA:
            if stream is not None:
                raise TypeError(
                    f"Session: stream is {stream!r}, must be None where {name} is the first provider"
                )
            return None
        import cupy

        number = int(options.get("device_id", 0))
        with cupy.cuda.Device(number):
            stream = cupy.cuda.Stream(non_blocking=True) if stream is None else stream
        providers[0] = (name, {**options, "device_id": number, "user_compute_stream": str(stream.ptr)})
        return Gpu(cupy, number, stream)


def type_named(name: str) -> onnx.TypeProto:
    """The ONNX type for ONNX Runtime's name of it, such as tensor(float) or seq(tensor(float))."""
    outer, _, inner = name.removesuffix(")").partition("(")
    if outer == "seq":
        return onnx.helper.make_sequence_type_proto(type_named(inner))
    if outer != "tensor":
        raise ValueError(f"Session: a value of {name} goes from one part of the model to another")
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(inner.upper()), None)


def array_of(value: onnxruntime.OrtValue) -> Any:
    """The array that shares the memory of a value; strings are copied."""
    if not value.is_tensor() or value.data_type() == "tensor(string)":
        return value.numpy() if value.is_tensor() else value
    taken = take(value._ortvalue)
    if taken is None:
        raise TypeError(f"Session: a value of {value.data_type()} has no DLPack form")
    array = taken[0].array
    return array.view(bool) if value.data_type() == "tensor(bool)" else array


def ort_value(value: Any) -> onnxruntime.OrtValue:
    """What ONNX Runtime takes for a value, in the same memory if it is packed."""
    if isinstance(value, onnxruntime.OrtValue):
        return value
    array = value if value.flags.c_contiguous else value.copy()
    if not isinstance(array, np.ndarray):
        return onnxruntime.OrtValue(_state.OrtValue.from_dlpack(array.toDlpack(), array.dtype == bool), None)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
