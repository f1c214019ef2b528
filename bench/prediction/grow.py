"""A tree of a choice, made from problems with known times: `python -m bench plan OPERATOR --write`.

Known problems are too few for a tree, which would take chance for a rule. Boosted trees of each path
(scikit-learn) estimate its time from them, and the tree that chooses is made from both: the known problems,
and imagined ones, drawn from the operator's domain, with estimated times. The present tree is refined, or a
new one is grown.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from bench.prediction.problems import Problems
from bench.prediction.refine import refined
from bench.prediction.scan import Choosing, Point, Row
from bench.prediction.tune import MOST_KNOWN
from cudml.operators import tree
from cudml.operators.path import Choice, Path
from cudml.operators.tree import Tree
from cudml.plans import Limits
from proof.sass.plan import HOPPER

P = TypeVar("P", bound=Point)

#: Imagined problems for each known one, and how often a known one counts.
_IMAGINED, _KNOWN_TIMES = 30, 30
#: Estimates that are compared, each without one of as many parts of the known problems.
_PARTS = 4
#: Rounds of boosting, and what each may change.
_BOOSTING = {"max_iter": 300, "learning_rate": 0.1, "max_leaf_nodes": 6, "min_samples_leaf": 4}


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
        """A tree that is grown from the rows."""
        grown = self.grown(rows, draw)
        yield grown, f"{len(grown.leaves())} leaves, grown from {len(rows)} problems"

    def write(self, operator: str, source: str, numbers: Tree) -> None:
        """Write the data file."""
        tree.path_of(operator).write_text(numbers.text(source), encoding="utf-8")

    def grown(self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P], seed: int = 1) -> Tree:
        """A tree that chooses well for the rows, and by estimated times for problems like them."""
        problems, _ = self._problems(rows, draw, seed)
        return replace(self.numbers, root=problems.grown(self.most_leaves, seed))

    def _problems(
        self, rows: Sequence[Row[P]], draw: Callable[[np.random.Generator], P], seed: int = 1
    ) -> tuple[Problems, np.ndarray]:
        """The rows on each device, and imagined problems like them; and which of all are rows."""
        random = np.random.default_rng(seed)
        imagined = [draw(random) for _ in range(_IMAGINED * len(rows))]
        seen = self._seen([row.point for row in rows] + imagined)
        log_times = _completed(self._log_times(rows), *seen[0])
        features = np.concatenate([of_device for of_device, _ in seen])
        by_device = np.concatenate([np.where(can, log_times, np.inf) for _, can in seen])
        is_known = np.tile(np.repeat([True, False], [len(rows), len(imagined)]), len(seen))
        weights = np.where(is_known, _KNOWN_TIMES, 1)
        return Problems.of(self.names, features, by_device, weights), is_known

    def least_certain(self, rows: Sequence[Row[P]], points: Sequence[P], count: int) -> list[P]:
        """The points whose times would teach most: estimates by parts of the rows disagree about them."""
        features, can = self._seen([*(row.point for row in rows), *points])[0]
        log_times, estimates = self._log_times(rows), []
        places = np.arange(len(features))
        for part in range(_PARTS):
            kept = (places % _PARTS != part) | (places >= len(rows))
            completed = _completed(log_times[kept[: len(rows)]], features[kept], can[kept])
            estimates.append(completed[-len(points) :])
        chosen = np.mean(estimates, axis=0).argmin(axis=1)
        doubts = np.mean([_log_regrets(one)[np.arange(len(points)), chosen] for one in estimates], axis=0)
        return [points[place] for place in np.argsort(-doubts, kind="stable")[:count]]

    def _seen(self, points: Sequence[P]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each device, the features of the points, and which paths can compute them."""
        problems = [*map(self.problem_of, points)]
        return [
            (
                np.array([self.features_of(problem, device) for problem in problems], np.float64),
                np.array([[path.can_do(one, device) for path in self.paths.values()] for one in problems]),
            )
            for device in self.devices
        ]

    def _log_times(self, rows: Sequence[Row[P]]) -> np.ndarray:
        """Logarithms of known times, NaN for the others."""
        return np.log([[row.times.get(name, np.nan) for name in self.names] for row in rows])


def _log_regrets(log_times: np.ndarray) -> np.ndarray:
    return log_times - log_times.min(axis=1, keepdims=True)


def _completed(log_times: np.ndarray, features: np.ndarray, can: np.ndarray) -> np.ndarray:
    """Logarithms of the times of all problems, the known ones first; infinite for paths that cannot.

    A time that is not known is at least `MOST_KNOWN` times the best one's, if the path can do it.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    num_known = len(log_times)
    least = np.nanmin(log_times, axis=1, keepdims=True) + math.log(MOST_KNOWN)
    labels = np.where(np.isnan(log_times), least, log_times)
    completed = np.full(can.shape, np.inf)
    for path, can_take in enumerate(can.T):
        taught = np.flatnonzero(can_take[:num_known])
        if not taught.size:
            continue
        boosted = HistGradientBoostingRegressor(**_BOOSTING, random_state=0)
        boosted.fit(features[taught], labels[taught, path])
        completed[can_take, path] = boosted.predict(features[can_take])
    completed[:num_known] = np.where(can[:num_known], labels, np.inf)
    return completed
