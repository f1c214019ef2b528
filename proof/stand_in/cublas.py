"""cuBLAS by NumPy, as the library that CuPy's binding is linked with.

It multiplies single and half precision with sums in single precision; where TF32 is allowed, it rounds the
operands to TF32.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cudml.devices.emulator.library_steps import as_tf32
from proof.stand_in import binding
from proof.stand_in.errors import CudaFailure
from proof.stand_in.memory import Allocation
from proof.stand_in.runtime import Runtime
from proof.stand_in.streams import Handles

_FIRST_HANDLE = 0x2000_0000

# Values of `cublasStatus_t`.
_NOT_INITIALIZED, _INVALID_VALUE, _EXECUTION_FAILED, _NOT_SUPPORTED = 1, 7, 13, 15

# Values of `cublasOperation_t`, `cudaDataType`, `cublasComputeType_t`, `cublasMath_t`, `cublasPointerMode_t`.
_OP_N, _OP_T = 0, 1
#: Types of a, b and c.
_KNOWN_TYPES = ((0, 0, 0), (2, 2, 0), (2, 2, 2), (14, 14, 0))
_TYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16)}
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_TF32_MATH = 3
_HOST_POINTERS = 0

_WORKSPACE_ALIGNMENT = 256

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class _Refused(Exception):  # noqa: N818
    """A call that cuBLAS refuses, with its status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(eq=False)
class _Handle:
    device: int
    stream: int = 0
    math_mode: int = 0
    pointer_mode: int = _HOST_POINTERS
    workspace: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _Matrix:
    """A column-major matrix in memory of a GPU; `pitch` is the elements from column to column."""

    name: str
    address: int
    dtype: np.dtype[Any]
    rows: int
    columns: int
    pitch: int

    def check(self) -> None:
        if self.pitch < max(1, self.rows):
            raise _Refused(
                _INVALID_VALUE,
                f"the leading dimension of {self.name} is {self.pitch}, its rows are {self.rows}",
            )
        if self.address % self.dtype.itemsize:
            raise _Refused(_EXECUTION_FAILED, f"{self.name} is at {self.address:#x}, not at whole elements")

    def elements(self, runtime: Runtime) -> np.ndarray:
        """A view; raises CudaFailure where it leaves the allocation."""
        if not self.rows or not self.columns:
            return np.empty((self.rows, self.columns), self.dtype)
        count = self.pitch * (self.columns - 1) + self.rows
        if runtime.memory.find(self.address) is None:
            raise _Refused(_EXECUTION_FAILED, f"{self.name} is at {self.address:#x}, no memory of a GPU")
        flat = runtime.memory.view(self.address, count * self.dtype.itemsize).view(self.dtype)
        strides = self.dtype.itemsize, self.pitch * self.dtype.itemsize
        return np.lib.stride_tricks.as_strided(flat, (self.rows, self.columns), strides)


class Cublas:
    """cuBLAS's functions on the runtime's GPUs; handles, addresses and places of results are integers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._handles = Handles(_FIRST_HANDLE, "handle of cuBLAS")
        self._own_workspaces: dict[tuple[_Handle, int], Allocation] = {}

    def functions(self) -> dict[str, tuple[Sequence[Any], Callable[..., int]]]:
        """Argument types and function by name."""
        sizes, matrix = (_INT,) * 3, (_POINTER, _INT, _INT)
        known: dict[str, tuple[Sequence[Any], Callable[..., None]]] = {
            "cublasCreate_v2": ((_POINTER,), self._create),
            "cublasDestroy_v2": ((_POINTER,), self._destroy),
            "cublasSetStream_v2": ((_POINTER, _POINTER), self._set_stream),
            "cublasGetStream_v2": ((_POINTER, _POINTER), self._get_stream),
            "cublasSetWorkspace_v2": ((_POINTER, _POINTER, _SIZE), self._set_workspace),
            "cublasSetMathMode": ((_POINTER, _INT), self._set_math_mode),
            "cublasGetMathMode": ((_POINTER, _POINTER), self._get_math_mode),
            "cublasSetPointerMode_v2": ((_POINTER, _INT), self._set_pointer_mode),
            "cublasGetPointerMode_v2": ((_POINTER, _POINTER), self._get_pointer_mode),
            "cublasGemmEx": (
                (_POINTER, _INT, _INT, *sizes, _POINTER, *matrix, *matrix, _POINTER, *matrix, _INT, _INT),
                self._gemm,
            ),
        }
        return {name: (types, self._guarded(name, call)) for name, (types, call) in known.items()}

    def _guarded(self, name: str, function: Callable[..., None]) -> Callable[..., int]:
        def run(*given: int | None) -> int:
            try:
                with self._runtime.lock:
                    self._runtime.enter(name)
                    function(*(0 if one is None else one for one in given))
                    return 0
            except (_Refused, CudaFailure) as error:
                print(f"stand-in for CUDA: {name}: {error}", file=sys.stderr)
                return error.status if isinstance(error, _Refused) else _EXECUTION_FAILED

        return run

    def _handle(self, handle: int) -> _Handle:
        found = self._handles.things.get(handle)
        if not isinstance(found, _Handle):
            raise _Refused(_NOT_INITIALIZED, f"{handle:#x} is no handle of cuBLAS")
        return found

    def _create(self, to: int) -> None:
        self._runtime.streams.forbid_during_capture("the creation of a handle of cuBLAS")
        handle = self._handles.new()
        self._handles.things[handle] = _Handle(self._runtime.device)
        ctypes.c_void_p.from_address(to).value = handle

    def _destroy(self, handle: int) -> None:
        self._handle(handle)
        self._handles.destroy(handle)

    def _set_stream(self, handle: int, stream: int) -> None:
        """Also discards the workspace that was set, as is documented."""
        found = self._handle(handle)
        found.stream, found.workspace = stream, (0, 0)

    def _get_stream(self, handle: int, to: int) -> None:
        ctypes.c_void_p.from_address(to).value = self._handle(handle).stream

    def _set_workspace(self, handle: int, address: int, num_bytes: int) -> None:
        if address % _WORKSPACE_ALIGNMENT:
            raise _Refused(_INVALID_VALUE, f"a workspace at {address:#x}, not a multiple of 256")
        if address:
            self._runtime.memory.view(address, num_bytes)
        self._handle(handle).workspace = address, num_bytes

    def _set_math_mode(self, handle: int, mode: int) -> None:
        self._handle(handle).math_mode = mode

    def _get_math_mode(self, handle: int, to: int) -> None:
        ctypes.c_int.from_address(to).value = self._handle(handle).math_mode

    def _set_pointer_mode(self, handle: int, mode: int) -> None:
        self._handle(handle).pointer_mode = mode

    def _get_pointer_mode(self, handle: int, to: int) -> None:
        ctypes.c_int.from_address(to).value = self._handle(handle).pointer_mode

    def _gemm(
        self, handle: int, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, *given: int
    ) -> None:
        a_place, a_type, a_pitch, b_place, b_type, b_pitch, beta, c_place, c_type, c_pitch, compute, _ = given
        found, runtime = self._handle(handle), self._runtime
        if found.device != runtime.device:
            raise _Refused(_EXECUTION_FAILED, f"a handle of cuda:{found.device} on cuda:{runtime.device}")
        if min(m, n, k) < 0 or not {op_a, op_b} <= {_OP_N, _OP_T}:
            raise _Refused(_INVALID_VALUE, f"sizes {m}, {n}, {k}, operations {op_a}, {op_b}")
        types = a_type, b_type, c_type
        if found.pointer_mode != _HOST_POINTERS or types not in _KNOWN_TYPES:
            raise _Refused(_NOT_SUPPORTED, f"cublasGemmEx of types {types} is not known to the stand-in")
        if compute not in (_COMPUTE_32F, _COMPUTE_32F_FAST_TF32):
            raise _Refused(_NOT_SUPPORTED, f"cublasGemmEx by {compute} is not known to the stand-in")
        a = _Matrix("a", a_place, _TYPES[a_type], *((m, k) if op_a == _OP_N else (k, m)), a_pitch)
        b = _Matrix("b", b_place, _TYPES[b_type], *((k, n) if op_b == _OP_N else (n, k)), b_pitch)
        c = _Matrix("c", c_place, _TYPES[c_type], m, n, c_pitch)
        for matrix in (a, b, c):
            matrix.check()
            matrix.elements(runtime)
        factors = [np.float32(ctypes.c_float.from_address(place).value) for place in (alpha, beta)]
        may_round = compute == _COMPUTE_32F_FAST_TF32 or found.math_mode == _TF32_MATH
        turned = op_a == _OP_T, op_b == _OP_T

        def multiply() -> Iterator[float]:
            operands = [matrix.elements(runtime).astype(np.float32) for matrix in (a, b)]
            if may_round and a.dtype == np.float32:
                operands = [as_tf32(operand) for operand in operands]
            x, y = (o.T if is_turned else o for o, is_turned in zip(operands, turned, strict=True))
            with np.errstate(all="ignore"):
                sums = factors[0] * (x @ y)
            # Sums that fit the workspace are kept there until all of them are done.
            inside = sums.nbytes <= num_bytes
            if inside:
                runtime.memory.view(place, sums.nbytes)[...] = sums.reshape(-1).view(np.uint8)
            yield 0.0
            if inside:
                sums = runtime.memory.view(place, sums.nbytes).copy().view(np.float32).reshape(m, n)
            result = c.elements(runtime)
            result[...] = sums + factors[1] * result if factors[1] else sums

        def work() -> Iterator[float] | None:
            return multiply() if runtime.settings.computes else None

        stream = runtime.stream(found.stream)
        # In a capture, memory that cuBLAS takes itself belongs to the graph, which has nodes for it.
        is_own = stream.capture is not None and not found.workspace[1]
        place, num_bytes = self._workspace(found)
        if runtime.launched is not None:
            runtime.launched(("cublasGemmEx", (m, n, k)), found.stream)
        if is_own:
            runtime.streams.queue(stream, "mallocAsync", None)
        runtime.streams.queue(stream, "cublasGemmEx", work)
        if is_own:
            runtime.streams.queue(stream, "freeAsync", None)

    def _workspace(self, handle: _Handle) -> tuple[int, int]:
        """Address and bytes of the workspace that was set, else of one for the handle and the stream."""
        if handle.workspace[1]:
            return handle.workspace
        key = handle, handle.stream
        if key not in self._own_workspaces:
            self._own_workspaces[key] = self._runtime.memory.allocate(1 << 20, handle.device)
        own = self._own_workspaces[key]
        return own.address, own.num_bytes


def install(runtime: Runtime) -> None:
    """Load cuBLAS under the name with which CuPy's binding is linked; nothing where CuPy has no binding."""
    spec = find_spec("cupy_backends.cuda.libs")
    folders = spec.submodule_search_locations if spec else None
    for path in sorted(Path(folder) for folder in folders or ()):
        for library in path.glob("cublas.*.so"):
            functions = Cublas(runtime).functions()
            others = [name for name in binding.undefined_symbols(library, "cublas") if name not in functions]
            version = next(name for name in binding.needed_libraries(library) if name.startswith("libcublas"))
            # CuPy looks for the library that cuBLAS needs, too.
            binding.exported(version.replace("cublas", "cublasLt"), {}, [], _NOT_SUPPORTED)
            binding.exported(version, functions, others, _NOT_SUPPORTED, ("-Wl,--default-symver",))
