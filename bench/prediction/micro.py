"""The held-out test: rows of bench/micro that no constant was taken from, predicted from their kernels.

`GROUPS` are told apart because bytes over bandwidth alone is right for most rows of the last.
"""

import csv
import functools
import statistics
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.micro import bandwidth, selection
from bench.prediction.model import LAUNCH_US, Prediction, predict
from bench.results import RESULTS
from bench.sources import Source
from tests.machine_code import cubin
from tests.machine_code.compiler import compile_cubin
from tests.machine_code.plan import HOPPER, Kernel
from tests.machine_code.sass.decode import decode
from tests.machine_code.sass.launch import Buffer, Launch, run, zeros
from tests.machine_code.sass.rates import MEMORY_RATE, NUM_MULTIPROCESSORS

GROUPS = ("arg-max", "histograms short of bandwidth", "the rest")
#: A histogram that reaches a smaller part of the bandwidth than this is not limited by it.
_SHORT = 0.95 * 4230.0


@dataclass(frozen=True)
class Comparison:
    """A row: the measured and the predicted value, and bytes over bandwidth, in the row's unit."""

    name: str
    group: str
    unit: str
    measured: float
    predicted: float
    trivial: float | None
    bound: str

    @property
    def error(self) -> float:
        """The predicted time over the measured one, minus 1; rates are converted to times."""
        return _error(self, self.predicted)

    @property
    def trivial_error(self) -> float | None:
        return None if self.trivial is None else _error(self, self.trivial)


def _error(row: Comparison, value: float) -> float:
    return (row.measured / value if row.unit == "GB/s" else value / row.measured) - 1


def measured(path: Path = RESULTS / "nvidia-h200-micro.csv") -> dict[str, float]:
    """The held-out rows by name."""
    with path.open(newline="") as file:
        return {
            row["name"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["name"].startswith(("filter ", "histogram ", "arg-max ", "copy kernel"))
        }


def row_names(part: str) -> list[str]:
    """The held-out rows whose name contains a text."""
    return [name for name in measured() if part in name]


def compared(names: str = "") -> Iterator[Comparison]:
    """The rows whose name contains a text."""
    known = measured()
    yield from (row for make in (_arg_maxima, _histograms, _filters, _copies) for row in make(known, names))


def summary(rows: list[Comparison]) -> list[str]:
    """A line per group: number of rows, median and worst error, of this model and of the trivial one."""
    lines = [
        "| group | rows | median | worst | bytes over bandwidth: median | worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in GROUPS:
        chosen = [row for row in rows if row.group == group]
        if not chosen:
            continue
        cells = []
        for errors in (
            [abs(r.error) for r in chosen],
            [abs(r.trivial_error) for r in chosen if r.trivial_error is not None],
        ):
            cells += [f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"] if errors else ["", ""]
        lines.append(f"| {group} | {len(chosen)} | {' | '.join(cells)} |")
    return lines


@functools.cache
def _kernels(file: str) -> dict[str, Kernel]:
    """The kernels of a file of bench/micro, as `Gpu.kernel` compiles them."""
    names = {
        "selection.cu": [f"arg_max<{m}>" for m in selection.ARG_MAXIMA]
        + [f"histogram<{key}, {width}>" for key, _, widths in selection.HISTOGRAMS for width in widths],
        "bandwidth.cu": [f"filter_vectors<{m}, {bandwidth.LOADS}>" for m in bandwidth.FILTERS]
        + [f"{kind}_vectors<{bandwidth.LOADS}>" for kind in ("copy", "read")],
    }[file]
    text = (Path(selection.__file__).parent / file).read_text()
    made = compile_cubin(text, HOPPER.name, names)
    code, facts = decode(made.cubin), cubin.kernels_of(made.cubin)
    return {name: Kernel(code[made.mangled[name]], facts[made.mangled[name]]) for name in names}


def _launch(
    file: str, name: str, grid: int, block: int, shared_bytes: int, arguments: bytes, *buffers: Buffer
) -> Launch:
    kernel = _kernels(file)[name]
    resident = kernel.resident_blocks(block, shared_bytes)
    shape = ((grid, 1, 1), (block, 1, 1), shared_bytes)
    return Launch(kernel.code, arguments, buffers, *shape, resident_blocks=resident)


def _output(num_bytes: int) -> Buffer:
    return Buffer(zeros(num_bytes), is_output=True)


def _rate(
    name: str, known: dict[str, float], found: Prediction, num_bytes: int, is_short: bool = False
) -> Comparison:
    """`num_bytes` counts the bytes read and written."""
    return Comparison(
        name,
        GROUPS[1] if is_short else GROUPS[2],
        "GB/s",
        known[name],
        num_bytes / found.time_us / 1000,
        num_bytes / (LAUNCH_US + num_bytes / MEMORY_RATE * 1e6) / 1000,
        found.bound,
    )


def _arg_maxima(known: dict[str, float], names: str) -> Iterator[Comparison]:
    rounds = 100
    for method, told in selection.ARG_MAXIMA.items():
        for num_warps in (1, 8, 32):
            name = f"arg-max by {told}, a warp of {num_warps}"
            if names not in name:
                continue
            clocks, never = _output(8), _output(8)
            arguments = struct.pack("<i4xQQ", rounds, clocks.address, never.address)
            launch = _launch(
                "selection.cu", f"arg_max<{method}>", 1, 32 * num_warps, 0, arguments, clocks, never
            )
            run(launch)
            value = int(clocks.array.view(np.int64)[0]) / rounds / num_warps
            yield Comparison(name, GROUPS[0], "clocks", known[name], value, None, "issue and latency")


def _histograms(known: dict[str, float], names: str, mib: int = 256) -> Iterator[Comparison]:
    size, grid = mib << 20, 4 * NUM_MULTIPROCESSORS
    for key, dtype, widths in selection.HISTOGRAMS:
        for width in widths:
            for pattern in ("normal", "uniform", "relu"):
                name = f"histogram of {dtype} {pattern}, {width} bits"
                if names not in name:
                    continue
                data = _shared_data(size, selection.THREADS, grid, dtype, pattern)
                totals = _output(4 << width)
                arguments = struct.pack("<QqQ", data.address, size // 16, totals.address)
                kernel = f"histogram<{key}, {width}>"
                launch = _launch(
                    "selection.cu", kernel, grid, selection.THREADS, 4 << width, arguments, data, totals
                )
                yield _rate(name, known, predict(launch), size, known[name] < _SHORT)


def _filters(known: dict[str, float], names: str) -> Iterator[Comparison]:
    for mib in (32, 512):
        for method, dtype in bandwidth.FILTERS.items():
            for blocks in (4, 8, 16):
                name = f"filter {method}, {mib} MiB, {blocks} blocks a multiprocessor"
                if names not in name:
                    continue
                size = mib << 20
                grid = min(size // 16 // (bandwidth.LOADS * bandwidth.THREADS), blocks * NUM_MULTIPROCESSORS)
                data = _shared_data(size, bandwidth.THREADS, grid, dtype, "normal")
                num_kept, kept = _output(4), _output(8 << 16)
                threshold = bandwidth._threshold_word(method, dtype)
                values = (data.address, size // 16, threshold, num_kept.address, kept.address, 1 << 16)
                arguments = struct.pack("<QqI4xQQI4x", *values)
                kernel = f"filter_vectors<{method}, {bandwidth.LOADS}>"
                launch = _launch(
                    "bandwidth.cu", kernel, grid, bandwidth.THREADS, 0, arguments, data, num_kept, kept
                )
                yield _rate(name, known, predict(launch), size)


def _copies(known: dict[str, float], names: str) -> Iterator[Comparison]:
    for mib in (1, 4, 16, 64, 256, 1024, 4096):
        name = f"copy kernel, {mib} MiB read"
        if names in name:
            yield _rate(name, known, predict(bandwidth_launch("copy", mib)), 2 * (mib << 20))


def bandwidth_launch(kind: str, mib: int) -> Launch:
    """`read` or `copy`, as bench/micro/bandwidth.py launches it."""
    size = mib << 20
    grid = min(size // 16 // (bandwidth.LOADS * bandwidth.THREADS), 16 * NUM_MULTIPROCESSORS)
    source = Buffer(zeros(size))
    target = _output(size if kind == "copy" else 4)
    values = (source.address, target.address, size // 16)
    arguments = (
        struct.pack("<QQq", *values)
        if kind == "copy"
        else struct.pack("<QqQ", values[0], values[2], values[1])
    )
    return _launch(
        "bandwidth.cu",
        f"{kind}_vectors<{bandwidth.LOADS}>",
        grid,
        bandwidth.THREADS,
        0,
        arguments,
        source,
        target,
    )


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
