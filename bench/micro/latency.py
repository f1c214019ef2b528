"""Latencies: barriers, loads from L2, words passed between blocks, a vector passed between all blocks."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.micro.figures import Figure, Gpu

GROUP = "latency"
EXCHANGE_BLOCKS = (8, 16, 32, 64, 128)
EXCHANGE_WIDTHS = (512, 1024, 2048, 8192)

#: How an exchange polls and writes -> words of a poll, vectors that a slice is written to.
EXCHANGES = {
    "polls of 4 bytes": (1, 1),
    "polls of 16 bytes": (4, 1),
    **{f"written {copies} times": (4, copies) for copies in (2, 4, 8)},
}


#: Sizes of buffers whose lines are read in random order: one page of the GPU's tables, and many.
CHASED_MEBIBYTES = (2, 16, 256)
_MAX_MEBIBYTES_IN_L2 = 16
_MAX_CHASED = 1 << 14
_LINE_WORDS = 32

#: Words from lane to lane of a strided load.
STRIDES = (1, 8, 32)
#: The kernel of strided loads, and how many of them a warp has on their way.
STRIDED, STRIDED_LOADS = "strided_loads<{}, 8>", 8


def measure(gpu: Gpu) -> Iterator[Figure]:
    """Clocks of one multiprocessor, or microseconds by the GPU's global timer."""
    clock_hz = _clock_hz(gpu)
    yield Figure(GROUP, "clock of a multiprocessor under load", clock_hz / 1e6, "MHz")
    clocks = gpu.int64()
    barrier = gpu.kernel("latency.cu", "block_barrier")
    for num_threads in (64, 128, 256, 512, 1024):
        value = _clocks(barrier, clocks, 1, num_threads, np.int32(1000), clocks)
        yield Figure(GROUP, f"__syncthreads, {num_threads} threads", value, "clocks")
    zeros = gpu.uint32(64)
    for name, told in {"relaxed_load": "ld.relaxed.gpu", "acquire_load": "ld.acquire.gpu"}.items():
        value = _clocks(gpu.kernel("latency.cu", name), clocks, 1, 1, zeros, np.int32(1000), clocks)
        yield Figure(GROUP, f"{told} that hits L2", value, "clocks")
    yield from _chases(gpu)
    yield from _strided_loads(gpu)
    yield from _ping_pongs(gpu, clock_hz)
    yield from _exchanges(gpu)


def _clock_hz(gpu: Gpu) -> float:
    result = gpu.int64(2)
    spin = gpu.kernel("latency.cu", "spin_clocks")
    for _ in range(2):
        spin(1, 1, np.int64(20_000_000), result)
    num_clocks, nanoseconds = (int(n) for n in result.get())
    return num_clocks / nanoseconds * 1e9


def _clocks(
    call: Callable[..., None], clocks: Any, grid: int, block: int, *arguments: Any, rounds: int = 1000
) -> float:
    """The time of one round, from the second of two launches."""
    for _ in range(2):
        call(grid, block, *arguments)
    return int(clocks[0]) / rounds


def chain(mebibytes: int) -> np.ndarray:
    """A chain of lines in random order: the first word of each is the place of the next, from place 0 on."""
    places = _LINE_WORDS * np.random.default_rng(mebibytes).permutation((mebibytes << 20) // 4 // _LINE_WORDS)
    words = np.zeros(_LINE_WORDS * len(places), np.uint32)
    words[places] = np.roll(places, -1)
    return words


def _chases(gpu: Gpu) -> Iterator[Figure]:
    """Loads that wait for each other, of lines that the first-level cache does not have."""
    call, clocks = gpu.kernel("latency.cu", "chase"), gpu.int64(2)
    for mebibytes in CHASED_MEBIBYTES:
        words = chain(mebibytes)
        following, rounds = gpu.xp.asarray(words), min(_MAX_CHASED, len(words) // _LINE_WORDS)
        for where in ("memory", "L2"):
            if where == "memory":
                gpu.flush()
            elif mebibytes > _MAX_MEBIBYTES_IN_L2:
                continue
            call(1, 1, following, np.int32(rounds), clocks)
            told = f"load from {where}, one of {mebibytes} MiB after the other"
            yield Figure(GROUP, told, int(clocks[0]) / rounds, "clocks")


def _strided_loads(gpu: Gpu) -> Iterator[Figure]:
    """Loads of a warp that hit the first-level cache: of one line, and of a line for each lane."""
    clocks, rounds = gpu.int64(), 1000
    for stride in STRIDES:
        call = gpu.kernel("latency.cu", STRIDED.format(stride))
        zeros = gpu.uint32(32 * STRIDED_LOADS * stride)
        value = _clocks(call, clocks, 1, 32, zeros, np.int32(rounds), clocks, rounds=STRIDED_LOADS * rounds)
        yield Figure(GROUP, f"load of a warp from L1, {4 * stride} bytes a lane, 8 at once", value, "clocks")


def _ping_pongs(gpu: Gpu, clock_hz: float, rounds: int = 1000) -> Iterator[Figure]:
    """The time from one block's store to another's load: half of a round trip."""
    call = gpu.kernel("latency.cu", "ping_pong", cooperative=True)
    one_way_us = []
    for partner in range(1, gpu.num_multiprocessors, 8):
        words, clocks, gave_up = gpu.uint32(128), gpu.int64(), gpu.uint32()
        call(gpu.num_multiprocessors, 1, words, np.int32(partner), np.int32(rounds), clocks, gave_up)
        _require_finished(gave_up)
        one_way_us.append(int(clocks[0]) / rounds / 2 / clock_hz * 1e6)
    yield Figure(GROUP, "word from block to block, nearest", min(one_way_us), "us")
    yield Figure(GROUP, "word from block to block, median", statistics.median(one_way_us), "us")
    yield Figure(GROUP, "word from block to block, farthest", max(one_way_us), "us")


def _exchanges(gpu: Gpu, num_steps: int = 2000) -> Iterator[Figure]:
    """Every block sends its slice to all blocks and waits for the whole vector: a step of a recurrence."""
    calls = {
        how: gpu.kernel("latency.cu", f"exchange<{words}, {copies}>", cooperative=True)
        for how, (words, copies) in EXCHANGES.items()
    }
    for num_blocks in EXCHANGE_BLOCKS:
        for width in EXCHANGE_WIDTHS:
            for how, call in calls.items():
                buffers, result, gave_up = (
                    gpu.uint32(2 * EXCHANGES[how][1] * width),
                    gpu.int64(),
                    gpu.uint32(),
                )
                call(num_blocks, 256, buffers, np.int32(width), np.int32(num_steps), result, gave_up)
                _require_finished(gave_up)
                told = f"exchange of {width} words between {num_blocks} blocks, {how}"
                yield Figure(GROUP, told, int(result[0]) / num_steps / 1000, "us")


def _require_finished(gave_up: Any) -> None:
    if int(gave_up[0]):
        raise RuntimeError("a wait between blocks did not end")
