"""The array functions: any shape, stride and dtype, and `out=`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cudml
from cudml import DataType, TensorDesc
from cudml.devices import Device, get_device
from cudml.executable import Recent
from cudml.functions import slice as slice_function
from cudml.tensors import tensor_of
from proof.oracle import reverse_subsequences as reverse_oracle
from proof.oracle import top_k as top_k_oracle
from tests.support import assert_identical, to_device, to_numpy
from tests.support.function_arrays import INTEGERS, LAYOUTS, REALS, layer, strided, values

MOVED = [*REALS, "complex64", "complex128", "S4", "datetime64[s]", ">f4", "V16"]
SENTINEL = 77

few = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("nan", ["last", "greatest"])
@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_top_k_of_every_dtype(
    dtype: Any, mode: Any, nan: Any, device: Device, rng: np.random.Generator
) -> None:
    a = values(rng, (3, 40), dtype)
    expected = top_k_oracle.top_k(a, 7, largest=mode == "largest", nan_last=nan == "last")
    for _ in range(2):  # planned, then found
        got = cudml.top_k(to_device(device, a), 7, mode=mode, nan=nan)
        assert_identical(got.values, expected[0])
        assert_identical(got.indices, expected[1])


@pytest.mark.parametrize("dtype", [dtype for dtype in REALS if np.dtype(dtype).kind in "fV"], ids=str)
def test_nan_is_where_it_is_asked_for(dtype: Any, device: Device) -> None:
    """The order of torch.topk and ONNX's TopK, and NumPy's; neither finds the plan of the other."""
    a = to_device(device, np.array([2, np.nan, np.inf, -np.inf, np.nan, 3]).astype(dtype))
    expected = {
        ("largest", "greatest"): [1, 4, 2, 5, 0, 3],
        ("smallest", "greatest"): [3, 0, 5, 2, 1, 4],
        ("largest", "last"): [2, 5, 0, 3, 1, 4],
        ("smallest", "last"): [3, 0, 5, 2, 1, 4],
    }
    for _ in range(2):
        for (mode, nan), indices in expected.items():
            for array in (a, a[(None,) * 8], *tagged([a])):  # straight, reshaped, unwrapped
                got = cudml.top_k(array, 6, mode=mode, nan=nan)  # type: ignore[call-overload]
                assert to_numpy(got.indices).ravel().tolist() == indices


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("shape", [(3, 40, 2), (2, 1, 3, 1, 2, 1, 2, 9, 1)], ids=["planned", "9 dimensions"])
def test_indices_of_every_type(
    shape: tuple[int, ...], dtype: str, device: Device, rng: np.random.Generator
) -> None:
    a = values(rng, shape, np.float16)
    for how in LAYOUTS:
        for k in (0, 1, shape[-2]):
            expected = top_k_oracle.top_k(a, k, -2, nan_last=True)
            indices = np.full(expected[1].shape, SENTINEL, dtype)
            out = strided(device, np.zeros_like(expected[0]), how), strided(device, indices, how)
            for _ in range(2):  # planned, then found
                got = cudml.top_k(to_device(device, a), k, axis=-2, out=out)
                assert got.values is out[0]
                assert got.indices is out[1]
                assert_identical(to_numpy(got.values), expected[0])
                assert_identical(to_numpy(got.indices), expected[1].astype(dtype))


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
def test_top_k_of_ragged_rows(data: st.DataObject, device: Device) -> None:
    """Lengths of every type and layout, and of fewer dimensions or broadcast."""
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=9))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lanes = (*shape[: axis % len(shape)], 1, *shape[axis % len(shape) + 1 :])
    k = data.draw(st.integers(1, shape[axis]))
    a = data.draw(hnp.arrays(np.int8, shape, elements=st.integers(-3, 3)))
    dtype = data.draw(st.sampled_from(INTEGERS))
    low = 0 if dtype.startswith("u") else -2
    own = tuple(data.draw(st.sampled_from((1, n))) for n in lanes)
    lengths = data.draw(hnp.arrays(dtype, own, elements=st.integers(low, 11)))
    mode = data.draw(st.sampled_from(("largest", "smallest")))
    array = strided(device, a, data.draw(st.sampled_from(LAYOUTS)))
    given_ = strided(device, lengths, data.draw(st.sampled_from(LAYOUTS)))
    got = cudml.top_k(array, k, axis=axis, mode=mode, lengths=given_)
    expected = top_k_oracle.ragged_top_k(a, lengths, k, axis, largest=mode == "largest")
    assert_identical(got.values, expected[0])
    assert_identical(got.indices, expected[1])


@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "bfloat16"])
def test_the_value_of_what_is_missing(dtype: str, mode: Any, rng: np.random.Generator) -> None:
    """The worst number, for both orders of NaN, and an index whose bits are all set."""
    kind = top_k_oracle.BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    a = values(rng, (2, 6), kind)
    for nan in ("last", "greatest"):
        expected = top_k_oracle.ragged_top_k(
            a, np.array([[3], [0]]), 5, largest=mode == "largest", nan_last=nan == "last"
        )
        for index_dtype in (np.int32, np.uint64):
            out = np.zeros_like(expected[0]), np.zeros((2, 5), index_dtype)
            cudml.top_k(a, 5, mode=mode, nan=nan, lengths=[[3], [0]], out=out)  # type: ignore[call-overload]
            assert_identical(out[0], expected[0])
            assert_identical(out[1], expected[1].astype(index_dtype))


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


EMPTY = [
    (lambda a: cudml.top_k(a, 0), [(4, 0), (4, 0)]),
    (lambda a: cudml.top_k(a, 0, axis=0, mode="smallest", nan="greatest"), [(0, 5), (0, 5)]),
    (lambda a: cudml.top_k(a[:0], 0, axis=0), [(0, 5), (0, 5)]),
    (lambda a: cudml.top_k(a[(None,) * 7], 0), [(1,) * 7 + (4, 0)] * 2),
    (lambda a: cudml.top_k(a[(None,) * 7][..., :0], 0), [(1,) * 7 + (4, 0)] * 2),
    (lambda a: cudml.top_k(a[:, :0], 2, axis=0), [(2, 0), (2, 0)]),
    (lambda a: cudml.top_k(a, 0, lengths=a[:, :1].astype("int32")), [(4, 0), (4, 0)]),
    (lambda a: cudml.top_k(a[:0], 2, lengths=a[:0, :1].astype("int32")), [(0, 2), (0, 2)]),
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
    monkeypatch.setattr(device, "load", lambda *_: pytest.fail("a plan was loaded"))
    results = run(to_device(device, np.zeros((4, 5), np.float32)))
    results = results if isinstance(results, tuple) else (results,)
    assert [result.shape for result in results] == shapes
    assert results[0].dtype == np.float32


def test_arrays_without_dimensions() -> None:
    a = np.array(5.0)
    assert_identical(cudml.slice(a, (), ()), a)
    assert tensor_of(DataType.FLOAT64, (), a) == TensorDesc(DataType.FLOAT64, (1,))
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
    expected = top_k_oracle.ragged_top_k(a, lengths, 2, 6)
    for got in (cudml.top_k(a, 2, axis=6, lengths=lengths) for _ in range(2)):
        assert_identical(got.values, expected[0])
        assert_identical(got.indices, expected[1])
    full = np.broadcast_to(lengths, (*a.shape[:6], 1, *a.shape[7:]))
    reversed_ = cudml.reverse_subsequences(a, lengths, 6)
    assert_identical(reversed_, reverse_oracle.reverse_lanes(a, full, 6))


@pytest.mark.parametrize("shape", [(3,) * 9, (3, 2, 3, 2, 3, 2, 3, 1, 2, 3, 2)])
def test_a_box_of_more_dimensions_than_kernels_have(shape: tuple[int, ...], device: Device) -> None:
    ndim = len(shape)
    a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    sizes = tuple((n + 1) // 2 for n in shape)
    last = tuple(n - 1 for n in shape)
    moved = to_device(device, a)
    for _ in range(2):  # planned, then found
        first = cudml.slice(moved, (0,) * ndim, sizes, (2,) * ndim)
        assert_identical(to_numpy(first), a[(np.s_[::2],) * ndim])
        out = to_device(device, np.full((2, *sizes), SENTINEL, a.dtype))
        assert cudml.slice(moved, last, sizes, (-2,) * ndim, out=out[0]) is not None
        assert_identical(to_numpy(out)[0], a[(np.s_[::-2],) * ndim])
        assert (to_numpy(out)[1] == SENTINEL).all()
    empty = cudml.slice(moved, (0,) * ndim, (2, 0) * 4 + (2,) * (ndim - 8), (1,) * ndim)
    assert empty.shape == (2, 0) * 4 + (2,) * (ndim - 8)
    before = to_numpy(moved).copy()
    with pytest.raises(ValueError, match="slice: out is overlapping a"):
        cudml.slice(moved, (0,) * ndim, sizes, (2,) * ndim, out=moved[tuple(np.s_[:n] for n in sizes)])
    assert_identical(to_numpy(moved), before)
    with pytest.raises(ValueError, match=r"slice: offsets\[0\] is 3, must be from 0 to 2"):
        cudml.slice(moved, (3,) * ndim, sizes, (2,) * ndim)


def test_lengths_may_be_a_list_or_an_integer(device: Device, rng: np.random.Generator) -> None:
    host = rng.integers(0, 99, (3, 5))
    a = to_device(device, host)
    for lengths in ([[2], [9], [0]], [[4]], [3], (1,), 4, 0, -2, 2**70, np.int8(3)):
        full = np.broadcast_to(np.clip(np.array(lengths, float), 0, 9).astype(int), (3, 1))
        for _ in range(2):
            got = cudml.reverse_subsequences(a, lengths)
            assert device.owns(got)
            assert_identical(to_numpy(got), reverse_oracle.reverse_lanes(host, full, 1))
            best = cudml.top_k(a, 4, lengths=lengths)
            expected = top_k_oracle.ragged_top_k(host, full, 4)
            assert_identical(to_numpy(best.values), expected[0])
            assert_identical(to_numpy(best.indices), expected[1])
    arrays = {name: to_device(device, array) for name, array in layer(rng, "forward").items()}
    batch = arrays["x"].shape[1]
    for lengths in (2, 0, -1, 10**12, [1] * batch, tuple(range(batch))):
        packed = np.broadcast_to(np.array(lengths, np.int64), (batch,)).copy()
        expected = cudml.gru(**arrays | {"sequence_lengths": to_device(device, packed)})
        for _ in range(2):
            got = cudml.gru(**arrays | {"sequence_lengths": lengths})
            for part, whole in zip(got, expected, strict=True):
                assert_identical(to_numpy(part), to_numpy(whole))
    empty = to_device(device, np.zeros((4, 0)))
    assert cudml.reverse_subsequences(empty, [], 0).shape == (4, 0)


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


def test_fields_of_records_are_copied() -> None:
    records = np.zeros((3, 4), np.dtype([("tag", "u1"), ("value", "<f4")]))
    records["value"] = np.arange(12).reshape(3, 4)
    assert cudml.top_k(records["value"], 1).values.tolist() == [[3], [7], [11]]
    assert cudml.slice(records["value"], (2, 3), (1, 2), (1, -1)).tolist() == [[11, 10]]
    cudml.slice(np.ones((3, 4), np.float32), (0, 0), (3, 4), out=records["value"])
    assert (records["value"] == 1).all()
    assert (records["tag"] == 0).all()


class Tagged(np.ndarray):
    """A subclass of NumPy's array, which the functions take like a plain one."""


def tagged(values: Any) -> Any:
    """The same arrays as subclasses; anything else unchanged."""
    return [value.view(Tagged) if isinstance(value, np.ndarray) else value for value in values]


@pytest.mark.parametrize("function", ["top_k", "slice", "reverse_subsequences", "gru"])
@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("is_output", [False, True])
def test_subclasses_count_as_arrays(
    function: str, is_input: bool, is_output: bool, rng: np.random.Generator
) -> None:
    a, arrays = values(rng, (5, 9), np.float32), [*layer(rng, "reverse").values()]
    given_, named = {
        "top_k": ([a, 3], {"axis": 0, "mode": "smallest"}),
        "slice": ([a, (4, 1), (2, 3), (-2, 3)], {}),
        "reverse_subsequences": ([a, np.arange(9, dtype=np.int32)[None], 0], {}),
        "gru": (
            arrays,
            {"direction": "reverse", "activations": ("Tanh", "Relu"), "linear_before_reset": True},
        ),
    }[function]
    is_pair = function in ("top_k", "gru")
    run = getattr(cudml, function)
    plain = run(*given_, **named)
    expected = plain if is_pair else (plain,)
    arguments = tagged(given_) if is_input else given_
    got = run(*arguments, **named)
    for result, want in zip(got if is_pair else (got,), expected, strict=True):
        assert type(result) is np.ndarray
        assert_identical(result, want)
    outs = [np.zeros_like(want) for want in expected]
    outs = tagged(outs) if is_output else outs
    got = run(*arguments, **named, out=tuple(outs) if is_pair else outs[0])
    for result, out, want in zip(got if is_pair else (got,), outs, expected, strict=True):
        assert result is out
        assert_identical(np.asarray(result), want)


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


@pytest.mark.parametrize("as_given", [np.array, tuple, iter], ids=["array", "tuple", "iterator"])
def test_the_box_of_a_slice_may_be_any_sequence_of_integers(
    as_given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_function._slice, "calls", Recent(3))  # so that it is planned from its arguments
    a = np.arange(12).reshape(3, 4)
    offsets, sizes, strides = as_given([2, 0]), as_given([2, 2]), as_given([-1, 3])
    assert_identical(cudml.slice(a, offsets, sizes, strides), a[:0:-1, ::3])


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
