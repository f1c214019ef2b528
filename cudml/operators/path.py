"""Paths: the ways to compute an operator, and the choice between them.

`X/paths.py` of an operator has its `PATHS` by name and `choose_path(problem, limits)`, which asks a tree
(`tree.py`); GRU, whose paths have many shapes, compares clocks that it estimates (`gru/clocks.py`).
Planning is pure: a path knows only the problem and the device's limits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cudml.checks import one_of
from cudml.plans import Limits, Step, Workspace

Problem = TypeVar("Problem")

#: The steps of a plan and the workspaces they use.
Steps = tuple[tuple[Step, ...], tuple[Workspace, ...]]


@dataclass(frozen=True)
class Path(Generic[Problem]):
    """One way to compute an operator; tests and benchmarks can force it by its name.

    Parameters
    ----------
    name : str
        Its key in `PATHS`.
    good_at : str
        The problems it is for, worded to follow "it is for" in a message.
    can_do : callable
        Whether it can compute a problem on a device with these limits.
    steps : callable
        The steps and workspaces that compute it.
    """

    name: str
    good_at: str
    can_do: Callable[[Problem, Limits], bool]
    steps: Callable[[Problem, Limits], Steps]

    def __repr__(self) -> str:
        return f"{self.name} ({self.good_at})"


@dataclass
class Choice(Generic[Problem]):
    """A path and the reason for choosing it; prints as both."""

    path: Path[Problem]
    why: str

    def __repr__(self) -> str:
        return f"{self.path.name}: {self.why}"


#: `Choice.why` of a path that a tree ranks first.
BY_TREE = "estimated to be the fastest"


def by_name(*paths: Path[Problem]) -> dict[str, Path[Problem]]:
    """The table of an operator's paths."""
    return {path.name: path for path in paths}


def single_step(step_of: Callable[[Problem, Limits], Step]) -> Callable[[Problem, Limits], Steps]:
    """`Path.steps` of a path with one step and no workspace."""
    return lambda problem, limits: ((step_of(problem, limits),), ())


def first_that_can(
    paths: Mapping[str, Path[Problem]],
    ranked: Sequence[str],
    problem: Problem,
    limits: Limits,
    last: Path[Problem],
) -> Path[Problem]:
    """The first of the ranked paths that can compute the problem, else the last path."""
    for name in ranked:
        path = paths[name]
        if path.can_do(problem, limits):
            return path
    return last


def named_path(
    paths: Mapping[str, Path[Problem]], path: str, problem: Problem, limits: Limits
) -> Path[Problem]:
    """The path with this name.

    Raises ValueError if no path has this name, or it cannot compute the problem on this device.
    """
    if path not in paths:
        raise ValueError(f"path is {path!r}, must be {one_of([*paths])}")
    if not paths[path].can_do(problem, limits):
        good_at = paths[path].good_at
        raise ValueError(f"path {path!r} cannot compute {problem} on this device: it is for {good_at}")
    return paths[path]
