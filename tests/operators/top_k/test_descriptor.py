"""TOP_K1's and TOP_K's rules, each broken by itself, with the exact message; and the tables of levels."""

from dataclasses import replace

import pytest

from cudml.checks import BASE8
from cudml.enums import AxisDirection, DataType, FeatureLevel, TensorFlags
from cudml.errors import DescriptorError
from cudml.operators.top_k.operator import TopK1Desc, TopKDesc, check
from cudml.tensors import TensorDesc

F32, U32 = DataType.FLOAT32, DataType.UINT32
OUT = (1, 1, 3, 2)
DESC = TopK1Desc(
    TensorDesc(F32, (1, 1, 3, 4)), TensorDesc(F32, OUT), TensorDesc(U32, OUT), 3, 2, AxisDirection.DECREASING
)
LATEST = FeatureLevel.LEVEL_6_4

BROKEN = {
    "no tensor": (
        {"input_tensor": None},
        ["InputTensor is None, must be a cudml.TensorDesc"],
    ),
    "no values": (
        {"output_value_tensor": None},
        ["OutputValueTensor is None, must be a cudml.TensorDesc"],
    ),
    "indices without sizes": (
        {"output_index_tensor": TensorDesc(U32, ())},
        ["OutputIndexTensor.DimensionCount is 0, must be 1 to 8"],
    ),
    "types differ": (
        {"output_value_tensor": TensorDesc(DataType.INT32, OUT)},
        ["OutputValueTensor.DataType is INT32, must be FLOAT32, as InputTensor.DataType"],
    ),
    "signed indices": (
        {"output_index_tensor": TensorDesc(DataType.INT64, OUT)},
        ["OutputIndexTensor.DataType is INT64, must be UINT64 or UINT32 at feature level 6_4"],
    ),
    "dimension counts differ": (
        {"output_index_tensor": TensorDesc(U32, OUT[1:])},
        ["OutputIndexTensor.DimensionCount is 3, must be 4, as InputTensor.DimensionCount"],
    ),
    "value sizes": (
        {"output_value_tensor": TensorDesc(F32, (1, 1, 3, 3))},
        [
            "OutputValueTensor.Sizes is (1, 1, 3, 3), must be (1, 1, 3, 2), "
            "InputTensor.Sizes with K along Axis"
        ],
    ),
    "index sizes": (
        {"output_index_tensor": TensorDesc(U32, (1, 1, 2, 2))},
        [
            "OutputIndexTensor.Sizes is (1, 1, 2, 2), must be (1, 1, 3, 2), "
            "InputTensor.Sizes with K along Axis"
        ],
    ),
    "axis past the last": ({"axis": 4}, ["Axis is 4, must be an integer from 0 to 3"]),
    "negative axis": ({"axis": -1}, ["Axis is -1, must be an integer from 0 to 3"]),
    "axis is not an integer": ({"axis": 1.0}, ["Axis is 1.0, must be an integer from 0 to 3"]),
    "axis is a bool": ({"axis": True}, ["Axis is True, must be an integer from 0 to 3"]),
    "k is 0": ({"k": 0}, ["K is 0, must be an integer from 1 to 4294967295"]),
    "k exceeds UINT": ({"k": 2**32}, ["K is 4294967296, must be an integer from 1 to 4294967295"]),
    "k is not an integer": ({"k": "2"}, ["K is '2', must be an integer from 1 to 4294967295"]),
    "k beyond the axis": ({"k": 5}, ["K is 5, must be at most 4, InputTensor.Sizes[3]"]),
    "no direction": (
        {"axis_direction": 1},
        ["AxisDirection is 1, must be a cudml.AxisDirection: INCREASING or DECREASING"],
    ),
    "FLOAT64": (
        {
            "input_tensor": TensorDesc(DataType.FLOAT64, (1, 1, 3, 4)),
            "output_value_tensor": TensorDesc(DataType.FLOAT64, OUT),
        },
        [
            f"{member}.DataType is FLOAT64, must be FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, "
            "UINT8, INT64 or UINT64 at feature level 6_4"
            for member in ("InputTensor", "OutputValueTensor")
        ],
    ),
    "overlapping output": (
        {"output_value_tensor": TensorDesc(F32, OUT, (6, 6, 0, 1))},
        [
            "OutputValueTensor.Strides is (6, 6, 0, 1), must be strides that give every element its own "
            "place, because outputs are written"
        ],
    ),
    "owned output": (
        {"output_index_tensor": TensorDesc(U32, OUT, None, TensorFlags.OWNED_BY_DML)},
        ["OutputIndexTensor.Flags is OWNED_BY_DML, must be NONE on an output"],
    ),
    "three rules at once": (
        {"axis": 9, "k": 0, "axis_direction": None},
        [
            "AxisDirection is None, must be a cudml.AxisDirection: INCREASING or DECREASING",
            "K is 0, must be an integer from 1 to 4294967295",
            "Axis is 9, must be an integer from 0 to 3",
        ],
    ),
    "axis without an input": (
        {"input_tensor": None, "axis": 8},
        [
            "InputTensor is None, must be a cudml.TensorDesc",
            "Axis is 8, must be an integer from 0 to 7",
        ],
    ),
}


def problems(desc: TopK1Desc | TopKDesc, level: FeatureLevel = LATEST) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        check(desc, level)
    return [str(problem) for problem in caught.value.problems]


def without_direction(desc: TopK1Desc) -> TopKDesc:
    tensors = desc.input_tensor, desc.output_value_tensor, desc.output_index_tensor
    return TopKDesc(*tensors, desc.axis, desc.k)


def with_types(values: DataType, indices: DataType, dimension_count: int = 4) -> TopK1Desc:
    def tensor(kind: DataType, sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(kind, (1,) * (dimension_count - len(sizes)) + sizes[-dimension_count:])

    return replace(
        DESC,
        input_tensor=tensor(values, (3, 4)),
        output_value_tensor=tensor(values, (3, 2)),
        output_index_tensor=tensor(indices, (3, 2)),
        axis=dimension_count - 1,
    )


def test_valid_descriptors_pass() -> None:
    check(DESC, FeatureLevel.LEVEL_2_1)
    check(without_direction(DESC), FeatureLevel.LEVEL_1_0)
    owned = TensorDesc(F32, (1, 1, 3, 4), (0, 0, 0, 1), TensorFlags.OWNED_BY_DML)
    check(replace(DESC, input_tensor=owned), LATEST)


def test_k_may_be_the_whole_axis() -> None:
    whole = TensorDesc(F32, (1, 1, 3, 4)), TensorDesc(U32, (1, 1, 3, 4))
    check(replace(DESC, k=4, output_value_tensor=whole[0], output_index_tensor=whole[1]), LATEST)


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_each_broken_rule(case: tuple) -> None:
    change, texts = case
    assert problems(replace(DESC, **change)) == texts
    if "axis_direction" not in change:
        assert problems(without_direction(replace(DESC, **change))) == texts


@pytest.mark.parametrize(
    ("level", "counts", "values", "indices"),
    [
        (FeatureLevel.LEVEL_2_1, {4}, {*BASE8}, {U32}),
        (FeatureLevel.LEVEL_3_0, {4}, {*BASE8}, {U32}),
        (FeatureLevel.LEVEL_3_1, {*range(1, 9)}, {*BASE8}, {U32}),
        (FeatureLevel.LEVEL_4_1, {*range(1, 9)}, {*BASE8}, {U32}),
        (
            FeatureLevel.LEVEL_5_0,
            {*range(1, 9)},
            {*BASE8, DataType.INT64, DataType.UINT64},
            {U32, DataType.UINT64},
        ),
    ],
    ids=str,
)
def test_levels(level: FeatureLevel, counts: set, values: set, indices: set) -> None:
    """Exactly these counts and types pass, each tried alone."""
    tried = [(with_types(F32, U32, count), count in counts) for count in range(1, 9)]
    for kind in DataType:
        if kind != DataType.UNKNOWN:
            tried.append((with_types(kind, U32), kind in values))
            tried.append((with_types(F32, kind), kind in indices))
    for desc, is_allowed in tried:
        for form in (desc, without_direction(desc)):
            if is_allowed:
                check(form, level)
            else:
                assert problems(form, level)


def test_first_levels() -> None:
    assert problems(DESC, FeatureLevel.LEVEL_2_0) == ["FeatureLevel is 2_0, must be 2_1 or above for TOP_K1"]
    assert problems(without_direction(with_types(DataType.INT8, U32)), FeatureLevel.LEVEL_2_0) == [
        f"{member}.DataType is INT8, must be FLOAT32, FLOAT16, INT32, INT16, UINT32 or UINT16 "
        "at feature level 2_0 (allowed from 2_1)"
        for member in ("InputTensor", "OutputValueTensor")
    ]
