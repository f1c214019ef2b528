"""The array functions: any shape, stride and dtype, `out=`, and every error with its text."""

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cudml
from cudml import Activation, DataType, TensorDesc, api
from cudml.calls import Argument, CallCache
from cudml.devices import Device, get_device
from cudml.enums import RecurrentNetworkDirection
from tests.oracle import gru as gru_oracle
from tests.oracle import reverse_subsequences as reverse_oracle
from tests.oracle import top_k as top_k_oracle
from tests.support import assert_identical, to_device, to_numpy

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
REALS = ["bool", *INTEGERS, "float16", "float32", "float64", ml_dtypes.bfloat16]
MOVED = [*REALS, "complex64", "complex128", "S4", "datetime64[s]", ">f4", "V16"]
SENTINEL = 77

few = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random bits with many ties; floats have NaN, infinities and both zeros among them."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fV" and dtype.itemsize <= 8:
        pool = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 3.0]).astype(dtype)
    elif dtype.kind == "b":
        pool = np.array([False, True])
    else:
        pool = np.frombuffer(rng.bytes(8 * dtype.itemsize), dtype)
    return pool[rng.integers(0, len(pool), shape)]


def strided(device: Device, array: np.ndarray, how: str) -> Any:
    """An array on the device with these elements that lies in memory in one of several ways."""
    if how == "packed":
        return to_device(device, array)
    if how == "fortran":
        return to_device(device, np.ascontiguousarray(array.T)).T
    if how == "backwards":
        flip = (slice(None, None, -1),) * array.ndim
        return to_device(device, np.ascontiguousarray(array[flip]))[flip]
    wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    inner = (slice(1, None, 2),) * array.ndim
    wide[inner] = array
    return to_device(device, wide)[inner]


LAYOUTS = ["packed", "fortran", "backwards", "gaps"]


@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_top_k_of_every_dtype(dtype: Any, mode: Any, device: Device, rng: np.random.Generator) -> None:
    a = values(rng, (3, 40), dtype)
    expected = top_k_oracle.top_k(a, 7, largest=mode == "largest", nan_last=True)
    got = cudml.top_k(to_device(device, a), 7, mode=mode)
    assert_identical(got.values, expected[0])
    assert_identical(got.indices, expected[1])


@few
@given(data=st.data())
def test_top_k_of_any_shape_axis_and_strides(data: st.DataObject, device: Device) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=9))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(1, shape[axis]))
    a = data.draw(hnp.arrays(np.int8, shape, elements=st.integers(-3, 3)))
    array = strided(device, a, data.draw(st.sampled_from(LAYOUTS)))
    got = cudml.top_k(array, k, axis=axis)
    expected = top_k_oracle.top_k(a, k, axis)
    assert_identical(got.values, expected[0])
    assert_identical(got.indices, expected[1])


def test_top_k_is_numpys(rng: np.random.Generator) -> None:
    """numpy.top_k's semantics: values in order, indices that lead to them, NaN last in both modes."""
    a = values(rng, (5, 30), np.float32)
    for mode, sign in (("largest", -1), ("smallest", 1)):
        got = cudml.top_k(a, 12, mode=mode, sorted=False)  # type: ignore[arg-type]
        assert_identical(np.take_along_axis(a, got.indices, -1), got.values)
        np.testing.assert_array_equal(got.values, sign * np.sort(sign * a, axis=-1)[:, :12])


@few
@given(data=st.data())
def test_slice_is_numpys_slicing(data: st.DataObject, device: Device) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=9))
    a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    offsets, sizes, strides, index = [], [], [], []
    for n in shape:
        picked = data.draw(st.slices(n).filter(lambda s: len(range(9)[s]) > 0))
        where = range(n)[picked]
        if not where:
            where = range(0, 1)
        offsets.append(where[0])
        sizes.append(len(where))
        strides.append(where.step)
        index.append(list(where))
    array = strided(device, a, data.draw(st.sampled_from(LAYOUTS)))
    assert_identical(cudml.slice(array, offsets, sizes, strides), a[np.ix_(*index)])


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_slice_and_reverse_move_every_dtype(dtype: Any, rng: np.random.Generator) -> None:
    a = values(rng, (3, 8), dtype)
    assert cudml.slice(a, (2, 1), (2, 3), (-1, 2)).tobytes() == a[2:0:-1, 1:6:2].tobytes()
    assert cudml.slice(a, (0, 0), (3, 8)).dtype == a.dtype
    got = cudml.reverse_subsequences(a, np.array([8], np.int8))
    assert got.dtype == a.dtype
    assert got.tobytes() == a[:, ::-1].tobytes()


@few
@given(data=st.data())
def test_reverse_of_any_shape_axis_strides_and_lengths(data: st.DataObject, device: Device) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=7))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    lane_shape = list(shape)
    lane_shape[axis] = 1
    narrowed = [data.draw(st.sampled_from([1, n])) for n in lane_shape]
    dropped = data.draw(st.integers(0, len(shape) - 1))
    dropped = next((i for i in range(dropped) if narrowed[i] != 1), dropped)
    dtype = data.draw(st.sampled_from(INTEGERS))
    low = 0 if dtype.startswith("u") else -2
    lengths = data.draw(hnp.arrays(dtype, narrowed[dropped:], elements=st.integers(low, 9)))
    array = strided(device, a, data.draw(st.sampled_from(LAYOUTS)))
    got = cudml.reverse_subsequences(array, to_device(device, lengths), axis)
    full = np.broadcast_to(lengths, lane_shape).astype(np.int64).clip(0)
    assert_identical(got, reverse_oracle.reverse_lanes(a, full, axis % a.ndim))


def test_reverse_takes_lengths_at_the_ends_of_their_types() -> None:
    a = np.arange(8).reshape(2, 4)
    lengths = np.array([[np.iinfo(np.int64).min], [np.iinfo(np.int64).max]])
    assert cudml.reverse_subsequences(a, lengths).tolist() == [[0, 1, 2, 3], [7, 6, 5, 4]]
    lengths = np.array([[2**32], [2**64 - 1]], np.uint64)
    assert cudml.reverse_subsequences(a, lengths).tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]


DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}


def layer(rng: np.random.Generator, direction: str, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Arrays of a layer with T 5, N 3, I 4, H 6."""
    d = 2 if direction == "bidirectional" else 1
    shapes = {"x": (5, 3, 4), "w": (d, 18, 4), "r": (d, 18, 6), "b": (d, 36), "h0": (d, 3, 6)}
    arrays = {name: rng.uniform(-0.5, 0.5, shape).astype(dtype) for name, shape in shapes.items()}
    return arrays | {"sequence_lengths": np.array([5, 0, 3], np.int64)}


def close_to_oracle(got: Any, arrays: dict[str, np.ndarray], direction: str, **options: Any) -> None:
    """The error against float64 is at most twice that of NumPy in float32."""
    weights = {("lengths" if name == "sequence_lengths" else name): a for name, a in arrays.items()}
    activations = options.pop("activations", (Activation.sigmoid(), Activation.tanh()) * 2)
    run = (gru_oracle.Weights(**weights), activations, DIRECTIONS[direction], options.pop("before", False))
    exact, rounded = gru_oracle.gru(*run), gru_oracle.gru(*run, precision=np.float32)
    for result, want, near in zip(map(to_numpy, got), exact, rounded, strict=True):
        assert result.shape == want.shape
        assert result.dtype == arrays["x"].dtype
        unit = np.finfo(result.dtype).eps / 4

        def error(a: np.ndarray, want: np.ndarray = want) -> float:
            return float(np.sqrt(np.mean((a.astype(np.float64) - want) ** 2)))

        assert error(result) <= 2 * max(error(near.astype(result.dtype)), unit * error(0 * near))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gru(direction: Any, dtype: Any, device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, direction, dtype)
    on_device = {name: to_device(device, a) for name, a in arrays.items()}
    close_to_oracle(cudml.gru(**on_device, direction=direction), arrays, direction)


@pytest.mark.parametrize("missing", [("b",), ("h0",), ("sequence_lengths",), ("b", "h0", "sequence_lengths")])
def test_gru_without_its_optional_inputs(missing: tuple[str, ...], rng: np.random.Generator) -> None:
    arrays = {name: a for name, a in layer(rng, "reverse").items() if name not in missing}
    close_to_oracle(cudml.gru(**arrays, direction="reverse"), arrays, "reverse")


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


def test_gru_activations_by_name_and_by_value(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    named = cudml.gru(**arrays, activations=["hardsigmoid", "RELU"], linear_before_reset=True)
    given_ = cudml.gru(
        **arrays, activations=(Activation.hard_sigmoid(0.2, 0.5), Activation.relu()), linear_before_reset=True
    )
    assert_identical(named.sequence, given_.sequence)
    chosen = (Activation.hard_sigmoid(0.2, 0.5), Activation.relu())
    close_to_oracle(named, arrays, "forward", activations=chosen, before=True)


@pytest.mark.parametrize("how", LAYOUTS[1:])
def test_gru_of_any_strides(how: str, device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "bidirectional")
    packed = cudml.gru(**{n: to_device(device, a) for n, a in arrays.items()}, direction="bidirectional")
    got = cudml.gru(**{n: strided(device, a, how) for n, a in arrays.items()}, direction="bidirectional")
    assert_identical(got.sequence, to_numpy(packed.sequence))
    assert_identical(got.single, to_numpy(packed.single))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_gru_takes_lengths_of_any_integer_type(dtype: str, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    expected = cudml.gru(**arrays).sequence
    arrays["sequence_lengths"] = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 3], dtype)
    if dtype.startswith("u"):
        arrays["sequence_lengths"][1] = 0
    assert_identical(cudml.gru(**arrays).sequence, expected)


def test_gru_without_steps_inputs_sequences_or_units(device: Device, rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")

    def run(**others: np.ndarray) -> Any:
        return cudml.gru(**{name: to_device(device, a) for name, a in (arrays | others).items()})

    no_steps = run(x=np.zeros((0, 3, 4), np.float32))
    assert no_steps.sequence.shape == (0, 1, 3, 6)
    assert_identical(no_steps.single, np.zeros((1, 3, 6), np.float32))
    no_inputs = {"x": np.zeros((5, 3, 0), np.float32), "w": np.zeros((1, 18, 0), np.float32)}
    close_to_oracle(run(**no_inputs), arrays | no_inputs, "forward")
    no_sequences = {"x": np.zeros((5, 0, 4)), "h0": np.zeros((1, 0, 6)), "sequence_lengths": np.zeros(0, int)}
    got = run(**{n: a if n == "sequence_lengths" else a.astype(np.float32) for n, a in no_sequences.items()})
    assert (got.sequence.shape, got.single.shape) == ((5, 1, 0, 6), (1, 0, 6))
    no_units = {"w": (1, 0, 4), "r": (1, 0, 0), "b": (1, 0), "h0": (1, 3, 0)}
    got = run(**{name: np.zeros(shape, np.float32) for name, shape in no_units.items()})
    assert (got.sequence.shape, got.single.shape) == ((5, 1, 3, 0), (1, 3, 0))


EMPTY = [
    (lambda a: cudml.top_k(a[:, :0], 2, axis=0), [(2, 0), (2, 0)]),
    (lambda a: cudml.slice(a, (3, 1), (0, 2)), [(0, 2)]),
    (lambda a: cudml.slice(a, (4, 1), (0, 2)), [(0, 2)]),
    (lambda a: cudml.slice(a[:0], (0, 0), (0, 2)), [(0, 2)]),
    (lambda a: cudml.reverse_subsequences(a[:0], a[:0, :1].astype("int32")), [(0, 5)]),
    (lambda a: cudml.reverse_subsequences(a[:, :0], a[:, :1].astype("int32")), [(4, 0)]),
]


@pytest.mark.parametrize(("run", "shapes"), EMPTY)
def test_empty_results_are_empty_and_launch_nothing(
    run: Any, shapes: list[tuple[int, ...]], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudml.calls.load_plan", lambda *_: pytest.fail("a plan was loaded"))
    results = run(to_device(device, np.zeros((4, 5), np.float32)))
    results = results if isinstance(results, tuple) else (results,)
    assert [result.shape for result in results] == shapes
    assert results[0].dtype == np.float32


def test_arrays_without_dimensions() -> None:
    a = np.array(5.0)
    assert_identical(cudml.slice(a, (), ()), a)
    described = Argument.input("a", "input_tensor", DataType.FLOAT64, a).tensor
    assert described == TensorDesc(DataType.FLOAT64, (1,))
    with pytest.raises(np.exceptions.AxisError):
        cudml.top_k(a, 1)
    with pytest.raises(np.exceptions.AxisError):
        cudml.reverse_subsequences(a, np.array(1))


def test_more_dimensions_than_descriptors_have(rng: np.random.Generator) -> None:
    a = rng.random((2, 1, 2, 1, 2, 1, 3, 1, 2, 5))[..., ::2]
    expected = top_k_oracle.top_k(a, 2, 6)
    out = (np.empty_like(expected[0]), np.empty_like(expected[1]))
    for got in (cudml.top_k(a, 2, axis=6), cudml.top_k(a, 2, axis=6, out=out)):
        assert_identical(got.values, expected[0])
        assert_identical(got.indices, expected[1])
    assert got.values is out[0]
    assert_identical(cudml.slice(a, (0,) * 10, a.shape), a)
    lengths = rng.integers(0, 4, (2, 1))
    full = np.broadcast_to(lengths, (*a.shape[:6], 1, *a.shape[7:]))
    reversed_ = cudml.reverse_subsequences(a, lengths, 6)
    assert_identical(reversed_, reverse_oracle.reverse_lanes(a, full, 6))
    nine = np.zeros((3,) * 9, np.int8)
    with pytest.raises(
        ValueError, match="slice: the box is of 9 dimensions, must be of at most 8 dimensions"
    ):
        cudml.slice(nine, (0,) * 9, (2,) * 9)


def outputs_of(device: Device, results: Any, how: str) -> Any:
    """Outputs for the results of a call, each filled with a sentinel."""
    arrays = [np.full(result.shape, SENTINEL, result.dtype) for result in map(to_numpy, results)]
    return tuple(strided(device, array, how) for array in arrays)


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("function", ["top_k", "slice", "reverse_subsequences", "gru"])
def test_out_of_any_strides_is_filled_and_returned(
    function: str, how: str, device: Device, rng: np.random.Generator
) -> None:
    a = to_device(device, values(rng, (4, 9), np.float32))
    lengths = to_device(device, np.array([[0], [9], [4], [2]]))
    arrays = {name: to_device(device, array) for name, array in layer(rng, "forward").items()}

    def run(**out: Any) -> Any:
        if function == "top_k":
            return cudml.top_k(a, 3, axis=0, **out)
        if function == "slice":
            return cudml.slice(a, (3, 8), (2, 3), (-2, -3), **out)
        if function == "reverse_subsequences":
            return cudml.reverse_subsequences(a, lengths, **out)
        return cudml.gru(**arrays, **out)

    is_pair = function in ("top_k", "gru")
    expected = run() if is_pair else (run(),)
    for _ in range(2):  # planned, then found
        out = outputs_of(device, expected, how)
        got = run(out=out) if is_pair else (run(out=out[0]),)
        for result, given_, want in zip(got, out, expected, strict=True):
            assert result is given_
            assert_identical(result, to_numpy(want))


def test_gaps_of_out_are_left_alone() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    memory = np.full((3, 8), SENTINEL, np.float32)
    cudml.slice(a, (0, 0), (3, 4), out=memory[:, ::2])
    assert_identical(np.ascontiguousarray(memory[:, ::2]), a)
    assert (memory[:, 1::2] == SENTINEL).all()


@pytest.mark.parametrize("function", ["top_k", "slice", "reverse_subsequences"])
@pytest.mark.parametrize("first_byte", range(1, 8))
def test_arrays_at_odd_addresses(function: str, first_byte: int, rng: np.random.Generator) -> None:
    def odd(array: np.ndarray) -> np.ndarray:
        memory = np.zeros(array.nbytes + 8, np.uint8)
        moved = memory[first_byte : first_byte + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved

    a, lengths = values(rng, (5, 33), np.float64), rng.integers(0, 34, (5, 1), np.uint32)

    def run(a: np.ndarray, lengths: np.ndarray, out: Any = None) -> Any:
        if function == "top_k":
            return cudml.top_k(a, 4, out=out)
        only = None if out is None else out[0]
        if function == "slice":
            return (cudml.slice(a, (1, 3), (4, 29), out=only),)
        return (cudml.reverse_subsequences(a, lengths, out=only),)

    expected = run(a, lengths)
    out = tuple(odd(np.zeros_like(want)) for want in expected)
    for got in (run(odd(a), odd(lengths)), run(a, odd(lengths), out), run(odd(a), lengths, out)):
        for result, want in zip(got, expected, strict=True):
            assert_identical(np.array(result), want)
    assert all(result is given_ for result, given_ in zip(got, out, strict=True))


def test_a_planned_call_takes_no_array_at_an_odd_address() -> None:
    """Where a processor takes any address, only this tells."""
    memory = np.zeros(64, np.uint8)
    a, out = np.arange(12).reshape(3, 4), np.zeros((3, 4), np.int64)
    even, odd = memory[:12].view(np.uint32).reshape(3, 1), memory[1:13].view(np.uint32).reshape(3, 1)
    for outs in ((), (out,)):
        cudml.reverse_subsequences(a, even, -1, out=outs[0] if outs else None)
        assert api._reverse_calls.find((a, even), outs, -1)[1] is not None
        assert api._reverse_calls.find((a, odd), outs, -1)[1] is None


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i8"])
def test_a_planned_call_takes_arrays_wherever_their_type_is_aligned(dtype: str) -> None:
    memory = np.zeros(64, np.int64).view(np.uint8)
    indices = np.zeros(2, np.int64)
    places = [memory[first : first + 64].view(dtype)[:8] for first in range(8)]
    outputs = [memory[first : first + 64].view(dtype)[:2] for first in range(256, 264)]
    cudml.top_k(places[0], 2)
    cudml.top_k(places[0], 2, out=(outputs[0], indices))
    others = (2, -1, "largest")
    for place, output in zip(places, outputs, strict=True):
        assert (api._top_k_calls.find((place,), (), others)[1] is not None) == place.flags.aligned
        for given_ in ((place, outputs[0]), (places[0], output)):
            _, call = api._top_k_calls.find(given_[:1], (given_[1], indices), others)
            assert (call is not None) == place.flags.aligned


def test_fields_of_records_are_copied() -> None:
    records = np.zeros((3, 4), np.dtype([("tag", "u1"), ("value", "<f4")]))
    records["value"] = np.arange(12).reshape(3, 4)
    assert cudml.top_k(records["value"], 1).values.tolist() == [[3], [7], [11]]
    assert cudml.slice(records["value"], (2, 3), (1, 2), (1, -1)).tolist() == [[11, 10]]
    cudml.slice(np.ones((3, 4), np.float32), (0, 0), (3, 4), out=records["value"])
    assert (records["value"] == 1).all()
    assert (records["tag"] == 0).all()


def test_subclasses_count_as_arrays() -> None:
    class Tagged(np.ndarray):
        pass

    got = cudml.slice(np.arange(4).view(Tagged), (1,), (2,))
    assert type(got) is np.ndarray
    assert got.tolist() == [1, 2]


def test_results_are_new_arrays_and_inputs_stay(rng: np.random.Generator) -> None:
    a = values(rng, (4, 9), np.float32)
    a.flags.writeable = False
    before = a.tobytes()
    got = [cudml.slice(a, (0, 0), (4, 9)), cudml.reverse_subsequences(a, np.array(0)), *cudml.top_k(a, 9)]
    assert not any(np.shares_memory(result, a) for result in got)
    assert a.tobytes() == before


def test_named_results() -> None:
    got = cudml.top_k(np.arange(4), 2)
    assert got._fields == ("values", "indices")
    assert type(got) is type(cudml.top_k(np.arange(4), 2, out=(np.zeros(2, int), np.zeros(2, int))))


def test_a_warm_call_plans_nothing(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    def calls() -> list[Any]:
        a, arrays = values(rng, (4, 11), np.float32), layer(rng, "forward")
        return [
            cudml.top_k(a, 2),
            cudml.top_k(a, np.int64(2), axis=np.int8(1), out=cudml.top_k(a, 2)),  # type: ignore[arg-type]
            cudml.slice(a, [0, 1], (np.int64(2), 3)),
            cudml.reverse_subsequences(a, np.array([[1], [2], [3], [4]]), np.int32(-1)),  # type: ignore[arg-type]
            cudml.gru(**arrays),
            cudml.gru(**arrays, activations=["Tanh", Activation.relu()]),
        ]

    first = calls()
    monkeypatch.setattr("cudml.calls.Call.__init__", lambda *_: pytest.fail("planned again"))
    for got, want in zip(calls(), first, strict=True):
        assert type(got) is type(want)


def test_calls_of_equal_numbers_of_other_types_are_not_mixed_up() -> None:
    a = np.arange(6)
    cudml.top_k(a, 1, axis=0)
    cudml.slice(a, (1,), (2,), (1,))
    cudml.reverse_subsequences(a, np.array([3]), 0)
    with pytest.raises(TypeError, match=r"top_k: k is 1\.0, must be an integer"):
        cudml.top_k(a, 1.0, axis=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"top_k: axis is 0\.0, must be an integer"):
        cudml.top_k(a, 1, axis=0.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"slice: offsets is \(1\.0,\), must be a sequence of integers"):
        cudml.slice(a, (1.0,), (2,), (1,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"reverse_subsequences: axis is 0\.0, must be an integer"):
        cudml.reverse_subsequences(a, np.array([3]), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("as_given", [np.array, tuple, iter], ids=["array", "tuple", "iterator"])
def test_the_box_of_a_slice_may_be_any_sequence_of_integers(
    as_given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_slice_calls", CallCache())  # so that it is planned from what is given
    a = np.arange(12).reshape(3, 4)
    offsets, sizes, strides = as_given([2, 0]), as_given([2, 2]), as_given([-1, 3])
    assert_identical(cudml.slice(a, offsets, sizes, strides), a[:0:-1, ::3])


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ((), "strides is (), of length 0, must be of length 1, one a dimension"),
        (np.array([0]), "strides[0] is 0, must be any integer but 0"),
        (0, "strides is 0, must be a sequence of integers"),
    ],
    ids=["empty", "zero in an array", "zero"],
)
def test_wrong_strides_do_not_find_the_call_without_strides(strides: Any, message: str) -> None:
    a = np.arange(6)
    cudml.slice(a, (1,), (2,))
    with pytest.raises((TypeError, ValueError)) as caught:
        cudml.slice(a, (1,), (2,), strides)
    assert str(caught.value) == f"slice: {message}"


def test_more_calls_than_are_kept_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudml.calls.MAX_CALLS", 3)
    monkeypatch.setattr("cudml.calls.MAX_PLACES", 3)
    a = np.arange(40)
    for size in [*range(1, 8)] * 2:
        out = np.zeros(size, int)
        cudml.slice(a, (2,), (size,), out=out)
        assert out.tolist() == [*range(2, 2 + size)]
        assert cudml.slice(a, (2,), (size,)).tolist() == [*range(2, 2 + size)]
    assert len(api._slice_calls._calls) <= 3


def test_many_threads_call_at_once(rng: np.random.Generator) -> None:
    a = values(rng, (6, 50), np.int32)
    expected = {k: top_k_oracle.top_k(a, k) for k in range(1, 9)}
    wrong: list[int] = []

    def work() -> None:
        for k, want in expected.items():
            got = cudml.top_k(a, k)
            if not ((got.values == want[0]).all() and (got.indices == want[1]).all()):
                wrong.append(k)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.gpu
def test_gpu_arrays_of_other_libraries_are_worked_on_by_the_gpu() -> None:
    if not cudml.devices.cuda.status().usable:
        pytest.skip("no GPU")
    import cupy

    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        @property
        def __cuda_array_interface__(self) -> Any:
            return self.array.__cuda_array_interface__

    a = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    got = cudml.top_k(Foreign(a), 2)
    assert type(got.values) is cupy.ndarray
    assert got.indices.get().tolist() == [[3, 2]] * 3
    out = Foreign(cupy.zeros((1, 4), cupy.float32))
    assert cudml.slice(Foreign(a), (2, 0), (1, 4), out=out) is out
    assert out.array.get().tolist() == [[8, 9, 10, 11]]


@pytest.mark.gpu
def test_cpu_and_gpu_arrays_are_not_mixed() -> None:
    if not cudml.devices.cuda.status().usable:
        pytest.skip("no GPU")
    a, gpu = np.arange(4), to_device(get_device("cuda"), np.arange(4))
    for arrays, text in (((a, gpu), "on cuda:0, must be on cpu"), ((gpu, a), "on cpu, must be on cuda:0")):
        with pytest.raises(TypeError, match=f"sequence_lengths is {text}, where a is"):
            cudml.reverse_subsequences(*arrays)
    with pytest.raises(TypeError, match="slice: out is on cpu, must be on cuda:0, where a is"):
        cudml.slice(gpu, (0,), (2,), out=a[:2])
