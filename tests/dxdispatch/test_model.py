"""Whole models of DxDispatch: resources, dispatchables, commands, and the errors of broken ones."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudml import ExecutionFlags, ModelError, TensorFlags
from cudml.devices import Device
from cudml.dxdispatch.model import Print, load_model
from cudml.dxdispatch.run import run_model

ROOT = Path(__file__).resolve().parents[2]

SLICE_MODEL: dict[str, Any] = {
    "$schema": "./_schema.json",
    "resources": {
        "input": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": {"valueCount": 25, "valueStart": 1, "valueDelta": 1},
        },
        "output": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 6, "value": 0}},
    },
    "dispatchables": {
        "slice": {
            "type": "DML_OPERATOR_SLICE",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 5, 5]},
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 2]},
                "DimensionCount": 4,
                "Offsets": [0, 0, 1, 1],
                "Sizes": [1, 1, 3, 2],
                "Strides": [1, 1, 1, 2],
            },
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "slice",
            "bindings": {"InputTensor": "input", "OutputTensor": "output"},
        },
        {"type": "print", "resource": "output"},
    ],
}


def written(folder: Path, model: Any) -> Path:
    """A model as a file."""
    path = folder / "model.json"
    path.write_text(json.dumps(model))
    return path


def with_change(*keys: str | int, value: Any) -> dict[str, Any]:
    """SLICE_MODEL with one value replaced, or removed if it is `...`."""
    model = json.loads(json.dumps(SLICE_MODEL))
    node = model
    for key in keys[:-1]:
        node = node[key]
    if value is ...:
        del node[keys[-1]]
    else:
        node[keys[-1]] = value
    return model


def lines_of(path: Path, device: Device) -> list[str]:
    lines: list[str] = []
    run_model(load_model(path), device, echo=lines.append)
    return lines


def test_the_slice_model_of_dxdispatch_runs(device: Device, tmp_path: Path) -> None:
    assert lines_of(written(tmp_path, SLICE_MODEL), device) == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


def test_a_resource_may_be_bound_from_an_element_on(device: Device, tmp_path: Path) -> None:
    model = with_change("resources", "input", "initialValues", "valueCount", value=30)
    model["commands"][0]["bindings"]["InputTensor"] = {"name": "input", "elementOffset": 5}
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 12, 14, 17, 19, 22, 24"]


@pytest.mark.parametrize("offset", [{}, {"elementOffset": 0}])
def test_a_resource_may_be_bound_by_name_from_its_start(
    offset: dict[str, int], device: Device, tmp_path: Path
) -> None:
    model = with_change("commands", 0, "bindings", "InputTensor", value={"name": "input", **offset})
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


def test_the_size_of_an_element_may_be_given_to_count_an_offset_in(device: Device, tmp_path: Path) -> None:
    model = with_change("resources", "input", "initialValues", "valueCount", value=30)
    binding = {"name": "input", "elementOffset": 1, "elementSizeInBytes": 20}
    model["commands"][0]["bindings"]["InputTensor"] = binding
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 12, 14, 17, 19, 22, 24"]


FULL_BINDING = {
    "name": "input",
    "format": "DXGI_FORMAT_R32_FLOAT",
    "elementCount": 25,
    "elementSizeInBytes": 0,
    "elementStride": 4,
    "elementOffset": 5,
    "counter": "output",
    "counterOffsetBytes": 4,
    "shape": [5, 5],
}


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("commands", 0, "threadGroupCount"), [2, 1, 1]),
        (("commands", 0, "type"), "Dispatch"),
        (("commands", 1, "type"), "PRINT"),
        (("commands", 1, "verbose"), False),
        (("resources", "input", "type"), "buffer"),
        (("resources", "input", "initialValuesOffsetInBytes"), 0),
        (("dispatchables", "slice", "dmlCompileType"), "DmlCompileGraph"),
        (("dispatchables", "slice", "dmlCompileType"), "DmlCompileOp"),
        (("dispatchables", "slice", "executionFlags"), []),
        (("dispatchables", "slice", "executionFlags"), "DESCRIPTORS_VOLATILE"),
        (
            ("dispatchables", "slice", "executionFlags"),
            ["DISABLE_META_COMMANDS", "DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE"],
        ),
        (("dispatchables", "slice", "desc", "InputTensor", "Flags"), ["NONE"]),
        (("dispatchables", "slice", "desc", "InputTensor", "TotalTensorSizeInBytes"), 0),
    ],
)
def test_what_dxdispatch_reads_is_read(
    keys: tuple[str | int, ...], value: Any, device: Device, tmp_path: Path
) -> None:
    model = with_change(*keys, value=value)
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


def test_members_of_a_binding_that_other_dispatchables_go_by_change_nothing(
    device: Device, tmp_path: Path
) -> None:
    model = with_change("resources", "input", "initialValues", "valueCount", value=30)
    model["commands"][0]["bindings"]["InputTensor"] = FULL_BINDING
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 12, 14, 17, 19, 22, 24"]


def test_flags_of_a_list_are_all_set(tmp_path: Path) -> None:
    flags = ["DISABLE_META_COMMANDS", "ALLOW_HALF_PRECISION_COMPUTATION"]
    model = with_change("dispatchables", "slice", "executionFlags", value=flags)
    model["dispatchables"]["slice"]["desc"]["InputTensor"]["Flags"] = ["NONE", "DML_TENSOR_FLAG_OWNED_BY_DML"]
    read = load_model(written(tmp_path, model)).dispatchables["slice"]
    expected = ExecutionFlags.DISABLE_META_COMMANDS | ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION
    assert read.flags == expected
    assert read.desc.input_tensor.flags == TensorFlags.OWNED_BY_DML


def resource(kind: str | None, values: Any, **others: Any) -> dict[str, Any]:
    named = {} if kind is None else {"initialValuesDataType": kind}
    return named | {"initialValues": values} | others


STRUCT = [{"name": "n", "type": "UINT16", "value": 258}, {"type": "UINT8", "value": 3}]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (resource("FLOAT16", [65504, "nan", "inf", "-inf", 0.5]), "65504, nan, inf, -inf, 0.5"),
        (resource("DML_TENSOR_DATA_TYPE_INT8", [-128, 127, 3]), "-128, 127, 3"),
        (resource("UINT64", [2**64 - 1]), "18446744073709551615"),
        (resource("INT32", [2.0]), "2"),
        (resource("FLOAT32", {"valueCount": 4, "valueStart": 1, "valueDelta": 2.5}), "1, 3.5, 6, 8.5"),
        (
            resource("INT64", {"valueCount": 2, "valueStart": 2**60, "valueDelta": -1}),
            "1152921504606846976, 1152921504606846975",
        ),
        (resource("UINT8", {"valueCount": 3, "valueStart": 4, "valueDelta": -2}), "4, 2, 0"),
        (resource("INT32", {"valueCount": 1, "value": 9}), "9"),
        (resource("UINT8", [7], sizeInBytes=256), "7"),
        (resource("INT16", [7, 8], type="buffer", initialValuesOffsetInBytes=3, sizeInBytes=7), "7, 8"),
        (resource("UNKNOWN", STRUCT), "2, 1, 3"),
        (resource(None, STRUCT), "2, 1, 3"),
        (resource("INT16", {"sourcePath": "VALUES.BIN"}), "513, 1027"),
        (resource(None, {"sourcePath": "values.npy"}), "1, 2, 3, 4"),
        (resource("INT16", {"sourcePath": "values.bin"}), "513, 1027"),
    ],
)
def test_first_values(given: dict[str, Any], text: str, device: Device, tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", np.arange(1, 5, dtype=np.int32).reshape(2, 2))
    for name in ("values.bin", "VALUES.BIN"):
        (tmp_path / name).write_bytes(bytes([1, 2, 3, 4]))
    model = {
        "resources": {"r": given},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "r"}],
    }
    assert lines_of(written(tmp_path, model), device) == [f"Resource 'r': {text}"]


BROKEN: dict[str, tuple[Any, str]] = {
    "resources": (with_change("resources", value=...), "resources is missing, must be an object"),
    "commands": (with_change("commands", value={}), "commands is {}, must be a list"),
    "top": ([], "the top level is [], must be an object"),
    "key": (
        with_change("command", value=[]),
        "command is unknown, must be one of resources, dispatchables, commands; the closest is commands",
    ),
    "no values": (
        with_change("resources", "input", "initialValues", value=...),
        "resources.input.initialValues is missing, must be a list, or an object with valueCount or ",
    ),
    "no type": (
        with_change("resources", "input", "initialValuesDataType", value=...),
        "resources.input.initialValuesDataType is missing, must be the name of a data type",
    ),
    "empty": (
        with_change("resources", "input", "initialValues", value=[]),
        "resources.input.initialValues is [], must be a list that is not empty",
    ),
    "count": (
        with_change("resources", "input", "initialValues", "valueCount", value=0),
        "resources.input.initialValues.valueCount is 0, must be from 1 to 4294967295",
    ),
    "range": (
        with_change(
            "resources", "input", value={"initialValuesDataType": "UINT8", "initialValues": [1, 256]}
        ),
        "resources.input.initialValues[1] is 256, must be from 0 to 255, the range of uint8",
    ),
    "range of doubles": (
        with_change(
            "resources", "input", value={"initialValuesDataType": "UINT8", "initialValues": [10**400]}
        ),
        "resources.input.initialValues[0] is 1000000000000000000000000000000000",
    ),
    "fraction": (
        with_change("resources", "input", value={"initialValuesDataType": "UINT8", "initialValues": ["nan"]}),
        "resources.input.initialValues[0] is 'nan', must be an integer, because the type is uint8",
    ),
    "sequence": (
        with_change(
            "resources",
            "input",
            value={
                "initialValuesDataType": "INT8",
                "initialValues": {"valueCount": 3, "valueStart": 126, "valueDelta": 1},
            },
        ),
        "resources.input.initialValues.valueDelta is 1, must be such that 126 to 128 lie in -128 to 127, ",
    ),
    "falling sequence": (
        with_change(
            "resources",
            "input",
            value={
                "initialValuesDataType": "UINT8",
                "initialValues": {"valueCount": 6, "valueStart": 4, "valueDelta": -1},
            },
        ),
        "resources.input.initialValues.valueDelta is -1, must be such that 4 to -1 lie in 0 to 255, ",
    ),
    "four bits": (
        with_change("resources", "input", "initialValuesDataType", value="INT4"),
        "resources.input.initialValuesDataType is 'INT4', must be a type of 8, 16, 32 or 64 bits",
    ),
    "types of values": (
        with_change(
            "resources", "input", value={"initialValuesDataType": "INT8", "initialValues": [{"type": "INT8"}]}
        ),
        "resources.input.initialValuesDataType is 'INT8', must be UNKNOWN or left out, because every value",
    ),
    "size": (
        with_change("resources", "input", "sizeInBytes", value=99),
        "resources.input.sizeInBytes is 99, must be from 100, the size of the initial values, to 92233720368",
    ),
    "size of no array": (
        with_change("resources", "input", "sizeInBytes", value=2**63),
        "resources.input.sizeInBytes is 9223372036854775808, must be from 100, the size of the initial ",
    ),
    "no double": (
        with_change("resources", "input", "initialValues", "valueStart", value=10**400),
        "resources.input.initialValues.valueStart is 1000000000000000000000000000000000000000000000000000000",
    ),
    "long file name": (
        with_change("resources", "input", "initialValues", value={"sourcePath": "a" * 5000 + ".npy"}),
        "resources.input.initialValues.sourcePath is 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    "no file": (
        with_change("resources", "input", "initialValues", value={"sourcePath": "none.npy"}),
        "resources.input.initialValues.sourcePath is 'none.npy', must be a file in ",
    ),
    "operator": (
        with_change("dispatchables", "slice", "type", value="DML_OPERATOR_GEMM"),
        "dispatchables.slice.type is 'DML_OPERATOR_GEMM', must be one of SLICE, TOP_K, GRU, ",
    ),
    "shader": (
        with_change("dispatchables", "slice", "type", value="hlsl"),
        "dispatchables.slice.type is 'hlsl', must be a DirectML operator (SLICE, TOP_K, GRU, ",
    ),
    "member": (
        with_change("dispatchables", "slice", "desc", "Offsets", 0, value="a"),
        "dispatchables.slice.desc.Offsets[0] is 'a', must be an integer",
    ),
    "command": (
        with_change("commands", 0, "type", value="run"),
        "commands[0].type is 'run', must be one of dispatch, print, writeFile",
    ),
    "dispatchable": (
        with_change("commands", 0, "dispatchable", value="slices"),
        "commands[0].dispatchable is 'slices', must be one of slice; the closest is slice",
    ),
    "bind point": (
        with_change("commands", 0, "bindings", "Input", value="input"),
        "commands[0].bindings.Input is unknown, must be one of InputTensor, OutputTensor",
    ),
    "resource": (
        with_change("commands", 0, "bindings", "InputTensor", value="inputs"),
        "commands[0].bindings.InputTensor is 'inputs', must be one of input, output; the closest is input",
    ),
    "several": (
        with_change("commands", 0, "bindings", "InputTensor", value=["input", "output"]),
        "commands[0].bindings.InputTensor is a list of 2, must be one resource",
    ),
    "offset": (
        with_change("commands", 0, "bindings", "InputTensor", value={"name": "input", "elementOffset": 25}),
        "commands[0].bindings.InputTensor.elementOffset is 25, must be an element of the resource, which ",
    ),
    "printed": (
        with_change("commands", 1, "resource", value=3),
        "commands[1].resource is 3, must be a string",
    ),
    "file of what is printed": (
        with_change("commands", 1, "targetPath", value="a.npy"),
        "commands[1].targetPath is unknown, must be one of type, resource",
    ),
    "compile type": (
        with_change("dispatchables", "slice", "dmlCompileType", value="DmlCompileFast"),
        "dispatchables.slice.dmlCompileType is 'DmlCompileFast', must be one of DmlCompileOp, DmlCompile",
    ),
    "execution flags": (
        with_change("dispatchables", "slice", "executionFlags", value=["NONE", "FAST"]),
        "dispatchables.slice.executionFlags[1] is 'FAST', must be one of NONE, ALLOW_HALF_PRECISION_COMP",
    ),
    "number of flags": (
        with_change("dispatchables", "slice", "executionFlags", value=2),
        "dispatchables.slice.executionFlags is 2, must be a name or a list of names, each one of NONE, ALLOW",
    ),
    "texture": (
        with_change("resources", "input", "type", value="texture"),
        "resources.input.type is 'texture', must be one of buffer",
    ),
    "offset of values": (
        with_change("resources", "input", "initialValuesOffsetInBytes", value=1),
        "resources.input.initialValuesOffsetInBytes is 1, must be at most 0 where sizeInBytes is left out",
    ),
    "negative offset of values": (
        with_change("resources", "input", "initialValuesOffsetInBytes", value=-4),
        "resources.input.initialValuesOffsetInBytes is -4, must be from 0 to 9223372036854775804",
    ),
    "values past the end": (
        with_change(
            "resources",
            "output",
            value={
                "initialValuesDataType": "FLOAT32",
                "initialValues": [1],
                "initialValuesOffsetInBytes": 8,
                "sizeInBytes": 11,
            },
        ),
        "resources.output.sizeInBytes is 11, must be from 12, where the initial values end, to 922337203685",
    ),
    "picture": (
        with_change("resources", "input", "resampleSize", value=[1, 3, 8, 8]),
        "resources.input.resampleSize is given, must be left out: cudml reads no images, only .npy, .bin or",
    ),
    "deferred": (
        with_change("resources", "input", "initialValues", value="deferred"),
        "resources.input.initialValues is 'deferred', must be a list, or an object with valueCount or source",
    ),
    "constant and sequence": (
        with_change("resources", "input", "initialValues", "value", value=1),
        "resources.input.initialValues.value is given, must be left out, because valueStart is given",
    ),
    "two thread groups": (
        with_change("commands", 0, "threadGroupCount", value=[1, 1]),
        "commands[0].threadGroupCount is a list of 2, must be a list of 3 integers",
    ),
    "no thread group": (
        with_change("commands", 0, "threadGroupCount", value=[1, 0, 1]),
        "commands[0].threadGroupCount[1] is 0, must be from 1 to 4294967295",
    ),
    "counter": (
        with_change("commands", 0, "bindings", "InputTensor", value={"name": "input", "counter": "count"}),
        "commands[0].bindings.InputTensor.counter is 'count', must be one of input, output",
    ),
    "shape": (
        with_change("commands", 0, "bindings", "InputTensor", value={"name": "input", "shape": [5, 0]}),
        "commands[0].bindings.InputTensor.shape[1] is 0, must be at least 1",
    ),
    "count of elements": (
        with_change("commands", 0, "bindings", "InputTensor", value={"name": "input", "elementCount": "a"}),
        "commands[0].bindings.InputTensor.elementCount is 'a', must be an integer",
    ),
    "verbose": (
        with_change("commands", 1, "verbose", value="yes"),
        "commands[1].verbose is 'yes', must be true or false",
    ),
    "dimensions": (
        with_change(
            "commands",
            1,
            value={"type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": [2, 2]},
        ),
        "commands[1].dimensions is [2, 2], of 4 elements, must be of 6 elements, the number of",
    ),
    "no dimension": (
        with_change(
            "commands",
            1,
            value={"type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": []},
        ),
        "commands[1].dimensions is a list of 0, must be a list of 1 to 64 integers",
    ),
    "image": (
        with_change("commands", 1, value={"type": "writeFile", "resource": "output", "targetPath": "a.png"}),
        "commands[1].targetPath is 'a.png', must be a path of .npy, .bin or .dat",
    ),
}


@pytest.mark.parametrize(("model", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_model_is_reported_by_file_and_key_path(model: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, model)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_files_that_are_not_json_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    for content, message in [
        (b'{"resources": }', "line 1, column 15 is not JSON (Expecting value), must be JSON"),
        (b"", "line 1, column 1 is not JSON (Expecting value), must be JSON"),
        (b"\xff\xfe", "byte 0 is not, must be UTF-8 text"),
        (
            b'{"a": 1, "b": 2, "a": 3}',
            "the file is JSON that gives 'a' twice, must be JSON objects of different keys",
        ),
        (
            b"[1e999]",
            "the file is JSON with 1e999, must be JSON of numbers that float64 has, which ends at 1.8e308",
        ),
        (
            b"[NaN]",
            'the file is not JSON (NaN), must be JSON, which has strings for them ("nan", "inf", "-inf")',
        ),
        (b"[" * 100_000, "the file is not JSON that can be read, must be nested less deeply"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_model(path)
        assert str(caught.value) == f"{path}: {message}"
    path.write_text("[" + "9" * 5000 + "]")
    with pytest.raises(ModelError, match=r"model\.json: the (file is unreadable|top level is \[9999)"):
        load_model(path)
    with pytest.raises(
        ModelError, match=r"file is unreadable \(No such file or directory\), must be readable"
    ):
        load_model(tmp_path / "none.json")


def test_comments_and_commas_too_many_are_passed_over(tmp_path: Path) -> None:
    """As DxDispatch does; its guide has commas before closing brackets."""
    path = tmp_path / "model.json"
    path.write_text(
        """{ // /* of SLICE
        "resources": {"a//b": {"initialValues": [1, 2, /* 3, */ ], "initialValuesDataType": "INT8", }, },
        "dispatchables": {}, /* "x": {},
        "y": */ "commands": [{"type": "print", "resource": "a//b"}, // ,]
        ],\n}"""
    )
    model = load_model(path)
    assert model.resources["a//b"].data().tolist() == [1, 2, 0, 0]
    assert [command.resource for command in model.commands if isinstance(command, Print)] == ["a//b"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{/* two\nlines */ ]", "line 2, column 10"),
        ('{"a": ",]", // b\n  x}', "line 2, column 3"),
        ("[1,,2]", "line 1, column 4"),
        ('["a\n', "line 1, column 4"),
    ],
)
def test_text_that_is_not_json_apart_from_comments_is_reported_by_its_place(
    text: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=f"{place} is not JSON"):
        load_model(path)


def test_a_byte_order_mark_of_a_windows_editor_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, SLICE_MODEL)
    expected = load_model(path).commands
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_model(path).commands == expected


def test_source_files_in_swapped_byte_order_hold_the_same_numbers(device: Device, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1, 26, dtype=np.float32).astype(">f4"))
    model = with_change("resources", "input", "initialValues", value={"sourcePath": "a.npy"})
    assert lines_of(written(tmp_path, model), device) == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


@pytest.mark.parametrize("dtype", ["complex64", "U1", "datetime64[D]", "f4,f4", "longdouble"])
def test_source_files_of_other_dtypes_are_refused(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, dtype))
    model = with_change("resources", "input", "initialValues", value={"sourcePath": "a.npy"})
    expected = f"sourcePath is of dtype {np.dtype(dtype)}, must be a file of a dtype that DirectML supports"
    with pytest.raises(ModelError, match=re.escape(expected)):
        load_model(written(tmp_path, model))


def test_a_source_file_may_hold_one_element_but_not_none(device: Device, tmp_path: Path) -> None:
    model = {
        "resources": {"r": resource(None, {"sourcePath": "a.npy"})},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "r"}],
    }
    np.save(tmp_path / "a.npy", np.array([5], np.int8))
    assert lines_of(written(tmp_path, model), device) == ["Resource 'r': 5"]
    np.save(tmp_path / "a.npy", np.zeros((0, 3), np.int8))
    with pytest.raises(ModelError, match="sourcePath is empty, must be a file with at least one element"):
        load_model(written(tmp_path, model))


@pytest.mark.parametrize("num_bytes", [0, 3, 6])
def test_raw_source_files_hold_whole_elements(num_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(num_bytes))
    model = with_change("resources", "input", "initialValues", value={"sourcePath": "a.bin"})
    expected = f"sourcePath is of {num_bytes} bytes, must be a file of a multiple of 4 bytes"
    with pytest.raises(ModelError, match=expected):
        load_model(written(tmp_path, model))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"text"])
def test_source_files_that_numpy_cannot_read_are_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    model = with_change("resources", "input", "initialValues", value={"sourcePath": "a.npy"})
    with pytest.raises(ModelError, match=r"sourcePath is 'a\.npy', must be a file that NumPy can read"):
        load_model(written(tmp_path, model))


@pytest.mark.parametrize("text", ["/*", '"\\', '"', "/", ", "])
def test_broken_text_takes_time_in_proportion_to_its_length(text: str, tmp_path: Path) -> None:
    """A megabyte of comments or strings that are opened and not closed once took hours."""
    path = tmp_path / "model.json"
    path.write_text("[" + text * (2**20 // len(text)))
    with pytest.raises(ModelError, match="is not JSON"):
        load_model(path)


def test_all_problems_of_a_model_are_reported_at_once(tmp_path: Path) -> None:
    """The problems of resources come before those of their users."""
    model = with_change("resources", "input", "initialValuesDataType", value="FLOAT")
    model["resources"]["output"] = {}
    model["dispatchables"]["slice"] = {}
    with pytest.raises(ModelError) as caught:
        load_model(written(tmp_path, model))
    lines = str(caught.value).split("\n  ")
    assert [line.removeprefix(f"{tmp_path}/model.json: ").split(" is ")[0] for line in lines] == [
        "resources.input.initialValuesDataType",
        "resources.output.initialValues",
    ]
    model = with_change("dispatchables", "slice", "desc", "Strides", value=...)
    del model["dispatchables"]["slice"]["desc"]["Offsets"]
    with pytest.raises(ModelError) as caught:
        load_model(written(tmp_path, model))
    assert [problem.path for problem in (caught.value, *caught.value.others)] == [
        "dispatchables.slice.desc.Offsets",
        "dispatchables.slice.desc.Strides",
    ]
