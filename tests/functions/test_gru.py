"""The array function `gru`: every option, any stride and dtype, and layers with nothing in them."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudml
from cudml import Activation
from cudml.devices import Device, emulator
from proof.oracle.gru import Weights
from tests.support import assert_identical, to_device, to_numpy
from tests.support.function_arrays import DIRECTIONS, INTEGERS, LAYOUTS, layer, strided
from tests.support.gru_runs import STANDARD, Options, assert_as_precise_as_numpy


def assert_right(
    got: Any,
    arrays: dict[str, np.ndarray],
    direction: str,
    *,
    activations: tuple[Activation, ...] = STANDARD,
    linear_before_reset: bool = False,
    clip: float = math.inf,
) -> None:
    """The function's results for ONNX's arrays are as precise as NumPy's."""
    weights = {("lengths" if name == "sequence_lengths" else name): a for name, a in arrays.items()}
    options = Options(DIRECTIONS[direction], linear_before_reset, activations, clip)
    results = {name: to_numpy(result) for name, result in got._asdict().items()}
    assert_as_precise_as_numpy(results, Weights(**weights), options)


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gru(direction: Any, dtype: Any, device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, direction, dtype)
    on_device = {name: to_device(device, a) for name, a in arrays.items()}
    assert_right(cudml.gru(**on_device, direction=direction), arrays, direction)


@pytest.mark.parametrize("missing", [("b",), ("h0",), ("sequence_lengths",), ("b", "h0", "sequence_lengths")])
def test_gru_without_its_optional_inputs(missing: tuple[str, ...], rng: np.random.Generator) -> None:
    arrays = {name: a for name, a in layer(rng, "reverse").items() if name not in missing}
    assert_right(cudml.gru(**arrays, direction="reverse"), arrays, "reverse")


def test_gru_takes_its_arguments_in_onnx_order(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    by_name, by_place = cudml.gru(**arrays), cudml.gru(*arrays.values())
    assert_identical(by_place.sequence, by_name.sequence)
    assert_identical(by_place.single, by_name.single)
    assert by_name._fields == ("sequence", "single")


def test_backward_is_another_name_for_reverse(rng: np.random.Generator) -> None:
    arrays = layer(rng, "reverse")
    other = cudml.gru(**arrays, direction="backward")  # type: ignore[arg-type]
    assert_identical(other.sequence, cudml.gru(**arrays, direction="reverse").sequence)


def test_a_flag_of_gru_may_be_numpys(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    numpys = cudml.gru(**arrays, linear_before_reset=np.True_)  # type: ignore[arg-type]
    assert_identical(numpys.sequence, cudml.gru(**arrays, linear_before_reset=True).sequence)


def test_gru_clips_the_inputs_of_activations(rng: np.random.Generator) -> None:
    arrays = layer(rng, "reverse")
    clipped = cudml.gru(**arrays, direction="reverse", clip=0.25)
    assert_right(clipped, arrays, "reverse", clip=0.25)
    for same in (np.float32(0.25), np.float64(0.25)):  # the second time the call is planned
        assert_identical(cudml.gru(**arrays, direction="reverse", clip=same).single, clipped.single)
    plain = cudml.gru(**arrays, direction="reverse").sequence
    for none in (None, math.inf, 10**400):
        assert_identical(cudml.gru(**arrays, direction="reverse", clip=none).sequence, plain)


def test_gru_activations_by_name_and_by_value(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    named = cudml.gru(**arrays, activations=["hardsigmoid", "RELU"], linear_before_reset=True)
    given_ = cudml.gru(
        **arrays, activations=(Activation.hard_sigmoid(0.2, 0.5), Activation.relu()), linear_before_reset=True
    )
    assert_identical(named.sequence, given_.sequence)
    chosen = (Activation.hard_sigmoid(0.2, 0.5), Activation.relu())
    assert_right(named, arrays, "forward", activations=chosen, linear_before_reset=True)


@pytest.mark.parametrize("how", LAYOUTS[1:])
def test_gru_of_any_strides(how: str, device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "bidirectional")
    packed = cudml.gru(**{n: to_device(device, a) for n, a in arrays.items()}, direction="bidirectional")
    got = cudml.gru(**{n: strided(device, a, how) for n, a in arrays.items()}, direction="bidirectional")
    assert_identical(got.sequence, to_numpy(packed.sequence))
    assert_identical(got.single, to_numpy(packed.single))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("lanes", [1, 32])
def test_gru_takes_lengths_of_any_integer_type(dtype: str, lanes: int, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    lengths = np.array([np.iinfo(dtype).max, 9, np.iinfo(dtype).min, 9, 3], dtype)
    if dtype.startswith("u"):
        lengths[2] = 0
    with emulator.schedule(warp_lanes=lanes):
        expected = cudml.gru(**arrays).sequence
        for given in (lengths[::2], lengths[::-1].copy()[::-2], lengths[::2].copy()):
            arrays["sequence_lengths"] = given
            assert_identical(cudml.gru(**arrays).sequence, expected)


def test_gru_without_steps_inputs_sequences_or_units(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")

    def run(**others: np.ndarray) -> Any:
        return cudml.gru(**{name: to_device(device, a) for name, a in (arrays | others).items()})

    no_steps = run(x=np.zeros((0, 3, 4), np.float32))
    assert no_steps.sequence.shape == (0, 1, 3, 6)
    assert_identical(no_steps.single, np.zeros((1, 3, 6), np.float32))
    no_inputs = {"x": np.zeros((5, 3, 0), np.float32), "w": np.zeros((1, 18, 0), np.float32)}
    assert_right(run(**no_inputs), arrays | no_inputs, "forward")
    no_sequences = {"x": np.zeros((5, 0, 4)), "h0": np.zeros((1, 0, 6)), "sequence_lengths": np.zeros(0, int)}
    got = run(**{n: a if n == "sequence_lengths" else a.astype(np.float32) for n, a in no_sequences.items()})
    assert (got.sequence.shape, got.single.shape) == ((5, 1, 0, 6), (1, 0, 6))
    no_units = {"w": (1, 0, 4), "r": (1, 0, 0), "b": (1, 0), "h0": (1, 3, 0)}
    got = run(**{name: np.zeros(shape, np.float32) for name, shape in no_units.items()})
    assert (got.sequence.shape, got.single.shape) == ((5, 1, 3, 0), (1, 3, 0))
