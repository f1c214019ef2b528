"""The driver's own library, `libcuda.so.1`, for callers that look functions up by name."""

import ctypes
import math
from collections.abc import Callable

from proof.stand_in import binding
from proof.stand_in.driver import Driver
from proof.stand_in.errors import CudaFailure, UnknownCallError
from proof.stand_in.runtime import Runtime

SONAME = "libcuda.so.1"

#: `CUDA_ERROR_NOT_SUPPORTED`.
_NOT_SUPPORTED = 801
_POINTER = ctypes.c_void_p

#: Functions that CuPy looks up; its binding calls the Python functions instead.
_OTHERS = (
    *("cuCtxCreate_v2", "cuCtxDestroy_v2", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxSetCurrent"),
    *("cuDevicePrimaryCtxRelease_v2", "cuFuncGetAttribute", "cuFuncSetAttribute"),
    *("cuLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx"),
    *("cuLinkAddData_v2", "cuLinkAddFile_v2", "cuLinkComplete", "cuLinkCreate_v2", "cuLinkDestroy"),
    *("cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuModuleLoad", "cuModuleLoadData", "cuModuleUnload"),
    *("cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxPotentialBlockSize", "cuStreamGetCtx"),
)

#: Value of `CUlaunchAttributeID`.
_CLUSTER_DIMENSION = 4


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", _POINTER),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


_texts: dict[int, tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]] = {}


def install(runtime: Runtime, driver: Driver) -> None:
    """Load the library under the driver's name."""

    def exchange(mode: int) -> None:
        place = ctypes.c_int.from_address(mode)
        place.value = driver.threadExchangeStreamCaptureMode(place.value)

    def tell_stream(handle: int | None, to: int) -> None:
        stream = runtime.streams.get(handle or 0, runtime.device)
        ctypes.c_ulonglong.from_address(to).value = stream.number

    def count_clusters(to: int, function: int, place: int) -> None:
        config = _LaunchConfig.from_address(place)
        attributes = [config.attributes[number] for number in range(config.num_attributes)]
        unknown = [one.id for one in attributes if one.id != _CLUSTER_DIMENSION]
        if unknown:
            raise UnknownCallError("cuOccupancyMaxActiveClusters", f"attribute {unknown[0]}")
        clusters = [tuple(one.value[:3]) for one in attributes]
        ctypes.c_int.from_address(to).value = driver.occupancyMaxActiveClusters(
            function, math.prod(config.block), config.shared_bytes, clusters[0] if clusters else None
        )

    functions = {
        "cuOccupancyMaxActiveClusters": (
            (_POINTER, _POINTER, _POINTER),
            guarded("cuOccupancyMaxActiveClusters", runtime, count_clusters),
        ),
        "cuStreamGetId": ((_POINTER, _POINTER), guarded("cuStreamGetId", runtime, tell_stream)),
        "cuThreadExchangeStreamCaptureMode": (
            (_POINTER,),
            guarded("cuThreadExchangeStreamCaptureMode", runtime, exchange),
        ),
        "cuGetErrorString": ((ctypes.c_int, _POINTER), lambda code, to: _tell(code, to, 1)),
        "cuGetErrorName": ((ctypes.c_int, _POINTER), lambda code, to: _tell(code, to, 0)),
    }
    binding.exported(SONAME, functions, _OTHERS, _NOT_SUPPORTED)


def guarded(name: str, runtime: Runtime, function: Callable[..., None]) -> Callable[..., int]:
    """A function that returns CUDA's number of its error, 0 without one."""

    def run(*given: int) -> int:
        try:
            with runtime.lock:
                runtime.enter(name)
                function(*given)
                runtime.leave(name)
        except CudaFailure as failure:
            return failure.code
        except UnknownCallError as error:
            print(error)
            return _NOT_SUPPORTED
        return 0

    return run


def _tell(code: int, to: int, which: int) -> int:
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    if code not in _texts:
        # Driver and runtime have the same numbers, and the runtime's names are in CuPy.
        name, _, text = str(CUDARuntimeError(code)).partition(": ")
        name = name.replace("cudaError", "CUDA_ERROR_")
        _texts[code] = ctypes.create_string_buffer(name.encode()), ctypes.create_string_buffer(text.encode())
    ctypes.c_void_p.from_address(to).value = ctypes.addressof(_texts[code][which])
    return 0
