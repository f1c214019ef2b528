"""Planned calls: found again by layouts and arguments, and never used for arrays that they do not fit."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import cudml
from cudml import Activation
from cudml.devices import get_device
from cudml.executable import Recent
from cudml.functions import reverse_subsequences as reverse_function
from cudml.functions import slice as slice_function
from cudml.functions import top_k as top_k_function
from proof.oracle import top_k as top_k_oracle
from tests.support import assert_identical
from tests.support.function_arrays import layer, values


def test_a_planned_call_takes_no_array_at_an_odd_address() -> None:
    """On a processor that accepts any address, only this test detects it."""
    memory = np.zeros(64, np.uint8)
    a, out = np.arange(12).reshape(3, 4), np.zeros((3, 4), np.int64)
    even, odd = memory[:12].view(np.uint32).reshape(3, 1), memory[1:13].view(np.uint32).reshape(3, 1)
    for outs in ((), (out,)):
        cudml.reverse_subsequences(a, even, -1, out=outs[0] if outs else None)
        assert reverse_function._reverse_subsequences.find((a, even), outs, (-1,)) is not None
        assert reverse_function._reverse_subsequences.find((a, odd), outs, (-1,)) is None


def test_planned_copies_take_arrays_at_any_address() -> None:
    memory, lengths = np.zeros(96, np.uint8), np.array([[2], [1], [3]])
    even, odd = (memory[first : first + 48].view(np.float32).reshape(3, 4) for first in (0, 1))
    even_out, odd_out = (
        np.zeros(64, np.uint8)[first:][:48].view(np.float32).reshape(3, 4) for first in (0, 1)
    )
    box = ((0, 0), (3, 4), None)
    cudml.slice(even, *box, out=even_out)
    cudml.reverse_subsequences(even, lengths, -1, out=even_out)
    for a, out in ((odd, even_out), (even, odd_out), (odd, odd_out)):
        assert slice_function._slice.find((a,), (out,), box[1:]) is not None
        assert reverse_function._reverse_subsequences.find((a, lengths), (out,), (-1,)) is not None


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i8"])
def test_a_planned_call_takes_arrays_wherever_their_type_is_aligned(dtype: str) -> None:
    memory = np.zeros(64, np.int64).view(np.uint8)
    indices = np.zeros(2, np.int64)
    places = [memory[first : first + 64].view(dtype)[:8] for first in range(8)]
    outputs = [memory[first : first + 64].view(dtype)[:2] for first in range(256, 264)]
    cudml.top_k(places[0], 2)
    cudml.top_k(places[0], 2, out=(outputs[0], indices))
    others = (2, -1, "largest", "last")
    for place, output in zip(places, outputs, strict=True):
        call = top_k_function._top_k.find((place,), (), others)
        assert (call is not None) == place.flags.aligned
        for given_ in ((place, outputs[0]), (places[0], output)):
            call = top_k_function._top_k.find(given_[:1], (given_[1], indices), others)
            assert (call is not None) == place.flags.aligned


def test_a_warm_call_plans_nothing(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    def calls() -> list[Any]:
        a, arrays = values(rng, (4, 11), np.float32), layer(rng, "forward")
        return [
            cudml.top_k(a, 2),
            cudml.top_k(a, np.int64(2), axis=np.int8(1), out=cudml.top_k(a, 2)),  # type: ignore[arg-type]
            cudml.top_k(a, 2, lengths=np.array([[1], [2], [3], [4]])),
            cudml.slice(a, [0, 1], (np.int64(2), 3)),
            cudml.reverse_subsequences(a, np.array([[1], [2], [3], [4]]), np.int32(-1)),  # type: ignore[arg-type]
            cudml.gru(**arrays),
            cudml.gru(**arrays, activations=["Tanh", Activation.relu()]),
        ]

    first = calls()
    monkeypatch.setattr(
        "cudml.functions.calls.ArrayFunction._loaded", lambda *_: pytest.fail("planned again")
    )
    for got, want in zip(calls(), first, strict=True):
        assert type(got) is type(want)


class Subclass(np.ndarray):
    """An array type that the kernels do not know."""


class Exporter:
    """An array that another library shares by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_normalised_arguments_find_the_call_that_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, arrays = values(rng, (4, 11), np.float32), layer(rng, "forward")
    odd = np.zeros(4 * 11 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 11)
    odd[...] = a
    many = a.reshape(2, 1, 2, 1, 1, 1, 1, 1, 11)
    lengths = np.arange(arrays["x"].shape[1])

    def calls() -> list[Any]:
        given = [a.view(Subclass), Exporter(a), odd]
        results: list[Any] = [cudml.top_k(array, 2) for array in (*given, many)]
        results += [cudml.top_k(array, 2, lengths=[[1], [2], [3], [4]]) for array in given]
        results += [cudml.top_k(many, 2, lengths=5)]
        results += [cudml.slice(array, (0, 1), (2, 3)) for array in given]
        results += [cudml.slice(many, (0,) * 9, many.shape, (1,) * 8 + (1,))]
        results += [cudml.reverse_subsequences(array, [[1], [2], [3], [4]]) for array in given]
        results += [cudml.reverse_subsequences(many, 5)]
        for dtype in ("i1", "u1", "i2", "i4", "u4", "i8", "u8"):
            results += [cudml.gru(**(arrays | {"sequence_lengths": lengths.astype(dtype)}))]
        results += [cudml.gru(**(arrays | {"sequence_lengths": lengths.tolist()}))]
        return results

    first = calls()
    monkeypatch.setattr(
        "cudml.functions.calls.ArrayFunction._loaded", lambda *_: pytest.fail("planned again")
    )
    for got, want in zip(calls(), first, strict=True):
        for ours, theirs in zip(got, want, strict=True):
            assert_identical(ours, theirs)


def test_plans_do_not_depend_on_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.arange(40 * 50, dtype=np.int32).reshape(40, 50)
    for column in range(8):  # of every alignment
        cudml.slice(a, (0, column), (7, 9), (2, 3))
    monkeypatch.setattr(get_device("cpu"), "load", lambda *_: pytest.fail("a plan was loaded"))
    for row in range(28):
        for column in range(26):
            got = cudml.slice(a, (row, column), (7, 9), (2, 3))
            assert_identical(got, a[row : row + 13 : 2, column : column + 25 : 3])


@pytest.mark.parametrize(
    ("offsets", "strides"),
    [
        ((28, 0), (2, 3)),
        ((0, 26), (2, 3)),
        ((-1, 0), (2, 3)),
        ((0,), (2, 3)),
        ((11, 0), (-2, 3)),
        ((40, 0), (-2, 3)),
    ],
)
def test_an_offset_out_of_bounds_is_refused_by_a_warm_call_as_by_a_cold_one(
    offsets: tuple[int, ...], strides: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = np.arange(40 * 50).reshape(40, 50)
    messages = []
    monkeypatch.setattr(slice_function._slice, "calls", Recent(9))
    for _ in range(2):
        with pytest.raises(ValueError, match="slice: ") as caught:
            cudml.slice(a, offsets, (7, 9), strides)
        messages.append(str(caught.value))
        cudml.slice(a, (12, 0), (7, 9), strides)
    assert messages[0] == messages[1]


def test_an_empty_tuple_of_outputs_is_refused_by_a_warm_call() -> None:
    a = np.arange(6)
    cudml.top_k(a, 1)
    with pytest.raises(TypeError, match="top_k: out is a tuple of 0"):
        cudml.top_k(a, 1, out=())  # type: ignore[call-overload]


def test_the_oldest_entry_goes_first() -> None:
    kept: Recent[int, int] = Recent(3)
    for number in range(5):
        kept[number] = number
    assert [*kept] == [2, 3, 4]


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


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ((), "strides is (), of length 0, must be of length 1, one per dimension"),
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
    monkeypatch.setattr(slice_function._slice.calls, "most", 3)
    monkeypatch.setattr("cudml.functions.calls.MAX_GOOD", 3)
    a = np.arange(40)
    for size in [*range(1, 8)] * 2:
        out = np.zeros(size, int)
        cudml.slice(a, (2,), (size,), out=out)
        assert out.tolist() == [*range(2, 2 + size)]
        assert cudml.slice(a, (2,), (size,)).tolist() == [*range(2, 2 + size)]
    assert len(slice_function._slice.calls) <= 3


def test_a_call_that_is_dropped_is_freed_at_once() -> None:
    """Cycles of references would keep it until a garbage collection, which later calls would pay for."""
    a, out = np.zeros((4, 8), np.float32), np.zeros((4, 2), np.float32)
    odd = np.zeros(129, np.uint8)[1:].view(np.float32).reshape(4, 8)
    functions = (top_k_function._top_k, slice_function._slice, reverse_function._reverse_subsequences)
    for function in functions:
        function.calls.clear()
    gc.disable()
    try:
        cudml.top_k(a, 2)
        cudml.top_k(odd, 2, out=(out, np.zeros((4, 2), np.int64)))
        cudml.slice(a, (0, 1), (4, 3))
        cudml.slice(a, (0, 1), (4, 0))
        cudml.reverse_subsequences(a, 3)
        planned = [weakref.ref(call) for function in functions for call in function.calls.values()]
        for function in functions:
            function.calls.clear()
        assert [call() for call in planned] == [None] * 5
    finally:
        gc.enable()


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
