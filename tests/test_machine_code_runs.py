"""The machine code of every kernel instance for sm_90, run: what it writes, and that it writes nothing else.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install 'cudml[nvrtc]'`.
"""

import importlib
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from cudml.operators.gru import GruDesc
from cudml.plans import KernelLaunch, Plan
from cudml.tensors import TensorDesc
from tests.gru_runs import error
from tests.instances import batches, operators
from tests.kernel_cases import Case, operands_of
from tests.machine_code.compiler import unavailable
from tests.machine_code.expected import expected, gru
from tests.machine_code.sass.launch import Buffer
from tests.machine_code.sass.plan import HOPPER, memory_of, run_launch, run_plan
from tests.test_sanitized import CASES

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Of a launch with more blocks than this, as many are run.
MAX_BLOCKS = 4

ON_A_GPU = {name: case for name, case in CASES.items() if case.limits.warp_lanes == 32}


@pytest.mark.parametrize("case", ON_A_GPU.values(), ids=ON_A_GPU)
def test_small_cases_whole(case: Case, rng: np.random.Generator) -> None:
    operands = operands_of(case, rng)
    plan = case.plan()
    buffers = run_plan(plan, {name: memory_of(operands[name]) for name in plan.operands})
    check_outputs(case.descriptor, plan, operands, buffers)
    for name in plan.outputs:
        written = buffers[name].written
        assert written is not None
        covered = np.zeros_like(written)
        shape, strides = operands[name].shape, operands[name].strides
        item = operands[name].itemsize
        np.lib.stride_tricks.as_strided(covered[:1], (*shape, item), (*strides, 1))[...] = 1
        np.testing.assert_array_equal(written, covered, err_msg=f"{name}: not each byte once, or a gap")


@cache
def smallest_plans() -> dict[tuple[str, str], tuple[Any, Plan]]:
    """For each instance on an H100 the descriptor of the least memory whose plan has it, and the plan."""
    found: dict[tuple[str, str], tuple[int, Any, Plan]] = {}
    for operator, module in operators().items():
        plan_of = importlib.import_module(f"cudml.operators.{operator}").plan
        for desc in module.descriptors():
            plan = plan_of(desc, HOPPER.limits)
            size = sum(getattr(desc, name).span_bytes for name in plan.operands)
            for launch in launches_of(plan):
                key = (launch.source, launch.name_expression)
                if key not in found or size < found[key][0]:
                    found[key] = (size, desc, plan)
    return {key: (desc, plan) for key, (_, desc, plan) in found.items()}


def launches_of(plan: Plan) -> Iterator[KernelLaunch]:
    yield from (step for step in plan.steps if isinstance(step, KernelLaunch))


_BATCHES = [pytest.param(batch, id=batch[0].name_expression) for batch in batches(HOPPER.limits)]


@pytest.mark.parametrize("batch", _BATCHES)
def test_instances(batch: list[KernelLaunch], rng: np.random.Generator) -> None:
    """Whole plans where blocks wait for each other, else the first, the last and other blocks of a launch."""
    for instance in batch:
        desc, plan = smallest_plans()[instance.source, instance.name_expression]
        case = Case(desc, limits=HOPPER.limits, content="any")
        operands = operands_of(case, rng)
        memory = {name: memory_of(operands[name]) for name in plan.operands}
        if len(plan.steps) > 1:
            buffers = run_plan(plan, memory)
            check_outputs(desc, plan, operands, buffers)
            continue
        (launch,) = launches_of(plan)
        buffers = {name: Buffer(memory[name], is_output=name in plan.outputs) for name in plan.operands}
        count = math.prod(launch.grid)
        chosen = {0, count - 1, *rng.integers(0, count, MAX_BLOCKS - 2).tolist()}
        run_launch(launch, buffers, blocks=sorted(chosen))
        check_outputs(desc, plan, operands, buffers, is_whole=len(chosen) == count)


def check_outputs(
    desc: Any,
    plan: Plan,
    operands: dict[str, np.ndarray],
    buffers: dict[str, Buffer],
    *,
    is_whole: bool = True,
) -> None:
    """What was written is what was expected; of a launch run in part, where something was written."""
    typed = {name: _typed(getattr(desc, name), operands[name]) for name in plan.operands}
    inputs = {name: typed[name] for name in plan.operands if name not in plan.outputs}
    exact = expected(desc, inputs)
    for name in plan.outputs:
        got, want = typed[name], exact[name].reshape(typed[name].shape)
        written = buffers[name].written
        assert written is not None
        assert written.max() == 1, f"{name}: a byte is written {written.max()} times"
        if isinstance(desc, GruDesc):
            low = gru(desc, inputs, np.float32)[name].reshape(got.shape).astype(got.dtype)
            assert error(got, want) <= 2 * error(low, want), name
            continue
        places = np.lib.stride_tricks.as_strided(written[:1], (*got.shape, got.itemsize), (*got.strides, 1))
        is_written = places.all(axis=-1)
        assert is_whole <= bool(is_written.all()), f"{name}: elements are left out"
        assert is_written.any(), name
        differs = bits(got[is_written]) != bits(want[is_written].astype(got.dtype, copy=False))
        assert not differs.any(), f"{name}: {np.count_nonzero(differs)} bytes differ"


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def _typed(tensor: TensorDesc, array: np.ndarray) -> np.ndarray:
    """Items of bytes as numbers, where NumPy has such."""
    name = tensor.element.numpy_name
    return array if array.dtype.itemsize > 8 else array.view(name)
