"""Plans loaded on devices and ready to run: the engine of array functions and of compiled operators."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cudml.devices import Device, LaunchTooLargeError, Program
from cudml.devices.shortcuts import plan_option
from cudml.plans import Limits, Plan
from cudml.settings import print_plan

#: Number of sets of arrays that a call or an operator remembers as checked.
MAX_GOOD = 256

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(dict[_Key, _Value]):
    """A dictionary of at most `most` entries, in which a new one replaces the oldest. Thread-safe."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        dict.__setitem__(self, key, value)
        while len(self) > self.most:
            # No lock, which a fork could leave held. If another thread interferes, try again.
            with suppress(RuntimeError, StopIteration):
                self.pop(next(iter(self)), None)


def load(
    planner: Callable[..., Plan],
    desc: Any,
    device: Device,
    options: tuple[Any, ...] = (),
    limits: Limits | None = None,
) -> tuple[Plan, Program]:
    """The plan of a descriptor, ready to run; with fewer blocks that run at once if the device lacks room.

    The planner takes the descriptor, the limits, which are the device's if not given, and the options.

    Raises LaunchTooLargeError if no plan has room.
    """
    limits = limits or device.limits
    refused: LaunchTooLargeError | None = None
    while True:
        try:
            plan = planner(desc, limits, *options)
        except ValueError as error:
            if refused is None:
                raise
            raise refused from error
        if plan_option() and print_plan():
            print(f"{device.name}: {plan}", file=sys.stderr)
        try:
            return plan, device.load(plan)
        except LaunchTooLargeError as error:
            lowered = limits.lowered(error.limits)
            if lowered == limits:
                raise
            limits, refused = lowered, error
