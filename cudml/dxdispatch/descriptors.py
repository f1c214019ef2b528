"""Descriptors as dictionaries, in the JSON spelling of DxDispatch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum, IntEnum, IntFlag
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_type_hints

from cudml.checks import camel
from cudml.dxdispatch.reader import SPECIAL_FLOATS, Node, all_of
from cudml.enums import (
    AxisDirection,
    DataType,
    ExecutionFlags,
    OperatorType,
    RecurrentNetworkDirection,
    TensorFlags,
)
from cudml.operators import OPERATORS, Descriptor, operator_type_of
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.tensors import TensorDesc

Flags = TypeVar("Flags", bound=IntFlag)

_PREFIXES: dict[type, str] = {
    AxisDirection: "DML_AXIS_DIRECTION_",
    DataType: "DML_TENSOR_DATA_TYPE_",
    ExecutionFlags: "DML_EXECUTION_FLAG_",
    OperatorType: "DML_OPERATOR_",
    RecurrentNetworkDirection: "DML_RECURRENT_NETWORK_DIRECTION_",
    TensorFlags: "DML_TENSOR_FLAG_",
}

#: Counts of the C structs, which the Python descriptors derive from the length of a sequence.
_COUNTS = {
    "DimensionCount": ("Offsets", "InputWindowOffsets", "Sizes"),
    "ActivationDescCount": ("ActivationDescs",),
}

_TENSOR_KEYS = (
    "DataType",
    "Flags",
    "DimensionCount",
    "Sizes",
    "Strides",
    "TotalTensorSizeInBytes",
    "GuaranteedBaseOffsetAlignment",
)


def from_dict(data: Mapping[str, Any], source: str = "from_dict") -> Descriptor:
    """Convert a dictionary in DxDispatch's JSON form to a descriptor.

    Prefixes of enumerations and optional members may be left out. Members may stand next to `Type` instead of
    in `Desc`. Floats may be the strings "nan", "inf" and "-inf". Everything else is left to
    `compile_operator` to check.

    Parameters
    ----------
    data : mapping
        `{"Type": "DML_OPERATOR_SLICE", "Desc": {"InputTensor": {...}, ...}}`
    source : str
        The origin that errors name, such as a file.

    Returns
    -------
    descriptor
        One of the six descriptor classes.

    Raises
    ------
    ModelError
        Keys are unknown or missing, or their values have the wrong type; the message has a line for each.

    Examples
    --------
    >>> import cudml
    >>> tensor = {"DataType": "FLOAT32", "Sizes": [1, 4]}
    >>> lengths = {"DataType": "UINT32", "Sizes": [1, 1]}
    >>> cudml.from_dict({
    ...     "Type": "DML_OPERATOR_REVERSE_SUBSEQUENCES",
    ...     "InputTensor": tensor,
    ...     "SequenceLengthsTensor": lengths,
    ...     "OutputTensor": tensor,
    ...     "Axis": 1,
    ... }).axis
    1

    Notes
    -----
    Source: the guide of DxDispatch, Microsoft's command-line runner of DirectML operators.
    """
    return read_operator(Node(data, "", source))


def read_operator(node: Node, *other_keys: str) -> Descriptor:
    """The descriptor at a position of a model; `other_keys` are allowed next to it and ignored."""
    choices = {kind.name: kind for kind in OPERATORS}
    kind = _type_node(node).choice(choices, _PREFIXES[OperatorType])
    inner = _desc_node(node, other_keys)
    cls: type = OPERATORS[kind].descriptor
    hints = _types_of_members(cls)
    counts = {key: lists for key, lists in _COUNTS.items() if any(camel(m) in lists for m in hints)}
    keys = [camel(member) for member in hints]
    ignored = ("Type", "type", *other_keys) if inner is node else ()
    readers: list[Callable[[], Any]] = [
        partial(_member, inner, camel(member), hint, kind.name) for member, hint in hints.items()
    ]
    _, *members = all_of([partial(inner.only, *keys, *counts, *ignored), *readers])
    values = dict(zip(hints, members, strict=True))
    for key, lists in counts.items():
        measured = next(values[m] for m in values if camel(m) in lists)
        _check_count(inner, key, len(measured))
    desc: Descriptor = cls(**values)
    return desc


@cache
def _types_of_members(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def to_dict(desc: Descriptor) -> dict[str, Any]:
    """Convert a descriptor to a dictionary that `from_dict` reads and `json.dumps` can write.

    Members that have their default are left out. Whether the descriptor follows the rules is not checked.

    Parameters
    ----------
    desc : TopK1Desc, TopKDesc, GruDesc, SliceDesc, Slice1Desc or ReverseSubsequencesDesc
        The descriptor to convert.

    Returns
    -------
    dict
        `{"Type": "DML_OPERATOR_SLICE", "Desc": {"InputTensor": {...}, ...}}`

    Raises
    ------
    TypeError
        Not a descriptor, or a member has a type that JSON cannot represent.

    Examples
    --------
    >>> import cudml
    >>> tensor = cudml.TensorDesc(cudml.DataType.INT8, (4,))
    >>> cudml.to_dict(cudml.SliceDesc(tensor, tensor, (0,), (4,), (1,)))["Desc"]["InputTensor"]
    {'DataType': 'INT8', 'Sizes': [4]}

    Notes
    -----
    Source: the guide of DxDispatch, Microsoft's command-line runner of DirectML operators.
    """
    kind = operator_type_of("to_dict", desc)
    members: dict[str, Any] = {}
    for field in fields(desc):
        value, key = getattr(desc, field.name), camel(field.name)
        count = next((c for c, lists in _COUNTS.items() if key in lists and c not in members), None)
        if count is not None:
            members[count] = len(value)
        if value is not None:
            members[key] = _plain(value, key)
    return {"Type": f"{_PREFIXES[OperatorType]}{kind.name}", "Desc": members}


def read_enum(node: Node, kind: type[Enum]) -> Any:
    """A value of an enumeration by its name, with or without the prefix."""
    return node.choice(kind.__members__, _PREFIXES[kind])


def read_flags(node: Node | None, kind: type[Flags]) -> Flags:
    """Flags, given by a name or a list of names; none if absent."""
    if node is None:
        return kind(0)
    if isinstance(node.value, str):
        return kind(read_enum(node, kind))
    if not isinstance(node.value, (list, tuple)):
        node.fail(f"a name or a list of names, each one of {', '.join(kind.__members__)}")
    flags = kind(0)
    for item in node.items():
        flags |= read_enum(item, kind)
    return flags


def _type_node(node: Node) -> Node:
    """The key that names the operator; DxDispatch writes it in lower case at the top of a dispatchable."""
    return node.get("Type") or node.get("type") or node.need("Type", "the name of an operator")


def _desc_node(node: Node, other_keys: Sequence[str]) -> Node:
    """The object with the members: under `Desc`, or next to `Type`."""
    inner = node.get("Desc") or node.get("desc")
    if inner is None:
        return node
    node.only("Type", "type", "Desc", "desc", *other_keys)
    inner.members()
    return inner


def _member(node: Node, key: str, hint: Any, operator: str) -> Any:
    """A member of an operator, read as the type of its annotation."""
    options = get_args(hint)
    if type(None) in options:
        child = node.get(key)
        (hint,) = (option for option in options if option is not type(None))
        return None if child is None else _value(child, hint)
    return _value(node.need(key, f"{_said(hint)}, which {operator} needs"), hint)


def _said(hint: Any) -> str:
    """The expected type of a missing member, for the message."""
    if hint is TensorDesc:
        return "a tensor"
    if get_args(hint):
        return "a list"
    return {int: "an integer", bool: "true or false", float: "a number"}.get(hint, "a name")


def _value(node: Node, hint: Any) -> Any:
    if hint is TensorDesc:
        return _tensor(node)
    if hint is bool:
        return node.boolean()
    if hint is int:
        return node.integer()
    if isinstance(hint, type) and issubclass(hint, (IntEnum, IntFlag)):
        return read_enum(node, hint)
    if get_args(hint)[:1] == (Activation,):
        return tuple(_activation(item) for item in node.items())
    return node.integers()


def _tensor(node: Node) -> TensorDesc:
    inner = node.get("Desc") or node.get("desc")
    if inner is not None:
        node.only("Type", "Desc", "type", "desc")
    else:
        inner = node
    inner.only(*_TENSOR_KEYS, *(("Type",) if inner is node else ()))
    kind = node.get("Type")
    if kind is not None and kind.text().removeprefix("DML_TENSOR_TYPE_") != "BUFFER":
        kind.fail("DML_TENSOR_TYPE_BUFFER")
    strides = inner.get("Strides")
    total = inner.get("TotalTensorSizeInBytes")
    alignment = inner.get("GuaranteedBaseOffsetAlignment")
    members = all_of(
        (
            lambda: read_enum(inner.need("DataType", "the name of a data type"), DataType),
            lambda: _sizes(inner),
            lambda: None if strides is None else strides.integers(),
            lambda: read_flags(inner.get("Flags"), TensorFlags),
            # As in DxDispatch, 0 means that the size is computed.
            lambda: None if total is None else total.integer() or None,
            lambda: 0 if alignment is None else alignment.integer(),
        )
    )
    return TensorDesc(*members)


def _sizes(node: Node) -> tuple[int, ...]:
    sizes = node.need("Sizes", "a list of integers").integers()
    _check_count(node, "DimensionCount", len(sizes))
    return sizes


def _activation(node: Node) -> Activation:
    """An activation; the tensors of its descriptor are null in a fused activation."""
    rows = {row.name: row for row in ACTIVATIONS.values()}
    info = _type_node(node).choice(rows, _PREFIXES[OperatorType])
    inner = _desc_node(node, ())
    tensors = ("InputTensor", "OutputTensor")
    keys = [camel(parameter) for parameter in info.parameters]
    inner.only(*keys, *tensors, *(("Type", "type") if inner is node else ()))
    for key in tensors:
        tensor = inner.get(key)
        if tensor is not None:
            tensor.fail("null, because the activation is fused")
    return Activation(info.operator_type, tuple(inner.need(key, "a number").number() for key in keys))


def _check_count(node: Node, key: str, length: int) -> None:
    count = node.get(key)
    if count is not None and count.integer() != length:
        count.fail(f"{length}, the length of the list that it counts, or left out")


def _plain(value: Any, path: str) -> Any:
    """Convert the value of a member, given by its keys, to JSON types."""
    if isinstance(value, TensorDesc):
        return _plain_tensor(value, path)
    if isinstance(value, Activation):
        return _plain_activation(value, path)
    if isinstance(value, (IntEnum, IntFlag)):
        return f"{_PREFIXES[type(value)]}{value.name}"
    if isinstance(value, tuple):
        return [_plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, special in SPECIAL_FLOATS.items() if str(special) == str(value))
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"to_dict: {path} is {value!r}, must be what compile_operator takes")
    return value


def _plain_activation(activation: Activation, path: str) -> dict[str, Any]:
    info = ACTIVATIONS[activation.operator_type]
    values = {camel(n): v for n, v in zip(info.parameters, activation.parameters, strict=True)}
    return {
        "Type": f"{_PREFIXES[OperatorType]}{info.name}",
        "Desc": {key: _plain(value, f"{path}.{key}") for key, value in values.items()},
    }


def _plain_tensor(tensor: TensorDesc, path: str) -> dict[str, Any]:
    """Convert a tensor, omitting members with their default value."""
    if not isinstance(tensor.data_type, DataType):
        raise TypeError(f"to_dict: {path}.DataType is {tensor.data_type!r}, must be a cudml.DataType")
    members: dict[str, Any] = {"Sizes": tensor.sizes}
    if tensor.strides is not None:
        members["Strides"] = tensor.strides
    if tensor.flags:
        members["Flags"] = tensor.flags
    if tensor.total_tensor_size_in_bytes is not None:
        members["TotalTensorSizeInBytes"] = tensor.total_tensor_size_in_bytes
    if tensor.guaranteed_base_offset_alignment:
        members["GuaranteedBaseOffsetAlignment"] = tensor.guaranteed_base_offset_alignment
    plain = {key: _plain(value, f"{path}.{key}") for key, value in members.items()}
    return {"DataType": tensor.data_type.name, **plain}
