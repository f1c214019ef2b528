"""Descriptors as dictionaries, in DxDispatch's spelling."""

import contextlib
import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from cudml import (
    Activation,
    AxisDirection,
    DataType,
    DescriptorError,
    GruDesc,
    ModelError,
    RecurrentNetworkDirection,
    ReverseSubsequencesDesc,
    Slice1Desc,
    SliceDesc,
    TensorDesc,
    TensorFlags,
    TopK1Desc,
    TopKDesc,
    compile_operator,
    from_dict,
    to_dict,
)
from cudml.operators import OPERATORS
from cudml.operators.gru.activations import ACTIVATIONS

F32, U32 = DataType.FLOAT32, DataType.UINT32


def tensor(*sizes: int, kind: DataType = F32) -> TensorDesc:
    return TensorDesc(kind, sizes)


def gru(activations: tuple[Activation, ...], **others: Any) -> GruDesc:
    return GruDesc(
        **{
            "input_tensor": tensor(1, 5, 2, 3),
            "weight_tensor": tensor(1, 1, 12, 3),
            "recurrence_tensor": tensor(1, 1, 12, 4),
            "bias_tensor": None,
            "hidden_init_tensor": None,
            "sequence_lengths_tensor": None,
            "output_sequence_tensor": tensor(5, 1, 2, 4),
            "output_single_tensor": None,
            "activation_descs": activations,
            "direction": RecurrentNetworkDirection.BACKWARD,
            "linear_before_reset": True,
        }
        | others
    )


SIGMOID_TANH = (Activation.sigmoid(), Activation.tanh())
STRIDED = TensorDesc(F32, (2, 3), (8, 0), TensorFlags.OWNED_BY_DML, 64, 16)
DESCRIPTORS = [
    SliceDesc(tensor(1, 1, 5, 5), tensor(1, 1, 3, 2), (0, 0, 1, 1), (1, 1, 3, 2), (1, 1, 1, 2)),
    SliceDesc(STRIDED, tensor(2, 3), (0, 0), (2, 3), (1, 1)),
    Slice1Desc(tensor(5), tensor(2), (1,), (4,), (-3,)),
    TopK1Desc(tensor(2, 8), tensor(2, 3), tensor(2, 3, kind=U32), 1, 3, AxisDirection.INCREASING),
    TopKDesc(tensor(2, 8), tensor(2, 3), tensor(2, 3, kind=U32), 1, 3),
    ReverseSubsequencesDesc(tensor(2, 8), tensor(2, 1, kind=U32), tensor(2, 8), 1),
    gru(SIGMOID_TANH),
    gru((Activation.hard_sigmoid(0.2, 0.5), Activation.scaled_tanh(math.inf, -math.inf))),
    gru(SIGMOID_TANH, bias_tensor=tensor(1, 1, 1, 24), sequence_lengths_tensor=tensor(1, 1, 1, 2, kind=U32)),
]


@pytest.mark.parametrize("desc", DESCRIPTORS, ids=lambda desc: type(desc).__name__)
def test_descriptors_survive_the_way_through_json(desc: Any) -> None:
    text = json.dumps(to_dict(desc), allow_nan=False)
    assert from_dict(json.loads(text)) == desc


def test_every_operator_is_among_them() -> None:
    assert {type(desc) for desc in DESCRIPTORS} == {row.descriptor for row in OPERATORS.values()}


@pytest.mark.parametrize("info", ACTIVATIONS.values(), ids=lambda info: info.name)
def test_every_activation_survives(info: Any) -> None:
    desc = gru((Activation(info.operator_type, info.defaults), Activation.tanh()))
    assert from_dict(json.loads(json.dumps(to_dict(desc)))) == desc


def test_a_nan_survives() -> None:
    desc = from_dict(json.loads(json.dumps(to_dict(gru((Activation.elu(math.nan), Activation.tanh()))))))
    assert math.isnan(desc.activation_descs[0].parameters[0])


def test_members_that_json_cannot_represent_are_reported() -> None:
    desc = TopKDesc(tensor(1, 8), tensor(1, 2), tensor(1, 2, kind=U32), 1, 2)
    for changes, message in [
        ({"k": "2"}, "to_dict: K is '2', must be what compile_operator takes"),
        (
            {"output_index_tensor": TensorDesc(U32, ("a",))},
            "to_dict: OutputIndexTensor.Sizes[0] is 'a', must",
        ),
        (
            {"input_tensor": TensorDesc("U", (8,))},
            "to_dict: InputTensor.DataType is 'U', must be a cudml.Data",
        ),
    ]:
        with pytest.raises(TypeError) as caught:
            to_dict(dataclasses.replace(desc, **changes))
        assert str(caught.value).startswith(message)


def test_spelling_is_that_of_dxdispatch() -> None:
    assert to_dict(DESCRIPTORS[0]) == {
        "Type": "DML_OPERATOR_SLICE",
        "Desc": {
            "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 5, 5]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 2]},
            "DimensionCount": 4,
            "Offsets": [0, 0, 1, 1],
            "Sizes": [1, 1, 3, 2],
            "Strides": [1, 1, 1, 2],
        },
    }
    assert to_dict(DESCRIPTORS[1])["Desc"]["InputTensor"] == {
        "DataType": "FLOAT32",
        "Sizes": [2, 3],
        "Strides": [8, 0],
        "Flags": "DML_TENSOR_FLAG_OWNED_BY_DML",
        "TotalTensorSizeInBytes": 64,
        "GuaranteedBaseOffsetAlignment": 16,
    }
    written = to_dict(DESCRIPTORS[7])["Desc"]
    assert written["ActivationDescCount"] == 2
    assert written["ActivationDescs"] == [
        {"Type": "DML_OPERATOR_ACTIVATION_HARD_SIGMOID", "Desc": {"Alpha": 0.2, "Beta": 0.5}},
        {"Type": "DML_OPERATOR_ACTIVATION_SCALED_TANH", "Desc": {"Alpha": "inf", "Beta": "-inf"}},
    ]
    assert written["Direction"] == "DML_RECURRENT_NETWORK_DIRECTION_BACKWARD"
    assert "BiasTensor" not in written


def reverse_dict() -> dict[str, Any]:
    """REVERSE_SUBSEQUENCES with everything written out that may be left out."""
    full = {
        "Type": "DML_TENSOR_TYPE_BUFFER",
        "Desc": {
            "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
            "Flags": "DML_TENSOR_FLAG_NONE",
            "DimensionCount": 2,
            "Sizes": [2, 8],
            "Strides": None,
            "TotalTensorSizeInBytes": 64,
            "GuaranteedBaseOffsetAlignment": 0,
        },
    }
    return {
        "Type": "DML_OPERATOR_REVERSE_SUBSEQUENCES",
        "Desc": {
            "InputTensor": full,
            "SequenceLengthsTensor": {"DataType": "UINT32", "Sizes": [2, 1]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [2, 8]},
            "Axis": 1,
        },
    }


def test_what_may_be_written_out_or_left_out_means_the_same() -> None:
    expected = ReverseSubsequencesDesc(
        TensorDesc(F32, (2, 8), None, TensorFlags.NONE, 64), tensor(2, 1, kind=U32), tensor(2, 8), 1
    )
    written = reverse_dict()
    assert from_dict(written) == expected
    assert from_dict({"Type": "REVERSE_SUBSEQUENCES", **written["Desc"]}) == expected
    assert from_dict({"type": "REVERSE_SUBSEQUENCES", "desc": written["Desc"]}) == expected


@pytest.mark.parametrize(
    ("written", "flags"),
    [
        (None, TensorFlags.NONE),
        ([], TensorFlags.NONE),
        (["NONE"], TensorFlags.NONE),
        ("OWNED_BY_DML", TensorFlags.OWNED_BY_DML),
        (["DML_TENSOR_FLAG_NONE", "OWNED_BY_DML"], TensorFlags.OWNED_BY_DML),
    ],
)
def test_flags_are_a_name_or_a_list_of_names(written: Any, flags: TensorFlags) -> None:
    assert from_dict(changed("Desc.InputTensor.Desc.Flags", written)).input_tensor.flags == flags


def test_a_total_size_of_0_is_worked_out_as_in_dxdispatch() -> None:
    desc = from_dict(changed("Desc.InputTensor.Desc.TotalTensorSizeInBytes", 0))
    assert desc.input_tensor == tensor(2, 8)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**5000, "an integer of 16610 bits"),
        (-(10**5000), "an integer of 16610 bits"),
        (deep(100_000), "[[[[[...]]]]]"),
        ("x" * 10**6, f"'{'x' * 56}..."),
        ([1] * 10**6, f"[{'1, ' * 18}1,..."),
        (dict.fromkeys(map(str, range(10**6)), 0), "{'0': 0, '1': 0, '2': 0, "),
    ],
    ids=["large", "very negative", "deep", "long text", "long list", "many keys"],
)
def test_errors_show_the_beginning_of_what_is_large(value: Any, text: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_dict(changed("Desc.Axis", value if not isinstance(value, int) else [value]))
    got = caught.value.got
    assert got.startswith(text if not isinstance(value, int) else f"[{text}]")
    assert len(got) <= 60


def changed(path: str, value: Any) -> dict[str, Any]:
    """`reverse_dict` with the value at a path replaced, or the key removed if it is `...`."""
    data = reverse_dict()
    node: Any = data
    *parents, last = path.split(".")
    for key in parents:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("Type", ..., "Type is missing, must be the name of an operator"),
        ("Type", 106, "Type is 106, must be a string"),
        ("Type", "DML_OPERATOR_RNN", "Type is 'DML_OPERATOR_RNN', must be one of SLICE, TOP_K, GRU, REVERSE"),
        ("Type", "SLICE2", "TOP_K1; the closest is SLICE"),
        ("Desc", [], "Desc is [], must be an object"),
        ("Desc.Axis", ..., "Desc.Axis is missing, must be an integer, which REVERSE_SUBSEQUENCES needs"),
        ("Desc.Axis", None, "Desc.Axis is missing, must be an integer, which REVERSE_SUBSEQUENCES needs"),
        ("Desc.Axis", "1", "Desc.Axis is '1', must be an integer"),
        ("Desc.Axis", True, "Desc.Axis is True, must be an integer"),
        ("Desc.Axis", 1.0, "Desc.Axis is 1.0, must be an integer"),
        (
            "Desc.Axes",
            1,
            "Desc.Axes is unknown, must be one of InputTensor, SequenceLengthsTensor, OutputTensor, Axis; "
            "the closest is Axis",
        ),
        ("Desc.InputTensor", ..., "Desc.InputTensor is missing, must be a tensor, which REV"),
        ("Desc.InputTensor", 5, "Desc.InputTensor is 5, must be an object"),
        (
            "Desc.InputTensor.Type",
            "TEXTURE",
            "Desc.InputTensor.Type is 'TEXTURE', must be DML_TENSOR_TYPE_BUFFER",
        ),
        ("Desc.InputTensor.Sizes", [1], "Desc.InputTensor.Sizes is unknown, must be one of Type, Desc"),
        (
            "Desc.InputTensor.Desc.Sizes",
            ...,
            "Desc.InputTensor.Desc.Sizes is missing, must be a list of integers",
        ),
        ("Desc.InputTensor.Desc.Sizes", 8, "Desc.InputTensor.Desc.Sizes is 8, must be a list"),
        (
            "Desc.InputTensor.Desc.Sizes",
            [2, "8"],
            "Desc.InputTensor.Desc.Sizes[1] is '8', must be an integer",
        ),
        (
            "Desc.InputTensor.Desc.DimensionCount",
            3,
            "Desc.InputTensor.Desc.DimensionCount is 3, must be 2, the ",
        ),
        (
            "Desc.InputTensor.Desc.DataType",
            ...,
            "Desc.InputTensor.Desc.DataType is missing, must be the name of a",
        ),
        (
            "Desc.InputTensor.Desc.DataType",
            "FLOAT",
            "Desc.InputTensor.Desc.DataType is 'FLOAT', must be one of UN",
        ),
        (
            "Desc.OutputTensor.Flags",
            "OWNED",
            "Desc.OutputTensor.Flags is 'OWNED', must be one of NONE, OWNED_BY_DML",
        ),
        (
            "Desc.OutputTensor.Size",
            [2, 8],
            "Desc.OutputTensor.Size is unknown, must be one of DataType, Flags, ",
        ),
    ],
)
def test_a_wrong_dictionary_is_reported_by_its_key_path(path: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_dict(changed(path, value))
    assert str(caught.value).startswith("from_dict: ")
    assert message in str(caught.value)
    assert caught.value.source == "from_dict"


def test_all_problems_of_a_dictionary_are_reported_at_once() -> None:
    tensor = {"DataType": "FLOAT", "Sizes": [1, "x"]}
    data = {"Type": "TOP_K1", "Desc": {"InputTensor": tensor, "Foo": 1, "Bar": 2, "Axis": 1.5}}
    with pytest.raises(ModelError) as caught:
        from_dict(data)
    assert [problem.path for problem in (caught.value, *caught.value.others)] == [
        *("Desc.Foo", "Desc.Bar", "Desc.InputTensor.DataType", "Desc.InputTensor.Sizes[1]"),
        *("Desc.OutputValueTensor", "Desc.OutputIndexTensor", "Desc.Axis", "Desc.K", "Desc.AxisDirection"),
    ]
    lines = str(caught.value).split("\n  ")
    assert lines[3:5] == [
        "from_dict: Desc.InputTensor.Sizes[1] is 'x', must be an integer",
        "from_dict: Desc.OutputValueTensor is missing, must be a tensor, which TOP_K1 needs",
    ]
    assert len(lines) == 9


def test_wrong_activations_are_reported() -> None:
    data = to_dict(DESCRIPTORS[7])
    for place, wrong, message in [
        (
            "ActivationDescCount",
            4,
            "Desc.ActivationDescCount is 4, must be 2, the length of the list that it ",
        ),
        (
            "ActivationDescs",
            [{"Type": "ACTIVATION_ELU"}],
            "Desc.ActivationDescs[0].Alpha is missing, must be a",
        ),
        (
            "ActivationDescs",
            [{"Type": "ACTIVATION_ELU", "Alpha": "big"}],
            'Desc.ActivationDescs[0].Alpha is \'big\', must be a number, "nan", "inf" or "-inf"',
        ),
        (
            "ActivationDescs",
            [{"Type": "ACTIVATION_TANH", "InputTensor": {}}],
            "Desc.ActivationDescs[0].InputTensor is {}, must be null, because the activation is fused",
        ),
        (
            "ActivationDescs",
            [{"Type": "ACTIVATION_SOFTMAX"}],
            "[0].Type is 'ACTIVATION_SOFTMAX', must be one of",
        ),
        (
            "ActivationDescs",
            [{"Type": "ACTIVATION_TANH", "Alpha": 1}],
            "ActivationDescs[0].Alpha is unknown, ",
        ),
        ("LinearBeforeReset", "yes", "Desc.LinearBeforeReset is 'yes', must be true or false"),
        ("Direction", "LEFT", "Desc.Direction is 'LEFT', must be one of FORWARD, BACKWARD, BIDIRECTIONAL"),
    ]:
        with pytest.raises(ModelError) as caught:
            from_dict({"Type": "GRU", "Desc": data["Desc"] | {place: wrong}})
        assert message in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["SLICE", "DML_OPERATOR_TOP_K1", "GRU", "FLOAT32", "nan"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["Type", "Desc", "InputTensor", "OutputTensor", "Sizes", "DataType", "Axis", "K"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@for_all(JSON)
def test_no_dictionary_makes_anything_but_the_two_errors(data: Any) -> None:
    with contextlib.suppress(ModelError, DescriptorError):
        compile_operator(from_dict(data), device="cpu")
