"""Binding arrays to an operator: what is accepted, what is refused, and the messages."""

from typing import Any

import numpy as np
import pytest

import cudml
from cudml import (
    AxisDirection,
    DataType,
    ReverseSubsequencesDesc,
    SliceDesc,
    TensorDesc,
    TensorFlags,
    TopK1Desc,
    compile_operator,
)
from cudml.devices import Device, get_device
from tests.support import assert_identical, to_device
from tests.support.bound_operators import LENGTHS, REVERSE, REVERSED, SENTINEL, X, bound, copy_desc, refused

F32, U32, U8 = DataType.FLOAT32, DataType.UINT32, DataType.UINT8


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4), (1, 1, 3, 4), (12,), (2, 6), (13,)])
def test_packed_arrays_may_be_bound_in_any_shape_that_is_large_enough(
    device: Device, shape: tuple[int, ...]
) -> None:
    operator = compile_operator(REVERSE, device=device)
    values = np.zeros(shape, np.float32)
    values.reshape(-1)[:12] = X.reshape(-1)
    arrays = bound(device, input_tensor=to_device(device, values))
    operator.dispatch(**arrays)
    assert_identical(arrays["output_tensor"], REVERSED)


def test_strided_arrays_of_the_descriptors_strides_may_be_bound(device: Device) -> None:
    tensor = TensorDesc(F32, (1, 3, 4), (99, 8, 2))
    operator = compile_operator(copy_desc(tensor), device=device)
    wide = to_device(device, np.zeros((3, 8), np.float32))
    wide[:, ::2] = to_device(device, X)
    output = to_device(device, np.zeros((3, 4), np.float32))
    operator.dispatch(input_tensor=wide[:, ::2], output_tensor=output)
    assert_identical(output, X)
    output[...] = 0
    operator.dispatch(input_tensor=wide, output_tensor=output)  # the plain buffer
    assert_identical(output, X)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1, 1), (2, 1)])
def test_single_elements_may_be_bound_in_any_shape(device: Device, shape: tuple[int, ...]) -> None:
    operator = compile_operator(copy_desc(TensorDesc(F32, (1, 1, 1, 1))), device=device)
    output = to_device(device, np.full(shape, SENTINEL))
    operator.dispatch(input_tensor=to_device(device, np.full(shape, np.float32(7))), output_tensor=output)
    expected = np.full(shape, SENTINEL)
    expected.reshape(-1)[0] = 7
    assert_identical(output, expected)


def test_broadcast_inputs_may_be_bound() -> None:
    operator = compile_operator(copy_desc(TensorDesc(F32, (3, 4), (0, 1))), device="cpu")
    output = np.zeros((3, 4), np.float32)
    operator.dispatch(input_tensor=np.broadcast_to(X[0], (3, 4)), output_tensor=output)
    assert_identical(output, np.stack([X[0]] * 3))


def test_gaps_of_a_padded_output_are_left_alone(device: Device) -> None:
    padded = TensorDesc(F32, (3, 4), (6, 1))
    operator = compile_operator(copy_desc(TensorDesc(F32, (3, 4)), padded), device=device)
    output = to_device(device, np.full((3, 6), SENTINEL))
    operator.dispatch(input_tensor=to_device(device, X), output_tensor=output)
    expected = np.full((3, 6), SENTINEL)
    expected[:, :4] = X
    assert_identical(output, expected)


def test_bool_counts_as_uint8(device: Device) -> None:
    operator = compile_operator(copy_desc(TensorDesc(U8, (5,))), device=device)
    values = np.array([True, False, True, True, False])
    output = to_device(device, np.zeros(5, bool))
    operator.dispatch(input_tensor=to_device(device, values), output_tensor=output)
    assert_identical(output, values)


def test_subclasses_of_arrays_may_be_bound() -> None:
    class Tagged(np.ndarray):
        pass

    device = get_device("cpu")
    arrays = bound(device, input_tensor=X.view(Tagged))
    operator = compile_operator(REVERSE, device=device)
    for _ in range(2):
        arrays["output_tensor"][...] = SENTINEL
        operator.dispatch(**arrays)
        assert_identical(arrays["output_tensor"], REVERSED)


NAMES = "input_tensor, sequence_lengths_tensor or output_tensor"
PACKED = "must be of shape (1, 1, 3, 4) and strides (48, 48, 16, 4), or C-contiguous"
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "list": ({"input_tensor": [1, 2]}, "InputTensor is a list, must be a numpy.ndarray on cpu"),
    "none": ({"input_tensor": None}, "InputTensor is a NoneType, must be a numpy.ndarray on cpu"),
    "scalar": (
        {"input_tensor": np.float32(1)},
        "InputTensor is a numpy.float32 on cpu, must be a numpy.ndarray on cpu",
    ),
    "masked": (
        {"input_tensor": np.ma.masked_array(X, X > 3)},
        f"InputTensor is a {np.ma.MaskedArray.__module__}.MaskedArray on cpu, must be a numpy.ndarray on cpu",
    ),
    "wide": ({"input_tensor": X.astype(np.float64)}, "InputTensor is float64, must be float32"),
    "signed": (
        {"sequence_lengths_tensor": LENGTHS.astype(np.int32)},
        "SequenceLengthsTensor is int32, must be uint32",
    ),
    "swapped": ({"input_tensor": X.astype(">f4")}, "InputTensor is >f4, must be float32"),
    "small": (
        {"input_tensor": X[:2]},
        "InputTensor in bytes is 32, must be at least 48, as (1, 1, 3, 4) of float32 needs",
    ),
    "transposed": (
        {"input_tensor": np.zeros((4, 3), np.float32).T},
        f"InputTensor is of shape (3, 4) and strides (4, 12), {PACKED}",
    ),
    "gaps": (
        {"output_tensor": np.full((3, 8), SENTINEL)[:, ::2]},
        f"OutputTensor is of shape (3, 4) and strides (32, 8), {PACKED}",
    ),
    "unexpected": ({"bias_tensor": X}, f"bias_tensor is not a binding, must be {NAMES}"),
    "misspelt": (
        {"input_tensr": X},
        f"input_tensr is not a binding, must be {NAMES}; the closest is input_tensor",
    ),
}


@pytest.mark.parametrize(("others", "message"), REFUSALS.values(), ids=REFUSALS)
def test_each_wrong_binding_gives_its_own_problem(others: dict[str, Any], message: str) -> None:
    operator = compile_operator(REVERSE, device="cpu")
    arrays = bound(get_device("cpu"), **others)
    output = arrays["output_tensor"].copy()
    assert refused(operator, **arrays) == [message]
    assert_identical(arrays["output_tensor"], output)


def test_missing_bindings_are_named() -> None:
    operator = compile_operator(REVERSE, device="cpu")
    assert refused(operator) == [
        "InputTensor is missing, must be bound as input_tensor=",
        "SequenceLengthsTensor is missing, must be bound as sequence_lengths_tensor=",
        "OutputTensor is missing, must be bound as output_tensor=",
    ]


def test_all_problems_come_at_once() -> None:
    operator = compile_operator(REVERSE, device="cpu")
    output = np.full((3, 4), SENTINEL)
    output.flags.writeable = False
    found = refused(operator, input_tensor=X.astype(int), output_tensor=output, axis=3)
    assert found == [
        "SequenceLengthsTensor is missing, must be bound as sequence_lengths_tensor=",
        "axis is not a binding, must be input_tensor, sequence_lengths_tensor or output_tensor",
        "InputTensor is int64, must be float32",
        "OutputTensor is read-only, must be writable",
    ]
    assert (output == SENTINEL).all()


def test_arrays_at_odd_addresses_are_refused() -> None:
    odd = np.zeros(49, np.uint8)[1:].view(np.float32).reshape(3, 4)
    odd[...] = X
    (found,) = refused(compile_operator(REVERSE, device="cpu"), **bound(get_device("cpu"), input_tensor=odd))
    assert found.startswith("InputTensor is at address 0x")
    assert found.endswith(", must be at a multiple of 4 bytes")


def test_a_promised_alignment_is_kept() -> None:
    promised = TensorDesc(F32, (4,), None, TensorFlags.NONE, None, 64)
    operator = compile_operator(copy_desc(promised, TensorDesc(F32, (4,))), device="cpu")
    memory = np.zeros(64, np.float32)
    first = -memory.__array_interface__["data"][0] % 64 // 4
    output = np.zeros(4, np.float32)
    operator.dispatch(input_tensor=memory[first : first + 4], output_tensor=output)
    (found,) = refused(operator, input_tensor=memory[first + 1 : first + 5], output_tensor=output)
    assert found.endswith("must be at a multiple of 64 bytes, as its GuaranteedBaseOffsetAlignment says")


def test_in_place_is_refused_and_nothing_is_touched(device: Device) -> None:
    arrays = bound(device)
    arrays["output_tensor"] = arrays["input_tensor"]
    message = (
        "OutputTensor is overlapping InputTensor, must be in memory of its own: no operator runs in place"
    )
    operator = compile_operator(REVERSE, device=device)
    assert refused(operator, **arrays) == [message]
    assert_identical(arrays["input_tensor"], X)


@pytest.mark.parametrize("first", range(0, 28))
def test_overlap_is_of_the_bytes_that_are_addressed(first: int) -> None:
    """An output of 3 elements 4 apart, at every place around an input of 8."""
    memory = np.zeros(40, np.float32)
    source = memory[10:18]
    output = TensorDesc(F32, (3,), (4,))
    desc = SliceDesc(TensorDesc(F32, (8,)), output, (0,), (3,), (1,))
    target = np.lib.stride_tricks.as_strided(memory[first:], (3,), (16,))
    operator = compile_operator(desc, device="cpu")
    if {first, first + 4, first + 8}.isdisjoint(range(10, 18)):
        operator.dispatch(input_tensor=source, output_tensor=target)
    else:
        assert refused(operator, input_tensor=source, output_tensor=target)


@pytest.mark.parametrize("apart", [True, False])
def test_columns_of_one_array_may_be_input_and_output(apart: bool) -> None:
    memory = np.arange(32, dtype=np.float32).reshape(4, 8)
    source, target = memory[:, :4], memory[:, 4:] if apart else memory[:, 3:7]
    tensor = TensorDesc(F32, (4, 4), (8, 1))
    operator = compile_operator(SliceDesc(tensor, tensor, (0, 0), (4, 4), (1, 1)), device="cpu")
    if apart:
        operator.dispatch(input_tensor=source, output_tensor=target)
        assert_identical(memory[:, 4:], np.arange(32, dtype=np.float32).reshape(4, 8)[:, :4])
    else:
        assert refused(operator, input_tensor=source, output_tensor=target) == [
            "OutputTensor is overlapping InputTensor, must be in memory of its own: no operator runs in place"
        ]


def test_outputs_overlap_neither_each_other_nor_scratch() -> None:
    tensor, values, indices = TensorDesc(F32, (8,)), TensorDesc(F32, (2,)), TensorDesc(U32, (2,))
    operator = compile_operator(
        TopK1Desc(tensor, values, indices, 0, 2, AxisDirection.DECREASING), device="cpu"
    )
    memory = np.zeros(64, np.float32)
    found = refused(
        operator,
        input_tensor=np.arange(8, dtype=np.float32),
        output_value_tensor=memory[:2],
        output_index_tensor=memory[1:3].view(np.uint32),
    )
    assert [text.split(",")[0] for text in found] == ["OutputValueTensor is overlapping OutputIndexTensor"]


def test_inputs_may_overlap() -> None:
    memory = np.array([2, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.uint32)
    desc = ReverseSubsequencesDesc(
        TensorDesc(U32, (3, 4)), TensorDesc(U32, (3, 1)), TensorDesc(U32, (3, 4)), 1
    )
    output = np.zeros((3, 4), np.uint32)
    operator = compile_operator(desc, device="cpu")
    operator.dispatch(input_tensor=memory, sequence_lengths_tensor=memory[:3], output_tensor=output)
    assert output.tolist() == [[4, 2, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.gpu
def test_arrays_of_another_device_are_refused() -> None:
    if not cudml.devices.cuda.status().usable:
        pytest.skip("no GPU")
    cpu, gpu = get_device("cpu"), get_device("cuda")
    found = refused(compile_operator(REVERSE, device=gpu), **bound(gpu, input_tensor=X))
    assert found == [f"InputTensor is a numpy.ndarray on cpu, must be a cupy.ndarray on {gpu.name}"]
    on_gpu = to_device(gpu, X)
    (text,) = refused(compile_operator(REVERSE, device=cpu), **bound(cpu, input_tensor=on_gpu))
    assert text.endswith("must be a numpy.ndarray on cpu")
