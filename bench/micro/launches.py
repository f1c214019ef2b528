"""Launch and hand-off costs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.micro.figures import Figure, Gpu

GROUP = "launch"


def measure(gpu: Gpu) -> Iterator[Figure]:
    """Floors of events, kernels, graphs, cooperative launches, and of a last-block hand-off."""
    empty = gpu.kernel("launches.cu", "empty")
    cooperative = gpu.kernel("launches.cu", "empty", cooperative=True)
    last_block = gpu.kernel("launches.cu", "last_block")
    counter, never = gpu.uint32(), gpu.uint32()

    yield Figure(GROUP, "two events, nothing between", gpu.warm_us(lambda: None), "us")
    for grid in (1, gpu.num_multiprocessors, 8 * gpu.num_multiprocessors):
        told = f"{grid} blocks of 256 threads"

        def one(grid: int = grid) -> None:
            empty(grid, 256)

        def two(grid: int = grid) -> None:
            empty(grid, 256)
            empty(grid, 256)

        def handed_off(grid: int = grid) -> None:
            last_block(grid, 256, counter, never)

        yield Figure(GROUP, f"empty kernel, {told}", gpu.warm_us(one), "us")
        yield Figure(GROUP, f"two empty kernels, {told}", gpu.warm_us(two), "us")
        yield Figure(GROUP, f"kernel with last-block hand-off, {told}", gpu.warm_us(handed_off), "us")

    grid = gpu.num_multiprocessors
    cooperative_us = gpu.warm_us(lambda: cooperative(grid, 256))
    yield Figure(GROUP, "cooperative empty kernel, a block a multiprocessor", cooperative_us, "us")
    yield Figure(GROUP, "host time of a launch", _host_us(gpu, lambda: empty(1, 32)), "us")
    yield Figure(GROUP, "host time of a cooperative launch", _host_us(gpu, lambda: cooperative(1, 32)), "us")
    yield Figure(GROUP, "a kernel of a graph of 100, in order", _graph_us(gpu, empty) / 100, "us")


def _host_us(gpu: Gpu, launch: Callable[[], Any], count: int = 200) -> float:
    """Host time of a launch, from few enough launches that the queue does not fill."""
    launch()
    gpu.xp.cuda.get_current_stream().synchronize()
    start = time.perf_counter()
    for _ in range(count):
        launch()
    return (time.perf_counter() - start) / count * 1e6


def _graph_us(gpu: Gpu, empty: Callable[..., None]) -> float:
    with gpu.xp.cuda.Stream(non_blocking=True) as stream:
        empty(1, 32)
        stream.begin_capture()
        for _ in range(100):
            empty(1, 32)
        graph = stream.end_capture()
        return gpu.warm_us(lambda: graph.launch(stream))
