"""Count the memory traffic of kernels: bytes, sectors, requests, bank conflicts, barriers, atomics."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from cudml.devices.emulator.structures import Check
from cudml.plans import KernelLaunch


@dataclass(frozen=True)
class BufferTraffic:
    """The traffic of one buffer, or of shared storage, in one launch.

    A request is one instruction executed by the lanes of a warp together. `sectors_*` counts the distinct
    32-byte sectors of each request (none for shared storage). `bank_conflicts` counts the additional passes
    of requests to shared storage whose lanes accessed different words of one bank. `atomics` counts
    read-modify-write operations of threads; their bytes are not included in the other counts.
    """

    bytes_read: int
    bytes_written: int
    requests_read: int
    requests_written: int
    sectors_read: int
    sectors_written: int
    atomics: int
    bank_conflicts: int

    @property
    def sectors_per_request(self) -> float:
        """4 if a full warp reads consecutive 4-byte elements; 32 if each lane accesses its own sector."""
        requests = self.requests_read + self.requests_written
        return (self.sectors_read + self.sectors_written) / requests if requests else 0.0


@dataclass(frozen=True)
class LaunchTraffic:
    """The traffic of one kernel launch, by operand or workspace name."""

    launch: KernelLaunch
    buffers: dict[str, BufferTraffic]
    shared: BufferTraffic
    block_barriers: int
    warp_collectives: int

    def __str__(self) -> str:
        lines = [f"{self.launch.source} {self.launch.name_expression}"]
        for name, traffic in self.buffers.items():
            lines.append(
                f"  {name}: read {traffic.bytes_read} bytes in {traffic.sectors_read} sectors, "
                f"wrote {traffic.bytes_written} in {traffic.sectors_written}, {traffic.atomics} atomics, "
                f"{traffic.sectors_per_request:.2f} sectors a request"
            )
        lines.append(
            f"  shared storage: read {self.shared.bytes_read} bytes, wrote {self.shared.bytes_written}, "
            f"{self.shared.bank_conflicts} bank conflicts, {self.shared.atomics} atomics"
        )
        lines.append(f"  {self.block_barriers} block barriers, {self.warp_collectives} warp collectives")
        return "\n".join(lines)


@dataclass
class Report:
    """The result of `emulator_report()`: every launch inside its `with` block, in order."""

    launches: list[LaunchTraffic] = field(default_factory=list)

    def add(self, launch: KernelLaunch, names: Sequence[Sequence[str]], regions: Any, check: Check) -> None:
        """Add a completed launch."""
        buffers = {
            ", ".join(group): _traffic(region.traffic)
            for group, region in zip(names, regions, strict=False)
            if any(name in launch.buffers for name in group)
        }
        self.launches.append(
            LaunchTraffic(
                launch, buffers, _traffic(check.shared), check.block_barriers, check.warp_collectives
            )
        )

    def total(self, name: str) -> BufferTraffic:
        """The sum over all launches for one operand or workspace."""
        found = [launch.buffers[name] for launch in self.launches if name in launch.buffers]
        if not found:
            raise KeyError(f"no launch used a buffer {name!r}")
        columns = zip(*(vars(traffic).values() for traffic in found), strict=True)
        return BufferTraffic(*(sum(column) for column in columns))

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches))


def _traffic(counted: Any) -> BufferTraffic:
    return BufferTraffic(*(int(getattr(counted, name)) for name, _ in counted._fields_))


_current: ContextVar[Report | None] = ContextVar("cudml_emulator_report", default=None)


#: The report of the innermost `with emulator_report()`.
current = _current.get


@contextlib.contextmanager
def emulator_report() -> Iterator[Report]:
    """Count the memory traffic of every kernel that runs on the CPU emulator inside the `with` block.

    Kernels run in check mode, as with `CUDML_EMULATOR=check`, which is slow. The steps of a device's library
    are not counted: matrix products, fills, and the copy of a slice that is one stretch of words.

    Yields
    ------
    Report
        `launches` has one entry per kernel launch; `total(name)` is the sum for one operand.

    Raises
    ------
    KernelError
        By a call inside the block whose kernel has a defect.
    CompilerError
        By a call inside the block, if the compiler cannot instrument kernels.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> with cudml.emulator_report() as report:
    ...     result = cudml.top_k(np.arange(1000, dtype=np.float32), 10)
    >>> report.total("output_value_tensor").bytes_written
    40
    """
    collected = Report()
    token = _current.set(collected)
    try:
        yield collected
    finally:
        _current.reset(token)
