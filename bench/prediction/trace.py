"""`python -m bench predict --trace CASE`: the clocks of a warp by instruction and by source line."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.prediction.cases import STEPS, beyond, launches_of, planned, smaller
from bench.prediction.model import blocks_to_run, run_some
from cudml.plans import KernelLaunch
from proof.sass.encoding import Cause
from proof.sass.launch import Launch
from proof.sass.lines import lines_of
from proof.sass.plan import HOPPER

#: What an instruction waited for, by the names of `Cause`.
_WORDS = {
    Cause.START: "its block",
    Cause.SCHEDULE: "the instruction before",
    Cause.RESULT: "the result of",
    Cause.FENCE: "a fence",
    Cause.BARRIER: "a barrier",
    Cause.PIPE: "its pipe",
}
_OTHERS = "other warps"


@dataclass(frozen=True)
class Issued:
    """An instruction that the warp issued.

    `waits` has the clocks since the instruction before, by what was waited for: `Cause` in words, for a
    result with the line of the instruction that gave it, and other warps, which issued instead.
    """

    clock: int
    pc: int
    text: str
    line: str
    lanes: int
    waits: dict[str, int]


@dataclass(frozen=True)
class Trace:
    """A warp of a launch: its kernel, what it issued, and how many clocks the launch took."""

    kernel: str
    block: int
    warp: int
    issued: list[Issued]
    clocks: int

    def by_line(self) -> list[tuple[str, int, int, str]]:
        """Lines by the clocks before their instructions: line, clocks, instructions, the longest waits."""
        clocks: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        waits: dict[str, Counter[str]] = {}
        for one in self.issued:
            clocks[one.line] += sum(one.waits.values())
            counts[one.line] += 1
            waits.setdefault(one.line, Counter()).update(one.waits)
        return [
            (line, total, counts[line], ", ".join(f"{what} {n}" for what, n in waits[line].most_common(2)))
            for line, total in clocks.most_common()
        ]

    def text(self) -> Iterator[str]:
        """The instructions in the order in which they were issued, then the lines."""
        yield f"{self.kernel}, block {self.block}, warp {self.warp}; launch: {self.clocks} clocks"
        yield f"{'clock':>9} {'wait':>6} {'lanes':>5}  {'instruction':<58} {'line':<34} waited for"
        for one in self.issued:
            waited = ", ".join(f"{what} {n}" for what, n in one.waits.items() if n > 1)
            clocks = sum(one.waits.values())
            text = f"{16 * one.pc:#06x} {one.text}"
            yield f"{one.clock:>9} {clocks:>6} {one.lanes:>5}  {text:<58} {one.line:<34} {waited}".rstrip()
        total = max(1, sum(sum(one.waits.values()) for one in self.issued))
        yield f"{'line':<34} {'clocks':>8} {'share':>6} {'issued':>7}  longest waits"
        for line, clocks, count, waited in self.by_line():
            yield f"{line:<34} {clocks:>8} {clocks / total:>6.1%} {count:>7}  {waited}"


def traced(step: KernelLaunch, launch: Launch, warp: int = 0) -> Trace:
    """Run the share of a launch that a prediction runs, and record a warp of its first block."""
    lines = lines_of(step, HOPPER)
    num_run, samples = blocks_to_run(launch)
    block = samples[-1][0]
    counts = run_some(launch, samples[-1], num_run, (block, warp))
    if len(lines) != len(launch.code.texts):
        raise ValueError(f"{step.name_expression}: -lineinfo changes the code, so its lines are unknown")
    issued, before = [], 0
    for clock, ready, pc, cause_pc, lanes, cause in counts.issues.tolist():
        what = _WORDS[Cause(cause)] + (f" {lines[cause_pc]}" if cause == Cause.RESULT else "")
        waits = {what: int(ready) - before, _OTHERS: int(clock) - int(ready)}
        waits = {name: clocks for name, clocks in waits.items() if clocks > 0}
        issued.append(Issued(int(clock), pc, launch.code.texts[pc], lines[pc], lanes, waits))
        before = int(clock)
    return Trace(step.name_expression, block, warp, issued, int(counts.totals.clocks))


def traces(operator: str, case: Any, warp: int = 0) -> Iterator[Trace]:
    """A warp of each kernel of a case, or of the smaller case from which it is predicted."""
    num_steps = 0
    if operator == "top_k":
        case = smaller(case)[1]
    elif operator == "gru" and beyond(case.steps):
        num_steps = STEPS[1]
    for call in planned(operator, case):
        for step, launch in launches_of(call, num_steps):
            yield traced(step, launch, warp)
