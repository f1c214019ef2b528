"""RAFT's and CUB's top-k, called through the libraries of this folder."""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from bench import native
from bench.cases import Inputs

#: The types that the libraries have functions for.
_DTYPES = ("float32", "float16")


class Case(Protocol):
    """What is read of a case of `bench/top_k.py`."""

    num_rows: int
    row_length: int
    k: int
    dtype: str
    mode: str
    inner: int


def _results(case: Case, a: Any, index_type: str) -> tuple[Any, Any]:
    import cupy

    shape = (case.num_rows, case.k)
    return cupy.empty(shape, a.dtype), cupy.empty(shape, index_type)


def raft_select_k(case: Case, inputs: Inputs) -> Callable[[], Any] | None:
    """`raft::matrix::select_k` of rows, sorted; None if the library is not built."""
    library = native.load("raft")
    if library is None or case.inner > 1 or case.dtype not in _DTYPES:
        return None
    import cupy

    a = inputs["a"]
    values, indices = _results(case, a, "int64")
    library.raft_resources.restype = ctypes.c_void_p
    handle = library.raft_resources()
    if not handle:
        raise RuntimeError("raft_resources: no CUDA device, or no memory")
    function = library[f"raft_select_k_{case.dtype}"]
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = (pointer, *[pointer] * 3, *[count] * 3, ctypes.c_int, pointer)
    is_largest = int(case.mode == "largest")

    def call() -> Any:
        pointers = [array.data.ptr for array in (a, values, indices)]
        sizes = case.num_rows, case.row_length, case.k
        if function(handle, *pointers, *sizes, is_largest, cupy.cuda.get_current_stream().ptr):
            raise RuntimeError("raft::matrix::select_k failed")
        return values, indices

    return call


def cub_device_top_k(case: Case, inputs: Inputs) -> Callable[[], Any] | None:
    """`cub::DeviceTopK` of a single row, in any order; None if the library is not built."""
    library = native.load("cub")
    if library is None or case.num_rows > 1 or case.inner > 1 or case.dtype not in _DTYPES:
        return None
    import cupy

    a = inputs["a"]
    values, indices = _results(case, a, "int32")
    function = library[f"cub_top_k_{case.dtype}"]
    pointer = ctypes.c_void_p
    function.argtypes = (
        *(pointer, ctypes.POINTER(ctypes.c_size_t), pointer, pointer, pointer),
        *[ctypes.c_int] * 3,
        pointer,
    )
    num_bytes = ctypes.c_size_t(0)
    rest = case.row_length, case.k, int(case.mode == "largest")

    def run(temporary: int | None) -> None:
        pointers = [array.data.ptr for array in (a, values, indices)]
        stream = cupy.cuda.get_current_stream().ptr
        error = function(temporary, ctypes.byref(num_bytes), *pointers, *rest, stream)
        if error:
            raise RuntimeError(f"cub::DeviceTopK failed with CUDA error {error}")

    run(None)
    temporary = cupy.empty(max(num_bytes.value, 1), "uint8")

    def call() -> Any:
        run(temporary.data.ptr)
        return values, indices

    return call
