"""A peer's call: its launches over the stand-in for the CUDA runtime, run and predicted one by one."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from bench.cases import Case
from bench.prediction.model import Prediction, SecondLevel, extrapolated, in_order, library_call, predict
from cudml.plans import Copy, Fill
from proof.runtime import library as stand_in
from proof.sass.launch import Buffer, Launch, run
from proof.sass.rates import H200, Gpu

#: Launches of more blocks a multiprocessor are sampled, because blocks that start late share nothing with
#: the first blocks.
_JOINT_WAVES = 8
#: The machine keeps the registers of every block of a run, 300 KB each.
_BLOCKS_AT_ONCE = 1024


@dataclass(frozen=True)
class Row:
    """A case and a peer: the predicted time, or why there is none.

    `time_us` is 0 if `note` says why there is none. `launches` counts fills and copies, too. `contract` is
    what the peer's result may differ in.
    """

    case: str
    peer: str
    version: str
    time_us: float
    launches: int
    bound: str
    contract: str
    note: str = ""
    operator: str = "top_k"

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the row."""
        return self.operator, self.case, self.peer

    def taking(self, found: Prediction) -> "Row":
        """The row with a time."""
        return replace(self, time_us=round(found.time_us, 2), launches=found.launches, bound=found.bound)

    def of_sizes(
        self, less: Case, more: Case, factor: float, executed: Callable[[Any], Prediction | str]
    ) -> "Row":
        """The row with the time of a case, on the line through two smaller ones.

        `factor` is how many times their difference is missing; 0 if the case itself is both. `executed` gives
        the time of a case, or why there is none.
        """
        times = []
        for case in (less, more) if factor else (more,):
            found = executed(case)
            if isinstance(found, str):
                return replace(self, note=found)
            times.append(found)
        return self.taking(extrapolated(times[0], times[1], factor) if factor else times[0])

    def __str__(self) -> str:
        time = f"{self.time_us:>10.1f} us  {self.bound}" if self.time_us else f"  {self.note}"
        return f"{self.case:<60.60}{self.peer:<16}{time}"


class Recorder:
    """Runs the launches of a program and predicts their time: each kernel is cold once, and the L2 keeps what
    fits, as in calls of cudml.

    With `samples`, launches of many blocks run only the blocks by which the time is predicted; `is_sampled`
    says whether there was such a launch.
    """

    def __init__(self, gpu: Gpu = H200) -> None:
        self._gpu = gpu
        self.runtime = stand_in.Runtime(self._launch, self._transfer, gpu)
        self.begin()

    def begin(self, samples: bool = False) -> None:
        """Forget what was launched before: a call starts with a cold L2."""
        self._parts: list[tuple[Hashable, Prediction]] = []
        self._second_level = SecondLevel()
        self._samples, self.is_sampled = samples, False

    def total(self) -> Prediction:
        """The time of all launches since."""
        return in_order(self._parts)

    def _launch(self, name: str, launch: Launch) -> None:
        launch = self._second_level.before(launch)
        if launch.num_blocks <= _JOINT_WAVES * self._gpu.num_multiprocessors:  # all run, and leave results
            whole = replace(launch, joint_blocks=launch.num_blocks)
            self._parts.append((name, predict(whole, self._gpu)))
            return
        if self._samples:
            self.is_sampled = True
            self._parts.append((name, predict(launch, self._gpu)))
            return
        before = [buffer.array.copy() for buffer in launch.buffers]
        self._parts.append((name, predict(launch, self._gpu)))
        for buffer, array in zip(launch.buffers, before, strict=True):
            buffer.array[...] = array
        for first in range(0, launch.num_blocks, _BLOCKS_AT_ONCE):
            run(launch, range(first, min(first + _BLOCKS_AT_ONCE, launch.num_blocks)))

    def _transfer(self, step: Copy | Fill, used: list[Buffer]) -> None:
        self._parts.append((type(step), library_call(step, self._gpu)))
        self._second_level.touch(used)
