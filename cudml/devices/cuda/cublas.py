"""Matrix products by cuBLAS, on any stream, also while the stream is captured in a CUDA graph.

CuPy's binding refuses every call on a stream that is being captured (CuPy issue 6290), although cuBLAS
supports capture: memory that it needs becomes graph nodes ("CUDA Graphs Support" in its documentation). The
few functions are therefore called directly, in the library that CuPy's binding is linked with.

The handles are cudml's own: on a handle of CuPy's, the first `cublasSetStream` would discard the workspace
that its user set, and its pointer and math modes are the user's choice.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from cudml.devices import locks
from cudml.devices.cuda.driver import relaxed_capture
from cudml.errors import DeviceError
from cudml.plans import MatMul

#: The largest matrix dimension that the functions accept.
MAX_SIZE = 2**31 - 1

# Values of `cublasOperation_t`, `cudaDataType`, `cublasComputeType_t` and `cublasGemmAlgo_t`.
_OP_N, _OP_T = 0, 1
_TYPES = {"float32": (0, 4), "float16": (2, 2)}  # number, bytes
_COMPUTE_32F = 68
_GEMM_DEFAULT = -1

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasGemmEx": (
        *(_POINTER, _INT, _INT, _INT, _INT, _INT),  # handle, operations, sizes
        *(_POINTER, _POINTER, _INT, _INT, _POINTER, _INT, _INT),  # alpha, a, b
        *(_POINTER, _POINTER, _INT, _INT, _INT, _INT),  # beta, c, how
    ),
}

_Function = Callable[..., None]


@cache
def functions(path: str) -> dict[str, _Function]:
    """cuBLAS's functions by name, through a library that is linked with it; they raise DeviceError."""
    with locks.no_fork:
        library = ctypes.CDLL(path)  # symbols are also looked up in the libraries it is linked with

    def checked(name: str) -> _Function:
        function = library[name]
        function.argtypes, function.restype = _ARGUMENTS[name], _INT

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status:
                raise DeviceError(f"{name} of cuBLAS failed with status {status}")

        return call

    return {name: checked(name) for name in _ARGUMENTS}


class Handles:
    """The handles of one GPU: each launching thread has its own, reused by a later thread.

    A new handle uses the default math mode, without TF32, and reads alpha and beta from host memory.
    """

    def __init__(self, path: str) -> None:
        self._create = functions(path)["cublasCreate_v2"]
        # Handles that no thread uses; list.pop and list.append are atomic.
        self._free: list[int] = [self._made()]
        self._threads = threading.local()

    def get(self) -> int:
        """The handle of this thread, on the current GPU."""
        try:
            handle: int = self._threads.lease.handle
        except AttributeError:
            lease = self._threads.lease = _Lease(self._free, self._made)
            handle = lease.handle
        return handle

    def _made(self) -> int:
        handle = ctypes.c_void_p()
        with relaxed_capture():  # it allocates memory, and a thread's first launch may be captured
            self._create(ctypes.addressof(handle))
        return handle.value or 0


class _Lease:
    """A handle for as long as a thread lives."""

    def __init__(self, free: list[int], make: Callable[[], int]) -> None:
        self._free = free
        try:
            self.handle = free.pop()
        except IndexError:
            self.handle = make()

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._free.append(self.handle)


@cache
def handles(path: str, number: int) -> Handles:
    """The handles of the GPU with a number, which must be current; creates the first handle."""
    return Handles(path)


def product(path: str, step: MatMul) -> Callable[[int, int, int, int, int], None]:
    """The step as a function of a handle of cuBLAS, a stream, and the addresses of a, b and out."""
    set_stream, gemm = (functions(path)[name] for name in ("cublasSetStream_v2", "cublasGemmEx"))
    m, n, k = step.m, step.n, step.k
    element, size = _TYPES[step.element]
    result, result_size = _TYPES["float32"]
    a_start, b_start, out_start = step.a_offset * size, step.b_offset * size, step.out_offset * result_size
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)

    def multiply(handle: int, stream: int, a: int, b: int, out: int, keep: Any = (one, zero)) -> None:
        set_stream(handle, stream)
        # Row-major out = a @ b.T is column-major out.T = b @ a.T.
        gemm(
            handle, _OP_T, _OP_N, n, m, k,
            alpha, b + b_start, element, k,
            a + a_start, element, k,
            beta, out + out_start, result, n,
            _COMPUTE_32F, _GEMM_DEFAULT,
        )  # fmt: skip

    return multiply
