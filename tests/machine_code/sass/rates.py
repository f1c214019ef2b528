"""What the machine takes instructions and accesses to cost on an H200, in clocks, each with its source."""

from tests.machine_code.sass.encoding import PIPES, Rates

CLOCK_HZ = 1.98e9
NUM_MULTIPROCESSORS = 132

#: Clocks for which an instruction of a warp keeps the pipe of its partition: 32 lanes over those of the pipe.
#: CUDA C++ programming guide, throughput of native arithmetic instructions, compute capability 9.0.
_PIPE_CLOCKS = {
    "alu": 2,
    "fma": 1,
    "heavy": 2,
    "half": 2,
    "double": 2,
    "tensor": 8,
    "special": 8,
    "memory": 2,
    "shared": 2,
    "uniform": 2,
    "branch": 2,
}
_LATENCY = {"special": 18, "shared": 23, "memory": 12, "uniform": 24, "tensor": 33, "double": 16, "branch": 6}


def h200() -> Rates:
    """A multiprocessor of an H200 with its share of the memory."""
    rates = Rates(
        sectors_per_clock=4,
        cache_latency=33,
        l2_latency=281,
        memory_latency=1200,
        l2_clocks_per_sector=32 / 64,
        memory_clocks_per_sector=32 * NUM_MULTIPROCESSORS * CLOCK_HZ / 4.55e12,
        barrier_clocks_per_warp=2,
        barrier_latency=13,
        cluster_barrier_latency=190,
        cache_sectors=(128 << 10) // 32,
        l2_sectors=(50 << 20) // 32,
    )
    for number, pipe in enumerate(PIPES):
        rates.pipe_clocks[number] = _PIPE_CLOCKS[pipe]
        rates.latency[number] = _LATENCY.get(pipe, 6)
    return rates
