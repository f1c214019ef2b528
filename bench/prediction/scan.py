"""A scan of a planner: the path that it chooses for each point, and the time of each that can do it.

The points of an operator are in `scans/`, and its committed table is bench/results/<operator>_scan.csv.
"""

import abc
import csv
import hashlib
import importlib
import io
import json
import math
import os
import statistics
import tempfile
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bench.checks import require_identical
from bench.prediction import model
from bench.prediction.cases import STEPS, Planned, beyond, launches_of, repeats
from bench.prediction.model import Prediction, extrapolated, in_order, library_call, predict, run_some
from bench.results import MEASURED_CODE, RESULTS
from bench.sources import Source
from cudml.operators.path import Choice
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.settings import cache_dir
from proof.sass import machine, rates
from proof.sass.launch import Launch
from proof.sass.plan import HOPPER
from proof.sass.rates import NUM_MULTIPROCESSORS

#: The most times that the chosen path may take of what the best one takes.
MOST_OF_BEST = 1.1

#: The GPU of predictions, whose measured tables are committed.
_MEASURED_ON = "nvidia-h200"

#: The operators that have a scan.
OPERATORS = ("top_k", "slice", "reverse_subsequences", "gru")


class Point(abc.ABC):
    """A problem: a frozen dataclass of words, numbers, and tuples of numbers."""

    @abc.abstractmethod
    def plan(self, path: str | None = None, limits: Limits = HOPPER.limits) -> Plan:
        """The plan on a GPU, an H200 unless told otherwise, by a path or by the chosen one."""

    @abc.abstractmethod
    def operands(self) -> dict[str, np.ndarray]:
        """The memory of each operand by member."""

    def drawn(self, source: Source) -> dict[str, Any]:
        """The contents, for a measurement, of operands that `operands` leaves untouched."""
        return {}

    def check(self, operands: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare the outputs by path and member; all paths have to give the same bits.

        Raises
        ------
        WrongResultError
            Two paths differ, or one has another result than the operator's.
        """
        (first, expected), *others = results.items()
        for path, outputs in others:
            for name, got in outputs.items():
                require_identical(got, expected[name], f"{name} of {path} and {first}")

    @property
    def contents(self) -> str:
        """What the contents of the operands depend on, beside their sizes."""
        return ""

    @property
    def kind(self) -> str:
        """What the ratio of measured to predicted times depends on, beside the path."""
        return ""

    @property
    def num_steps(self) -> int:
        """The steps of a recurrence, most of them extrapolated; else 0."""
        return 0

    def cells(self) -> list[str]:
        """The fields, as the table has them."""
        return [_text_of(getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]

    @classmethod
    def of_cells(cls, cells: Mapping[str, str]) -> Any:
        """The point whose fields a table has."""
        return cls(**{name: _value_of(kind, cells[name]) for name, kind in _kinds_of(cls).items()})


@cache
def _kinds_of(point_type: type[Point]) -> dict[str, Any]:
    """The types of a point's fields by name."""
    return typing.get_type_hints(point_type)


def _text_of(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _value_of(kind: Any, text: str) -> Any:
    """A field's value from its text."""
    if typing.get_origin(kind) is tuple:
        return tuple(map(int, text.split()))
    return int(text) if kind is int else text


P = TypeVar("P", bound=Point)
Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Row(Generic[P]):
    """A point: the chosen path, and the microseconds of each path that can do it."""

    point: P
    chosen: str
    times: Mapping[str, float]

    @property
    def time_us(self) -> float:
        """Of the chosen path."""
        return self.times[self.chosen]

    @property
    def best(self) -> str:
        """The path that takes the least time."""
        return min(self.times, key=self.times.__getitem__)

    def __str__(self) -> str:
        others = sorted((time, name) for name, time in self.times.items() if name != self.chosen)
        told = "  ".join(f"{name} {time:.4g}" for time, name in others)
        return f"{self.point!s:<52}{self.chosen:<13}{self.time_us:>9.4g} us   {told}"


class Choosing(abc.ABC, Generic[P, Numbers]):
    """A choice by numbers or by a tree, which `--write` makes from known times.

    `problem_of` gives the part of a point that the choice sees; `choose_path` is the operator's.
    """

    numbers: Numbers
    problem_of: Callable[[P], Any]
    choose_path: Callable[[Any, Limits, Numbers], Choice[Any]]
    #: The fields of numbers that come from a GPU's times, and are kept.
    measured: tuple[str, ...] = ()

    def choose(self, problem: Any, numbers: Numbers) -> str:
        """The path that a problem takes on an H200."""
        return self.choose_path(problem, HOPPER.limits, numbers).path.name

    @abc.abstractmethod
    def changes(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P]
    ) -> Iterator[tuple[Numbers, object]]:
        """Better numbers for rows with known times, each with what has changed.

        `draw` makes other points of the domain.
        """

    @abc.abstractmethod
    def write(self, operator: str, source: str, numbers: Numbers) -> None:
        """Write the operator's data file, which says first where its times come from."""


@dataclass(frozen=True)
class Scan(Generic[P]):
    """An operator's points, the paths that are compared, and their table.

    `draw` makes a point of the operator's whole domain from random numbers. `findings` are an operator's own,
    beside points for which another path takes less time. `corrects` says whether times corrected by measured
    points choose better for other measured points. `served` are points that a choice knows beside the drawn
    ones.
    """

    operator: str
    names: tuple[str, ...]
    point_type: type[P]
    points: Callable[[], list[P]]
    draw: Callable[[np.random.Generator], P]
    choosing: Choosing[P, Any]
    findings: Callable[[Iterable[Row[P]]], Iterable[str]] = lambda rows: ()
    corrects: bool = False
    served: Callable[[], list[P]] = list

    @property
    def table(self) -> Path:
        """The committed table of predicted times."""
        return RESULTS / f"{self.operator}_scan.csv"

    @property
    def drawn_table(self) -> Path:
        """The committed table of predicted times of drawn problems."""
        return RESULTS / f"{self.operator}_drawn.csv"

    def measured_table(self, slug: str, folder: Path = RESULTS) -> Path:
        """The table of times measured on a GPU."""
        return folder / f"{slug}-{self.operator}_scan.csv"

    def on_lines(self, points: Iterable[P]) -> set[P]:
        """The points that differ from one of the scan's in one field."""
        lines = {line for point in self.points() for line in _lines_of(point)}
        return {point for point in points if not lines.isdisjoint(_lines_of(point))}

    def measured(self) -> tuple[str, list[Row[P]]]:
        """Where the times that were measured on the GPU of predictions come from, and their rows.

        Where the kernel of a path has changed since, its times are multiplied by the predicted change: a
        table keeps the predictions for the measured kernel.
        """
        origin, rows = self.read(self.measured_table(_MEASURED_ON))
        of_measured_code = self.read(self.measured_table(_MEASURED_ON + MEASURED_CODE))[1]
        before = {row.point: row.times for row in of_measured_code}
        now = {row.point: row.times for row in self.read()[1]}

        def times_of(row: Row[P]) -> dict[str, float]:
            old, new = before.get(row.point, {}), now.get(row.point, {})
            return {
                name: time * new[name] / old[name] if name in old and name in new else time
                for name, time in row.times.items()
            }

        return origin, [replace(row, times=times_of(row)) for row in rows]

    def as_measured(self, rows: Iterable[Row[P]]) -> list[Row[P]]:
        """The rows, with measured times of the points that have them."""
        known = {row.point: row.times for row in self.measured()[1]}
        return [replace(row, times=known.get(row.point, row.times)) for row in rows]

    def corrected(self, rows: Iterable[Row[P]], measured: Iterable[Row[P]] | None = None) -> list[Row[P]]:
        """The rows, with times multiplied by the measured ratio of their path, if that pays.

        The ratio is the median of measured over predicted times of a kind of points: those of the measured
        table, unless `measured` is given.
        """
        if not self.corrects:
            return [*rows]
        ratios: dict[tuple[str, str], list[float]] = {}
        predicted = {row.point: row.times for row in self.read()[1]}
        for row in self.measured()[1] if measured is None else measured:
            for name, time in predicted.get(row.point, {}).items():
                if name in row.times:
                    ratios.setdefault((row.point.kind, name), []).append(row.times[name] / time)
        medians = {key: statistics.median(of_path) for key, of_path in ratios.items()}

        def times_of(row: Row[P]) -> dict[str, float]:
            kind = row.point.kind
            return {name: time * medians.get((kind, name), 1) for name, time in row.times.items()}

        return [replace(row, times=times_of(row)) for row in rows]

    def chosen(self, point: P, limits: Limits = HOPPER.limits) -> str:
        """The path that the planner takes.

        Raises ValueError if that is not one of the compared paths.
        """
        chosen = point.plan(limits=limits)
        for name, plan in self.plans(point, limits).items():
            if plan == chosen:
                return name
        raise ValueError(f"{point}: the planner takes none of {', '.join(self.names)}")

    def row_of(self, point: P, most: float = MOST_OF_BEST) -> Row[P]:
        """Predict the chosen path, and the others that may take at most `most` times as long."""
        chosen, plans = self.chosen(point), self.plans(point)
        least = _time_of(plans.pop(chosen), point)
        others = {name: _time_of(plan, point, most * least) for name, plan in plans.items()}
        times = {chosen: least} | {name: time for name, time in others.items() if time is not None}
        return Row(point, chosen, {name: round(time, 2) for name, time in times.items()})

    def plans(self, point: P, limits: Limits = HOPPER.limits) -> dict[str, Plan]:
        """The plans of the paths that can do the point."""
        found = {}
        for name in self.names:
            try:
                found[name] = point.plan(name, limits)
            except ValueError:
                continue
        return found

    def table_text(self, origin: str, rows: Iterable[Row[P]]) -> str:
        """The file's text; its first line says where the times come from."""
        text = io.StringIO()
        text.write(f"# {origin}\n")
        writer = csv.writer(text, lineterminator="\n")
        columns = [field.name for field in fields(self.point_type)]  # type: ignore[arg-type]
        writer.writerow([*columns, "chosen", *self.names])
        for row in rows:
            writer.writerow(
                [*row.point.cells(), row.chosen, *(row.times.get(name, "") for name in self.names)]
            )
        return text.getvalue()

    def read(self, path: Path | None = None) -> tuple[str, list[Row[P]]]:
        """Where the times of a table come from, and its rows; no rows if there is no file.

        The table is the committed one, unless another is given.
        """
        path = path or self.table
        if not path.exists():
            return "", []
        first, *lines = path.read_text().splitlines()
        rows = []
        for line in csv.DictReader(lines):
            point = self.point_type.of_cells(line)
            times = {name: float(line[name]) for name in self.names if line.get(name)}
            rows.append(Row(point, line["chosen"], times))
        return first.removeprefix("# "), rows


def _lines_of(point: Point) -> set[tuple[Any, ...]]:
    """The lines through a point: its type, and all fields but one, with the place of that."""
    cells = point.cells()
    return {(type(point), place, *cells[:place], *cells[place + 1 :]) for place in range(len(cells))}


def predicted_by(version: str) -> str:
    """The origin of times that are predicted from the machine code of a version of NVRTC."""
    return f"Predicted, not measured. NVRTC {version}"


def scan_of(operator: str) -> Scan[Any]:
    """The scan of an operator."""
    found: Scan[Any] = importlib.import_module(f"bench.prediction.scans.{operator}").SCAN
    return found


def dear(rows: Iterable[Row[P]]) -> Iterator[str]:
    """Points for which another path takes less time."""
    for row in rows:
        ratio = row.time_us / row.times[row.best]
        if ratio > MOST_OF_BEST:
            yield f"{ratio:.2f} times the time of {row.best}: {row}"


def _time_of(plan: Plan, point: Point, most: float = math.inf) -> float | None:
    """Predicted microseconds; None if issuing the instructions alone takes more than `most`."""
    if repeats(plan.steps) or not (factor := beyond(point.num_steps)):
        whole = _predicted(plan, point, 0, most)
        return None if whole is None else whole.time_us
    less, more = (_predicted(plan, point, num_steps, most) for num_steps in STEPS)
    return None if less is None or more is None else extrapolated(less, more, factor).time_us


def _predicted(plan: Plan, point: Point, num_steps: int, most: float) -> Prediction | None:
    """The prediction of a plan whose recurrence takes `num_steps`, 0 for its own."""
    parts = [
        (type(step).__name__, library_call(step)) for step in plan.steps if not isinstance(step, KernelLaunch)
    ]
    skipped: list[Launch] = []
    for step, launch in launches_of(Planned(plan, point.operands()), num_steps):
        is_bounded = launch.joint_blocks == 1 and most < math.inf
        if is_bounded and _kept(step, launch, point, _least, skipped).time_us > most:
            return None
        parts.append((step.name_expression, _kept(step, launch, point, predict, skipped)))
    return in_order(parts)


def _least(launch: Launch) -> Prediction:
    """A lower bound: each block issues the instructions of the one in the middle, and nothing waits."""
    counts = run_some(launch, [launch.num_blocks // 2], 1)
    clocks = counts.totals.instructions * launch.num_blocks / NUM_MULTIPROCESSORS / 4
    return Prediction(1, model.LAUNCH_US, 0, clocks, {}, {})


@cache
def _model() -> bytes:
    """What predictions depend on beside the launch: the machine and its constants."""
    sources = [*sorted(machine.SOURCES.iterdir()), Path(model.__file__), Path(rates.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()


def _kept(
    step: KernelLaunch,
    launch: Launch,
    point: Point,
    how: Callable[[Launch], Prediction],
    skipped: list[Launch],
) -> Prediction:
    """The prediction of a launch, kept on disk by what decides it, so that a scan repeats what changed.

    A launch that has to run may read what earlier launches wrote. Earlier launches whose predictions were
    kept are in `skipped`, and run first.
    """
    shape = (launch.grid, launch.block, launch.shared_bytes, launch.cluster_blocks, launch.resident_blocks)
    contents = (step.buffers, [b in launch.in_l2 for b in launch.buffers], point.contents)
    decides = (how.__name__, shape, launch.joint_blocks, contents, launch.code.constants)
    key = hashlib.sha256(_model() + bytes(launch.code.instructions) + step.params.pack())
    key.update(repr(decides).encode())
    path = cache_dir() / "predictions" / f"{key.hexdigest()}.json"
    if path.exists():
        if how is predict:
            skipped.append(launch)
        return Prediction(**json.loads(path.read_text()))
    while skipped:
        predict(skipped.pop(0))
    made = how(launch)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may read it meanwhile, and must find all of it or nothing.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(asdict(made), file)
    os.replace(file.name, path)
    return made
