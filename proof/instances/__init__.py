"""Every kernel instance that a plan can choose, for the proofs that need no GPU.

One module for each operator, named as in `cudml/operators/`. It has `descriptors()`, whose plans reach
every instance of the operator's kernels on every architecture, and `any_descriptor(rng)`, which gives
random ones, so that an instance missing from the former is found. It may have `PROMISES`, by function name:
properties that the machine code of a kernel has on every architecture. It may also have
`plans(descriptor, limits)`, if a descriptor has the plans of several paths, or none on some devices.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.operators.gru.operator import StackDesc
from cudml.operators.path import Path
from cudml.plans import WARP_LANES, KernelLaunch, Limits, Plan


@dataclass(frozen=True)
class Promise:
    """Properties of every instance of a kernel on every architecture.

    `wide_loads`, `wide_stores`: global accesses of 16 bytes. `matrix`: matrix instructions.
    `max_registers`: the most registers a thread takes, None for as many as the compiler likes.
    `min_warps`: the fewest warps that a multiprocessor holds. `min_flight_kib`: the fewest KiB that the loads
    of all these warps have in flight, on the way through the kernel with the most loads. A copy at the speed
    of the memory needs 48 on an H200 and 16 on an A100 (NVIDIA's CCCL,
    `cub/device/dispatch/tuning/tuning_transform.cuh`).
    """

    wide_loads: bool = False
    wide_stores: bool = False
    matrix: bool = False
    max_registers: int | None = None
    min_warps: int = 1
    min_flight_kib: int = 0


def operators() -> dict[str, Any]:
    """The modules of this folder by operator."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def promise_of(launch: KernelLaunch) -> Promise:
    """What the kernel promises; an empty promise if its operator has none for it."""
    promises: dict[str, Promise] = {}
    for module in operators().values():
        promises |= getattr(module, "PROMISES", {})
    return promises.get(launch.function, Promise())


def tensors_by_member(descriptor: Any) -> Mapping[str, Any]:
    """The members of a descriptor; for a stack of GRU layers, its tensors, including those of every layer."""
    return dict(descriptor.tensors) if isinstance(descriptor, StackDesc) else vars(descriptor)


def planned_launches(limits: Limits) -> Iterator[KernelLaunch]:
    """Every launch of every descriptor's plans on a device of these limits."""
    for name, module in operators().items():
        plans = _plans_of(name, module)
        for descriptor in module.descriptors():
            yield from _launches(plans(descriptor, limits))


def random_launches(operator: str, limits: Limits, rng: np.random.Generator) -> Iterator[KernelLaunch]:
    """Launches of random descriptors of an operator, without end."""
    module = operators()[operator]
    plans = _plans_of(operator, module)
    while True:
        yield from _launches(plans(module.any_descriptor(rng), limits))


def _plans_of(operator: str, module: Any) -> Callable[[Any, Limits], Iterable[Plan]]:
    plan = importlib.import_module(f"cudml.operators.{operator}.operator").plan
    return getattr(module, "plans", lambda descriptor, limits: [plan(descriptor, limits)])


def by_every_path(
    planned: Callable[[str | None], Plan], paths: Mapping[str, Path[Any]], problem: Any, limits: Limits
) -> Iterator[Plan]:
    """The plans by every path of a GPU that can compute a problem; on a CPU, by the chosen one.

    So the choice of paths does not change the instances.
    """
    if limits.warp_lanes != WARP_LANES:
        yield planned(None)
        return
    for name, path in paths.items():
        if not name.startswith("serial") and path.can_do(problem, limits):
            yield planned(name)


def _launches(plans: Iterable[Plan]) -> Iterator[KernelLaunch]:
    return (step for plan in plans for step in plan.steps if isinstance(step, KernelLaunch))


def random_size(rng: np.random.Generator, largest: int) -> int:
    """1 to `largest`, small ones as likely as large ones, often a power of two or a neighbour of one."""
    size = int(np.exp(rng.uniform(0, np.log(largest + 1))))
    if rng.random() < 0.5:
        size = (1 << size.bit_length()) + int(rng.integers(-1, 2))
    return min(max(size, 1), largest)


@functools.cache
def instances(limits: Limits) -> tuple[KernelLaunch, ...]:
    """One launch for each kernel instance, the one with the most shared storage, ordered by name."""
    chosen: dict[tuple[str, str], KernelLaunch] = {}
    for launch in planned_launches(limits):
        key = (launch.source, launch.name_expression)
        if key not in chosen or launch.shared_bytes > chosen[key].shared_bytes:
            chosen[key] = launch
    return tuple(chosen[key] for key in sorted(chosen))


def batches(limits: Limits, size: int = 6) -> list[list[KernelLaunch]]:
    """The instances in lists of one source and at most `size` each, to be compiled together."""
    found: list[list[KernelLaunch]] = []
    for launch in instances(limits):
        if not found or found[-1][0].source != launch.source or len(found[-1]) == size:
            found.append([])
        found[-1].append(launch)
    return found
