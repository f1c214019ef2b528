"""`cudml.onnx` beside ONNX Runtime: ONNX's node tests, recorded calls, and cut graphs."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import pytest
from onnx import TensorProto, helper

import cudml.onnx as adapter
from cudml.onnx.nodes import OPS
from tests.operators.test_conformance import RECORDS, VECTORS, call_of, check, group_of
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
        return tuple(self.session.run(dict(zip(self.session.inputs, inputs, strict=True))).values())


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
    node = helper.make_node(call.op, names, outputs, **call.attrs)
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
    check(record, list(session.run(feeds).values()))


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
    """One step at a time, with the state carried, is the whole sequence at once, bit for bit."""
    session = adapter.Session(gru_model(rng), providers=PROVIDERS)
    x = rng.standard_normal((7, 3, 2), dtype=np.float32)
    state = rng.standard_normal((1, 3, 4), dtype=np.float32)
    whole = session.run({"x": x, "h_in": state})
    carry = {"h_out": "h_in"}
    steps = [session.run({"x": x[:1], "h_in": state}, carry=carry)]
    for step in x[1:]:
        assert np.shares_memory(session._held["h_in"], steps[-1]["h_out"])
        steps.append(session.run({"x": step[None]}, ["y", "h_out"], carry=carry))
    assert np.array_equal(np.concatenate([step["y"] for step in steps]), whole["y"])
    assert np.array_equal(steps[-1]["h_out"], whole["h_out"])
    session.run({"x": x, "h_in": state})
    with pytest.raises(ValueError, match="feeds lacks h_in"):
        session.run({"x": x})


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
    for ours, theirs in zip(session.run(feeds).values(), by_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


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
        for ours, theirs in zip(session.run(feeds).values(), by_onnxruntime(model, feeds), strict=True):
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
    # ONNX Runtime takes such a GRU, but computes none on a CPU.
    session = session_of(TYPES.replace("LAYER", "z = Neg(w)"))
    assert session.placed == placed[:3]
    a, x = np.array([["p"], ["q"], ["r"], ["s"]], object), np.arange(4, dtype=np.float32)[:, None]
    results = session.run({"a": a, "x": x})
    assert [results["c"].ravel().tolist(), results["y"].ravel().tolist()] == [[*"pqrs"], [2, 1, 0, 3]]


CUTS = {
    # Two that need nothing of each other: one stretch before, one after.
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
        assert session.run(feeds)["sum"].tolist() == [7.0, 4.5]
        return
    theirs = by_onnxruntime(model, feeds)
    for ours, right in zip(session.run(feeds).values(), theirs, strict=True):
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
    result = session.run({"a": a})
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
        result = session.run({"a": a})["b"]
        expected = result if expected is None else expected
        assert np.array_equal(result, expected)
    assert np.array_equal(expected[:2, 0], a[[2, 1], 0])


def test_topk_breaks_ties_by_the_lower_index_and_ranks_nan_first() -> None:
    session = session_of("g (float[6] a) => (float[4] v, int64[4] i) "
                         "{ k = Constant<value_ints = [4]>() v, i = TopK(a, k) }")  # fmt: skip
    a = np.array([1, np.nan, 7, 7, np.nan, 2], np.float32)
    assert session.run({"a": a})["i"].tolist() == [1, 4, 2, 3]


def test_inputs_are_left_as_they_are(rng: np.random.Generator) -> None:
    session = adapter.Session(gru_model(rng), providers=PROVIDERS)
    feeds = {"x": np.ones((5, 3, 2), np.float32)[::2], "h_in": np.ones((1, 3, 4), np.float32)}
    for array in feeds.values():
        array.flags.writeable = False
    first = session.run(feeds)
    kept = {name: array.copy() for name, array in first.items()}
    session.run({"x": feeds["x"] * 2, "h_in": feeds["h_in"]})
    for name, array in first.items():
        assert np.array_equal(array, kept[name])
    assert (feeds["x"] == 1).all()


def _run(feeds: dict[str, Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        session = adapter.Session(gru_model(np.random.default_rng(0)), providers=PROVIDERS)
        x, state = np.zeros((5, 3, 2), np.float32), np.zeros((1, 3, 4), np.float32)
        session.run({"x": x, "h_in": state} | feeds, *arguments, **options)

    return run


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "is not an ONNX model", lambda: adapter.Session(io.BytesIO(b"\xff\xff\xff"))),
        (FileNotFoundError, "no.onnx", lambda: adapter.Session("no.onnx")),
        (TypeError, "path is a bytes, must be a path, a file", lambda: adapter.Session(b"\x08\x0a")),
        (TypeError, "ops is 'TopK', must be a coll", lambda: adapter.Session(onnx.ModelProto(), ops="TopK")),
        (
            TypeError,
            "providers is 'CPU', must be a sequence",
            lambda: adapter.Session(onnx.ModelProto(), providers="CPU"),
        ),
        (
            TypeError,
            "feeds is a list, must be a mapping",
            lambda: session_of(CUTS["beside each other"][0]).run([1]),  # type: ignore[arg-type]
        ),
        (
            ValueError,
            "ops has LSTM, must be of",
            lambda: session_of(CUTS["beside each other"][0], ops=["LSTM"]),
        ),
        (
            ValueError,
            "providers has NoProvider, ONNX Runtime has",
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
            ).run({"a": np.zeros(4, np.float32)}),
        ),
        (
            ValueError,
            "Session: GRU of y: clip is -0.5, must be a number above 0",
            lambda: adapter.Session(gru_model(np.random.default_rng(0), ", clip = -0.5")),
        ),
        (
            ValueError,
            "Session: GRU of y: unknown activation 'Foo', must be one of Affine",
            lambda: adapter.Session(gru_model(np.random.default_rng(0), ', activations = ["Foo", "Tanh"]')),
        ),
        (ValueError, "feeds has z, must be of x, h_in", _run({"z": np.zeros(1)})),
        (TypeError, "input x is of dtype float64, must be of float32", _run({"x": np.zeros((5, 3, 2))})),
        (TypeError, "input x is of dtype >f4, must be of float32", _run({"x": np.zeros((5, 3, 2), ">f4")})),
        (
            ValueError,
            r"input x is of shape \(5, 3\), must be of \('T', 'N', 2\)",
            _run({"x": np.zeros((5, 3), np.float32)}),
        ),
        (ValueError, "outputs has z, must be of y, h_out", _run({}, ["z"])),
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
