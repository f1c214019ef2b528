"""How an ONNX node is run by an array function. Source: https://onnx.ai/onnx/operators/."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from cudml.functions.gru import clip_bound, gru
from cudml.functions.reverse_subsequences import reverse_subsequences
from cudml.functions.slice import slice as slice_of
from cudml.functions.top_k import top_k
from cudml.onnx.cut import label
from cudml.operators.activations import ACTIVATIONS, Activation

#: Computes the outputs of a node from its inputs, None for those left out, on a stream.
Runner = Callable[[Sequence[Any], Any], Sequence[Any]]

#: Inputs that a node needs on the host, by position.
HOST_INPUTS = {"TopK": (1,), "Slice": (1, 2, 3, 4)}

#: ONNX lets a slice that steps backwards say "to the first element" by the largest integers, too.
_TO_THE_END = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


def runner_of(node: onnx.NodeProto, opset: int) -> Runner:
    """What runs a node.

    Raises ValueError if an attribute has a value that ONNX does not have.
    """
    attributes = {item.name: _value(item) for item in node.attribute}
    if node.op_type == "GRU":
        attributes["activations"] = _activations(label(node), attributes)
        clip_bound(attributes.get("clip"), label(node))
    make = _MAKERS[node.op_type]
    return lambda inputs, stream: make(attributes, opset, inputs, stream)


def why_not(op_type: str, kind: int) -> str | None:
    """Why cudml cannot run an operator on tensors of an element type; None if it can."""
    types = onnx.TensorProto
    if kind != types.STRING and (op_type != "GRU" or kind in (types.FLOAT, types.FLOAT16)):
        return None
    return f"{types.DataType.Name(kind).lower()} is not supported"


def _value(item: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode()
    return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, list) else value


def _input(inputs: Sequence[Any], position: int) -> Any:
    return inputs[position] if position < len(inputs) else None


def _top_k(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    k = attributes["k"] if opset < 10 else int(np.asarray(inputs[1]).item())
    mode: Any = "largest" if attributes.get("largest", 1) else "smallest"
    return top_k(inputs[0], k, axis=attributes.get("axis", -1), mode=mode, nan="greatest", stream=stream)


def _reverse(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    array, lengths = inputs
    shape = [1] * array.ndim
    shape[attributes.get("batch_axis", 1)] = -1
    axis = attributes.get("time_axis", 0)
    return (reverse_subsequences(array, lengths.reshape(shape), axis, stream=stream),)


def _slice(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    array = inputs[0]
    if opset < 10:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        host = (_input(inputs, position) for position in HOST_INPUTS["Slice"])
        starts, ends, axes, steps = (
            None if values is None else np.asarray(values).tolist() for values in host
        )
    ranges = [range(size) for size in array.shape]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = axes[number] if axes else number, steps[number] if steps else 1
        stop = None if step < 0 and end in _TO_THE_END else end
        chosen = range(*slice(start, stop, step).indices(array.shape[axis]))
        # A step that leads past the only element may be of more bits than an offset.
        ranges[axis] = chosen if len(chosen) > 1 else range(chosen.start, chosen.start + len(chosen))
    if not all(ranges):
        index = tuple(slice(0, len(r)) for r in ranges)
        return (array[index],)
    starts, sizes, steps = ([r.start for r in ranges], [*map(len, ranges)], [r.step for r in ranges])
    return (slice_of(array, starts, sizes, steps, stream=stream),)


def _gru(attributes: dict[str, Any], opset: int, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
    x, w, r, b, lengths, h0 = (_input(inputs, position) for position in range(6))
    is_batch_first = attributes.get("layout", 0)
    if is_batch_first:
        x, h0 = x.swapaxes(0, 1), None if h0 is None else h0.swapaxes(0, 1)
    sequence, single = gru(
        *(x, w, r, b, h0, lengths),
        direction=attributes.get("direction", "forward"),
        activations=attributes["activations"],
        linear_before_reset=bool(attributes.get("linear_before_reset", 0)),
        clip=attributes.get("clip"),
        stream=stream,
    )
    if is_batch_first:
        return sequence.transpose(2, 0, 1, 3), single.swapaxes(0, 1)
    return sequence, single


def _activations(node: str, attributes: dict[str, Any]) -> list[Activation] | None:
    """f and g of each direction; the lists of alpha and beta have an entry for each that takes one."""
    if "activations" not in attributes:
        return None
    given = {name: iter(attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")}
    found = []
    for name in attributes["activations"]:
        try:
            activation = Activation(name)
        except ValueError as error:
            raise ValueError(f"{node}: {error}") from None
        members = zip(ACTIVATIONS[activation.operator_type].parameters, activation.parameters, strict=True)
        values = [next(given.get(member, iter(())), default) for member, default in members]
        found.append(Activation(activation.operator_type, values))
    return found


_MAKERS: dict[str, Callable[[dict[str, Any], int, Sequence[Any], Any], Sequence[Any]]] = {
    "GRU": _gru,
    "ReverseSequence": _reverse,
    "Slice": _slice,
    "TopK": _top_k,
}

#: The operators that cudml runs.
OPS = tuple(_MAKERS)
