"""Numbers of a choice for which problems drawn from an operator's domain take the least time.

One number after the other is tried at factors of its value, and changed if that takes less time. A change has
to pay without the problem that gains most by it, so that no number rests on a single problem.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np

from bench.prediction.scan import Choosing, Point, Row, Scan, scan_of
from cudml.operators import choice
from cudml.operators.path import Choice
from cudml.plans import Limits

P = TypeVar("P", bound=Point)
Numbers = TypeVar("Numbers")

#: Factors of a number that are tried; the next integers up and down are tried, too.
_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.11, 1.25, 1.4, 1.7, 2)
#: Rounds over all numbers, at most.
_MOST_ROUNDS = 5
#: The least sum of logarithms of regrets that a change has to gain.
_LEAST_GAIN = 0.1
#: The part of a regret's logarithm beyond this counts four times: one slow choice is worse than several
#: slightly slower ones.
_NOTABLE, _MORE_TIMES = math.log(1.08), 3
#: Paths that take more than this multiple of the chosen one's time are not predicted, and count as this slow.
MOST_KNOWN = 2.5


@dataclass(frozen=True)
class Change:
    """A number that was changed, and the logarithms gained."""

    name: str
    before: int
    after: int
    gain: float

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}, gains {self.gain:.3f}"


class Tuning(Generic[P, Numbers]):
    """The choice whose numbers are tuned, and rows with the times of all paths."""

    def __init__(self, rows: Sequence[Row[P]], choosing: Choosing[P, Numbers]) -> None:
        self._rows, self._choose, self._kept = rows, choosing.choose, choosing.measured
        self._problems = [choosing.problem_of(row.point) for row in rows]
        self._costs = [
            {name: float(costs_of(math.log(time / row.times[row.best]))) for name, time in row.times.items()}
            for row in rows
        ]

    def chosen(self, numbers: Numbers) -> list[Row[P]]:
        """The rows with the paths that a choice by these numbers takes."""
        paths = (self._choose(problem, numbers) for problem in self._problems)
        return [
            replace(row, chosen=path, times={path: MOST_KNOWN * row.times[row.best], **row.times})
            for row, path in zip(self._rows, paths, strict=True)
        ]

    def costs(self, numbers: Numbers) -> list[float]:
        """What each problem adds to the minimised sum: its regret's logarithm, more if that is large."""
        unknown = float(costs_of(math.log(MOST_KNOWN)))
        return [
            costs.get(self._choose(problem, numbers), unknown)
            for problem, costs in zip(self._problems, self._costs, strict=True)
        ]

    def changes(self, numbers: Numbers, seed: int = 0) -> Iterator[tuple[Numbers, Change]]:
        """Better numbers, one change after the other, until none pays."""
        random, costs = Random(seed), self.costs(numbers)
        for _ in range(_MOST_ROUNDS):
            names = [field.name for field in fields(numbers)]  # type: ignore[arg-type]
            names = [name for name in names if name not in self._kept]
            random.shuffle(names)
            num_changes = 0
            for name in names:
                before = getattr(numbers, name)
                found = self._best(numbers, costs, name)
                if found is None:
                    continue
                numbers, costs, gain = found
                num_changes += 1
                yield numbers, Change(name, before, getattr(numbers, name), gain)
            if num_changes == 0:
                return

    def _best(
        self, numbers: Numbers, costs: list[float], name: str
    ) -> tuple[Numbers, list[float], float] | None:
        """The value of a number that gains most; None if none pays."""
        best, most = None, _LEAST_GAIN
        for value in _tried(getattr(numbers, name)):
            other: Numbers = replace(numbers, **{name: value})  # type: ignore[type-var]
            new_costs = self.costs(other)
            gains = [old - new for old, new in zip(costs, new_costs, strict=True)]
            gain = math.fsum(gains) - max(0, *gains)
            if gain > most:
                best, most = (other, new_costs, gain), gain
        return best


@dataclass(frozen=True)
class ByNumbers(Choosing[P, Numbers]):
    """A choice that estimates times by numbers."""

    numbers: Numbers
    problem_of: Callable[[P], Any]
    choose_path: Callable[[Any, Limits, Numbers], Choice[Any]]
    measured: tuple[str, ...] = ()

    def changes(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P]
    ) -> Iterator[tuple[Numbers, Change]]:
        """Numbers with one more of them changed."""
        return Tuning(rows, self).changes(self.numbers)

    def write(self, operator: str, source: str, numbers: Numbers) -> None:
        """Write the data file."""
        text = choice.text_of(source, asdict(numbers))  # type: ignore[call-overload]
        choice.path_of(operator).write_text(text, encoding="utf-8")


def costs_of(log_regrets: Any) -> Any:
    """What regrets with these logarithms add to the minimised sum."""
    return log_regrets + _MORE_TIMES * np.maximum(0, log_regrets - _NOTABLE)


def _tried(value: int) -> list[int]:
    values = {round(value * factor) for factor in _FACTORS} | {value - 1, value + 1}
    return sorted(values - {0, value})


def rows_of(scan: Scan[P], points: Sequence[P]) -> list[Row[P]]:
    """The times of the paths that take no more than `MOST_KNOWN` times the chosen one, by processes."""
    with ProcessPoolExecutor() as processes:
        return [*processes.map(_row_of, [scan.operator] * len(points), points, chunksize=8)]


def _row_of(operator: str, point: P) -> Row[P]:
    return scan_of(operator).row_of(point, MOST_KNOWN)
