"""`cudml.onnx` beside ONNX Runtime: ONNX's node tests, recorded calls, and cut graphs."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.base
import pytest
from onnx import TensorProto, helper

import cudml
import cudml.onnx as adapter
from cudml.devices import emulator
from cudml.onnx import nodes
from cudml.onnx.nodes import OPS
from tests.operators.test_conformance import RECORDS, VECTORS, call_of, check, group_of
from tests.support import assert_identical
from tests.support.onnx_adapter import Call
from tests.support.onnx_suite import NUM_NODE_TESTS, PROVIDERS, by_onnxruntime, node_tests, num_tests


def session_of(text: str, **options: Any) -> adapter.Session:
    """A session of a model in ONNX's text form, on the CPU."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    return adapter.Session(model, providers=PROVIDERS, **options)


class Rep(onnx.backend.base.BackendRep):
    def __init__(self, model: onnx.ModelProto) -> None:
        self.session = adapter.Session(model, ops=OPS, providers=PROVIDERS)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        assert [row.runs_on for row in self.session.placed] == ["cudml"]
        return tuple(self.session.run(None, dict(zip(self.session.inputs, inputs, strict=True))))


class Backend(onnx.backend.base.Backend):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Rep:
        return Rep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.startswith("CPU")


NODE_TESTS = node_tests(Backend, __name__)
globals().update(NODE_TESTS)


def test_the_node_tests_are_whole() -> None:
    assert num_tests(NODE_TESTS, "cpu") >= NUM_NODE_TESTS


def model_of(call: Call) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its inputs by name."""
    names = [f"in{i}" if array is not None else "" for i, array in enumerate(call.inputs)]
    outputs = [f"out{i}" if wanted else "" for i, wanted in enumerate(call.wanted)]
    feeds = {name: array for name, array in zip(names, call.inputs, strict=True) if name}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    # The records' lists of whole numbers may stand for floats.
    floats = {name: [*map(float, call.attrs[name])] for name in call.attrs if name.startswith("activation_")}
    node = helper.make_node(call.op, names, outputs, **call.attrs | floats)
    kinds = [infos[0].type.tensor_type.elem_type, TensorProto.INT64 if call.op == "TopK" else 0]
    results = [
        helper.make_tensor_value_info(name, kind or kinds[0], None)
        for name, kind in zip(outputs, kinds, strict=False)
        if name
    ]
    graph = helper.make_graph([node], "one", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", call.opset)], ir_version=10), feeds


@pytest.mark.skipif(not VECTORS.is_dir(), reason="recorded vectors are not beside the checkout")
@pytest.mark.parametrize(
    "record",
    [r for r in RECORDS if group_of(r) in ("descriptor", "SLICE1", "empty", "array function")],
    ids=lambda record: f"{record['test']}-{record['file']}:{record['line']}",
)
def test_recorded_calls(record: dict[str, Any]) -> None:
    model, feeds = model_of(call_of(record))
    session = adapter.Session(model, ops=OPS, providers=PROVIDERS)
    assert session.placed[0].runs_on == "cudml"
    check(record, list(session.run_named(feeds).values()))


GRU_MODEL = """
agraph (float[T, N, 2] x, float[1, N, 4] h_in) => (float[T, 1, N, 4] y, float[1, N, 4] h_out)
<float[1, 12, 2] w, float[1, 12, 4] r>
{ doubled = Add(x, x)  y, h_out = GRU <hidden_size = 4 OPTIONS> (doubled, w, r, , , h_in) }
"""


def gru_model(rng: np.random.Generator, options: str = "") -> onnx.ModelProto:
    text = GRU_MODEL.replace("OPTIONS", options).replace("<float[1, 12, 2] w, float[1, 12, 4] r>", "")
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    for name, shape in (("w", (1, 12, 2)), ("r", (1, 12, 4))):
        array = rng.standard_normal(shape, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def test_state_is_carried_without_a_copy(rng: np.random.Generator) -> None:
    """On a CPU, one step at a time with the state carried is the whole sequence at once, bit for bit."""
    session = adapter.Session(gru_model(rng), providers=PROVIDERS)
    x = rng.standard_normal((7, 3, 2), dtype=np.float32)
    state = rng.standard_normal((1, 3, 4), dtype=np.float32)
    with emulator.schedule(warp_lanes=1):
        whole = session.run_named({"x": x, "h_in": state})
        carry = {"h_out": "h_in"}
        steps = [session.run_named({"x": x[:1], "h_in": state}, carry=carry)]
        for step in x[1:]:
            assert np.shares_memory(session._held["h_in"], steps[-1]["h_out"])
            steps.append(session.run_named({"x": step[None]}, ["y", "h_out"], carry=carry))
    assert np.array_equal(np.concatenate([step["y"] for step in steps]), whole["y"])
    assert np.array_equal(steps[-1]["h_out"], whole["h_out"])
    session.run_named({"x": x, "h_in": state})
    with pytest.raises(ValueError, match="input_feed lacks h_in"):
        session.run_named({"x": x})


@pytest.mark.parametrize(
    "options",
    [
        ", clip = 0.3",
        ", clip = 0.3, linear_before_reset = 1",
        ', clip = 0.3, activations = ["Sigmoid", "Softplus"]',
        ', activations = ["HardSigmoid", "LeakyRelu"], activation_alpha = [0.3], activation_beta = [0.4]',
        ", layout = 0",
    ],
)
def test_options_of_gru(options: str, rng: np.random.Generator) -> None:
    model = gru_model(rng, options)
    session = adapter.Session(model, providers=PROVIDERS)
    assert [tuple(row)[1:] for row in session.placed] == [("GRU", "cudml", "")]
    feeds = {
        "x": rng.standard_normal((5, 3, 2), dtype=np.float32),
        "h_in": rng.standard_normal((1, 3, 4), dtype=np.float32),
    }
    for ours, theirs in zip(session.run_named(feeds).values(), by_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [21, 22])
def test_gru_of_bfloat16(opset: int, rng: np.random.Generator) -> None:
    """ONNX's GRU takes bfloat16 from opset 22 on; ONNX Runtime has no such kernel."""
    kinds = dict.fromkeys(("x", "w", "r", "y", "y_h"), TensorProto.BFLOAT16)
    infos = {name: helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()}
    node = helper.make_node("GRU", ["x", "w", "r"], ["y", "y_h"], hidden_size=4)
    inputs, outputs = ([infos[name] for name in names] for names in (("x", "w", "r"), ("y", "y_h")))
    graph = helper.make_graph([node], "one", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    if opset < 22:
        with pytest.raises(ValueError, match="ONNX Runtime does not take the model"):
            adapter.Session(model, providers=PROVIDERS)
        return
    session = adapter.Session(model, providers=PROVIDERS)
    shapes = {"x": (5, 3, 2), "w": (1, 12, 2), "r": (1, 12, 4)}
    feeds = {n: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for n, shape in shapes.items()}
    for got, expected in zip(session.run(None, feeds), cudml.gru(**feeds), strict=True):
        assert_identical(got, expected)


def test_constant_weights_are_arranged_once(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gru_model(rng)
    w, r = map(onnx.numpy_helper.to_array, model.graph.initializer)
    made: list[int] = []

    class Counted(cudml.GruPlan):
        def __init__(self, *weights: Any, **options: Any) -> None:
            made.append(len(weights))
            super().__init__(*weights, **options)

    monkeypatch.setattr(nodes, "GruPlan", Counted)
    session = adapter.Session(model, providers=PROVIDERS)
    for steps, batch in ((5, 3), (1, 3), (5, 2), (4, 3)):
        x = rng.standard_normal((steps, batch, 2), dtype=np.float32)
        state = rng.standard_normal((1, batch, 4), dtype=np.float32)
        for got, expected in zip(
            session.run(None, {"x": x, "h_in": state}), cudml.gru(x + x, w, r, h0=state), strict=True
        ):
            assert_identical(got, expected)
    assert made == [3]


@pytest.mark.parametrize("attributes", [{}, {"clip": 0.3}, {"clip": 0.3, "linear_before_reset": 1}], ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_batch_first_is_the_same_gru(
    direction: str, attributes: dict[str, Any], rng: np.random.Generator
) -> None:
    """With all inputs, and as many sequences as directions. ONNX Runtime has no layout 1 to compare with."""
    num_directions = 1 + (direction == "bidirectional")
    batch = num_directions
    sizes = {
        "x": (5, batch, 3),
        "w": (num_directions, 12, 3),
        "r": (num_directions, 12, 4),
        "b": (num_directions, 24),
        "n": (batch,),
        "h": (num_directions, batch, 4),
    }
    feeds = {name: 2 * rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    feeds["n"] = rng.integers(1, 6, batch).astype(np.int32)
    results = []
    for layout in (0, 1):
        node = helper.make_node(
            "GRU",
            ["x", "w", "r", "b", "n", "h"],
            ["y", "y_h"],
            hidden_size=4,
            direction=direction,
            layout=layout,
            **attributes,
        )
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
            for name, array in feeds.items()
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "y_h")]
        graph = helper.make_graph([node], "layer", infos, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=10)
        given = dict(feeds)
        if layout:
            given |= {name: np.ascontiguousarray(feeds[name].swapaxes(0, 1)) for name in ("x", "h")}
        session = adapter.Session(model, ops=OPS, providers=PROVIDERS)
        results.append([*session.run_named(given).values()])
        if not layout:
            for ours, theirs in zip(results[0], by_onnxruntime(model, feeds), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    (sequence, single), (first_sequence, first_single) = results
    assert np.array_equal(first_sequence.transpose(1, 2, 0, 3), sequence)
    assert np.array_equal(first_single.swapaxes(0, 1), single)


ONNX_ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "ThresholdedRelu": lambda x, alpha, beta: np.where(x >= alpha, x, 0),
}


def hidden_gate_model(name: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    """A GRU of one unit whose update gate is 0, so that its output is the hidden gate's activation of x."""
    names = ["Sigmoid", name]
    node = helper.make_node(
        "GRU", ["x", "w", "r", "b"], ["y"], activations=names, hidden_size=1, **attributes
    )
    weights = {
        "w": np.array([[[0], [0], [1]]], np.float32),
        "r": np.zeros((1, 3, 1), np.float32),
        "b": np.array([[-200, 0, 0, 0, 0, 0]], np.float32),
    }
    graph = helper.make_graph(
        [node],
        "gate",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", 1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=10)


@pytest.mark.parametrize("name", ONNX_ACTIVATIONS)
@pytest.mark.parametrize(
    ("alpha", "beta"),
    # The last is ONNX's default: alpha 1 of ThresholdedRelu, 1 and 0 of Affine (an operator until opset 6).
    [(0.5, 0.25), (-0.75, 2.0), (1.0, 0.0)],
)
def test_gru_computes_activations_by_onnx_formulas(name: str, alpha: float, beta: float) -> None:
    """Where alpha or beta is left out, ONNX Runtime takes 0, but ONNX prescribes the operator's default."""
    x = np.array([-3, -0.75, -0.5, 0, 0.25, 0.5, 0.75, 1, 1.5, 4], np.float32).reshape(-1, 1, 1)
    given = {"activation_alpha": [alpha], "activation_beta": [beta]}
    if name == "ThresholdedRelu":
        del given["activation_beta"]
    expected = ONNX_ACTIVATIONS[name](x.astype(np.float64), alpha, beta).reshape(-1, 1, 1, 1)
    bound = 2 * np.finfo(np.float32).eps * np.abs(expected).max()  # a product, a sum and a tanh are rounded
    model = hidden_gate_model(name, given)
    (ours,) = adapter.Session(model, providers=PROVIDERS).run_named({"x": x}).values()
    (theirs,) = by_onnxruntime(model, {"x": x})
    # At its threshold, ThresholdedRelu is x in GRU's text, 0 in the operator's text, and 0 in both libraries.
    at_threshold = (x == alpha).reshape(-1, 1, 1, 1) & (name == "ThresholdedRelu")
    assert np.array_equal(ours[at_threshold], theirs[at_threshold])
    assert np.abs(ours - expected)[~at_threshold].max() <= bound
    assert np.abs(theirs - expected)[~at_threshold].max() <= bound
    if (alpha, beta) == (1.0, 0.0) and name != "ScaledTanh":
        (left_out,) = (
            adapter.Session(hidden_gate_model(name, {}), providers=PROVIDERS).run_named({"x": x}).values()
        )
        assert np.array_equal(left_out, ours)


#: Two layers of an LSTM that run backwards, as converters write a bidirectional layer of Keras.
BACKWARDS = """g (float[B, T, 6] x, int64[B] n) => (float[T, B, 8] marks, float[B, T, 6] read) {
    a = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n)  one = Constant<value_ints = [1]>()
    b = Transpose <perm = [1, 0, 2]> (a)  c = LSTM <hidden_size = 8> (b, w1, r1)  d = Squeeze(c, one)
    e = ReverseSequence <batch_axis = 1, time_axis = 0> (d, n)  f = Tanh(e)
    g = ReverseSequence <batch_axis = 1, time_axis = 0> (f, n)
    h = LSTM <hidden_size = 8> (g, w2, r2)  i = Squeeze(h, one)
    marks = ReverseSequence <batch_axis = 1, time_axis = 0> (i, n)
    read = ReverseSequence <batch_axis = 0, time_axis = 1> (a, n) }"""


def test_layers_that_run_backwards(rng: np.random.Generator) -> None:
    """Reversals are exact, and ONNX Runtime computes the layers of both."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {BACKWARDS}')
    for name, shape in (("w1", (32, 6)), ("r1", (32, 8)), ("w2", (32, 8)), ("r2", (32, 8))):
        weights = rng.standard_normal((1, *shape), dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    session = adapter.Session(model, providers=PROVIDERS)
    assert [(row.op, row.runs_on) for row in session.placed] == [("ReverseSequence", "cudml")] * 5
    for batch, steps in ((3, 90), (1, 1), (2, 80)):
        feeds = {
            "x": rng.standard_normal((batch, steps, 6), dtype=np.float32),
            "n": rng.integers(1, steps + 1, batch),
        }
        for ours, theirs in zip(session.run_named(feeds).values(), by_onnxruntime(model, feeds), strict=True):
            assert np.array_equal(ours, theirs)


TYPES = """g (string[4, 1] a, float[4, 1] x) => (string[4, 1] c, float[4, 1] y, double[] z) {
    n = Constant<value_ints = [3]>()
    [text] b = ReverseSequence (a, n)  d = Identity(b)
    [again] c = ReverseSequence (d, n)
    [numbers] y = ReverseSequence (x, n)
    wide = Cast<to = 11>(x)  axes = Constant<value_ints = [2]>()  w = Unsqueeze(wide, axes)
    LAYER }"""


def test_types_that_cudml_lacks_run_on_onnx_runtime() -> None:
    """The type of some inputs is known only after ONNX Runtime has the nodes before them."""
    layer = "[layer] z = GRU <hidden_size = 2> (w, w, w)"
    placed = [
        ("text", "ReverseSequence", "ONNX Runtime", "string is not supported"),
        ("again", "ReverseSequence", "ONNX Runtime", "string is not supported"),
        ("numbers", "ReverseSequence", "cudml", ""),
        ("layer", "GRU", "ONNX Runtime", "double is not supported"),
    ]
    assert session_of(TYPES.replace("LAYER", layer)).placed == placed
    # ONNX Runtime accepts a GRU of float64, but does not compute it on a CPU.
    session = session_of(TYPES.replace("LAYER", "z = Neg(w)"))
    assert session.placed == placed[:3]
    a, x = np.array([["p"], ["q"], ["r"], ["s"]], object), np.arange(4, dtype=np.float32)[:, None]
    results = session.run_named({"a": a, "x": x})
    assert [results["c"].ravel().tolist(), results["y"].ravel().tolist()] == [[*"pqrs"], [2, 1, 0, 3]]


CUTS = {
    # Two nodes of ours that are independent of each other: one stretch before, one after.
    "beside each other": (
        """g (float[4] a, float[4] b) => (float[2] sum) {
        k = Constant<value_ints = [2]>()
        c = Neg(a)  v, i = TopK(c, k)  d = Mul(b, b)  w, j = TopK(d, k)  sum = Add(v, w) }""",
        ["stretch", "TopK", "TopK", "stretch"],
    ),
    "one after the other": (
        """g (float[4] a, float[4] b) => (float[2] sum) {
        k = Constant<value_ints = [3]>()  m = Constant<value_ints = [2]>()
        v, i = TopK(a, k)  w, j = TopK(v, m)  c, d = TopK(b, m) sum = Add(c, w) }""",
        ["TopK", "TopK", "TopK", "stretch"],
    ),
    # The body reads the values of a node of ours, and of a stretch, from outside.
    "read by a subgraph": (
        """g (float[4] a, float[4] b) => (float[2] sum) {
        k = Constant<value_ints = [2]>()  negated = Neg(b)  v, i = TopK(a, k)
        is_true = Constant<value = bool {1}>()
        sum = If (is_true) <
          then_branch = t () => (float[2] y) { u, n = TopK(negated, k)  y = Add(v, u) },
          else_branch = e () => (float[2] y) { y = Neg(v) }> }""",
        ["stretch", "TopK", "stretch"],
    ),
    "bool and bfloat16 between": (
        """g (float[4] a, float[4] b) => (float[2] sum) {
        k = Constant<value_ints = [2]>()  is_less = Less(a, b)
        c = Cast<to = 16>(a)  v, i = TopK(c, k)  w = Cast<to = 1>(v)
        d = Cast<to = 9>(i)  chosen = Where(is_less, a, b)  u, n = TopK(chosen, k)
        f = Cast<to = 1>(d)  s = Add(u, f)  sum = Add(s, w) }""",
        ["stretch", "TopK", "TopK", "stretch"],
    ),
    "strings and sequences between": (
        """g (float[4] a, float[4] b) => (string[2] sum) {
        k = Constant<value_ints = [2]>()  both = SequenceConstruct(a, b)  one = Constant<value = int64 {1}>()
        text = Constant<value_strings = ["p", "q", "r", "s"]>()  v, i = TopK(a, k)
        second = SequenceAt(both, one)  w, j = TopK(second, k)  sum = Gather(text, j) }""",
        ["stretch", "TopK", "TopK", "stretch"],
    ),
    "an input that is an output": (
        "g (float[4] a, float[4] b) => (float[4] b, float[2] v) { k = Constant<value_ints = [2]>()"
        " v, i = TopK(a, k) }",
        ["TopK"],
    ),
    # Constants of every form: for a node of ours, for a stretch, for a body, and as outputs.
    "constants": (
        """g (float[4] a, float[4] b) =>
          (float[2] sum, float one, float[2] some, int64 three, int64[1] k, string word, string[2] words) {
        k = Constant<value_ints = [2]>()  one = Constant<value_float = 1.5>()
        some = Constant<value_floats = [0.5, -2.0]>()  three = Constant<value_int = 3>()
        word = Constant<value_string = "w">()  words = Constant<value_strings = ["p", "q"]>()
        is_true = Constant<value = bool {1}>()
        v, i = TopK(a, k)  x = Mul(v, some)
        sum = If (is_true) <
          then_branch = t () => (float[2] y) { y = Add(x, one) },
          else_branch = e () => (float[2] y) { y = Neg(v) }> }""",
        ["TopK", "stretch"],
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_graph_is_cut_where_it_has_to_be(name: str) -> None:
    text, expected = CUTS[name]
    session = session_of(text)
    assert [step.node.op_type if hasattr(step, "node") else "stretch" for step in session._steps] == expected
    feeds = {"a": np.array([3, 1, 4, 1.5], np.float32), "b": np.array([2, 7, 1, 8], np.float32)}
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    if "bfloat16" in name:  # for which ONNX Runtime has no TopK on a CPU
        assert session.run_named(feeds)["sum"].tolist() == [7.0, 4.5]
        return
    theirs = by_onnxruntime(model, feeds)
    for ours, right in zip(session.run_named(feeds).values(), theirs, strict=True):
        assert np.array_equal(ours, right)


@pytest.mark.parametrize("kind", ["bool", "float16", "double", "int8", "uint64", "string"])
def test_every_type_goes_in_and_comes_out(kind: str) -> None:
    """Through a stretch, a node of ours, and another stretch."""
    session = session_of(
        f"""g ({kind}[4] a) => ({kind}[2] b, {kind}[4] c) {{ one = Constant<value_ints = [1]>()
        three = Constant<value_ints = [3]>()  d = Identity(a)  e = Slice(d, one, three)
        b = Identity(e)  c = Identity(a) }}""",
        ops=() if kind == "string" else ("Slice",),
    )
    a = np.array([True, False, True, True]).astype({"double": "float64", "string": "str"}.get(kind, kind))
    a = a.astype(object) if kind == "string" else a
    result = session.run_named({"a": a})
    assert [result["b"].tolist(), result["c"].tolist()] == [a[1:3].tolist(), a.tolist()]
    assert [result[name].dtype for name in "bc"] == [a.dtype, a.dtype]


def test_ops_choose_what_cudml_runs(rng: np.random.Generator) -> None:
    text = """g (float[T, N] a) => (float[M, N] b) { one = Constant<value_ints = [1]>()
    last = Constant<value_ints = [-1]>()  cut = Slice(a, one, last)  n = Constant<value_ints = [2, 3]>()
    b = ReverseSequence <batch_axis = 1, time_axis = 0> (cut, n) }"""
    a = rng.standard_normal((5, 2), dtype=np.float32)
    expected = None
    for ops, placed in ((OPS, ["Slice", "ReverseSequence"]), (("Slice",), ["Slice"]), ((), [])):
        session = session_of(text, ops=ops)
        assert [row.op for row in session.placed if row.runs_on == "cudml"] == placed
        result = session.run_named({"a": a})["b"]
        expected = result if expected is None else expected
        assert np.array_equal(result, expected)
    assert np.array_equal(expected[:2, 0], a[[2, 1], 0])


def test_topk_breaks_ties_by_the_lower_index_and_ranks_nan_first() -> None:
    session = session_of("g (float[6] a) => (float[4] v, int64[4] i) "
                         "{ k = Constant<value_ints = [4]>() v, i = TopK(a, k) }")  # fmt: skip
    a = np.array([1, np.nan, 7, 7, np.nan, 2], np.float32)
    assert session.run_named({"a": a})["i"].tolist() == [1, 4, 2, 3]


def test_inputs_are_left_as_they_are(rng: np.random.Generator) -> None:
    session = adapter.Session(gru_model(rng), providers=PROVIDERS)
    feeds = {"x": np.ones((5, 3, 2), np.float32)[::2], "h_in": np.ones((1, 3, 4), np.float32)}
    for array in feeds.values():
        array.flags.writeable = False
    first = session.run_named(feeds)
    kept = {name: array.copy() for name, array in first.items()}
    session.run_named({"x": feeds["x"] * 2, "h_in": feeds["h_in"]})
    for name, array in first.items():
        assert np.array_equal(array, kept[name])
    assert (feeds["x"] == 1).all()


def _run(feeds: dict[str, Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        session = adapter.Session(gru_model(np.random.default_rng(0)), providers=PROVIDERS)
        x, state = np.zeros((5, 3, 2), np.float32), np.zeros((1, 3, 4), np.float32)
        session.run_named({"x": x, "h_in": state} | feeds, *arguments, **options)

    return run


@pytest.mark.parametrize("content", [b'{"resources": {}}', b"\xff\xfe\xff"], ids=["text", "bytes"])
@pytest.mark.parametrize("suffix", ["onnx", "json", "textproto", "onnxtxt"])
def test_a_file_of_any_format_that_is_no_model_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^Session: \S*model\.{suffix} is not an ONNX model: "):
        adapter.Session(path)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "is not an ONNX model", lambda: adapter.Session(io.BytesIO(b"\xff\xff\xff"))),
        (FileNotFoundError, "no.onnx", lambda: adapter.Session("no.onnx")),
        (
            TypeError,
            "path_or_bytes is a bytearray, must be a path, a m",
            lambda: adapter.Session(bytearray(9)),
        ),
        (
            TypeError,
            "path_or_bytes is an int, must be a path, a model's bytes, a file or",
            lambda: adapter.Session(3),
        ),
        (TypeError, "path_or_bytes is a NoneType, must be a path, a m", lambda: adapter.Session(None)),
        (TypeError, "ops is 3, must be a coll", lambda: adapter.Session(onnx.ModelProto(), ops=3)),  # type: ignore[arg-type]
        (TypeError, "providers is 3, must", lambda: adapter.Session(onnx.ModelProto(), providers=3)),  # type: ignore[arg-type]
        (
            TypeError,
            "providers has 3, must be of n",
            lambda: adapter.Session(onnx.ModelProto(), providers=[3]),
        ),
        (TypeError, "ops is 'TopK', must be a coll", lambda: adapter.Session(onnx.ModelProto(), ops="TopK")),
        (
            TypeError,
            "providers is 'CPU', must be a sequence",
            lambda: adapter.Session(onnx.ModelProto(), providers="CPU"),
        ),
        (
            TypeError,
            "input_feed is a list, must be a mapping",
            lambda: session_of(CUTS["beside each other"][0]).run_named([1]),  # type: ignore[arg-type]
        ),
        (
            ValueError,
            "ops has LSTM, must be of",
            lambda: session_of(CUTS["beside each other"][0], ops=["LSTM"]),
        ),
        (
            ValueError,
            "providers has NoProvider, must be of those of ONNX Runtime: .*CPUExecutionProvider",
            lambda: adapter.Session(onnx.ModelProto(), providers=["NoProvider"]),
        ),
        (
            ValueError,
            "ONNX Runtime does not take the model: .*NoSuchOp",
            lambda: session_of("g (float[4] a) => (float[4] b) { b = NoSuchOp(a) }"),
        ),
        (
            RuntimeError,
            "while running Reshape node",
            lambda: session_of(
                "g (float[4] a) => (float[3] b) { n = Constant<value_ints = [3]>() b = Reshape(a, n) }"
            ).run_named({"a": np.zeros(4, np.float32)}),
        ),
        (
            ValueError,
            "Session: GRU of y: clip is -0.5, must be a number above 0",
            lambda: adapter.Session(gru_model(np.random.default_rng(0), ", clip = -0.5")),
        ),
        (
            ValueError,
            r"Session: GRU of y: activations\[0\] is 'Foo', must be one of Affine",
            lambda: adapter.Session(gru_model(np.random.default_rng(0), ', activations = ["Foo", "Tanh"]')),
        ),
        (ValueError, "input_feed has z, must be of x, h_in", _run({"z": np.zeros(1)})),
        (TypeError, "input x is of dtype float64, must be of float32", _run({"x": np.zeros((5, 3, 2))})),
        (TypeError, "input x is of dtype >f4, must be of float32", _run({"x": np.zeros((5, 3, 2), ">f4")})),
        (
            ValueError,
            r"input x is of shape \(5, 3\), must be of \('T', 'N', 2\)",
            _run({"x": np.zeros((5, 3), np.float32)}),
        ),
        (TypeError, "input x is of dtype object, must be of float32", _run({"x": np.array([None])})),
        (TypeError, "input x is of dtype <U1, must be of float32", _run({"x": "x"})),
        (TypeError, "output_names is 3, must be a collection of names", _run({}, 3)),
        (TypeError, "carry is an int, must be a mapping of outputs to inputs", _run({}, carry=3)),
        (ValueError, "output_names has z, must be of y, h_out", _run({}, ["z"])),
        (ValueError, "carry has z, must be of x, h_in", _run({}, carry={"h_out": "z"})),
        (
            TypeError,
            "stream is 5, must be None where CPUExecutionProvider is the first",
            lambda: session_of(CUTS["beside each other"][0], stream=5),
        ),
    ],
)
def test_errors_name_what_is_wrong(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


def model_of_node(op: str, inputs: dict[str, np.ndarray], opset: int = 21, **attributes: Any) -> Any:
    """A model of one node named "it", with one output, or two for TopK."""
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    node = helper.make_node(op, [*inputs], outputs, name="it", **attributes)
    kinds = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in inputs.items()
        if name
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "one", kinds, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


SCORES = {"a": np.zeros((3, 4), np.float32)}
LENGTHS = SCORES | {"n": np.array([1, 2, 3, 4])}
WEIGHTS = {name: np.zeros(shape, np.float32) for name, shape in
           (("x", (1, 1, 2)), ("w", (1, 12, 2)), ("r", (1, 12, 4)))}  # fmt: skip


def int64s(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "inputs", "opset", "attributes", "message"),
    [
        ("TopK", SCORES, 9, {}, "it: Required attribute 'k' is missing"),
        ("TopK", SCORES, 9, {"k": 2.7}, "'it : k'. Expected: 'INT', actual: 'FLOAT'"),
        ("TopK", SCORES, 21, {}, r"it: .*has input size 1 not in range \[min=2, max=2\]"),
        ("TopK", SCORES | {"k": int64s(1)}, 21, {"axes": 1}, "it: Unrecognized attribute: axes"),
        ("TopK", SCORES | {"k": int64s(1)}, 21, {"largest": 2}, "it: largest is 2, must be 0 or 1"),
        (
            "TopK",
            SCORES | {"k": np.array([2.7], np.float32)},
            21,
            {},
            r"it: input K is tensor\(float\), must be tensor\(int64\)",
        ),
        ("GRU", WEIGHTS, 21, {"activations": [1]}, "'it : activations'. Expected: 'STRINGS', actual: 'INTS'"),
        ("GRU", WEIGHTS, 21, {"activations": ["Tanh"]}, r"it: activations is \['Tanh'\], must be 2 names"),
        (
            "GRU",
            WEIGHTS,
            21,
            {"activations": ["Tanh", "ScaledTanh"], "activation_alpha": [1.0]},
            "it: activation_beta has no value for ScaledTanh, must have one",
        ),
        (
            "GRU",
            WEIGHTS,
            21,
            {"direction": "up"},
            "it: direction is 'up', must be 'forward', 'reverse' or 'bid",
        ),
        ("GRU", WEIGHTS, 21, {"layout": 2}, "it: layout is 2, must be 0 or 1"),
        ("GRU", WEIGHTS, 21, {"hidden_size": 0}, "it: hidden_size is 0, must be at least 1"),
        (
            "GRU",
            WEIGHTS | {"b": np.zeros((1, 24), np.float32), "n": int64s(1)},
            21,
            {},
            r"it: input sequence_lens is tensor\(int64\), must be tensor\(int32\)",
        ),
        (
            "GRU",
            WEIGHTS | {"r": np.zeros((1, 12, 4), np.float16)},
            21,
            {},
            r"it: input R is tensor\(float16\), must be tensor\(float\), as X",
        ),
        ("ReverseSequence", SCORES, 21, {}, r"it: .*has input size 1 not in range \[min=2, max=2\]"),
        ("ReverseSequence", LENGTHS, 21, {"batch_axis": 2}, "it: batch_axis is 2, must be 0 or 1"),
        ("ReverseSequence", LENGTHS, 21, {"time_axis": -1}, "it: time_axis is -1, must be 0 or 1"),
        (
            "ReverseSequence",
            LENGTHS,
            21,
            {"time_axis": 1},
            "batch_axis and time_axis are 1, must be two axes",
        ),
        ("Slice", SCORES, 9, {"starts": [1]}, "it: Required attribute 'ends' is missing"),
    ],
)
def test_nodes_that_onnx_does_not_allow_are_refused_when_loaded(
    op: str, inputs: dict[str, np.ndarray], opset: int, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^Session: {'it' * message.startswith('it')}") as caught:
        adapter.Session(model_of_node(op, inputs, opset, **attributes), ops=OPS, providers=PROVIDERS)
    caught.match(message)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("TopK", SCORES | {"k": int64s(1, 2)}, {}, r"input K is of shape \(2,\), must have one element"),
        ("TopK", SCORES | {"k": int64s(5)}, {}, "top_k: k is 5, must be"),
        ("TopK", SCORES | {"k": int64s(1)}, {"axis": 2}, "axis 2 is out of bounds"),
        ("GRU", WEIGHTS, {"hidden_size": 3}, "hidden_size is 3, must be the last size of input R"),
        (
            "ReverseSequence",
            SCORES | {"n": int64s(1, 2)},
            {},
            r"sequence_lens is of shape \(2,\), must be of \(4,\), the size of axis 1 of input",
        ),
        ("ReverseSequence", {"a": SCORES["a"][0], "n": int64s(1)}, {}, r"\(4,\), must have at least 2 dim"),
        ("Slice", SCORES | {"s": int64s(0), "e": int64s(1, 2)}, {}, r"ends is \[1, 2\], must be a list as l"),
        (
            "Slice",
            SCORES | {"s": int64s(0, 0, 0), "e": int64s(1, 2, 3)},
            {},
            "starts is .*at most 2 elements",
        ),
        (
            "Slice",
            SCORES | {"s": int64s(0), "e": int64s(1), "x": int64s(2)},
            {},
            r"axes is \[2\], must be from -2 to 1",
        ),
        (
            "Slice",
            SCORES | {"s": int64s(0, 0), "e": int64s(1, 1), "x": int64s(0, -2)},
            {},
            "must name each axis once",
        ),
        (
            "Slice",
            SCORES | {"s": int64s(0), "e": int64s(1), "x": int64s(1), "t": int64s(0)},
            {},
            r"steps is \[0\], must not have 0",
        ),
    ],
)
def test_inputs_that_onnx_does_not_allow_are_refused_when_run(
    op: str, inputs: dict[str, np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    session = adapter.Session(model_of_node(op, inputs, **attributes), ops=OPS, providers=PROVIDERS)
    assert [row.runs_on for row in session.placed] == ["cudml"]
    with pytest.raises(ValueError, match=r"^Session: it: ") as caught:
        session.run_named({name: array for name, array in inputs.items() if name})
    caught.match(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(float[4] a) => (float[2] b) { k = Constant<value_ints = [2]>() b, b = TopK(a, k) }",
            "makes b more",
        ),
        ("(float[4] a, float[4] a) => (float[4] b) { b = Neg(a) }", "makes a more than once"),
        ("(float[4] a) => (float[4] a) { a = Neg(a) }", "makes a more than once, must be in static single"),
        ("(float[4] a) => (float[4] c) { b = Neg(a) }", "output c must be an output of a node"),
    ],
)
def test_a_graph_gives_each_value_one_origin(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^Session: the graph.*{message}"):
        session_of(f"g {text}")
