"""Compiling and dispatching: plans and programs, warm dispatches, owned inputs and scratch."""

import threading
import weakref

import numpy as np
import pytest

import cudml
from cudml import (
    BindingError,
    DataType,
    DescriptorError,
    DeviceError,
    ExecutionFlags,
    FeatureLevel,
    ReverseSubsequencesDesc,
    TensorDesc,
    TensorFlags,
    compile_operator,
)
from cudml.devices import Device, get_device
from cudml.operators import OPERATORS
from tests.support import assert_identical, to_device, to_numpy
from tests.support.bound_operators import (
    REVERSE,
    REVERSED,
    SENTINEL,
    X,
    bound,
    copy_desc,
    refused,
    with_scratch,
)

F32, U32 = DataType.FLOAT32, DataType.UINT32


def test_dispatch_computes_into_the_bound_output(device: Device) -> None:
    operator = compile_operator(REVERSE, device=device)
    arrays = bound(device)
    assert operator.dispatch(**arrays) is None
    assert_identical(arrays["output_tensor"], REVERSED)
    assert_identical(arrays["input_tensor"], X)


@pytest.mark.parametrize("stream", [object(), "1", True])
def test_an_invalid_stream_is_refused_before_any_work(device: Device, stream: object) -> None:
    """On a CPU every stream is invalid: silently ignoring one would hide a mistake."""
    arrays = bound(device)
    before = to_numpy(arrays["output_tensor"]).copy()
    with pytest.raises(TypeError, match=r"^REVERSE_SUBSEQUENCES: stream is (an object|a str|a bool), m"):
        compile_operator(REVERSE, device=device).dispatch(**arrays, stream=stream)
    assert_identical(arrays["output_tensor"], before)


def test_an_error_names_the_device_that_is_asked_for() -> None:
    expected = "must be 'cpu', 'cuda' or 'cuda:N' with N a device number"
    for name in ("gpu", "CPU", "cuda:x"):
        with pytest.raises(ValueError, match=f"^compile_operator: device is '{name}', {expected}"):
            compile_operator(REVERSE, device=name)
    with pytest.raises(DeviceError, match=r"^compile_operator: device is 'cuda:99': "):
        compile_operator(REVERSE, device="cuda:99")


def test_a_cpu_takes_no_stream() -> None:
    device = get_device("cpu")
    owned = TensorDesc(F32, (3, 4), flags=TensorFlags.OWNED_BY_DML)
    desc = ReverseSubsequencesDesc(owned, TensorDesc(U32, (3, 1)), TensorDesc(F32, (3, 4)), 1)
    operator = compile_operator(desc, device=device)
    message = "stream is an int, must be None on cpu, which has no streams"
    with pytest.raises(TypeError, match=message):
        device.empty((1,), np.uint8, 1)
    for named in (operator, compile_operator(REVERSE, device=device)):  # it has nothing to copy
        owned_arrays = {"input_tensor": X} if named is operator else {}
        with pytest.raises(TypeError, match=f"^REVERSE_SUBSEQUENCES: {message}"):
            named.initialize(**owned_arrays, persistent_resource=np.empty(64, np.uint8), stream=1)
    operator.initialize(input_tensor=X)
    arrays = bound(device)
    del arrays["input_tensor"]
    with pytest.raises(TypeError, match=message):
        operator.dispatch(**arrays, stream=1)


def test_device_by_name_is_the_device(device: Device) -> None:
    assert compile_operator(REVERSE, device=device.name).device is device


def test_no_device_is_the_current_gpu_or_the_cpu() -> None:
    assert compile_operator(REVERSE).device is get_device(
        "cuda" if cudml.devices.cuda.status().usable else "cpu"
    )


def test_unknown_device_names_are_refused() -> None:
    for name in ("gpu", "cuda:x", "cuda:-1", ""):
        with pytest.raises(ValueError, match="must be 'cpu', 'cuda' or 'cuda:N' with N a device number"):
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
    types = "one of cudml's SliceDesc, TopKDesc, GruDesc, .*; cudml.from_dict makes one"
    with pytest.raises(TypeError, match=f"compile_operator: desc is a dict, must be {types}"):
        compile_operator({}, device="cpu")
    with pytest.raises(TypeError, match=r"device is 0, must be 'cpu', 'cuda', 'cuda:N' or a device of cudml"):
        compile_operator(REVERSE, device=0)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"compile_operator: feature_level is 25600, must be a cudml\.FeatureLevel"
    ):
        compile_operator(REVERSE, device="cpu", feature_level=0x6400)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"flags is 1, must be cudml\.ExecutionFlags"):
        compile_operator(REVERSE, device="cpu", flags=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("flags", list(ExecutionFlags))
def test_execution_flags_change_nothing(flags: ExecutionFlags) -> None:
    assert (
        compile_operator(REVERSE, device="cpu", flags=flags).plan
        == compile_operator(REVERSE, device="cpu").plan
    )


def test_every_compile_gives_an_operator_of_its_own() -> None:
    first, second = (compile_operator(REVERSE, device="cpu") for _ in range(2))
    assert first is not second
    assert first.plan == second.plan


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
    """Binding relies on it: an operand that is not an output may overlap another input."""
    for row in OPERATORS.values():
        members = [m for m in row.descriptor.__dataclass_fields__ if m.endswith("tensor")]
        outputs = {member for member in members if member.startswith("output")}
        assert outputs
        if row.room == "slice":
            plan = compile_operator(copy_desc(TensorDesc(F32, (2,))), device="cpu").plan
            assert set(plan.outputs) == outputs


def test_a_dispatch_like_an_earlier_one_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = compile_operator(REVERSE, device="cpu")
    kept = [bound(get_device("cpu")) for _ in range(3)]
    for arrays in kept:
        operator.dispatch(**arrays)
    monkeypatch.setattr(operator, "_check", lambda *_: pytest.fail("checked again"))
    for arrays in kept:
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
    monkeypatch.setattr("cudml.compiled.MAX_GOOD", 2)
    operator = compile_operator(REVERSE, device="cpu")
    kept = [bound(get_device("cpu")) for _ in range(4)]
    for arrays in kept * 2:
        arrays["output_tensor"][...] = SENTINEL
        operator.dispatch(**arrays)
        assert_identical(arrays["output_tensor"], REVERSED)
    assert len(operator._good) <= 2


@pytest.fixture
def fixed_arrays(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The emulator with the shorter path of devices whose arrays keep their memory."""
    device = get_device("cpu")
    monkeypatch.setattr(type(device), "has_fixed_arrays", True)
    return device


def test_the_very_arrays_of_the_last_dispatch_are_not_even_described(
    fixed_arrays: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, arrays = with_scratch(fixed_arrays)
    scratch = fixed_arrays.empty((operator.temporary_resource_size,), np.uint8)
    operator.dispatch(**arrays, temporary_resource=scratch)
    expected = arrays["output_sequence_tensor"].copy()
    with monkeypatch.context() as patch:
        patch.setattr(operator, "_ensure_good", lambda *_: pytest.fail("looked at"))
        for given in ({"temporary_resource": scratch}, {}):
            arrays["output_sequence_tensor"][...] = SENTINEL
            operator.dispatch(**arrays, **given)
            assert_identical(arrays["output_sequence_tensor"], expected)


def test_others_than_the_arrays_of_the_last_dispatch_are_looked_at(fixed_arrays: Device) -> None:
    operator, arrays = with_scratch(fixed_arrays)
    for _ in range(2):
        operator.dispatch(**arrays)
        assert refused(operator, **arrays, temporary_resource=np.zeros(0, np.uint8))
        assert refused(operator, **arrays, extra=arrays["input_tensor"])
        assert refused(operator, **arrays | {"input_tensor": arrays["weight_tensor"]})
        assert refused(operator, **{name: a for name, a in arrays.items() if name != "input_tensor"})


def test_arrays_are_not_kept_alive_and_nothing_stands_for_a_dead_one(fixed_arrays: Device) -> None:
    operator, arrays = with_scratch(fixed_arrays)
    operator.dispatch(**arrays)
    alive = weakref.ref(arrays["input_tensor"])
    del arrays["input_tensor"]
    assert alive() is None
    (found,) = refused(operator, **arrays, input_tensor=None)
    assert found == "InputTensor is a NoneType, must be a numpy.ndarray on cpu"


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


def test_nothing_else_is_bound_in_the_persistent_resource() -> None:
    owned = TensorDesc(F32, (4,), None, TensorFlags.OWNED_BY_DML)
    operator = compile_operator(copy_desc(owned), device="cpu")
    size = operator.persistent_resource_size
    first, second = (get_device("cpu").empty((size,), np.uint8) for _ in range(2))
    within = second[:16].view(np.float32)
    operator.initialize(input_tensor=X[0], persistent_resource=first)
    for _ in range(2):
        operator.dispatch(output_tensor=within)
    operator.initialize(input_tensor=X[1], persistent_resource=second)
    where = "overlapping PersistentResource, must be in memory of its own: no operator runs in place"
    for _ in range(2):
        assert refused(operator, output_tensor=within) == [f"OutputTensor is {where}"]
    output = np.zeros(4, np.float32)
    found = refused(operator, output_tensor=output, temporary_resource=second)
    assert found == [f"TemporaryResource is {where}"]
    with pytest.raises(BindingError, match="PersistentResource is overlapping InputTensor, must be in"):
        operator.initialize(input_tensor=within, persistent_resource=second)
    operator.dispatch(output_tensor=output)
    assert_identical(output, X[1])


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
        "because it is OWNED_BY_DML"
    )
    assert refused(operator, output_tensor=output) == [not_yet]
    bound_too = "InputTensor is bound, must be left out, because it is OWNED_BY_DML: initialize() takes it"
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
