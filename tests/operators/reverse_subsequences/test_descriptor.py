"""REVERSE_SUBSEQUENCES' rules, each broken by itself, with the exact message; and the table of levels."""

from dataclasses import replace

import pytest

from cudml.checks import ALL11, BASE8
from cudml.enums import DataType, FeatureLevel, TensorFlags
from cudml.errors import DescriptorError
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc, check
from cudml.tensors import TensorDesc

F32, U32 = DataType.FLOAT32, DataType.UINT32
INPUT = TensorDesc(F32, (2, 3, 4, 5))
LENGTHS = TensorDesc(U32, (2, 1, 4, 5))
VALID = ReverseSubsequencesDesc(INPUT, LENGTHS, INPUT, 1)
LATEST = FeatureLevel.LEVEL_6_4

BROKEN = {
    "no lengths": (
        {"sequence_lengths_tensor": None},
        "SequenceLengthsTensor is None, must be a cudml.TensorDesc",
    ),
    "lengths of another shape": (
        {"sequence_lengths_tensor": TensorDesc(U32, (2, 3, 4, 5))},
        "SequenceLengthsTensor.Sizes is (2, 3, 4, 5), must be (2, 1, 4, 5), InputTensor.Sizes with 1 at Axis",
    ),
    "lengths of another rank": (
        {"sequence_lengths_tensor": TensorDesc(U32, (2, 1, 20))},
        "SequenceLengthsTensor.DimensionCount is 3, must be 4, as InputTensor.DimensionCount",
    ),
    "signed lengths": (
        {"sequence_lengths_tensor": TensorDesc(DataType.INT32, (2, 1, 4, 5))},
        "SequenceLengthsTensor.DataType is INT32, must be UINT64 or UINT32 at feature level 6_4",
    ),
    "types differ": (
        {"output_tensor": TensorDesc(DataType.INT32, (2, 3, 4, 5))},
        "OutputTensor.DataType is INT32, must be FLOAT32, as InputTensor.DataType",
    ),
    "sizes differ": (
        {"output_tensor": TensorDesc(F32, (2, 3, 4, 4))},
        "OutputTensor.Sizes is (2, 3, 4, 4), must be (2, 3, 4, 5), as InputTensor.Sizes",
    ),
    "axis beyond the dimensions": ({"axis": 4}, "Axis is 4, must be an integer from 0 to 3"),
    "negative axis": ({"axis": -1}, "Axis is -1, must be an integer from 0 to 3"),
    "axis is not an integer": ({"axis": 1.0}, "Axis is 1.0, must be an integer from 0 to 3"),
    "owned output": (
        {"output_tensor": TensorDesc(F32, (2, 3, 4, 5), None, TensorFlags.OWNED_BY_DML)},
        "OutputTensor.Flags is OWNED_BY_DML, must be NONE on an output",
    ),
    "broadcast output": (
        {"output_tensor": TensorDesc(F32, (2, 3, 4, 5), (0, 20, 5, 1))},
        "OutputTensor.Strides is (0, 20, 5, 1), must be strides that give every element its own place, "
        "because outputs are written",
    ),
}


def problems(desc: ReverseSubsequencesDesc, level: FeatureLevel = LATEST) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        check(desc, level)
    return [str(problem) for problem in caught.value.problems]


def test_valid_descriptors_pass() -> None:
    check(VALID, FeatureLevel.LEVEL_2_1)
    check(replace(VALID, sequence_lengths_tensor=TensorDesc(U32, (2, 1, 4, 5), (1, 0, 0, 0))), LATEST)


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_each_broken_rule(case: tuple) -> None:
    change, text = case
    assert problems(replace(VALID, **change)) == [text]


def test_several_broken_rules_are_reported_at_once() -> None:
    broken = ReverseSubsequencesDesc(INPUT, TensorDesc(U32, (2, 3, 4, 5)), TensorDesc(F32, (2, 3, 4)), 9)
    assert problems(broken, FeatureLevel.LEVEL_2_1) == [
        "OutputTensor.DimensionCount is 3, must be 4 at feature level 2_1 (allowed from 4_0)",
        "Axis is 9, must be an integer from 0 to 3",
        "OutputTensor.DimensionCount is 3, must be 4, as InputTensor.DimensionCount",
    ]


def test_too_low_a_level() -> None:
    assert problems(VALID, FeatureLevel.LEVEL_2_0) == [
        "FeatureLevel is 2_0, must be 2_1 or above for REVERSE_SUBSEQUENCES"
    ]


#: Per level of the page's tables: the counts of dimensions, the types, the types of lengths.
TABLE = {
    FeatureLevel.LEVEL_2_1: ((4,), BASE8, (U32,)),
    FeatureLevel.LEVEL_3_0: ((4, 5), BASE8, (U32,)),
    FeatureLevel.LEVEL_4_0: (tuple(range(1, 9)), BASE8, (U32,)),
    FeatureLevel.LEVEL_5_0: (tuple(range(1, 9)), ALL11, (U32, DataType.UINT64)),
}


@pytest.mark.parametrize("level", [level for level in FeatureLevel if level >= FeatureLevel.LEVEL_2_1])
def test_table_of_levels(level: FeatureLevel) -> None:
    counts, types, length_types = TABLE[max(row for row in TABLE if row <= level)]
    for count in range(1, 9):
        for kind in ALL11:
            for length_kind in (U32, DataType.UINT64):
                a = TensorDesc(kind, (2,) * count)
                lengths = TensorDesc(length_kind, (2,) * (count - 1) + (1,))
                desc = ReverseSubsequencesDesc(a, lengths, a, count - 1)
                refused = (
                    3 * (count not in counts) + 2 * (kind not in types) + (length_kind not in length_types)
                )
                if refused:
                    assert len(problems(desc, level)) == refused
                else:
                    check(desc, level)
