"""Run every kernel instance once on the GPU, for a checker that watches the machine code:

    compute-sanitizer --tool memcheck --error-exitcode 1 python -m tests.gpu_instances

Of the descriptors in `tests/support/instances/` it takes the smallest that reaches each instance. Every
operand and every workspace is an allocation of its own, no byte larger than it must be, so that an access
outside is seen; results are the business of the other tests.
`racecheck`, `synccheck` and `initcheck` work as well.
"""

import argparse
import importlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from cudml.devices.cuda import CudaDevice, get_device
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc
from tests.support.instances import operators

#: Lengths are drawn up to here: most of them within the axes of the small descriptors, some beyond.
MAX_LENGTH = 1000


def names_of(plan: Plan) -> set[str]:
    """The kernel instances of a plan."""
    return {f"{step.source} {step.name_expression}" for step in plan.steps if isinstance(step, KernelLaunch)}


def tensors_of(descriptor: Any, plan: Plan) -> dict[str, TensorDesc]:
    """The bound tensors by member name."""
    return {name: getattr(descriptor, name) for name in plan.operands}


def smallest(operator: str, limits: Limits, max_bytes: int) -> Iterator[tuple[Any, Plan]]:
    """Descriptors, small ones first, that each reach an instance which none before has reached."""
    plan_of = importlib.import_module(f"cudml.operators.{operator}").plan
    planned = [
        (descriptor, plan_of(descriptor, limits)) for descriptor in operators()[operator].descriptors()
    ]

    def num_bytes(pair: tuple[Any, Plan]) -> int:
        return sum(tensor.span_bytes for tensor in tensors_of(*pair).values()) + pair[1].temporary_bytes

    reached: set[str] = set()
    for descriptor, plan in sorted(planned, key=num_bytes):
        if names_of(plan) - reached and num_bytes((descriptor, plan)) <= max_bytes:
            reached |= names_of(plan)
            yield descriptor, plan
    missed = set().union(*(names_of(plan) for _, plan in planned)) - reached
    for name in sorted(missed):
        print(f"{operator}: only larger descriptors reach {name}")


def contents(rng: np.random.Generator, name: str, tensor: TensorDesc) -> np.ndarray:
    """Bytes for an input: lengths, normal numbers for the floats that are computed with, any bits else."""
    info = tensor.element
    if "lengths" in name:
        values = rng.integers(0, MAX_LENGTH, tensor.span_elements).astype(info.numpy_name)
    elif info.cpp in ("Float32", "Float16"):
        values = rng.standard_normal(tensor.span_elements, np.float32).astype(info.numpy_name)
    else:
        values = rng.integers(0, 256, tensor.span_bytes, np.uint8)
    return values.view(np.uint8)


def first_element(raw: Any, tensor: TensorDesc) -> Any:
    """The part of an allocation from element (0, ..., 0) on; strides may be negative."""
    before = sum(
        -stride * (size - 1)
        for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)
        if stride < 0
    )
    return raw[before * tensor.element.size :]


def run(device: CudaDevice, descriptor: Any, plan: Plan, rng: np.random.Generator) -> None:
    """Once, synchronously; outputs and the workspace are left uninitialised."""
    import cupy

    operands = []
    for name, tensor in tensors_of(descriptor, plan).items():
        raw = cupy.empty(tensor.span_bytes, np.uint8)
        if name not in plan.outputs:
            raw.set(contents(rng, name, tensor))
        operands.append(first_element(raw, tensor))
    workspace = cupy.empty(plan.temporary_bytes, np.uint8) if plan.temporary_bytes else None
    device.load(plan)(operands, workspace)
    cupy.cuda.get_current_stream().synchronize()


def main() -> None:
    """All operators, or those named on the command line."""
    parser = argparse.ArgumentParser(description="Run every kernel instance once on the GPU.")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="default: all")
    parser.add_argument("--max-mib", type=float, default=64, help="leave out larger descriptors")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after this long")
    options = parser.parse_args()
    import cupy

    cupy.cuda.set_allocator(None)  # each array its own cudaMalloc: a pool would hide accesses outside
    device = get_device()
    rng = np.random.default_rng(0)
    end = time.monotonic() + options.seconds
    for operator in options.operators or operators():
        count = 0
        for descriptor, plan in smallest(operator, device.limits, int(options.max_mib * 2**20)):
            if time.monotonic() > end:
                print(f"{operator}: no time for more")
                break
            run(device, descriptor, plan, rng)
            count += len(names_of(plan))
            print(f"{operator} {count}: {', '.join(sorted(names_of(plan)))}", flush=True)


if __name__ == "__main__":
    main()
