"""Clusters: barrier, remote load, pushed exchange through shared storage, and how many fit at once."""

import ctypes
from collections.abc import Iterator

import numpy as np

from bench.micro.figures import Figure, Gpu, Kernel

GROUP = "cluster"
SIZES = (2, 4, 8, 16)
WIDTHS = (128, 512, 1024, 2048, 8192, 16384)

#: The kernel's ways to push.
PUSHES = {
    "AsyncStores": "st.async",
    "AsyncStoresTested": "st.async and test_wait",
    "BulkCopy": "bulk copies",
    "StoresAndArrival": "stores and arrivals",
}
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
ATTRIBUTE_CLUSTER_DIMENSION = 4


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute` with its value as words."""

    _fields_ = (("id", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint32),
    )


def measure(gpu: Gpu) -> Iterator[Figure]:
    """Nothing on a GPU without clusters."""
    if not gpu.has_clusters:
        return
    for size in SIZES:
        yield from _of_size(gpu, size)


def _of_size(gpu: Gpu, size: int, rounds: int = 1000) -> Iterator[Figure]:
    clocks = gpu.int64()
    told = f"cluster of {size}"
    for relaxed, kind in ((False, "release and acquire"), (True, "relaxed")):
        call = _kernel(gpu, f"barrier_rounds<{size}, {str(relaxed).lower()}>", size)
        for _ in range(2):
            call(size, 256, np.int32(rounds), clocks)
        yield Figure(GROUP, f"barrier, {kind}, {told}", int(clocks[0]) / rounds, "clocks")

    call = _kernel(gpu, f"remote_load<{size}>", size, shared_bytes=16)
    for rank in sorted({0, 1, size - 1}):
        for _ in range(2):
            call(size, 32, np.uint32(rank), np.int32(rounds), clocks)
        yield Figure(GROUP, f"load from block {rank}, {told}", int(clocks[0]) / rounds, "clocks")

    for width in WIDTHS:
        call = _kernel(gpu, f"push_exchange<{size}, AsyncStoresOfAll>", size, shared_bytes=16 + 2 * 4 * width)
        for num_clusters in (1, gpu.num_multiprocessors // size // 2):
            us = _exchange_us(gpu, call, size * num_clusters, width, rounds)
            name = f"pushed exchange of {width} words, {told}, {num_clusters} at once"
            yield Figure(GROUP, name, us, "us")

    for width in WIDTHS:
        shared_bytes = 16 + 2 * 4 * (width + width // size)
        for method, how in PUSHES.items():
            call = _kernel(gpu, f"push_exchange<{size}, {method}>", size, shared_bytes=shared_bytes)
            us = _exchange_us(gpu, call, size * (gpu.num_multiprocessors // size // 2), width, rounds)
            yield Figure(GROUP, f"exchange of {width} words by {how}, {told}", us, "us")

    for shared_bytes in (0, 100 << 10, 200 << 10, 227 << 10):
        call = _kernel(gpu, f"push_exchange<{size}, AsyncStores>", size, shared_bytes=shared_bytes)
        name = f"active at once, {told}, 256 threads and {shared_bytes >> 10} KiB shared a block"
        yield Figure(GROUP, name, _active_clusters(call, size, shared_bytes), "clusters")


def _exchange_us(gpu: Gpu, call: Kernel, grid: int, width: int, rounds: int) -> float:
    result, gave_up = gpu.int64(2), gpu.uint32()
    call(grid, 256, np.int32(width), np.int32(rounds), result, gave_up)
    if int(gave_up[0]):
        raise RuntimeError("a wait within a cluster did not end")
    return int(result[0]) / rounds / 1000


def _kernel(gpu: Gpu, name: str, size: int, shared_bytes: int = 0) -> Kernel:
    call = gpu.kernel("clusters.cu", name, shared_bytes=shared_bytes)
    if size > 8:  # more than CUDA guarantees wherever there are clusters
        pointer = call.function.kernel.ptr
        gpu.xp.cuda.driver.funcSetAttribute(pointer, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    return call


def _active_clusters(call: Kernel, size: int, shared_bytes: int) -> int:
    driver = ctypes.CDLL("libcuda.so.1")
    attribute = _Attribute(id=ATTRIBUTE_CLUSTER_DIMENSION)
    attribute.value[:3] = (size, 1, 1)
    config = _Config(shared_bytes=shared_bytes, attributes=ctypes.pointer(attribute), num_attributes=1)
    config.grid[:] = (size, 1, 1)
    config.block[:] = (256, 1, 1)
    number = ctypes.c_int(0)
    function = ctypes.c_void_p(call.function.kernel.ptr)
    status = driver.cuOccupancyMaxActiveClusters(ctypes.byref(number), function, ctypes.byref(config))
    if status:
        raise RuntimeError(f"cuOccupancyMaxActiveClusters failed with CUresult {status}")
    return number.value
