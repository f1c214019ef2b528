"""Problems with the cost of each path, known or estimated, for which a tree is grown or refined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.prediction.tune import MOST_KNOWN, costs_of
from cudml.operators.tree import Node, Ranked

#: Paths at a leaf: where a device cannot take the first, the others are tried.
_MOST_RANKED = 4
#: Paths count at most this many times as slow as the best.
_MOST_REGRET = 4.0
#: The cost of a problem for which a leaf has no path.
_NO_PATH = float(costs_of(math.log(MOST_KNOWN)))


@dataclass(frozen=True)
class Problems:
    """For each problem on a device: features, the cost of each path and whether it can, and a weight."""

    names: tuple[str, ...]
    features: np.ndarray
    costs: np.ndarray
    can: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(
        cls, names: Sequence[str], features: np.ndarray, log_times: np.ndarray, weights: np.ndarray
    ) -> "Problems":
        """Problems with logarithms of times, which are infinite for paths that cannot."""
        log_regrets = log_times - log_times.min(axis=1, keepdims=True)
        costs = costs_of(np.minimum(log_regrets, math.log(_MOST_REGRET)))
        return cls(tuple(names), features, costs, np.isfinite(log_times), weights)

    def __len__(self) -> int:
        return len(self.weights)

    def at(self, places: np.ndarray) -> "Problems":
        """The problems at these places, or for which a mask is true."""
        parts = self.features, self.costs, self.can, self.weights
        return Problems(self.names, *(part[places] for part in parts))

    def weighted(self, factors: np.ndarray) -> "Problems":
        """The same problems, with weights multiplied."""
        return replace(self, weights=self.weights * factors)

    def ranked(self) -> Ranked:
        """The paths of a leaf for these problems, the one that costs least first."""
        return self._ranked(self.weights @ self.costs)

    def _ranked(self, costs: np.ndarray) -> Ranked:
        return Ranked(self.names[path] for path in np.argsort(costs, kind="stable")[:_MOST_RANKED])

    def costs_at(self, leaf: Ranked) -> np.ndarray:
        """The cost of each problem by the first path of a leaf that can compute it."""
        costs = np.full(len(self), _NO_PATH)
        for name in reversed(leaf):
            path = self.names.index(name)
            costs = np.where(self.can[:, path], self.costs[:, path], costs)
        return costs

    def grown(self, most_leaves: int, seed: int = 1, least_part: float = 0.0) -> Node:
        """The root of a tree that chooses well for the problems.

        It has at most `most_leaves` leaves, each with at least a part of the problems.
        """
        from sklearn.tree import DecisionTreeClassifier

        # A wrong path costs nothing where the second one takes as long. Where it takes far longer, most paths
        # do, and any tree avoids them: by the root of this cost, imagined problems cost a third less.
        second = np.sqrt(np.partition(self.costs, 1, axis=1)[:, 1])
        classifier = DecisionTreeClassifier(
            max_leaf_nodes=most_leaves, random_state=seed, min_weight_fraction_leaf=least_part
        )
        classifier.fit(self.features, self.costs.argmin(axis=1), sample_weight=self.weights * (second + 1e-3))
        leaf_costs = np.zeros((classifier.tree_.node_count, len(self.names)))
        np.add.at(leaf_costs, classifier.apply(self.features), self.costs * self.weights[:, np.newaxis])
        return self._below(classifier.tree_, leaf_costs, 0)[0]

    def _below(self, grown: Any, costs: np.ndarray, place: int) -> tuple[Node, np.ndarray]:
        """A node of scikit-learn's tree, and what its paths cost; leaves with the same first path are one."""
        if grown.children_left[place] < 0:
            return self._ranked(costs[place]), costs[place]
        low, low_costs = self._below(grown, costs, grown.children_left[place])
        high, high_costs = self._below(grown, costs, grown.children_right[place])
        total = low_costs + high_costs
        if isinstance(low, Ranked) and isinstance(high, Ranked) and low[0] == high[0]:
            return self._ranked(total), total
        bound = float(f"{grown.threshold[place]:.6g}")
        return (int(grown.feature[place]), bound, low, high), total


def costs_by(node: Node, problems: Problems) -> np.ndarray:
    """The cost of each problem by a tree."""
    if isinstance(node, Ranked):
        return problems.costs_at(node)
    feature, bound, low, high = node
    is_low = problems.features[:, feature] <= bound
    costs = np.empty(len(problems))
    costs[is_low] = costs_by(low, problems.at(is_low))
    costs[~is_low] = costs_by(high, problems.at(~is_low))
    return costs
