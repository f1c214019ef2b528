"""A tree that is refined: leaves rank other paths, or are split, where problems gain by it.

A tree that is grown anew has other bounds everywhere. Each bound between two paths is a size with a slower
side, so bounds that are right are kept.
"""

import math

import numpy as np

from bench.prediction.problems import Problems, costs_by
from bench.prediction.scan import MOST_OF_BEST
from bench.prediction.tune import costs_of
from cudml.operators.tree import Node, Ranked

#: Leaves that a leaf is split into, at most, and the least part of its problems that each has, unless one of
#: them is dear.
_SPLIT_LEAVES, _LEAST_PART = 4, 0.02
#: The least weighted cost that a new ranking and a split have to gain.
_LEAST_GAIN, _LEAST_GAIN_OF_SPLIT = 5.0, 10.0
#: How many times as much a known problem counts if its path is dear.
_DEAR_TIMES = 10
_DEAR = float(costs_of(math.log(MOST_OF_BEST)))
#: Rounds of refinement. In the first one, other problems may become dear.
_ROUNDS = 4


def refined(root: Node, problems: Problems, is_known: np.ndarray) -> Node:
    """The tree below a root, with better leaves."""
    has_been_dear = np.zeros(len(problems), bool)
    for _ in range(_ROUNDS):
        has_been_dear |= is_known & (costs_by(root, problems) > _DEAR)
        weighted = problems.weighted(np.where(has_been_dear, _DEAR_TIMES, 1))
        root = _refined(root, weighted, has_been_dear)
    return root


def _refined(node: Node, problems: Problems, is_dear: np.ndarray) -> Node:
    """The tree below a node, with better leaves for problems that reach it."""
    if not isinstance(node, Ranked):
        feature, bound, low, high = node
        is_low = problems.features[:, feature] <= bound
        low = _refined(low, problems.at(is_low), is_dear[is_low])
        high = _refined(high, problems.at(~is_low), is_dear[~is_low])
        return joined(low, high, problems) or (feature, bound, low, high)

    def cost(of: Node) -> float:
        return float(problems.weights @ costs_by(of, problems))

    # Few problems of a large leaf may be dear: those of sizes that the paths of others do not suit.
    least_part = 0 if is_dear.any() else _LEAST_PART
    relabelled = problems.ranked()
    now, then = cost(node), cost(relabelled)
    if len(problems) > 1:
        split = problems.grown(_SPLIT_LEAVES, least_part=least_part)
        if min(now, then) - cost(split) > _LEAST_GAIN_OF_SPLIT:
            return split
    return relabelled if now - then > _LEAST_GAIN else node


def joined(low: Node, high: Node, problems: Problems) -> Ranked | None:
    """The leaf for two sides of a question whose first path is the same; None if they differ."""
    if not (isinstance(low, Ranked) and isinstance(high, Ranked) and low[0] == high[0]):
        return None
    return Ranked([*dict.fromkeys([low[0], *problems.ranked()])][: len(low)])
