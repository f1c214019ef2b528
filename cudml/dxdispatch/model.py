"""Read DxDispatch models: buffers with initial values, operators on them, and the commands to run."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from cudml.checks import camel
from cudml.dxdispatch.descriptors import read_flags, read_operator
from cudml.dxdispatch.reader import Node, Result, all_of
from cudml.dxdispatch.values import FILE_SUFFIXES, Resource, SourceFolder, read_resource
from cudml.enums import ExecutionFlags
from cudml.errors import ModelError
from cudml.operators import OPERATORS
from cudml.tensors import TensorDesc

_UINT32_MAX = 2**32 - 1

#: The maximum number of dimensions of a NumPy array.
_MAX_DIMENSIONS = 64

#: Dispatchables of DxDispatch that are not supported, in lower case.
_OTHER_DISPATCHABLES = ("hlsl", "onnx", "dmlserializedgraph")

_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")

# Strings are matched first, so that nothing inside them matches. Unclosed ones match to the end of the file;
# otherwise, a long file of opening quotes would be searched once per quote.
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")


@dataclass(frozen=True)
class Binding:
    """A resource from a byte offset on, bound to a member of an operator."""

    member: str
    resource: str
    first_byte: int


@dataclass(frozen=True)
class Dispatchable:
    """An operator, and the initial bindings of its `OWNED_BY_DML` inputs."""

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
    """The command that prints a resource; `verbose` also prints positions and bits."""

    resource: str
    verbose: bool = False


@dataclass(frozen=True)
class WriteFile:
    """The command that saves a resource; dimensions of None mean those of its initial values."""

    resource: str
    target_path: str
    dimensions: tuple[int, ...] | None = None


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True)
class Model:
    """The content of a model file, checked for form."""

    resources: dict[str, Resource]
    dispatchables: dict[str, Dispatchable]
    commands: tuple[Command, ...]


def load_model(path: str | Path, *, allow_outside: bool = False) -> Model:
    """Read a model file.

    Parameters
    ----------
    path : str or Path
        The file.
    allow_outside : bool
        Whether the model may read files that are not in its own folder.

    Raises
    ------
    ModelError
        The file cannot be read, is not JSON, or is not a model of operators that cudml has. The message has a
        line for each problem, with the file, the key path, and the expected and the actual value.

    Notes
    -----
    Source: the guide of DxDispatch, Microsoft's command-line runner of DirectML operators.
    """
    path = Path(path)
    try:
        # Windows editors write a byte-order mark.
        text = _strict_json(path.read_text(encoding="utf-8-sig"))
        data = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
    except OSError as error:
        raise ModelError("the file", "readable", f"unreadable ({error.strerror})", str(path)) from None
    except UnicodeDecodeError as error:
        raise ModelError(f"byte {error.start}", "UTF-8 text", "not", str(path)) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ModelError(where, "JSON", f"not JSON ({error.msg})", str(path)) from None
    except RecursionError:
        raise ModelError("the file", "nested less deeply", "not JSON that can be read", str(path)) from None
    except _JsonError as error:
        raise ModelError("the file", error.expected, error.got, str(path)) from None
    except ValueError as error:  # an integer of thousands of digits, or a path that cannot be a file's
        raise ModelError("the file", "JSON of smaller numbers", f"unreadable ({error})", str(path)) from None
    return read_model(Node(data, "", str(path)), SourceFolder(path.parent, allow_outside))


class _JsonError(ValueError):
    """JSON that Python accepts and DxDispatch does not."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(got)
        self.expected, self.got = expected, got


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with distinct keys."""
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = sorted(key for key, _ in pairs)
        twice = next(key for key, after in pairwise(keys) if key == after)
        raise _JsonError("JSON objects of different keys", f"JSON that gives {twice!r} twice")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _JsonError("JSON of numbers that float64 has, which ends at 1.8e308", f"JSON with {text:.60}")
    return value


def _no_constant(text: str) -> float:
    raise _JsonError('JSON, which has strings for them ("nan", "inf", "-inf")', f"not JSON ({text})")


def _strict_json(text: str) -> str:
    """Blank out comments and trailing commas, which DxDispatch accepts, without moving other text."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        is_open = text.startswith("/*") and not text.endswith("*/", 2)
        return text if text.startswith('"') or is_open else re.sub(r"[^\n]", " ", text)

    return _TRAILING_COMMA.sub(blank, _COMMENT.sub(blank, text))


def read_model(node: Node, source: SourceFolder) -> Model:
    """The model of parsed JSON."""
    parts = all_of(
        (
            lambda: node.only("resources", "dispatchables", "commands"),
            lambda: dict(_named(node.need("resources", "an object"))),
            lambda: dict(_named(node.need("dispatchables", "an object"))),
            lambda: list(node.need("commands", "a list").items()),
        )
    )
    _, resource_nodes, dispatchable_nodes, command_nodes = parts
    resources = _each(read_resource, resource_nodes, source)
    dispatchables = _each(_dispatchable, dispatchable_nodes, resources)
    commands = all_of(partial(_command, item, resources, dispatchables) for item in command_nodes)
    return Model(resources, dispatchables, tuple(commands))


def _each(read: Callable[..., Result], nodes: Mapping[str, Node], *others: Any) -> dict[str, Result]:
    """The result of `read` for each node, by name."""
    return dict(zip(nodes, all_of(partial(read, node, *others) for node in nodes.values()), strict=True))


def _named(node: Node) -> Iterator[tuple[str, Node]]:
    for name in node.members():
        yield name, node.child(name)


def _dispatchable(node: Node, resources: dict[str, Resource]) -> Dispatchable:
    kind = node.get("type") or node.get("Type")
    if kind is not None and kind.text().lower() in _OTHER_DISPATCHABLES:
        operators = ", ".join(operator.name for operator in OPERATORS)
        kind.fail(f"a DirectML operator ({operators}): cudml runs no other dispatchables")
    desc = read_operator(node, "bindings", "executionFlags", "dmlCompileType")
    compile_type = node.get("dmlCompileType")
    if compile_type is not None:  # cudml compiles in one way, with the same results
        compile_type.choice(dict.fromkeys(_COMPILE_TYPES))
    owned = node.get("bindings")
    return Dispatchable(
        desc,
        read_flags(node.get("executionFlags"), ExecutionFlags),
        () if owned is None else _bindings(owned, desc, resources),
    )


def _command(node: Node, resources: dict[str, Resource], dispatchables: dict[str, Dispatchable]) -> Command:
    choices: dict[str, type] = {"dispatch": Dispatch, "print": Print, "writeFile": WriteFile}
    kind = node.need("type", "dispatch, print or writeFile").choice(choices, any_case=True)
    if kind is Dispatch:
        return _dispatch(node, resources, dispatchables)
    keys = ("targetPath", "dimensions") if kind is WriteFile else ("verbose",)
    node.only("type", "resource", *keys)
    resource = _resource_name(node.need("resource", "the name of a resource"), resources)
    if kind is WriteFile:
        return _write_file(node, resource, resources[resource])
    verbose = node.get("verbose")
    return Print(resource, verbose is not None and verbose.boolean())


def _dispatch(node: Node, resources: dict[str, Resource], dispatchables: dict[str, Dispatchable]) -> Dispatch:
    node.only("type", "dispatchable", "bindings", "threadGroupCount")
    name_node = node.need("dispatchable", "the name of a dispatchable")
    name = name_node.choice({name: name for name in dispatchables})
    groups = node.get("threadGroupCount")
    if groups is not None:  # for shaders; DirectML's operators choose their own
        counts = [item.integer_from(1, _UINT32_MAX) for item in groups.items()]
        if len(counts) != 3:
            groups.fail("a list of 3 integers", f"a list of {len(counts)}")
    bindings = node.need("bindings", "an object")
    return Dispatch(name, _bindings(bindings, dispatchables[name].desc, resources))


def _write_file(node: Node, name: str, resource: Resource) -> WriteFile:
    target = node.need("targetPath", "a path")
    if Path(target.text()).suffix.lower() not in FILE_SUFFIXES:
        target.fail(f"a path of {', '.join(FILE_SUFFIXES[:-1])} or {FILE_SUFFIXES[-1]}")
    sizes = node.get("dimensions")
    if sizes is None:
        return WriteFile(name, target.text())
    dimensions = tuple(item.integer_from(1, _UINT32_MAX) for item in sizes.items())
    if not 1 <= len(dimensions) <= _MAX_DIMENSIONS:
        sizes.fail(f"a list of 1 to {_MAX_DIMENSIONS} integers", f"a list of {len(dimensions)}")
    least, most = math.prod(resource.shape), resource.most_elements
    if not least <= math.prod(dimensions) <= most:
        expected = f"of {least} elements, the number of initial values"
        expected += f", to {most}, up to the end of the resource" * (most > least)
        sizes.fail(expected, f"{list(dimensions)}, of {math.prod(dimensions)} elements")
    return WriteFile(name, target.text(), dimensions)


def _resource_name(node: Node, resources: dict[str, Resource]) -> str:
    return node.choice({name: name for name in resources})


def _bindings(node: Node, desc: Any, resources: dict[str, Resource]) -> tuple[Binding, ...]:
    members = {
        camel(field.name): field.name
        for field in fields(desc)
        if isinstance(getattr(desc, field.name), TensorDesc)
    }
    node.only(*members)
    return tuple(_binding(child, members[key], resources) for key, child in _named(node))


def _binding(node: Node, member: str, resources: dict[str, Resource]) -> Binding:
    """A resource, given by a name or by an object with a name and an offset; either may be in a list."""
    if isinstance(node.value, list):
        if len(node.value) != 1:
            node.fail("one resource", f"a list of {len(node.value)}")
        node = node.child(0)
    if not isinstance(node.value, dict):
        return Binding(member, _resource_name(node, resources), 0)
    integers = ("elementOffset", "elementCount", "elementSizeInBytes", "elementStride", "counterOffsetBytes")
    node.only("name", *integers, "format", "counter", "shape")
    name = _resource_name(node.need("name", "the name of a resource"), resources)
    # Keys that only matter to shaders and ONNX models are checked only for form, as in DxDispatch.
    given = {key: child.integer_from(0) for key in integers if (child := node.get(key)) is not None}
    if (view := node.get("format")) is not None:
        view.text()
    if (counter := node.get("counter")) is not None:
        _resource_name(counter, resources)
    if (shape := node.get("shape")) is not None:
        for size in shape.items():
            size.integer_from(1)
    if "elementOffset" not in given:
        return Binding(member, name, 0)
    resource = resources[name]
    first_byte = given["elementOffset"] * (given.get("elementSizeInBytes") or resource.dtype.itemsize)
    if first_byte >= resource.num_bytes:
        expected = f"an element of the resource, which has {resource.num_bytes} bytes"
        node.need("elementOffset", "an integer").fail(expected)
    return Binding(member, name, first_byte)
