"""`cudml.onnx.Session` is called as `onnxruntime.InferenceSession` is: the calls of its manual, and refusals.

The calls are those of "Python API" and of the gallery of examples at onnxruntime.ai, written for the models
of that package and for one with nodes that cudml runs. Each is made with both classes, and gives the same.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime.datasets import get_example

import cudml.onnx
from cudml.onnx import Session
from cudml.onnx.values import shared_value

TEXT = """<ir_version: 10, opset_import: ["" : 21], producer_name: "tests", producer_version: "1",
  domain: "of.us",
  model_version: 3, doc_string: "Chooses.", metadata_props: ["key" : "value"]>
choose (float[N, 4] X) => (float[N, 2] Y, int64[N, 2] I) {
  k = Constant<value_ints = [2]>()  doubled = Add(X, X)  Y, I = TopK(doubled, k) }"""
VALUE = onnxruntime.OrtValue.ortvalue_from_numpy
X = np.array([[1, 5, 2, 5], [0, -1, 3, 2], [7, 7, 7, 7]], np.float32)


def model(text: str = TEXT) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(model(), tmp_path / "model.onnx")
    return str(tmp_path / "model.onnx")


def described(arguments: Any) -> list[tuple[str, str, list[Any]]]:
    return [(argument.name, argument.type, argument.shape) for argument in arguments]


def load_and_predict(make: Any, path: str) -> Any:
    session = make(get_example("sigmoid.onnx"), providers=onnxruntime.get_available_providers())
    x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(3, 4, 5)
    (result,) = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: x})
    return described(session.get_inputs()), described(session.get_outputs()), result


def optional_output_names(make: Any, path: str) -> Any:
    session = make(path)
    every = session.run(None, {"X": X}), session.run([], {"X": X}), session.run(["I", "Y", "I"], {"X": X})
    return every, described(session.get_inputs()), described(session.get_outputs())


def a_sequence_of_maps(make: Any, path: str) -> Any:
    session = make(get_example("logreg_iris.onnx"), providers=["CPUExecutionProvider"])
    labels, probabilities = session.run(None, {"float_input": np.arange(6, dtype=np.float32).reshape(3, 2)})
    return labels, probabilities, described(session.get_inputs()), described(session.get_outputs())


def common_errors(make: Any, path: str) -> Any:
    """Which calls fail, by the errors that the gallery's example of them catches."""
    session = make(get_example("logreg_iris.onnx"), providers=onnxruntime.get_available_providers())
    right = np.ones((3, 2), np.float32)
    fed: list[tuple[Any, Any]] = [
        (None, right),
        (None, right.astype(np.float64)),
        (["misspelled"], right),
        (None, np.ones(4, np.float32)),
        (None, np.ones((1, 1, 2), np.float32)),
        (None, np.ones((3, 3), np.float32)),
    ]
    found = []
    for names, x in fed:
        try:
            session.run(names, {"float_input": x})
            found.append("ran")
        except (RuntimeError, InvalidArgument):
            found.append("failed")
    try:
        session.run(None, {"misspelled": right})
    except ValueError:
        found.append("ValueError")
    return found


def model_bytes_and_options(make: Any, path: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    session = make(Path(path).read_bytes(), options, ["CPUExecutionProvider"], [{}])
    same = session.get_session_options().graph_optimization_level
    return same, session.get_providers(), session.run(None, {"X": X}, onnxruntime.RunOptions())


def providers_with_options(make: Any, path: str) -> Any:
    session = make(Path(path), providers=[("CPUExecutionProvider", {})])
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        fallen = make(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    return session.get_providers(), session.get_provider_options(), fallen.get_providers()


def metadata(make: Any, path: str) -> Any:
    found = make(path).get_modelmeta()
    names = (
        "custom_metadata_map",
        "description",
        "domain",
        "graph_description",
        "graph_name",
        "producer_name",
    )
    return [getattr(found, name) for name in (*names, "version")]


def an_ort_value(make: Any, path: str) -> Any:
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    session = make(path)
    outputs = session.run_with_ort_values(["I", "Y"], {"X": value})
    assert all(isinstance(output, onnxruntime.OrtValue) for output in outputs)
    return session.run(["Y"], {"X": value}), [output.numpy() for output in outputs]


def bind_cpu_input(make: Any, path: str) -> Any:
    session = make(path)
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def bind_memory(make: Any, path: str) -> Any:
    """By address, in and out; run again after the input has changed, and after other memory is bound."""
    x = onnxruntime.OrtValue.ortvalue_from_numpy(X.copy())
    y = onnxruntime.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    session = make(path)
    binding = session.io_binding()
    place = {"device_type": x.device_name(), "device_id": 0, "element_type": np.float32}
    binding.bind_input(name="X", shape=x.shape(), buffer_ptr=x.data_ptr(), **place)
    binding.bind_output(name="Y", shape=y.shape(), buffer_ptr=y.data_ptr(), **place)
    session.run_with_iobinding(binding)
    first = y.numpy().copy()
    x.update_inplace(-X)
    session.run_with_iobinding(binding)
    second = y.numpy().copy()
    binding.clear_binding_outputs()
    binding.bind_output("I", "cpu")
    session.run_with_iobinding(binding)
    return first, second, [value.numpy() for value in binding.get_outputs()]


def bind_ort_values(make: Any, path: str) -> Any:
    x = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    y = onnxruntime.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32, "cpu", 0)
    session = make(path)
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", x)
    binding.bind_ortvalue_output("Y", y)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    (result,) = binding.get_outputs()
    assert result.data_ptr() == y.data_ptr()
    return y.numpy()


def sequences_of_tensors(make: Any, path: str) -> Any:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (seq(float[4]) parts, int64 at) => (float[2] best, seq(float[4]) again) {
      k = Constant<value_ints = [2]>()  one = SequenceAt(parts, at)
      best, i = TopK(one, k)  again = SequenceInsert(parts, one) }"""
    session = make(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    parts = [X[0], X[1]]
    return session.run(None, {"parts": parts, "at": np.array(1)}), described(session.get_inputs())


def overridable_initializers(make: Any, path: str) -> Any:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4] x, float[4] y, int64[1] k) => (float[M] best, int64[M] i)
    <float[4] y = {0, 9, 0, 0}, int64[1] k = {1}>
    { sum = Add(x, y)  best, i = TopK(sum, k) }"""
    session = make(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    two = np.array([2])
    found = [session.run(None, {"x": X[0]} | others) for others in ({}, {"k": two}, {"y": X[0], "k": two})]
    names = [x.name for x in session.get_overridable_initializers()]
    return found, sorted(names), described(session.get_inputs())


def numbers_and_lists(make: Any, path: str) -> Any:
    """Arrays of the declared type are made of lists; a declared scalar may have any shape."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[N, 2] x, int64 n, string[M] t, bool b)
      => (float[N, 2] y, int64 m, string[M] u, bool c) {
      y = Add(x, x)  m = Identity(n)  u = Identity(t)  c = Not(b) }"""
    session = make(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    fed: list[dict[str, Any]] = [
        {"x": [[1.0, 2]], "n": np.array(3), "t": np.array(["a"]), "b": np.array(True)},
        {"x": [[1, 2], [3, 4]], "n": [3], "t": ["a", "b"], "b": [True]},
        {"x": np.asfortranarray(X[:, :2]), "n": np.array(3), "t": np.array(["a"], object), "b": [False]},
        {"x": np.ones((0, 2), np.float32), "n": np.array([3, 4]), "t": np.array([]).astype(str), "b": [True]},
    ]
    refused = []
    for wrong in ([["a", "b"]], [[1, 2], [3]]):
        with pytest.raises((RuntimeError, InvalidArgument)):
            session.run(None, fed[0] | {"x": wrong})
        refused.append(wrong)
    return [session.run(None, feeds) for feeds in fed], refused


CALLS = [
    numbers_and_lists,
    load_and_predict,
    optional_output_names,
    a_sequence_of_maps,
    common_errors,
    model_bytes_and_options,
    providers_with_options,
    metadata,
    an_ort_value,
    bind_cpu_input,
    bind_memory,
    bind_ort_values,
    sequences_of_tensors,
    overridable_initializers,
]


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_of_onnxruntime_s_documentation_is_the_same(call: Callable[..., Any], path: str) -> None:
    assert_same(call(Session, path), call(onnxruntime.InferenceSession, path))


def test_a_number_is_an_array() -> None:
    """ONNX Runtime knows no type for a number."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (int64 n, bool b) => (int64 m, bool c) { m = Neg(n)  c = Not(b) }"""
    for n, b in ((3, True), (np.int64(3), np.True_)):
        results = Session(model(text)).run(None, {"n": n, "b": b})
        assert [result.tolist() for result in results] == [-3, False]


def test_shapes_that_a_model_leaves_out_are_those_that_onnxruntime_finds() -> None:
    text = TEXT.replace("float[N, 2] Y", "float[N, 2] Y, Z").replace("Y, I =", "Z = Neg(X)  Y, I =")
    found = [described(make(model(text).SerializeToString()).get_outputs())[1]
             for make in (Session, onnxruntime.InferenceSession)]  # fmt: skip
    assert found[0] == found[1] == ("Z", "tensor(float)", ["N", 4])


def test_weights_of_a_models_bytes_may_be_in_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for ONNX Runtime: in the folder of the option, or in the current one."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (int64[3] n) => (float[1000, 3] y) {
      y = ReverseSequence(w, n) }"""
    made = model(text)
    weights = np.arange(3000, dtype=np.float32).reshape(1000, 3)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    data, options = (tmp_path / "m.onnx").read_bytes(), onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    feeds = {"n": np.full(3, 1000)}
    for session in (Session(data, options), onnxruntime.InferenceSession(data, options)):
        assert np.array_equal(session.run(None, feeds)[0], weights[::-1])
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(Session(data).run(None, feeds)[0], weights[::-1])


NESTED = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[4] a, bool c) => (float[2] first, float[2] second, float[2] third) {
  first = local.pick(a)  b = Neg(a)  second = local.pick(b)
  [choice] third = If (c) <
    then_branch = t () => (float[2] y) { k = Constant<value_ints = [2]>() [inner] y, n = TopK(b, k) },
    else_branch = e () => (float[2] z) { [twice] z = If (c) <
      then_branch = tt () => (float[2] u) { u = local.pick(a) },
      else_branch = ee () => (float[2] v) { v = local.pick(b) }> }> }
<domain: "local", opset_import: ["" : 21]>
pick (x) => (y) { k = Constant<value_ints = [2]>()  [mine] y, i = TopK(x, k) }"""


def test_functions_are_inlined_and_nodes_inside_others_are_placed() -> None:
    made = model(NESTED)
    session = Session(made)
    rows = [(row.op, row.runs_on, row.reason) for row in session.placed]
    assert rows == [
        ("TopK", "cudml", ""),
        ("TopK", "cudml", ""),
        *[("TopK", "ONNX Runtime", "in a body of If choice")] * 3,
    ]
    assert session.placed[2].node == "inner"
    assert len(made.functions) == 1  # the given model is unchanged
    a = np.array([3, 1, 4, 1.5], np.float32)
    for chosen in (True, False):
        feeds = {"a": a, "c": np.array(chosen)}
        theirs = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
        assert_same(session.run(None, feeds), theirs)


def test_a_function_of_another_version_stays_with_its_nodes() -> None:
    text = NESTED.replace(
        '<domain: "local", opset_import: ["" : 21]>', '<domain: "local", opset_import: ["" : 17]>'
    )
    session = Session(model(text))
    assert {row.runs_on for row in session.placed} == {"ONNX Runtime"}
    reasons = [row.reason for row in session.placed]
    function = "in the function pick, which is of another version of ONNX's operators"
    # In their order: two calls, then a node of a body, and two calls in its own body.
    assert reasons == [function, function, "in a body of If choice", function, function]
    a = np.array([3, 1, 4, 1.5], np.float32)
    feeds = {"a": a, "c": np.array(True)}
    assert_same(
        session.run(None, feeds),
        onnxruntime.InferenceSession(model(text).SerializeToString()).run(None, feeds),
    )


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (
            """g (float[3, 4] a, int64 n) => (float[3, 4] y) { t = Constant<value = bool {1}>()
            y = Loop (n, t, a) < body = b (int64 i, bool go, float[3, 4] x) => (bool again, float[3, 4] z) {
              again = Identity(go)  lengths = Constant<value_ints = [2, 1, 3, 2]>()
              z = ReverseSequence(x, lengths) }> }""",
            "Loop",
        ),
        (
            """g (float[3, 4] a, int64 n) => (float[3, 2] y) { y = Scan <num_scan_inputs = 1,
            body = b (float[4] x) => (float[2] z) {
              k = Constant<value_ints = [2]>() z, i = TopK(x, k) }> (a) }""",
            "Scan",
        ),
    ],
)  # fmt: skip
def test_nodes_inside_loops_are_placed(text: str, op: str) -> None:
    made = model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    session = Session(made)
    assert [(row.runs_on, row.reason) for row in session.placed] == [("ONNX Runtime", f"in a body of {op} y")]
    feeds = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "n": np.array(3)}
    assert_same(
        session.run(None, feeds), onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    )


def test_a_gru_of_float64_fails_as_by_onnxruntime_on_a_cpu() -> None:
    """`docs/adapters.md` says so."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (double[2, 1, 2] x, double[1, 6, 2] w) => (double[2, 1, 1, 2] y) {
      y = GRU <hidden_size = 2> (x, w, w) }"""
    session = Session(model(text), providers=["CPUExecutionProvider"])
    assert [tuple(row)[1:] for row in session.placed] == [("GRU", "ONNX Runtime", "double is not supported")]
    with pytest.raises(RuntimeError, match="GRU operator does not support double yet"):
        session.run(None, {"x": np.ones((2, 1, 2)), "w": np.ones((1, 6, 2))})


def test_results_belong_to_the_caller() -> None:
    """Writing to a result changes neither a later result nor an input."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2] a) => (float[2] a, float[2] c, float[2] b)
        { c = Constant<value_floats = [1.0, 2.0]>()  b = Add(a, c) }"""
    session = Session(model(text))
    a = np.zeros(2, np.float32)
    for call in (lambda: session.run(None, {"a": a}), lambda: [*session.run_named({"a": a}).values()]):
        for _ in range(2):
            results = call()
            assert [result.tolist() for result in results] == [[0, 0], [1, 2], [1, 2]]
            for result in results:
                result[:] = 7
    assert a.tolist() == [0, 0]


def test_threads_share_a_session(path: str) -> None:
    session, wrong = Session(path), []

    def call(number: int) -> None:
        x = np.random.default_rng(number).standard_normal((50, 4), dtype=np.float32)
        expected = np.sort(x + x, axis=1)[:, :-3:-1]
        wrong.extend(n for n in range(50) if not np.array_equal(session.run(["Y"], {"X": x})[0], expected))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def bound(**changes: Any) -> Callable[[], Any]:
    """Binds an input and an output of the model, one of them wrongly, and runs it."""

    def call() -> None:
        session = Session(model())
        binding = session.io_binding()
        x, y = X.copy(), np.empty((3, 2), np.float32)
        given = {
            "name": "X",
            "device_type": "cpu",
            "device_id": 0,
            "element_type": np.float32,
            "shape": x.shape,
        }
        binding.bind_input(**{**given, "buffer_ptr": x.ctypes.data, **changes.get("input", {})})
        given = {"name": "Y", "element_type": np.float32, "shape": y.shape, "buffer_ptr": y.ctypes.data}
        binding.bind_output(**given | changes.get("output", {}))
        session.run_with_iobinding(binding)

    return call


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "path_or_bytes is an int, must be a path, a model's bytes, ", lambda: Session(7)),
        (ValueError, "path_or_bytes, of 2 bytes, is not an ONNX model", lambda: Session(b"\xff\xff")),
        (ValueError, "m.ort is in ONNX Runtime's own format, must be the ONNX", lambda: Session("m.ort")),
        (TypeError, "sess_options is a list, must be an onnxruntime.Sess", lambda: Session(model(), ["CPU"])),
        (
            ValueError,
            "provider_options is None|provider_options is .{}, {}., must have one dict for each of providers",
            lambda: Session(model(), None, ["CPUExecutionProvider"], [{}, {}]),
        ),
        (
            TypeError,
            "provider_options is given, must be None where providers is None",
            lambda: Session(model(), provider_options=[{}]),
        ),
        (
            TypeError,
            "output_names is a dict, must be a collection of names or None: run_named takes the inputs first",
            lambda: Session(model()).run({"X": X}, ["Y"]),  # type: ignore[arg-type]
        ),
        (TypeError, "output_names is 'Y', must be a coll", lambda: Session(model()).run("Y", {"X": X})),
        (ValueError, "output_names has y, must be of Y, I", lambda: Session(model()).run(["y"], {"X": X})),
        (TypeError, "input_feed is a list, must be a mapping", lambda: Session(model()).run(None, [X])),  # type: ignore[arg-type]
        (ValueError, "input_feed has x, must be of X", lambda: Session(model()).run(None, {"x": X})),
        (ValueError, r"lacks X, float32 of shape \('N', 4\)", lambda: Session(model()).run(None, {})),
        (
            TypeError,
            r"input X is tensor\(double\), must be tensor\(float\)",
            lambda: Session(model()).run(None, {"X": VALUE(X.astype("f8"))}),
        ),
        (
            ValueError,
            r"input X is of shape \(4, 3\), must be of \('N', 4\)",
            lambda: Session(model()).run(None, {"X": VALUE(X.T.copy())}),
        ),
        (
            TypeError,
            "input n is of dtype float64, must be of int64",
            lambda: Session(model(TEXT.replace("(", "(int64 n, ", 1))).run(None, {"X": X, "n": 1.5}),
        ),
        (
            ValueError,
            r"input X must be an array of tensor\(float\): setting",
            lambda: Session(model()).run(None, {"X": [[1], [2, 3]]}),
        ),
        (ValueError, "name is 'Z', must be an input: one of X", bound(input={"name": "Z"})),
        (ValueError, "name is 'Z', must be an output: one of Y, I", bound(output={"name": "Z"})),
        (
            TypeError,
            "device_type of X is cuda with device_id 1, must be cpu",
            bound(input={"device_type": "cuda", "device_id": 1}),
        ),
        (TypeError, "input X is of dtype float64, must be of", bound(input={"element_type": np.float64})),
        (TypeError, "input X is of dtype int32, must be of float32", bound(input={"element_type": 6})),
        (ValueError, r"input X is of shape \(2, 2\), must", bound(input={"shape": (2, 2)})),
        (ValueError, "buffer_ptr of output Y is given, must be with", bound(output={"shape": None})),
        (
            ValueError,
            r"output Y is float32 of shape \(3, 2\), must be bound to such memory, is bound to float32 of",
            bound(output={"shape": (2, 2)}),
        ),
        (
            ValueError,
            "iobinding is that of another session, must be made by io_binding",
            lambda: Session(model()).run_with_iobinding(Session(model()).io_binding()),
        ),
        (
            TypeError,
            "ortvalue is a numpy.ndarray, must be an onnxruntime.OrtValue",
            lambda: Session(model()).io_binding().bind_ortvalue_input("X", X),
        ),
        (
            AttributeError,
            "Session has no enable_fallback, as InferenceSession has: a Session never runs again with other",
            lambda: Session(model()).enable_fallback(),
        ),
    ],
)  # fmt: skip
def test_refusals_name_the_argument_of_onnxruntime(
    error: type[Exception], message: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_provider_of_cuda_needs_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(
        cudml.DeviceError, match=r"first of providers, which takes CuPy: pip install 'cudml\[cuda13\]'"
    ):
        Session(model())


def test_a_dlpack_capsule_is_shared() -> None:
    """As an array of a GPU goes to ONNX Runtime."""
    for array in (np.arange(3.0), np.array([True, False])):
        value = shared_value(array.__dlpack__(), is_bool=array.dtype == bool)
        assert value.data_ptr() == array.ctypes.data
        assert np.array_equal(value.numpy(), array)
        assert value.data_type() == ("tensor(bool)" if array.dtype == bool else "tensor(double)")
