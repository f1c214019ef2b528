"""A decision tree between an operator's paths: a data file, not code.

`choices/OPERATOR.csv` says first how well the tree chooses, by which times. Its lines are the nodes in
preorder: a feature and a bound, or the paths of a leaf. `python -m bench plan OPERATOR --write` grows it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Question(NamedTuple):
    """Whether a feature, given by its place, is at most a bound.

    The next node is asked if it is, the one after `num_skipped` more if not.
    """

    feature: int
    bound: float
    num_skipped: int


#: Bytes of each multiprocessor that count as a feature, at most: known problems are hardly larger. Of those
#: in many waves, smaller ones take as many times less time by every path.
MOST_BYTES = 1 << 19

#: Paths at a leaf, the one that takes the least time first.
Ranked = tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder: questions about the features of these names, and leaves."""

    features: tuple[str, ...]
    nodes: tuple[Question | Ranked, ...]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return sum(not isinstance(node, Question) for node in self.nodes)

    def ranked(self, values: Sequence[float]) -> Ranked:
        """The paths for a problem with these features."""
        place = 0
        while isinstance(node := self.nodes[place], Question):
            place += 1 if values[node.feature] <= node.bound else 1 + node.num_skipped
        return node

    def text(self, source: str) -> str:
        """The text of a data file; its first line says where the times come from."""
        return "\n".join([f"# {source}", *map(self._line, self.nodes), ""])

    def _line(self, node: Question | Ranked) -> str:
        if isinstance(node, Question):
            return f"{self.features[node.feature]},{node.bound:.9g}"
        return " ".join(node)


def tree_of(lines: Iterable[str], features: tuple[str, ...]) -> Tree:
    """The tree of a data file's lines without the first.

    Raises ValueError if it asks for another feature.
    """
    nodes: list[Question | Ranked] = []
    # From the last node to the first, the numbers of nodes of the trees that no question joins yet.
    sizes: list[int] = []
    for line in reversed([*lines]):
        feature, is_question, bound = line.partition(",")
        if is_question:
            left, right = sizes.pop(), sizes.pop()
            nodes.append(Question(features.index(feature), float(bound), left))
            sizes.append(1 + left + right)
        else:
            nodes.append(tuple(line.split()))
            sizes.append(1)
    (_,) = sizes
    return Tree(features, tuple(reversed(nodes)))


def path_of(operator: str) -> Path:
    """The operator's data file."""
    return Path(__file__).with_name("choices") / f"{operator}.csv"


@cache
def read_tree(operator: str, features: tuple[str, ...]) -> Tree:
    """The tree of an operator, read when it first chooses."""
    _, *lines = path_of(operator).read_text(encoding="utf-8").splitlines()
    return tree_of(lines, features)
