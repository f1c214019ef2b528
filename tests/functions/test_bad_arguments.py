"""Wrong arguments of the array functions: every error with its text, and no output touched."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudml
from cudml.functions import slice as slice_function

SENTINEL = -77


def arrays() -> dict[str, np.ndarray]:
    """A layer with T 2, N 1, I 3, H 2."""
    shapes = {"x": (2, 1, 3), "w": (1, 6, 3), "r": (1, 6, 2)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


A = np.arange(12, dtype=np.float32).reshape(3, 4)
OBJECTS = np.array([[None, 1]])


class Table:
    """An object that NumPy can convert to an array, such as a table of pandas."""

    def __array__(self) -> np.ndarray:
        return A


TOP_K_ERRORS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "list": (([1, 2], 1), {}, TypeError, "a is a list, must be a NumPy array, a CuPy array or an object"),
    "none": ((None, 1), {}, TypeError, "a is a NoneType, must be a NumPy array"),
    "table": ((Table(), 1), {}, TypeError, "a is a tests.functions.test_bad_arguments.Table, must be a"),
    "number": ((3, 1), {}, TypeError, "a is an int, must be a NumPy array"),
    "scalar": ((np.float32(1), 1), {}, TypeError, "a is a numpy.float32, must be a NumPy array"),
    "masked": ((np.ma.masked_array(A, A > 3), 1), {}, TypeError, "a is a masked array, must be an array"),
    "objects": ((OBJECTS, 1), {}, TypeError, "a is of dtype object, must be of bool, int8, int16, int32, in"),
    "complex": ((A.astype(complex), 1), {}, TypeError, "a is of dtype complex128, must be of bool"),
    "class": ((np.ndarray, 1), {}, TypeError, "a is the class ndarray, must be a NumPy array, a CuPy array"),
    "swapped": ((A.astype(">f4"), 1), {}, TypeError, "a is of dtype >f4, must be in native byte order, as a"),
    "text": ((np.array(["a", "b"]), 1), {}, TypeError, "a is of dtype <U1, must be of bool"),
    "k negative": ((A, -1), {}, ValueError, "k is -1, must be from 0 to the size of axis 1, which is 4"),
    "k large": ((A, 4), {"axis": 0}, ValueError, "k is 4, must be from 0 to the size of axis 0, which is 3"),
    "k huge": ((A, 2**70), {}, ValueError, "k is 1180591620717411303424, must be from 0 to"),
    "k float": ((A, 1.5), {}, TypeError, "k is 1.5, must be an integer"),
    "no elements": ((A[:, :0], 1), {}, ValueError, "k is 1, must be from 0 to the size of axis 1, which is"),
    "axis": ((A, 1), {"axis": 2}, np.exceptions.AxisError, "axis must be from -2 to 1: axis 2 is out of bo"),
    "axis low": ((A, 1), {"axis": -3}, np.exceptions.AxisError, "axis must be from -2 to 1: axis -3 is o"),
    "axis none": ((A, 1), {"axis": None}, ValueError, "axis is None, must be an integer: flattening is up t"),
    "axis text": ((A, 1), {"axis": "x"}, TypeError, "axis is 'x', must be an integer"),
    "no axis": ((np.array(1), 0), {}, np.exceptions.AxisError, "a must have a dimension: axis -1 is o"),
    "mode": ((A, 1), {"mode": "max"}, ValueError, "mode is 'max', must be 'largest' or 'smallest'"),
    "mode array": ((A, 1), {"mode": np.array([1, 2])}, ValueError, "mode is array([1, 2]), must be 'large"),
    "mode list": ((A, 1), {"mode": []}, ValueError, "mode is [], must be 'largest' or 'smallest'"),
    "nan": ((A, 1), {"nan": "first"}, ValueError, "nan is 'first', must be 'last' or 'greatest'"),
    "nan none": ((A, 1), {"nan": None}, ValueError, "nan is None, must be 'last' or 'greatest'"),
    "nan list": ((A, 1), {"nan": ["last"]}, ValueError, "nan is ['last'], must be 'last' or 'greatest'"),
    "out alone": ((A, 1), {"out": A}, TypeError, "out is a numpy.ndarray, must be a tuple of two arr"),
    "out of three": ((A, 1), {"out": (A, A, A)}, TypeError, "out is a tuple of 3, must be a tuple of two ar"),
    "int16": ((A, 4), {"out": (A, np.int16([[0]]))}, TypeError, "out[1] is of dtype int16, must be"),
    "swapped out": ((A, 4), {"out": (A, np.zeros(1, ">i4"))}, TypeError, "out[1] is of dtype >i4, must be"),
    "float": ((A, 4), {"out": (A, A)}, TypeError, "out[1] is of dtype float32, must be of int32, in"),
    "out list": ((A, 1), {"out": (A[:, :1].copy(), [1])}, TypeError, "out[1] is a list, must be a NumPy arr"),
    "lengths floats": ((A, 1), {"lengths": [[1.0]] * 3}, TypeError, "lengths is a list of float64, must be"),
    "lengths text": ((A, 1), {"lengths": [["a"]]}, TypeError, "lengths is a list of <U1, must be a list"),
    "lengths huge": ((A, 1), {"lengths": [[2**70]]}, TypeError, "lengths is a list of object, must be a list "
                     "of integers that one type of 64 bits holds"),
    "lengths wide": ((A, 1), {"lengths": [[2**63], [-1]]}, TypeError, "lengths is a list of float64, must be "
                     "a list of integers that one type of 64 bits holds"),
    "lengths bools": ((A, 1), {"lengths": A > 0}, TypeError, "lengths is of dtype bool, must be of int8, in"),
    "lengths bool": ((A, 1), {"lengths": True}, TypeError, "lengths is a bool, must be an integer, a list"),
    "lengths float": ((A, 1), {"lengths": 2.0}, TypeError, "lengths is a float, must be an integer, a list"),
    "lengths gaps": ((A, 1), {"lengths": [[1], [1, 2]]}, ValueError, "lengths is [[1], [1, 2]], must be a l"),
    "lengths shape": ((A, 1), {"lengths": [1, 2, 3]}, ValueError, "lengths is of shape (3,), must be of a s"),
    "lengths whole": ((A, 1), {"lengths": A.astype(int)}, ValueError, "lengths is of shape (3, 4), must be "),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "options", "kind", "message"), TOP_K_ERRORS.values(), ids=TOP_K_ERRORS)
def test_top_k_says_what_is_wrong(
    given_: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.top_k(*given_, **options)
        assert str(caught.value).startswith(f"top_k: {message}")


def test_indices_of_a_type_that_cannot_hold_them_are_refused() -> None:
    values, indices = np.zeros(2, np.int8), np.full(2, SENTINEL, np.int32)
    longest = np.broadcast_to(np.int8(0), 2**31)
    cudml.top_k(longest, 0, out=(values[:0], indices[:0]))
    for size in (2**31 + 1, 2**32 - 1):
        for k in (0, 2):
            with pytest.raises(ValueError, match="is of int32") as caught:
                cudml.top_k(np.broadcast_to(np.int8(0), size), k, out=(values[:k], indices[:k]))
            expected = f"of a type that holds the last index of axis 0, which is {size - 1}"
            assert str(caught.value) == (
                f"top_k: out[1] is of int32, which ends at 2147483647, must be {expected}"
            )
    assert indices.tolist() == [SENTINEL] * 2


@pytest.mark.parametrize("given_", [[1.0], np.float32(1), Table()], ids=["list", "scalar", "table"])
def test_an_object_that_numpy_converts_is_reported(given_: Any) -> None:
    with pytest.raises(TypeError, match=r"; numpy\.asarray makes one$"):
        cudml.top_k(given_, 1)


NAMES = "axis, mode, sorted, nan, lengths, out, stream"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cudml.top_k(1, A), "top_k: a is an int, .*; the array comes before numbers"),
        (lambda: cudml.top_k(A, k=1), "top_k: k is given by name, must be argument 2, without a name"),
        (lambda: cudml.top_k(A, 1, 0), "top_k\\(\\) takes from 1 to 2 positional arguments but 3 were given"),
        (
            lambda: cudml.top_k(A, 1, largest=False),
            "top_k: largest is no argument, must be mode='largest' or",
        ),
        (lambda: cudml.top_k(A, 1, dim=0), "top_k: dim is no argument, must be axis="),
        (lambda: cudml.top_k(A, -1), "top_k: k is -1, must be .*; mode='smallest' selects the smallest"),
        (lambda: cudml.top_k(A, 1, best=3), f"top_k: best is no argument, must be one of {NAMES}"),
        (lambda: cudml.top_k(A), "k is None, must be an integer"),
        (lambda: cudml.slice(A, starts=(0, 0), ends=(1, 1)), "arguments: 'offsets' and 'sizes'"),
        (lambda: cudml.slice(A, (0, 0), (1, 1), steps=2), "slice: steps is no argument, must be strides="),
        (lambda: cudml.reverse_subsequences(A, lengths=3), "positional argument: 'sequence_lengths'"),
        (lambda: cudml.reverse_subsequences(A, 3, time_axis=1), "time_axis is no argument, must be axis="),
        (lambda: cudml.gru(A, A, A, hx=A), "^gru: hx is no argument, must be h0=$"),
        (
            lambda: cudml.gru(A, A, A, num_layers=2),
            "gru: num_layers is no argument, must be left out:",
        ),
        (lambda: cudml.gru(A, A), "positional argument: 'r'"),
    ],
)
def test_words_of_other_libraries(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError if "k is -1" not in message else ValueError, match=message):
        call()


def test_errors_from_within_stay_as_they_are() -> None:
    """A TypeError that an argument's own method raises is not taken for a wrong argument list."""

    class Broken:
        def __index__(self) -> int:
            raise TypeError("from within")

    with pytest.raises(TypeError, match=r"^reverse_subsequences: axis is"):
        cudml.reverse_subsequences(A, 3, Broken())


SLICE_ERRORS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "list": (([1], (0,), (1,)), TypeError, "a is a list, must be a NumPy array"),
    "objects": ((OBJECTS, (0, 0), (1, 1)), TypeError, "a is of dtype object, must be of a dtype of 1, 2, 4,"),
    "3 bytes": ((np.zeros(2, "S3"), (0,), (1,)), TypeError, "a is of dtype |S3, must be of a dtype of 1, 2,"),
    "few": ((A, (0,), (1, 1)), ValueError, "offsets is (0,), of length 1, must be of length 2, one per di"),
    "many": ((A, (0, 0), (1, 1, 1)), ValueError, "sizes is (1, 1, 1), of length 3, must be of length 2"),
    "number": ((A, 0, (1, 1)), TypeError, "offsets is 0, must be a sequence of integers"),
    "set": ((A, {0, 1}, (1, 1)), TypeError, "offsets is {0, 1}, must be a sequence of integers"),
    "mapping": ((A, (0, 0), {1: 0, 2: 0}), TypeError, "sizes is {1: 0, 2: 0}, must be a sequence"),
    "keys": ((A, (0, 0), (1, 1), {1: 0, 2: 0}.keys()), TypeError, "strides is dict_keys([1, 2]), must be a "),
    "float": ((A, (0, 0), (1, 1.0)), TypeError, "sizes is (1, 1.0), must be a sequence of integers"),
    "strides": ((A, (0, 0), (1, 1), (1,)), ValueError, "strides is (1,), of length 1, must be of length 2"),
    "negative size": ((A, (0, 0), (1, -1)), ValueError, "sizes[1] is -1, must be 0 or more"),
    "no step": ((A, (0, 0), (1, 1), (1, 0)), ValueError, "strides[1] is 0, must be any integer but 0"),
    "before": ((A, (-1, 0), (1, 1)), ValueError, "offsets[0] is -1, must be from 0 to 2, an element of dime"),
    "past the end": ((A, (0, 5), (1, 0)), ValueError, "offsets[1] is 5, must be from 0 to 4, a place of dim"),
    "past": ((A, (0, 4), (1, 1)), ValueError, "offsets[1] is 4, must be from 0 to 3, an element of dimensio"),
    "end": ((A, (1, 0), (3, 1)), ValueError, "the last element of dimension 0 is 3 = 1 + (3 - 1) * 1, must"),
    "start": ((A, (0, 1), (1, 3), (1, -1)), ValueError, "the last element of dimension 1 is -1 = 1 + (3 - 1"),
    "huge": ((A, (0, 0), (1, 2**70)), ValueError, "the last element of dimension 1 is 118059162071741130342"),
    "empty": ((A[:0], (0, 0), (1, 1)), ValueError, "sizes[0] is 1, must be 0, because dimension 0 is empty"),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "kind", "message"), SLICE_ERRORS.values(), ids=SLICE_ERRORS)
def test_slice_says_what_is_wrong(given_: tuple[Any, ...], kind: type[Exception], message: str) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.slice(*given_)
        assert str(caught.value).startswith(f"slice: {message}")


@pytest.mark.parametrize(
    ("given_", "kind", "problems"),
    [
        (
            (A, 0, {1, 2}, "12"),
            TypeError,
            [
                "offsets is 0, must be a sequence of integers",
                "sizes is {1, 2}, must be a sequence of integers",
                "strides is '12', must be a sequence of integers",
            ],
        ),
        (
            (A, (0,), (1, 1), (1, 1, 1)),
            ValueError,
            [
                "offsets is (0,), of length 1, must be of length 2, one per dimension",
                "strides is (1, 1, 1), of length 3, must be of length 2, one per dimension",
            ],
        ),
        (
            (OBJECTS, (0, 2), (2, -1), (1, 0)),
            TypeError,
            [
                "a is of dtype object, must be of a dtype of 1, 2, 4, 8 or 16 bytes without objects",
                "the last element of dimension 0 is 1 = 0 + (2 - 1) * 1, must be from 0 to 0",
                "sizes[1] is -1, must be 0 or more",
                "strides[1] is 0, must be any integer but 0",
                "offsets[1] is 2, must be from 0 to 1, an element of dimension 1",
            ],
        ),
        (
            (A, (3, 0), (1, 5)),
            ValueError,
            [
                "offsets[0] is 3, must be from 0 to 2, an element of dimension 0",
                "the last element of dimension 1 is 4 = 0 + (5 - 1) * 1, must be from 0 to 3",
            ],
        ),
    ],
    ids=["types", "lengths", "a and box", "box"],
)
def test_slice_says_all_that_is_wrong(
    given_: tuple[Any, ...], kind: type[Exception], problems: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        cudml.slice(*given_)
    assert str(caught.value) == f"slice: {'; '.join(problems)}"


def test_slice_says_what_is_wrong_with_the_output_too() -> None:
    with pytest.raises(TypeError) as caught:
        cudml.slice(A, (0, 9), (1, 1), out=np.zeros((1, 1)))
    assert str(caught.value) == (
        "slice: offsets[1] is 9, must be from 0 to 3, an element of dimension 1; "
        "out is of dtype float64, must be of dtype float32"
    )


def test_a_place_outside_of_a_planned_box_is_reported_in_every_dimension() -> None:
    cudml.slice(A, (0, 0), (2, 2))
    with pytest.raises(ValueError, match=r"the last element of dimension 0 is 3 .*; offsets\[1\] is 4, must"):
        cudml.slice(A, (2, 4), (2, 2))


def test_a_set_does_not_find_the_call_of_a_tuple() -> None:
    cudml.slice(A, (0, 1), (1, 1))
    with pytest.raises(TypeError, match=r"slice: offsets is \{0, 1\}, must be a sequence"):
        cudml.slice(A, {0, 1}, (1, 1))


@pytest.mark.parametrize(
    ("shape", "axis", "lengths", "hint"),
    [
        ((3, 4), 1, (3,), "; sequence_lengths[:, None] is"),
        ((3, 4, 5), 1, (3, 5), "; sequence_lengths[:, None] is"),
        ((3, 4, 5), -1, (3, 4), "; sequence_lengths[:, :, None] is"),
        ((3, 4), 1, (4,), ""),
        ((3, 4, 5), 2, (3,), ""),
    ],
)
def test_lengths_that_lack_the_axis_are_shown_how_to_get_it(
    shape: tuple[int, ...], axis: int, lengths: tuple[int, ...], hint: str
) -> None:
    with pytest.raises(ValueError, match="must be of a shape that broadcasts to") as caught:
        cudml.reverse_subsequences(np.zeros(shape), np.ones(lengths, int), axis)
    assert str(caught.value).endswith(f"the shape of a with 1 at the axis{hint}")
    if hint:
        index = eval(f"np.s_{hint[18:-3]}")
        cudml.reverse_subsequences(np.zeros(shape), np.ones(lengths, int)[index], axis)
    with pytest.raises(ValueError, match="top_k: lengths is of shape") as caught:
        cudml.top_k(np.zeros(shape), 1, axis=axis, lengths=np.ones(lengths, int))
    assert str(caught.value).endswith(f"1 at the axis{hint.replace('sequence_', '')}")


ONES = np.ones((3, 1), np.int32)
REVERSE_ERRORS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "list of floats": ((A, [[1.0]] * 3), TypeError, "sequence_lengths is a list of float64, must be a li"),
    "list of bools": ((A, [True]), TypeError, "sequence_lengths is a list of bool, must be a list of"),
    "uneven lists": ((A, [[1], [1, 2]]), ValueError, "sequence_lengths is [[1], [1, 2]], must be a list wi"),
    "bool": ((A, True), TypeError, "sequence_lengths is a bool, must be an integer, a list of integers"),
    "float": ((A, 2.0), TypeError, "sequence_lengths is a float, must be an integer, a list of integers"),
    "none": ((A, None), TypeError, "sequence_lengths is a NoneType, must be an integer, a li"),
    "floats": ((A, ONES.astype(float)), TypeError, "sequence_lengths is of dtype float64, must be of int8,"),
    "bools": ((A, ONES > 0), TypeError, "sequence_lengths is of dtype bool, must be of int8"),
    "shape": ((A, ONES[:2]), ValueError, "sequence_lengths is of shape (2, 1), must be of a shape that broa"),
    "whole": ((A, A.astype(int)), ValueError, "sequence_lengths is of shape (3, 4), must be of a shape that"),
    "more": ((A, ONES[None]), ValueError, "sequence_lengths is of shape (1, 3, 1), must be of a shape that"),
    "axis": ((A, ONES, 2), np.exceptions.AxisError, "axis must be from -2 to 1: axis 2 is out of b"),
    "axis none": ((A, ONES, None), ValueError, "axis is None, must be an integer: flattening is up to the c"),
    "objects": ((OBJECTS, ONES[:1]), TypeError, "a is of dtype object, must be of a dtype of 1, 2, 4, 8 or"),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "kind", "message"), REVERSE_ERRORS.values(), ids=REVERSE_ERRORS)
def test_reverse_subsequences_says_what_is_wrong(
    given_: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.reverse_subsequences(*given_)
        assert str(caught.value).startswith(f"reverse_subsequences: {message}")


ELU = cudml.Activation(cudml.OperatorType.ACTIVATION_ELU)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


GRU_ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no w and r": ({"w": None, "r": None}, TypeError, "w is None, must be an array; r is None, must be an"),
    "no x and r": ({"x": None, "r": None}, TypeError, "x is None, must be an array; r is None, must be an"),
    "activation types": (
        {"activations": [1, "Tan"]},
        TypeError,
        "activations[0] is 1, must be a name or a cudml.Activation; activations[1] is 'Tan', must be one of",
    ),
    "no r": ({"r": None}, TypeError, "r is None, must be an array"),
    "list": ({"w": [1]}, TypeError, "w is a list, must be a NumPy array"),
    "double": ({"x": zeros(2, 1, 3, dtype=float)}, TypeError, "x is of dtype float64, must be of float16, "),
    "mixed": ({"w": zeros(1, 6, 3, dtype="f2")}, TypeError, "w is of dtype float16, must be of float32, as"),
    "bias": ({"b": zeros(1, 12, dtype=float)}, TypeError, "b is of dtype float64, must be of float32, as x"),
    "x": ({"x": zeros(2, 3)}, ValueError, "x is of shape (2, 3), must be (T, N, I)"),
    "r": ({"r": zeros(6, 2)}, ValueError, "r is of shape (6, 2), must be (D, 3H, H)"),
    "w and r": (
        {"w": zeros(6, 3), "r": zeros(6, 2)},
        ValueError,
        "w is of shape (6, 3), must be (D, 3H, I); r is of shape (6, 2), must be (D, 3H, H)",
    ),
    "all": (
        {"w": zeros(1, 5, 3), "b": zeros(12), "h0": zeros(2, 1, 2)},
        ValueError,
        "w is of shape (1, 5, 3), must be (D, 3H, I) = (1, 6, 3), with D = 1 from direction, H = 2 from r, "
        "I = 3 from x; b is of shape (12,), must be (D, 6H) = (1, 12), with D = 1 from direction, "
        "H = 2 from r; h0 is of shape",
    ),
    "types": (
        {"w": zeros(1, 6, 3, dtype="f2"), "r": zeros(1, 6, 2, dtype=float)},
        TypeError,
        "w is of dtype float16, must be of float32, as x; r is of dtype float64, must be of float32, as x",
    ),
    "r rows": ({"r": zeros(1, 5, 2)}, ValueError, "r is of shape (1, 5, 2), must be (D, 3H, H) = (1, 6, 2),"),
    "w": ({"w": zeros(1, 6, 4)}, ValueError, "w is of shape (1, 6, 4), must be (D, 3H, I) = (1, 6, 3), with"),
    "b": ({"b": zeros(12)}, ValueError, "b is of shape (12,), must be (D, 6H) = (1, 12), with D = 1 from"),
    "h0": ({"h0": zeros(1, 2)}, ValueError, "h0 is of shape (1, 2), must be (D, N, H) = (1, 1, 2), with D ="),
    "D": ({"direction": "bidirectional"}, ValueError, "w is of shape (1, 6, 3), must be (D, 3H, I) = (2, 6,"),
    "lengths": (
        {"sequence_lengths": np.array(1)},
        ValueError,
        "sequence_lengths is of shape (), must be (N,) = (1,), with N = 1 from x",
    ),
    "float lengths": ({"sequence_lengths": zeros(1)}, TypeError, "sequence_lengths is of dtype float32, mus"),
    "direction": ({"direction": "up"}, ValueError, "direction is 'up', must be 'forward', 'reverse', 'back"),
    "direction list": ({"direction": []}, ValueError, "direction is [], must be 'forward', 'reverse'"),
    "no type": ({"activations": [cudml.Activation(None), "Tanh"]}, ValueError, "activations[0].Type is None"),
    "no alpha": ({"activations": [ELU, "Tanh"]}, ValueError, "activations[0].parameters is (), must be 1"),
    "text": ({"activations": [cudml.Activation.elu("x")] * 2}, ValueError, "activations[0].Alpha is 'x', mu"),
    "count": ({"activations": ["Tanh"]}, ValueError, "activations is of length 1, must be of length 2, f an"),
    "name": ({"activations": ["Tanh", "Tan"]}, ValueError, "activations[1] is 'Tan', must be one of Affine"),
    "number": ({"activations": ["Tanh", 5]}, TypeError, "activations[1] is 5, must be a name or a cudml.Act"),
    "string": ({"activations": "Tanh"}, TypeError, "activations is 'Tanh', must be a sequence of names or A"),
    "set": ({"activations": 7}, TypeError, "activations is 7, must be a sequence of names or Activation obj"),
    "reset": ({"linear_before_reset": "no"}, TypeError, "linear_before_reset is 'no', must be True or False"),
    "clip": ({"clip": -1}, ValueError, "clip is -1, must be a number above 0"),
    "zero clip": ({"clip": 0.0}, ValueError, "clip is 0.0, must be a number above 0"),
    "no number": ({"clip": float("nan")}, ValueError, "clip is nan, must be a number above 0"),
    "clip text": ({"clip": "1"}, TypeError, "clip is '1', must be a number above 0"),
    "clip flag": ({"clip": True}, TypeError, "clip is True, must be a number above 0"),
    "out": ({"out": zeros(2, 1, 1, 2)}, TypeError, "out is a numpy.ndarray, must be a tuple of two arr"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "message"), GRU_ERRORS.values(), ids=GRU_ERRORS)
def test_gru_says_what_is_wrong(changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.gru(**(arrays() | changes))
        assert str(caught.value).startswith(f"gru: {message}")


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


OUT_ERRORS: dict[str, tuple[Callable[[], np.ndarray], type[Exception], str]] = {
    "dtype": (lambda: np.zeros((3, 4)), TypeError, "is of dtype float64, must be of dtype float32"),
    "shape": (lambda: zeros(4, 3), ValueError, "is of shape (4, 3), must be of shape (3, 4)"),
    "larger": (lambda: zeros(1, 3, 4), ValueError, "is of shape (1, 3, 4), must be of shape (3, 4)"),
    "read-only": (lambda: frozen(zeros(3, 4)), ValueError, "is read-only, must be writable"),
    "overlapping itself": (
        lambda: np.lib.stride_tricks.as_strided(zeros(9), (3, 4), (8, 4)),
        ValueError,
        "is of strides (8, 4), must be of strides that give every element its own place",
    ),
}


@pytest.mark.parametrize(("make", "kind", "message"), OUT_ERRORS.values(), ids=OUT_ERRORS)
@pytest.mark.parametrize("function", ["top_k", "slice", "reverse_subsequences"])
def test_wrong_outputs_are_refused_and_not_touched(
    function: str, make: Callable[[], np.ndarray], kind: type[Exception], message: str
) -> None:
    out, indices = make(), np.full((3, 4), SENTINEL)
    before = out.tobytes()
    calls: dict[str, Callable[[], Any]] = {
        "top_k": lambda: cudml.top_k(A, 4, out=(out, indices)),
        "slice": lambda: cudml.slice(A, (0, 0), (3, 4), out=out),
        "reverse_subsequences": lambda: cudml.reverse_subsequences(A, ONES, out=out),
    }
    with pytest.raises(kind) as caught:
        calls[function]()
    name = "out[0]" if function == "top_k" else "out"
    assert str(caught.value) == f"{function}: {name} {message}"
    assert out.tobytes() == before
    assert (indices == SENTINEL).all()


def test_outputs_that_overlap_are_refused_and_nothing_is_touched() -> None:
    memory = np.arange(40, dtype=np.float32)
    before = memory.copy()
    a = memory[:12].reshape(3, 4)
    lengths = memory[20:24].view(np.int32)[:3].reshape(3, 1)
    layer = arrays() | {"x": memory[:6].reshape(2, 1, 3)}
    sequence, single = memory[5:9].reshape(2, 1, 1, 2), zeros(1, 1, 2)
    pair = memory[12:15].reshape(3, 1), memory[14:20].view(np.int64).reshape(3, 1)
    row, box = memory[11:15].reshape(1, 4), memory[12:24].reshape(3, 4)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: cudml.slice(a, (0, 0), (1, 4), out=row), "slice: out is overlapping a"),
        (lambda: cudml.slice(a, (0, 0), (3, 4), (1, 1), out=a), "slice: out is overlapping a"),
        (
            lambda: cudml.reverse_subsequences(a, lengths, out=box),
            "reverse_subsequences: out is overlapping sequence_lengths",
        ),
        (lambda: cudml.top_k(a, 1, out=pair), "top_k: out[1] is overlapping out[0]"),
        (lambda: cudml.gru(**layer, out=(sequence, single)), "gru: out[0] is overlapping x"),
    ]
    for call, text in calls:
        for _ in range(2):
            with pytest.raises(ValueError, match="overlapping") as caught:
                call()
            assert str(caught.value) == f"{text}, must be in memory of its own"
    assert memory.tobytes() == before.tobytes()


def test_a_planned_call_still_looks_for_overlap() -> None:
    memory = np.arange(16, dtype=np.float32)
    a, apart, within = memory[:4], memory[8:12], memory[3:7]
    cudml.slice(a, (0,), (4,), out=apart)
    with pytest.raises(ValueError, match="slice: out is overlapping a"):
        cudml.slice(a, (0,), (4,), out=within)
    assert memory[3:7].tolist() == [3, 4, 5, 6]
    cudml.slice(a, (0,), (4,), out=apart)


#: Where a view of four elements of 30 starts, and its step.
PLACES = st.tuples(st.integers(0, 29), st.sampled_from((-3, -2, -1, 1, 2, 3))).filter(
    lambda place: 0 <= place[0] + 3 * place[1] < 30
)


@given(source=PLACES, target=PLACES, size=st.sampled_from((0, 4)))
def test_overlap_is_of_the_bytes_of_elements(
    source: tuple[int, int], target: tuple[int, int], size: int
) -> None:
    def view(memory: np.ndarray, place: tuple[int, int]) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(memory[place[0] :], (size,), (2 * place[1],))

    memory, elsewhere = np.zeros(30, np.uint16), np.zeros(30, np.uint16)
    a, out = view(memory, source), view(memory, target)
    slice_function._slice.calls.clear()
    for _ in range(2):  # planned, then found
        if np.shares_memory(a, out):
            with pytest.raises(ValueError, match="slice: out is overlapping a"):
                cudml.slice(a, (0,), (size,), out=out)
        else:
            assert cudml.slice(a, (0,), (size,), out=out) is out
        cudml.slice(a, (0,), (size,), out=view(elsewhere, target))
