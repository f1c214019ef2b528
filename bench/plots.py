"""`python -m bench plots FOLDER`: the site's plots, each for one question, from the CSV files of the results.

The site's build calls `write`, so no plot is committed and none can be out of date.
"""

import argparse
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import compare, report, results, standing
from bench.gru import CASES as GRU_CASES
from bench.gru import GruCase
from bench.prediction import native_peers
from bench.prediction import table as predicted
from bench.prediction.model import FLOPS, LAUNCH_US
from bench.prediction.rows import measured

#: Most rows of a plot: nobody reads more.
MAX_ROWS = 12

#: The series that are drawn as a line across the row: the time of an empty launch and the case's bytes, and
#: `gru_bound_us`.
LIMIT, BOUND = "limit of memory", "GRU's own bound"

#: The shape and the colour of each series, the same in every plot.
MARKS = {
    "cudml": "oC0",
    "numpy": "sC1",
    "numpy.argpartition": "sC1",
    "torch": "DC2",
    "torch.topk": "DC2",
    "torch.argmax": "hC6",
    "torch.gather": "DC2",
    "torch graph": "dC8",
    "torch tf32": "PC5",
    "torch, GRU cells": "XC9",
    "torch.sort": "dC5",
    "jax.lax.top_k": "^C3",
    "onnxruntime, one thread": "vC4",
    "copy": "xC7",
    "CuPy": "sC1",
    "cupy.argpartition": "<C9",
    "cupy.argsort": "sC1",
    "flashinfer": "PC6",
    "flashinfer, sorted": "XC8",
    "cub.DeviceTopK": "^C3",
    "raft.select_k": "vC4",
    LIMIT: "|k",
    BOUND: "|k",
}

#: Follows the name of a case that was not measured.
PREDICTED = " (predicted)"

#: One name for a peer, measured or predicted.
NAMES = {"cupy": "CuPy"}

CASES_BY_NAME = {case.name: case for case in GRU_CASES}

#: Registers and shared memory of a multiprocessor of an H200: weights that exceed both together lie in
#: several multiprocessors.
_CHIP_BYTES = 256 * 1024 + 227 * 1024
_CLOCK_MHZ = 1980


@dataclass(frozen=True)
class Plot:
    """A question, and the numbers that answer it: for each row its series by name."""

    name: str
    question: str
    axis: str
    rows: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Question:
    """A question, and the cases on an H200 that answer it: those whose name matches the pattern `cases`."""

    name: str
    operator: str
    text: str
    cases: str


QUESTIONS = (
    Question("top_k-tokens", "top_k", "Tokens of language models", "language|serving|greedy|beam|sampling"),
    Question(
        "top_k-experts", "top_k", "Experts of a mixture, segments, a small row", "experts|segments|latency"
    ),
    Question("top_k-indexer", "top_k", "Sparse attention, sparse gradients", "indexer|sparse|percentile"),
    Question(
        "top_k-neighbours", "top_k", "Neighbours and databases", "neighbours|database|quantised|adversary"
    ),
    Question(
        "top_k-vision", "top_k", "Detection, accuracy, columns", "detect|segmentation|accuracy|columns|whole"
    ),
    Question("top_k-published", "top_k", "Shapes with published times", "published"),
    Question("top_k-data", "top_k", "Does the data matter? 64 rows of 131,072", "patterns 64"),
    Question("top_k-large-k", "top_k", "Does the data matter? k = 2048", "patterns 256|indexer 256"),
    Question("gru-models", "gru", "Layers of real models", "(?!grid|streaming|a few|both|.* layers)"),
    Question("gru-stacks", "gru", "Layers on top of each other", ".* layers"),
    Question("gru-streaming", "gru", "One step, or three", "streaming|a few"),
    Question("gru-small-batches", "gru", "256 steps, float32, 1 and 8 sequences", "grid.* N (1|8) .*float32"),
    Question(
        "gru-large-batches", "gru", "256 steps, float32, 32 and 128 sequences", "grid.* N (32|128) .*float32"
    ),
    Question("gru-float16", "gru", "256 steps, float16", "(grid|both).*float16"),
    Question("slice-vectors", "slice", "Part of a vector", "part of a vector"),
    Question("slice-rows", "slice", "Parts of rows", "part of rows|last|one column"),
    Question("slice-strides", "slice", "Every few elements, float32", "every few.*float32"),
    Question("slice-types", "slice", "Every few elements, other types", "every few(?!.*float32)"),
    Question("slice-images", "slice", "Crops and mirrored images", "crop|mirrored|upside|half"),
    Question("slice-transposes", "slice", "Transposes", "columns|pixels|planes|channels"),
    Question("reverse-rows", "reverse_subsequences", "Rows", "rows|whole|one row"),
    Question(
        "reverse-odd", "reverse_subsequences", "Odd and short rows, small boxes", "odd rows|short|small boxes"
    ),
    Question(
        "reverse-columns", "reverse_subsequences", "Columns and sequences", ".*(columns|sequences|features)"
    ),
)


def main(arguments: list[str]) -> int:
    """Write the plots to a folder."""
    parser = argparse.ArgumentParser(prog="python -m bench plots", description=__doc__)
    parser.add_argument("folder", type=results.folder, metavar="FOLDER")
    write(parser.parse_args(arguments).folder)
    return 0


def write(folder: Path) -> None:
    """Draw every plot into a folder, as SVG, the same bytes from the same numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in (*of_measurements(), *of_questions()):
        draw(plot, folder / f"{plot.name}.svg")


def of_measurements() -> list[Plot]:
    """For each device and operator that was measured, the time of each peer over cudml's."""
    plots = []
    for rows in report.measured_devices(results.RESULTS):
        found = standing.standings(rows)
        limits = standing.standings(rows, limits=True)
        for operator in report.operators_of(rows):
            shown: dict[str, dict[str, float]] = {}
            for one in (*found, *limits):
                if one.own.operator == operator:
                    label = f"{one.own.case}   {standing.microseconds(one.own.median_us)}"
                    shown.setdefault(label, {})[one.other.implementation] = one.ratio
            device = rows[0].device
            question = f"How many times as long do others take on {_article(device)}?{_shown_of(shown)}"
            axis = "time over that of cudml, which is beside each case"
            plots.append(Plot(f"{_file_name(device)}-{operator}", question, axis, _first(shown)))
    return plots


def of_questions() -> list[Plot]:
    """For each question the times of cudml and of peers on an H200, and the limit.

    A row has measured times, or, where cudml was not measured, predicted ones, and says so.
    """
    _, rows = predicted.read()
    peers = native_peers.read()
    measured_rows = measured_times()
    plots = []
    for question in QUESTIONS:
        shown: dict[str, dict[str, float]] = {}
        for row in rows:
            if row.operator != question.operator or not re.match(question.cases, row.case):
                continue
            series = dict(measured_rows.get(row.key, {}))
            label = row.case if series else row.case + PREDICTED
            if not series:
                series = {"cudml": row.time_us} | ({"CuPy": row.cupy_us} if row.cupy_us else {})
                of_case = (one for one in peers if (one.operator, one.case) == row.key)
                series |= {one.peer: one.time_us for one in of_case if one.time_us}
            if row.operator == "gru":
                series[BOUND] = gru_bound_us(CASES_BY_NAME[row.case], row.limit_us)
            else:
                series[LIMIT] = LAUNCH_US + row.limit_us
            shown[label] = series
        drawn = _first(shown)
        plots.append(Plot(question.name, question.text + _shown_of(shown), _axis(drawn), drawn))
    return plots


def measured_times() -> dict[tuple[str, str], dict[str, float]]:
    """By operator and case, the times that were measured on the GPU of predictions, cudml's first."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for rows in report.measured_devices(results.RESULTS):
        known = compare.measured_cases(rows)
        for row in rows:
            key = row.operator, row.case
            if key in known and row.cache == "cold" and not standing.is_wrong(row):
                found.setdefault(key, {})[NAMES.get(row.implementation, row.implementation)] = row.median_us
    return found


def gru_bound_us(case: GruCase, limit_us: float) -> float:
    """The time that no kernel on an H200 can beat: an empty launch, and the most of bytes, arithmetic, waits.

    Each step waits for the one before. The wait takes at least a barrier of a block if the recurrent weights
    of a direction fit a multiprocessor, else a word from one block to the nearest other. A step has two waits
    if the reset gate comes before the product.
    """
    figures = measured()
    columns = case.hidden_size + case.input_size
    columns += (case.num_layers - 1) * (1 + case.num_directions) * case.hidden_size
    per_step = 2 * 3 * case.hidden_size * columns * case.batch * case.num_directions
    arithmetic_us = case.steps * per_step / FLOPS[case.product_type] * 1e6
    weights = 3 * case.hidden_size**2 * np.dtype(case.dtype).itemsize
    if weights <= _CHIP_BYTES:
        wait_us = figures["__syncthreads, 64 threads"] / _CLOCK_MHZ
    else:
        wait_us = figures["word from block to block, nearest"]
    waits = (case.steps - 1) * (1 if case.linear_before_reset else 2)
    return LAUNCH_US + max(limit_us, arithmetic_us, waits * wait_us)


def draw(plot: Plot, path: Path) -> None:
    """A row for each case, a mark for each series, with a legend above."""
    pyplot = _pyplot()
    names = list(plot.rows)
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.3 * len(names)), layout="constrained")
    if all("cudml" not in series for series in plot.rows.values()):
        axes.axvline(1, color="black", linewidth=1)
    all_series = dict.fromkeys(name for series in plot.rows.values() for name in series)
    for name in all_series:
        places = [place for place, series in enumerate(plot.rows.values()) if name in series]
        values = [series[name] for series in plot.rows.values() if name in series]
        mark = MARKS.get(name, "PC6")  # of a peer that is new
        axes.plot(
            values,
            places,
            marker=mark[0],
            color=mark[1:],
            markersize=12 if mark == "|k" else 7,
            markeredgewidth=2 if mark[0] in "|x" else 1,
            linestyle="",
            label=name,
        )
    _label_times(axes, [value for series in plot.rows.values() for value in series.values()])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="both", alpha=0.3)
    axes.set_xlabel(plot.axis, loc="right")
    figure.suptitle(plot.question, fontweight="bold")
    figure.legend(loc="outside lower center", ncols=min(4, len(all_series)), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _label_times(axes: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, more of them where the values are near to each other."""
    axes.set_xscale("log")
    near = max(values) < 30 * min(values)
    axes.xaxis.set_major_locator(
        importlib.import_module("matplotlib.ticker").LogLocator(subs=(1, 2, 5) if near else (1,))
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")


def _first(rows: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    return dict(islice(rows.items(), MAX_ROWS))


def _shown_of(rows: Mapping[str, Mapping[str, float]]) -> str:
    return f" ({MAX_ROWS} of {len(rows)} cases)" if len(rows) > MAX_ROWS else ""


def _axis(rows: Mapping[str, Mapping[str, float]]) -> str:
    """What the numbers are, by the names of the cases."""
    told = {name.endswith(PREDICTED) for name in rows}
    if told == {True, False}:
        return "microseconds on an H200, measured but where predicted is said"
    kind = "predicted from machine code, not measured" if True in told else "measured"
    return f"microseconds on an H200, {kind}"


def _file_name(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower())


def _article(device: str) -> str:
    """The letter N is spelt "en"."""
    return f"an {device}" if device[0] in "AEIOU" or device.startswith("NVIDIA") else f"a {device}"


def _pyplot() -> Any:
    """matplotlib's interface for files, imported here because the tables do without it."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cudml"  # the same plot gives the same file
    matplotlib.rcParams["font.size"] = 10
    return importlib.import_module("matplotlib.pyplot")
