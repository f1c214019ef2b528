"""Reading DxDispatch models: buffers with first values, operators on them, and the commands to run."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from cudml.checks import camel
from cudml.dtypes import element_info, element_type_of
from cudml.enums import DataType, ExecutionFlags
from cudml.errors import ModelError
from cudml.json_model import read_enum, read_operator
from cudml.json_reader import Node
from cudml.tensors import TensorDesc

#: DirectML's buffers end at a multiple of this many bytes.
BUFFER_ALIGNMENT = 4

#: No array has more bytes.
MAX_BUFFER_BYTES = 2**63 - BUFFER_ALIGNMENT

_UINT32_MAX = 2**32 - 1

# Strings are matched first, so that nothing within them is.
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA_TOO_MANY = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")

_RAW_SUFFIXES = (".bin", ".dat")


@dataclass(frozen=True)
class Resource:
    """A buffer: its first values, of their own type and shape, and how many bytes it has."""

    values: np.ndarray
    num_bytes: int


@dataclass(frozen=True)
class Binding:
    """A resource from some byte on, for a member of an operator."""

    member: str
    resource: str
    first_byte: int


@dataclass(frozen=True)
class Dispatchable:
    """An operator, and what its `OWNED_BY_DML` inputs are initialized with."""

    desc: Any
    flags: ExecutionFlags
    owned: tuple[Binding, ...]


@dataclass(frozen=True)
class Dispatch:
    """The command that runs a dispatchable."""

    dispatchable: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class Print:
    """The command that shows a resource."""

    resource: str


@dataclass(frozen=True)
class WriteFile:
    """The command that saves a resource."""

    resource: str
    target_path: str


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True)
class Model:
    """Everything that a model file says, checked for form."""

    resources: dict[str, Resource]
    dispatchables: dict[str, Dispatchable]
    commands: tuple[Command, ...]


def load_model(path: str | Path) -> Model:
    """Read a model file.

    Raises
    ------
    ModelError
        The file cannot be read, is no JSON, or is no model of operators that cudml has: says the file, the
        key path, what is expected there and what it is.

    Notes
    -----
    Source: the guide of DxDispatch, Microsoft's command-line runner of DirectML operators.
    """
    path = Path(path)
    try:
        # Editors of Windows write a byte-order mark.
        data = json.loads(_strict_json(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ModelError("the file", "readable", f"unreadable ({error.strerror})", str(path)) from None
    except UnicodeDecodeError as error:
        raise ModelError(f"byte {error.start}", "UTF-8 text", "not", str(path)) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ModelError(where, "JSON", f"not JSON ({error.msg})", str(path)) from None
    except RecursionError:
        raise ModelError("the file", "nested less deeply", "not JSON that can be read", str(path)) from None
    except ValueError as error:  # an integer of thousands of digits
        raise ModelError("the file", "JSON of smaller numbers", f"unreadable ({error})", str(path)) from None
    return read_model(Node(data, "", str(path)), path.parent)


def _strict_json(text: str) -> str:
    """JSON without comments and commas before a closing bracket, which DxDispatch takes, each place kept."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _COMMA_TOO_MANY.sub(blank, _COMMENT.sub(blank, text))


def read_model(node: Node, folder: Path) -> Model:
    """The model of parsed JSON; files it names are looked for in `folder` and in the current one."""
    node.only("resources", "dispatchables", "commands")
    resources = {
        name: _resource(child, folder) for name, child in _named(node.need("resources", "an object"))
    }
    dispatchables = {
        name: _dispatchable(child, resources)
        for name, child in _named(node.need("dispatchables", "an object"))
    }
    commands = node.need("commands", "a list")
    return Model(
        resources, dispatchables, tuple(_command(item, resources, dispatchables) for item in commands.items())
    )


def _named(node: Node) -> Iterator[tuple[str, Node]]:
    for name in node.members():
        yield name, node.child(name)


def _resource(node: Node, folder: Path) -> Resource:
    node.only("initialValuesDataType", "initialValues", "sizeInBytes")
    values = _initial_values(node, folder)
    num_bytes = values.nbytes
    size = node.get("sizeInBytes")
    if size is not None:
        if not num_bytes <= size.integer() <= MAX_BUFFER_BYTES:
            size.fail(f"from {num_bytes}, the size of the initial values, to {MAX_BUFFER_BYTES}")
        num_bytes = size.integer()
    return Resource(values, -(-num_bytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT)


def _initial_values(node: Node, folder: Path) -> np.ndarray:
    values = node.need("initialValues", "a list, or an object with valueCount or sourcePath")
    if isinstance(values.value, dict) and "sourcePath" in values.value:
        return _values_of_file(node, values, folder)
    if isinstance(values.value, list) and not values.value:
        values.fail("a list that is not empty")
    if isinstance(values.value, list) and all(isinstance(item, dict) for item in values.value):
        kind_node = node.get("initialValuesDataType")
        if kind_node is not None and read_enum(kind_node, DataType) != DataType.UNKNOWN:
            kind_node.fail("UNKNOWN, since every value has a type of its own, or left out")
        return _struct(list(values.items()))
    kind_node = node.need("initialValuesDataType", "the name of a data type")
    dtype = _element(kind_node, read_enum(kind_node, DataType))
    if isinstance(values.value, dict):
        return _generated(values, dtype)
    items = values.items()
    return np.array([_number(item, dtype) for item in items], dtype)


def _element(node: Node, kind: DataType) -> np.dtype[Any]:
    """The NumPy dtype of a data type of whole bytes."""
    if kind in (DataType.UNKNOWN, DataType.UINT4, DataType.INT4):
        node.fail("a type of 8, 16, 32 or 64 bits")
    return np.dtype(element_info(kind).numpy_name)


def _number(node: Node, dtype: np.dtype[Any]) -> Any:
    """A number that the dtype has; floats are rounded to it."""
    value = node.number()
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(value)
    limits = np.iinfo(dtype)
    exact = node.value if isinstance(node.value, int) else value
    if value != value or value in (float("inf"), -float("inf")) or int(exact) != exact:
        node.fail(f"an integer, which {dtype} has")
    if not limits.min <= int(exact) <= limits.max:
        node.fail(f"from {limits.min} to {limits.max}, which {dtype} has")
    return dtype.type(int(exact))


def _generated(node: Node, dtype: np.dtype[Any]) -> np.ndarray:
    """`valueCount` times `value`, or from `valueStart` in steps of `valueDelta`."""
    expected = "value, or valueStart and valueDelta"
    node.only("valueCount", "value", "valueStart", "valueDelta")
    count_node = node.need("valueCount", "an integer")
    count = count_node.integer()
    if not 1 <= count <= _UINT32_MAX:
        count_node.fail(f"from 1 to {_UINT32_MAX}")
    if node.get("valueStart") is None:
        return np.full(count, _number(node.need("value", expected), dtype), dtype)
    start = node.need("valueStart", expected)
    delta = node.need("valueDelta", expected)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return (start.number() + delta.number() * np.arange(count)).astype(dtype)
    first, step = (node.integer() for node in (start, delta))
    last = first + step * (count - 1)
    limits = np.iinfo(dtype)
    if not (limits.min <= min(first, last) and max(first, last) <= limits.max):
        delta.fail(f"such that {first} to {last} lie in {limits.min} to {limits.max}, which {dtype} has")
    return np.array([first + step * i for i in range(count)], dtype)


def _struct(items: list[Node]) -> np.ndarray:
    """The bytes of a list of elements, each with its own type."""
    data = b""
    for item in items:
        item.only("name", "type", "value")
        kind_node = item.need("type", "the name of a data type")
        dtype = _element(kind_node, read_enum(kind_node, DataType))
        data += dtype.type(_number(item.need("value", "a number"), dtype)).tobytes()
    return np.frombuffer(data, np.uint8)


def _values_of_file(node: Node, values: Node, folder: Path) -> np.ndarray:
    values.only("sourcePath")
    path_node = values.need("sourcePath", "a path")
    name = path_node.text()
    path = next((p for p in (folder / name, Path(name)) if os.path.isfile(p)), None)
    if path is None:
        path_node.fail(f"a file in {folder} or in the current folder")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            path_node.fail(f"a file that NumPy can read ({error})")
        if array.size == 0:
            path_node.fail("a file with at least one element", "empty")
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        if not isinstance(element_type_of(native.dtype), DataType):
            path_node.fail("a file of a dtype that DirectML has", f"of dtype {array.dtype}")
        return np.ascontiguousarray(native)
    if suffix not in _RAW_SUFFIXES:
        path_node.fail(f"a file of .npy, {' or '.join(_RAW_SUFFIXES)}")
    kind_node = node.need("initialValuesDataType", "the name of a data type")
    dtype = _element(kind_node, read_enum(kind_node, DataType))
    data = path.read_bytes()
    if not data or len(data) % dtype.itemsize:
        path_node.fail(f"a file of a multiple of {dtype.itemsize} bytes", f"of {len(data)} bytes")
    return np.frombuffer(data, dtype)


def _dispatchable(node: Node, resources: dict[str, Resource]) -> Dispatchable:
    kind = node.get("type") or node.get("Type")
    if kind is not None and kind.text() in ("hlsl", "onnx", "dmlSerializedGraph"):
        kind.fail("a DirectML operator: cudml runs no other dispatchables")
    desc = read_operator(node, "bindings", "executionFlags", "dmlCompileType")
    flags = node.get("executionFlags")
    owned = node.get("bindings")
    return Dispatchable(
        desc,
        ExecutionFlags.NONE if flags is None else read_enum(flags, ExecutionFlags),
        () if owned is None else _bindings(owned, desc, resources),
    )


def _command(node: Node, resources: dict[str, Resource], dispatchables: dict[str, Dispatchable]) -> Command:
    choices: dict[str, type] = {"dispatch": Dispatch, "print": Print, "writeFile": WriteFile}
    kind = node.need("type", "dispatch, print or writeFile").choice(choices, "")
    if kind is Dispatch:
        node.only("type", "dispatchable", "bindings")
        name_node = node.need("dispatchable", "the name of a dispatchable")
        name = name_node.choice({name: name for name in dispatchables}, "")
        bindings = node.need("bindings", "an object")
        return Dispatch(name, _bindings(bindings, dispatchables[name].desc, resources))
    node.only("type", "resource", *(("targetPath",) if kind is WriteFile else ()))
    resource = _resource_name(node.need("resource", "the name of a resource"), resources)
    if kind is Print:
        return Print(resource)
    target_node = node.need("targetPath", "a path")
    if Path(target_node.text()).suffix not in (".npy", *_RAW_SUFFIXES):
        target_node.fail(f"a path of .npy, {' or '.join(_RAW_SUFFIXES)}")
    return WriteFile(resource, target_node.text())


def _resource_name(node: Node, resources: dict[str, Resource]) -> str:
    return node.choice({name: name for name in resources}, "")


def _bindings(node: Node, desc: Any, resources: dict[str, Resource]) -> tuple[Binding, ...]:
    members = {
        camel(field.name): field.name
        for field in fields(desc)
        if isinstance(getattr(desc, field.name), TensorDesc)
    }
    node.only(*members)
    return tuple(_binding(child, members[key], resources) for key, child in _named(node))


def _binding(node: Node, member: str, resources: dict[str, Resource]) -> Binding:
    """A resource by its name, or by an object with its name and an offset; either may be in a list."""
    if isinstance(node.value, list):
        if len(node.value) != 1:
            node.fail("one resource", f"a list of {len(node.value)}")
        node = node.child(0)
    if not isinstance(node.value, dict):
        return Binding(member, _resource_name(node, resources), 0)
    node.only("name", "elementOffset", "elementCount", "elementSizeInBytes", "elementStride", "format")
    name = _resource_name(node.need("name", "the name of a resource"), resources)
    offset = node.get("elementOffset")
    resource = resources[name]
    if offset is None:
        return Binding(member, name, 0)
    size = node.get("elementSizeInBytes")
    first_byte = offset.integer() * (size.integer() if size else resource.values.dtype.itemsize)
    if not 0 <= first_byte < resource.num_bytes:
        offset.fail(f"an element of the resource, which has {resource.num_bytes} bytes")
    return Binding(member, name, first_byte)
