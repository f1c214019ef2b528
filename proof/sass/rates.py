"""The machine's costs of instructions and accesses on an H200, in clocks, each with its source.

Measured: the rows `launch`, `latency`, `cluster`, `read` and `memset` of bench/results/nvidia-h200-micro.csv.
Guide: CUDA C++ programming guide, throughput of native arithmetic instructions, compute capability 9.0.
Assumed: neither. These figures are commonly stated for an H100; no row measures them, and none was fitted to
a row that the model is held to.
"""

from dataclasses import dataclass

from proof.sass.encoding import PIPES, Rates

#: Measured under load.
CLOCK_HZ = 1.98e9
NUM_MULTIPROCESSORS = 132

#: Bytes a second: of memory, the slope of the measured times of `read` from 64 MiB to 4 GiB; of the L2,
#: assumed.
MEMORY_RATE = 4.575e12
L2_RATE = 5.5e12
L2_BYTES = 50 << 20


@dataclass(frozen=True)
class Gpu:
    """What differs between GPUs of compute capability 9.0; rates are bytes a second."""

    name: str
    num_multiprocessors: int
    clock_hz: float
    memory_rate: float
    l2_rate: float


H200 = Gpu("NVIDIA H200", NUM_MULTIPROCESSORS, CLOCK_HZ, MEMORY_RATE, L2_RATE)

#: Multiprocessors, the rate of memory and the same L2 of 50 MB: docs.nvidia.com/launchpad/ai/h100-mig,
#: "NVIDIA H100". The clock is the boost clock of public lists of GPUs. The L2 is assumed to move as many
#: bytes a clock.
H100_PCIE = Gpu("NVIDIA H100 PCIe", 114, 1.755e9, 2.0e12, L2_RATE * 1.755e9 / CLOCK_HZ)

#: Clocks for which an instruction of a warp keeps the pipe of its partition: 32 lanes over the pipe's lanes,
#: a quarter of the guide's results a clock; memory and shared storage take 16 lanes a clock of a partition.
#: Then the latency, assumed, of results that are waited for. Shared storage and shuffles: 29, less the 6 of
#: an instruction that makes the address. A reduction ends 8 clocks later, when its last lanes have entered. A
#: matrix instruction has 16 x 8 results of depth 16, or of depth 8 for TF32 (datasheet: half the rate).
_PIPES = {
    "alu": (2, 6),
    "fma": (1, 6),
    "heavy": (2, 6),
    "half": (2, 6),
    "tensor": (8, 33),
    "special": (8, 18),
    "memory": (2, 12),
    "shared": (2, 23),
    "reduction": (8, 31),
    "uniform": (2, 24),
    "branch": (2, 6),
}


def h200(num_active: int = NUM_MULTIPROCESSORS, stands_for: float = 1.0, gpu: Gpu = H200) -> Rates:
    """A multiprocessor of an H200, or of another such GPU, with its share of the L2 and memory.

    Parameters
    ----------
    num_active : int
        How many multiprocessors have work, and share them.
    stands_for : float
        How many of these each simulated multiprocessor stands for, when only some independent blocks run.
    gpu : Gpu
        What differs. Latencies have as many clocks as on an H200, except that of memory; blocks start at the
        same rate.
    """

    def share(bytes_a_second: float) -> float:
        return 32 * num_active * gpu.clock_hz / bytes_a_second

    clocks, latencies = zip(*(_PIPES[pipe] for pipe in PIPES), strict=True)
    return Rates(
        clocks,
        latencies,
        sectors_per_clock=4,  # assumed
        clocks_per_line_more=1,  # assumed: it looks up a line a clock
        pipe_clocks_per_line_more=2.25,  # measured: loads of a warp from L1, of 32 lines
        shared_queue=16,  # assumed; a histogram takes as long with 4 or 64
        cache_latency=47,  # measured: loads of a warp from L1, of one line
        l2_latency=263,  # measured: ld.relaxed.gpu that hits L2, 281.3, less the instructions of its loop
        # Measured: loads from memory, one of 16 MiB after the other, 694.8 clocks, less the loop's other 8.
        memory_latency=263 + 424 * gpu.clock_hz / CLOCK_HZ,
        l2_clocks_per_sector=max(32 / 64, share(gpu.l2_rate)),  # assumed: it takes 64 bytes a clock
        memory_clocks_per_sector=max(32 / 64, share(gpu.memory_rate)),
        # Measured: the median word from block to block takes 53 clocks more than the nearest, for one and a
        # half ways to the L2 and back: a store's, and a load's that finds it. Half of these are far.
        l2_far_latency=53 / 1.5 * 2,
        line_clocks_per_sector=1,  # assumed: a line is in one slice of the L2, which has a sector a clock
        # Measured: exchanges of 512 and of 1024 words between 128 blocks, polls of 16 bytes, 1953 and 1612
        # clocks: eight blocks store to each line, and four.
        line_clocks_per_store=(1953 - 1612) / 4,
        word_clocks_per_update=1,  # published: NVIDIA Kepler GK110 white paper, atomics to a common address
        stands_for=stands_for,
        fence_latency=265,  # measured: barrier of a cluster of 2 with release and acquire, over relaxed
        remote_latency=175,  # measured: load from block 1, cluster of 8, over the machine's own for block 0
        barrier_clocks_per_warp=2,  # measured: __syncthreads of 64 to 1024 threads
        barrier_latency=13,
        cluster_barrier_latency=60,  # measured: relaxed, cluster of 2, less the instructions of its loop
        # Measured: empty kernels of 132 and 1056 blocks.
        block_clocks=163 * num_active / NUM_MULTIPROCESSORS * gpu.clock_hz / CLOCK_HZ,
        cache_sectors=(128 << 10) // 32,
        l2_sectors=L2_BYTES // 32,
    )
