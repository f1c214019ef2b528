"""Trees that choose between paths: their data files, and where they lead."""

import re
from collections.abc import Iterable
from math import inf, nextafter

import pytest

from cudml.operators import tree
from cudml.operators.reverse_subsequences import paths as reverse_subsequences
from cudml.operators.slice import paths as slice
from cudml.operators.top_k import paths as top_k
from cudml.operators.tree import Ranked, Tree, tree_of


def paths_of_gpus(paths: Iterable[str]) -> set[str]:
    """The paths of a GPU that a tree chooses between, without those of a CPU and plain copies."""
    return {name for name in paths if not name.startswith("serial")} - {"copy", "driver"}


#: Operators whose choice is a tree -> the features that it asks for, and the paths of a GPU.
TREES = {
    name: (operator.Features._fields, paths_of_gpus(operator.PATHS))
    for name, operator in (
        ("top_k", top_k),
        ("slice", slice),
        ("reverse_subsequences", reverse_subsequences),
    )
}

SMALL = Tree(
    ("length", "part"),
    (0, 64, (1, 0.1, Ranked(("first", "last")), Ranked(("second",))), Ranked(("last", "first"))),
)


def test_a_bound_belongs_to_the_lesser_values() -> None:
    assert SMALL.leaves() == [("first", "last"), ("second",), ("last", "first")]
    assert SMALL.ranked((64, 0.1)) == ("first", "last")
    assert SMALL.ranked((64, nextafter(0.1, 1))) == ("second",)
    assert SMALL.ranked((65, 0)) == ("last", "first")
    assert SMALL.ranked((-inf, inf)) == ("second",)


def test_a_file_has_the_tree() -> None:
    first, *lines = SMALL.text("Typed").splitlines()
    assert first == "# Typed"
    assert lines == ["length,64", "part,0.1", "first last", "second", "last first"]
    assert tree_of(lines, SMALL.features) == SMALL


def test_a_file_asks_known_features() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        tree_of(["part,0.1", "first", "second"], ("length", "parts"))


@pytest.mark.parametrize("operator", TREES)
def test_a_data_file_is_as_the_command_writes_it(operator: str) -> None:
    features, paths = TREES[operator]
    text = tree.path_of(operator).read_text(encoding="utf-8")
    first, *lines = text.splitlines()
    assert re.match(r"# (Predicted, not measured|Measured)\b.* regret: .* \(\d+ problems, seed \d+\)$", first)
    read = tree_of(lines, features)
    assert read.text(first.removeprefix("# ")) == text
    leaves = read.leaves()
    assert set().union(*leaves) == {leaf[0] for leaf in leaves} == paths


@pytest.mark.parametrize("operator", TREES)
def test_a_question_leads_to_two_answers(operator: str) -> None:
    """Siblings that are leaves differ in their first path."""
    for node in tree.read_tree(operator, TREES[operator][0]).nodes():
        if not isinstance(node, Ranked):
            leaves = [side for side in node[2:] if isinstance(side, Ranked)]
            assert len({leaf[0] for leaf in leaves}) == len(leaves)
