"""How launches run: the order in which threads take turns, and what is checked."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from cudml.devices import shortcuts
from cudml.errors import SettingError

#: Thread orders, numbered as in simt/interface.h.
ORDERS = ("fast", "forward", "reverse", "random")


#: Default limit of seconds without progress in check mode and in orders other than "fast".
DEFAULT_TIME_LIMIT = 20.0


@dataclass(frozen=True)
class Schedule:
    """The options of `schedule()`."""

    order: str = "fast"
    seed: int = 0
    poison: int | None = None
    strict: bool | None = None
    guard: bool = False
    check: bool = False
    workers: int | None = None
    time_limit: float | None = None
    stack_kib: int = 0
    warp_lanes: int | None = None
    #: `warp_lanes`, or its default: orders other than "fast" and check mode use a GPU's kernels.
    num_lanes: int = field(init=False, repr=False, compare=False)
    #: `strict`, or its default.
    is_strict: bool = field(init=False, repr=False, compare=False)
    #: `time_limit`, or its default: ordinary runs have no limit.
    seconds_without_progress: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}, must be one of {', '.join(ORDERS)}")
        if self.warp_lanes not in (None, 1, 32):
            raise ValueError(f"warp_lanes is {self.warp_lanes}, must be 1 or 32")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is {self.workers}, must be at least 1")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit is {self.time_limit}, must be a positive number of seconds")
        is_ordinary = self.order == "fast" and not self.check
        lanes, seconds = (1, math.inf) if is_ordinary else (32, DEFAULT_TIME_LIMIT)
        defaults = {
            "num_lanes": lanes if self.warp_lanes is None else self.warp_lanes,
            "is_strict": self.check if self.strict is None else self.strict,
            "seconds_without_progress": seconds if self.time_limit is None else self.time_limit,
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)


_chosen: ContextVar[Schedule | None] = ContextVar("cudml_emulator_schedule", default=None)

#: Returns the schedule of the innermost `with schedule(...)`, or None.
chosen_schedule = _chosen.get

#: The last text of CUDML_EMULATOR, and its schedule.
last_parsed: tuple[bytes | None, Schedule] = (None, Schedule())


def environment_schedule() -> Schedule:
    """The schedule of CUDML_EMULATOR: `check`, or options separated by commas, `order=random,seed=3`."""
    global last_parsed
    text = shortcuts.emulator_options()
    if text != last_parsed[0]:
        last_parsed = (text, _parse(os.fsdecode(text or b"")))
    return last_parsed[1]


#: The values of a flag; an option without a value sets it.
_FLAGS = {"": True, "1": True, "0": False}


def _read_flag(text: str) -> bool:
    if text not in _FLAGS:
        raise ValueError(text)
    return _FLAGS[text]


def _read_integer(text: str) -> int:
    return int(text, 0)


#: How an option's text is read, and what it must be.
_Reader = tuple[Callable[[str], Any], str]
_FLAG: _Reader = _read_flag, "0, 1 or left out, which is 1"
_INTEGER: _Reader = _read_integer, "an integer"

_READERS: dict[str, _Reader] = {
    "order": (str, "a name"),
    "seed": _INTEGER,
    "poison": _INTEGER,
    "strict": _FLAG,
    "guard": _FLAG,
    "check": _FLAG,
    "workers": _INTEGER,
    "time_limit": (float, "a number of seconds"),
    "stack_kib": _INTEGER,
    "warp_lanes": _INTEGER,
}


def _parse(text: str) -> Schedule:
    options: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = option.partition("=")
        if name not in _READERS:
            known = f"NAME=VALUE with NAME one of {', '.join(_READERS)}"
            raise SettingError(f"CUDML_EMULATOR has {option!r}; it takes {known}")
        read, expected = _READERS[name]
        try:
            options[name] = read(value)
        except ValueError:
            raise SettingError(f"CUDML_EMULATOR: {name} is {value!r}, must be {expected}") from None
    try:
        return Schedule(**options)
    except ValueError as error:
        raise SettingError(f"CUDML_EMULATOR: {error}") from None


@contextlib.contextmanager
def schedule(
    order: str = "fast",
    seed: int = 0,
    poison: int | None = None,
    strict: bool | None = None,
    guard: bool = False,
    *,
    check: bool | None = None,
    workers: int | None = None,
    time_limit: float | None = None,
    stack_kib: int | None = None,
    warp_lanes: int | None = None,
) -> Iterator[Schedule]:
    """Set how kernels launched inside the `with` block run; other threads are not affected.

    Parameters
    ----------
    order : {"fast", "forward", "reverse", "random"}
        Which of several runnable threads or blocks runs first. "fast" runs threads as a plain loop
        where possible; the others give every thread its own stack and switch at every collective.
    seed : int
        Seed of the random order; the same seed gives the same order on every machine.
    poison : int, optional
        A 32-bit pattern that fills shared storage before every block. Results that differ between two
        patterns depend on uninitialised storage.
    strict : bool, optional
        Refuse what CUDA allows but is usually a mistake: a barrier or warp collective that is reached
        from several source lines, or after some of its threads have ended. By default only in check mode.
    guard : bool
        Detect writes just outside the shared storage.
    check : bool, optional
        Observe every memory access: races, accesses out of bounds, uninitialised reads. Slow.
    workers : int, optional
        Number of operating-system threads; by default one per core in the order "fast", else one.
    time_limit : float, optional
        Seconds of CPU time without progress (a thread that ends, a completed barrier or warp collective)
        after which a launch is stopped. "inf" means no limit, the default in the order "fast" without
        check; otherwise the default is 20. Blocks of one thread, which wait for nobody, are limited only in
        check mode.
    stack_kib : int, optional
        Stack size of a thread in KiB; 0 means the default of 32.
    warp_lanes : {1, 32}, optional
        With 32, plans choose the kernels of a GPU; with 1, kernels that are plain loops on a CPU. The default
        is 1 in the order "fast" without check, else 32.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> from cudml.devices import emulator
    >>> with emulator.schedule(order="random", seed=1, poison=0x7FC00000, strict=True):
    ...     values, indices = cudml.top_k(np.array([3, 1, 2]), 2)
    >>> indices.tolist()
    [0, 2]
    """
    outer = chosen_schedule() or environment_schedule()
    chosen = replace(
        outer,
        order=order,
        seed=seed,
        poison=poison,
        strict=strict,
        guard=guard,
        check=outer.check if check is None else check,
        workers=outer.workers if workers is None else workers,
        time_limit=outer.time_limit if time_limit is None else time_limit,
        stack_kib=outer.stack_kib if stack_kib is None else stack_kib,
        warp_lanes=outer.warp_lanes if warp_lanes is None else warp_lanes,
    )
    token = _chosen.set(chosen)
    try:
        yield chosen
    finally:
        _chosen.reset(token)
