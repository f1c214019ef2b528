"""Waits between blocks whose partners never come: every kernel that waits gives up, ends, and says where."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from cudml.devices import Device, emulator, sources
from cudml.devices.emulator.device import LIMITS
from cudml.enums import AxisDirection, DataType
from cudml.errors import KernelError
from cudml.operators.top_k import operator as top_k
from cudml.plans import WAIT_REPORT, KernelLaunch, Plan
from cudml.tensors import TensorDesc
from tests.support.gru_runs import FORWARD, Options, random_layer, run_gru
from tests.support.kernel_cases import Case, gru_stack, operands_of

GPU = replace(LIMITS, warp_lanes=32)


#: A function that changes the plan of a kernel that waits, and runs the kernel.
Run = Callable[[np.random.Generator, Callable[[Plan], Plan]], Any]


def unchanged(plan: Plan) -> Plan:
    return plan


def run_layer(path: str, linear_before_reset: bool, rng: np.random.Generator, change: Any) -> Any:
    """A layer whose hidden units are shared by two blocks and more."""
    options = Options(FORWARD, linear_before_reset)
    arrays = random_layer(rng, (5, 2, 3, 70), options, lengths=[5, 4], path=path)
    run_gru(emulator.get_device(), arrays, options, path=path, change=change)


def run_step(rng: np.random.Generator, change: Any) -> None:
    """A step of several tasks. Counters in the temporary resource start as if one first half were missing."""
    options = Options(FORWARD, linear_before_reset=False)
    arrays = random_layer(rng, (1, 2, 3, 70), options, path="step")
    made: list[np.ndarray] = []

    def workspace(device: Device, plan: Plan) -> np.ndarray:
        made.append(np.zeros(plan.temporary_bytes, np.uint8))
        counts_of_step(made[0], plan)[1:2] = -1
        return made[0]

    plans: list[Plan] = []

    def changed(plan: Plan) -> Plan:
        plans.append(change(plan))
        return plans[0]

    try:
        run_gru(emulator.get_device(), arrays, options, path="step", change=changed, workspace=workspace)
    finally:
        # The counters are zero after the launch, even if it gave up: the stream's next launch uses them.
        assert not counts_of_step(made[0], plans[0]).any()


def counts_of_step(temporary: np.ndarray, plan: Plan) -> np.ndarray:
    """`StepCounts` in the temporary resource: taken, done, left; nothing if the device has them."""
    first = plan.offsets().get("counts")
    return np.empty(0, np.int32) if first is None else temporary[first : first + 12].view(np.int32)


def run_wave(rng: np.random.Generator, change: Any) -> None:
    """Two layers, whose hidden units are shared by two blocks each."""
    case = Case(gru_stack(2, 5, 2, 3, 20), limits=replace(GPU, num_multiprocessors=4), length=5)
    operands, chosen = operands_of(case, rng), change(case.plan())
    program = emulator.get_device().load(chosen)
    program([operands[name] for name in chosen.operands], np.zeros(chosen.temporary_bytes, np.uint8))


def run_top_k(k: int, rng: np.random.Generator, change: Any) -> None:
    sizes, results = (1, 1, 1, 70_000), (1, 1, 1, k)
    desc = top_k.TopK1Desc(
        TensorDesc(DataType.FLOAT32, sizes),
        TensorDesc(DataType.FLOAT32, results),
        TensorDesc(DataType.UINT32, results),
        axis=3,
        k=k,
        axis_direction=AxisDirection.DECREASING,
    )
    plan = change(top_k.plan(desc, GPU, path="grid_radix"))
    arrays = [rng.standard_normal(sizes, np.float32), np.empty(results, np.float32)]
    program = emulator.get_device().load(plan)
    program([*arrays, np.empty(results, np.uint32)], np.zeros(plan.temporary_bytes, np.uint8))


RUNS: dict[str, Run] = {
    "gru_grid": partial(run_layer, "grid", True),
    "gru_grid, two exchanges a step": partial(run_layer, "grid", False),
    "gru_matrix_grid": partial(run_layer, "matrix_grid", True),
    "gru_step": run_step,
    "gru_wave": run_wave,
    "top_k_grid_radix": partial(run_top_k, 20),
    "top_k_grid_radix, sorted by radix": partial(run_top_k, 9000),
}


WAITED_FOR = {
    "top_k_grid_radix": "the other blocks of the row",
    "gru_step": "the reset states of other blocks",
    "gru_wave": "the states of a layer and of the one below",
}


def without_partner(plan: Plan) -> Plan:
    """The plan with a grid that lacks one block, for which the other blocks wait.

    If blocks take tickets, any number of blocks does all the work, so the counters do not start at zero.
    """

    def shortened(step: Any) -> Any:
        if not isinstance(step, KernelLaunch) or not step.cooperative:
            return step
        assert step.grid[0] > 1
        return step._replace(grid=(step.grid[0] - 1, 1, 1))

    return plan._replace(
        steps=tuple(shortened(step) for step in plan.steps),
        workspaces=tuple(replace(piece, is_left_zero=False) for piece in plan.workspaces),
    )


@pytest.mark.parametrize("order", ["fast", "random"])
@pytest.mark.parametrize("name", RUNS)
def test_kernel_whose_partner_never_comes_gives_up(
    name: str, order: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_WAIT_LIMIT", "0.2")
    with emulator.schedule(order=order):
        with pytest.raises(KernelError) as caught:
            RUNS[name](rng, without_partner)
        (report,) = caught.value.reports
        function = name.partition(",")[0]
        what = WAITED_FOR.get(function, "the states that other blocks send")
        expected = rf"\.cu {function}<.*>: block \d+ of \d+ waited 0\.2 s \(CUDML_WAIT_LIMIT\) for {what} and"
        assert re.search(expected, report)
        # The next call is not affected by it.
        RUNS[name](rng, unchanged)


def test_every_wait_of_the_kernels_is_bounded() -> None:
    """Only `common/wait.cuh` polls."""
    polls = re.compile(r"\bgive_way\(|\bwhile\b[^;]*\bload_(acquire|relaxed)\(|__nanosleep\(")
    root = sources.kernel_root()
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.cu*")
        if polls.search(re.sub(r"//.*", "", path.read_text()))
    }
    assert found == {"common/wait.cuh", "common/intrinsics.cuh"}


@pytest.mark.parametrize("name", RUNS)
def test_launch_that_waits_has_a_report(name: str, rng: np.random.Generator) -> None:
    plans: list[Plan] = []

    def keep(plan: Plan) -> Plan:
        plans.append(plan)
        return plan

    RUNS[name](rng, keep)
    launches = [step for step in plans[0].steps if isinstance(step, KernelLaunch)]
    assert any(launch.waits for launch in launches)
    for launch in launches:
        assert bool(launch.waits) == (WAIT_REPORT in launch.buffers)
        # Any number of blocks of `gru_step` may run at once: a block waits only for lower tickets.
        assert bool(launch.waits) == (launch.cooperative or launch.function == "gru_step")


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_an_invalid_limit_is_refused(
    text: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_WAIT_LIMIT", text)
    with pytest.raises(ValueError, match=r"CUDML_WAIT_LIMIT is '.*', must be a positive number of seconds"):
        RUNS["gru_grid"](rng, unchanged)
