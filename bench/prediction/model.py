"""The time of a launch: one multiprocessor's work on its share of the blocks, and the rest.

`bench/PREDICTION.md` derives it. Constants are here and in proof/sass/rates.py.
"""

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from cudml.plans import Copy, LibraryStep, MatMul, round_up
from proof.sass.encoding import PIPES
from proof.sass.launch import Buffer, Counts, Launch, run
from proof.sass.rates import H200, L2_BYTES, NUM_MULTIPROCESSORS, Gpu, h200

#: Measured, rows of the group `launch`: an empty kernel between two events, and a second one after it.
LAUNCH_US = 3.456
NEXT_LAUNCH_US = 1.472
#: From the first block's start to its first instruction with a cold L2: code, arguments and page tables come
#: from memory. The time of `read, 1 MiB` over an empty kernel, minus the machine's time for it.
COLD_US = 0.8

#: Multiprocessors on which clusters of a number of blocks find room, with one large block on each; the others
#: are in parts of the chip that do not divide by the cluster. Measured, rows `active at once` of 200 KiB.
CLUSTER_MULTIPROCESSORS = {1: NUM_MULTIPROCESSORS, 2: 66 * 2, 4: 30 * 4, 8: 15 * 8}

#: Waves of blocks that are run, once this number and once twice as many, if there are more; multiprocessors
#: that run; neighbouring blocks in a sample.
_SAMPLED_WAVES = 2
_NEIGHBOURS = 4
_GROUP = 16

#: The resources that may bound a launch, apart from waiting: issue, wavefronts of shared storage, sectors,
#: blocks that start, and the pipes that arithmetic goes through.
LIMITS = (
    *("issue", "shared", "L1", "L2", "DRAM", "blocks"),
    *("alu", "fma", "heavy", "half", "tensor", "special", "reduction", "uniform"),
)
#: From the datasheet of the H200, dense; TF32 only where a product of float32 allows it.
FLOPS = {"float16": 989e12, "tf32": 494.7e12, "float32": 67e12}

#: The counts of a prediction, each of the whole device.
COUNTS = ("instructions", "l1_sectors", "l2_sectors", "memory_sectors", "barriers", "waves")


@dataclass(frozen=True)
class Prediction:
    """The time of a launch, or of several one after another.

    Clocks are of the multiprocessor with the most work; `limits` has the clocks that it would take if only
    one resource bounded it. `counts` are by the names in `COUNTS`. `clock_hz` is that of the GPU.
    """

    launches: int
    overhead_us: float
    warps: int
    clocks: float
    limits: dict[str, float]
    counts: dict[str, float]
    clock_hz: float = H200.clock_hz

    @property
    def time_us(self) -> float:
        """By events with a cold L2, as bench/ measures it."""
        return self.overhead_us + self.clocks / self.clock_hz * 1e6

    @property
    def bound(self) -> str:
        """The most used resource, if it is used most of the time; otherwise the wait."""
        if self.overhead_us > self.time_us / 2:
            return "launch"
        name = max(self.limits, key=self.limits.__getitem__)
        return name if self.limits[name] > 0.7 * self.clocks else "latency"

    def combined(self, other: "Prediction", function: Callable[[float, float], float]) -> "Prediction":
        """Each number but those of launches, from its values in both."""
        limits = {name: function(limit, other.limits[name]) for name, limit in self.limits.items()}
        counts = {name: function(count, other.counts[name]) for name, count in self.counts.items()}
        return replace(self, clocks=function(self.clocks, other.clocks), limits=limits, counts=counts)

    def __add__(self, other: "Prediction") -> "Prediction":
        """This launch, then the other one."""
        return replace(
            self.combined(other, operator.add),
            launches=self.launches + other.launches,
            overhead_us=self.overhead_us + other.overhead_us - LAUNCH_US + NEXT_LAUNCH_US,
            warps=min(self.warps or other.warps, other.warps or self.warps),
        )


class SecondLevel:
    """The buffers that the launches of a call leave in the L2, which is cold before the first."""

    def __init__(self) -> None:
        self._left: list[Buffer] = []

    def before(self, launch: Launch) -> Launch:
        """The launch with the buffers that are in the L2 when it starts; its own are there afterwards."""
        found = replace(launch, in_l2=[b for b in launch.buffers if b in self._left])
        self.touch(launch.bound)
        return found

    def touch(self, buffers: Sequence[Buffer]) -> None:
        """Use buffers: earlier ones stay if all fit, else only these if they fit, else none is known to."""
        others = [b for b in self._left if b not in buffers]
        choices = ([*others, *buffers], [*buffers])
        self._left = next((c for c in choices if sum(b.array.nbytes for b in c) <= L2_BYTES), [])


def in_order(parts: Iterable[tuple[Hashable, Prediction]]) -> Prediction:
    """The time of a call's launches; a kernel, known by a name, is cold only once."""
    known: set[Hashable] = set()
    found = []
    for name, part in parts:
        found.append(replace(part, overhead_us=part.overhead_us - COLD_US * (name in known)))
        known.add(name)
    return reduce(operator.add, found)


def num_usable(launch: Launch, gpu: Gpu = H200) -> int:
    """Number of multiprocessors that can have a block: whole clusters, the same part as of an H200."""
    of_h200 = CLUSTER_MULTIPROCESSORS[launch.cluster_blocks]
    return (
        of_h200
        * gpu.num_multiprocessors
        // NUM_MULTIPROCESSORS
        // launch.cluster_blocks
        * launch.cluster_blocks
    )


def num_active(launch: Launch, gpu: Gpu = H200) -> int:
    """Number of multiprocessors that have a block."""
    return min(launch.num_blocks, num_usable(launch, gpu))


def run_some(
    launch: Launch,
    blocks: Sequence[int],
    num_multiprocessors: int,
    traced: tuple[int, int] | None = None,
    gpu: Gpu = H200,
) -> Counts:
    """Run some blocks of a launch, evenly on some multiprocessors; `traced` is a block and its warp."""
    resident = min(launch.resident_blocks, math.ceil(len(blocks) / num_multiprocessors))
    first = resident * num_multiprocessors
    if launch.cluster_blocks == 1:  # in the order in which multiprocessors are filled: each gets every n-th
        dealt = [b for n in range(num_multiprocessors) for b in blocks[:first][n::num_multiprocessors]]
        blocks = [*dealt, *blocks[first:]]
    limited = replace(launch, resident_blocks=resident)
    active = num_active(launch, gpu)
    stands_for = active / num_multiprocessors if launch.joint_blocks == 1 else 1.0
    rates = h200(active, stands_for, gpu)
    return run(limited, blocks, num_multiprocessors=num_multiprocessors, rates=rates, traced=traced)


def blocks_to_run(launch: Launch, gpu: Gpu = H200) -> tuple[int, list[Sequence[int]]]:
    """A number of multiprocessors and all blocks that they get, or a few waves of them and twice as many."""
    active = num_active(launch, gpu)
    num_run, share = min(_NEIGHBOURS, active), launch.num_blocks / active
    sampled = _SAMPLED_WAVES * launch.resident_blocks
    if launch.cluster_blocks > 1:  # one group of multiprocessors that holds a cluster, and all it gets
        size = launch.joint_blocks
        return size, [range(size * math.ceil(launch.num_blocks / active))]
    if launch.joint_blocks > 1:
        wanted = round_up(math.ceil(num_run * share), launch.joint_blocks)
        joint = range(min(launch.num_blocks, wanted))
        return math.ceil(len(joint) / share), [joint]
    if share <= 2 * sampled:
        return num_run, [[b for b in range(launch.num_blocks) if b % active < num_run]]
    return num_run, [_spread(launch, n * num_run) for n in (sampled, 2 * sampled)]


def predict(launch: Launch, gpu: Gpu = H200) -> Prediction:
    """Run one multiprocessor's share of a launch, or a few waves of it, and derive the total time."""
    num_run, samples = blocks_to_run(launch, gpu)
    runs = [run_some(launch, blocks, num_run, gpu=gpu) for blocks in samples]
    clocks = float(runs[-1].totals.clocks)
    if len(runs) > 1:  # the other waves are on the line through both
        less, more = (counts.num_blocks / num_run for counts in runs)
        beyond = launch.num_blocks / num_active(launch, gpu) - more
        clocks += beyond * (clocks - runs[0].totals.clocks) / (more - less)
    return _prediction(launch, runs[-1], clocks, gpu)


def _spread(launch: Launch, count: int) -> list[int]:
    """Groups of neighbours from the whole grid; neighbours read the same sectors."""
    num_groups = -(-count // _GROUP)
    starts = [(launch.num_blocks - _GROUP) * (2 * n + 1) // (2 * num_groups) for n in range(num_groups)]
    return [start + n for start in starts for n in range(_GROUP)][:count]


def extrapolated(less: Prediction, more: Prediction, factor: float) -> Prediction:
    """The time of a launch on a larger problem than two that were run: on the line through both.

    `factor` is the size beyond the larger one, as a multiple of the difference of the two.
    """
    return more.combined(less, lambda large, small: large + factor * (large - small))


def library_call(step: LibraryStep, gpu: Gpu = H200) -> Prediction:
    """A call of the driver or of cuBLAS, at the limits of memory and of an H200's arithmetic."""
    seconds = 0.0
    if isinstance(step, MatMul):
        seconds = 2.0 * step.m * step.n * step.k / FLOPS["tf32" if step.allows_tf32 else step.element]
        item = 2 if step.element == "float16" else 4
        num_bytes = item * step.k * (step.m + step.n) + 4 * step.m * step.n
    else:
        num_bytes = step.num_bytes * (2 if isinstance(step, Copy) else 1)
    return at_limits(num_bytes, num_bytes, seconds, gpu)


def at_limits(num_bytes: int, of_memory: int, seconds: float = 0.0, gpu: Gpu = H200) -> Prediction:
    """A launch that waits for nothing but its bytes and arithmetic.

    `of_memory` of its `num_bytes` come from memory, the others from the L2; the arithmetic takes `seconds`.
    """
    used = {
        "DRAM": of_memory / gpu.memory_rate * gpu.clock_hz,
        "L2": (num_bytes - of_memory) / gpu.l2_rate * gpu.clock_hz,
        "tensor": seconds * gpu.clock_hz,
    }
    sectors = dict.fromkeys(("l1_sectors", "l2_sectors"), num_bytes / 32) | {"memory_sectors": of_memory / 32}
    limits, counts = dict.fromkeys(LIMITS, 0.0) | used, dict.fromkeys(COUNTS, 0.0) | sectors
    return Prediction(1, LAUNCH_US + COLD_US, 0, max(limits.values()), limits, counts, gpu.clock_hz)


def _prediction(launch: Launch, found: Counts, clocks: float, gpu: Gpu) -> Prediction:
    active, totals = num_active(launch, gpu), found.totals
    rates = h200(active, gpu=gpu)
    limits = {
        "issue": totals.instructions / 4,
        "shared": totals.wavefronts,
        "L1": totals.sectors / rates.sectors_per_clock,
        "L2": totals.l2_sectors * rates.l2_clocks_per_sector,
        "DRAM": totals.memory_sectors * rates.memory_clocks_per_sector,
        "blocks": found.num_blocks * rates.block_clocks,
    } | {
        pipe: found.of_pipe(pipe) * rates.pipe_clocks[number] / 4
        for number, pipe in enumerate(PIPES)
        if pipe in LIMITS
    }
    counted = ("instructions", "sectors", "l2_sectors", "memory_sectors", "barriers")
    scale = launch.num_blocks / found.num_blocks
    counts = [getattr(totals, name) * scale for name in counted]
    waves = launch.num_blocks / (num_usable(launch, gpu) * launch.resident_blocks)
    warps = math.ceil(math.prod(launch.block) / 32)
    return Prediction(
        1,
        LAUNCH_US + COLD_US,
        min(launch.resident_blocks, math.ceil(launch.num_blocks / gpu.num_multiprocessors)) * warps,
        clocks,
        {name: limit * scale / active for name, limit in limits.items()},
        dict(zip(COUNTS, (*counts, waves), strict=True)),
        gpu.clock_hz,
    )
