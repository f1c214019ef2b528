"""The GPU architectures that kernels are compiled for, and how much of a kernel fits on each."""

from dataclasses import dataclass

from cudml.devices.cuda import cublas
from cudml.devices.cuda.kernel import PORTABLE_CLUSTER_BLOCKS
from cudml.plans import Limits, ceil_div, round_up

REGISTERS_PER_MULTIPROCESSOR = 65536

#: A warp's registers come in units of this many. A multiprocessor has four parts, each with a warp scheduler.
_REGISTER_UNIT = 256
_NUM_PARTITIONS = 4
_SHARED_UNIT = 128


@dataclass(frozen=True)
class Architecture:
    """One compute capability, with a GPU that stands for it where numbers differ between GPUs.

    Warps, blocks and shared bytes a multiprocessor, shared bytes a block (opt-in) and those reserved for
    each block are of CUDA's programming guide, table of technical specifications.
    """

    number: int
    warps: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    reserved_shared_bytes: int
    num_multiprocessors: int
    l2_bytes: int

    @property
    def name(self) -> str:
        """As the compiler spells it."""
        return f"sm_{self.number}"

    @property
    def limits(self) -> Limits:
        """The limits of a plan."""
        return Limits(
            num_multiprocessors=self.num_multiprocessors,
            max_threads_per_block=1024,
            shared_bytes_per_block=self.shared_bytes_per_block,
            shared_bytes_per_multiprocessor=self.shared_bytes,
            registers_per_multiprocessor=REGISTERS_PER_MULTIPROCESSOR,
            max_threads_per_multiprocessor=32 * self.warps,
            max_cluster_blocks=PORTABLE_CLUSTER_BLOCKS if self.number >= 90 else 1,
            l2_bytes=self.l2_bytes,
            compute_capability=self.number,
            product_workspace_bytes=cublas.workspace_bytes(self.number),
        )

    def resident_blocks(self, num_registers: int, num_threads: int, shared_bytes: int) -> int:
        """Blocks that one multiprocessor holds at once (theoretical occupancy); 0 if none fits."""
        if shared_bytes > self.shared_bytes_per_block:
            return 0
        warps = ceil_div(num_threads, 32)
        warp_registers = round_up(32 * max(num_registers, 1), _REGISTER_UNIT)
        warps_per_partition = REGISTERS_PER_MULTIPROCESSOR // _NUM_PARTITIONS // warp_registers
        by_registers = warps_per_partition * _NUM_PARTITIONS // warps
        used = round_up(shared_bytes + self.reserved_shared_bytes, _SHARED_UNIT)
        by_shared = self.shared_bytes // used if used else self.blocks
        return min(self.blocks, by_registers, by_shared, self.warps // warps)


_MIB = 1 << 20

#: sm_75 to sm_120 through a T4, an A100, an RTX 3090, an RTX 4090, an H100, a B200 and an RTX 5090.
ARCHITECTURES = (
    Architecture(75, 32, 16, 65536, 65536, 0, 40, 4 * _MIB),
    Architecture(80, 64, 32, 167936, 166912, 1024, 108, 40 * _MIB),
    Architecture(86, 48, 16, 102400, 101376, 1024, 82, 6 * _MIB),
    Architecture(89, 48, 24, 102400, 101376, 1024, 128, 72 * _MIB),
    Architecture(90, 64, 32, 233472, 232448, 1024, 132, 50 * _MIB),
    Architecture(100, 64, 32, 233472, 232448, 1024, 148, 126 * _MIB),
    Architecture(120, 48, 24, 102400, 101376, 1024, 170, 96 * _MIB),
)

#: The architecture whose machine code also runs. All kernels are compiled for the others only with
#: `--architectures all`, because each architecture takes twelve minutes of CPU time.
COMPILED_BY_DEFAULT = (90,)
