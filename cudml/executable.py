"""A plan loaded on a device and ready to run: the engine of array functions and of compiled operators."""

import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from cudml.devices import Device, GridTooLargeError, Program
from cudml.plans import Limits, Plan
from cudml.settings import print_plan

#: Number of plans with loaded kernels that are kept for equal descriptors.
MAX_PROGRAMS = 1024

#: Number of sets of arrays that an executable remembers as checked.
MAX_GOOD = 256

#: Plans a checked descriptor for the limits of a device. It is a key of cached plans, so it must not be a
#: temporary function.
Planner = Callable[[Any, Limits], Plan]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(dict[_Key, _Value]):
    """A dictionary of at most `most` entries, in which a new one replaces the oldest. Thread-safe."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self.most:
            # No lock, which a fork could leave held. If another thread interferes, try again.
            with suppress(RuntimeError, StopIteration):
                self.pop(next(iter(self)), None)


@lru_cache(maxsize=MAX_PROGRAMS)
def load_plan(plan: Plan, device: Device) -> Program:
    """Load a plan on a device; equal plans share one program."""
    if print_plan():
        print(f"{device.name}: {plan}", file=sys.stderr)
    return device.load(plan)


@lru_cache(maxsize=MAX_PROGRAMS)
def _planned(planner: Planner, desc: Hashable, limits: Limits) -> Plan:
    return planner(desc, limits)


def load(planner: Planner, desc: Hashable, device: Device) -> tuple[Plan, Program]:
    """The plan of a descriptor, ready to run; with fewer blocks if those of a grid cannot run at once."""
    limits = device.limits
    while True:
        plan = _planned(planner, desc, limits)
        try:
            return plan, load_plan(plan, device)
        except GridTooLargeError as error:
            if error.fits >= limits.resident_blocks:
                raise
            limits = replace(limits, most_resident_blocks=error.fits)


class Executable:
    """A plan loaded on a device.

    Parameters
    ----------
    planner, desc, device
        As for `load`.

    Attributes
    ----------
    plan : Plan
        The plan that it runs.
    run : Program
        Runs it on checked arrays, in the order of the plan's operands.
    good : Recent
        The keys of sets of arrays that passed the checks; the caller decides what a key is.
    """

    def __init__(self, planner: Planner, desc: Hashable, device: Device) -> None:
        self.plan, self.run = load(planner, desc, device)
        self.good: Recent[Hashable, bool] = Recent(MAX_GOOD)
