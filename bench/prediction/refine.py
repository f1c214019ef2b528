"""A tree that is refined: leaves rank other paths, or are split, where problems gain by it.

A tree that is grown anew has other bounds everywhere. Each bound between two paths is a size with a slower
side, so bounds that are right are kept.
"""

import math

import numpy as np

from bench.prediction.problems import Problems, total_cost
from bench.prediction.scan import MOST_OF_BEST
from bench.prediction.tune import costs_of
from cudml.operators.tree import Node, Ranked

#: Leaves that a leaf is split into, at most, and the least part of its problems that each has.
_SPLIT_LEAVES, _LEAST_PART = 4, 0.02
#: Problems of a leaf that is split, at least.
_LEAST_PROBLEMS = 20
#: The least weighted cost that a new ranking and a split have to gain; and the same of a leaf whose path is
#: dear for a known problem.
_LEAST_GAINS, _LEAST_GAINS_OF_DEAR = (30.0, 100.0), (10.0, 20.0)
#: How many times as much a known problem counts if its path is dear.
_DEAR_TIMES = 5
_DEAR = float(costs_of(math.log(MOST_OF_BEST)))


def refined(node: Node, problems: Problems, is_known: np.ndarray) -> Node:
    """The tree below a node, with better leaves for problems that reach it."""
    if not isinstance(node, Ranked):
        feature, bound, low, high = node
        is_low = problems.features[:, feature] <= bound
        low = refined(low, problems.at(is_low), is_known[is_low])
        high = refined(high, problems.at(~is_low), is_known[~is_low])
        return low if low == high else (feature, bound, low, high)
    is_dear = is_known & (problems.costs_at(node) > _DEAR)
    weighted = problems.weighted(np.where(is_dear, _DEAR_TIMES, 1))
    for_ranking, for_split = _LEAST_GAINS_OF_DEAR if is_dear.any() else _LEAST_GAINS
    relabelled = weighted.ranked()
    now, cost = weighted.total_at(node), weighted.total_at(relabelled)
    if len(problems) > _LEAST_PROBLEMS:
        split = weighted.grown(_SPLIT_LEAVES, least_part=_LEAST_PART)
        if min(now, cost) - total_cost(split, weighted) > for_split:
            return split
    return relabelled if now - cost > for_ranking else node
