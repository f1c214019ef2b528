"""The machine code of every kernel instance on every architecture, without a GPU.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import itertools
import math

import numpy as np
import pytest

from bench import machine_code
from cudml.operators import OPERATORS
from cudml.plans import KernelLaunch
from proof.instances import batches, instances, operators, promise_of, random_launches
from proof.sass import nvrtc
from proof.sass.architectures import ARCHITECTURES, COMPILED_BY_DEFAULT, Architecture
from proof.sass.compiler import nvrtc_version, unavailable
from proof.sass.facts import MATRIX_OPCODES, Facts, facts_of

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Random descriptors that each architecture plans in the search for instances that are not listed.
RANDOM_LAUNCHES = 300

_BATCHES = [
    pytest.param(
        architecture,
        batch,
        id=f"{architecture.name}-{batch[0].name_expression}",
        marks=() if architecture.number in COMPILED_BY_DEFAULT else pytest.mark.every_architecture,
    )
    for architecture in ARCHITECTURES
    for batch in batches(architecture.limits)
]


@pytest.mark.parametrize(("architecture", "batch"), _BATCHES)
def test_kernel_instances(architecture: Architecture, batch: list[KernelLaunch]) -> None:
    """Nothing is wrong with them, nor are they beyond the committed table if that is by this compiler.

    tests/project/test_recorded_code.py compares the table with all of them together.
    """
    if architecture.number not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc_version()} does not know {architecture.name}")
    facts = facts_of(batch, architecture)
    problems = {
        launch.name_expression: found
        for launch in batch
        if (found := problems_of(launch, facts[launch.name_expression], architecture))
    }
    assert problems == {}
    recorded = machine_code.recorded()
    if recorded.version == nvrtc_version():
        assert machine_code.beyond(recorded.rows, machine_code.rows_of(batch, architecture)) == []


def test_every_operator_has_its_instances() -> None:
    assert set(operators()) == {row.room for row in OPERATORS.values()}


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
@pytest.mark.parametrize("operator", operators())
def test_random_plans_choose_listed_instances(
    operator: str, architecture: Architecture, rng: np.random.Generator
) -> None:
    listed = {(launch.source, launch.name_expression) for launch in instances(architecture.limits)}
    found = itertools.islice(random_launches(operator, architecture.limits, rng), RANDOM_LAUNCHES)
    unlisted = {(launch.source, launch.name_expression) for launch in found} - listed
    assert not unlisted, sorted(unlisted)


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
        # Nothing relies on a single order of all fences, and one that has it takes longer.
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
