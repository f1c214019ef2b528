"""Timers: CUDA events around one call with a cold or warm L2, or the host's clock on the CPU."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.targets import Target

MIN_REPEATS, MAX_REPEATS = 5, 200

#: Longer calls are repeated only twice.
LONG_CALL_US = 200_000.0

#: The flush reads this multiple of the L2 cache, whose replacement is not strictly least recently used.
FLUSH_FACTOR = 3

#: Reads of the flush before a measurement, some 15 ms on a fast GPU: its clocks rise under load.
WARM_UP_FLUSHES = 300

#: Longest time the GPU is held busy so that the host can queue a call behind it.
MAX_DELAY_US = 2000.0


@dataclass(frozen=True)
class Timing:
    """`host_us` is the host time of one call, None if that is the measurement itself."""

    median_us: float
    p20_us: float
    p80_us: float
    repeats: int
    host_us: float | None = None

    @staticmethod
    def of(times_us: list[float], host_us: float | None = None) -> "Timing":
        """The median and the 20th and 80th percentile of the times."""
        ordered = sorted(times_us)
        last = len(ordered) - 1
        return Timing(
            statistics.median(ordered),
            ordered[round(0.2 * last)],
            ordered[round(0.8 * last)],
            len(ordered),
            host_us,
        )


class Timer(Protocol):
    """Times calls on one device."""

    @property
    def caches(self) -> tuple[str, ...]:
        """The cache states that `measure` supports, the one to report first."""

    def measure(self, call: Callable[[], Any], cache: str, seconds: float, by_host: bool = False) -> Timing:
        """Call repeatedly for about `seconds`, after a warm-up.

        With `by_host`, the host's clock times calls that end when their results are there.
        """


class HostTimer:
    """Times by the host's clock. The caches hold what the previous call left."""

    caches = ("warm",)

    def measure(self, call: Callable[[], Any], cache: str, seconds: float, by_host: bool = False) -> Timing:
        estimate_us = _elapsed_us(call)
        return Timing.of([_elapsed_us(call) for _ in range(_repeats(seconds, estimate_us))])


class CudaTimer:
    """CUDA events around the call.

    The GPU is kept busy while the host queues the call, so that launches already wait when the first event is
    reached and what is measured is the GPU alone. For "cold" the L2 cache is filled with other, clean lines.
    """

    caches = ("cold", "warm")

    def __init__(self, l2_bytes: int) -> None:
        import cupy

        self._cupy = cupy
        module = cupy.RawModule(code=Path(__file__).with_name("timing.cu").read_text())
        self._delay = module.get_function("delay")
        self._read_through = module.get_function("read_through")
        self._flush_words = cupy.zeros(FLUSH_FACTOR * max(l2_bytes, 1 << 22) // 16 * 2, dtype=cupy.uint64)
        self._never = cupy.zeros(1, dtype=cupy.uint32)
        self._blocks = 8 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def measure(self, call: Callable[[], Any], cache: str, seconds: float, by_host: bool = False) -> Timing:
        cupy = self._cupy
        synchronize = cupy.cuda.get_current_stream().synchronize
        for _ in range(2):  # The first call builds and allocates.
            call()
        for _ in range(WARM_UP_FLUSHES):
            self.flush()
        synchronize()
        queued_us = _elapsed_us(call)
        total_us = queued_us + _elapsed_us(synchronize)
        if by_host:
            return Timing.of([self._by_host_us(call, cache) for _ in range(_repeats(seconds, total_us))])
        delay_us = min(2 * queued_us + 20, MAX_DELAY_US)

        events = []
        host_us = []
        for _ in range(_repeats(seconds, total_us + delay_us + 60)):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            self._delay((1,), (1,), (cupy.uint64(1000 * delay_us),))
            if cache == "cold":
                self.flush()
            start.record()
            host_us.append(_elapsed_us(call))
            stop.record()
            events.append((start, stop))
        synchronize()
        times_us = [1000 * cupy.cuda.get_elapsed_time(start, stop) for start, stop in events]
        return Timing.of(times_us, statistics.median(host_us))

    def _by_host_us(self, call: Callable[[], Any], cache: str) -> float:
        if cache == "cold":
            self.flush()
        self._cupy.cuda.get_current_stream().synchronize()
        return _elapsed_us(call)

    def flush(self) -> None:
        """Fill the L2 cache with lines that no call uses."""
        words = self._flush_words
        count = self._cupy.uint64(words.size // 2)
        self._read_through((self._blocks,), (256,), (words, count, self._never))


def timer_of(target: Target) -> Timer:
    """The timer for a device."""
    return CudaTimer(target.l2_bytes) if target.kind == "cuda" else HostTimer()


def _repeats(seconds: float, each_us: float) -> int:
    least = MIN_REPEATS if each_us < LONG_CALL_US else 2
    return max(least, min(MAX_REPEATS, int(1e6 * seconds / each_us)))


def _elapsed_us(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000
