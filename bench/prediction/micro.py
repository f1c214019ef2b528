"""The held-out test: rows of bench/micro that no constant was taken from, predicted from their kernels.

`rows.py` says of each row what it is, `waits.py` predicts those in which threads wait for each other.
"""

import statistics
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.micro import bandwidth, selection
from bench.prediction import waits
from bench.prediction.kernels import launched, output
from bench.prediction.model import LAUNCH_US, Prediction, library_call, predict
from bench.prediction.rows import CONSTANTS, GROUPS, MEAN, group_of, held_out, measured, reason
from bench.sources import Source
from cudml.plans import Copy, Fill
from proof.sass.launch import Buffer, Launch, run, zeros
from proof.sass.rates import MEMORY_RATE, NUM_MULTIPROCESSORS

_SIZES = (1, 4, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True)
class Comparison:
    """A row: the measured and the predicted value, and bytes over bandwidth, in the row's unit."""

    name: str
    unit: str
    measured: float
    predicted: float
    trivial: float | None

    @property
    def group(self) -> str:
        """The row's group of `rows.GROUPS`."""
        return group_of(self.name)

    @property
    def error(self) -> float:
        """The predicted time over the measured one, minus 1; rates are converted to times."""
        return _error(self, self.predicted)

    @property
    def trivial_error(self) -> float | None:
        return None if self.trivial is None else _error(self, self.trivial)


def _error(row: Comparison, value: float) -> float:
    return (row.measured / value if row.unit == "GB/s" else value / row.measured) - 1


def row_names(part: str) -> list[str]:
    """The held-out rows whose name contains a text."""
    return [name for name in held_out() if part in name]


def compared(names: str | Sequence[str] = "") -> Iterator[Comparison]:
    """Predict the rows whose name contains a text, or those of some names."""
    wanted = set(row_names(names) if isinstance(names, str) else names)
    for make in (_arg_maxima, _histograms, _filters, _bandwidths, _waits):
        yield from make(wanted)


def _errors(rows: Sequence[Comparison], values: Sequence[float | None]) -> list[str]:
    """The median of the errors without sign, and the worst one with its sign."""
    errors = [v for v in values if v is not None]
    if not errors:
        return ["", ""]
    return [f"{statistics.median(map(abs, errors)):.1%}", f"{max(errors, key=abs):+.1%}"]


def summary(rows: Sequence[Comparison]) -> list[str]:
    """A line per group: number of rows, median and worst error of this model and of the trivial one, the mean
    of this one's; then the mean of all, and what became of the rows that are not predicted.
    """
    lines = [
        "| group | rows | median | worst | mean | bytes over bandwidth: median | worst |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for group in GROUPS:
        if chosen := [row for row in rows if row.group == group]:
            own = _errors(chosen, [row.error for row in chosen])
            own.append(f"{mean_error(chosen):+.1%}")
            trivial = _errors(chosen, [row.trivial_error for row in chosen])
            lines.append(f"| {group} | {len(chosen)} | {' | '.join(own + trivial)} |")
    names = measured()
    told = [
        f"mean error of {len(rows)} held-out rows: {mean_error(rows):+.1%}",
        f"{len(CONSTANTS)} rows are constants, {sum(reason(n) is not None for n in names)} are not modelled, "
        f"{len(held_out())} of {len(names)} are held out",
    ]
    return lines + told if rows else lines


def failures(rows: Sequence[Comparison]) -> list[str]:
    """The rows and the groups whose errors are above their bars, and the mean error if it is above its bar.

    A median is compared only if all rows of its group are there, the mean only if all held-out rows are.
    """
    found = []
    every = Counter(map(group_of, held_out()))
    for group, bar in GROUPS.items():
        chosen = [row for row in rows if row.group == group]
        found += [
            f"{row.name}: {row.error:+.1%}, allowed is {bar.worst:.1%} on either side"
            for row in chosen
            if abs(row.error) > bar.worst
        ]
        if len(chosen) == every[group]:
            median = statistics.median(abs(row.error) for row in chosen)
            if median > bar.median:
                found.append(f"{group}: median {median:.1%}, allowed is {bar.median:.1%}")
    if len(rows) == len(held_out()) and abs(mean_error(rows)) > MEAN:
        found.append(f"mean error {mean_error(rows):+.1%}, allowed is {MEAN:.1%} on either side")
    return found


def mean_error(rows: Sequence[Comparison]) -> float:
    """The mean of errors, with their signs."""
    return statistics.fmean(row.error for row in rows)


def _rate(name: str, found: Prediction, num_bytes: int) -> Comparison:
    """`num_bytes` counts the bytes read and written."""
    return Comparison(
        name,
        "GB/s",
        measured()[name],
        num_bytes / found.time_us / 1000,
        num_bytes / (LAUNCH_US + num_bytes / MEMORY_RATE * 1e6) / 1000,
    )


def _arg_maxima(wanted: set[str]) -> Iterator[Comparison]:
    rounds = 100
    for method, told in selection.ARG_MAXIMA.items():
        for num_warps in (1, 8, 32):
            name = f"arg-max by {told}, a warp of {num_warps}"
            if name not in wanted:
                continue
            clocks, never = output(8), output(8)
            arguments = struct.pack("<i4xQQ", rounds, clocks.address, never.address)
            kernel = f"arg_max<{method}>"
            run(launched("selection.cu", kernel, 1, 32 * num_warps, arguments, clocks, never))
            value = int(clocks.array.view(np.int64)[0]) / rounds / num_warps
            yield Comparison(name, "clocks", measured()[name], value, None)


def _histograms(wanted: set[str], mib: int = 256) -> Iterator[Comparison]:
    size, grid = mib << 20, 4 * NUM_MULTIPROCESSORS
    for key, dtype, widths in selection.HISTOGRAMS:
        for width in widths:
            for pattern in ("normal", "uniform", "relu"):
                name = f"histogram of {dtype} {pattern}, {width} bits"
                if name not in wanted:
                    continue
                data = _shared_data(size, selection.THREADS, grid, dtype, pattern)
                totals = output(4 << width)
                arguments = struct.pack("<QqQ", data.address, size // 16, totals.address)
                kernel = f"histogram<{key}, {width}>"
                given = (grid, selection.THREADS, arguments, data, totals)
                launch = launched("selection.cu", kernel, *given, shared_bytes=4 << width)
                yield _rate(name, predict(launch), size)


def _filters(wanted: set[str]) -> Iterator[Comparison]:
    for mib in (32, 512):
        for method, dtype in bandwidth.FILTERS.items():
            for blocks in (4, 8, 16):
                name = f"filter {method}, {mib} MiB, {blocks} blocks a multiprocessor"
                if name not in wanted:
                    continue
                size = mib << 20
                grid = min(size // 16 // (bandwidth.LOADS * bandwidth.THREADS), blocks * NUM_MULTIPROCESSORS)
                data = _shared_data(size, bandwidth.THREADS, grid, dtype, "normal")
                num_kept, kept = output(4), output(8 << 16)
                threshold = bandwidth._threshold_word(method, dtype)
                values = (data.address, size // 16, threshold, num_kept.address, kept.address, 1 << 16)
                arguments = struct.pack("<QqI4xQQI4x", *values)
                kernel = f"filter_vectors<{method}, {bandwidth.LOADS}>"
                given = (grid, bandwidth.THREADS, arguments, data, num_kept, kept)
                yield _rate(name, predict(launched("bandwidth.cu", kernel, *given)), size)


def _bandwidths(wanted: set[str]) -> Iterator[Comparison]:
    for mib in _SIZES:
        size = mib << 20
        for name, num_bytes, predicted in (
            (f"read, {mib} MiB", size, lambda: predict(bandwidth_launch("read", mib))),  # noqa: B023
            (f"copy kernel, {mib} MiB read", 2 * size, lambda: predict(bandwidth_launch("copy", mib))),  # noqa: B023
            (f"memset, {mib} MiB", size, lambda: library_call(Fill("", size))),  # noqa: B023
            (f"cudaMemcpyAsync, {mib} MiB read", 2 * size, lambda: library_call(Copy("", "", size))),  # noqa: B023
        ):
            if name in wanted:
                yield _rate(name, predicted(), num_bytes)


def _waits(wanted: set[str]) -> Iterator[Comparison]:
    for name in held_out():
        if name in wanted and (found := waits.predicted(name)):
            yield Comparison(name, found.unit, measured()[name], found.value, None)


def bandwidth_launch(kind: str, mib: int) -> Launch:
    """`read` or `copy`, as bench/micro/bandwidth.py launches it."""
    size = mib << 20
    grid = min(size // 16 // (bandwidth.LOADS * bandwidth.THREADS), 16 * NUM_MULTIPROCESSORS)
    source = Buffer(zeros(size))
    target = output(size if kind == "copy" else 4)
    values = (source.address, target.address, size // 16)
    arguments = (
        struct.pack("<QQq", *values)
        if kind == "copy"
        else struct.pack("<QqQ", values[0], values[2], values[1])
    )
    kernel = f"{kind}_vectors<{bandwidth.LOADS}>"
    return launched("bandwidth.cu", kernel, grid, bandwidth.THREADS, arguments, source, target)


def _shared_data(size: int, threads: int, grid: int, dtype: str, pattern: str) -> Buffer:
    """Numbers for the tiles of the first multiprocessor's blocks, drawn as in bench/micro."""
    array = zeros(size)
    tiles = array.reshape(-1, 16 * bandwidth.LOADS * threads)
    count = tiles.shape[1] // np.dtype(dtype).itemsize
    source = Source(np, 1)
    for block in range(0, grid, NUM_MULTIPROCESSORS):
        for number in range(block, len(tiles), grid):
            numbers = source.uniform((count,)) if pattern == "uniform" else source.normal((count,))
            numbers = np.maximum(numbers, 0) if pattern == "relu" else numbers
            scaled = numbers * np.float32(16) if dtype == "int8" else numbers
            tiles[number] = scaled.astype(dtype).view(np.uint8)
    return Buffer(array)
