"""Workspaces: each is as long as its kernels need, and no longer."""

from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.errors import KernelError
from cudml.operators.gru import serial as gru_serial
from cudml.plans import KernelLaunch, Plan, Workspace
from tests.support.kernel_cases import Case, operands_of
from tests.support.observed_cases import CASES


def user_of(plan: Plan, space: Workspace) -> str:
    """The last kernel that has the workspace; if none has it, the last step."""
    steps = [s for s in plan.steps if isinstance(s, KernelLaunch) and space.name in s.buffers]
    return steps[-1].name_expression if steps else type(plan.steps[-1]).__name__


def by_workspace() -> dict[str, list[str]]:
    """The names of the cases that have a workspace, by the workspace's name and user."""
    found: dict[str, list[str]] = {}
    for name, case in CASES.items():
        plan = case.plan()
        for space in plan.workspaces:
            found.setdefault(f"{space.name} of {user_of(plan, space).partition('<')[0]}", []).append(name)
    return found


WORKSPACES = by_workspace()


def report_without(num_bytes: int, case: Case, name: str) -> str:
    """Check mode's report on a plan in which one workspace lacks its last bytes."""
    plan = case.plan()
    shorter = tuple(
        replace(space, num_bytes=space.num_bytes - num_bytes) if space.name == name else space
        for space in plan.workspaces
    )
    short = plan._replace(workspaces=shorter)
    operands = operands_of(case, np.random.default_rng(0))
    workspace = np.zeros(short.temporary_bytes, np.uint8)
    with emulator.schedule("forward", check=True):
        program = emulator.get_device().load(short)
        try:
            program([operands[member] for member in short.operands], workspace)
        except KernelError as error:
            return str(error)
    return ""


#: Hidden units of a tile in check mode, whose code is not for this CPU: kTileUnits of kernels/gru/panels.cuh.
CHECKED_TILE_UNITS = 8


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_every_byte_is_used(workspace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one case needs the whole workspace: one byte less is out of bounds."""
    monkeypatch.setattr(gru_serial, "TILE_MAX_UNITS", CHECKED_TILE_UNITS)
    name = workspace.partition(" of ")[0]

    def ends_there(case: Case) -> bool:
        report = report_without(1, case, name)
        is_reported = "out-of-bounds" in report or f"of {name}, which has" in report
        return is_reported and report_without(0, case, name) == ""

    assert any(ends_there(CASES[case]) for case in WORKSPACES[workspace])
