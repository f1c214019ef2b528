"""Wrong values in every member of a model: an error that names the member, and nothing else."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudml import DescriptorError, ModelError
from cudml.dxdispatch.model import load_model, read_model
from cudml.dxdispatch.reader import Node
from cudml.dxdispatch.values import SourceFolder
from tests.dxdispatch.test_model import FULL_BINDING, written


def tensor(*sizes: int, kind: str = "FLOAT32", **others: Any) -> dict[str, Any]:
    return {"DataType": kind, "Sizes": list(sizes), **others}


FULL_TENSOR = {
    "Type": "BUFFER",
    "Desc": tensor(
        1, 1, 5, 5, Flags=["NONE"], Strides=[25, 25, 5, 1], TotalTensorSizeInBytes=0, DimensionCount=4,
        GuaranteedBaseOffsetAlignment=4,
    ),
}  # fmt: skip

#: A model with every member that is read.
FULL_MODEL: dict[str, Any] = {
    "resources": {
        "input": {
            "type": "buffer",
            "initialValuesDataType": "FLOAT32",
            "initialValues": {"valueCount": 30, "valueStart": 0, "valueDelta": 0.5},
            "initialValuesOffsetInBytes": 0,
            "sizeInBytes": 256,
        },
        "output": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 60, "value": 0}},
        "list": {"initialValuesDataType": "UINT32", "initialValues": [1, 2]},
        "typed": {"initialValues": [{"name": "n", "type": "UINT32", "value": 3}]},
        "array": {"initialValues": {"sourcePath": "a.npy"}},
        "raw": {"initialValuesDataType": "INT32", "initialValues": {"sourcePath": "a.bin"}},
    },
    "dispatchables": {
        "slice": {
            "type": "DML_OPERATOR_SLICE",
            "dmlCompileType": "DmlCompileOp",
            "executionFlags": ["NONE"],
            "desc": {
                "InputTensor": FULL_TENSOR,
                "OutputTensor": tensor(1, 1, 3, 2),
                "DimensionCount": 4,
                "Offsets": [0, 0, 1, 1],
                "Sizes": [1, 1, 3, 2],
                "Strides": [1, 1, 1, 2],
            },
        },
        "reverse": {
            "type": "REVERSE_SUBSEQUENCES",
            "bindings": {"InputTensor": "input"},
            "desc": {
                "InputTensor": tensor(1, 1, 2, 8, Flags="OWNED_BY_DML"),
                "SequenceLengthsTensor": tensor(1, 1, 2, 1, kind="UINT32"),
                "OutputTensor": tensor(1, 1, 2, 8),
                "Axis": 3,
            },
        },
        "gru": {
            "type": "GRU",
            "desc": {
                "InputTensor": tensor(1, 2, 1, 2),
                "WeightTensor": tensor(1, 1, 6, 2),
                "RecurrenceTensor": tensor(1, 1, 6, 2),
                "OutputSequenceTensor": tensor(2, 1, 1, 2),
                "ActivationDescCount": 2,
                "ActivationDescs": [
                    {"Type": "ACTIVATION_TANH"},
                    {"Type": "ACTIVATION_ELU", "Desc": {"Alpha": 1}},
                ],
                "Direction": "FORWARD",
                "LinearBeforeReset": False,
            },
        },
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "slice",
            "threadGroupCount": [1, 1, 1],
            "bindings": {"InputTensor": FULL_BINDING, "OutputTensor": ["output"]},
        },
        {"type": "print", "resource": "output", "verbose": True},
        {"type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": [6, 10]},
    ],
}


def places(node: Any, *above: str | int) -> Iterator[tuple[str | int, ...]]:
    """The keys of every member and element at any depth."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*above, key)
        yield from places(child, *above, key)


def changed(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    model = copy.deepcopy(FULL_MODEL)
    node: Any = model
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return model


def path_of(place: tuple[str | int, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(8, dtype=np.float32))
    (tmp_path / "a.bin").write_bytes(bytes(16))
    return tmp_path


def read(model: Any, folder: Path) -> None:
    read_model(Node(model), SourceFolder(folder, allow_outside=False))


def test_the_full_model_is_read(folder: Path) -> None:
    load_model(written(folder, FULL_MODEL))
    assert len(list(places(FULL_MODEL))) > 150


@pytest.mark.parametrize("place", list(places(FULL_MODEL)), ids=path_of)
def test_a_value_of_the_wrong_kind_is_reported_by_its_place(
    place: tuple[str | int, ...], folder: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        read(changed(place, {"no such key": [None]}), folder)
    assert caught.value.path.startswith(path_of(place))


WRONG = [True, 10**400, float("nan"), "\0\ud800", [[]]]


def test_no_value_makes_anything_but_the_two_errors(folder: Path) -> None:
    for place in places(FULL_MODEL):
        for value in WRONG:
            with contextlib.suppress(ModelError, DescriptorError):
                read(changed(place, value), folder)
