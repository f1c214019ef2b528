"""`gru_stack`: layers one after the other and all at once, each option, and refused layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudml
from cudml import Activation
from cudml.devices import Device, LaunchTooLargeError, emulator, get_device
from cudml.functions.gru import _gru
from cudml.functions.gru_stack import _gru_stack
from cudml.operators.gru.operator import plan, stack_of
from cudml.operators.gru.wave import takes_wave, wave_shape
from cudml.plans import KernelLaunch
from proof.oracle.gru import Weights
from proof.sass.plan import HOPPER
from tests.support import assert_identical, to_device, to_numpy
from tests.support.function_arrays import DIRECTIONS, LAYOUTS, strided
from tests.support.gru_runs import Options, assert_as_precise_as_numpy
from tests.support.kernel_cases import gru_stack as descriptor

#: An H200.
LARGE = HOPPER.limits


def stack(
    rng: np.random.Generator,
    num_layers: int = 3,
    direction: str = "forward",
    dtype: Any = np.float32,
    sizes: tuple[int, int, int, int] = (5, 3, 4, 6),
) -> dict[str, Any]:
    """The arguments for layers of T 5, N 3, I 4 and H 6, the second without a bias."""
    t, n, i, h = sizes
    d = 2 if direction == "bidirectional" else 1

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, shape).astype(dtype)

    layers = [
        (
            array(d, 3 * h, d * h if number else i),
            array(d, 3 * h, h),
            None if number == 1 else array(d, 6 * h),
        )
        for number in range(num_layers)
    ]
    lengths = rng.integers(0, t + 1, n)
    return {
        "x": array(t, n, i),
        "layers": layers,
        "h0": array(num_layers * d, n, h),
        "sequence_lengths": lengths,
    }


def moved(arguments: dict[str, Any], move: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """The same arrays after `move`."""
    layers = [tuple(None if one is None else move(one) for one in layer) for layer in arguments["layers"]]
    others = {name: move(array) for name, array in arguments.items() if name != "layers"}
    return {**others, "layers": layers}


def one_by_one(arguments: dict[str, Any], **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The results by a call of `gru` for each layer, of arrays in CPU memory."""
    x, h0, singles = arguments["x"], arguments.get("h0"), []
    for number, weights in enumerate(arguments["layers"]):
        d = weights[1].shape[0]
        state = None if h0 is None else h0[number * d : (number + 1) * d]
        lengths = arguments.get("sequence_lengths")
        sequence, single = cudml.gru(x, *weights, h0=state, sequence_lengths=lengths, **options)
        singles.append(single)
        x = sequence.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return sequence, np.concatenate(singles)


def assert_right(got: Any, arguments: dict[str, Any], options: Options) -> None:
    """The results are as precise as NumPy's."""
    d = options.num_directions
    h0, lengths = arguments.get("h0"), arguments.get("sequence_lengths")
    layers = [
        Weights(arguments["x"], w, r, b, None if h0 is None else h0[number * d : (number + 1) * d], lengths)
        for number, (w, r, b) in enumerate(arguments["layers"])
    ]
    results = {name: to_numpy(result) for name, result in got._asdict().items()}
    assert_as_precise_as_numpy(results, layers, options)


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layers_by_the_formulas(
    direction: Any, linear_before_reset: bool, dtype: Any, device: Device, rng: np.random.Generator
) -> None:
    arguments = stack(rng, direction=direction, dtype=dtype)
    got = cudml.gru_stack(
        **moved(arguments, lambda a: to_device(device, a)),
        direction=direction,
        linear_before_reset=linear_before_reset,
    )
    assert_right(got, arguments, Options(DIRECTIONS[direction], linear_before_reset))


@pytest.mark.parametrize("num_layers", [1, 2, 5])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_on_a_cpu_the_bits_are_those_of_gru(
    direction: Any, num_layers: int, rng: np.random.Generator
) -> None:
    arguments = stack(rng, num_layers, direction)
    options = {"direction": direction, "activations": ["HardSigmoid", "Relu"] * (1 + (direction[0] == "b"))}
    for given in (arguments, {name: arguments[name] for name in ("x", "layers")}):
        with emulator.schedule(warp_lanes=1):
            expected = one_by_one(given, **options, clip=0.5)
            for _ in range(2):  # the second time the call is planned
                got = cudml.gru_stack(**given, **options, clip=0.5)
                assert_identical(got.sequence, expected[0])
                assert_identical(got.single, expected[1])


@contextmanager
def gpu(multiprocessors: int) -> Iterator[None]:
    """The emulator with a GPU's kernels and as many blocks at once."""
    with pytest.MonkeyPatch.context() as patch:
        limits = replace(LARGE, num_multiprocessors=multiprocessors)
        patch.setattr(type(get_device("cpu")), "limits", limits)
        for function in (_gru, _gru_stack):
            function.calls.clear()  # planned for another device
        yield
    for function in (_gru, _gru_stack):
        function.calls.clear()


@pytest.fixture
def large() -> Iterator[None]:
    """The emulator with a GPU's kernels and as many blocks at once as an H200."""
    with gpu(132):
        yield


def launches_of(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[KernelLaunch]]:
    """The result of a call, and the launches that it loads."""
    cpu = type(get_device("cpu"))
    loaded: list[KernelLaunch] = []
    load = cpu.load

    def observed(self: Any, plan: Any) -> Any:
        loaded.extend(step for step in plan.steps if isinstance(step, KernelLaunch))
        return load(self, plan)

    with monkeypatch.context() as patch:
        patch.setattr(cpu, "load", observed)
        return call(), loaded


def kernels_of(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The result of a call, and the kernels that it loads."""
    result, launches = launches_of(call, monkeypatch)
    return result, [launch.function for launch in launches]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
def test_all_layers_at_once(
    linear_before_reset: bool,
    direction: Any,
    dtype: Any,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU has room for all layers; some sequences end early, and states and outputs are strided."""
    arguments = stack(rng, 3, direction, dtype, (6, 3, 4, 17))
    arguments["h0"] = arguments["h0"].transpose(2, 0, 1).copy().transpose(1, 2, 0)
    out = np.empty((6, 3, 17, 2), dtype)[:, None, ..., 0], np.empty((3, 3, 17), dtype)[::-1]

    def call() -> Any:
        return cudml.gru_stack(
            **arguments, direction=direction, linear_before_reset=linear_before_reset, out=out
        )

    got, loaded = kernels_of(call, monkeypatch)
    assert "gru_wave" in loaded
    assert not {"gru_grid", "gru_block", "gru_matrix_grid"} & {*loaded}
    assert_right(got, arguments, Options(DIRECTIONS[direction], linear_before_reset))


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
def test_bits_do_not_depend_on_the_units_of_a_thread(
    linear_before_reset: bool, dtype: Any, rng: np.random.Generator
) -> None:
    """Blocks have twice as many hidden units where layers find no room otherwise."""
    arguments = stack(rng, 3, "forward", dtype, (4, 3, 4, 270))
    results, kernels = [], set()
    for multiprocessors in (132, 51):
        with gpu(multiprocessors), pytest.MonkeyPatch.context() as patch:
            call = partial(cudml.gru_stack, **arguments, linear_before_reset=linear_before_reset)
            got, loaded = launches_of(call, patch)
            results.append(got)
            kernels.add((loaded[-1].function, loaded[-1].template[-1]))
    assert kernels == {("gru_wave", 2), ("gru_wave", 4)}
    assert_identical(results[0].sequence, results[1].sequence)
    assert_identical(results[0].single, results[1].single)
    assert_right(results[1], arguments, Options(linear_before_reset=linear_before_reset))


@pytest.mark.usefixtures("large")
def test_clip_and_other_activations_at_once(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stack(rng, 3, sizes=(6, 2, 3, 17))
    chosen = (Activation.hard_sigmoid(0.2, 0.5), Activation.softsign())
    got, loaded = kernels_of(lambda: cudml.gru_stack(**arguments, activations=chosen, clip=0.25), monkeypatch)
    assert "gru_wave" in loaded
    assert_right(got, arguments, Options(linear_before_reset=False, activations=chosen, clip=0.25))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("linear_before_reset", [False, True], ids=["before", "after"])
def test_nan_of_one_sequence_reaches_no_other(linear_before_reset: bool, rng: np.random.Generator) -> None:
    """The batch changes a sequence only in the last bits, by the library's product."""
    arguments = stack(rng, 2, sizes=(5, 5, 3, 10))
    plain = cudml.gru_stack(**arguments, linear_before_reset=linear_before_reset)
    arguments["x"][1, 2] = np.nan
    arguments["h0"][1, 4] = np.inf
    arguments["sequence_lengths"][2:] = 3
    got = cudml.gru_stack(**arguments, linear_before_reset=linear_before_reset)
    assert np.isnan(got.sequence[1:3, :, 2]).all()
    assert_identical(got.sequence[:, :, :2], plain.sequence[:, :, :2])
    assert_identical(got.single[:, :2], plain.single[:, :2])
    alone = {
        "x": arguments["x"][:, :1],
        "layers": arguments["layers"],
        "h0": arguments["h0"][:, :1],
        "sequence_lengths": arguments["sequence_lengths"][:1],
    }
    # The product of the library depends on the batch, in its last bits.
    np.testing.assert_allclose(
        cudml.gru_stack(**alone, linear_before_reset=linear_before_reset).sequence,
        plain.sequence[:, :, :1],
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.usefixtures("large")
def test_a_device_without_room_for_all_blocks_takes_layer_after_layer(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stack(rng, 3, sizes=(6, 2, 3, 17))
    cpu = type(get_device("cpu"))
    load = cpu.load

    def refusing(self: Any, plan: Any) -> Any:
        if any(getattr(step, "function", "") == "gru_wave" for step in plan.steps):
            raise LaunchTooLargeError("no room", most_resident_blocks=2)
        return load(self, plan)

    monkeypatch.setattr(cpu, "load", refusing)
    got, loaded = kernels_of(lambda: cudml.gru_stack(**arguments), monkeypatch)
    assert loaded.count("gru_wave") == 1
    assert {"gru_grid", "gru_block"} & {*loaded}
    assert_right(got, arguments, Options(linear_before_reset=False))


#: Layers, T, N and H, and whether an H200 computes all layers at once.
CHOICES = [
    ((2, 1000, 1, 400), True),
    ((2, 1000, 1, 528), True),
    ((2, 1000, 1, 640), True),
    ((2, 1000, 1, 768), False),
    ((3, 1000, 1, 344), True),
    ((3, 1000, 1, 400), True),
    ((4, 1000, 1, 512), True),
    ((4, 1000, 1, 536), False),
    ((4, 1000, 1, 256), True),
    ((5, 1000, 1, 64), False),
    ((2, 1000, 8, 256), True),
    ((4, 1000, 8, 256), True),
    ((2, 1000, 8, 128), False),
    ((2, 1000, 8, 400), False),
    ((2, 1, 1, 400), False),
    ((2, 1000, 1000, 64), False),
]


@pytest.mark.parametrize(("sizes", "expected"), CHOICES, ids=str)
def test_the_choice_follows_the_room_and_the_estimates(sizes: Any, expected: bool) -> None:
    num_layers, steps, batch, hidden = sizes
    desc = descriptor(num_layers, steps, batch, hidden, hidden)
    assert takes_wave(stack_of(desc), LARGE) is expected
    assert not takes_wave(stack_of(desc), replace(LARGE, warp_lanes=1))
    assert not takes_wave(stack_of(desc), replace(LARGE, most_resident_blocks=3))


def least_blocks(num_layers: int, batch: int, hidden: int) -> float:
    """Blocks of layers of float32 at least, by the registers and shared storage of an H200; inf: none can."""
    found = [inf]
    num_chunks = -(-hidden // 256)
    for units in (8, 16):
        weights = 2 * 4 * 3 * units * 256 * max(0, num_chunks - 16 // units)
        for group in range(1, 256 // units + 1):
            states = 4 * group * (2 * 256 * num_chunks + 8 * 4 * units)
            if weights + states + 12 * 256 <= LARGE.shared_bytes_per_block:
                found.append(num_layers * -(-hidden // units) * -(-batch // group))
    return min(found)


@pytest.mark.parametrize("multiprocessors", [4, 30, 132, 170])
@pytest.mark.parametrize("num_layers", [2, 3, 4])
@pytest.mark.parametrize("hidden", [1, 8, 100, 400, 528, 680, 800])
@pytest.mark.parametrize("batch", [1, 3, 32, 33, 200])
def test_plans_fit_the_device(batch: int, hidden: int, num_layers: int, multiprocessors: int) -> None:
    limits = replace(LARGE, num_multiprocessors=multiprocessors)
    desc = descriptor(num_layers, 5, batch, 8, hidden)
    has_room = least_blocks(num_layers, batch, hidden) <= multiprocessors
    assert (wave_shape(stack_of(desc), limits) is not None) is has_room
    if not has_room:
        with pytest.raises(ValueError, match="path 'wave' cannot compute"):
            plan(desc, limits)
        return
    launch = plan(desc, limits).steps[-1]
    assert isinstance(launch, KernelLaunch)
    assert launch.cooperative
    assert launch.grid[0] <= multiprocessors
    assert launch.shared_bytes <= limits.shared_bytes_per_block
    values = launch.params.values
    assert values["num_groups"] * values["group_batch"] >= batch
    assert values["group_batch"] * launch.template[-1] <= 64


@pytest.mark.parametrize("how", LAYOUTS[1:])
def test_arrays_of_any_strides(how: str, device: Device, rng: np.random.Generator) -> None:
    arguments = stack(rng)
    packed = cudml.gru_stack(**moved(arguments, lambda a: to_device(device, a)))
    got = cudml.gru_stack(**moved(arguments, lambda a: strided(device, a, how)))
    assert_identical(to_numpy(got.sequence), to_numpy(packed.sequence))
    assert_identical(to_numpy(got.single), to_numpy(packed.single))


def test_outputs_that_are_given(device: Device, rng: np.random.Generator) -> None:
    arguments = moved(stack(rng), lambda a: to_device(device, a))
    expected = cudml.gru_stack(**arguments)
    for how in LAYOUTS:
        out = tuple(strided(device, np.full(one.shape, 7, np.float32), how) for one in expected)
        got = cudml.gru_stack(**arguments, out=out)
        assert (got.sequence is out[0], got.single is out[1]) == (True, True)
        for one, wanted in zip(out, expected, strict=True):
            assert_identical(to_numpy(one), to_numpy(wanted))


def test_nothing_in_it(rng: np.random.Generator) -> None:
    def run(sizes: tuple[int, int, int, int]) -> Any:
        arguments = stack(rng, sizes=sizes)
        return arguments, cudml.gru_stack(**arguments)

    _, no_steps = run((0, 3, 4, 6))
    assert no_steps.sequence.shape == (0, 1, 3, 6)
    assert_identical(no_steps.single, np.zeros((3, 3, 6), np.float32))
    arguments, no_inputs = run((5, 3, 0, 6))
    assert_right(no_inputs, arguments, Options(linear_before_reset=False))
    assert [one.shape for one in run((5, 0, 4, 6))[1]] == [(5, 1, 0, 6), (3, 0, 6)]
    assert [one.shape for one in run((5, 3, 4, 0))[1]] == [(5, 1, 3, 0), (3, 3, 0)]


@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both"])
def test_as_torch(num_layers: int, bidirectional: bool, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    t, n, i, h = 7, 3, 5, 8
    module = torch.nn.GRU(i, h, num_layers, bidirectional=bidirectional)
    directions = 2 if bidirectional else 1
    parameters = {name: one.detach().numpy() for name, one in module.named_parameters()}

    def update_first(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[h : 2 * h], array[:h], array[2 * h :]])

    def of_layer(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        names = [f"l{number}{end}" for end in ("", "_reverse")[:directions]]
        w, r, wb, rb = (
            np.stack([update_first(parameters[f"{kind}_{one}"]) for one in names]) for kind in kinds
        )
        return w, r, np.concatenate([wb, rb], axis=1)

    x = rng.standard_normal((t, n, i), np.float32)
    h0 = rng.standard_normal((num_layers * directions, n, h), np.float32)
    with torch.inference_mode():
        output, state = module(torch.from_numpy(x), torch.from_numpy(h0))
    layers = [of_layer(number) for number in range(num_layers)]
    direction: Any = "bidirectional" if bidirectional else "forward"
    got = cudml.gru_stack(x, layers, h0, direction=direction, linear_before_reset=True)
    joined = got.sequence.transpose(0, 2, 1, 3).reshape(t, n, -1)
    np.testing.assert_allclose(joined, output.numpy(), rtol=0, atol=2e-6)
    np.testing.assert_allclose(got.single, state.numpy(), rtol=0, atol=2e-6)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


#: Weights of the first layer and of a later one, for T 5, N 4, I 2 and H 3.
FIRST, NEXT = (zeros(1, 9, 2), zeros(1, 9, 3)), (zeros(1, 9, 3), zeros(1, 9, 3))

ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no chain": (
        {"layers": [FIRST, NEXT, FIRST]},
        ValueError,
        "w of layers[2] is of shape (1, 9, 2), must be (D, 3H, I) = (1, 9, 3), with D = 1 from "
        "direction, H = 3 "
        "from r of layers[0], I = 3 from the states of layers[1]",
    ),
    "another size": (
        {"layers": [FIRST, (zeros(1, 12, 3), zeros(1, 12, 4))]},
        ValueError,
        "w of layers[1] is of shape (1, 12, 3), must be (D, 3H, I) = (1, 9, 3), with D = 1 from "
        "direction, H = 3 "
        "from r of layers[0], I = 3 from the states of layers[0]; r of layers[1] is of shape (1, 12, 4), mus",
    ),
    "h0": (
        {"h0": zeros(1, 4, 3)},
        ValueError,
        "h0 is of shape (1, 4, 3), must be (LD, N, H) = (2, 4, 3), with L = 2 from layers, D = 1 from "
        "direction, "
        "N = 4 from x, H = 3 from r of layers[0]",
    ),
    "lengths": ({"sequence_lengths": [1, 2]}, ValueError, "sequence_lengths is of shape (2,), must be (N,) "),
    "float lengths": ({"sequence_lengths": zeros(4)}, TypeError, "sequence_lengths is of dtype float32, mus"),
    "b": (
        {"layers": [(*FIRST, zeros(18)), NEXT]},
        ValueError,
        "b of layers[0] is of shape (18,), must be (D, 6H) = (1, 18), with D = 1 from direction, H = 3 from ",
    ),
    "x": ({"x": zeros(5, 2)}, ValueError, "x is of shape (5, 2), must be (T, N, I)"),
    "r": ({"layers": [(zeros(9, 2), zeros(9, 3))]}, ValueError, "w of layers[0] is of shape (9, 2), must be"),
    "types": (
        {"layers": [FIRST, (NEXT[0].astype("f2"), NEXT[1])], "h0": zeros(2, 4, 3, dtype=float)},
        TypeError,
        "w of layers[1] is of dtype float16, must be of float32, as x; h0 is of dtype float64, must be of fl",
    ),
    "double": ({"x": zeros(5, 4, 2, dtype=float)}, TypeError, "x is of dtype float64, must be of float16, f"),
    "no layers": ({"layers": []}, ValueError, "layers is empty, must be of at least one layer"),
    "an array": (
        {"layers": zeros(1, 9, 2)},
        TypeError,
        "layers is a numpy.ndarray, must be a list of (w, r) or (w, r, b)",
    ),
    "no pairs": (
        {"layers": [FIRST[0], (FIRST[1],)]},
        TypeError,
        "layers[0] is a numpy.ndarray, must be (w, r) or (w, r, b); layers[1] is a tuple of 1, must be (w, r",
    ),
    "no r": ({"layers": [(FIRST[0], None)]}, TypeError, "r of layers[0] is a NoneType, must be a NumPy arra"),
    "no x": ({"x": None}, TypeError, "x is a NoneType, must be a NumPy array"),
    "direction": ({"direction": "both"}, ValueError, "direction is 'both', must be 'forward', 'reverse', 'b"),
    "activations": ({"activations": ["Tanh"]}, ValueError, "activations is of length 1, must be of length 2"),
    "reset": ({"linear_before_reset": "no"}, TypeError, "linear_before_reset is 'no', must be True or False"),
    "clip": ({"clip": 0}, ValueError, "clip is 0, must be a number above 0"),
    "out": ({"out": zeros(5, 1, 4, 3)}, TypeError, "out is a numpy.ndarray, must be a tuple of two arrays, "),
    "out shape": (
        {"out": (zeros(5, 1, 4, 3), zeros(1, 4, 3))},
        ValueError,
        "out[1] is of shape (1, 4, 3), must be of shape (2, 4, 3)",
    ),
    "overlap": (
        {"x": FIRST[1][:, :4, :2], "out": (FIRST[1][:1, None, :4], zeros(2, 4, 3))},
        ValueError,
        "out[0] is overlapping x",
    ),
    "stream": ({"stream": 1}, TypeError, "stream is an int, must be None on cpu"),
    "hx": ({"hx": zeros(2, 4, 3)}, TypeError, "hx is no argument, must be h0="),
    "num_layers": ({"num_layers": 2}, TypeError, "num_layers is no argument, must be left out: the length o"),
    "w": ({"w": FIRST[0]}, TypeError, "w is no argument, must be layers=, a (w, r, b) each"),
    "dropout": ({"dropout": 0.1}, TypeError, "dropout is no argument, must be left out: as after training"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "message"), ERRORS.values(), ids=ERRORS)
def test_it_says_what_is_wrong(changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"x": zeros(5, 4, 2), "layers": [FIRST, NEXT]}
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.gru_stack(**(given | changes))
        assert str(caught.value).startswith(f"gru_stack: {message}")


def test_weights_may_be_unaligned(rng: np.random.Generator) -> None:
    arguments = stack(rng)
    expected = cudml.gru_stack(**arguments)

    def unaligned(array: np.ndarray) -> np.ndarray:
        memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view()
        view = np.ndarray(array.shape, array.dtype, memory)
        view[...] = array
        return view

    with emulator.schedule():
        assert_identical(cudml.gru_stack(**moved(arguments, unaligned)).sequence, expected.sequence)
