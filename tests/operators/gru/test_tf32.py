"""Products of float32 by TF32: where they are allowed, what they change, and how far results are off."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudml
from cudml.devices import Device, emulator
from cudml.enums import DataType, ExecutionFlags
from cudml.operators.gru.operator import GruDesc, layer_of, plan
from cudml.operators.gru.paths import PATHS, estimated_clocks
from cudml.plans import Limits, MatMul
from proof.oracle.gru import as_tf32
from tests.operators.gru.test_descriptor import LIMITS, gru_of
from tests.support import assert_identical
from tests.support.gru_runs import (
    BIDIRECTIONAL,
    FORWARD,
    Options,
    assert_as_precise_as_numpy,
    error,
    random_layer,
    run_gru,
    stack,
)
from tests.support.kernel_cases import gru_stack
from tests.support.observed_cases import LARGE

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
NONE, ALLOWED = ExecutionFlags.NONE, ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION
OTHER_FLAGS = ExecutionFlags.DISABLE_META_COMMANDS | ExecutionFlags.DESCRIPTORS_VOLATILE
CPU = replace(LIMITS, warp_lanes=1)

both_orders = pytest.mark.parametrize("linear_before_reset", [True, False], ids=["after", "before"])


def products_of(desc: GruDesc, limits: Limits, **options: Any) -> list[bool]:
    """Whether TF32 is allowed, for each product of a plan by the library."""
    steps = plan(desc, limits, **options).steps
    return [step.allows_tf32 for step in steps if isinstance(step, MatMul)]


@pytest.mark.parametrize("path", [path for path in PATHS if path not in ("matrix_grid", "step")])
def test_without_the_flag_no_plan_changes(path: str) -> None:
    desc = gru_of(3, 70, 40)
    if path == "rounded_products":
        with pytest.raises(ValueError, match="'rounded_products' cannot compute"):
            plan(desc, LIMITS, path=path)
        return
    limits = CPU if path in ("serial", "panels") else LIMITS
    expected = plan(desc, limits, path=path)
    for flags in (NONE, OTHER_FLAGS):
        assert plan(desc, limits, flags=flags, path=path) == expected
    assert not any(products_of(desc, limits, path=path))


@pytest.mark.parametrize(
    ("desc", "limits"),
    [
        (gru_of(256, 128, 1024, data_type=F16), LIMITS),
        (gru_of(256, 128, 1024), replace(LIMITS, compute_capability=75)),
        (gru_of(256, 128, 1024), CPU),
        (gru_of(1, 1, 64), LIMITS),
    ],
    ids=["float16", "no TF32", "CPU", "one step"],
)
def test_the_flag_has_no_effect(desc: GruDesc, limits: Limits) -> None:
    assert plan(desc, limits, flags=ALLOWED) == plan(desc, limits)


def test_the_flag_reaches_products_and_recurrence() -> None:
    def path(batch: int, hidden: int, capability: int = 90, num_steps: int = 256) -> str:
        limits = replace(LIMITS, compute_capability=capability)
        desc = gru_of(num_steps, batch, hidden)
        assert all(products_of(desc, limits, flags=ALLOWED))
        return plan(desc, limits, flags=ALLOWED).steps[-1].function

    assert path(128, 1024) == path(128, 1024, 80) == path(512, 512) == "gru_rounded_products"
    assert path(128, 2048) == path(128, 1024, 89) == "gru_products"
    assert path(8, 1024) == "gru_grid"


@both_orders
@pytest.mark.parametrize("directions", [1, 2])
def test_rounded_products_repeat_the_same_objects(directions: int, linear_before_reset: bool) -> None:
    desc = replace(gru_of(5000, 2, 8, directions), linear_before_reset=linear_before_reset)
    steps = plan(desc, LIMITS, flags=ALLOWED, path="rounded_products").steps
    launches = 1 if linear_before_reset else 2
    assert len({id(step) for step in steps}) == 2 + launches
    assert len(steps) == 2 + 5000 * launches


def test_layers_at_once_round_the_first_input() -> None:
    layers = gru_stack(2, 8, 3, 5, 256)
    found = [plan(layers, LARGE, flags=flags, path="wave") for flags in (NONE, ALLOWED)]
    products = [step for one in found for step in one.steps if isinstance(step, MatMul)]
    assert [step.allows_tf32 for step in products] == [False, True]


def test_estimates_of_other_paths_are_as_without_the_flag() -> None:
    desc = gru_of(256, 128, 1024)
    before, after = (estimated_clocks(layer_of(desc, flags=flags), LIMITS) for flags in (NONE, ALLOWED))
    assert after.pop("rounded_products") < min(before.values())
    assert {name for name in before if before[name] != after[name]} == {"products"}


@pytest.mark.parametrize("path", ["products", "grid", "block"])
@both_orders
def test_results_where_a_library_rounds(
    device: Device, rng: np.random.Generator, path: str, linear_before_reset: bool
) -> None:
    """Paths that are for any layer, with ragged lengths in both directions."""
    options = Options(BIDIRECTIONAL, linear_before_reset)
    arrays = random_layer(rng, (4, 5, 30, 40), options, lengths=[4, 2, 0, 9, 1])
    exact = run_gru(device, arrays, options, path=path)
    allowed = replace(arrays, allows_tf32=True)
    got = run_gru(device, allowed, options, path=path)
    assert_as_precise_as_numpy(got, allowed, options)
    assert not np.array_equal(got["sequence"], exact["sequence"])


@pytest.mark.parametrize("path", ["products", "rounded_products"])
@both_orders
def test_operands_are_rounded_to_nearest(
    device: Device, rng: np.random.Generator, path: str, linear_before_reset: bool
) -> None:
    """Cut-off operands would be off by twice as much, and always in one direction."""
    options = Options(FORWARD, linear_before_reset)
    drawn = random_layer(rng, (1, 40, 20, 200), options)
    arrays = replace(
        drawn, x=abs(drawn.x), w=abs(drawn.w), r=abs(drawn.r), h0=abs(drawn.h0), allows_tf32=True
    )
    exact = stack([arrays], options)["sequence"]
    got = run_gru(device, arrays, options, path=path)["sequence"]

    def cut(values: np.ndarray) -> np.ndarray:
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    cut_off = {name: cut(getattr(arrays, name)) for name in ("x", "w", "r")}
    worse = stack([replace(arrays, **cut_off)], options)["sequence"]
    assert 0 < error(got, exact) < error(worse, exact) / 2


@pytest.mark.parametrize("path", ["products", "rounded_products"])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF802000])
def test_every_nan_stays_nan(device: Device, rng: np.random.Generator, path: str, bits: int) -> None:
    """The bits of some would become those of a number if they were rounded like those of numbers."""
    options = Options(FORWARD)
    arrays = random_layer(rng, (2, 3, 4, 40), options)
    (nan,) = np.array([bits], np.uint32).view(np.float32)
    r, h0 = arrays.r.copy(), arrays.h0.copy()
    r.view(np.uint32)[0, 7, 3] = bits
    h0.view(np.uint32)[0, 1, 5] = bits
    assert np.isnan(nan)
    got = run_gru(device, replace(arrays, r=r, allows_tf32=True), options, path=path)["sequence"]
    assert np.isnan(got[:, :, :, 7]).all()
    got = run_gru(device, replace(arrays, h0=h0, allows_tf32=True), options, path=path)["sequence"]
    assert np.isnan(got[:, :, 1]).all()
    assert np.isfinite(got[:, :, [0, 2]]).all()


def test_the_library_rounds_only_float32(rng: np.random.Generator) -> None:
    cpu = emulator.get_device()
    for element in ("float32", "float16"):
        a, b = (rng.standard_normal((rows, 300)).astype(element) for rows in (70, 50))
        results = []
        for allows_tf32 in (False, True):
            out = np.empty((70, 50), np.float32)
            step = MatMul("a", "b", "out", 70, 50, 300, element, allows_tf32=allows_tf32)
            cpu.load(cudml.plans.Plan("GRU", ("a", "b", "out"), (step,), outputs=("out",)))([a, b, out], None)
            results.append(out)
        if element == "float16":
            assert_identical(*results)
            continue
        rounded = as_tf32(a).astype(np.float64) @ as_tf32(b).astype(np.float64).T
        np.testing.assert_allclose(results[1], rounded, atol=300 * 2.0**-24 * abs(rounded).max())
        assert not np.array_equal(*results)
        assert "float32 as TF32" in str(step)


@pytest.fixture
def allowed_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[bool]]]:
    """Returns whether each product may round, of the plans that were loaded since it was last called."""
    cpu, found = emulator.get_device(), list[bool]()
    load = type(cpu).load

    def noted(self: Any, made: Any) -> Any:
        found.extend(step.allows_tf32 for step in made.steps if isinstance(step, MatMul))
        return load(self, made)

    def taken() -> list[bool]:
        answer = [*found]
        found.clear()
        return answer

    monkeypatch.setattr(type(cpu), "load", noted)
    with emulator.schedule(warp_lanes=32):
        yield taken


def arrays_of(rng: np.random.Generator, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    layer = random_layer(rng, (int(rng.integers(1000, 2000)), 1, 3, 4), Options(FORWARD), dtype=dtype)
    return {name: getattr(layer, name) for name in ("x", "w", "r", "b")}


@pytest.mark.parametrize("allow_tf32", [False, True])
def test_each_function_tells_the_plan(
    rng: np.random.Generator, allowed_products: Callable[[], list[bool]], allow_tf32: bool
) -> None:
    arrays = arrays_of(rng)
    x, w, r, b = arrays.values()
    cudml.gru(**arrays, allow_tf32=allow_tf32)
    assert allowed_products() == [allow_tf32]
    cudml.GruPlan(w, r, b, allow_tf32=allow_tf32)(x)
    assert allowed_products() == [allow_tf32]
    cudml.gru_stack(x, [(w, r, b), (r, r, b)], allow_tf32=allow_tf32)
    assert {*allowed_products()} == {allow_tf32}


def test_calls_with_and_without_are_planned_apart(
    rng: np.random.Generator, allowed_products: Callable[[], list[bool]]
) -> None:
    arrays = arrays_of(rng)
    for allow_tf32 in (False, True, False, True):
        cudml.gru(**arrays, allow_tf32=allow_tf32)
    assert allowed_products() == [False, True]


@pytest.mark.parametrize("flags", [NONE, OTHER_FLAGS, ALLOWED, ALLOWED | OTHER_FLAGS])
def test_the_execution_flag_tells_the_plan(
    flags: ExecutionFlags, allowed_products: Callable[[], list[bool]]
) -> None:
    cudml.compile_operator(gru_of(2, 3, 4), device="cpu", flags=flags)
    assert allowed_products() == [ALLOWED in flags]


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_layer_of_torch_tells_the_plan(
    num_layers: int, rng: np.random.Generator, allowed_products: Callable[[], list[bool]]
) -> None:
    torch = pytest.importorskip("torch")
    from cudml.torch import GRU

    x = torch.from_numpy(arrays_of(rng)["x"])
    layer = GRU(3, 4, num_layers, allow_tf32=True).requires_grad_(False)
    for allow_tf32 in (True, False):
        layer.allow_tf32 = allow_tf32
        assert ("allow_tf32=True" in repr(layer)) == allow_tf32
        traced = torch.jit.trace(layer, (x,), check_trace=False)  # a call of the operator
        allowed_products()
        traced(x[:-1])
        assert {*allowed_products()} == {allow_tf32}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_other_types_are_accepted(rng: np.random.Generator, dtype: Any) -> None:
    arrays = arrays_of(rng, dtype)
    for got, expected in zip(cudml.gru(**arrays, allow_tf32=True), cudml.gru(**arrays), strict=True):
        assert_identical(got, expected)


@pytest.mark.parametrize("value", ["yes", None, 1.0])
def test_other_values_are_refused(rng: np.random.Generator, value: Any) -> None:
    arrays = arrays_of(rng)
    with pytest.raises(TypeError, match=r"allow_tf32 is .*, must be True or False"):
        cudml.gru(**arrays, allow_tf32=value)
    with pytest.raises(TypeError, match=r"GruPlan: allow_tf32 is .*, must be True or False"):
        cudml.GruPlan(arrays["w"], arrays["r"], allow_tf32=value)
