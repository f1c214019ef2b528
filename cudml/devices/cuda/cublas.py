"""Matrix products by cuBLAS, on any stream, also while the stream is captured in a CUDA graph.

CuPy's binding refuses every call on a stream that is being captured (CuPy issue 6290), although cuBLAS
supports capture: memory that it needs becomes graph nodes ("CUDA Graphs Support" in its documentation). The
few functions that products need are therefore called directly, in the library that CuPy's binding is linked
with. A product has the workspace of its plan: `cublasSetStream` discards the former workspace, and every
graph would get nodes that allocate the library's own.

The handles are cudml's own: on a handle of CuPy's, the first `cublasSetStream` would discard the workspace
that its user set, and its pointer and math modes are the user's choice.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from cudml import locks
from cudml.devices.cuda.driver import relaxed_capture
from cudml.errors import DeviceError
from cudml.plans import WORKSPACE_ALIGNMENT, MatMul

#: The largest matrix dimension that the functions accept.
MAX_SIZE = 2**31 - 1

# Values of `cublasOperation_t`, `cudaDataType`, `cublasComputeType_t` and `cublasGemmAlgo_t`.
_OP_N, _OP_T = 0, 1
_TYPES = {"float32": (0, 4), "float16": (2, 2), "bfloat16": (14, 2)}  # number, bytes
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_GEMM_DEFAULT = -1

#: The workspace that NVIDIA's documentation of `cublasSetWorkspace` recommends from Hopper on, and before.
_WORKSPACE_BYTES, _FORMER_WORKSPACE_BYTES = 32 << 20, 4 << 20

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, _SIZE),
    "cublasGemmEx": (
        *(_POINTER, _INT, _INT, _INT, _INT, _INT),  # handle, operations, sizes
        *(_POINTER, _POINTER, _INT, _INT, _POINTER, _INT, _INT),  # alpha, a, b
        *(_POINTER, _POINTER, _INT, _INT, _INT, _INT),  # beta, c, how
    ),
}

_Function = Callable[..., int]


@cache
def functions(path: str) -> dict[str, _Function]:
    """cuBLAS's functions by name, through a library that is linked with it; they return its status."""
    with locks.no_fork:
        library = ctypes.CDLL(path)  # symbols are also looked up in the libraries it is linked with

    found: dict[str, Any] = {name: library[name] for name in _ARGUMENTS}
    for name, function in found.items():
        function.argtypes, function.restype = _ARGUMENTS[name], _INT
    return found


def failed(name: str, status: int) -> DeviceError:
    """The error of a function that returned another status than 0."""
    return DeviceError(f"{name} of cuBLAS failed with status {status}")


class Handles:
    """The handles of one GPU: each launching thread has its own, reused by a later thread.

    A new handle uses the default math mode, in which only products that ask for TF32 use it, and reads alpha
    and beta from host memory.
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
            status = self._create(ctypes.addressof(handle))
        if status:
            raise failed("cublasCreate_v2", status)
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


def workspace_bytes(compute_capability: int) -> int:
    """The recommended workspace of a product."""
    return _WORKSPACE_BYTES if compute_capability >= 90 else _FORMER_WORKSPACE_BYTES


def product(path: str, step: MatMul) -> Callable[[int, int, int, int, int, int], None]:
    """The step as a function of a cuBLAS handle, a stream, and the addresses of a, b, out and workspace."""
    names = "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx"
    set_stream, set_workspace, gemm = (functions(path)[name] for name in names)
    m, n, k = step.m, step.n, step.k
    num_bytes, alignment = step.workspace_bytes, WORKSPACE_ALIGNMENT
    element, size = _TYPES[step.element]
    result, result_size = _TYPES["float32"]
    transposed, plain, algorithm = _OP_T, _OP_N, _GEMM_DEFAULT
    compute = _COMPUTE_32F_FAST_TF32 if step.allows_tf32 else _COMPUTE_32F
    a_start, b_start, out_start = step.a_offset * size, step.b_offset * size, step.out_offset * result_size
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)

    def multiply(
        handle: int, stream: int, a: int, b: int, out: int, workspace: int, keep: Any = (one, zero)
    ) -> None:
        # The status is looked at here, because a function around each call takes 0.2 us.
        if status := set_stream(handle, stream):
            raise failed("cublasSetStream_v2", status)
        if num_bytes and (status := set_workspace(handle, workspace + -workspace % alignment, num_bytes)):
            raise failed("cublasSetWorkspace_v2", status)
        # Row-major out = a @ b.T is column-major out.T = b @ a.T.
        if status := gemm(
            handle, transposed, plain, n, m, k,
            alpha, b + b_start, element, k,
            a + a_start, element, k,
            beta, out + out_start, result, n,
            compute, algorithm,
        ):  # fmt: skip
            raise failed("cublasGemmEx", status)

    return multiply
