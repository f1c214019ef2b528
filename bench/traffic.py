"""`python -m bench traffic`: how often the paths of top-k read their input, on rows of many tiles.

The emulator's meter counts the bytes that kernels load of the input, wherever the memory system finds them;
elements that are loaded again as results count, too. Writes bench/results/top_k_traffic.csv; `--check` only
compares with it.
"""

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import numpy as np

import cudml
from bench.results import RESULTS
from cudml.devices import emulator
from proof.sass.plan import HOPPER
from tests.support import run_plan
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import Options, plan_for

TABLE = RESULTS / "top_k_traffic.csv"

#: The most that a ratio may differ by: another NumPy may draw other random numbers.
TOLERANCE = 0.005


def _at_samples(values: np.ndarray, *, on: bool) -> np.ndarray:
    """Elements that a sample of every 64th load of 16 bytes sees are greater than the rest, or less."""
    sampled = np.arange(values.size) % 256 < 4
    return np.where(sampled == on, np.abs(values) + 8, values)


#: How values are spread along a row, made from normal and uniform numbers.
DISTRIBUTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "normal": lambda normal, uniform: normal,
    "uniform": lambda normal, uniform: uniform,
    "half zeros": lambda normal, uniform: np.maximum(normal, 0),
    "few values": lambda normal, uniform: np.floor(40 * uniform),
    "ascending": lambda normal, uniform: np.sort(normal),
    "descending": lambda normal, uniform: -np.sort(normal),
    "alike in fours": lambda normal, uniform: np.repeat(normal[: normal.size // 4], 4),
    "all equal": lambda normal, uniform: np.ones_like(normal),
    "same leading bits": lambda normal, uniform: 1 + uniform * np.float32(3e-5),
    "greatest where sampled": lambda normal, uniform: _at_samples(normal, on=True),
    "least where sampled": lambda normal, uniform: _at_samples(normal, on=False),
    "ascending, least where sampled": lambda normal, uniform: _at_samples(np.sort(np.abs(normal)), on=False),
    "one large value in every 64th place": lambda normal, uniform: (
        normal + 8 * (np.arange(normal.size) % 64 == 0)
    ),
    "NaN 95 %": lambda normal, uniform: np.where(uniform < 0.95, np.nan, normal),
    "masked": lambda normal, uniform: np.where(uniform < 0.9, -np.inf, normal),
    "ids with few negatives": lambda normal, uniform: np.where(normal < -3, -1, np.floor(uniform * 30_000)),
}

#: Distributions in random order, although many elements of "few values" and "half zeros" tie.
RANDOM = ("normal", "uniform", "half zeros", "few values")


@dataclass(frozen=True)
class Case:
    """A path on rows of a matrix, or its columns, on a number of multiprocessors with two blocks each."""

    path: str
    dtype: str
    num_rows: int
    row_length: int
    k: int
    distribution: str
    layout: str = "rows"
    multiprocessors: int = 1

    def __str__(self) -> str:
        shape = f"{self.num_rows} {self.layout} of {self.row_length} {self.dtype}"
        return f"{self.path}, {shape}, k {self.k}, {self.distribution}, {self.multiprocessors} processors"

    @property
    def limits(self) -> cudml.plans.Limits:
        """A GPU with that number of multiprocessors, or a CPU."""
        limits = replace(GPU, num_multiprocessors=self.multiprocessors)
        if self.path == "serial":
            return replace(limits, warp_lanes=1)
        return replace(limits, shared_bytes_per_block=HOPPER.limits.shared_bytes_per_block)

    @property
    def options(self) -> Options:
        """How to select."""
        return Options(self.k, axis=1 if self.layout == "rows" else 0, path=self.path)

    def input(self) -> np.ndarray:
        """Rows of the same elements: all blocks have the same work."""
        rng = np.random.default_rng(1)
        normal, uniform = rng.standard_normal(self.row_length), rng.random(self.row_length)
        values = DISTRIBUTIONS[self.distribution](normal, uniform)
        if self.dtype == "int8":
            values = np.clip(values * 32, -128, 127)
        rows = np.repeat(values.astype(self.dtype)[None], self.num_rows, 0)
        return rows if self.layout == "rows" else np.ascontiguousarray(rows.T)

    def report(self) -> cudml.devices.emulator.Report:
        """What a run moves."""
        x = self.input()
        shape = list(x.shape)
        shape[self.options.axis] = self.k
        operands = {
            "input_tensor": x,
            "output_value_tensor": np.empty(shape, x.dtype),
            "output_index_tensor": np.empty(shape, np.uint32),
        }
        plan = plan_for(x, self.options, self.limits)
        with emulator.schedule("forward"), cudml.emulator_report() as report:
            run_plan(emulator.get_device(), plan, operands)
        return report

    def reads(self) -> float:
        """Bytes read of the input over its size."""
        num_bytes = self.num_rows * self.row_length * np.dtype(self.dtype).itemsize
        return self.report().total("input_tensor").bytes_read / num_bytes


#: (dtype, elements of a row, k) of rows that are filtered: at least 64 tiles of kernels/top_k/filter.cuh.
_FILTERED = (
    ("float32", 262_144, 50),
    ("float32", 262_144, 256),
    ("float16", 524_288, 50),
    ("int8", 262_144, 50),
    ("float64", 131_072, 512),
    ("float32", 262_144, 2048),
)
#: Rows that a sample misleads about, or whose elements tie or differ in few bits.
_ADVERSE = (
    "greatest where sampled",
    "least where sampled",
    "one large value in every 64th place",
    "NaN 95 %",
    "masked",
    "ids with few negatives",
    "all equal",
)
_PLAIN = ("normal", "uniform", "half zeros", "few values", "ascending", "descending")


def cases() -> Iterator[Case]:
    """The table's cases. Short rows, and rows that blocks share, are read alike whatever their values."""
    yield Case("arg_max", "float32", 64, 1000, 1, "normal")
    yield Case("warp_select", "float32", 64, 256, 8, "normal")
    yield Case("warp_sort", "float32", 64, 1000, 100, "normal")
    yield Case("block_sort", "float32", 64, 3000, 100, "normal")
    yield Case("block_sort", "float32", 64, 3000, 1000, "normal")
    yield Case("thread_list", "float32", 256, 64, 4, "normal", "columns")
    for distribution in ("normal", "ascending"):
        yield Case("columns", "float32", 64, 4096, 10, distribution, "columns")
        yield Case("columns", "float32", 64, 4096, 10, distribution)
    for dtype, row_length, k in _FILTERED:
        for distribution in _PLAIN:
            yield Case("block_filter", dtype, 2, row_length, k, distribution)
    for distribution in ("greatest", "least", "ascending, least"):
        yield Case("block_filter", "float32", 2, 262_144, 50, f"{distribution} where sampled")
    # A shorter row: of every 64 loads, the eight blocks sample the first.
    yield Case("block_filter", "float32", 1, 192 * 64 * 4, 50, "greatest where sampled", multiprocessors=4)
    for distribution in ("normal", "ascending", "descending", "alike in fours"):
        for k in (50, 512):
            yield Case("block_filter", "float32", 1, 262_144, k, distribution, multiprocessors=4)
    for distribution in ("normal", "ascending"):
        yield Case("block_filter", "float32", 1, 1 << 22, 1000, distribution, multiprocessors=4)
        for k in (50, 2048):
            yield Case("groups", "float32", 2, 262_144, k, distribution)
        for k in (100, 2048):
            yield Case("cluster", "float32", 2, 262_144, k, distribution)
    for distribution in ("half zeros", "few values", "same leading bits", "all equal"):
        for k in (100, 2048):
            yield Case("cluster", "float32", 2, 262_144, k, distribution)
    for distribution in (*_PLAIN, "same leading bits"):
        yield Case("block_keep", "float32", 2, 16_384, 2048, distribution)
    for path in ("block_radix", "grid_radix"):
        for distribution in (*_PLAIN, "same leading bits"):
            yield Case(path, "float32", 1, 262_144, 100, distribution)
    # A sample of each of two blocks is every 64th load, or every 32nd.
    for distribution in (*_PLAIN, "same leading bits", "alike in fours", "least where sampled"):
        yield Case("grid_radix", "float32", 1, 262_144, 2000, distribution, multiprocessors=2)
    yield Case("grid_radix", "float32", 1, 524_160, 500, "greatest where sampled", multiprocessors=2)
    # One block: its sample is every 64th load.
    for distribution in _ADVERSE:
        for k in (100, 2000):
            yield Case("grid_radix", "float32", 1, 262_144, k, distribution)
    for distribution in ("one large value in every 64th place", "greatest where sampled", "NaN 95 %"):
        yield Case("grid_radix", "float64", 1, 131_072, 100, distribution)
    yield Case("grid_radix", "float64", 1, 131_072, 2000, "least where sampled")
    for k in (100, 2000, 6000):
        yield Case("grid_radix", "int64", 1, 131_072, k, "ids with few negatives")
    yield Case("block_radix", "int64", 1, 131_072, 100, "ids with few negatives")
    # The blocks' lists have room for the greatest elements of a row only if these are not side by side.
    for dtype, row_length in (("float32", 524_288), ("float64", 262_144), ("float16", 1_048_576)):
        for distribution in ("normal", "ascending", "descending"):
            yield Case("grid_radix", dtype, 1, row_length, row_length // 13, distribution, multiprocessors=8)
    for distribution in _ADVERSE[2:]:
        yield Case("block_filter", "float32", 2, 262_144, 50, distribution)
        yield Case("groups", "float32", 2, 262_144, 50, distribution)
        yield Case("cluster", "float32", 2, 262_144, 1000, distribution)
        yield Case("block_keep", "float32", 2, 16_384, 2048, distribution)
        yield Case("block_radix", "float32", 1, 262_144, 100, distribution)
    for distribution in _PLAIN:
        for k in (8, 500):
            yield Case("serial", "float32", 1, 65_536, k, distribution)


def read(path: Path = TABLE) -> dict[Case, float]:
    """The recorded ratios; none if there is no file."""
    if not path.exists():
        return {}
    types = {field.name: field.type for field in fields(Case)}
    found = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        reads = float(row.pop("reads"))
        found[Case(**{name: int(v) if types[name] is int else v for name, v in row.items()})] = reads
    return found


def table_text(rows: Iterable[tuple[Case, float]]) -> str:
    """The file's text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(field.name for field in fields(Case)), "reads"])
    writer.writerows([*astuple(case), f"{reads:.5f}"] for case, reads in rows)
    return text.getvalue()


def difference(case: Case, reads: float, recorded: dict[Case, float]) -> str | None:
    """What differs from the table."""
    if case not in recorded:
        return f"{case}: not in {TABLE.name}; run `python -m bench traffic`"
    if abs(reads - recorded[case]) > TOLERANCE:
        told = f"read {recorded[case]:.4f} -> {reads:.4f} times"
        return f"{case}: {told}; run `python -m bench traffic` to renew the table"
    return None


def main(arguments: list[str]) -> int:
    """Write the table, or compare it; return 1 if it differs."""
    parser = argparse.ArgumentParser(prog="python -m bench traffic", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, print the differences")
    options = parser.parse_args(arguments)
    recorded, rows = read(), []
    with emulator.schedule(warp_lanes=32):
        for case in cases():
            rows.append((case, case.reads()))
            print(f"{rows[-1][1]:7.4f}  {case}", flush=True)
    if not options.check:
        TABLE.write_text(table_text(rows))
        return 0
    found = [text for case, reads in rows if (text := difference(case, reads, recorded))]
    found += [f"{case}: no longer there" for case in recorded if case not in dict(rows)]
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0
