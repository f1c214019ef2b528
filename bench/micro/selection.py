"""Rates of top-k's inner loops: a histogram in shared storage, an arg-max over a warp."""

from collections.abc import Iterator

import numpy as np

from bench.micro.figures import Figure, Gpu

GROUP = "selection"
THREADS = 512
HISTOGRAMS = (
    ("KeyOfFloat32", "float32", (8, 11, 12)),
    ("KeyOfFloat16", "float16", (8, 11, 12)),
    ("KeyOfInt8", "int8", (8,)),
)
ARG_MAXIMA = {
    "ReduxOnce": "redux, value and index in 32 bits",
    "ReduxTwice": "redux of the value, then of the index",
    "Shuffles<UInt32>": "shuffles, value and index in 32 bits",
    "Shuffles<UInt64>": "shuffles, value and index in 64 bits",
}


def measure(gpu: Gpu) -> Iterator[Figure]:
    """GB/s read by a histogram from DRAM; clocks of an arg-max by itself and with a full multiprocessor."""
    yield from _histograms(gpu)
    yield from _arg_maxima(gpu)


def _histograms(gpu: Gpu, mib: int = 256) -> Iterator[Figure]:
    size = mib << 20
    for key, dtype, widths in HISTOGRAMS:
        count = size // np.dtype(dtype).itemsize
        normal, uniform = gpu.source.normal((count,)), gpu.source.uniform((count,))
        patterns = {"normal": normal, "uniform": uniform, "relu": gpu.xp.maximum(normal, 0)}
        for width in widths:
            shared_bytes = 4 << width
            call = gpu.kernel("selection.cu", f"histogram<{key}, {width}>", shared_bytes=shared_bytes)
            totals = gpu.uint32(1 << width)
            for pattern, numbers in patterns.items():
                scaled = numbers * np.float32(16) if dtype == "int8" else numbers
                data = scaled.astype(dtype)
                arguments = (data, np.int64(size // 16), totals)
                us = gpu.cold_us(lambda: call(4 * gpu.num_multiprocessors, THREADS, *arguments))  # noqa: B023
                yield Figure(GROUP, f"histogram of {dtype} {pattern}, {width} bits", size / us / 1000, "GB/s")


def _arg_maxima(gpu: Gpu, num_rounds: int = 1000) -> Iterator[Figure]:
    clocks, never = gpu.int64(), gpu.xp.zeros(1, np.uint64)
    for method, told in ARG_MAXIMA.items():
        call = gpu.kernel("selection.cu", f"arg_max<{method}>")
        for num_warps in (1, 8, 32):
            for _ in range(2):  # The first one loads the instructions.
                call(1, 32 * num_warps, np.int32(num_rounds), clocks, never)
            value = int(clocks[0]) / num_rounds / num_warps
            yield Figure(GROUP, f"arg-max by {told}, a warp of {num_warps}", value, "clocks")
