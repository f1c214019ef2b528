"""The machine's costs of instructions and accesses on an H200, in clocks, each with its source.

Measured: the rows `launch`, `latency`, `cluster`, `read` and `memset` of bench/results/nvidia-h200-micro.csv.
Guide: CUDA C++ programming guide, throughput of native arithmetic instructions, compute capability 9.0.
Assumed: neither. Such figures are what is commonly told of an H100; no row measures them, and none was fitted
to a row that the model is held to.
"""

from tests.machine_code.sass.encoding import PIPES, Rates

#: Measured under load.
CLOCK_HZ = 1.98e9
NUM_MULTIPROCESSORS = 132

#: Bytes a second: of memory, the slope of the measured times of `read` from 64 MiB to 4 GiB; of the L2,
#: assumed.
MEMORY_RATE = 4.575e12
L2_RATE = 5.5e12

#: Clocks for which an instruction of a warp keeps the pipe of its partition: 32 lanes over those of the pipe,
#: a quarter of the guide's results a clock; memory and shared storage take 16 lanes a clock of a partition.
#: Then the latency of results that are waited for, assumed. Shared storage and shuffles: 29, less the 6 of an
#: instruction that makes the address. A reduction is done 8 clocks later: its last lanes enter the pipe then.
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


def h200(num_active: int = NUM_MULTIPROCESSORS) -> Rates:
    """A multiprocessor of an H200 with its share of the second-level cache and memory.

    Parameters
    ----------
    num_active : int
        How many multiprocessors have work, and share them.
    """

    def share(bytes_a_second: float) -> float:
        return 32 * num_active * CLOCK_HZ / bytes_a_second

    clocks, latencies = zip(*(_PIPES[pipe] for pipe in PIPES), strict=True)
    return Rates(
        clocks,
        latencies,
        sectors_per_clock=4,  # assumed
        cache_latency=33,  # assumed
        l2_latency=281,  # measured: ld.relaxed.gpu that hits L2
        memory_latency=281 + 246,  # assumed: 124 ns more than L2
        l2_clocks_per_sector=max(32 / 64, share(L2_RATE)),  # assumed: it takes 64 bytes a clock
        memory_clocks_per_sector=max(32 / 64, share(MEMORY_RATE)),
        barrier_clocks_per_warp=2,  # measured: __syncthreads of 64 to 1024 threads
        barrier_latency=13,
        cluster_barrier_latency=354,  # measured: release and acquire, cluster of 2
        block_clocks=163 * num_active / NUM_MULTIPROCESSORS,  # measured: empty kernels of 132 and 1056 blocks
        cache_sectors=(128 << 10) // 32,
        l2_sectors=(50 << 20) // 32,
    )
