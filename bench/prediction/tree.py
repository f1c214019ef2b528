"""Decision trees between the paths of an operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Question(NamedTuple):
    """Whether a feature, given by its place, is at most a bound.

    The next node is asked if it is, the one after `num_skipped` more if not.
    """

    feature: int
    bound: float
    num_skipped: int


#: Paths at a leaf, the one that takes the least time first.
Ranked = tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder: questions, and leaves."""

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
