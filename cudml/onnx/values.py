"""Values on their way between cudml and ONNX Runtime: arrays and `OrtValue`s that share memory."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from cudml.devices import take
from cudml.devices.exchange import array_at
from cudml.errors import DeviceError
from cudml.locks import import_unforked

#: ONNX Runtime's errors; the classes have no base of their own.
ORT_ERRORS = (
    *(_state.EPFail, _state.Fail, _state.InvalidArgument, _state.InvalidGraph, _state.InvalidProtobuf),
    *(_state.NoSuchFile, _state.NotImplemented, _state.RuntimeException),
)

#: DLPack's handle for a consumer that orders the work itself.
_NO_ORDER = -1

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def also_theirs(kind: type[Exception], error: BaseException | None, text: str) -> Exception:
    """An error of a Python type; also of the type of `error` if that is ONNX Runtime's."""
    if isinstance(error, ORT_ERRORS):
        kind = type(kind.__name__, (kind, type(error)), {})
    return kind(text)


class ModelError(ValueError, _state.InvalidProtobuf):
    """A file or bytes that are not a model; programs that catch ONNX Runtime's error catch this, too."""


class NoFileError(FileNotFoundError, _state.NoSuchFile):
    """A missing file of a model; programs that catch ONNX Runtime's error catch this, too."""


class InputValueError(ValueError, _state.InvalidArgument):
    """A wrong name, shape or place of an input or output; like `ModelError`, also ONNX Runtime's error."""


class InputTypeError(TypeError, _state.InvalidArgument):
    """An input of a wrong type; like `ModelError`, also ONNX Runtime's error."""


class NodeValueError(InputValueError, _state.Fail):
    """A value that a node does not take: ONNX Runtime's nodes raise one of its two errors."""


class NodeTypeError(InputTypeError, _state.Fail):
    """A type that a node does not take."""


@dataclass
class Gpu:
    """The GPU on which cudml and ONNX Runtime run, and the stream that orders their work."""

    cupy: Any
    number: int
    stream: Any

    @staticmethod
    def of(providers: list[tuple[str, dict[str, Any]]], stream: Any) -> "Gpu | None":
        """The GPU of the first provider, whose options then name the stream; None if it is not CUDA's."""
        name, options = providers[0]
        if name != CUDA:
            if stream is not None:
                raise TypeError(
                    f"Session: stream is {stream!r}, must be None where {name} is the first provider"
                )
            return None
        try:
            cupy = import_unforked("cupy")
        except ModuleNotFoundError:
            extras = (
                "pip install 'cudml[cuda13]' or 'cudml[cuda12]', or give providers=['CPUExecutionProvider']"
            )
            raise DeviceError(
                f"Session: {name} is the first of providers, which takes CuPy: {extras}"
            ) from None
        number = int(options.get("device_id", 0))
        with cupy.cuda.Device(number):
            stream = cupy.cuda.Stream(non_blocking=True) if stream is None else stream
        providers[0] = (name, {**options, "device_id": number, "user_compute_stream": str(stream.ptr)})
        return Gpu(cupy, number, stream)

    def device(self) -> AbstractContextManager[Any]:
        """A context in which this GPU is the current one."""
        device: AbstractContextManager[Any] = self.cupy.cuda.Device(self.number)
        return device

    def wait_for_caller(self) -> None:
        """Let the stream wait for the work that the caller has queued on its own current stream."""
        self._order(self.cupy.cuda.get_current_stream(self.number), self.stream)

    def let_caller_wait(self) -> None:
        """Let the caller's current stream wait for the work that is queued on the stream."""
        self._order(self.stream, self.cupy.cuda.get_current_stream(self.number))

    def put(self, array: np.ndarray) -> Any:
        """A copy of an array on the GPU."""
        with self.device(), self.stream:
            return self.cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        """A copy of an array of the GPU, once the work queued on the stream is done."""
        copied: np.ndarray = array.get(stream=self.stream)
        return copied

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of the GPU to another array of the GPU, or to a NumPy array."""
        if isinstance(target, np.ndarray):
            target[...] = self.get(source)
            return
        with self.device(), self.stream:
            target[...] = source

    def _order(self, first: Any, second: Any) -> None:
        if first.ptr != second.ptr:
            with self.device():
                second.wait_event(first.record())


def type_named(name: str) -> onnx.TypeProto:
    """The ONNX type for ONNX Runtime's name of it, such as tensor(float) or seq(tensor(float))."""
    outer, _, inner = name.removesuffix(")").partition("(")
    if outer == "seq":
        return onnx.helper.make_sequence_type_proto(type_named(inner))
    if outer != "tensor":
        raise ValueError(f"a value of {name} goes from one part of the model to another, must be a tensor")
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(inner.upper()), None)


def type_name(kind: onnx.TypeProto) -> str:
    """ONNX Runtime's name of a type, such as tensor(float) or seq(tensor(float)); empty if unknown."""
    if kind.HasField("tensor_type"):
        element = kind.tensor_type.elem_type
        return type_text(element) if element else ""
    if kind.HasField("sparse_tensor_type"):
        return f"sparse_{type_text(kind.sparse_tensor_type.elem_type)}"
    if kind.HasField("sequence_type"):
        return f"seq({type_name(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({type_name(kind.optional_type.elem_type)})"
    if kind.HasField("map_type"):
        key = onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()
        return f"map({key},{type_name(kind.map_type.value_type)})"
    return ""


def type_text(kind: int) -> str:
    """ONNX's text for a tensor of an element type, such as tensor(float)."""
    return f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"


#: ONNX Runtime's names of the types of NumPy's own arrays.
_NUMPY_TYPES = {
    *(f"tensor({kind}int{bits})" for kind in ("", "u") for bits in (8, 16, 32, 64)),
    *("tensor(bool)", "tensor(float16)", "tensor(float)", "tensor(double)", "tensor(string)"),
}


def array_of(value: onnxruntime.OrtValue) -> Any:
    """The array that shares the memory of a value; strings are copied."""
    if not value.is_tensor():
        return value
    # For a value on a CPU, `numpy` gives a writable array, in a fiftieth of the time.
    if value.data_type() in _NUMPY_TYPES and value.device_name() == "cpu":
        return value.numpy()
    taken = take(value._ortvalue)
    if taken is None:
        raise TypeError(f"Session: a value of {value.data_type()} has no DLPack form")
    array = taken[0].array
    return array.view(bool) if value.data_type() == "tensor(bool)" else array


def ort_value(value: Any) -> onnxruntime.OrtValue:
    """The `OrtValue` of an array, in the same memory if the array is packed."""
    if isinstance(value, onnxruntime.OrtValue):
        return value
    array = value if value.flags.c_contiguous else value.copy()
    if not isinstance(array, np.ndarray):
        return shared_value(array.__dlpack__(stream=_NO_ORDER), is_bool=array.dtype == bool)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def shared_value(capsule: Any, *, is_bool: bool) -> onnxruntime.OrtValue:
    """The `OrtValue` of a DLPack capsule's tensor."""
    if hasattr(onnxruntime.OrtValue, "from_dlpack"):  # not in older releases
        return onnxruntime.OrtValue.from_dlpack(capsule)
    return onnxruntime.OrtValue(_state.OrtValue.from_dlpack(capsule, is_bool), None)


def owned_value(value: Any) -> onnxruntime.OrtValue:
    """An `OrtValue` that owns its memory, into which a NumPy array is copied."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return ort_value(value)
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    owned = onnxruntime.OrtValue.ortvalue_from_shape_and_type(value.shape, kind, "cpu", 0)
    array_at(owned.data_ptr(), value.shape, value.dtype)[...] = value
    return owned


def bound_array(address: int, shape: Sequence[int], dtype: np.dtype[Any], gpu: Gpu | None) -> Any:
    """The array at an address, which the caller keeps: NumPy's, or CuPy's on a GPU."""
    if gpu is None:
        return array_at(address, shape, dtype)
    sizes = tuple(map(int, shape))
    num_bytes = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
    memory = gpu.cupy.cuda.UnownedMemory(int(address), max(num_bytes, 1), None, gpu.number)
    return gpu.cupy.ndarray(sizes, dtype, gpu.cupy.cuda.MemoryPointer(memory, 0))
