"""How an ONNX node is run by an array function. Source: https://onnx.ai/onnx/operators/."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from cudml.checks import one_of
from cudml.enums import OperatorType
from cudml.functions.gru import Cell, cell_of, clip_bound, gru
from cudml.functions.gru_plan import GruPlan
from cudml.functions.reverse_subsequences import reverse_subsequences
from cudml.functions.slice import slice as slice_of
from cudml.functions.top_k import top_k
from cudml.onnx.cut import label
from cudml.onnx.values import type_text
from cudml.operators.gru.activations import ACTIVATIONS, Activation, activation_names

#: Computes the outputs of a node from its inputs, None for those left out, on a stream.
Runner = Callable[[Sequence[Any], Any], Sequence[Any]]

#: Inputs that a node needs on the host, by position.
_HOST_INPUTS = {"TopK": (1,), "Slice": (1, 2, 3, 4)}

#: The weights of a GRU, by position.
_WEIGHTS = (1, 2, 3)

#: The first version of ONNX's operators whose GRU takes bfloat16.
_BFLOAT16_OPSET = 22

#: ONNX lets a slice that steps backwards say "to the first element" by the largest integers, too.
_TO_THE_END = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


#: The values that ONNX allows for attributes whose type allows more, and their defaults.
_CHOICES: dict[str, dict[str, tuple[Sequence[Any], Any]]] = {
    "GRU": {"direction": (("forward", "reverse", "bidirectional"), "forward"), "layout": ((0, 1), 0)},
    "ReverseSequence": {"batch_axis": ((0, 1), 1), "time_axis": ((0, 1), 0)},
    "Slice": {},
    "TopK": {"largest": ((0, 1), 1), "sorted": ((0, 1), 1)},
}


def host_inputs(node: onnx.NodeProto, constants: Container[str]) -> Sequence[int]:
    """The positions of the inputs that a node's runner takes on the host.

    Constant weights of a GRU are among them: its plan moves them to the device once.
    """
    return _WEIGHTS if _has_constant_weights(node, constants) else _HOST_INPUTS.get(node.op_type, ())


def _has_constant_weights(node: onnx.NodeProto, constants: Container[str]) -> bool:
    given = filter(None, node.input[1:4])
    return node.op_type == "GRU" and all(name in constants for name in given)


def runner_of(
    node: onnx.NodeProto, opset: int, ir_version: int, constants: Container[str] = (), device: str = "cpu"
) -> Runner:
    """The function that runs a node on a device. Inputs named in `constants` are the same in every call.

    Raises ValueError, in the words of ONNX's checker or with the attribute, if ONNX does not allow the node.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = ir_version, {"": opset}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise ValueError(f"{label(node)}: {error}") from None
    attributes = attributes_of(node)
    if node.op_type == "ReverseSequence" and attributes["batch_axis"] == attributes["time_axis"]:
        raise ValueError(
            f"{label(node)}: batch_axis and time_axis are {attributes['time_axis']}, must be two axes"
        )
    if node.op_type == "GRU":
        if attributes.get("hidden_size", 1) < 1:
            raise ValueError(f"{label(node)}: hidden_size is {attributes['hidden_size']}, must be at least 1")
        clip_bound(attributes.get("clip"), label(node))
        if _has_constant_weights(node, constants):
            return partial(_planned_gru, attributes, device, [])
    make = _MAKERS[node.op_type]
    return lambda inputs, stream: make(attributes, opset, inputs, stream)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes, with the defaults of absent ones.

    Raises ValueError for a value that ONNX does not allow.
    """
    attributes = {item.name: _value(item) for item in node.attribute}
    for name, (allowed, default) in _CHOICES[node.op_type].items():
        value = attributes.setdefault(name, default)
        if value not in allowed:
            raise ValueError(f"{label(node)}: {name} is {value!r}, must be {one_of([*map(repr, allowed)])}")
    if node.op_type == "GRU":
        attributes["activations"] = _activations(label(node), attributes)
    return attributes


def cell_of_node(node: onnx.NodeProto) -> Cell:
    """What a GRU computes, apart from its arrays."""
    options = gru_options(attributes_of(node))
    return cell_of(label(node), **options | {"clip": clip_bound(options["clip"], label(node))})


def check_types(node: onnx.NodeProto, opset: int, kinds: Sequence[int]) -> None:
    """Raise ValueError for an input whose element type ONNX does not allow beside that of the first.

    `kinds` has the element type of each input, 0 for those left out. `why_not` checks the first one's.
    """
    declared = onnx.defs.get_schema(node.op_type, opset).inputs
    for formal, kind in zip(declared[1:], kinds[1:], strict=False):
        same = formal.type_str == declared[0].type_str
        allowed = [type_text(kinds[0])] if same else sorted(formal.types)
        if kind and type_text(kind) not in allowed:
            because = f", as {declared[0].name}" * same
            raise ValueError(
                f"{label(node)}: input {formal.name} is {type_text(kind)}, must be {one_of(allowed)}{because}"
            )


def why_not(op_type: str, opset: int, kind: int) -> str | None:
    """Why cudml cannot run an operator on tensors of an element type; None if it can."""
    types = onnx.TensorProto
    if kind != types.STRING and (op_type != "GRU" or kind in (types.FLOAT, types.FLOAT16)):
        return None
    name = types.DataType.Name(kind).lower()
    if op_type == "GRU" and kind == types.BFLOAT16:
        return None if opset >= _BFLOAT16_OPSET else f"{name} is supported from opset {_BFLOAT16_OPSET} on"
    return f"{name} is not supported"


def _value(item: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode()
    return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, list) else value


def _input(inputs: Sequence[Any], position: int) -> Any:
    return inputs[position] if position < len(inputs) else None


def _top_k(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    k = attributes["k"] if opset < 10 else _only_value("K", inputs[1])
    mode: Any = "largest" if attributes["largest"] else "smallest"
    return top_k(inputs[0], k, axis=attributes.get("axis", -1), mode=mode, nan="greatest", stream=stream)


def _only_value(name: str, values: np.ndarray) -> int:
    if values.size != 1:
        raise ValueError(f"input {name} is of shape {values.shape}, must have one element")
    return int(values.item())


def _reverse(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    array, lengths = inputs
    batch_axis, time_axis = attributes["batch_axis"], attributes["time_axis"]
    if array.ndim < 2:
        raise ValueError(f"input is of shape {tuple(array.shape)}, must have at least 2 dimensions")
    if lengths.shape != (array.shape[batch_axis],):
        expected = f"({array.shape[batch_axis]},), the size of axis {batch_axis} of input"
        raise ValueError(f"sequence_lens is of shape {tuple(lengths.shape)}, must be of {expected}")
    shape = [1] * array.ndim
    shape[batch_axis] = -1
    return (reverse_subsequences(array, lengths.reshape(shape), time_axis, stream=stream),)


def _slice(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    array = inputs[0]
    if opset < 10:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        host = (_input(inputs, position) for position in _HOST_INPUTS["Slice"])
        starts, ends, axes, steps = (
            None if values is None else np.asarray(values).tolist() for values in host
        )
    _check_slice(array.ndim, starts, ends, axes, steps)
    ranges = [range(size) for size in array.shape]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = axes[number] if axes else number, steps[number] if steps else 1
        stop = None if step < 0 and end in _TO_THE_END else end
        chosen = range(*slice(start, stop, step).indices(array.shape[axis]))
        # A step that leads past the only element may have more bits than an offset.
        ranges[axis] = chosen if len(chosen) > 1 else range(chosen.start, chosen.start + len(chosen))
    if not all(ranges):
        index = tuple(slice(0, len(r)) for r in ranges)
        return (array[index],)
    starts, sizes, steps = ([r.start for r in ranges], [*map(len, ranges)], [r.step for r in ranges])
    return (slice_of(array, starts, sizes, steps, stream=stream),)


def _check_slice(rank: int, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    """Raise ValueError unless the lists fit one another and the array."""
    lists = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    for name, values in lists.items():
        if values is not None and (not isinstance(values, list) or len(values) != len(starts)):
            raise ValueError(f"{name} is {values}, must be a list as long as starts, {starts}")
    if len(starts) > rank:
        raise ValueError(f"starts is {starts}, must have at most {rank} elements, one per dimension of data")
    if axes and not all(-rank <= axis < rank for axis in axes):
        raise ValueError(f"axes is {axes}, must be from {-rank} to {rank - 1}")
    if axes and len({axis % rank for axis in axes}) < len(axes):
        raise ValueError(f"axes is {axes}, must name each axis once")
    if steps and 0 in steps:
        raise ValueError(f"steps is {steps}, must not have 0")


def _gru(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    x, w, r, b, lengths, h0 = (_input(inputs, position) for position in range(6))

    def layer(x: Any, h0: Any) -> Sequence[Any]:
        return gru(x, w, r, b, h0, lengths, **gru_options(attributes), stream=stream)

    return _run_gru(attributes, layer, x, r, h0)


def _planned_gru(
    attributes: dict[str, Any], device: str, plans: list[GruPlan], inputs: Sequence[Any], stream: Any
) -> Sequence[Any]:
    """`_gru` with constant weights, which are on the host; `plans` has their plan after the first call."""
    x, w, r, b, lengths, h0 = (_input(inputs, position) for position in range(6))

    def layer(x: Any, h0: Any) -> Sequence[Any]:
        if not plans:
            plans.append(GruPlan(w, r, b, **gru_options(attributes), device=device, stream=stream))
        return plans[0](x, h0, lengths, stream=stream)

    return _run_gru(attributes, layer, x, r, h0)


def gru_options(attributes: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `gru` for the attributes of a node."""
    return {
        "direction": attributes["direction"],
        "activations": attributes["activations"],
        "linear_before_reset": bool(attributes.get("linear_before_reset", 0)),
        "clip": attributes.get("clip"),
    }


def check_hidden_size(attributes: dict[str, Any], r: Any) -> None:
    """Raise ValueError if the attribute is given and the weights have another hidden size."""
    hidden_size = attributes.get("hidden_size")
    if hidden_size is not None and tuple(r.shape[2:]) != (hidden_size,):
        expected = f"the last size of input R, which is of shape {tuple(r.shape)}"
        raise ValueError(f"hidden_size is {hidden_size}, must be {expected}")


def _run_gru(
    attributes: dict[str, Any], layer: Callable[[Any, Any], Sequence[Any]], x: Any, r: Any, h0: Any
) -> Sequence[Any]:
    """The outputs of a node, by a layer in ONNX's first layout that takes x and h0."""
    check_hidden_size(attributes, r)
    is_batch_first = attributes["layout"]
    if is_batch_first:
        x, h0 = x.swapaxes(0, 1), None if h0 is None else h0.swapaxes(0, 1)
    sequence, single = layer(x, h0)
    if is_batch_first:
        return sequence.transpose(2, 0, 1, 3), single.swapaxes(0, 1)
    return sequence, single


def _activations(node: str, attributes: dict[str, Any]) -> list[Activation] | None:
    """f and g of each direction; the lists of alpha and beta have an entry for each that takes one."""
    if "activations" not in attributes:
        return None
    names = attributes["activations"]
    count = 4 if attributes["direction"] == "bidirectional" else 2
    if len(names) != count:
        raise ValueError(f"{node}: activations is {names}, must be {count} names, f and g of each direction")
    given = {name: iter(attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")}
    found = []
    for number, name in enumerate(names):
        try:
            activation = Activation(name)
        except ValueError:
            got = f"activations[{number}] is {name!r}"
            raise ValueError(f"{node}: {got}, must be one of {activation_names()}") from None
        members = ACTIVATIONS[activation.operator_type].parameters
        values = [next(given.get(member, iter(())), None) for member in members]
        if activation.operator_type == OperatorType.ACTIVATION_SCALED_TANH and None in values:
            member = members[values.index(None)]
            raise ValueError(
                f"{node}: activation_{member} has no value for {name}, must have one: ONNX has no default"
            )
        parameters = zip(values, activation.parameters, strict=True)
        found.append(
            Activation(activation.operator_type, [d if value is None else value for value, d in parameters])
        )
    return found


_MAKERS: dict[str, Callable[[dict[str, Any], int, Sequence[Any], Any], Sequence[Any]]] = {
    "GRU": _gru,
    "ReverseSequence": _reverse,
    "Slice": _slice,
    "TopK": _top_k,
}

#: The operators that cudml runs.
OPS = tuple(_MAKERS)
