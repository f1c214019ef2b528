"""Problems drawn from an operator's whole domain, and how far the choices between paths are from the best.

The points of a scan are where thresholds are; drawn problems show whether a planner is right elsewhere, too.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from bench.prediction.scan import Point, Row, Scan

P = TypeVar("P", bound=Point)
Value = TypeVar("Value")


def drawn(scan: Scan[P], count: int, seed: int) -> list[P]:
    """Different points for which the planner takes a path of the scan.

    With the same seed, a larger count begins with the same points.
    """
    random = np.random.default_rng(seed)
    found: dict[P, None] = {}
    while len(found) < count:
        point = scan.draw(random)
        try:
            scan.chosen(point)
        except ValueError:
            continue
        found[point] = None
    return [*found]


def log_uniform(random: np.random.Generator, least: int, most: int) -> int:
    """An integer of a range with both ends; each factor of two is as likely as any other."""
    low, high = math.log(least), math.log(most + 1)
    return min(most, max(least, int(math.exp(random.uniform(low, high)))))


def one(random: np.random.Generator, *choices: Value) -> Value:
    """One of the choices, each equally likely; a choice that is given twice is twice as likely."""
    return choices[random.integers(len(choices))]


def box(random: np.random.Generator, num_items: int, num_dimensions: int) -> tuple[int, ...]:
    """Sizes of a box with at most `num_items` items: dimensions drawn one after the other, then shuffled."""
    sizes = []
    left = num_items
    for _ in range(num_dimensions - 1):
        sizes.append(log_uniform(random, 1, max(1, left)))
        left //= sizes[-1]
    return tuple(int(size) for size in random.permutation([*sizes, max(1, left)]))


def regret_line(rows: Iterable[Row[P]], seed: int) -> str:
    """The last line of a drawn scan: the chosen path's time as a multiple of the best path's."""
    regrets = [row.time_us / row.times[row.best] for row in rows]
    return f"regret: {figures_of(regrets)} ({len(regrets)} problems, seed {seed})"


def figures_of(regrets: Iterable[float]) -> str:
    """How far choices are from the best, in three figures."""
    ordered = sorted(regrets)
    figures = {"geomean": _geometric_mean(ordered), "p95": _percentile(ordered, 95), "worst": ordered[-1]}
    return " ".join(f"{name} {value:.3f}" for name, value in figures.items())


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _percentile(values: Sequence[float], percent: float) -> float:
    """A percentile of sorted values: the least that `percent` of them do not exceed."""
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)]
