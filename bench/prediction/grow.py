"""A tree of a choice, made from problems with known times: `python -m bench plan OPERATOR --write`.

Known problems are too few for a tree, which would take chance for a rule. Boosted trees (`estimates.py`)
estimate the times of each path from them, and the tree that chooses is made from both: the known problems,
and imagined ones, drawn from the operator's domain, with estimated times. The present tree is refined, or a
new one is grown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from bench.prediction.estimates import Estimates, Seen, jobs_of, known_log_times, which_can
from bench.prediction.problems import Problems
from bench.prediction.refine import refined
from bench.prediction.scan import Choosing, Point, Row
from cudml.operators import tree
from cudml.operators.path import Choice, Path
from cudml.operators.tree import Tree
from cudml.plans import Limits
from proof.sass.plan import HOPPER

P = TypeVar("P", bound=Point)

#: Imagined problems for each known one, and how often a known one counts.
_IMAGINED, _KNOWN_TIMES = 100, 30
#: Imagined problems that a process estimates at once.
_AT_ONCE = 10_000
#: Estimates that are compared, each without one of as many parts of the known problems.
_PARTS = 4

#: Features, and logarithms of times, of the same problems on each device.
_OfDevices = tuple[list[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class ByTree(Choosing[P, Tree]):
    """A choice by a tree.

    It knows the `paths` of GPUs, asks of a problem on a device what `features_of` says, and has at most
    `most_leaves` leaves. It chooses for all `devices`; times are those of the first, and of paths that
    another can do.
    """

    numbers: Tree
    problem_of: Callable[[P], Any]
    choose_path: Callable[[Any, Limits, Tree | None], Choice[Any]]
    features_of: Callable[[Any, Limits], Sequence[float]]
    paths: Mapping[str, Path[Any]]
    most_leaves: int
    devices: tuple[Limits, ...] = (HOPPER.limits,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the paths."""
        return tuple(self.paths)

    def changes(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P]
    ) -> Iterator[tuple[Tree, str]]:
        """The present tree, refined by the rows."""
        problems, is_known = self._problems(rows, draw)
        found = replace(self.numbers, root=refined(self.numbers.root, problems, is_known))
        num_leaves, num_before = len(found.leaves()), len(self.numbers.leaves())
        yield found, f"{num_leaves} leaves, {num_before} before, refined by {len(rows)} problems"

    def anew(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P]
    ) -> Iterator[tuple[Tree, str]]:
        """A tree that is grown from the rows, and refined where a known one would take long."""
        grown = self.grown(rows, draw)
        yield grown, f"{len(grown.leaves())} leaves, grown from {len(rows)} problems"

    def write(self, operator: str, source: str, numbers: Tree) -> None:
        """Write the data file."""
        tree.path_of(operator).write_text(numbers.text(source), encoding="utf-8")

    def grown(self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P], seed: int = 1) -> Tree:
        """A tree that chooses well for the rows, and by estimated times for problems like them."""
        problems, is_known = self._problems(rows, draw, seed)
        root = problems.grown(self.most_leaves, seed)
        return replace(self.numbers, root=refined(root, problems, is_known))

    def _problems(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P], seed: int = 1
    ) -> tuple[Problems, np.ndarray]:
        """The rows on each device, and imagined problems like them; and which of all are rows."""
        from joblib import Parallel, delayed

        random = np.random.default_rng(seed)
        points = [row.point for row in rows]
        imagined = [draw(random) for _ in range(_IMAGINED * len(rows))]
        seen, log_times = self._seen(points), self._log_times(rows)
        estimates = Estimates(seen, log_times)
        parts = Parallel(n_jobs=jobs_of(len(imagined)))(
            delayed(self._imagined)(imagined[start : start + _AT_ONCE], estimates)
            for start in range(0, len(imagined), _AT_ONCE)
        )
        known = self._by_device(points, seen, known_log_times(seen, log_times))
        # Of each device, the rows come first.
        features, by_device = (
            np.concatenate(
                [part[what][number] for number in range(len(self.devices)) for part in [known, *parts]]
            )
            for what in range(2)
        )
        is_known = np.tile(np.repeat([True, False], [len(rows), len(imagined)]), len(self.devices))
        return Problems.of(self.names, features, by_device, np.where(is_known, _KNOWN_TIMES, 1)), is_known

    def _imagined(self, points: Sequence[P], estimates: Estimates) -> _OfDevices:
        seen = self._seen(points)
        return self._by_device(points, seen, estimates.log_times(seen))

    def _by_device(self, points: Sequence[P], seen: Seen, log_times: np.ndarray) -> _OfDevices:
        """For each device, features and times of the points, which are those of the first device."""
        features, by_device = [seen.features], [log_times]
        problems = [*map(self.problem_of, points)]
        for device in self.devices[1:]:
            features.append(self._features(problems, device))
            by_device.append(np.where(which_can(problems, self.paths, device), log_times, np.inf))
        return features, by_device

    def least_certain(self, rows: Sequence[Row[P]], points: Sequence[P], count: int) -> list[P]:
        """The points whose times would teach most: estimates by parts of the rows disagree about them."""
        known, others = self._seen([row.point for row in rows]), self._seen(points)
        log_times = self._log_times(rows)
        kept = [np.arange(len(rows)) % _PARTS != part for part in range(_PARTS)]
        estimates = [Estimates(known.at(part), log_times[part]).log_times(others) for part in kept]
        chosen = np.mean(estimates, axis=0).argmin(axis=1)
        doubts = np.mean([_log_regrets(one)[np.arange(len(points)), chosen] for one in estimates], axis=0)
        return [points[place] for place in np.argsort(-doubts, kind="stable")[:count]]

    def _seen(self, points: Sequence[P]) -> Seen:
        """The points on the first device."""
        problems = [*map(self.problem_of, points)]
        return Seen.of(problems, self._features(problems, self.devices[0]), self.paths, self.devices[0])

    def _features(self, problems: Sequence[Any], device: Limits) -> np.ndarray:
        return np.array([self.features_of(problem, device) for problem in problems], np.float64)

    def _log_times(self, rows: Sequence[Row[P]]) -> np.ndarray:
        """Logarithms of known times, NaN for the others."""
        return np.log([[row.times.get(name, np.nan) for name in self.names] for row in rows])


def _log_regrets(log_times: np.ndarray) -> np.ndarray:
    return log_times - log_times.min(axis=1, keepdims=True)
