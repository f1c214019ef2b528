"""Problems of the machine code of a kernel instance, compiled for any architecture."""

import math

from cudml.plans import KernelLaunch
from proof.instances import promise_of
from proof.sass.architectures import Architecture
from proof.sass.facts import MATRIX_OPCODES, Facts


def problems_of(launch: KernelLaunch, facts: Facts, architecture: Architecture) -> list[str]:
    """The problems of one instance's machine code."""
    kernel = facts.kernel
    promise = promise_of(launch)
    expected = _parameters(launch)
    num_threads = math.prod(launch.block)
    resident = facts.resident_blocks(launch, architecture)
    flight_kib = facts.resident_flight_bytes(launch, architecture) // 1024
    checks = (
        (facts.spilled_bytes == 0, f"{facts.spilled_bytes} bytes of registers are spilled"),
        (kernel.stack_bytes == 0, f"{kernel.stack_bytes} bytes of local memory"),
        (facts.count("LDL", "STL") == 0, f"{facts.count('LDL', 'STL')} accesses of local memory"),
        # Nothing relies on a single order of all fences, and a fence with such an order takes longer.
        (facts.count("MEMBAR.SC") == 0, f"{facts.count('MEMBAR.SC')} sequentially consistent fences"),
        (kernel.parameters == expected, f"parameters at {kernel.parameters}, packed at {expected}"),
        (kernel.shared_bytes == 0, f"{kernel.shared_bytes} bytes of static shared storage"),
        (
            kernel.max_threads == 0 or num_threads <= kernel.max_threads,
            f"launched with {num_threads} threads, bounded to {kernel.max_threads}",
        ),
        (resident > 0, "not even one block fits on a multiprocessor"),
        (
            resident * num_threads >= 32 * promise.min_warps,
            f"{resident * num_threads // 32} warps a multiprocessor, {promise.min_warps} are promised",
        ),
        (
            flight_kib >= promise.min_flight_kib,
            f"loads of {flight_kib} KiB under way on a multiprocessor, {promise.min_flight_kib} are promised",
        ),
        (
            kernel.registers <= (promise.max_registers or 255),
            f"{kernel.registers} registers, {promise.max_registers} are promised",
        ),
        (
            not promise.wide_loads or facts.count("LDG", "LDGSTS", containing=".128") > 0,
            "no global load of 16 bytes",
        ),
        (
            not launch.waits or facts.count("MEMBAR", containing=".SYS") > 0,
            "a wait that is given up is reported without a release to the host",
        ),
        (
            not promise.wide_stores or facts.count("STG", containing=".128") > 0,
            "no global store of 16 bytes",
        ),
        (not promise.matrix or facts.count(*MATRIX_OPCODES) > 0, "no matrix instruction"),
    )
    return [text for is_right, text in checks if not is_right]


def _parameters(launch: KernelLaunch) -> tuple[tuple[int, int], ...]:
    """(offset, bytes) of each parameter as the device packs them: pointers, then the struct."""
    pointers = tuple((8 * i, 8) for i in range(len(launch.buffers)))
    packed = len(launch.params.pack())
    return (*pointers, (8 * len(pointers), packed)) if packed else pointers
