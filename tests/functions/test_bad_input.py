"""Wrong input of every kind, from the front: a clear error, no crash, and no output touched."""

import contextlib
import dataclasses
import os
import subprocess
import sys
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

ROOT = Path(__file__).resolve().parents[2]
F32, F16, F64 = DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT64
U32, U64, I8, I32 = DataType.UINT32, DataType.UINT64, DataType.INT8, DataType.INT32


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
            "must be strides that give every element its own place, because outputs are written"
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
    (SLICE, {"offsets": (0, 0, 1)}, ["Offsets is 3: (0, 0, 1), must be 4 numbers, one per dimension"]),
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
        ["OutputTensor.Sizes[3] is 2, must be at most 1, as InputWindowSizes[3] = 4 gives with a step of 4"],
    ),
    (SLICE1, {"input_window_sizes": (1, 1, 0, 4)}, ["InputWindowSizes[2] is 0, must be 1 to 4294967295"]),
    (
        GRU,
        {"output_sequence_tensor": None, "output_single_tensor": None},
        ["OutputSequenceTensor is None, must be given unless OutputSingleTensor is"],
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
    assert caught.value.operator == operator_type_of("compile_operator", desc).name
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
            "Offsets is 3: (0, 0, 1), must be 4 numbers, one per dimension",
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
            "must be strides that give every element its own place, because outputs are written",
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
    # An unknown name is refused at once.
    st.sampled_from([*cudml.OperatorType, "Tanh", "elu"])
    | JUNK.filter(lambda kind: not isinstance(kind, str)),
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
    operator = OPERATORS[operator_type_of("compile_operator", desc)]
    with contextlib.suppress(DescriptorError):
        operator.check(desc, level)
        # A descriptor that passes can be planned, and is the key of a cache.
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
        operator = OPERATORS[operator_type_of("compile_operator", desc)]
        operator.check(desc, FeatureLevel.LEVEL_6_4)
        (launch,) = operator.plan(desc, limits).steps
        assert str(size - 1) in str(launch) or str((size - 1) * source.element.size) in str(launch)
    wide = TensorDesc(F32, (2, 2), (2**32 - 1, 2**32 - 1))
    assert wide.minimum_bytes == 4 * (1 + 2 * (2**32 - 1))


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate interpreter, in which nothing is loaded yet."""
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


def test_a_missing_compiler_is_reported_with_what_to_install(tmp_path: Path) -> None:
    folders = {"CUDML_CACHE_DIR": str(tmp_path)}
    done = run_python(SLICE_SCRIPT, CUDML_CXX="no-such-compiler", **folders)
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert first.startswith("CompilerError CUDML_CXX is 'no-such-compiler', which cannot be run")
    assert "install" in done.stdout
    assert last == "[-77.0, -77.0]"


def test_a_compiler_that_fails_is_reported_with_its_log(tmp_path: Path) -> None:
    compiler = tmp_path / "broken-compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho "no, sorry" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    done = run_python(SLICE_SCRIPT, CUDML_CXX=str(compiler), CUDML_CACHE_DIR=str(tmp_path / "cache"))
    assert "CompilerError" in done.stdout
    assert "no, sorry" in done.stdout
    assert done.stdout.splitlines()[-1] == "[-77.0, -77.0]"


def test_an_unusable_cache_folder_is_reported_once_and_not_used(tmp_path: Path) -> None:
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
    assert lines[0].startswith("compile_operator: desc is a NoneType, must be one of cudml's SliceDesc, ")
    assert lines[1].startswith("CUDA cannot be used: ")
    assert done.returncode == 0


def test_problems_of_tensors_do_not_hide_those_of_other_members() -> None:
    untyped = TensorDesc(DataType.UNKNOWN, (4,), strides=(-1,))
    with pytest.raises(DescriptorError) as caught:
        compile_operator(SliceDesc(untyped, TensorDesc(DataType.INT8, (3,)), (2,), (3,), (1,)))
    assert [problem.member for problem in caught.value.problems] == [
        "InputTensor.DataType",
        "InputTensor.Strides[0]",
        "Offsets[0] + (Sizes[0] - 1) * Strides[0]",
    ]
    with pytest.raises(DescriptorError) as caught:
        compile_operator(SliceDesc("tensor", None, 1, (3,), (1,)))
    assert [problem.member for problem in caught.value.problems] == ["InputTensor", "OutputTensor", "Offsets"]
