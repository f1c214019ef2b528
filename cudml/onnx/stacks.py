"""GRU nodes on top of each other: which nodes of a graph are one step, and how the step runs."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx

from cudml.devices import get_device
from cudml.functions.gru import Cell
from cudml.functions.gru_stack import gru_stack
from cudml.functions.transfer import upload
from cudml.onnx.cut import DOMAINS, key, label, needs
from cudml.onnx.nodes import Runner, attributes_of, cell_of_node, check_hidden_size, gru_options

#: The inputs of a GRU, by position.
_X, _SEQUENCE_LENS, _INITIAL_H = 0, 4, 5

#: A dimension's size, a number or a name.
_Size = int | str


@dataclass(frozen=True)
class Stack:
    """GRU nodes, each the only reader of the sequence of the one before.

    The rows of the value `states` from `first_row` on are the initial states of the layers in turn. The name
    is empty if each layer has a value of its own.
    """

    layers: tuple[onnx.NodeProto, ...]
    cell: Cell
    states: str = ""
    first_row: int = 0

    @property
    def node(self) -> onnx.NodeProto:
        """A node in place of the layers.

        Its inputs are X, sequence_lens, each layer's W, R and B, and the initial states, as one value or of
        each layer; its outputs are Y of the last layer and each layer's Y_h.
        """
        states = [self.states] if self.states else [_name(layer.input, _INITIAL_H) for layer in self.layers]
        weights = [_name(layer.input, place) for layer in self.layers for place in range(1, 4)]
        first, last = self.layers[0], self.layers[-1]
        return onnx.NodeProto(
            op_type="GRU",
            name=", ".join(map(label, self.layers)),
            input=[first.input[_X], _name(first.input, _SEQUENCE_LENS), *weights, *states],
            output=[last.output[0], *(_name(layer.output, 1) for layer in self.layers)],
        )

    @property
    def passed(self) -> dict[str, str]:
        """The values that layers read and `node` does not, each with a value of the same element type."""
        passed = {layer.input[_X]: self.node.input[_X] for layer in self.layers[1:]}
        return passed | {layer.input[_INITIAL_H]: self.states for layer in self.layers if self.states}

    def host_inputs(self, constants: Mapping[str, Any]) -> Sequence[int]:
        """The positions of the inputs of `node` that the runner takes on the host: weights, if constant."""
        places = range(2, 2 + 3 * len(self.layers))
        names = filter(None, (self.node.input[place] for place in places))
        return places if all(name in constants for name in names) else ()

    def runner(self, runners: Sequence[Runner], constants: Mapping[str, Any], device: str) -> Runner:
        """The runner of `node` on a device, given the runner of each layer.

        On a CPU, the layers run one after the other, by plans of their own if the weights are constant.
        """
        if device == "cpu":
            return lambda inputs, stream: self._one_by_one(runners, inputs, stream)
        return _Launched(self, len(self.host_inputs(constants)) > 0, device)

    def split(self, inputs: Sequence[Any]) -> tuple[Any, Any, list[Sequence[Any]], list[Any]]:
        """X, sequence_lens, the weights of each layer, and the initial states, of the inputs of `node`."""
        x, lengths, *rest = inputs
        end = 3 * len(self.layers)
        return x, lengths, [rest[first : first + 3] for first in range(0, end, 3)], rest[end:]

    def rows(self, number: int) -> slice:
        """The rows of a layer among the states of all layers."""
        count = self.cell.num_directions
        return slice(number * count, (number + 1) * count)

    def _one_by_one(self, runners: Sequence[Runner], inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
        x, lengths, weights, states = self.split(inputs)
        if self.states:
            whole = states[0][self.first_row :]
            states = [whole[self.rows(number)] for number in range(len(runners))]
        sequence, singles = None, []
        for run, own, state in zip(runners, weights, states, strict=True):
            if sequence is not None:
                steps, _, batch, _ = sequence.shape
                x = sequence.transpose(0, 2, 1, 3).reshape(steps, batch, -1)
            sequence, single = run((x, *own, lengths, state), stream)
            singles.append(single)
        return sequence, *singles


class _Launched:
    """Runs a stack by `gru_stack`; weights on the host are moved to the device once."""

    def __init__(self, stack: Stack, are_on_host: bool, device: str) -> None:
        self._stack, self._are_on_host = stack, are_on_host
        self._device = get_device(device)
        self._attributes = [attributes_of(layer) for layer in stack.layers]
        self._moved: list[Sequence[Any]] | None = None

    def __call__(self, inputs: Sequence[Any], stream: Any) -> Sequence[Any]:
        x, lengths, weights, states = self._stack.split(inputs)
        for attributes, own in zip(self._attributes, weights, strict=True):
            check_hidden_size(attributes, own[1])
        with self._device.on_stream(stream):
            if self._are_on_host:
                weights = self._on_device(weights)
            h0 = self._joined(states)
        options = gru_options(self._attributes[0])
        sequence, single = gru_stack(x, weights, h0, lengths, **options, stream=stream)
        return sequence, *(single[self._stack.rows(number)] for number in range(len(weights)))

    def _on_device(self, weights: list[Sequence[Any]]) -> list[Sequence[Any]]:
        if self._moved is None:
            self._moved = [
                tuple(None if one is None else upload(self._device, one) for one in own) for own in weights
            ]
        return self._moved

    def _joined(self, states: list[Any]) -> Any:
        """The initial states of all layers; absent states are 0."""
        if self._stack.states:
            first, rows = self._stack.first_row, self._stack.rows(len(self._stack.layers) - 1)
            return states[0][first : first + rows.stop]
        given = next((state for state in states if state is not None), None)
        if given is None:
            return None
        # NumPy's functions are CuPy's for its arrays.
        return np.concatenate([np.zeros_like(given) if state is None else state for state in states])


class Stacked(NamedTuple):
    """The nodes of a graph in which stacks are one node each."""

    nodes: list[onnx.NodeProto]
    stacks: list[Stack]
    #: For each layer and each node that is left out, by `key`: a text that names the layers of its step.
    together: dict[str, str]


def stacked(
    graph: onnx.GraphProto, constants: Mapping[str, Any], is_own: Callable[[onnx.NodeProto], bool]
) -> Stacked:
    """A graph with a node in place of each stack of GRU nodes that cudml runs.

    A stack is as high as possible. Nodes between its layers, and slices of initial states that are read from
    the sliced value, are left out if nothing else reads them.
    """
    found = _Graph(graph, constants)
    parts = {key(node): found.stack((node,)) for node in graph.node if _is_gru(node) and is_own(node)}
    #: The key of each node that is left out -> the key of a layer of its stack.
    left_out: dict[str, str] = {}
    for node in graph.node:
        passage = found.passage(node) if key(node) in parts else None
        if passage is None:
            continue
        below, between = passage
        if key(below) not in parts or not found.fit(below, node):
            continue
        lower, upper = parts[key(below)], parts[key(node)]
        # The layers below have to run first, for example if states are computed from their results.
        if found.depends(upper.node.input[1:], lower.node, parts):
            continue
        merged = found.stack((*lower.layers, *upper.layers))
        parts |= {key(layer): merged for layer in merged.layers}
        left_out |= dict.fromkeys((*between, key(below)), key(node))
    tops = {name: stack for name, stack in parts.items() if len(stack.layers) > 1 and name not in left_out}
    nodes = [
        tops[key(node)].node if key(node) in tops else node
        for node in graph.node
        if key(node) not in left_out
    ]
    read = {name for node in nodes for name in needs(node)} | {value.name for value in graph.output}
    for name, stack in tops.items():
        slices = {layer.input[_INITIAL_H] for layer in stack.layers if stack.states}
        left_out |= dict.fromkeys(slices - read, name)
    told = {}
    for name, layer in (left_out | {name: name for name in tops}).items():
        others = (label(other) for other in parts[layer].layers if key(other) != name)
        told[name] = f"one step with {', '.join(others)}"
    return Stacked([node for node in nodes if key(node) not in left_out], [*tops.values()], told)


class _Graph:
    """The nodes of a graph by the values that they make and read."""

    def __init__(self, graph: onnx.GraphProto, constants: Mapping[str, Any]) -> None:
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._constants = constants
        #: The keys of a value's readers; None stands for the caller, who reads the graph's outputs.
        self._readers: dict[str, set[str | None]] = defaultdict(set)
        for node in graph.node:
            for name in needs(node):
                self._readers[name].add(key(node))
        for value in graph.output:
            self._readers[value.name].add(None)
        self._declared = {
            value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
            for value in (*graph.value_info, *graph.input)
        }

    def stack(self, layers: tuple[onnx.NodeProto, ...]) -> Stack:
        """The stack of these layers."""
        cell = cell_of_node(layers[0])
        rows = [self._rows(_name(layer.input, _INITIAL_H)) for layer in layers]
        source, first = rows[0][:2]
        count = cell.num_directions
        ends = [(source, first + i * count, first + (i + 1) * count) for i in range(len(layers))]
        return Stack(layers, cell, source, first) if source and rows == ends else Stack(layers, cell)

    def fit(self, below: onnx.NodeProto, above: onnx.NodeProto) -> bool:
        """Whether two layers agree in the properties that a stack has once; else each is its own step."""
        if any(attributes_of(node)["layout"] for node in (below, above)):
            return False
        lower, upper = (
            (cell_of_node(node), self._hidden_size(node), _name(node.input, _SEQUENCE_LENS))
            for node in (below, above)
        )
        return lower == upper and lower[1] > 0

    def depends(self, names: Iterable[str], node: onnx.NodeProto, parts: Mapping[str, Stack]) -> bool:
        """Whether one of the values is made from an output of a node, if each of `parts` is one node."""
        pending, seen = list(names), set()
        while pending:
            maker = self._makers.get(pending.pop())
            if maker is None:
                continue
            maker = parts[key(maker)].node if key(maker) in parts else maker
            if key(maker) in seen:
                continue
            if key(maker) == key(node):
                return True
            seen.add(key(maker))
            pending.extend(needs(maker))
        return False

    def passage(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, set[str]] | None:
        """The GRU whose sequence is X of a GRU, and the nodes between, which nothing else reads."""
        x = node.input[_X]
        last = self._makers.get(x)
        if last is None or x in node.input[1:] or self._readers[x] != {key(node)}:
            return None
        between = [last]
        if last.op_type == "Transpose" or last.domain not in DOMAINS:
            return None
        inner = self._makers.get(last.input[0])
        if last.op_type == "Reshape" and inner is not None and inner.op_type == "Transpose":
            between.append(inner)
            inner = self._makers.get(inner.input[0])
        if inner is None or not _is_gru(inner) or between[-1].input[0] != inner.output[0]:
            return None
        if not (self._squeezes(last, inner) or self._joins(between, inner)):
            return None
        keys = {key(one) for one in between}
        inside = [inner.output[0], *(name for one in between for name in one.output if name and name != x)]
        return (inner, keys) if all(self._readers[name] <= keys for name in inside) else None

    def _squeezes(self, node: onnx.NodeProto, below: onnx.NodeProto) -> bool:
        """Whether a node removes the dimension of the only direction from a sequence."""
        if node.op_type != "Squeeze" or cell_of_node(below).num_directions > 1:
            return False
        given = {item.name: item.ints for item in node.attribute}
        axes = given["axes"] if "axes" in given else self._numbers(_name(node.input, 1))
        return axes is not None and [axis % 4 for axis in axes] == [1]

    def _joins(self, between: list[onnx.NodeProto], below: onnx.NodeProto) -> bool:
        """Whether nodes put the directions of a sequence next to each other, (T, N, D * H).

        Appends the nodes that compute the shape.
        """
        if [node.op_type for node in between] != ["Reshape", "Transpose"]:
            return False
        reshape, transpose = between
        if [*next((item.ints for item in transpose.attribute), ())] != [0, 2, 1, 3]:
            return False
        steps, batch = self._steps_and_batch(below)
        directions, hidden = cell_of_node(below).num_directions, self._hidden_size(below)
        sizes: list[_Size] = [steps, batch, directions, hidden]
        shape = self._shape(reshape.input[1], {transpose.output[0]: sizes}, between)
        if shape is None or len(shape) != 3 or shape.count(-1) > 1 or hidden == 0:
            return False
        keeps_zeros = any(item.name == "allowzero" and item.i for item in reshape.attribute)
        asked = [
            own if size == 0 and not keeps_zeros else size for size, own in zip(shape, sizes, strict=False)
        ]
        wanted = (steps, batch, directions * hidden)
        return all(size in (-1, own) for size, own in zip(asked, wanted, strict=True))

    def _steps_and_batch(self, node: onnx.NodeProto) -> tuple[_Size, _Size]:
        """T and N of a layer, as the model declares them; names for sizes that it leaves open."""
        sequence, x = (self._declared.get(name, []) for name in (node.output[0], node.input[_X]))
        steps, batch = (sequence[0], sequence[2]) if len(sequence) == 4 else (0, 0)
        if len(x) == 3:
            steps, batch = steps or x[0], batch or x[1]
        return steps or "T", batch or "N"

    def _shape(
        self, name: str, known: Mapping[str, list[_Size]], passed: list[onnx.NodeProto]
    ) -> list[_Size] | None:
        """The elements of a value that is computed from the shapes of `known` values; None for others.

        Appends the nodes that compute it.
        """
        numbers = self._numbers(name)
        if numbers is not None:
            return [*numbers]
        node = self._makers.get(name)
        if node is None or node.domain not in DOMAINS:
            return None
        passed.append(node)
        if node.op_type == "Shape":
            ends = {item.name: item.i for item in node.attribute}
            sizes = known.get(node.input[0])
            return None if sizes is None else sizes[ends.get("start", 0) : ends.get("end")]
        if node.op_type == "Slice":
            part, sizes = self._slice(node), self._shape(node.input[0], known, passed)
            return None if part is None or sizes is None else sizes[slice(*part)]
        if node.op_type not in ("Concat", "Mul", "Reshape"):
            return None
        if node.op_type == "Reshape":
            return self._shape(node.input[0], known, passed) if self._numbers(node.input[1]) == [-1] else None
        parts = [self._shape(one, known, passed) for one in node.input]
        joined = [size for part in parts if part is not None for size in part]
        if None in parts or node.op_type == "Concat":
            return None if None in parts else joined
        numbers = [size for size in joined if isinstance(size, int)]
        return [numbers[0] * numbers[1]] if len(numbers) == len(joined) == 2 else None

    def _rows(self, name: str) -> tuple[str, int, int]:
        """The source of a slice of rows, and their range; an empty name if a value is no such slice."""
        node = self._makers.get(name)
        part = self._slice(node) if node is not None and node.op_type == "Slice" else None
        return ("", 0, 0) if node is None or part is None or min(part) < 0 else (node.input[0], *part)

    def _slice(self, node: onnx.NodeProto) -> tuple[int, int] | None:
        """Where a Slice of every element along the first axis starts and ends; None for other slices."""
        names = [_name(node.input, place) for place in range(1, 5)]
        starts, ends, axes, steps = (
            self._numbers(name) if name else default
            for name, default in zip(names, (None, None, [0], [1]), strict=True)
        )
        if starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
            return None
        return (starts[0], ends[0]) if axes == [0] and steps == [1] else None

    def _numbers(self, name: str) -> list[int] | None:
        """The elements of a list of whole numbers that is constant; None for other values."""
        tensor = self._constants.get(name)
        if tensor is None or len(tensor.dims) != 1 or tensor.data_type != onnx.TensorProto.INT64:
            return None
        numbers: list[int] = onnx.numpy_helper.to_array(tensor).tolist()
        return numbers

    def _hidden_size(self, node: onnx.NodeProto) -> int:
        """H; 0 if it is known only when the node runs."""
        r = self._constants.get(node.input[2])
        size: int = attributes_of(node).get("hidden_size") or (r.dims[-1] if r is not None else 0)
        return size


def _is_gru(node: onnx.NodeProto) -> bool:
    return node.op_type == "GRU" and node.domain in DOMAINS


def _name(names: Sequence[str], place: int) -> str:
    """The name of an input or output; empty if it is left out."""
    return names[place] if place < len(names) else ""
