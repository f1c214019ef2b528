"""Trees of a choice, refined by problems with known times."""

import numpy as np
import pytest

from bench.prediction.problems import Problems, costs_by
from bench.prediction.refine import refined
from cudml.operators.tree import Node, Ranked

pytest.importorskip("sklearn", reason="a leaf is split by scikit-learn")

SHORT, LONG = Ranked(["short", "long"]), Ranked(["long", "short"])

#: A row length is the only feature.
LENGTHS = np.arange(1, 1001)


def problems_of(
    lengths: np.ndarray, short: np.ndarray | float, long: np.ndarray | float, weight: float = 1
) -> Problems:
    """Problems with the times of two paths; an infinite one cannot."""
    times = np.stack(np.broadcast_arrays(short, long, lengths)[:2], axis=1).astype(float)
    features = lengths[:, np.newaxis].astype(float)
    return Problems.of(("short", "long"), features, np.log(times), np.full(len(lengths), weight))


def crossing(weight: float = 1) -> Problems:
    """Both paths take the same time for 333 elements."""
    return problems_of(LENGTHS, LENGTHS, 300 + LENGTHS / 10, weight)


def none_known(problems: Problems) -> np.ndarray:
    return np.zeros(len(problems), bool)


def bounds_of(node: Node) -> list[float]:
    if isinstance(node, Ranked):
        return []
    _, bound, low, high = node
    return [*bounds_of(low), bound, *bounds_of(high)]


def test_the_cost_of_a_tree_is_that_of_its_leaves() -> None:
    problems = crossing()
    is_low = LENGTHS <= 500
    expected = np.where(is_low, problems.costs[:, 1], problems.costs[:, 0])
    assert np.ptp(expected) > 1
    assert (costs_by((0, 500.0, LONG, SHORT), problems) == expected).all()


def test_a_leaf_is_split_where_times_cross() -> None:
    problems = crossing()
    found = refined(SHORT, problems, none_known(problems))
    assert not isinstance(found, Ranked)
    _, bound, low, high = found
    assert abs(bound - 333) < 10
    assert (low, high) == (SHORT, LONG)
    assert costs_by(found, problems).sum() < 0.01 * costs_by(SHORT, problems).sum()


def test_a_leaf_ranks_other_paths_beside_a_bound_that_is_kept() -> None:
    problems = crossing()
    tree = (0, 330.0, LONG, LONG)
    found = refined(tree, problems, none_known(problems))
    assert found == (0, 330.0, SHORT, LONG)


def test_leaves_that_become_equal_are_one() -> None:
    """So are leaves with the same first path: the others then rank by all problems."""
    problems = problems_of(LENGTHS, 1, 2)
    assert refined((0, 500.0, SHORT, LONG), problems, none_known(problems)) == SHORT
    assert refined((0, 500.0, SHORT, Ranked(["short"])), problems, none_known(problems)) == SHORT


@pytest.mark.parametrize(
    "tree", [SHORT, (0, 333.5, SHORT, LONG), (0, 5000.0, (0, 333.5, SHORT, LONG), SHORT)]
)
def test_a_tree_that_is_right_is_kept(tree: Node) -> None:
    """A leaf that no problem reaches is kept, too."""
    problems = problems_of(LENGTHS, 1, 2) if tree == SHORT else crossing()
    assert refined(tree, problems, none_known(problems)) == tree


def test_a_small_gain_changes_nothing() -> None:
    """Problems that count a hundredth each gain less than a new bound costs."""
    problems = crossing(0.01)
    assert refined(SHORT, problems, none_known(problems)) == SHORT


def test_dear_paths_of_known_problems_need_less_gain() -> None:
    """The same problems, four of them known: these count more, and their leaf changes for less."""
    lengths = np.arange(1, 41)
    problems = problems_of(lengths, np.where(lengths > 30, 2.0, 1.0), 1.5, weight=1)
    is_known = lengths > 36
    assert refined(SHORT, problems, none_known(problems)) == SHORT
    assert bounds_of(refined(SHORT, problems, is_known)) == [30.5]


def test_the_first_path_that_can_has_the_cost() -> None:
    """Where a leaf's first path cannot, the second one's cost counts, and a change gains nothing by it."""
    problems = problems_of(LENGTHS, np.where(LENGTHS <= 500, 1, np.inf), np.where(LENGTHS <= 500, 2, 1))
    assert problems.costs_at(SHORT).max() == 0
    assert problems.costs_at(LONG).max() > 0
    assert problems.costs_at(Ranked(["short"])).max() > 0
    assert refined(SHORT, problems, none_known(problems)) == SHORT
