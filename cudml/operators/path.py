"""Paths: the ways to compute an operator, and which of them is taken.

`X_paths.py` of an operator has its `PATHS` by name, the `THRESHOLDS` that decide between them, and
`choose_path(problem, limits)`. Planning is pure: a path knows the problem and the device's limits alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from cudml.checks import one_of
from cudml.plans import Limits, Step, Workspace

Problem = TypeVar("Problem")
Value = TypeVar("Value")

#: The steps of a plan and the workspaces they use.
Steps = tuple[tuple[Step, ...], tuple[Workspace, ...]]

#: What a number that decides between paths rests on, best first: times of the operator, times of what it is
#: made of (`python -m bench micro`), counted instructions and registers, NVIDIA's manuals, or an estimate.
Basis = Literal["measured", "micro-figure", "machine code", "documentation", "estimate"]


@dataclass(frozen=True)
class Path(Generic[Problem]):
    """One way to compute an operator: by its name it can be forced.

    Parameters
    ----------
    name : str
        Its key in `PATHS`.
    good_at : str
        Which problems it is for, in a few words that follow "it is for".
    can_do : callable
        Whether it computes a problem on a device of these limits.
    steps : callable
        The steps and workspaces that do.
    """

    name: str
    good_at: str
    can_do: Callable[[Problem, Limits], bool]
    steps: Callable[[Problem, Limits], Steps]

    def __repr__(self) -> str:
        return f"{self.name} ({self.good_at})"


@dataclass(frozen=True)
class Choice(Generic[Problem]):
    """A path and why it is taken; prints as both."""

    path: Path[Problem]
    why: str

    def __repr__(self) -> str:
        return f"{self.path.name}: {self.why}"


#: Why a path pays for a problem that it can do, with the numbers that decide it; None where it does not.
Reason = Callable[[Problem, Limits], str | None]


def by_name(*paths: Path[Problem]) -> dict[str, Path[Problem]]:
    """The table of an operator's paths."""
    return {path.name: path for path in paths}


def single_step(step_of: Callable[[Problem, Limits], Step]) -> Callable[[Problem, Limits], Steps]:
    """`Path.steps` of a path that has one step and no workspace."""
    return lambda problem, limits: ((step_of(problem, limits),), ())


def first_that_pays(
    paths: Mapping[str, Path[Problem]],
    reasons: Mapping[str, Reason[Problem]],
    problem: Problem,
    limits: Limits,
) -> Choice[Problem]:
    """The first path, in the order of `reasons`, that can do the problem and pays."""
    for name, reason in reasons.items():
        path = paths[name]
        if path.can_do(problem, limits) and (why := reason(problem, limits)) is not None:
            return Choice(path, why)
    raise ValueError(f"no path can do {problem} on this device")


def take_path(
    paths: Mapping[str, Path[Problem]],
    choose_path: Callable[[Problem, Limits], Choice[Problem]],
    problem: Problem,
    limits: Limits,
    path: str | None,
) -> Path[Problem]:
    """The path of this name, or the chosen one where it is None.

    Raises
    ------
    ValueError
        No path has this name, or it cannot do the problem on this device.
    """
    if path is None:
        return choose_path(problem, limits).path
    if path not in paths:
        raise ValueError(f"path is {path!r}, must be {one_of([*paths])}")
    if not paths[path].can_do(problem, limits):
        what_for = paths[path].good_at
        raise ValueError(f"path {path!r} cannot do {problem} on this device: it is for {what_for}")
    return paths[path]


def figure(value: Value, basis: Basis, why: str) -> Value:
    """A number in an operator's table of thresholds, and what it rests on.

    The tables are frozen dataclasses: measured times replace numbers there and touch no code.
    """
    declared: Value = field(default_factory=lambda: value, metadata={"basis": basis, "why": why})
    return declared
