"""Wrong input of every kind, from the front: a clear error, no crash, and no output touched."""

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudml
from cudml import (
    Activation,
    AxisDirection,
    BindingError,
    DataType,
    DescriptorError,
    FeatureLevel,
    GruDesc,
    RecurrentNetworkDirection,
    ReverseSubsequencesDesc,
    Slice1Desc,
    SliceDesc,
    TensorDesc,
    TensorFlags,
    TopK1Desc,
    TopKDesc,
    compile_operator,
)
from cudml.devices import get_device
from cudml.operators import OPERATORS, operator_type_of

ROOT = Path(__file__).resolve().parent.parent
F32, F16, F64 = DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT64
U32, U64, I8, I32 = DataType.UINT32, DataType.UINT64, DataType.INT8, DataType.INT32
SENTINEL = -77


def tensor(*sizes: int, kind: DataType = F32, **others: Any) -> TensorDesc:
    return TensorDesc(kind, sizes, **others)


REVERSE = ReverseSubsequencesDesc(tensor(2, 3, 4, 5), tensor(2, 1, 4, 5, kind=U32), tensor(2, 3, 4, 5), 1)
TOP_K = TopKDesc(tensor(1, 1, 3, 8), tensor(1, 1, 3, 2), tensor(1, 1, 3, 2, kind=U32), 3, 2)
TOP_K1 = TopK1Desc(
    tensor(1, 1, 3, 8), tensor(1, 1, 3, 2), tensor(1, 1, 3, 2, kind=U32), 3, 2, AxisDirection.DECREASING
)
SLICE = SliceDesc(tensor(1, 1, 5, 5), tensor(1, 1, 3, 2), (0, 0, 1, 1), (1, 1, 3, 2), (1, 1, 1, 2))
SLICE1 = Slice1Desc(tensor(1, 1, 5, 5), tensor(1, 1, 3, 2), (0, 0, 1, 1), (1, 1, 3, 4), (1, 1, 1, -2))
GRU = GruDesc(
    tensor(1, 5, 2, 3),
    tensor(1, 1, 12, 3),
    tensor(1, 1, 12, 4),
    tensor(1, 1, 1, 24),
    tensor(1, 1, 2, 4),
    tensor(1, 1, 1, 2, kind=U32),
    tensor(5, 1, 2, 4),
    tensor(1, 1, 2, 4),
    (Activation.sigmoid(), Activation.tanh()),
    RecurrentNetworkDirection.FORWARD,
    False,
)
DESCRIPTORS = (REVERSE, TOP_K, TOP_K1, SLICE, SLICE1, GRU)
OWNED = TensorFlags.OWNED_BY_DML

Broken = tuple[Any, dict[str, Any], list[str]]
BROKEN: list[Broken] = [
    (REVERSE, {"axis": 4}, ["Axis is 4, must be an integer from 0 to 3"]),
    (REVERSE, {"axis": -1}, ["Axis is -1, must be an integer from 0 to 3"]),
    (REVERSE, {"axis": None}, ["Axis is None, must be an integer from 0 to 3"]),
    (
        REVERSE,
        {"sequence_lengths_tensor": tensor(2, 3, 4, 5, kind=U32)},
        [
            "SequenceLengthsTensor.Sizes is (2, 3, 4, 5), "
            "must be (2, 1, 4, 5), InputTensor.Sizes with 1 at Axis"
        ],
    ),
    (
        REVERSE,
        {"sequence_lengths_tensor": tensor(2, 1, 4, 5, kind=I32)},
        ["SequenceLengthsTensor.DataType is INT32, must be UINT64 or UINT32 at feature level 6_4"],
    ),
    (
        REVERSE,
        {"output_tensor": tensor(2, 3, 4, 6)},
        ["OutputTensor.Sizes is (2, 3, 4, 6), must be (2, 3, 4, 5), as InputTensor.Sizes"],
    ),
    (
        REVERSE,
        {"output_tensor": tensor(2, 3, 4, 5, kind=U32)},
        ["OutputTensor.DataType is UINT32, must be FLOAT32, as InputTensor.DataType"],
    ),
    (REVERSE, {"input_tensor": [1]}, ["InputTensor is [1], must be a cudml.TensorDesc"]),
    (TOP_K, {"k": 0}, ["K is 0, must be an integer from 1 to 4294967295"]),
    (TOP_K, {"k": 9}, ["K is 9, must be at most 8, InputTensor.Sizes[3]"]),
    (TOP_K1, {"k": True}, ["K is True, must be an integer from 1 to 4294967295"]),
    (TOP_K1, {"k": 2.0}, ["K is 2.0, must be an integer from 1 to 4294967295"]),
    (TOP_K1, {"axis": 4}, ["Axis is 4, must be an integer from 0 to 3"]),
    (
        TOP_K1,
        {"axis_direction": 1},
        ["AxisDirection is 1, must be a cudml.AxisDirection: INCREASING or DECREASING"],
    ),
    (
        TOP_K1,
        {"output_index_tensor": tensor(1, 1, 3, 2)},
        ["OutputIndexTensor.DataType is FLOAT32, must be UINT64 or UINT32 at feature level 6_4"],
    ),
    (
        TOP_K1,
        {"output_value_tensor": tensor(1, 1, 3, 3)},
        [
            "OutputValueTensor.Sizes is (1, 1, 3, 3), "
            "must be (1, 1, 3, 2), InputTensor.Sizes with K along Axis"
        ],
    ),
    (
        TOP_K1,
        {"output_value_tensor": tensor(1, 1, 3, 2, strides=(0, 0, 0, 0))},
        [
            "OutputValueTensor.Strides is (0, 0, 0, 0), "
            "must be strides that give every element its own place, since outputs are written"
        ],
    ),
    (
        TOP_K1,
        {"output_value_tensor": tensor(1, 1, 3, 2, flags=OWNED)},
        ["OutputValueTensor.Flags is OWNED_BY_DML, must be NONE on an output"],
    ),
    (
        SLICE,
        {"offsets": (0, 0, 1, 3)},
        [
            "Offsets[3] + (Sizes[3] - 1) * Strides[3] is 5, "
            "must be at most 4, the last element of InputTensor.Sizes[3] = 5"
        ],
    ),
    (SLICE, {"offsets": (0, 0, -1, 0)}, ["Offsets[2] is -1, must be 0 to 4294967295"]),
    (SLICE, {"offsets": (0, 0, 1)}, ["Offsets is 3: (0, 0, 1), must be 4 numbers, one a dimension"]),
    (SLICE, {"strides": (1, 1, 1, 0)}, ["Strides[3] is 0, must be 1 to 4294967295"]),
    (
        SLICE,
        {"strides": (1, 1, 2**32 - 1, 1)},
        [
            "Offsets[2] + (Sizes[2] - 1) * Strides[2] is 8589934591, "
            "must be at most 4, the last element of InputTensor.Sizes[2] = 5"
        ],
    ),
    (SLICE, {"input_tensor": tensor(1, 0, 5, 5)}, ["InputTensor.Sizes[1] is 0, must be 1 to 4294967295"]),
    (
        SLICE1,
        {"input_window_sizes": (1, 1, 3, 5)},
        ["InputWindowOffsets[3] + InputWindowSizes[3] is 6, must be at most 5, InputTensor.Sizes[3]"],
    ),
    (
        SLICE1,
        {"input_window_strides": (1, 1, 1, 0)},
        ["InputWindowStrides[3] is 0, must be any integer but 0"],
    ),
    (
        SLICE1,
        {"input_window_strides": (1, 1, 1, 4)},
        [
            "OutputTensor.Sizes[3] is 2, "
            "must be at most 1, what InputWindowSizes[3] = 4 gives with a step of 4"
        ],
    ),
    (SLICE1, {"input_window_sizes": (1, 1, 0, 4)}, ["InputWindowSizes[2] is 0, must be 1 to 4294967295"]),
    (
        GRU,
        {"output_sequence_tensor": None, "output_single_tensor": None},
        ["OutputSequenceTensor is None, must be given, or OutputSingleTensor is"],
    ),
    (
        GRU,
        {"activation_descs": (Activation.sigmoid(), Activation.tanh()) * 2},
        ["ActivationDescCount is 4, must be 2 for FORWARD: f and g of each direction"],
    ),
    (
        GRU,
        {"input_tensor": tensor(5, 2, 3)},
        ["InputTensor.DimensionCount is 3, must be 4 at feature level 6_4"],
    ),
    (
        GRU,
        {"weight_tensor": tensor(1, 1, 12, 3, kind=F16)},
        ["WeightTensor.DataType is FLOAT16, must be FLOAT32, as InputTensor.DataType"],
    ),
    (
        GRU,
        {"sequence_lengths_tensor": tensor(1, 1, 1, 2, kind=I32)},
        ["SequenceLengthsTensor.DataType is INT32, must be UINT32 at feature level 6_4"],
    ),
    (GRU, {"linear_before_reset": 1}, ["LinearBeforeReset is 1, must be True or False"]),
]


@pytest.mark.parametrize(
    ("desc", "changes", "problems"), BROKEN, ids=[f"{type(d).__name__}-{'-'.join(c)}" for d, c, _ in BROKEN]
)
def test_each_broken_rule_gives_exactly_its_own_problem(
    desc: Any, changes: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(DescriptorError) as caught:
        compile_operator(dataclasses.replace(desc, **changes), device="cpu")
    assert [str(problem) for problem in caught.value.problems] == problems
    assert caught.value.operator == operator_type_of(desc).name
    assert caught.value.hresult == 0x80070057


MANY_BROKEN: list[Broken] = [
    (
        REVERSE,
        {"axis": 4, "output_tensor": tensor(2, 3, 4, 6, kind=U32)},
        [
            "Axis is 4, must be an integer from 0 to 3",
            "OutputTensor.DataType is UINT32, must be FLOAT32, as InputTensor.DataType",
            "OutputTensor.Sizes is (2, 3, 4, 6), must be (2, 3, 4, 5), as InputTensor.Sizes",
        ],
    ),
    (
        TOP_K1,
        {"k": 0, "axis_direction": None, "output_index_tensor": tensor(1, 1, 0, 2)},
        [
            "OutputIndexTensor.Sizes[2] is 0, must be 1 to 4294967295",
            "AxisDirection is None, must be a cudml.AxisDirection: INCREASING or DECREASING",
            "K is 0, must be an integer from 1 to 4294967295",
        ],
    ),
    (
        SLICE,
        {"offsets": (0, 0, 1), "strides": (1, 0, 1, 0), "output_tensor": tensor(1, 1, 3, 2, kind=U32)},
        [
            "OutputTensor.DataType is UINT32, must be FLOAT32, as InputTensor.DataType",
            "Offsets is 3: (0, 0, 1), must be 4 numbers, one a dimension",
            "Strides[1] is 0, must be 1 to 4294967295",
            "Strides[3] is 0, must be 1 to 4294967295",
        ],
    ),
    (
        GRU,
        {
            "direction": 0,
            "linear_before_reset": None,
            "bias_tensor": tensor(1, 1, 1, 24, flags=OWNED),
            "output_single_tensor": tensor(1, 1, 2, 4, strides=(8, 8, 0, 1)),
        },
        [
            "OutputSingleTensor.Strides is (8, 8, 0, 1), "
            "must be strides that give every element its own place, since outputs are written",
            "BiasTensor.Flags is OWNED_BY_DML, must be NONE: GRU supports OWNED_BY_DML on no input",
            "Direction is 0, must be a cudml.RecurrentNetworkDirection: FORWARD, BACKWARD or BIDIRECTIONAL",
            "LinearBeforeReset is None, must be True or False",
        ],
    ),
]


@pytest.mark.parametrize(
    ("desc", "changes", "problems"), MANY_BROKEN, ids=["REVERSE", "TOP_K1", "SLICE", "GRU"]
)
def test_several_broken_rules_give_all_their_problems(
    desc: Any, changes: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(DescriptorError) as caught:
        compile_operator(dataclasses.replace(desc, **changes), device="cpu")
    assert [str(problem) for problem in caught.value.problems] == problems
    assert str(caught.value).startswith(f"{caught.value.operator} has {len(problems)} problems\n  ")


@pytest.mark.parametrize("desc", DESCRIPTORS, ids=lambda desc: type(desc).__name__)
def test_gru_alone_owns_no_input_and_no_operator_an_output(desc: Any) -> None:
    for field in dataclasses.fields(desc):
        described = getattr(desc, field.name)
        if not isinstance(described, TensorDesc):
            continue
        owning = dataclasses.replace(desc, **{field.name: dataclasses.replace(described, flags=OWNED)})
        if isinstance(desc, GruDesc) or field.name.startswith("output"):
            with pytest.raises(DescriptorError, match="Flags is OWNED_BY_DML, must be NONE"):
                compile_operator(owning, device="cpu")
        else:
            assert compile_operator(owning, device="cpu").persistent_resource_size


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.integers(2**31, 2**33), st.floats(), st.text(max_size=2),
    st.lists(st.integers(-1, 3), max_size=9), st.tuples(st.floats(), st.text(max_size=1)),
    st.sampled_from([F32, F64, U32, U64, I8, DataType.UNKNOWN, DataType.INT4, OWNED, AxisDirection.DECREASING,
                     RecurrentNetworkDirection.BIDIRECTIONAL, TensorDesc, object(), np.arange(3), 2**70, {}]),
)  # fmt: skip
SIZES = st.lists(st.integers(1, 9) | st.sampled_from([0, 2**16, 2**32 - 1]), min_size=1, max_size=9) | JUNK
TENSORS = st.builds(
    TensorDesc,
    st.sampled_from([F32, F16, U32, U64, I8, F64]) | JUNK,
    SIZES,
    st.none() | st.lists(st.integers(0, 99), min_size=4, max_size=4) | JUNK,
    st.sampled_from(TensorFlags) | JUNK,
    st.none() | st.integers(0, 999) | JUNK,
    st.sampled_from([0, 1, 4, 16, 3]) | JUNK,
)
ACTIVATIONS = st.builds(
    Activation,
    st.sampled_from(cudml.OperatorType) | JUNK,
    st.tuples() | st.tuples(st.floats()) | st.tuples(st.floats(), st.floats()) | JUNK,
)
VALUES = st.one_of(TENSORS, JUNK, SIZES, st.lists(ACTIVATIONS, max_size=4).map(tuple))


@st.composite
def broken_descriptors(draw: st.DrawFn) -> Any:
    """A good descriptor, or one with up to three members that are anything at all."""
    desc = draw(st.sampled_from(DESCRIPTORS))
    names = draw(st.lists(st.sampled_from([field.name for field in dataclasses.fields(desc)]), max_size=3))
    changes: dict[str, Any] = {}
    for name in names:
        current = getattr(desc, name)
        if isinstance(current, TensorDesc) and draw(st.booleans()):
            part = draw(st.sampled_from([field.name for field in dataclasses.fields(current)]))
            changes[name] = dataclasses.replace(current, **{part: draw(JUNK | SIZES)})
        else:
            changes[name] = draw(VALUES)
    return dataclasses.replace(desc, **changes)


@given(broken_descriptors(), st.sampled_from(FeatureLevel))
def test_no_descriptor_makes_anything_but_a_descriptor_error(desc: Any, level: FeatureLevel) -> None:
    operator = OPERATORS[operator_type_of(desc)]
    with contextlib.suppress(DescriptorError):
        operator.check(desc, level)
        # What passes can be planned, and is the key of a cache.
        assert operator.plan(desc, get_device("cpu").limits).steps
        hash(desc)


BOUND = st.one_of(
    JUNK,
    st.sampled_from(["float32", "uint32", "int8", "bool", "O", ">f4", "complex128"]).flatmap(
        lambda dtype: st.sampled_from([(2, 3, 4, 5), (2, 1, 4, 5), (120,), (0,), (), (5, 4, 3, 2)]).map(
            lambda shape: np.zeros(shape, dtype)
        )
    ),
    st.sampled_from([np.zeros((4, 3, 2, 5), np.float32).T, np.broadcast_to(np.float32(0), (2, 3, 4, 5))]),
)


NAMES = st.sampled_from(["input_tensor", "sequence_lengths_tensor", "output_tensor", "axis", "x"])


@given(st.dictionaries(NAMES, BOUND, max_size=4), st.none() | BOUND)
def test_no_bindings_make_anything_but_a_binding_error(bindings: dict[str, Any], scratch: Any) -> None:
    operator = compile_operator(REVERSE, device="cpu")
    with contextlib.suppress(BindingError):
        operator.dispatch(**bindings, temporary_resource=scratch)


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**32 - 1])
def test_sizes_where_32_bits_overflow_are_planned(size: int) -> None:
    """Offsets beyond 32 bits in elements and, more so, in bytes."""
    limits = get_device("cpu").limits
    for kind in (I8, U64):
        source = TensorDesc(kind, (size,))
        desc = SliceDesc(source, TensorDesc(kind, (1,)), (size - 1,), (1,), (1,))
        operator = OPERATORS[operator_type_of(desc)]
        operator.check(desc, FeatureLevel.LEVEL_6_4)
        (launch,) = operator.plan(desc, limits).steps
        assert str(size - 1) in str(launch) or str((size - 1) * source.element.size) in str(launch)
    wide = TensorDesc(F32, (2, 2), (2**32 - 1, 2**32 - 1))
    assert wide.minimum_bytes == 4 * (1 + 2 * (2**32 - 1))


def arrays() -> dict[str, np.ndarray]:
    """A layer with T 2, N 1, I 3, H 2."""
    shapes = {"x": (2, 1, 3), "w": (1, 6, 3), "r": (1, 6, 2)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


A = np.arange(12, dtype=np.float32).reshape(3, 4)
OBJECTS = np.array([[None, 1]])
ErrorRow = tuple[Callable[..., Any], dict[str, Any], type[Exception], str]

TOP_K_ERRORS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "list": (([1, 2], 1), {}, TypeError, "a is a list, must be a NumPy array, a CuPy array or an object"),
    "none": ((None, 1), {}, TypeError, "a is a NoneType, must be a NumPy array"),
    "scalar": ((np.float32(1), 1), {}, TypeError, "a is a numpy.float32, must be a NumPy array"),
    "masked": ((np.ma.masked_array(A, A > 3), 1), {}, TypeError, "a is a masked array, must be filled first"),
    "objects": ((OBJECTS, 1), {}, TypeError, "a is of dtype object, must be of bool, int8, int16, int32, in"),
    "complex": ((A.astype(complex), 1), {}, TypeError, "a is of dtype complex128, must be of bool"),
    "swapped": ((A.astype(">f4"), 1), {}, TypeError, "a is of dtype >f4, must be of bool"),
    "text": ((np.array(["a", "b"]), 1), {}, TypeError, "a is of dtype str32, must be of bool"),
    "k zero": ((A, 0), {}, ValueError, "k is 0, must be from 1 to the size of axis 1, which is 4"),
    "k negative": ((A, -1), {}, ValueError, "k is -1, must be from 1 to the size of axis 1, which is 4"),
    "k large": ((A, 4), {"axis": 0}, ValueError, "k is 4, must be from 1 to the size of axis 0, which is 3"),
    "k huge": ((A, 2**70), {}, ValueError, "k is 1180591620717411303424, must be from 1 to"),
    "k float": ((A, 1.5), {}, TypeError, "k is 1.5, must be an integer"),
    "no elements": ((A[:, :0], 1), {}, ValueError, "k is 1, must be from 1 to the size of axis 1, which is"),
    "axis": ((A, 1), {"axis": 2}, np.exceptions.AxisError, "axis 2 is out of bounds for array of dimension"),
    "axis low": ((A, 1), {"axis": -3}, np.exceptions.AxisError, "axis -3 is out of bounds for array of dime"),
    "axis none": ((A, 1), {"axis": None}, ValueError, "axis is None, must be an integer: flattening is up t"),
    "axis text": ((A, 1), {"axis": "x"}, TypeError, "axis is 'x', must be an integer"),
    "mode": ((A, 1), {"mode": "max"}, ValueError, "mode is 'max', must be 'largest' or 'smallest'"),
    "mode list": ((A, 1), {"mode": []}, ValueError, "mode is [], must be 'largest' or 'smallest'"),
    "out alone": ((A, 1), {"out": A}, TypeError, "out is a ndarray, must be a tuple of two arrays, (values,"),
    "out of three": ((A, 1), {"out": (A, A, A)}, TypeError, "out is a tuple of 3, must be a tuple of two ar"),
    "out list": ((A, 1), {"out": (A[:, :1].copy(), [1])}, TypeError, "out[1] is a list, must be a NumPy arr"),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "options", "kind", "message"), TOP_K_ERRORS.values(), ids=TOP_K_ERRORS)
def test_top_k_says_what_is_wrong(
    given_: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.top_k(*given_, **options)
        assert str(caught.value).startswith(f"top_k: {message}")


SLICE_ERRORS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "list": (([1], (0,), (1,)), TypeError, "a is a list, must be a NumPy array"),
    "objects": ((OBJECTS, (0, 0), (1, 1)), TypeError, "a is of dtype object, must be of a dtype of 1, 2, 4,"),
    "3 bytes": ((np.zeros(2, "S3"), (0,), (1,)), TypeError, "a is of dtype |S3, must be of a dtype of 1, 2,"),
    "few": ((A, (0,), (1, 1)), ValueError, "offsets is (0,), of length 1, must be of length 2, one a dimens"),
    "many": ((A, (0, 0), (1, 1, 1)), ValueError, "sizes is (1, 1, 1), of length 3, must be of length 2"),
    "number": ((A, 0, (1, 1)), TypeError, "offsets is 0, must be a sequence of integers"),
    "float": ((A, (0, 0), (1, 1.0)), TypeError, "sizes is (1, 1.0), must be a sequence of integers"),
    "strides": ((A, (0, 0), (1, 1), (1,)), ValueError, "strides is (1,), of length 1, must be of length 2"),
    "negative size": ((A, (0, 0), (1, -1)), ValueError, "sizes[1] is -1, must be 0 or more"),
    "no step": ((A, (0, 0), (1, 1), (1, 0)), ValueError, "strides[1] is 0, must be any integer but 0"),
    "before": ((A, (-1, 0), (1, 1)), ValueError, "offsets[0] is -1, must be from 0 to 2, an element of dime"),
    "past": ((A, (0, 4), (1, 1)), ValueError, "offsets[1] is 4, must be from 0 to 3, an element of dimensio"),
    "end": ((A, (1, 0), (3, 1)), ValueError, "the last element of dimension 0 is 3 = 1 + (3 - 1) * 1, must"),
    "start": ((A, (0, 1), (1, 3), (1, -1)), ValueError, "the last element of dimension 1 is -1 = 1 + (3 - 1"),
    "huge": ((A, (0, 0), (1, 2**70)), ValueError, "the last element of dimension 1 is 118059162071741130342"),
    "empty": ((A[:0], (0, 0), (1, 1)), ValueError, "the last element of dimension 0 is 0 = 0 + (1 - 1) * 1,"),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "kind", "message"), SLICE_ERRORS.values(), ids=SLICE_ERRORS)
def test_slice_says_what_is_wrong(given_: tuple[Any, ...], kind: type[Exception], message: str) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            cudml.slice(*given_)
        assert str(caught.value).startswith(f"slice: {message}")


ONES = np.ones((3, 1), np.int32)
REVERSE_ERRORS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "list": ((A, [1, 2, 3]), TypeError, "sequence_lengths is a list, must be a NumPy array"),
    "none": ((A, None), TypeError, "sequence_lengths is a NoneType, must be a NumPy array"),
    "floats": ((A, ONES.astype(float)), TypeError, "sequence_lengths is of dtype float64, must be of int8,"),
    "bools": ((A, ONES > 0), TypeError, "sequence_lengths is of dtype bool, must be of int8"),
    "shape": ((A, ONES[:2]), ValueError, "sequence_lengths is of shape (2, 1), must be of a shape that broa"),
    "whole": ((A, A.astype(int)), ValueError, "sequence_lengths is of shape (3, 4), must be of a shape that"),
    "more": ((A, ONES[None]), ValueError, "sequence_lengths is of shape (1, 3, 1), must be of a shape that"),
    "axis": ((A, ONES, 2), np.exceptions.AxisError, "axis 2 is out of bounds for array of dimension 2"),
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


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


GRU_ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no r": ({"r": None}, TypeError, "r is None, must be an array"),
    "list": ({"w": [1]}, TypeError, "w is a list, must be a NumPy array"),
    "double": ({"x": zeros(2, 1, 3, dtype=float)}, TypeError, "x is of dtype float64, must be of float16, f"),
    "mixed": ({"w": zeros(1, 6, 3, dtype="f2")}, TypeError, "w is of dtype float16, must be of float32, as"),
    "bias": ({"b": zeros(1, 12, dtype=float)}, TypeError, "b is of dtype float64, must be of float32, as x"),
    "x": ({"x": zeros(2, 3)}, ValueError, "x is of shape (2, 3), must be (T, N, I)"),
    "r": ({"r": zeros(6, 2)}, ValueError, "r is of shape (6, 2), must be (D, 3H, H)"),
    "r rows": ({"r": zeros(1, 5, 2)}, ValueError, "r is of shape (1, 5, 2), must be (D, 3H, H) = (1, 6, 2),"),
    "w": ({"w": zeros(1, 6, 4)}, ValueError, "w is of shape (1, 6, 4), must be (D, 3H, I) = (1, 6, 3), with"),
    "b": ({"b": zeros(12)}, ValueError, "b is of shape (12,), must be (D, 6H) = (1, 12), with D = 1, and H"),
    "h0": ({"h0": zeros(1, 2)}, ValueError, "h0 is of shape (1, 2), must be (D, N, H) = (1, 1, 2), with D ="),
    "D": ({"direction": "bidirectional"}, ValueError, "w is of shape (1, 6, 3), must be (D, 3H, I) = (2, 6,"),
    "lengths": ({"sequence_lengths": np.array(1)}, ValueError, "sequence_lengths is of shape (), must be (N"),
    "float lengths": ({"sequence_lengths": zeros(1)}, TypeError, "sequence_lengths is of dtype float32, mus"),
    "direction": ({"direction": "up"}, ValueError, "direction is 'up', must be 'forward', 'reverse' or 'bid"),
    "direction list": ({"direction": []}, ValueError, "direction is [], must be 'forward', 'reverse'"),
    "count": ({"activations": ["Tanh"]}, ValueError, "activations is of length 1, must be of length 2, f an"),
    "name": ({"activations": ["Tanh", "Tan"]}, ValueError, "activations[1]: 'Tan' is no activation, must be"),
    "number": ({"activations": ["Tanh", 5]}, TypeError, "activations[1] is 5, must be a name or a cudml.Act"),
    "string": ({"activations": "Tanh"}, TypeError, "activations is 'Tanh', must be a sequence of names or A"),
    "set": ({"activations": 7}, TypeError, "activations is 7, must be a sequence of names or Activation obj"),
    "reset": ({"linear_before_reset": "no"}, TypeError, "linear_before_reset is 'no', must be True or False"),
    "out": ({"out": zeros(2, 1, 1, 2)}, TypeError, "out is a ndarray, must be a tuple of two arrays, (seque"),
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


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in an interpreter of its own, so that nothing is loaded yet."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


SLICE_SCRIPT = """
import numpy as np, cudml, warnings
warnings.simplefilter("always")
out = np.full(2, -77.0)
try:
    for _ in range(2):
        cudml.slice(np.arange(5.0), (1,), (2,), (2,), out=out)
except Exception as error:
    print(type(error).__name__, error)
print(out.tolist())
"""


def test_a_missing_compiler_is_told_with_what_to_install(tmp_path: Path) -> None:
    folders = {"CUDML_CACHE_DIR": str(tmp_path)}
    done = run_python(SLICE_SCRIPT, CUDML_CXX="no-such-compiler", **folders)
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert first.startswith("CompilerError CUDML_CXX is 'no-such-compiler', which cannot be run")
    assert "install" in done.stdout
    assert last == "[-77.0, -77.0]"


def test_a_compiler_that_fails_is_told_with_its_log(tmp_path: Path) -> None:
    compiler = tmp_path / "broken-compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho "no, sorry" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    done = run_python(SLICE_SCRIPT, CUDML_CXX=str(compiler), CUDML_CACHE_DIR=str(tmp_path / "cache"))
    assert "CompilerError" in done.stdout
    assert "no, sorry" in done.stdout
    assert done.stdout.splitlines()[-1] == "[-77.0, -77.0]"


def test_an_unusable_cache_folder_is_told_once_and_gone_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run_python(SLICE_SCRIPT, CUDML_CACHE_DIR=str(blocked / "cache"))
    assert done.stdout == "[1.0, 3.0]\n"
    assert done.stderr.count(str(blocked)) == 1


def test_a_gpu_is_asked_for_where_there_is_none() -> None:
    script = "import cudml\ntry: cudml.compile_operator(None)\nexcept TypeError as error: print(error)\n"
    script += "from cudml.devices import get_device\ntry: get_device('cuda')\n"
    script += "except cudml.DeviceError as error: print(error)\n"
    done = run_python(script, CUDA_VISIBLE_DEVICES="-1")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("desc is a NoneType, must be one of cudml's SliceDesc, ")
    assert lines[1].startswith("CUDA cannot be used: ")
    assert done.returncode == 0
