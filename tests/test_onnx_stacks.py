"""GRU nodes on top of each other are one step of a session, where that changes no result."""

import re
from typing import Any

import numpy as np
import onnx
import pytest

import cudml.onnx as adapter
from cudml.onnx import session as session_module
from cudml.onnx.stacks import Stacked
from tests.support import assert_identical
from tests.support.onnx_suite import PROVIDERS, by_onnxruntime

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 2, 4

#: The common head of the models below; ONNX Runtime ignores unused constants.
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[T, N, 2] x, float[L, N, 4] h, int32[N] n) => (OUTPUTS) {
    zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
    two = Constant<value_ints = [2]>()  three = Constant<value_ints = [3]>()
    four = Constant<value_ints = [4]>()  rest = Constant<value_ints = [-1]>()
    joined = Constant<value_ints = [0, 0, -1]>()  of_four = Constant<value_ints = [0, -1, 4]>()
    swapped = Constant<value_ints = [3, 5, 4]>()  of_five = Constant<value_ints = [5, -1, 4]>()
    NODES }"""

#: An upper layer's inputs as exporters write them.
SQUEEZED = "s = Squeeze(y0, one)  "
TURNED = "t = Transpose <perm = [0, 2, 1, 3]> (y0)  "
JOINED = f"{TURNED}s = Reshape(t, joined)  "
COMPUTED = f"""{TURNED}sizes = Shape <start = 0> (t)  steps = Slice(sizes, zero, one)
    batch = Slice(sizes, one, two)  count = Slice(sizes, two, three)  size = Slice(sizes, three, four)
    product = Mul(count, size)  states = Reshape(product, rest)
    shape = Concat <axis = 0> (steps, batch, states)  s = Reshape(t, shape)  """
LOWER = "y0, h0 = GRU <hidden_size = 4> (x, w0, r0, b0)  "
UPPER = "y, h1 = GRU <hidden_size = 4> (s, w1, r1, b1)"

#: Stacks of two or three layers: nodes, and outputs that are read besides y.
STACKS = {
    "two layers": (LOWER + SQUEEZED + UPPER, "h0 h1"),
    "no last states": ("y0 = GRU <hidden_size = 4> (x, w0, r0)  " + SQUEEZED + UPPER, ""),
    "only last states": (LOWER + SQUEEZED + UPPER.replace("y,", ","), "h0 h1"),
    "no biases": (LOWER.replace(", b0", "") + SQUEEZED + UPPER.replace(", b1", ""), "h1"),
    "three layers": (
        LOWER
        + SQUEEZED
        + "y1, h1 = GRU <hidden_size = 4> (s, w1, r1)  u = Squeeze(y1, one)"
        + " y, h2 = GRU <hidden_size = 4> (u, w2, r2, b2)",
        "h0 h1 h2",
    ),
    "reverse": ((LOWER + SQUEEZED + UPPER).replace("= 4>", '= 4, direction = "reverse">'), "h0 h1"),
    "bidirectional": ((LOWER + JOINED + UPPER).replace("= 4>", '= 4, direction = "bidirectional">'), "h0 h1"),
    "bidirectional, computed shape": (
        (LOWER + COMPUTED + UPPER).replace("= 4>", '= 4, direction = "bidirectional">'),
        "h0 h1",
    ),
    "joined": (LOWER + JOINED + UPPER, "h0 h1"),
    "computed shape": (LOWER + COMPUTED + UPPER, "h0 h1"),
    "size of the batch left out": (LOWER + TURNED + "s = Reshape(t, of_four)  " + UPPER, "h1"),
    "options": (
        (LOWER + SQUEEZED + UPPER).replace(
            "= 4>",
            '= 4, linear_before_reset = 1, clip = 0.4, activations = ["HardSigmoid", "Tanh"],'
            " activation_alpha = [0.3], activation_beta = [0.6]>",
        ),
        "h0 h1",
    ),
    "defaults that are written": (LOWER + SQUEEZED + UPPER.replace("= 4>", "= 4, layout = 0>"), "h1"),
    "lengths": ((LOWER + SQUEEZED + UPPER).replace("b0", "b0, n").replace("b1", "b1, n"), "h0 h1"),
    "states in one value": (
        f"g0 = Slice(h, one, two, zero)  {LOWER}{SQUEEZED} g1 = Slice(h, two, three, zero)  {UPPER}".replace(
            "b0", "b0, , g0"
        ).replace("b1", "b1, , g1"),
        "h0 h1",
    ),
    "states in another order": (
        f"g0 = Slice(h, one, two, zero)  g1 = Slice(h, zero, one, zero)  {LOWER}{SQUEEZED}{UPPER}".replace(
            "b0", "b0, , g0"
        ).replace("b1", "b1, , g1"),
        "h0 h1",
    ),
    "a slice that is read elsewhere": (
        "g0 = Slice(h, zero, one)  g1 = Slice(h, one, two)  more = Neg(g1)  "
        + (LOWER + SQUEEZED + UPPER).replace("b0", "b0, , g0").replace("b1", "b1, , g1"),
        "h0 h1 more",
    ),
    "a state of the upper layer": (
        f"g1 = Slice(h, one, two, zero)  {LOWER}{SQUEEZED}{UPPER.replace('b1', 'b1, , g1')}",
        "h0 h1",
    ),
    "a state of the lower layer": (
        f"g0 = Slice(h, one, two, zero)  {LOWER.replace('b0', 'b0, , g0')}{SQUEEZED}{UPPER}",
        "h0 h1",
    ),
    "weights that are computed": (
        "v = Neg(r1)  " + LOWER + SQUEEZED + UPPER.replace("r1", "v"),
        "h0 h1",
    ),
}

#: Layers that are a step each: nodes, and outputs that are read besides y.
LAYERS = {
    "a second reader": (LOWER + SQUEEZED + UPPER + "  again = Neg(y0)", "again"),
    "a second reader of what is between": (LOWER + SQUEEZED + UPPER + "  again = Neg(s)", "again"),
    "a reader of what is turned": (LOWER + JOINED + UPPER + "  again = Neg(t)", "again"),
    "a reader of a computed shape": (LOWER + COMPUTED + UPPER + "  again = Cast <to = 1> (shape)", "again"),
    "an output": (LOWER + SQUEEZED + UPPER, "y0"),
    "an output between": (LOWER + SQUEEZED + UPPER, "s"),
    "read by a body": (
        LOWER
        + SQUEEZED
        + UPPER
        + """  yes = Constant<value = bool {1}>()
        again = If (yes) < then_branch = p () => (float[K] a) { a = Neg(y0) },
        else_branch = q () => (float[K] b) { b = Identity(y0) }>""",
        "again",
    ),
    "other activations": (
        LOWER + SQUEEZED + UPPER.replace("= 4>", '= 4, activations = ["Sigmoid", "Relu"]>'),
        "",
    ),
    "other parameters of activations": (
        LOWER.replace("= 4>", '= 4, activations = ["HardSigmoid", "Tanh"], activation_alpha = [0.3]>')
        + SQUEEZED
        + UPPER.replace("= 4>", '= 4, activations = ["HardSigmoid", "Tanh"], activation_alpha = [0.4]>'),
        "",
    ),
    "other clip": (LOWER + SQUEEZED + UPPER.replace("= 4>", "= 4, clip = 0.3>"), ""),
    "other place of the reset gate": (
        LOWER + SQUEEZED + UPPER.replace("= 4>", "= 4, linear_before_reset = 1>"),
        "",
    ),
    "other direction": (LOWER + SQUEEZED + UPPER.replace("= 4>", '= 4, direction = "reverse">'), ""),
    "other hidden size": (LOWER + SQUEEZED + "y = GRU <hidden_size = 3> (s, v1, q1)", ""),
    "lengths of one": (LOWER + SQUEEZED + UPPER.replace("b1", "b1, n"), ""),
    "a state that is the lower layer's": (LOWER + SQUEEZED + UPPER.replace("b1", "b1, , h0"), ""),
    "a state that is made of the lower layer's": (
        LOWER + SQUEEZED + "g = Neg(h0)  " + UPPER.replace("b1", "b1, , g"),
        "",
    ),
    "another axis": (
        "e = Constant<value_ints = [0]>()  u = Slice(x, zero, one)  "
        + LOWER.replace("x,", "u,")
        + "s = Squeeze(y0, e)  "
        + UPPER,
        "",
    ),
    "another order of axes": (
        LOWER + "t = Transpose <perm = [2, 0, 1, 3]> (y0)  s = Reshape(t, joined)  " + UPPER,
        "",
    ),
    "other sizes": (LOWER + TURNED + "s = Reshape(t, swapped)  " + UPPER, ""),
    "sizes that the model leaves open": (LOWER + TURNED + "s = Reshape(t, of_five)  " + UPPER, ""),
}


def model_of(nodes: str, outputs: str, rng: np.random.Generator, x: str = "T, N, 2") -> onnx.ModelProto:
    """A model with random weights of the names w0, r0, b0 and so on."""
    names = [*re.findall(r"\by\b(?=[,\s=])", nodes)[:1], *outputs.split()]
    text = MODEL.replace("OUTPUTS", ", ".join(f"float[...] {name}" for name in names))
    model = onnx.parser.parse_model(
        text.replace("float[...]", "float").replace("NODES", nodes).replace("T, N, 2", x)
    )
    directions = 2 if "bidirectional" in nodes else 1
    for name in sorted(set(re.findall(r"\b[wrbvq]\d\b", nodes))):
        hidden = 3 if name[0] in "vq" else HIDDEN
        inputs = INPUTS if name == "w0" else hidden if name[0] in "rq" else directions * HIDDEN
        shape = (6 * hidden,) if name[0] == "b" else (3 * hidden, inputs)
        array = rng.uniform(-0.5, 0.5, (directions, *shape)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def feeds_of(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The inputs that a model's nodes read; the model keeps no other inputs."""
    feeds = {
        "x": rng.uniform(-1, 1, (STEPS, BATCH, INPUTS)).astype(np.float32),
        "h": rng.uniform(-1, 1, (4, BATCH, HIDDEN)).astype(np.float32),
        "n": np.array([5, 1, 3], np.int32),
    }
    read = {name for node in model.graph.node for name in node.input}
    kept = [value for value in model.graph.input if value.name in read]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return {value.name: feeds[value.name] for value in kept}


def num_steps(session: adapter.Session) -> int:
    """How many steps run GRU nodes."""
    return sum(getattr(getattr(step, "node", None), "op_type", None) == "GRU" for step in session._steps)


def check(
    model: onnx.ModelProto, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, expected: int
) -> adapter.Session:
    """Results are those of the nodes one by one, bit for bit, and close to ONNX Runtime's."""
    feeds = feeds_of(model, rng)
    session = adapter.Session(model, providers=PROVIDERS)
    assert num_steps(session) == expected
    ours = session.run_named(feeds)
    with monkeypatch.context() as patch:
        patch.setattr(session_module, "stacked", lambda graph, *_: Stacked([*graph.node], [], {}))
        alone = adapter.Session(model, providers=PROVIDERS)
    assert num_steps(alone) == len(session.placed)
    for name, one in alone.run_named(feeds).items():
        assert_identical(ours[name], one)
    for one, theirs in zip(ours.values(), by_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(one, theirs, rtol=1e-5, atol=1e-6)
    return session


@pytest.mark.parametrize("name", STACKS)
def test_layers_are_one_step(name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    session = check(model_of(*STACKS[name], rng), rng, monkeypatch, 1)
    assert {row.runs_on for row in session.placed} == {"cudml"}
    assert all(row.reason.startswith("one step with GRU of ") for row in session.placed)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_a_step_each(name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    session = check(model_of(*LAYERS[name], rng), rng, monkeypatch, 2)
    assert [(row.runs_on, row.reason) for row in session.placed] == [("cudml", "")] * 2


def test_sizes_that_the_model_declares(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = LOWER + TURNED + "s = Reshape(t, of_five)  " + UPPER
    check(model_of(nodes, "h1", rng, "5, N, 2"), rng, monkeypatch, 1)
    check(model_of(nodes.replace("of_five", "swapped"), "h1", rng, "5, 3, 2"), rng, monkeypatch, 2)


def test_layers_of_batch_first_are_a_step_each(rng: np.random.Generator) -> None:
    """Axis 1 of their arrays is the step axis. ONNX Runtime has no layout 1."""
    nodes = (LOWER + SQUEEZED + UPPER).replace("= 4>", "= 4, layout = 1>")
    assert num_steps(adapter.Session(model_of(nodes, "", rng), providers=PROVIDERS)) == 2


def test_stacks_that_need_each_other(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper layer of each stack starts from the state of the other stack's lower layer."""
    nodes = (
        LOWER
        + SQUEEZED
        + "z0, k0 = GRU <hidden_size = 4> (x, w0, r0)  u = Squeeze(z0, one)"
        + UPPER.replace("b1", "b1, , k0")
        + "  z, k1 = GRU <hidden_size = 4> (u, w1, r1, , , h0)"
    )
    check(model_of(nodes, "h1 z k1", rng), rng, monkeypatch, 3)


def test_placed_names_what_a_node_is_one_step_with(rng: np.random.Generator) -> None:
    nodes, outputs = STACKS["states in one value"]
    for old, new in (("y0, h0", "[low] y0, h0"), ("y, h1", "[high] y, h1"), ("g1 =", "[state] g1 =")):
        nodes = nodes.replace(old, new)
    session = adapter.Session(model_of(nodes, outputs, rng), ops=("GRU", "Slice"), providers=PROVIDERS)
    assert session.placed == [
        ("Slice of g0", "Slice", "cudml", "one step with low, high"),
        ("low", "GRU", "cudml", "one step with high"),
        ("state", "Slice", "cudml", "one step with low, high"),
        ("high", "GRU", "cudml", "one step with low"),
    ]
    assert [str(step) for step in session._steps] == ["low, high by cudml"]


def test_layers_of_a_type_that_cudml_lacks(rng: np.random.Generator) -> None:
    model = model_of(*STACKS["two layers"], rng)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(float), tensor.name)
        )
    for value in (*model.graph.output, model.graph.input[0]):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    session = adapter.Session(model, providers=PROVIDERS)
    assert [(row.runs_on, row.reason) for row in session.placed] == [
        ("ONNX Runtime", "double is not supported")
    ] * 2


def test_wrong_weights_of_a_layer_are_named(rng: np.random.Generator) -> None:
    nodes = "w = Identity(r0)  " + (LOWER + SQUEEZED + UPPER).replace("r1", "w")
    model = model_of(nodes, "", rng)
    feeds: dict[str, Any] = feeds_of(model, rng)
    for tensor in model.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros((1, 12, 7), np.float32), "w1"))
    session = adapter.Session(model, providers=PROVIDERS)
    assert num_steps(session) == 1
    with pytest.raises(ValueError, match=r"^Session: GRU of y0, GRU of y: .*w.*7"):
        session.run_named(feeds)
