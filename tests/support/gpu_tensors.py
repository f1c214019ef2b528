"""PyTorch's tensors on a GPU, for tests: real ones, or, over the stand-in for CUDA, tensors that claim to be.

PyTorch's own kernels do not run over the stand-in. There, a tensor is one of PyTorch's CPU build whose
address is in the stand-in's memory, which the host cannot touch; it claims to be on a GPU, and cudml's
operators for PyTorch take it for a GPU's tensor. CuPy's kernels replace PyTorch's around cudml's operators,
on PyTorch's current stream.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import numpy as np
import torch

from cudml.devices import cuda
from cudml.torch.calls import planned_calls
from cudml.torch.gru_operator import gru_on_cpu, gru_on_gpu
from cudml.torch.gru_stack_operator import gru_stack_on_cpu, gru_stack_on_gpu
from cudml.torch.topk_operator import topk_on_cpu, topk_on_gpu
from tests.support.capsules import taken_for_bfloat16

#: Memory for all tensors of a test over the stand-in. It is allocated once, like that of PyTorch's graphs.
_ARENA_BYTES = 1 << 24
_ALIGNMENT = 512

#: Tensors of bfloat16 lie in arrays of unsigned integers, because CuPy does not export bfloat16 by DLPack.
_NUMPY_TYPES = {
    **{torch.from_numpy(np.empty(0, kind)).dtype: np.dtype(kind) for kind in "?bBhHiIlLefd"},
    torch.bfloat16: np.dtype(np.uint16),
}


_arange = torch.arange


class Tensors(Protocol):
    """Tensors on a GPU."""

    def on_gpu(self, array: np.ndarray) -> torch.Tensor:
        """A copy of an array on the GPU."""

    def numpy(self, tensor: torch.Tensor) -> np.ndarray:
        """A copy of a tensor, after the work that is queued."""

    def fill(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """Copy a tensor into another one, in the order of PyTorch's current stream."""

    def stream(self) -> AbstractContextManager[int]:
        """A new stream that is PyTorch's current one; gives its handle."""

    def captured(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """The result of a call that PyTorch captures in a graph, and a function that replays the graph."""


class RealTensors:
    """Tensors of PyTorch with CUDA."""

    def on_gpu(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).cuda()

    def numpy(self, tensor: torch.Tensor) -> np.ndarray:
        torch.cuda.synchronize()
        return tensor.cpu().numpy()

    def fill(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        tensor.copy_(source)

    @contextmanager
    def stream(self) -> Iterator[int]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield stream.cuda_stream
        torch.cuda.current_stream().wait_stream(stream)

    def captured(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = call()
        return results, graph.replay


class GpuTensor(torch.Tensor):
    """A tensor that says that it is on the first GPU; `arena` has made it."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    is_cuda, is_cpu = True, False
    device = torch.device("cuda", 0)
    arena: "StandInTensors"

    def get_device(self) -> int:
        return 0

    def new_empty(self, *sizes: Any, dtype: torch.dtype | None = None, **_: Any) -> "GpuTensor":
        shape = tuple(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
        return self.arena.empty(shape, dtype or self.dtype)

    def new_empty_strided(
        self, size: Any, stride: Any, dtype: torch.dtype | None = None, **_: Any
    ) -> "GpuTensor":
        made = self.arena.empty(tuple(size), dtype or self.dtype)
        assert made.stride() == tuple(stride)
        return made

    def view(self, *given: Any) -> "GpuTensor":
        return self.arena.of(super().view(*given))

    def __getitem__(self, places: Any) -> "GpuTensor":
        return self.arena.of(super().__getitem__(places))

    def transpose(self, *given: Any) -> "GpuTensor":
        return self.arena.of(super().transpose(*given))

    def detach(self) -> "GpuTensor":
        return self.arena.of(super().detach())

    def unsqueeze(self, dim: int) -> "GpuTensor":
        return self.arena.of(super().unsqueeze(dim))

    def flatten(self, *given: Any) -> "GpuTensor":
        assert self.is_contiguous()  # else it is a copy
        return self.arena.of(super().flatten(*given))

    def clamp(self, min: Any = None, max: Any = None) -> "GpuTensor":
        return self.arena.computed("clip", self.shape, self.dtype, self, min, max)

    def diff(self) -> "GpuTensor":
        return self.arena.computed("subtract", (self.shape[0] - 1,), self.dtype, self[1:], self[:-1])

    def __add__(self, other: torch.Tensor) -> "GpuTensor":
        shape = torch.broadcast_shapes(self.shape, other.shape)
        return self.arena.computed("add", shape, self.dtype, self, other)

    def index_select(self, dim: int, index: torch.Tensor) -> "GpuTensor":
        assert self.dim() == index.dim() == 1
        return self.arena.computed("take", index.shape, self.dtype, self, index)

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int]) -> Any:
        self.arena.asked.append(stream)
        capsule = self.arena.array(self).__dlpack__(stream=-1, max_version=max_version)
        return taken_for_bfloat16(capsule) if self.dtype is torch.bfloat16 else capsule


class StandInTensors:
    """Tensors in the memory of a stand-in for CUDA, and a current stream of PyTorch.

    Attributes
    ----------
    current : stream
        PyTorch's current stream.
    asked : list of int
        The streams that DLPack was given.
    """

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._arena = cupy.ndarray((_ARENA_BYTES,), np.uint8)
        self._used = 0
        self.current: Any = cupy.cuda.Stream.null
        self.asked: list[int] = []

    def of(self, tensor: torch.Tensor) -> GpuTensor:
        made = tensor.as_subclass(GpuTensor)
        made.arena = self
        return made

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> GpuTensor:
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.numel():
            first = self._used
            self._used += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
            assert self._used <= _ARENA_BYTES
            memory = (ctypes.c_uint8 * tensor.nbytes).from_address(self._arena.data.ptr + first)
            tensor = torch.frombuffer(memory, dtype=dtype).view(shape)
        return self.of(tensor)

    def array(self, tensor: torch.Tensor) -> Any:
        """CuPy's array of a tensor's memory."""
        dtype = _NUMPY_TYPES[tensor.dtype]
        if not tensor.numel():
            return self._cupy.ndarray(tuple(tensor.shape), dtype)
        place = self._arena.data + (tensor.data_ptr() - self._arena.data.ptr)
        strides = [step * dtype.itemsize for step in tensor.stride()]
        return self._cupy.ndarray(tuple(tensor.shape), dtype, place, strides)

    def computed(self, function: str, shape: Any, dtype: torch.dtype, *given: Any) -> GpuTensor:
        """What a function of CuPy writes to a new tensor, on PyTorch's current stream."""
        made = self.empty(tuple(shape), dtype)
        arrays = [self.array(one) if isinstance(one, torch.Tensor) else one for one in given]
        with self.current:
            getattr(self._cupy, function)(*arrays, out=self.array(made))
        return made

    def arange(self, end: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """`torch.arange`, for which CuPy's function takes no array to write to."""
        if device.type == "cpu":
            return _arange(end, dtype=dtype)
        made = self.empty((end,), dtype)
        with self.current:
            self._cupy.ElementwiseKernel("", "T y", "y = i", "arange")(self.array(made))
        return made

    def is_capturing(self) -> bool:
        """`torch.cuda.is_current_stream_capturing`."""
        return bool(self.current.is_capturing())

    def on_gpu(self, array: np.ndarray) -> torch.Tensor:
        made = self.empty(array.shape, torch.from_numpy(array).dtype)
        self.array(made).set(array)
        return made

    def numpy(self, tensor: torch.Tensor) -> np.ndarray:
        self._cupy.cuda.Device().synchronize()
        found: np.ndarray = self.array(tensor).get()
        return found

    def fill(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        with self.current:
            self.array(tensor)[...] = self.array(source)

    def current_stream(self, device: Any = None) -> Any:
        """`torch.cuda.current_stream`."""
        return SimpleNamespace(cuda_stream=self.current.ptr)

    @contextmanager
    def stream(self) -> Iterator[int]:
        before, self.current = self.current, self._cupy.cuda.Stream(non_blocking=True)
        self.current.wait_event(before.record())
        try:
            yield self.current.ptr
            before.wait_event(self.current.record())
        finally:
            self.current = before

    def captured(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        with self.stream():
            stream = self.current
            stream.begin_capture()
            try:
                results = call()
            finally:
                graph = stream.end_capture()

        def replay() -> None:
            stream.wait_event(self.current.record())
            graph.launch(stream)
            self.current.wait_event(stream.record())

        return results, replay


@contextmanager
def tensors() -> Iterator[Tensors]:
    """Tensors on this machine's GPU, or over the stand-in if there is one."""
    if torch.cuda.is_available():
        yield RealTensors()
        return
    assert cuda.status().usable
    made = StandInTensors()
    with ExitStack() as context:
        replaced = (
            (torch.cuda, "current_stream", made.current_stream),
            (torch.cuda, "is_current_stream_capturing", made.is_capturing),
            (torch, "arange", made.arange),
        )
        for where, name, function in replaced:
            context.enter_context(mock.patch.object(where, name, function))
        context.enter_context(taken_for_cuda())
        yield made


@contextmanager
def taken_for_cuda() -> Iterator[None]:
    """A context in which the operators take a `GpuTensor` for a CUDA tensor."""
    library = torch.library.Library("cudml", "IMPL")
    computes = {
        "topk": (topk_on_gpu, topk_on_cpu),
        "gru": (gru_on_gpu, gru_on_cpu),
        "gru_stack": (gru_stack_on_gpu, gru_stack_on_cpu),
    }
    for name, (on_gpu, on_cpu) in computes.items():

        def compute(first: Any, *others: Any, on_gpu: Any = on_gpu, on_cpu: Any = on_cpu) -> Any:
            return (on_gpu if first.is_cuda else on_cpu)(first, *others)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about the kernel that it replaces
            library.impl(name, compute, "CPU", allow_override=True)
    planned_calls.clear()
    try:
        yield
    finally:
        library._destroy()
        planned_calls.clear()
