"""Compiling, binding and dispatching: what may be bound, what is refused and how it is said."""

import threading
from typing import Any

import numpy as np
import pytest

import cudml
from cudml import (
    Activation,
    AxisDirection,
    BindingError,
    CompiledOperator,
    DataType,
    DescriptorError,
    ExecutionFlags,
    FeatureLevel,
    GruDesc,
    RecurrentNetworkDirection,
    ReverseSubsequencesDesc,
    SliceDesc,
    TensorDesc,
    TensorFlags,
    TopK1Desc,
    compile_operator,
)
from cudml.devices import Device, get_device
from cudml.operators import OPERATORS
from tests.support import assert_identical, to_device, to_numpy

F32, U32, U8 = DataType.FLOAT32, DataType.UINT32, DataType.UINT8

INPUT = TensorDesc(F32, (1, 1, 3, 4))
REVERSE = ReverseSubsequencesDesc(INPUT, TensorDesc(U32, (1, 1, 3, 1)), INPUT, 3)
X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
LENGTHS = np.array([[2], [4], [3]], np.uint32)
REVERSED = np.array([[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]], np.float32)
SENTINEL = np.float32(-77)


def bound(device: Device, **others: Any) -> dict[str, Any]:
    """Good bindings of REVERSE, some of them replaced."""
    arrays = {
        "input_tensor": to_device(device, X),
        "sequence_lengths_tensor": to_device(device, LENGTHS),
        "output_tensor": to_device(device, np.full((3, 4), SENTINEL)),
    }
    return arrays | others


def copy_desc(tensor: TensorDesc, output: TensorDesc | None = None) -> SliceDesc:
    """SLICE that copies all of a tensor."""
    zeros, ones = (0,) * len(tensor.sizes), (1,) * len(tensor.sizes)
    output = output or TensorDesc(tensor.data_type, tensor.sizes)
    return SliceDesc(tensor, output, zeros, tensor.sizes, ones)


def refused(operator: CompiledOperator, **arguments: Any) -> list[str]:
    """The problems of a dispatch that must fail."""
    with pytest.raises(BindingError) as caught:
        operator.dispatch(**arguments)
    assert caught.value.operator == operator.name
    return [str(problem) for problem in caught.value.problems]


def test_dispatch_computes_into_the_bound_output(device: Device) -> None:
    operator = compile_operator(REVERSE, device=device)
    arrays = bound(device)
    assert operator.dispatch(**arrays) is None
    assert_identical(arrays["output_tensor"], REVERSED)
    assert_identical(arrays["input_tensor"], X)


def test_device_by_name_is_the_device(device: Device) -> None:
    assert compile_operator(REVERSE, device=device.name).device is device


def test_unknown_device_names_are_refused() -> None:
    for name in ("gpu", "cuda:x", "cuda:-1", ""):
        with pytest.raises(
            ValueError, match="device must be 'cpu', 'cuda' or 'cuda:N' with N a device number"
        ):
            compile_operator(REVERSE, device=name)


def test_descriptors_are_checked_each_time_although_plans_are_cached() -> None:
    tensors = TensorDesc(F32, (3, 4)), TensorDesc(U32, (3, 1)), TensorDesc(F32, (3, 4))
    desc = ReverseSubsequencesDesc(*tensors, 1)
    compile_operator(desc, device="cpu")
    for axis in (True, 1.0):
        twin = ReverseSubsequencesDesc(*tensors, axis)  # type: ignore[arg-type]
        assert twin == desc
        with pytest.raises(DescriptorError, match=f"Axis is {axis}, must be an integer from 0 to 1"):
            compile_operator(twin, device="cpu")


def test_feature_level_decides() -> None:
    assert compile_operator(REVERSE, device="cpu", feature_level=FeatureLevel.LEVEL_2_1).name
    with pytest.raises(DescriptorError, match=r"FeatureLevel is 2_0, must be 2_1 or above"):
        compile_operator(REVERSE, device="cpu", feature_level=FeatureLevel.LEVEL_2_0)


def test_other_types_of_arguments_are_refused() -> None:
    with pytest.raises(
        TypeError, match="desc is a dict, must be one of cudml's SliceDesc, TopKDesc, GruDesc, "
    ):
        compile_operator({}, device="cpu")
    with pytest.raises(TypeError, match=r"feature_level is 25600, must be a cudml\.FeatureLevel"):
        compile_operator(REVERSE, device="cpu", feature_level=0x6400)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"flags is 1, must be cudml\.ExecutionFlags"):
        compile_operator(REVERSE, device="cpu", flags=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("flags", list(ExecutionFlags))
def test_execution_flags_change_nothing(flags: ExecutionFlags) -> None:
    assert (
        compile_operator(REVERSE, device="cpu", flags=flags).plan
        == compile_operator(REVERSE, device="cpu").plan
    )


def test_every_compile_gives_an_operator_of_its_own_with_the_shared_program() -> None:
    first, second = (compile_operator(REVERSE, device="cpu") for _ in range(2))
    assert first is not second
    assert first._program is second._program


def test_many_threads_compile_and_dispatch_the_same() -> None:
    device = get_device("cpu")
    outputs: list[np.ndarray] = []

    def work() -> None:
        arrays = bound(device)
        compile_operator(REVERSE, device="cpu").dispatch(**arrays)
        outputs.append(arrays["output_tensor"])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 8
    for output in outputs:
        assert_identical(output, REVERSED)


def test_plan_is_printed_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (1, 1, 3, 41)  # no other test compiles it
    monkeypatch.setenv("CUDML_PRINT_PLAN", "1")
    operator = compile_operator(copy_desc(TensorDesc(F32, sizes)), device="cpu")
    printed = capsys.readouterr()
    assert str(operator.plan) in printed.err
    assert printed.out == ""
    assert "slice/" in str(operator.plan)
    assert repr(operator) == "<CompiledOperator SLICE on cpu: input_tensor, output_tensor>"


def test_plans_name_the_outputs() -> None:
    """Binding relies on it: an operand that is no output may overlap another input."""
    for row in OPERATORS.values():
        members = [m for m in row.descriptor.__dataclass_fields__ if m.endswith("tensor")]
        outputs = {member for member in members if member.startswith("output")}
        assert outputs
        if row.module == "slice":
            plan = compile_operator(copy_desc(TensorDesc(F32, (2,))), device="cpu").plan
            assert set(plan.outputs) == outputs


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
    "wide": ({"input_tensor": X.astype(np.float64)}, "InputTensor is float64, must be float32"),
    "signed": (
        {"sequence_lengths_tensor": LENGTHS.astype(np.int32)},
        "SequenceLengthsTensor is int32, must be uint32",
    ),
    "swapped": ({"input_tensor": X.astype(">f4")}, "InputTensor is >f4, must be float32"),
    "small": (
        {"input_tensor": X[:2]},
        "InputTensor in bytes is 32, must be at least 48, what (1, 1, 3, 4) of float32 needs",
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
    if first + 9 <= 10 or first >= 18:
        operator.dispatch(input_tensor=source, output_tensor=target)
    else:
        assert refused(operator, input_tensor=source, output_tensor=target)


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


def test_a_dispatch_like_an_earlier_one_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = compile_operator(REVERSE, device="cpu")
    arrays = bound(get_device("cpu"))
    operator.dispatch(**arrays)
    monkeypatch.setattr(operator, "_check", lambda *_: pytest.fail("checked again"))
    arrays["output_tensor"][...] = SENTINEL
    operator.dispatch(**arrays)
    assert_identical(arrays["output_tensor"], REVERSED)


def test_what_was_checked_once_is_refused_once_it_changed() -> None:
    """The same array objects with another state, and other arrays at the same place."""
    operator = compile_operator(REVERSE, device="cpu")
    arrays = bound(get_device("cpu"))
    operator.dispatch(**arrays)
    output = arrays["output_tensor"]
    output.flags.writeable = False
    assert refused(operator, **arrays) == ["OutputTensor is read-only, must be writable"]
    output.flags.writeable = True
    operator.dispatch(**arrays)
    as_integers = arrays | {"output_tensor": output.view(np.int32)}
    assert refused(operator, **as_integers) == ["OutputTensor is int32, must be float32"]
    assert refused(operator, **arrays, extra=output)
    operator.dispatch(**arrays)


def test_more_bindings_than_are_remembered_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudml.compiled.MAX_CHECKED_BINDINGS", 2)
    operator = compile_operator(REVERSE, device="cpu")
    kept = [bound(get_device("cpu")) for _ in range(4)]
    for arrays in kept * 2:
        arrays["output_tensor"][...] = SENTINEL
        operator.dispatch(**arrays)
        assert_identical(arrays["output_tensor"], REVERSED)
    assert len(operator._checked) <= 2


OWNED = TensorDesc(F32, (3, 4), (8, 2), TensorFlags.OWNED_BY_DML)


def test_owned_inputs_are_copied_when_the_operator_is_initialized(device: Device) -> None:
    operator = compile_operator(copy_desc(OWNED), device=device)
    assert operator.persistent_resource_size >= OWNED.span_bytes
    wide = to_device(device, np.zeros((3, 8), np.float32))
    wide[:, ::2] = to_device(device, X)
    operator.initialize(input_tensor=wide[:, ::2])
    wide[...] = 0
    output = to_device(device, np.zeros((3, 4), np.float32))
    operator.dispatch(output_tensor=output)
    assert_identical(output, X)


def test_owned_inputs_live_in_the_given_persistent_resource(device: Device) -> None:
    operator = compile_operator(copy_desc(OWNED), device=device)
    resource = device.empty((operator.persistent_resource_size,), np.uint8)
    values = np.zeros((3, 8), np.float32)
    values[:, ::2] = X
    operator.initialize(input_tensor=to_device(device, values), persistent_resource=resource)
    resource[...] = 0
    output = to_device(device, np.full((3, 4), SENTINEL))
    operator.dispatch(output_tensor=output)
    assert_identical(output, np.zeros((3, 4), np.float32))


def test_operators_of_one_descriptor_own_different_inputs() -> None:
    desc = copy_desc(TensorDesc(F32, (4,), None, TensorFlags.OWNED_BY_DML))
    operators = [compile_operator(desc, device="cpu") for _ in range(2)]
    for operator, row in zip(operators, X, strict=False):
        operator.initialize(input_tensor=row)
    for operator, row in zip(operators, X, strict=False):
        output = np.zeros(4, np.float32)
        operator.dispatch(output_tensor=output)
        assert_identical(output, row)


def test_owned_inputs_are_bound_once_and_only_at_initialization() -> None:
    operator = compile_operator(copy_desc(OWNED), device="cpu")
    output = np.full((3, 4), SENTINEL)
    not_yet = (
        "InputTensor is not initialized, must be given to initialize(input_tensor=...) before dispatch, "
        "since it is OWNED_BY_DML"
    )
    assert refused(operator, output_tensor=output) == [not_yet]
    bound_too = "InputTensor is bound, must be left out: it is OWNED_BY_DML, so initialize() takes it"
    assert refused(operator, output_tensor=output, input_tensor=X) == [bound_too, not_yet]
    with pytest.raises(BindingError, match="InputTensor in bytes is 32, must be at least 92"):
        operator.initialize(input_tensor=X[:2])
    with pytest.raises(BindingError, match="output_tensor is not a binding, must be input_tensor"):
        operator.initialize(input_tensor=np.zeros((3, 8), np.float32), output_tensor=output)
    with pytest.raises(BindingError, match="PersistentResource is a list, must be a numpy"):
        operator.initialize(input_tensor=np.zeros((3, 8), np.float32), persistent_resource=[])  # type: ignore[arg-type]
    assert (output == SENTINEL).all()
    operator.initialize(input_tensor=np.zeros((3, 8), np.float32))
    assert refused(operator, output_tensor=output, input_tensor=X) == [bound_too]
    operator.dispatch(output_tensor=output)
    assert (output == 0).all()


def test_initialize_without_owned_inputs_takes_nothing() -> None:
    operator = compile_operator(REVERSE, device="cpu")
    assert operator.persistent_resource_size == 0
    operator.initialize()
    with pytest.raises(
        BindingError, match="input_tensor is not a binding, must be left out: nothing is bound here"
    ):
        operator.initialize(input_tensor=X)


def with_scratch(device: Device) -> tuple[CompiledOperator, dict[str, Any]]:
    """An operator that needs a temporary resource, and good bindings."""
    sizes = {"input_tensor": (1, 9, 2, 3), "weight_tensor": (1, 1, 12, 3), "recurrence_tensor": (1, 1, 12, 4)}
    rng = np.random.default_rng(1)
    arrays = {name: to_device(device, rng.random(size).astype(np.float32)) for name, size in sizes.items()}
    tensors = {name: TensorDesc(F32, size) for name, size in sizes.items()}
    output = (9, 1, 2, 4)
    desc = GruDesc(
        **tensors,
        bias_tensor=None,
        hidden_init_tensor=None,
        sequence_lengths_tensor=None,
        output_sequence_tensor=TensorDesc(F32, output),
        output_single_tensor=None,
        activation_descs=(Activation.sigmoid(), Activation.tanh()),
        direction=RecurrentNetworkDirection.FORWARD,
        linear_before_reset=True,
    )
    operator = compile_operator(desc, device=device)
    assert operator.temporary_resource_size > 0
    return operator, arrays | {"output_sequence_tensor": to_device(device, np.zeros(output, np.float32))}


def test_a_given_temporary_resource_saves_the_allocation(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, arrays = with_scratch(device)
    operator.dispatch(**arrays)
    expected = to_numpy(arrays["output_sequence_tensor"]).copy()
    assert (expected != 0).all()
    scratch = device.empty((operator.temporary_resource_size,), np.uint8)
    operator.dispatch(**arrays, temporary_resource=scratch)
    monkeypatch.setattr(type(device), "empty", lambda *_: pytest.fail("allocated"))
    arrays["output_sequence_tensor"][...] = SENTINEL
    operator.dispatch(**arrays, temporary_resource=scratch)
    assert_identical(arrays["output_sequence_tensor"], expected)


def test_a_temporary_resource_that_is_too_small_is_refused(device: Device) -> None:
    operator, arrays = with_scratch(device)
    size = operator.temporary_resource_size
    scratch = device.empty((size - 1,), np.uint8)
    for _ in range(2):
        assert refused(operator, **arrays, temporary_resource=scratch) == [
            f"TemporaryResource is {size - 1} bytes, must be at least {size} bytes"
        ]
    operator.dispatch(**arrays, temporary_resource=device.empty((size,), np.uint8))
    assert refused(operator, **arrays, temporary_resource=scratch)


def test_wrong_temporary_resources_are_refused() -> None:
    operator = compile_operator(REVERSE, device="cpu")
    arrays = bound(get_device("cpu"))
    assert refused(operator, **arrays, temporary_resource=[]) == [
        "TemporaryResource is a list, must be a numpy.ndarray on cpu"
    ]
    found = refused(operator, **arrays, temporary_resource=np.zeros((4, 64), np.uint8)[:, ::2])
    assert found == ["TemporaryResource is of strides (64, 2), must be C-contiguous"]
    fixed = np.zeros(64, np.uint8)
    fixed.flags.writeable = False
    assert refused(operator, **arrays, temporary_resource=fixed) == [
        "TemporaryResource is read-only, must be writable"
    ]
    (found_odd,) = refused(operator, **arrays, temporary_resource=np.zeros(64, np.uint8)[1:])
    assert found_odd.startswith("TemporaryResource is at address 0x")
    (overlap,) = refused(operator, **arrays, temporary_resource=arrays["output_tensor"])
    assert overlap.startswith("OutputTensor is overlapping TemporaryResource, must be in memory of its own")


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


@pytest.mark.gpu
def test_a_dispatch_can_be_captured_and_replayed() -> None:
    if not cudml.devices.cuda.status().usable:
        pytest.skip("no GPU")
    import cupy

    device = get_device("cuda")
    operator = compile_operator(REVERSE, device=device)
    arrays = bound(device)
    operator.dispatch(**arrays)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        operator.dispatch(**arrays)
        graph = stream.end_capture()
    arrays["output_tensor"][...] = SENTINEL
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert_identical(arrays["output_tensor"], REVERSED)
