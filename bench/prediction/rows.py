"""What becomes of each row of nvidia-h200-micro.csv: a constant of the model, held out, or not modelled.

Every row is one of these. No row is left out for its error: what is not modelled has a reason that was there
before it was predicted.
"""

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from bench.results import RESULTS

#: Rows that a constant was taken from, and which one.
CONSTANTS = {
    "empty kernel, 1 blocks of 256 threads": "a launch",
    "two empty kernels, 1 blocks of 256 threads": "a further launch of a call",
    "empty kernel, 132 blocks of 256 threads": "the rate at which blocks start",
    "empty kernel, 1056 blocks of 256 threads": "the rate at which blocks start",
    "clock of a multiprocessor under load": "the clock",
    "__syncthreads, 64 threads": "a barrier, and each warp of it",
    "__syncthreads, 1024 threads": "a barrier, and each warp of it",
    "ld.relaxed.gpu that hits L2": "the latency of the L2",
    "load from memory, one of 16 MiB after the other": "the latency of memory",
    "load from L2, one of 16 MiB after the other": "the latency of memory",
    "load of a warp from L1, 4 bytes a lane, 8 at once": "the latency of the first-level cache",
    "load of a warp from L1, 128 bytes a lane, 8 at once": "the look-up of a line",
    "word from block to block, nearest": "the latency of the L2's farther half",
    "word from block to block, median": "the latency of the L2's farther half",
    "exchange of 512 words between 128 blocks, polls of 16 bytes": "a store's turn at a line of the L2",
    "exchange of 1024 words between 128 blocks, polls of 16 bytes": "a store's turn at a line of the L2",
    "barrier, release and acquire, cluster of 2": "a fence",
    "barrier, relaxed, cluster of 2": "the barrier of a cluster",
    "load from block 1, cluster of 8": "the way to another block of a cluster",
    **{
        f"active at once, cluster of {size}, 256 threads and 200 KiB shared a block": "room for clusters"
        for size in (2, 4, 8)
    },
    "read, 1 MiB": "the cold start",
    **{f"read, {mib} MiB": "the bandwidth of memory" for mib in (64, 256, 1024, 4096)},
}

#: Patterns of rows that are not modelled, and why.
NOT_MODELLED = {
    r"two events, nothing between": "part of each time by events, which the launch includes",
    r"host time of a .*": "time of the host",
    r"a kernel of a graph of 100, in order": "launches of a graph have costs of their own",
    r"pushed exchange of .*": "asynchronous stores and their barriers, which no kernel of cudml has",
    r"active at once, cluster of (16,.*|.*and (0|100|227) KiB.*)": (
        "no time: how many clusters fit, which depends on the chip's disabled parts"
    ),
}


@dataclass(frozen=True)
class Group:
    """Held-out rows of one kind: what their names match, and the most that their errors may be."""

    pattern: str
    median: float
    worst: float


#: For groups in which blocks wait for each other, bars are goals; for the others, they are what the model
#: reached before it knew of contention.
GROUPS = {
    "streaming": Group(r"(filter|copy kernel|read|memset|cudaMemcpyAsync)\b.*", 0.02, 0.16),
    "histograms": Group(r"histogram of .*", 0.03, 0.175),
    "arg-max": Group(r"arg-max by .*", 0.03, 0.13),
    "exchange": Group(r"exchange of .*|word from .*|ld\.acquire.*", 0.15, 0.35),
    "loads": Group(r"load (from (memory|L2)|of a warp).*", 0.05, 0.1),
    "hand-off": Group(r"kernel with last-block hand-off.*", 0.15, 0.35),
    "clusters and barriers": Group(r"barrier, .*|load from block .*|__syncthreads.*", 0.15, 0.35),
    "launches": Group(r"two empty kernels.*|cooperative empty kernel.*", 0.15, 0.35),
}

#: The most that the mean of all held-out rows' errors may be, with their signs.
MEAN = 0.05


@functools.cache
def measured(path: Path = RESULTS / "nvidia-h200-micro.csv") -> dict[str, float]:
    """The values of all rows by name."""
    with path.open(newline="") as file:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(file)}


def reason(name: str) -> str | None:
    """Why a row is not modelled, None if it is."""
    return next((why for pattern, why in NOT_MODELLED.items() if re.fullmatch(pattern, name)), None)


def held_out() -> list[str]:
    """The rows that are predicted and give no constant."""
    return [name for name in measured() if name not in CONSTANTS and reason(name) is None]


def group_of(name: str) -> str:
    """The group of a held-out row."""
    return next(group for group, one in GROUPS.items() if re.fullmatch(one.pattern, name))
