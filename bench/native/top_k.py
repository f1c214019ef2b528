"""RAFT's and CUB's top-k, called through the libraries of this folder."""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from bench import native
from bench.cases import Inputs
from bench.targets import library_of

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
    xp, shape = library_of(a), (case.num_rows, case.k)
    return xp.empty(shape, a.dtype), xp.empty(shape, index_type)


def _pointers(*arrays: Any) -> list[int]:
    """Addresses of arrays of CuPy, or of NumPy over a stand-in for the runtime."""
    return [a.ctypes.data if library_of(a) is np else a.data.ptr for a in arrays]


def _stream(a: Any) -> int:
    """The current stream."""
    if library_of(a) is np:
        return 0
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def raft_select_k(case: Case, inputs: Inputs) -> Callable[[], Any] | None:
    """`raft::matrix::select_k` of rows, sorted; None if the library is not built."""
    library = native.load("raft")
    if library is None or case.inner > 1 or case.dtype not in _DTYPES:
        return None
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
        sizes = case.num_rows, case.row_length, case.k
        if function(handle, *_pointers(a, values, indices), *sizes, is_largest, _stream(a)):
            raise RuntimeError("raft::matrix::select_k failed")
        return values, indices

    return call


def cub_device_top_k(case: Case, inputs: Inputs) -> Callable[[], Any] | None:
    """`cub::DeviceTopK` of a single row, in any order; None if the library is not built."""
    library = native.load("cub")
    if library is None or case.num_rows > 1 or case.inner > 1 or case.dtype not in _DTYPES:
        return None
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
        pointers = _pointers(a, values, indices)
        error = function(temporary, ctypes.byref(num_bytes), *pointers, *rest, _stream(a))
        if error:
            raise RuntimeError(f"cub::DeviceTopK failed with CUDA error {error}")

    run(None)
    temporary = library_of(a).empty(max(num_bytes.value, 1), "uint8")

    def call() -> Any:
        run(*_pointers(temporary))
        return values, indices

    return call
