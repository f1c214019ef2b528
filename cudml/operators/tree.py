"""A decision tree between an operator's paths: a data file, not code.

The first line of `choices/OPERATOR.csv` says how well the tree chooses, and by which times. The other lines
are the nodes in preorder: a feature and a bound, or the paths of a leaf.
`python -m bench plan OPERATOR --write` grows the tree.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias, final

#: Most bytes per multiprocessor that count as a feature: known problems are hardly larger. If there are many
#: waves, every path's time is proportional to the size.
MOST_BYTES = 1 << 19


@final
class Ranked(tuple[str, ...]):
    """A leaf: paths, the one that takes the least time first."""

    __slots__ = ()


#: Whether a feature, given by its index, is at most a bound; then the next node if it is, and the one if not.
#: A plan asks about ten questions, and reads a plain tuple in half the time of a named one.
Question = tuple[int, float, "Node", "Node"]

#: A node of a tree, and the root of the subtree below it.
Node: TypeAlias = "Question | Ranked"


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
            if not isinstance(node, Ranked):
                _, _, low, high = node
                later += (high, low)

    def leaves(self) -> list[Ranked]:
        """The leaves, in the order of the lines."""
        return [node for node in self.nodes() if isinstance(node, Ranked)]

    def ranked(self, values: Sequence[float]) -> Ranked:
        """The paths for a problem with these features."""
        node = self.root
        while type(node) is not Ranked:  # `isinstance` takes longer
            feature, bound, low, high = node
            node = low if values[feature] <= bound else high
        return node

    def text(self, source: str) -> str:
        """The text of a data file; its first line says where the times come from."""
        return "\n".join([f"# {source}", *map(self._line, self.nodes()), ""])

    def _line(self, node: Node) -> str:
        if isinstance(node, Ranked):
            return " ".join(node)
        feature, bound, _, _ = node
        return f"{self.features[feature]},{bound:.9g}"


def tree_of(lines: Iterable[str], features: tuple[str, ...]) -> Tree:
    """The tree of a data file's lines without the first.

    Raises ValueError if a question has a feature that is not in `features`.
    """
    # Lines are read from the last to the first; these are the subtrees that no question has joined yet.
    roots: list[Node] = []
    for line in reversed([*lines]):
        feature, is_question, bound = line.partition(",")
        if is_question:
            low, high = roots.pop(), roots.pop()
            roots.append((features.index(feature), float(bound), low, high))
        else:
            roots.append(Ranked(line.split()))
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
