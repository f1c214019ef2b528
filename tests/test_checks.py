"""The rules that descriptors share, each broken by itself, with its message."""

import numpy as np
import pytest

from cudml import DataType, DescriptorError, FeatureLevel, TensorDesc, TensorFlags
from cudml.checks import (
    Problems,
    Support,
    camel,
    check_enum,
    check_integer,
    check_integers,
    check_not_owned,
    check_same_dimensions,
    check_same_type,
    check_sizes,
    check_support,
    check_tensor,
    one_of,
)

GOOD = TensorDesc(DataType.FLOAT32, (2, 3))
F32, F16, I8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8


def problems_of(tensor: object, *, is_output: bool = False) -> list[str]:
    problems = Problems("OP")
    check_tensor(problems, "input_tensor", tensor, is_output=is_output)
    return [str(problem) for problem in problems.found]


@pytest.mark.parametrize(
    "tensor",
    [
        GOOD,
        TensorDesc(F32, (2**32 - 1,)),
        TensorDesc(F32, (1,) * 8),
        TensorDesc(F32, (2, 3), (0, 0)),
        TensorDesc(F32, (2, 3), (100, 7)),
        TensorDesc(F32, (2, 3), None, TensorFlags.OWNED_BY_DML),
        TensorDesc(F32, (2, 3), None, TensorFlags.NONE, 24),
        TensorDesc(F32, (2, 3), None, TensorFlags.NONE, 4096, 256),
        TensorDesc(I8, (3,), None, TensorFlags.NONE, 4, 1),
        TensorDesc(F32, (5, 2), (1, 2**32 - 1)),
    ],
)
def test_good_tensors_have_no_problem(tensor: TensorDesc) -> None:
    assert problems_of(tensor) == []


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, "InputTensor is None, must be a cudml.TensorDesc"),
        (np.zeros(2), "InputTensor is a numpy.ndarray, must be a cudml.TensorDesc"),
        (TensorDesc(0, (2,)), "InputTensor.DataType is 0, must be a cudml.DataType: UNKNOWN, FLOAT32, "),  # type: ignore[arg-type]
        (
            TensorDesc(DataType.UNKNOWN, (2,)),
            "InputTensor.DataType is UNKNOWN, must be a type of 8, 16, 32 or 64 bits",
        ),
        (
            TensorDesc(DataType.INT4, (2,)),
            "InputTensor.DataType is INT4, must be a type of 8, 16, 32 or 64 bits",
        ),
        (TensorDesc(F32, (2, 0)), "InputTensor.Sizes[1] is 0, must be 1 to 4294967295"),
        (TensorDesc(F32, (-1, 2)), "InputTensor.Sizes[0] is -1, must be 1 to 4294967295"),
        (TensorDesc(F32, (2**32,)), "InputTensor.Sizes[0] is 4294967296, must be 1 to 4294967295"),
        (TensorDesc(F32, 5), "InputTensor.Sizes is 5, must be a sequence of integers"),  # type: ignore[arg-type]
        (TensorDesc(F32, (2.0,)), "InputTensor.Sizes is (2.0,), must be a sequence of integers"),  # type: ignore[arg-type]
        (TensorDesc(F32, ()), "InputTensor.DimensionCount is 0, must be 1 to 8"),
        (TensorDesc(F32, (1,) * 9), "InputTensor.DimensionCount is 9, must be 1 to 8"),
        (
            TensorDesc(F32, (2**16, 2**16)),
            "InputTensor.Sizes is (65536, 65536), must be at most 4294967295 elements",
        ),
        (
            TensorDesc(F32, (2, 3), (3,)),
            "InputTensor.Strides is 1: (3,), must be 2 numbers, one per dimension",
        ),
        (TensorDesc(F32, (2, 3), (-3, 1)), "InputTensor.Strides[0] is -3, must be 0 to 4294967295"),
        (
            TensorDesc(F32, (2, 3), (2**32, 1)),
            "InputTensor.Strides[0] is 4294967296, must be 0 to 4294967295",
        ),
        (
            TensorDesc(F32, (2, 3), None, TensorFlags.NONE, 23),
            "InputTensor.TotalTensorSizeInBytes is 23, must be at least 24, as sizes and strides imply",
        ),
        (
            TensorDesc(I8, (3,), None, TensorFlags.NONE, 3),
            "InputTensor.TotalTensorSizeInBytes is 3, must be at least 4, as sizes and strides imply",
        ),
        (
            TensorDesc(F32, (2, 3), None, TensorFlags.NONE, 24.0),  # type: ignore[arg-type]
            "InputTensor.TotalTensorSizeInBytes is 24.0, must be at least 24, as sizes and strides imply",
        ),
        (
            TensorDesc(F32, (2,), None, TensorFlags.NONE, None, 12),
            "InputTensor.GuaranteedBaseOffsetAlignment is 12, "
            "must be 0 or a power of two of at least 4, the size of an element",
        ),
        (
            TensorDesc(F32, (2,), None, TensorFlags.NONE, None, 2),
            "InputTensor.GuaranteedBaseOffsetAlignment is 2, "
            "must be 0 or a power of two of at least 4, the size of an element",
        ),
        (
            TensorDesc(F32, (2,), None, 1),
            "InputTensor.Flags is 1, must be a cudml.TensorFlags: NONE or OWNED",
        ),  # type: ignore[arg-type]
    ],
)
def test_each_rule_of_a_tensor_gives_its_own_problem(tensor: object, message: str) -> None:
    (found,) = problems_of(tensor)
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("tensor", "is_sized"),
    [
        (GOOD, True),
        (TensorDesc(DataType.UNKNOWN, (2, 3), (-1, 1)), True),
        (TensorDesc(F32, (2**16, 2**16)), True),
        ([2, 3], False),
        (TensorDesc(F32, 5), False),  # type: ignore[arg-type]
        (TensorDesc(F32, (0,)), False),
        (TensorDesc(F32, ()), False),
        (TensorDesc(F32, (1,) * 9), False),
    ],
)
def test_operators_rely_on_the_sizes_of_sized_tensors_alone(tensor: object, is_sized: bool) -> None:
    assert check_tensor(Problems("OP"), "input_tensor", tensor) == is_sized


@pytest.mark.parametrize("kind", [DataType.UNKNOWN, DataType.UINT4, DataType.INT4, 0, None])
def test_an_invalid_data_type_gives_no_further_problems(kind: object) -> None:
    untyped, problems = TensorDesc(kind, (1,) * 4), Problems("OP")  # type: ignore[arg-type]
    check_same_type(problems, "output_tensor", untyped, "input_tensor", GOOD)
    check_same_type(problems, "output_tensor", GOOD, "input_tensor", untyped)
    assert check_support(problems, ROWS, FeatureLevel.LEVEL_6_4, {"input_tensor": untyped})
    assert problems.found == []


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (3, 2), (2, 1)])
def test_outputs_must_not_overlap_themselves(strides: tuple[int, int]) -> None:
    tensor = TensorDesc(F32, (2, 3), strides)
    assert problems_of(tensor) == []
    (found,) = problems_of(tensor, is_output=True)
    assert found == (
        f"InputTensor.Strides is {strides}, "
        "must be strides that give every element its own place, because outputs are written"
    )


def test_outputs_are_never_owned_by_dml() -> None:
    tensor = TensorDesc(F32, (2,), None, TensorFlags.OWNED_BY_DML)
    assert problems_of(tensor, is_output=True) == [
        "InputTensor.Flags is OWNED_BY_DML, must be NONE on an output"
    ]


def test_all_problems_come_at_once() -> None:
    tensor = TensorDesc(F32, (2, 3), (3, -1), TensorFlags.OWNED_BY_DML, 4, 3)
    assert len(problems_of(tensor, is_output=True)) == 2  # bytes are unknown without strides
    tensor = TensorDesc(F32, (2, 3), (0, 1), TensorFlags.OWNED_BY_DML, 4, 3)
    assert len(problems_of(tensor, is_output=True)) == 4


def test_error_has_the_parts_and_the_text() -> None:
    problems = Problems("OP")
    problems.add("A.B", "rule", "right", 5)
    with pytest.raises(DescriptorError, match=r"^OP has 1 problem\n  A\.B is 5, must be right$") as caught:
        problems.raise_if_any()
    (problem,) = caught.value.problems
    assert (problem.member, problem.rule, problem.expected, problem.got) == ("A.B", "rule", "right", "5")
    assert caught.value.operator == "OP"
    assert caught.value.hresult == 0x80070057
    assert isinstance(caught.value, ValueError)
    problems.add("C", "rule", "right", 6)
    with pytest.raises(DescriptorError, match=r"^OP has 2 problems\n  A\.B is 5, must be right\n  C is 6, "):
        problems.raise_if_any()


def test_no_problem_raises_nothing() -> None:
    Problems("OP").raise_if_any()


ROWS = (
    Support(FeatureLevel.LEVEL_2_1, (4,), {"input_tensor": (F32,)}),
    Support(FeatureLevel.LEVEL_4_0, (4, 5), {"input_tensor": (F32, F16)}),
)


@pytest.mark.parametrize(
    ("level", "tensor", "messages"),
    [
        (FeatureLevel.LEVEL_2_1, TensorDesc(F32, (1,) * 4), []),
        (FeatureLevel.LEVEL_3_1, TensorDesc(F32, (1,) * 4), []),
        (FeatureLevel.LEVEL_6_4, TensorDesc(F16, (1,) * 5), []),
        (
            FeatureLevel.LEVEL_1_0,
            TensorDesc(F32, (1,) * 4),
            ["FeatureLevel is 1_0, must be 2_1 or above for OP"],
        ),
        (
            FeatureLevel.LEVEL_3_0,
            TensorDesc(F16, (1,) * 5),
            [
                "InputTensor.DimensionCount is 5, must be 4 at feature level 3_0 (allowed from 4_0)",
                "InputTensor.DataType is FLOAT16, must be FLOAT32 at feature level 3_0 (allowed from 4_0)",
            ],
        ),
        (
            FeatureLevel.LEVEL_6_4,
            TensorDesc(I8, (1,) * 3),
            [
                "InputTensor.DimensionCount is 3, must be 4 to 5 at feature level 6_4",
                "InputTensor.DataType is INT8, must be FLOAT32 or FLOAT16 at feature level 6_4",
            ],
        ),
    ],
)
def test_levels_allow_what_the_highest_row_at_or_below_them_says(
    level: FeatureLevel, tensor: TensorDesc, messages: list[str]
) -> None:
    problems = Problems("OP")
    assert check_support(problems, ROWS, level, {"input_tensor": tensor}) == (not messages)
    assert [str(problem) for problem in problems.found] == messages


def test_rules_between_tensors() -> None:
    problems = Problems("OP")
    other = TensorDesc(F16, (2, 3, 1))
    check_same_type(problems, "output_tensor", other, "input_tensor", GOOD)
    check_sizes(problems, "output_tensor", other, [2, 3], "as Sizes")
    assert not check_same_dimensions(problems, "output_tensor", other, "input_tensor", GOOD)
    owned = TensorDesc(F32, (2,), None, TensorFlags.OWNED_BY_DML)
    check_not_owned(
        problems, {"input_tensor": owned, "bias_tensor": GOOD}, ["input_tensor", "bias_tensor", "none"]
    )
    assert [str(problem) for problem in problems.found] == [
        "OutputTensor.DataType is FLOAT16, must be FLOAT32, as InputTensor.DataType",
        "OutputTensor.Sizes is (2, 3, 1), must be (2, 3), as Sizes",
        "OutputTensor.DimensionCount is 3, must be 2, as InputTensor.DimensionCount",
        "InputTensor.Flags is OWNED_BY_DML, must be NONE: OP supports OWNED_BY_DML on no input",
    ]
    problems = Problems("OP")
    check_same_type(problems, "output_tensor", GOOD, "input_tensor", GOOD)
    check_sizes(problems, "output_tensor", GOOD, [2, 3], "as Sizes")
    assert check_same_dimensions(problems, "output_tensor", GOOD, "input_tensor", GOOD)
    assert problems.found == []


@pytest.mark.parametrize(("value", "is_good"), [(1, True), (3, True), (0, False), (4, False), (True, False),
                                                 (2.0, False), ("2", False), (None, False)])  # fmt: skip
def test_integers_are_integers_in_range(value: object, is_good: bool) -> None:
    problems = Problems("OP")
    assert check_integer(problems, "K", value, 1, 3) == is_good
    expected = [] if is_good else [f"K is {value!r}, must be an integer from 1 to 3"]
    assert [str(problem) for problem in problems.found] == expected


def test_every_bad_number_of_a_sequence_is_reported() -> None:
    problems = Problems("OP")
    assert not check_integers(problems, "Offsets", (0, 7, -1), 3, 0, 5)
    assert [problem.member for problem in problems.found] == ["Offsets[1]", "Offsets[2]"]


def test_enumerations_are_not_their_numbers() -> None:
    problems = Problems("OP")
    assert check_enum(problems, "Flags", TensorFlags.NONE, TensorFlags)
    assert not check_enum(problems, "Flags", 0, TensorFlags)
    assert [str(p) for p in problems.found] == [
        "Flags is 0, must be a cudml.TensorFlags: NONE or OWNED_BY_DML"
    ]


def test_spelling() -> None:
    assert camel("output_value_tensor") == "OutputValueTensor"
    assert one_of(["a"]) == "a"
    assert one_of([F32, F16, "x"]) == "FLOAT32, FLOAT16 or x"
