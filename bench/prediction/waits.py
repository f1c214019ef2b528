"""Rows of bench/micro in which threads wait for each other: launches, hand-offs, words, exchanges, barriers.

Each function predicts one row as bench/micro measures it, from the kernel's machine code.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bench.micro import latency
from bench.prediction.kernels import launched, output
from bench.prediction.model import LAUNCH_US, NEXT_LAUNCH_US
from proof.sass.launch import Buffer, Launch, run
from proof.sass.rates import CLOCK_HZ, NUM_MULTIPROCESSORS, h200

#: Steps of the two exchanges whose difference is predicted, and rounds of what is timed by the clock.
_STEPS = (4, 8)
_ROUNDS = 50


def _run(launch: Launch) -> float:
    """The microseconds of a whole launch, which finds its memory in the L2."""
    num = min(launch.num_blocks, NUM_MULTIPROCESSORS)
    resident = min(launch.resident_blocks, -(-launch.num_blocks // num))
    warm = replace(launch, in_l2=launch.buffers, resident_blocks=resident)
    return run(warm, num_multiprocessors=num, rates=h200(num)).totals.clocks / CLOCK_HZ * 1e6


def _number(buffer: Buffer) -> int:
    return int(buffer.array.view(np.int64)[0])


def _empty(grid: int) -> float:
    return _run(launched("launches.cu", "empty", grid, 256))


def one_launch(grid: int) -> float:
    """Microseconds of an empty kernel."""
    return LAUNCH_US + _empty(grid)


def two_launches(grid: int) -> float:
    """Microseconds of two empty kernels."""
    return LAUNCH_US + NEXT_LAUNCH_US + 2 * _empty(grid)


def hand_off(grid: int) -> float:
    """Microseconds of a kernel whose last block goes on."""
    counter, never = output(4), output(4)
    arguments = struct.pack("<QQ", counter.address, never.address)
    return LAUNCH_US + _run(launched("launches.cu", "last_block", grid, 256, arguments, counter, never))


def block_barrier(num_threads: int) -> float:
    """Clocks of `__syncthreads`."""
    clocks = output(8)
    arguments = struct.pack("<i4xQ", _ROUNDS, clocks.address)
    _run(launched("latency.cu", "block_barrier", 1, num_threads, arguments, clocks))
    return _number(clocks) / _ROUNDS


def acquire_load() -> float:
    """Clocks of a load that hits the L2."""
    zeros, clocks = output(256), output(8)
    arguments = struct.pack("<Qi4xQ", zeros.address, _ROUNDS, clocks.address)
    _run(launched("latency.cu", "acquire_load", 1, 1, arguments, zeros, clocks))
    return _number(clocks) / _ROUNDS


def load_of_chain(where: str, mebibytes: int, num_blocks: int = 1) -> float:
    """Clocks of a load that waits for the one before, and finds its line in the L2 or in memory.

    Blocks follow the same chain, each on a multiprocessor.
    """
    following, clocks = Buffer(latency.chain(mebibytes).view(np.uint8)), output(16)
    arguments = struct.pack("<Qi4xQ", following.address, _ROUNDS, clocks.address)
    launch = launched("latency.cu", "chase", num_blocks, 1, arguments, following, clocks)
    known = replace(launch, in_l2=[following] if where == "L2" else [], resident_blocks=1)
    run(known, num_multiprocessors=num_blocks, rates=h200(num_blocks))
    return _number(clocks) / _ROUNDS


def strided_load(lane_bytes: int) -> float:
    """Clocks of one of eight loads that a warp has on their way to the first-level cache."""
    kernel = latency.STRIDED.format(lane_bytes // 4)
    zeros, clocks = output(32 * latency.STRIDED_LOADS * lane_bytes), output(8)
    arguments = struct.pack("<Qi4xQ", zeros.address, _ROUNDS, clocks.address)
    _run(launched("latency.cu", kernel, 1, 32, arguments, zeros, clocks))
    return _number(clocks) / (latency.STRIDED_LOADS * _ROUNDS)


def farthest_word() -> float:
    """Microseconds of a word from block 0 to the block that gets it last."""
    found = []
    for partner in (1, 2, 9, NUM_MULTIPROCESSORS - 1):
        words, clocks, gave_up = output(512), output(8), output(4)
        arguments = struct.pack("<QiiQQ", words.address, partner, _ROUNDS, clocks.address, gave_up.address)
        _run(launched("latency.cu", "ping_pong", NUM_MULTIPROCESSORS, 1, arguments, words, clocks, gave_up))
        found.append(_number(clocks) / _ROUNDS / 2 / CLOCK_HZ * 1e6)
    return max(found)


def exchange(width: int, num_blocks: int, how: str) -> float:
    """Microseconds of a step in which all blocks get a vector that each wrote a slice of."""
    words, copies = latency.EXCHANGES[how]
    times = []
    for steps in _STEPS:
        buffers, result, gave_up = output(8 * copies * width), output(16), output(4)
        arguments = struct.pack("<QiiQQ", buffers.address, width, steps, result.address, gave_up.address)
        kernel = f"exchange<{words}, {copies}>"
        _run(launched("latency.cu", kernel, num_blocks, 256, arguments, buffers, result, gave_up))
        times.append(_number(result))
    return (times[1] - times[0]) / (_STEPS[1] - _STEPS[0]) / 1000


def cluster_barrier(kind: str, size: int) -> float:
    """Clocks of the barrier of a cluster's blocks."""
    clocks = output(8)
    kernel = f"barrier_rounds<{size}, {str(kind == 'relaxed').lower()}>"
    arguments = struct.pack("<i4xQ", _ROUNDS, clocks.address)
    _run(launched("clusters.cu", kernel, size, 256, arguments, clocks, cluster_blocks=size))
    return _number(clocks) / _ROUNDS


def remote_load(rank: int, size: int) -> float:
    """Clocks of a load from the shared storage of another block of the cluster."""
    clocks = output(8)
    arguments = struct.pack("<IiQ", rank, _ROUNDS, clocks.address)
    kernel = f"remote_load<{size}>"
    _run(launched("clusters.cu", kernel, size, 32, arguments, clocks, shared_bytes=16, cluster_blocks=size))
    return _number(clocks) / _ROUNDS


#: The pattern of a row's name, its unit, and the function of the pattern's groups.
ROWS: tuple[tuple[str, str, Callable[..., float]], ...] = (
    (r"empty kernel, (\d+) blocks of 256 threads", "us", one_launch),
    (r"two empty kernels, (\d+) blocks of 256 threads", "us", two_launches),
    (r"cooperative empty kernel, a block a multiprocessor", "us", lambda: one_launch(NUM_MULTIPROCESSORS)),
    (r"kernel with last-block hand-off, (\d+) blocks of 256 threads", "us", hand_off),
    (r"__syncthreads, (\d+) threads", "clocks", block_barrier),
    (r"ld\.acquire\.gpu that hits L2", "clocks", acquire_load),
    (r"load from (memory|L2), one of (\d+) MiB after the other", "clocks", load_of_chain),
    (r"load of a warp from L1, (\d+) bytes a lane, 8 at once", "clocks", strided_load),
    (r"word from block to block, farthest", "us", farthest_word),
    (r"exchange of (\d+) words between (\d+) blocks, (.*)", "us", exchange),
    (r"barrier, (.*), cluster of (\d+)", "clocks", cluster_barrier),
    (r"load from block (\d+), cluster of (\d+)", "clocks", remote_load),
)


class Value(NamedTuple):
    """A predicted value and its unit."""

    value: float
    unit: str


def predicted(name: str) -> Value | None:
    """What is predicted for a row; None if it is of another kind."""
    for pattern, unit, function in ROWS:
        if found := re.fullmatch(pattern, name):
            return Value(function(*(int(n) if n.isdigit() else n for n in found.groups())), unit)
    return None
