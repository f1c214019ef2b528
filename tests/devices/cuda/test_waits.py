"""Waits that a GPU's kernels gave up, and grids that cannot be resident, over the stand-in for the driver."""

from dataclasses import replace
from typing import Any

import pytest

from cudml.devices import LaunchTooLargeError
from cudml.executable import load
from cudml.operators.gru import operator as gru
from cudml.plans import Limits, Plan
from tests.devices.cuda.stand_in import waits
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run
from tests.operators.gru.test_descriptor import LIMITS, gru_of

pytestmark = NEEDS_STAND_IN


@pytest.mark.parametrize("which", ["top_k", "slice", "raise_reported"])
def test_next_call_raises_what_a_kernel_gave_up(stand_in: Run, which: str) -> None:
    """The next call may be of any function; it asks the driver nothing, and the call after it runs."""
    found = stand_in(waits.error_of_the_next_call, which)
    assert found["is_cooperative"]
    assert found["raised"] == (
        "KernelError: top_k/grid_radix.cu top_k_grid_radix<UInt32>: "
        f"block 2 of {found['blocks']} waited 10 s (CUDML_WAIT_LIMIT) for the other blocks of the row "
        "and gave up; what the call computed is not valid"
    )
    assert [line.split()[0] for line in found["asked"] if not line.startswith("malloc")] == []
    assert (found["afterwards"], found["launches"]) == ("", int(which != "raise_reported"))


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        ("grid", "cuOccupancyMaxActiveBlocksPerMultiprocessor"),
        ("cluster", "cuOccupancyMaxActiveClusters"),
    ],
)
def test_launch_without_room_gets_another_plan(stand_in: Run, kind: str, question: str) -> None:
    """By array function, dispatch and adapter: the first plan is refused for lack of room, the next runs."""
    for name, (error, asked, cooperative) in stand_in(waits.launches_where_none_fits, kind).items():
        assert error == "", name
        assert {*asked} == {question}, name
        assert cooperative, name
        assert not any(cooperative), name


class SharedDevice:
    """A device that reports the limits of a whole GPU but has room for fewer blocks."""

    name = "shared"
    limits = LIMITS

    def __init__(self, fits: list[int]) -> None:
        self._fits = fits

    def load(self, plan: Plan) -> Any:
        launch: Any = plan.steps[-1]
        if launch.cooperative and launch.grid[0] > self._fits[0]:
            fits = self._fits.pop(0) if len(self._fits) > 1 else self._fits[0]
            raise LaunchTooLargeError("too large", most_resident_blocks=fits)
        return plan


@pytest.mark.parametrize(
    ("fits", "function"), [([40], "gru_grid"), ([100, 7], "gru_split_products"), ([0], "gru_split_products")]
)
def test_plan_shrinks_until_its_blocks_fit(fits: list[int], function: str) -> None:
    """As under MPS or in a part of a GPU, also where kernels differ in how many of their blocks fit."""
    least = fits[-1]
    desc = gru_of(7, 1, 1024)

    device: Any = SharedDevice(fits)
    plan, _ = load(gru.plan, desc, device)
    launch: Any = plan.steps[-1]
    assert launch.function == function
    assert not launch.cooperative or launch.grid[0] <= least


def test_device_without_room_for_any_plan_says_what_has_none() -> None:
    """The error is not that no smaller plan exists."""
    device: Any = SharedDevice([0])

    def planned(desc: Any, limits: Limits) -> Plan:
        if limits.resident_blocks == 0:
            raise ValueError("there is no such plan")
        return gru.plan(desc, limits)

    with pytest.raises(LaunchTooLargeError, match="too large"):
        load(planned, gru_of(7, 1, 1024), device)
    with pytest.raises(ValueError, match="there is no such plan"):
        load(lambda desc, limits: planned(desc, replace(limits, most_resident_blocks=0)), None, device)


def test_limits_are_lowered_and_never_raised() -> None:
    assert LIMITS.lowered({"max_cluster_blocks": 4}) == replace(LIMITS, max_cluster_blocks=4)
    assert LIMITS.lowered({"max_cluster_blocks": 8, "num_multiprocessors": 200}) == LIMITS
    none = LIMITS.lowered({"most_resident_blocks": 0})
    assert none == replace(LIMITS, most_resident_blocks=0)
    assert none.lowered({"most_resident_blocks": 3, "max_cluster_blocks": 1}) == replace(
        none, max_cluster_blocks=1
    )


def test_plan_that_does_not_shrink_is_an_error() -> None:
    device: Any = SharedDevice([0])
    fixed = gru.plan(gru_of(7, 1, 1024), LIMITS)
    with pytest.raises(LaunchTooLargeError):
        load(lambda desc, limits: fixed, None, device)


def test_resident_blocks_are_those_of_the_device_or_fewer() -> None:
    assert LIMITS.resident_blocks == LIMITS.num_multiprocessors
    assert replace(LIMITS, most_resident_blocks=5).resident_blocks == 5
    assert replace(LIMITS, most_resident_blocks=500).resident_blocks == LIMITS.num_multiprocessors
