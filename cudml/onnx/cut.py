"""Cut the graph of a model into stretches for ONNX Runtime and single nodes for cudml, in an order to run."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx

#: The names of ONNX's own domain.
DOMAINS = ("", "ai.onnx")

#: The attributes of Constant that hold a tensor's elements, and their element types.
_ELEMENTS = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
    "value_strings": onnx.TensorProto.STRING,
}


@dataclass
class Stretch:
    """Nodes that ONNX Runtime runs as one model, and the values that go in and come out."""

    nodes: list[onnx.NodeProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    constants: Collection[str],
    is_own: Callable[[onnx.NodeProto], bool],
) -> list[Stretch | onnx.NodeProto]:
    """The steps that run the nodes of a graph; each takes values of the graph or of an earlier step.

    A stretch is as long as possible: it ends when every remaining node needs a node that cudml runs. The
    names of `constants_of` the graph are known before the first step.

    Raises
    ------
    ValueError
        A node needs a value that no node makes.
    """
    known = {*constants, *(value.name for value in graph.input)}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    pending = [node for node in nodes if not any(name in constants for name in node.output)]
    steps: list[list[onnx.NodeProto] | onnx.NodeProto] = []
    while pending:
        ready = _take_ready(pending, known, lambda node: not is_own(node))
        own = _take_ready(pending, known, is_own)
        if not ready and not own:
            missing = sorted(set(needs(pending[0])) - known)
            raise ValueError(
                f"node {label(pending[0])} needs {', '.join(missing)}, which no node before it makes"
            )
        steps += [ready] if ready else []
        steps += own
    return [step if isinstance(step, onnx.NodeProto) else _stretch(step, steps, graph) for step in steps]


def check_names(graph: onnx.GraphProto) -> None:
    """Raise ValueError unless every value has one origin, and the graph's outputs have one."""
    inputs = [value.name for value in graph.input]
    made = [name for node in graph.node for name in node.output if name]
    initial = {tensor.name for tensor in graph.initializer}
    initial |= {tensor.values.name for tensor in graph.sparse_initializer}
    # An initializer of an input's name is the input's default.
    origins = Counter([*inputs, *(initial - set(inputs)), *made])
    twice = [name for name, count in origins.items() if count > 1]
    if twice:
        raise ValueError(
            f"the graph makes {', '.join(twice)} more than once, must be in static single assignment form"
        )
    missing = [value.name for value in graph.output if value.name not in origins]
    if missing:
        raise ValueError(f"the graph's output {', '.join(missing)} must be an output of a node, and is not")


def constants_of(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers of a graph, and the tensors that its Constant nodes make."""
    made = map(_constant, graph.node)
    return [*graph.initializer, *(tensor for tensor in made if tensor is not None)]


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor that a Constant node makes, named as its output; None for other nodes and sparse tensors."""
    if node.op_type != "Constant" or node.domain not in DOMAINS or len(node.attribute) != 1:
        return None
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    tensor = onnx.TensorProto()
    if attribute.name == "value":
        tensor.CopyFrom(value)
    elif attribute.name in _ELEMENTS:
        is_scalar = not attribute.name.endswith("s")
        elements = [value] if is_scalar else list(value)
        sizes = [] if is_scalar else [len(elements)]
        tensor = onnx.helper.make_tensor("", _ELEMENTS[attribute.name], sizes, elements)
    else:
        return None
    tensor.name = node.output[0]
    return tensor


def needs(node: onnx.NodeProto) -> Iterator[str]:
    """The values that a node reads, including those that its subgraphs read from outside."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            inner = {value.name for value in (*graph.input, *graph.initializer)}
            for part in graph.node:
                yield from (name for name in needs(part) if name not in inner)
                inner.update(part.output)
            yield from (value.name for value in graph.output if value.name not in inner)


def key(node: onnx.NodeProto) -> str:
    """The name of a node's first output, which no other node has."""
    return str(next(filter(None, node.output), ""))


def label(node: onnx.NodeProto) -> str:
    """The name of a node in reports."""
    return node.name or f"{node.op_type} of {key(node)}"


def _take_ready(
    pending: list[onnx.NodeProto], known: set[str], wanted: Callable[[onnx.NodeProto], bool]
) -> list[onnx.NodeProto]:
    """Remove and return the wanted nodes that need only known values, or values of one another."""
    ready = []
    for node in list(pending):
        if wanted(node) and known.issuperset(needs(node)):
            ready.append(node)
            pending.remove(node)
            known.update(filter(None, node.output))
    return ready


def _stretch(
    nodes: list[onnx.NodeProto],
    steps: list[list[onnx.NodeProto] | onnx.NodeProto],
    graph: onnx.GraphProto,
) -> Stretch:
    read = {name for node in nodes for name in needs(node)}
    made = {name for node in nodes for name in node.output if name}
    wanted = {value.name for value in graph.output}
    for step in steps:
        if step is not nodes:
            wanted.update(
                name for node in (step if isinstance(step, list) else [step]) for name in needs(node)
            )
    return Stretch(nodes, tuple(sorted(read - made)), tuple(sorted(made & wanted)))
