"""Bandwidth ceilings: copy, read, write, and a threshold filter that keeps next to nothing."""

from collections.abc import Iterator

import numpy as np

from bench.micro.figures import Figure, Gpu

GROUP = "bandwidth"
LOADS = 4
THREADS = 256

#: Compare method of the kernel -> dtype of the data.
FILTERS = {
    "Float32AsKey": "float32",
    "Float32AsFloat": "float32",
    "Float16AsKey": "float16",
    "Float16AsPair": "float16",
    "Int8AsQuad": "int8",
}


def measure(gpu: Gpu) -> Iterator[Figure]:
    """GB/s by size, with a cold L2; bytes read plus bytes written."""
    xp = gpu.xp
    read = gpu.kernel("bandwidth.cu", f"read_vectors<{LOADS}>")
    copy = gpu.kernel("bandwidth.cu", f"copy_vectors<{LOADS}>")
    never = gpu.uint32()
    for mib in (1, 4, 16, 64, 256, 1024, 4096):
        size = mib << 20
        source, target = xp.zeros(size, np.uint8), xp.zeros(size, np.uint8)
        count = size // 16
        grid = min(count // (LOADS * THREADS), 16 * gpu.num_multiprocessors)
        told = f"{mib} MiB"
        read_us = gpu.cold_us(lambda: read(grid, THREADS, source, np.int64(count), never))  # noqa: B023
        copy_us = gpu.cold_us(lambda: copy(grid, THREADS, source, target, np.int64(count)))  # noqa: B023
        memcpy_us = gpu.cold_us(lambda: target.data.copy_from_device_async(source.data, size))  # noqa: B023
        memset_us = gpu.cold_us(lambda: target.data.memset_async(0, size))  # noqa: B023
        yield Figure(GROUP, f"read, {told}", size / read_us / 1000, "GB/s")
        yield Figure(GROUP, f"memset, {told}", size / memset_us / 1000, "GB/s")
        yield Figure(GROUP, f"copy kernel, {told} read", 2 * size / copy_us / 1000, "GB/s")
        yield Figure(GROUP, f"cudaMemcpyAsync, {told} read", 2 * size / memcpy_us / 1000, "GB/s")
    yield from _filters(gpu)


def _filters(gpu: Gpu) -> Iterator[Figure]:
    """The threshold is met by about one normal number in 30,000, as with k = 50 of a vocabulary."""
    num_kept, kept = gpu.uint32(), gpu.int64(1 << 16)
    for mib in (32, 512):
        size = mib << 20
        count = size // 16
        for method, dtype in FILTERS.items():
            data = _normal(gpu, size, dtype)
            call = gpu.kernel("bandwidth.cu", f"filter_vectors<{method}, {LOADS}>")
            threshold = np.uint32(_threshold_word(method, dtype))
            for blocks in (4, 8, 16):
                grid = min(count // (LOADS * THREADS), blocks * gpu.num_multiprocessors)
                arguments = (data, np.int64(count), threshold, num_kept, kept, np.uint32(kept.size))
                us = gpu.cold_us(lambda: call(grid, THREADS, *arguments))  # noqa: B023
                told = f"filter {method}, {mib} MiB, {blocks} blocks a multiprocessor"
                yield Figure(GROUP, told, size / us / 1000, "GB/s")


def _normal(gpu: Gpu, num_bytes: int, dtype: str) -> object:
    """Normal numbers; as int8 in sixteenths, so that 4 standard deviations are 64."""
    count = num_bytes // np.dtype(dtype).itemsize
    numbers = gpu.source.normal((count,))
    return (numbers * np.float32(16)).astype(np.int8) if dtype == "int8" else numbers.astype(dtype)


def _threshold_word(method: str, dtype: str, deviations: float = 4.0) -> int:
    """Four standard deviations, as the method compares them, repeated through a word."""
    number = np.array([16 * deviations if dtype == "int8" else deviations], dtype)
    element = int(number.view(f"u{number.itemsize}")[0])
    bits = 8 * number.itemsize
    if method.endswith("AsKey"):
        element |= 1 << (bits - 1)
    return sum(element << shift for shift in range(0, 32, bits))
