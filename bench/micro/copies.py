"""Copies: which way of copying reaches the bandwidth of cudaMemcpyAsync."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench.micro.figures import Figure, Gpu

GROUP = "copies"

#: The copy engine's ring: stages, KiB per stage, and blocks per multiprocessor.
RINGS = ((4, 8, 4), (4, 16, 2), (4, 16, 3), (4, 32, 1), (6, 32, 1), (8, 8, 3), (12, 16, 1))


def measure(gpu: Gpu) -> Iterator[Figure]:
    """GB/s read plus written, with a cold L2; the first figure of each size is the target."""
    for mib in (64, 1024):
        size = mib << 20
        source = gpu.source.bits((size // 16, 4), np.uint32)
        target = gpu.xp.zeros_like(source)
        memcpy = partial(target.data.copy_from_device_async, source.data, size)
        ways: list[tuple[str, Callable[[], Any]]] = [("cudaMemcpyAsync", memcpy)]
        ways += [*_by_threads(gpu, source, target), *_by_engine(gpu, source, target)]
        for told, copy in ways:
            target.fill(0)
            copy()
            if not (source == target).all():
                raise RuntimeError(f"{told} is wrong")
            yield Figure(GROUP, f"{told}, {mib} MiB", 2 * size / gpu.cold_us(copy) / 1000, "GB/s")


def _by_threads(gpu: Gpu, source: Any, target: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    count = source.nbytes // 16
    for access in ("Cached", "Streamed"):
        for loads in (1, 2, 4, 8):
            call = gpu.kernel("copies.cu", f"copy_by_threads<micro::{access}, {loads}>")
            for block in (256, 512, 1024):
                num_tiles = count // (loads * block)
                for grid in (num_tiles, 4 * gpu.num_multiprocessors, 2048 // block * gpu.num_multiprocessors):
                    told = f"{access} {loads} loads, {min(grid, num_tiles)} blocks of {block}"
                    yield told, partial(call, grid, block, source, target, np.int64(count))


def _by_engine(gpu: Gpu, source: Any, target: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Nothing on a GPU whose copy engine kernels cannot drive."""
    if not gpu.has_clusters:
        return
    for stages, tile_kib, blocks in RINGS:
        shared_bytes = 128 + stages * (tile_kib << 10)
        call = gpu.kernel("copies.cu", f"copy_by_engine<{stages}>", shared_bytes=shared_bytes)
        grid = blocks * gpu.num_multiprocessors
        told = f"copy engine, {stages} stages of {tile_kib} KiB, {grid} blocks"
        num_tiles, tile_bytes = np.int64(source.nbytes // (tile_kib << 10)), np.uint32(tile_kib << 10)
        yield told, partial(call, grid, 32, source, target, num_tiles, tile_bytes)
