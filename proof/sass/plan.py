"""Run the steps of a plan: kernels as machine code, the rest by the emulator's library."""

import ctypes
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cudml.devices import waits
from cudml.devices.emulator import library_steps
from cudml.devices.kernel_text import kernel_text
from cudml.plans import WAIT_REPORT, KernelLaunch, Plan
from proof.instances import batches
from proof.sass import cubin
from proof.sass.architectures import ARCHITECTURES
from proof.sass.compiler import compiled_instances
from proof.sass.decode import ARCHITECTURE, Code, decode
from proof.sass.launch import Buffer, Launch, run, zeros
from proof.sass.nvrtc import Compiled

#: The architecture whose code runs.
HOPPER = next(a for a in ARCHITECTURES if a.number == ARCHITECTURE)


@dataclass(frozen=True)
class Kernel:
    """A kernel instance for sm_90: its code, and facts from its cubin."""

    code: Code
    facts: cubin.Kernel

    def resident_blocks(self, num_threads: int, shared_bytes: int) -> int:
        """Blocks of a launch that a multiprocessor holds at once."""
        return HOPPER.resident_blocks(
            self.facts.registers, num_threads, self.facts.shared_bytes + shared_bytes
        )


def kernel_of(launch: KernelLaunch) -> Kernel:
    """The kernel of a launch, compiled as CuPy would, together with its neighbours in `instances`."""
    batch = _batches().get((launch.source, launch.name_expression), (launch,))
    return _kernel(kernel_text(batch), tuple(one.name_expression for one in batch), launch.name_expression)


@functools.cache
def _batches() -> dict[tuple[str, str], tuple[KernelLaunch, ...]]:
    return {
        (launch.source, launch.name_expression): tuple(batch)
        for batch in batches(HOPPER.limits)
        for launch in batch
    }


@functools.lru_cache(maxsize=64)
def _kernel(text: str, names: tuple[str, ...], name: str) -> Kernel:
    compiled = _compiled(text, names)
    mangled = compiled.mangled[name]
    return Kernel(decode(compiled.cubin, mangled)[mangled], cubin.kernels_of(compiled.cubin)[mangled])


@functools.lru_cache(maxsize=16)
def _compiled(text: str, names: tuple[str, ...]) -> Compiled:
    return compiled_instances(text, HOPPER.name, names)


def launch_of(
    step: KernelLaunch, buffers: Mapping[str, Buffer], shifts: Mapping[str, int] = MappingProxyType({})
) -> Launch:
    """A step on named buffers, whose addresses are moved by `shifts` in bytes."""
    kernel = kernel_of(step)
    addresses = [0 if name is None else buffers[name].address + shifts.get(name, 0) for name in step.buffers]
    return Launch(
        kernel.code,
        np.array(addresses, np.uint64).tobytes() + step.params.pack(),
        list(buffers.values()),
        step.grid,
        step.block,
        step.shared_bytes,
        step.cluster_blocks,
        kernel.resident_blocks(math.prod(step.block), step.shared_bytes),
        _joint_blocks(step),
    )


def _joint_blocks(step: KernelLaunch) -> int:
    """Number of neighbouring blocks that share results: of a row of top-k, a recurrence, or a cluster."""
    fields = {field.name: field.values[0] for field in step.params.fields if field.values}
    if (step.cooperative or step.waits) and "blocks_per_row" not in fields:
        return math.prod(step.grid)
    return max(int(fields.get("blocks_per_row", 1)), step.cluster_blocks)


def run_plan(plan: Plan, operands: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
    """Run every step completely; returns the buffers of operands and workspaces with the written data.

    `operands` are one-dimensional arrays of bytes by member. Workspaces have all bits set before the run,
    except workspaces that are left zero: these must be zero before and after it.
    """
    buffers = {
        name: Buffer(operands[name], is_output=name in plan.outputs or not plan.outputs)
        for name in plan.operands
    }
    for piece in plan.workspaces:
        buffers[piece.name] = Buffer(zeros(piece.num_bytes), is_output=True)
        buffers[piece.name].array[...] = 0 if piece.is_left_zero else 0xFF
    for step in plan.steps:
        if isinstance(step, KernelLaunch):
            report = wait_report() if WAIT_REPORT in step.buffers else {}
            launch = launch_of(step, buffers | report)
            # All blocks of a cooperative launch run at once.
            num = -(-launch.num_blocks // max(launch.resident_blocks, 1)) if step.cooperative else 1
            run(launch, num_multiprocessors=num)
        else:
            library_steps.prepare(step)({name: buffer.address for name, buffer in buffers.items()})
    left = [piece.name for piece in plan.workspaces if piece.is_left_zero and buffers[piece.name].array.any()]
    if left:
        raise ValueError(f"{plan.operator} does not leave {', '.join(left)} zero")
    return buffers


def wait_report() -> dict[str, Buffer]:
    """The wait report of a launch, with enough time for every wait."""
    size = ctypes.sizeof(waits.WaitReport)
    memory = np.zeros(2 * size, np.uint8)
    report = waits.WaitReport.from_buffer(memory)
    waits.set_up(report, memory.ctypes.data + size)
    return {WAIT_REPORT: Buffer(memory, is_output=True)}


def memory_of(array: np.ndarray) -> np.ndarray:
    """The bytes that an array covers, from its first place to its last."""
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    found = np.frombuffer(memory, np.uint8)
    memory.owner = array  # which must live as long
    return found
