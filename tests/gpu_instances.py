"""Run every kernel instance once on the GPU, for a checker that watches the machine code:

    compute-sanitizer --tool memcheck --error-exitcode 1 python -m tests.gpu_instances

Of the descriptors in `proof/instances/` it takes the smallest that reaches each instance. Every
operand and every workspace is an allocation of its own, no byte larger than it must be, so that an access
outside is seen; results are the business of the other tests.
`racecheck`, `synccheck` and `initcheck` work as well. With `--journal FILE` the same command goes on after
one that was stopped or failed: an instance that ended the process is not run again. `--build` runs nothing,
and leaves every instance in CuPy's cache.
"""

import argparse
import csv
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cudml.devices.cuda import CudaDevice, get_device
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc
from proof.instances import operators, tensors_by_member

#: Lengths are drawn up to here: most of them within the axes of the small descriptors, some beyond.
MAX_LENGTH = 1000

#: The state of a plan that was interrupted from outside.
STOPPED = "stopped"


def names_of(plan: Plan) -> set[str]:
    """The kernel instances of a plan."""
    return {f"{step.source} {step.name_expression}" for step in plan.steps if isinstance(step, KernelLaunch)}


def tensors_of(descriptor: Any, plan: Plan) -> dict[str, TensorDesc]:
    """The bound tensors by member name."""
    tensors = tensors_by_member(descriptor)
    return {name: tensors[name] for name in plan.operands}


def smallest(operator: str, limits: Limits, max_bytes: int) -> Iterator[tuple[Any, Plan]]:
    """Descriptors, smallest first, that each reach an instance that no earlier one has reached."""
    plan_of = importlib.import_module(f"cudml.operators.{operator}.operator").plan
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
    """Run the plan once, synchronously; outputs and the workspace are left uninitialised."""
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


def in_turns(operators_chosen: Sequence[str], limits: Limits, max_bytes: int) -> list[tuple[Any, Plan]]:
    """The smallest descriptors of each operator, in turn: if time ends early, each has had some."""
    of_each = [list(smallest(operator, limits, max_bytes)) for operator in operators_chosen]
    return [pair for pair in chain(*zip_longest(*of_each)) if pair is not None]


class Journal:
    """A CSV file of plans, by the names of their kernels: begun, and then ran or failed, with the error.

    A plan that was only begun ended the process; a stopped plan is run again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.states: dict[str, str] = {}
        if path is not None and path.exists():
            with path.open(newline="") as file:
                self.states = {row["kernels"]: row["state"] for row in csv.DictReader(file)}
        elif path is not None:
            path.write_text("kernels,state,error\n")

    def note(self, kernels: str, state: str, error: str = "") -> None:
        """Write the state at once, because the process may end."""
        self.states[kernels] = state
        if self._path is not None:
            with self._path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow((kernels, state, error))

    @property
    def problems(self) -> list[str]:
        """Every plan that did not run to its end, because of an error."""
        return [f"{name}: {state}" for name, state in self.states.items() if state not in ("ran", STOPPED)]


def build(device: CudaDevice, plans: Sequence[Plan]) -> None:
    """Compile and load every kernel, many at a time: the compiler works without Python's lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(device.load, plans))


def main() -> int:
    """All operators, or those named on the command line; return 1 if an instance failed."""
    parser = argparse.ArgumentParser(description="Run every kernel instance once on the GPU.")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="default: all")
    parser.add_argument("--max-mib", type=float, default=64, help="leave out larger descriptors")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after this long")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="note what ran, leave out what is noted")
    parser.add_argument("--build", action="store_true", help="compile and load alone")
    options = parser.parse_args()
    import cupy

    device = get_device()
    chosen = options.operators or [*operators()]
    begun = time.monotonic()
    plans = in_turns(chosen, device.limits, int(options.max_mib * 2**20))
    if options.build:
        build(device, [plan for _, plan in plans])
        print(f"{len(set().union(*(names_of(plan) for _, plan in plans)))} instances are built")
        return 0
    cupy.cuda.set_allocator(None)  # each array its own cudaMalloc: a pool would hide accesses outside
    rng = np.random.default_rng(0)
    journal = Journal(options.journal)
    for number, (descriptor, plan) in enumerate(plans, 1):
        kernels = "; ".join(sorted(names_of(plan)))
        if journal.states.get(kernels, STOPPED) != STOPPED:
            continue
        if time.monotonic() - begun > options.seconds:
            print("no time for more")
            break
        journal.note(kernels, "begun")
        print(f"{number} of {len(plans)}: {kernels}", flush=True)
        try:
            run(device, descriptor, plan, rng)
        except KeyboardInterrupt:
            journal.note(kernels, STOPPED)
            raise
        except Exception as error:  # the GPU may be lost to this process: another one goes on
            journal.note(kernels, "failed", str(error))
            raise
        journal.note(kernels, "ran")
    print(f"{len(plans)} plans, {len(journal.problems)} did not run to their end")
    print("\n".join(journal.problems), file=sys.stderr)
    return 1 if journal.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
