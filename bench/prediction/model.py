"""The time of a launch: one multiprocessor's work on its share of the blocks, and the rest.

`bench/PREDICTION.md` derives it. Constants are here and in tests/machine_code/sass/rates.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudml.plans import Copy, LibraryStep, MatMul, round_up
from tests.machine_code.sass.decode import Code
from tests.machine_code.sass.encoding import PIPES
from tests.machine_code.sass.launch import Buffer, Counts, run
from tests.machine_code.sass.rates import CLOCK_HZ, MEMORY_RATE, NUM_MULTIPROCESSORS, h200

#: Measured, rows of the group `launch`: an empty kernel between two events, and a second one after it.
LAUNCH_US = 3.456
NEXT_LAUNCH_US = 1.472
#: From the first block's start to its first instruction with a cold L2: code, arguments and page tables come
#: from memory. The time of `read, 1 MiB` over an empty kernel, minus the machine's time for it.
COLD_US = 0.8

#: Waves of blocks that are run, and as many again, if there are more than both; the number of
#: multiprocessors; the number of neighbouring blocks in a sample.
_SAMPLED_WAVES = 2
_NEIGHBOURS = 4
_GROUP = 16


#: The resources that may bound a launch, apart from waiting: issue, wavefronts of shared storage, sectors,
#: blocks that start, and the pipes that arithmetic goes through.
LIMITS = (
    *("issue", "shared", "L1", "L2", "DRAM", "blocks"),
    *("alu", "fma", "heavy", "half", "double", "tensor", "special", "reduction", "uniform"),
)
#: From the datasheet of the H200, dense; TF32 is not used for float32.
_FLOPS = {"float16": 989e12, "float32": 67e12}


@dataclass(frozen=True)
class Work:
    """A launch to predict.

    `resident_blocks` is how many blocks a multiprocessor holds at once. So many neighbours, `joint_blocks`,
    wait for each other or go on with what others left: none of them can be run without the rest.
    """

    code: Code
    resident_blocks: int
    arguments: bytes
    buffers: Sequence[Buffer]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster_blocks: int = 1
    joint_blocks: int = 1

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def num_active(self) -> int:
        """Number of multiprocessors that have a block."""
        return min(self.num_blocks, NUM_MULTIPROCESSORS)

    def run(self, blocks: Sequence[int], num_multiprocessors: int = 1) -> Counts:
        """Run some of its blocks, evenly on some multiprocessors."""
        resident = min(self.resident_blocks, math.ceil(len(blocks) / num_multiprocessors))
        return run(
            self.code,
            self.arguments,
            self.buffers,
            grid=self.grid,
            block=self.block,
            shared_bytes=self.shared_bytes,
            cluster_blocks=self.cluster_blocks,
            blocks=_dealt(blocks, resident, num_multiprocessors) if self.cluster_blocks == 1 else blocks,
            num_multiprocessors=num_multiprocessors,
            resident_blocks=resident,
            rates=h200(self.num_active),
        )


@dataclass(frozen=True)
class Prediction:
    """The time of a launch, or of several one after another.

    Clocks are of the multiprocessor with the most work; `limits` has the least it would take if nothing but
    one resource bounded it. Counts are of the whole device.
    """

    launches: int
    overhead_us: float
    clocks: float
    limits: dict[str, float]
    instructions: float
    l1_sectors: float
    l2_sectors: float
    memory_sectors: float
    barriers: float
    warps: int
    waves: float

    @property
    def time_us(self) -> float:
        """By events with a cold L2, as bench/ measures it."""
        return self.overhead_us + self.clocks / CLOCK_HZ * 1e6

    @property
    def bound(self) -> str:
        """The most used resource, if it is used most of the time; otherwise the wait."""
        if self.overhead_us > self.time_us / 2:
            return "launch"
        name = max(self.limits, key=self.limits.__getitem__)
        return name if self.limits[name] > 0.7 * self.clocks else "latency"

    def __add__(self, other: "Prediction") -> "Prediction":
        """This launch, then the other one."""
        return Prediction(
            self.launches + other.launches,
            self.overhead_us + other.overhead_us - LAUNCH_US + NEXT_LAUNCH_US,
            self.clocks + other.clocks,
            {name: limit + other.limits[name] for name, limit in self.limits.items()},
            self.instructions + other.instructions,
            self.l1_sectors + other.l1_sectors,
            self.l2_sectors + other.l2_sectors,
            self.memory_sectors + other.memory_sectors,
            self.barriers + other.barriers,
            min(self.warps or other.warps, other.warps or self.warps),
            self.waves + other.waves,
        )


def predict(work: Work) -> Prediction:
    """Run one multiprocessor's share of a launch, or a few waves of it, and derive the total time."""
    num_run = min(_NEIGHBOURS, work.num_active)
    share = work.num_blocks / work.num_active
    sampled = _SAMPLED_WAVES * work.resident_blocks
    if work.joint_blocks > 1:
        chosen: Sequence[int] = range(
            min(work.num_blocks, round_up(math.ceil(num_run * share), work.joint_blocks))
        )
        num_run = math.ceil(len(chosen) / share)
    elif share <= 2 * sampled:
        chosen = [b for b in range(work.num_blocks) if b % work.num_active < num_run]
    if work.joint_blocks > 1 or share <= 2 * sampled:
        counts = work.run(chosen, num_run)
        return _prediction(work, counts, counts.totals.clocks, share / counts.num_blocks)
    few, many = (work.run(_spread(work, n * num_run), num_run) for n in (sampled, 2 * sampled))
    clocks_per_block = (many.totals.clocks - few.totals.clocks) / sampled
    clocks = many.totals.clocks + (share - 2 * sampled) * clocks_per_block
    return _prediction(work, many, clocks, share / many.num_blocks)


def _spread(work: Work, count: int) -> list[int]:
    """Groups of neighbours from the whole grid; neighbours read the same sectors."""
    num_groups = -(-count // _GROUP)
    starts = [(work.num_blocks - _GROUP) * (2 * n + 1) // (2 * num_groups) for n in range(num_groups)]
    return [start + n for start in starts for n in range(_GROUP)][:count]


def _dealt(blocks: Sequence[int], resident_blocks: int, num_multiprocessors: int) -> list[int]:
    """In the order in which multiprocessors are filled: each gets every n-th of the first blocks."""
    first = resident_blocks * num_multiprocessors
    dealt = [b for n in range(num_multiprocessors) for b in blocks[:first][n::num_multiprocessors]]
    return dealt + list(blocks[first:])


def extrapolated(less: Prediction, more: Prediction, factor: float) -> Prediction:
    """The time of a launch on a larger problem than two that were run: on the line through both.

    Parameters
    ----------
    factor : float
        How many times the difference of the two it is beyond the larger one.
    """

    def line(a: float, b: float) -> float:
        return b + factor * (b - a)

    numbers = ("clocks", "instructions", "l1_sectors", "l2_sectors", "memory_sectors", "barriers", "waves")
    return replace(
        more,
        limits={name: line(less.limits[name], limit) for name, limit in more.limits.items()},
        **{name: line(getattr(less, name), getattr(more, name)) for name in numbers},
    )


def library_call(step: LibraryStep) -> Prediction:
    """A call of the driver or of cuBLAS, at the limits of memory and of the datasheet's arithmetic."""
    operations = 0.0
    if isinstance(step, MatMul):
        operations = 2.0 * step.m * step.n * step.k / _FLOPS[step.element]
        item = 2 if step.element == "float16" else 4
        num_bytes = item * step.k * (step.m + step.n) + 4 * step.m * step.n
    else:
        num_bytes = step.num_bytes * (2 if isinstance(step, Copy) else 1)
    limits = dict.fromkeys(LIMITS, 0.0) | {
        "DRAM": num_bytes / MEMORY_RATE * CLOCK_HZ,
        "tensor": operations * CLOCK_HZ,
    }
    sectors = num_bytes / 32
    return Prediction(
        1, LAUNCH_US + COLD_US, max(limits.values()), limits, 0, sectors, sectors, sectors, 0, 0, 0
    )


def _prediction(work: Work, counts: Counts, clocks: float, scale: float) -> Prediction:
    rates, totals = h200(work.num_active), counts.totals
    stored = totals.l2_sectors_stored + totals.l2_sectors_loaded
    moved = totals.memory_sectors_stored + totals.memory_sectors_loaded
    sectors = totals.sectors_loaded + totals.sectors_stored
    limits = {
        "issue": totals.instructions / 4,
        "shared": totals.wavefronts,
        "L1": sectors / rates.sectors_per_clock,
        "L2": stored * rates.l2_clocks_per_sector,
        "DRAM": moved * rates.memory_clocks_per_sector,
        "blocks": counts.num_blocks * rates.block_clocks,
    } | {
        pipe: counts.of_pipe(pipe) * rates.pipe_clocks[number] / 4
        for number, pipe in enumerate(PIPES)
        if pipe in LIMITS
    }
    device = scale * work.num_active
    warps = math.ceil(math.prod(work.block) / 32)
    return Prediction(
        1,
        LAUNCH_US + COLD_US,
        clocks,
        {name: limit * scale for name, limit in limits.items()},
        totals.instructions * device,
        sectors * device,
        stored * device,
        moved * device,
        totals.barriers * device,
        min(work.resident_blocks, math.ceil(work.num_blocks / NUM_MULTIPROCESSORS)) * warps,
        work.num_blocks / (NUM_MULTIPROCESSORS * work.resident_blocks),
    )
