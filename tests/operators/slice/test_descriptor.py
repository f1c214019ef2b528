"""SLICE's and SLICE1's rules, each broken by itself, with the exact message; and the tables of levels."""

from dataclasses import replace

import pytest

from cudml.checks import ALL11, BASE8
from cudml.enums import DataType, FeatureLevel, TensorFlags
from cudml.errors import DescriptorError
from cudml.operators.slice.operator import Slice1Desc, SliceDesc, check
from cudml.tensors import TensorDesc

F32 = DataType.FLOAT32
INPUT = TensorDesc(F32, (1, 1, 4, 4))
OUTPUT = TensorDesc(F32, (1, 1, 2, 2))
SLICE = SliceDesc(INPUT, OUTPUT, (0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3))
SLICE1 = Slice1Desc(INPUT, OUTPUT, (0, 0, 1, 0), (1, 1, 3, 4), (1, 1, -2, 3))
LATEST = FeatureLevel.LEVEL_6_4

BROKEN_SLICE = {
    "no tensor": (
        {"input_tensor": None},
        "InputTensor is None, must be a cudml.TensorDesc",
    ),
    "types differ": (
        {"output_tensor": TensorDesc(DataType.INT32, (1, 1, 2, 2))},
        "OutputTensor.DataType is INT32, must be FLOAT32, as InputTensor.DataType",
    ),
    "sizes are not the output's": (
        {"sizes": (1, 1, 2, 1)},
        "OutputTensor.Sizes is (1, 1, 2, 2), must be (1, 1, 2, 1), as Sizes",
    ),
    "too few offsets": (
        {"offsets": (1, 0)},
        "Offsets is 2: (1, 0), must be 4 numbers, one per dimension",
    ),
    "negative offset": (
        {"offsets": (0, 0, -1, 0)},
        "Offsets[2] is -1, must be 0 to 4294967295",
    ),
    "offsets are not a sequence": (
        {"offsets": 3},
        "Offsets is 3, must be a sequence of integers",
    ),
    "stride 0": (
        {"strides": (1, 0, 2, 3)},
        "Strides[1] is 0, must be 1 to 4294967295",
    ),
    "negative stride": (
        {"strides": (1, 1, 2, -3)},
        "Strides[3] is -3, must be 1 to 4294967295",
    ),
    "reads past the end": (
        {"offsets": (0, 0, 2, 0)},
        "Offsets[2] + (Sizes[2] - 1) * Strides[2] is 4, must be at most 3, "
        "the last element of InputTensor.Sizes[2] = 4",
    ),
    "overlapping output": (
        {"output_tensor": TensorDesc(F32, (1, 1, 2, 2), (4, 4, 0, 1))},
        "OutputTensor.Strides is (4, 4, 0, 1), must be strides that give every element its own place, "
        "because outputs are written",
    ),
    "owned output": (
        {"output_tensor": TensorDesc(F32, (1, 1, 2, 2), None, TensorFlags.OWNED_BY_DML)},
        "OutputTensor.Flags is OWNED_BY_DML, must be NONE on an output",
    ),
}

BROKEN_SLICE1 = {
    "stride 0": (
        {"input_window_strides": (1, 1, 0, 3)},
        "InputWindowStrides[2] is 0, must be any integer but 0",
    ),
    "stride beyond INT": (
        {"input_window_strides": (1, 1, -2, 2**31)},
        "InputWindowStrides[3] is 2147483648, must be -2147483648 to 2147483647",
    ),
    "empty window": (
        {"input_window_sizes": (1, 1, 0, 4)},
        "InputWindowSizes[2] is 0, must be 1 to 4294967295",
    ),
    "window past the end": (
        {"input_window_offsets": (0, 0, 2, 0)},
        "InputWindowOffsets[2] + InputWindowSizes[2] is 5, must be at most 4, InputTensor.Sizes[2]",
    ),
    "output larger than the window gives": (
        {"input_window_sizes": (1, 1, 2, 4)},
        "OutputTensor.Sizes[2] is 2, must be at most 1, as InputWindowSizes[2] = 2 gives with a step of 2",
    ),
    "no integers": (
        {"input_window_offsets": (0, 0, 0.5, 0)},
        "InputWindowOffsets is (0, 0, 0.5, 0), must be a sequence of integers",
    ),
}


def problems(desc: SliceDesc | Slice1Desc, level: FeatureLevel = LATEST) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        check(desc, level)
    return [str(problem) for problem in caught.value.problems]


def test_valid_descriptors_pass() -> None:
    check(SLICE, FeatureLevel.LEVEL_1_0)
    check(SLICE1, FeatureLevel.LEVEL_2_1)


@pytest.mark.parametrize("case", BROKEN_SLICE.values(), ids=BROKEN_SLICE.keys())
def test_each_broken_rule_of_slice(case: tuple) -> None:
    change, text = case
    assert problems(replace(SLICE, **change)) == [text]


@pytest.mark.parametrize("case", BROKEN_SLICE1.values(), ids=BROKEN_SLICE1.keys())
def test_each_broken_rule_of_slice1(case: tuple) -> None:
    change, text = case
    assert problems(replace(SLICE1, **change)) == [text]


def test_dimension_counts_differ() -> None:
    output = TensorDesc(F32, (1, 2, 2))
    assert problems(replace(SLICE, output_tensor=output)) == [
        "OutputTensor.DimensionCount is 3, must be 4, as InputTensor.DimensionCount"
    ]


def test_several_broken_rules_are_reported_at_once() -> None:
    broken = SliceDesc(
        INPUT, TensorDesc(DataType.INT8, (1, 1, 2, 2)), (0, 0, 9, 0), (1, 1, 2, 3), (1, 1, 1, 1)
    )
    assert problems(broken, FeatureLevel.LEVEL_1_0) == [
        "OutputTensor.DataType is INT8, must be FLOAT32, FLOAT16, INT32, INT16, UINT32 or UINT16 "
        "at feature level 1_0 (allowed from 2_1)",
        "OutputTensor.DataType is INT8, must be FLOAT32, as InputTensor.DataType",
        "OutputTensor.Sizes is (1, 1, 2, 2), must be (1, 1, 2, 3), as Sizes",
        "Offsets[2] + (Sizes[2] - 1) * Strides[2] is 10, must be at most 3, "
        "the last element of InputTensor.Sizes[2] = 4",
    ]


def test_output_may_be_smaller_than_what_the_window_gives() -> None:
    check(replace(SLICE1, output_tensor=TensorDesc(F32, (1, 1, 1, 1))), LATEST)


#: Per level of the pages' tables: the counts of dimensions, the types.
TABLE = {
    FeatureLevel.LEVEL_1_0: ((4, 5), tuple(t for t in BASE8 if t not in (DataType.INT8, DataType.UINT8))),
    FeatureLevel.LEVEL_2_1: ((4, 5), BASE8),
    FeatureLevel.LEVEL_3_0: (tuple(range(1, 9)), BASE8),
    FeatureLevel.LEVEL_4_1: (tuple(range(1, 9)), ALL11),
}


@pytest.mark.parametrize("operator", [SliceDesc, Slice1Desc])
@pytest.mark.parametrize("level", list(FeatureLevel))
def test_tables_of_levels(operator: type, level: FeatureLevel) -> None:
    """Every type with every count of dimensions, at every level."""
    if operator is Slice1Desc and level < FeatureLevel.LEVEL_2_1:
        assert problems(SLICE1, level) == [f"FeatureLevel is {level}, must be 2_1 or above for SLICE1"]
        return
    counts, types = TABLE[max(row for row in TABLE if row <= level)]
    for count in range(1, 9):
        for kind in ALL11:
            a = TensorDesc(kind, (2,) * count)
            desc = operator(a, a, (0,) * count, (2,) * count, (1,) * count)
            if count in counts and kind in types:
                check(desc, level)
            else:
                num_problems = 2 * ((count not in counts) + (kind not in types))
                assert len(problems(desc, level)) == num_problems


def test_message_tells_the_level_that_allows_it() -> None:
    a = TensorDesc(DataType.INT64, (1, 1, 2))
    desc = SliceDesc(a, a, (0, 0, 0), (1, 1, 2), (1, 1, 1))
    assert problems(desc, FeatureLevel.LEVEL_2_1)[:2] == [
        "InputTensor.DimensionCount is 3, must be 4 to 5 at feature level 2_1 (allowed from 3_0)",
        "InputTensor.DataType is INT64, must be FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16 "
        "or UINT8 at feature level 2_1 (allowed from 4_1)",
    ]


def test_a_dimension_with_a_problem_does_not_hide_those_of_others() -> None:
    broken = replace(SLICE, strides=(1, 0, 2, 3), offsets=(0, 0, 2, 9))
    assert problems(broken)[1:] == [
        "Offsets[2] + (Sizes[2] - 1) * Strides[2] is 4, must be at most 3, "
        "the last element of InputTensor.Sizes[2] = 4",
        "Offsets[3] + (Sizes[3] - 1) * Strides[3] is 12, must be at most 3, "
        "the last element of InputTensor.Sizes[3] = 4",
    ]
