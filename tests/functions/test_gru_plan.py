"""`GruPlan`: the bits of `gru`, weights that it keeps until told, and calls that it was not planned for."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudml
from cudml.devices import Device, emulator, get_device
from tests.support import assert_identical, to_device, to_numpy
from tests.support.function_arrays import DIRECTIONS, LAYOUTS, layer, strided
from tests.support.over_stand_in import is_interpreted

WEIGHTS = ("w", "r", "b")


@pytest.fixture(params=[1, 32], autouse=True)
def lanes(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a CPU, both its own kernels, which take panels, and those of a GPU."""
    with emulator.schedule(warp_lanes=request.param):
        yield


def planned(device: Device, arrays: dict[str, np.ndarray], **options: Any) -> Any:
    """Plan a layer, require the bits of `gru` from it, and return the plan."""
    moved = {name: to_device(device, array) for name, array in arrays.items()}
    expected = cudml.gru(**moved, **options)
    weights = {name: moved.pop(name) for name in WEIGHTS if name in moved}
    plan = cudml.GruPlan(**weights, batch=moved["x"].shape[1], **options)
    moved["lengths"] = moved.pop("sequence_lengths", None)
    got = plan(**moved)
    assert isinstance(got, cudml.GruResult)
    assert_same(got, expected)
    assert_same(plan(**moved), expected)  # the planned call
    return plan


def assert_same(got: Any, expected: Any) -> None:
    for result, wanted in zip(got, expected, strict=True):
        assert_identical(to_numpy(result), to_numpy(wanted))


def random_arrays(rng: np.random.Generator, sizes: tuple[int, ...], d: int, dtype: Any) -> Any:
    t, n, i, h = sizes
    shapes = {"x": (t, n, i), "w": (d, 3 * h, i), "r": (d, 3 * h, h), "b": (d, 6 * h), "h0": (d, n, h)}
    return {name: rng.uniform(-0.5, 0.5, shape).astype(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_bits_are_those_of_gru(
    direction: Any, linear_before_reset: bool, dtype: Any, device: Device, rng: np.random.Generator
) -> None:
    planned(
        device, layer(rng, direction, dtype), direction=direction, linear_before_reset=linear_before_reset
    )


#: One step and many, with too few products to pay for panels and with enough; sums of several parts; whole
#: and partial tiles; sizes of 0.
SIZES = (
    (1, 1, 5, 7),
    (1, 3, 260, 33),
    (3, 2, 17, 64),
    (40, 2, 3, 65),
    (60, 1, 300, 270),
    (4, 3, 0, 5),
    (0, 3, 4, 5),
    (3, 0, 4, 5),
    (3, 2, 4, 0),
)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
def test_any_sizes(sizes: Any, linear_before_reset: bool, device: Device, rng: np.random.Generator) -> None:
    if is_interpreted(device):  # many steps of a large layer are more than it executes
        sizes = (min(sizes[0], 3), *sizes[1:])
    for dtype in (np.float32, np.float16):
        arrays = random_arrays(rng, sizes, 2, dtype)
        planned(device, arrays, direction="bidirectional", linear_before_reset=linear_before_reset)


def test_optional_arrays_and_options(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "reverse")
    for missing in ({"b"}, {"h0"}, {"sequence_lengths"}, {"b", "h0", "sequence_lengths"}):
        some = {name: array for name, array in arrays.items() if name not in missing}
        planned(device, some, direction="reverse", activations=["relu", "hardsigmoid"], clip=0.25)


@pytest.mark.parametrize("how", LAYOUTS[1:])
def test_arrays_of_any_strides(how: str, device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    expected = cudml.gru(**{name: to_device(device, a) for name, a in arrays.items()})
    moved = {name: strided(device, a, how) for name, a in arrays.items()}
    plan = cudml.GruPlan(moved["w"], moved["r"], moved["b"], batch=3)
    assert_same(plan(moved["x"], moved["h0"], moved["sequence_lengths"]), expected)


def test_weights_of_any_address(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    expected = cudml.gru(**arrays)
    moved = {}
    for name, array in arrays.items():
        memory = np.empty(array.nbytes + 1, np.uint8)
        moved[name] = memory[1:].view(array.dtype).reshape(array.shape)
        moved[name][...] = array
    plan = cudml.GruPlan(moved["w"], moved["r"], moved["b"], batch=3)
    assert_same(plan(moved["x"], moved["h0"], moved["sequence_lengths"]), expected)


def test_outputs_that_are_given(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    plan = planned(device, arrays)
    x, h0 = (to_device(device, arrays[name]) for name in ("x", "h0"))
    expected = plan(x, h0, 4)
    out = tuple(to_device(device, np.full(a.shape, 7, a.dtype)) for a in map(to_numpy, expected))
    got = plan(x, h0, [4, 4, 4], out=out)
    assert got.sequence is out[0]
    assert got.single is out[1]
    assert_same(out, expected)


def test_a_plan_keeps_its_weights_until_it_is_told(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    x, w, r, b = (to_device(device, arrays[name]) for name in ("x", *WEIGHTS))
    plan = cudml.GruPlan(w, r, b, batch=3)
    before = cudml.gru(x, w, r, b)
    for weights in (w, r, b):
        weights *= 2
    assert_same(plan(x), before)
    plan.update(w, r, b)
    assert_same(plan(x), cudml.gru(x, w, r, b))
    assert not np.array_equal(to_numpy(before.single), to_numpy(plan(x).single))


def test_weights_in_the_hosts_memory_are_moved(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    plan = cudml.GruPlan(*(arrays[name] for name in WEIGHTS), batch=3, device=device.name)
    moved = {name: to_device(device, array) for name, array in arrays.items()}
    expected = cudml.gru(**moved)
    assert_same(plan(moved["x"], moved["h0"], moved["sequence_lengths"]), expected)
    plan.update(*(arrays[name] for name in WEIGHTS))
    assert_same(plan(moved["x"], moved["h0"], moved["sequence_lengths"]), expected)


def test_kernels_for_a_gpu_on_a_cpu(rng: np.random.Generator) -> None:
    with emulator.schedule(warp_lanes=32):
        plan = planned(emulator.get_device(), layer(rng, "forward"))
    arrays = layer(rng, "forward")
    assert plan(arrays["x"]).sequence.shape == (5, 1, 3, 6)


def test_what_it_was_not_planned_for(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    x, w, r, b = (arrays[name] for name in ("x", *WEIGHTS))
    plan = cudml.GruPlan(w, r, b, batch=3)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (
            {"x": x[:, :2]},
            ValueError,
            r"GruPlan: x is of shape \(5, 2, 4\), must be \(T, N, I\) = \(T, 3, 4\), with N = 3 from the "
            r"plan, I = 4 from the plan$",
        ),
        ({"x": x[..., :3]}, ValueError, r"x is of shape \(5, 3, 3\), must be .*\(T, 3, 4\)"),
        ({"x": x[0]}, ValueError, r"x is of shape \(3, 4\), must be .*\(T, 3, 4\)"),
        (
            {"x": x.astype(np.float16)},
            TypeError,
            "x is of dtype float16, must be of float32, which the plan was made for$",
        ),
        ({"x": x, "h0": np.zeros((1, 2, 6), np.float32)}, ValueError, r"h0 is of shape \(1, 2, 6\)"),
        ({"x": x, "h0": np.zeros((1, 3, 6))}, TypeError, "h0 is of dtype float64, must be of float32, which"),
        ({"x": x, "lengths": np.ones(4, int)}, ValueError, r"lengths is of shape \(4,\), must be \(N,\)"),
        ({"x": x, "lengths": np.ones(3)}, TypeError, "lengths is of dtype float64"),
        ({"x": None}, TypeError, "x is a NoneType, must be a NumPy array"),
        ({"x": x, "out": (x, x)}, ValueError, r"out\[0\] is of shape"),
        ({"x": x, "out": x}, TypeError, "out is"),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            plan(**arguments)


def test_a_plan_for_any_number_of_sequences(device: Device, rng: np.random.Generator) -> None:
    weights = {name: to_device(device, array) for name, array in layer(rng, "forward").items()}
    w, r, b = (weights[name] for name in WEIGHTS)
    plan = cudml.GruPlan(w, r, b)
    assert plan.batch is None
    assert str(plan) == f"<GruPlan of float32 on {device.name}: D 1, N any, I 4, H 6>"
    for steps, batch in ((5, 3), (1, 1), (5, 7), (2, 0), (5, 3)):
        x, h0 = (
            to_device(device, rng.standard_normal(shape, np.float32))
            for shape in ((steps, batch, 4), (1, batch, 6))
        )
        assert_same(plan(x, h0), cudml.gru(x, w, r, b, h0))
    x = to_device(device, np.zeros((5, 3, 4), np.float32))
    with pytest.raises(
        ValueError, match=r"h0 is of shape \(1, 7, 6\), must be .* = \(1, 3, 6\), .* N = 3 from x"
    ):
        plan(x, to_device(device, np.zeros((1, 7, 6), np.float32)))
    with pytest.raises(ValueError, match=r"x is of shape \(3, 4\), must be \(T, N, I\) = \(T, N, 4\)"):
        plan(x[0])


def test_wrong_weights(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    w, r, b = (arrays[name] for name in WEIGHTS)
    wrong: list[tuple[tuple[Any, ...], Any, type[Exception], str]] = [
        ((w, r[:, :17], b), {}, ValueError, r"GruPlan: r is of shape \(1, 17, 6\), must be .* H = 6 from r"),
        ((w[0], r, b), {}, ValueError, r"w is of shape \(18, 4\), must be \(D, 3H, I\)$"),
        ((w, r, b), {"direction": "bidirectional"}, ValueError, "D = 2 from direction"),
        ((w, r, b), {"direction": "up"}, ValueError, "direction is 'up'"),
        ((w, r.astype(np.float16), b), {}, TypeError, "r is of dtype float16, must be of float32, as w"),
        ((w.astype(float),), {}, TypeError, "w is of dtype float64, must be of float"),
        ((w, r, b), {"batch": 2.5}, TypeError, "batch is 2.5, must be an integer"),
        ((w, r, b), {"batch": -1}, ValueError, "batch is -1, must be at least 0"),
        ((w, r, b), {"clip": 0}, ValueError, "GruPlan: clip is 0, must be a number above 0"),
        ((w, r, b), {"activations": ["Tanh"]}, ValueError, "activations is of length 1"),
        ((w, r, b), {"device": "gpu"}, ValueError, "GruPlan: device is 'gpu', must be"),
        ((w, r, b), {"device": 1}, TypeError, "GruPlan: device is an int, must be a string"),
        ((w, None), {}, TypeError, "r is a NoneType, must be a NumPy array"),
    ]
    for given, options, error, message in wrong:
        with pytest.raises(error, match=message):
            cudml.GruPlan(*(*given, r, b)[: max(2, len(given))], **{"batch": 3, **options})
    plan = cudml.GruPlan(w, r, b, batch=3)
    x = arrays["x"]
    before = plan(x)
    updates: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((w, r), TypeError, "b is None, must be an array, as when the plan was made"),
        ((w[..., :2], r, b), ValueError, r"w is of shape \(1, 18, 2\), must be of \(1, 18, 4\)"),
        ((w, r.astype(np.float16), b), TypeError, "r is of dtype float16"),
    ]
    for given, error, message in updates:
        with pytest.raises(error, match=message):
            plan.update(*given)
    assert_same(plan(x), before)
    with pytest.raises(TypeError, match="b is an array, must be None, as when the plan was made"):
        cudml.GruPlan(w, r, batch=3).update(w, r, b)


@pytest.mark.gpu
def test_another_device(rng: np.random.Generator) -> None:
    if not cudml.devices.cuda.status().usable:
        pytest.skip("no GPU")
    arrays = layer(rng, "forward")
    w, r, b = (arrays[name] for name in WEIGHTS)
    plan = cudml.GruPlan(w, r, b, batch=3)
    x = to_device(get_device("cuda"), arrays["x"])
    with pytest.raises(TypeError, match="GruPlan: x is on cuda:0, must be on cpu, which the plan is for"):
        plan(x)
    moved = cudml.GruPlan(w, r, b, batch=3, device="cuda")
    with pytest.raises(TypeError, match="GruPlan: x is on cpu, must be on cuda:0, which the plan is for"):
        moved(arrays["x"])
    with pytest.raises(TypeError, match="GruPlan: w is on cuda:0, must be on cpu, which the plan is for"):
        cudml.GruPlan(*(to_device(get_device("cuda"), a) for a in (w, r, b)), batch=3, device="cpu")
