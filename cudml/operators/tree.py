"""A decision tree between an operator's paths: a data file, not code.

`choices/OPERATOR.csv` says first how well the tree chooses, by which times. Its lines are the nodes in
preorder: a feature and a bound, or the paths of a leaf. `python -m bench plan OPERATOR --write` grows it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: Bytes of each multiprocessor that count as a feature, at most: known problems are hardly larger. Of those
#: in many waves, smaller ones take as many times less time by every path.
MOST_BYTES = 1 << 19

#: Paths at a leaf, the one that takes the least time first.
Ranked = tuple[str, ...]


class Question(NamedTuple):
    """Whether a feature, given by its place, is at most a bound; `low` is next if it is, `high` if not."""

    feature: int
    bound: float
    low: "Question | Ranked"
    high: "Question | Ranked"


#: Of a tree; it is the root of those below it.
Node = Question | Ranked


@dataclass(frozen=True)
class Tree:
    """Questions about the features of these names, and leaves."""

    features: tuple[str, ...]
    root: Node

    def nodes(self) -> Iterator[Node]:
        """All nodes, in preorder."""
        later = [self.root]
        while later:
            node = later.pop()
            yield node
            if isinstance(node, Question):
                later += (node.high, node.low)

    def leaves(self) -> list[Ranked]:
        """The leaves, in the order of the lines."""
        return [node for node in self.nodes() if not isinstance(node, Question)]

    def ranked(self, values: Sequence[float]) -> Ranked:
        """The paths for a problem with these features."""
        node = self.root
        while isinstance(node, Question):
            feature, bound, low, high = node
            node = low if values[feature] <= bound else high
        return node

    def text(self, source: str) -> str:
        """The text of a data file; its first line says where the times come from."""
        return "\n".join([f"# {source}", *map(self._line, self.nodes()), ""])

    def _line(self, node: Node) -> str:
        if isinstance(node, Question):
            return f"{self.features[node.feature]},{node.bound:.9g}"
        return " ".join(node)


def tree_of(lines: Iterable[str], features: tuple[str, ...]) -> Tree:
    """The tree of a data file's lines without the first.

    Raises ValueError if it asks for another feature.
    """
    # From the last line to the first, the roots that no question joins yet.
    roots: list[Node] = []
    for line in reversed([*lines]):
        feature, is_question, bound = line.partition(",")
        if is_question:
            low, high = roots.pop(), roots.pop()
            roots.append(Question(features.index(feature), float(bound), low, high))
        else:
            roots.append(tuple(line.split()))
    (root,) = roots
    return Tree(features, root)


def path_of(operator: str) -> Path:
    """The operator's data file."""
    return Path(__file__).with_name("choices") / f"{operator}.csv"


@cache
def read_tree(operator: str, features: tuple[str, ...]) -> Tree:
    """The tree of an operator, read when it first chooses."""
    _, *lines = path_of(operator).read_text(encoding="utf-8").splitlines()
    return tree_of(lines, features)
