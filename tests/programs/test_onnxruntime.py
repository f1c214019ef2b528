"""Programs of ONNX Runtime, with `import onnxruntime as ort` and with `import cudml.onnx as ort`.

`tests/test_onnx_calls.py` has the calls of its manual.
"""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install 'cudml[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is not installed: pip install 'cudml[onnx]'")

from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors  # noqa: E402

import cudml.onnx  # noqa: E402
from cudml.enums import RecurrentNetworkDirection  # noqa: E402
from cudml.operators.gru.activations import Activation  # noqa: E402
from proof.oracle import gru as oracle  # noqa: E402
from tests.programs import assert_agree  # noqa: E402

FEATURES, CLASSES, BATCH, INPUTS, HIDDEN, STEPS = 16, 10, 2, 6, 8, 5


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def model(text: str, **weights: np.ndarray) -> bytes:
    """A model's bytes, as a file has them."""
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    data: bytes = made.SerializeToString()
    return data


def layer(num_directions: int) -> dict[str, np.ndarray]:
    return {
        "W": numbers(1, num_directions, 3 * HIDDEN, INPUTS),
        "R": numbers(2, num_directions, 3 * HIDDEN, HIDDEN),
        "B": numbers(3, num_directions, 6 * HIDDEN),
    }


CLASSIFIER = model(
    f"""classify (float[batch, {FEATURES}] features) => (float[batch, 3] scores, int64[batch, 3] classes) {{
      logits = MatMul(features, W)  p = Softmax<axis = -1>(logits)
      k = Constant<value_ints = [3]>()  scores, classes = TopK(p, k) }}""",
    W=numbers(4, FEATURES, CLASSES),
)
STREAM = model(
    f"""step (float[1, batch, {INPUTS}] frame, float[1, batch, {HIDDEN}] state)
      => (float[1, 1, batch, {HIDDEN}] output, float[1, batch, {HIDDEN}] state_out) {{
      output, state_out = GRU<hidden_size = {HIDDEN}, linear_before_reset = 1>(frame, W, R, B, , state) }}""",
    **layer(1),
)
TAGGER = model(
    f"""tag (float[time, batch, {INPUTS}] x, int32[batch] lengths)
      => (int64[time, batch, 1] tags, float[2, batch, {HIDDEN}] last) {{
      y, last = GRU<hidden_size = {HIDDEN}, direction = "bidirectional">(x, W, R, B, lengths)
      by_batch = Transpose<perm = [0, 2, 1, 3]>(y)
      shape = Constant<value_ints = [0, 0, -1]>()  flat = Reshape(by_batch, shape)
      k = Constant<value_ints = [1]>()  v, tags = TopK(flat, k) }}""",
    **layer(2),
)
BEAMS = model(
    """beams (float[batch, words] scores, int64[1] k) => (float[batch, beams] best, int64[batch, beams] at)
    { best, at = TopK(scores, k) }"""
)
X, FRAMES = numbers(5, 4, FEATURES), numbers(6, STEPS, 1, BATCH, INPUTS)
LENGTHS = np.array([STEPS, 2], np.int32)


def exact_layer(x: np.ndarray, num_directions: int, lengths: np.ndarray | None) -> Any:
    weights = oracle.Weights(
        x, *(a.astype(np.float64) for a in layer(num_directions).values()), None, lengths
    )
    direction = list(RecurrentNetworkDirection)[0 if num_directions == 1 else 2]
    activations = [Activation.sigmoid(), Activation.tanh()] * num_directions
    return oracle.gru(weights, activations, direction, num_directions == 1)


def exact_stream() -> Any:
    """The outputs of all frames and the last state."""
    return exact_layer(FRAMES[:, 0], 1, None)


def exact_tags() -> Any:
    return None, exact_layer(FRAMES[:, 0], 2, LENGTHS)[1]


def a_file_s_name(ort: Any, folder: Path) -> Any:
    (folder / "model.onnx").write_bytes(CLASSIFIER)
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    name, label = session.get_inputs()[0].name, session.get_outputs()[1].name
    return session.run([label], {name: X}), session.get_inputs()[0].shape, session.get_inputs()[0].type


def a_path_with_options(ort: Any, folder: Path) -> Any:
    (folder / "model.onnx").write_bytes(CLASSIFIER)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    gpu = {"device_id": 0, "arena_extend_strategy": "kNextPowerOfTwo"}
    session = ort.InferenceSession(
        folder / "model.onnx",
        sess_options=options,
        providers=[("CUDAExecutionProvider", gpu), "CPUExecutionProvider"],
    )
    return session.run(None, {"features": X}), session.get_providers()


def the_best_device(ort: Any, folder: Path) -> Any:
    has_gpu = ort.get_device() == "GPU" and "CUDAExecutionProvider" in ort.get_available_providers()
    provider = "CUDAExecutionProvider" if has_gpu else "CPUExecutionProvider"
    return ort.InferenceSession(CLASSIFIER, providers=[provider]).run(None, {"features": X})


def words_of_the_constructor(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(
        CLASSIFIER, providers=[], disabled_optimizers=["ConstantFolding"], enable_fallback=0
    )
    found = session.run(output_names=["scores"], input_feed={"features": X})
    return found, "CPUExecutionProvider" in session.get_providers()


def a_state_that_is_carried(ort: Any, folder: Path) -> Any:
    session, outputs = ort.InferenceSession(STREAM), []
    state = np.zeros((1, BATCH, HIDDEN), np.float32)
    for frame in FRAMES:
        output, state = session.run(["output", "state_out"], {"frame": frame, "state": state})
        outputs.append(output)
    return np.concatenate(outputs), state


def a_state_that_is_an_ort_value(ort: Any, folder: Path) -> Any:
    session, outputs = ort.InferenceSession(STREAM), []
    state = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, BATCH, HIDDEN), np.float32))
    for frame in FRAMES:
        feeds = {"frame": ort.OrtValue.ortvalue_from_numpy(frame), "state": state}
        output, state = session.run_with_ort_values(["output", "state_out"], feeds)
        outputs.append(output.numpy())
    return np.concatenate(outputs), state.numpy()


def a_state_that_is_bound(ort: Any, folder: Path) -> Any:
    session, outputs = ort.InferenceSession(STREAM), []
    binding = session.io_binding()
    state = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, BATCH, HIDDEN), np.float32), "cpu", 0)
    for frame in FRAMES:
        binding.bind_cpu_input("frame", frame)
        binding.bind_ortvalue_input("state", state)
        binding.bind_output("output")
        binding.bind_output("state_out", "cpu")
        session.run_with_iobinding(binding)
        output, state = binding.get_outputs()
        outputs.append(output.numpy())
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
    return np.concatenate(outputs), state.numpy()


def a_state_in_two_places_by_turns(ort: Any, folder: Path) -> Any:
    """Results that were copied are not written again."""
    session, copied = ort.InferenceSession(STREAM), []
    states = [
        ort.OrtValue.ortvalue_from_shape_and_type([1, BATCH, HIDDEN], np.float32, "cpu", 0) for _ in range(2)
    ]
    states[0].update_inplace(np.zeros((1, BATCH, HIDDEN), np.float32))
    binding = ort.IOBinding(session)
    for number, frame in enumerate(FRAMES):
        binding.bind_cpu_input("frame", frame)
        binding.bind_ortvalue_input("state", states[number % 2])
        binding.bind_ortvalue_output("state_out", states[1 - number % 2])
        binding.bind_output("output")
        session.run_with_iobinding(binding)
        copied.append(binding.copy_outputs_to_cpu())
    return np.stack([state[None] for state, _ in copied])[:, 0], copied[-1][0]


def batches_of_other_sizes(ort: Any, folder: Path) -> Any:
    session, data = ort.InferenceSession(CLASSIFIER), numbers(7, 10, FEATURES)
    found = [session.run(["classes"], {"features": data[at : at + 4]})[0] for at in range(0, 10, 4)]
    return np.concatenate(found)


def threads_that_share_a_session(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(TAGGER)

    def tags(seed: int) -> Any:
        lengths = np.array([7, 2, 4], np.int32)
        return session.run(["tags"], {"x": numbers(seed, 7, 3, INPUTS), "lengths": lengths})

    with ThreadPoolExecutor(3) as pool:
        return [*pool.map(tags, range(6))]


def calls_that_do_not_wait(ort: Any, folder: Path) -> Any:
    class Waiting:
        def __init__(self) -> None:
            self.event, self.results, self.error = threading.Event(), None, ""

    def tell(results: Any, waiting: Waiting, error: str) -> None:
        waiting.results, waiting.error = results, error
        waiting.event.set()

    session, right, wrong = ort.InferenceSession(CLASSIFIER), Waiting(), Waiting()
    session.run_async(None, {"features": X}, tell, right)
    session.run_async(["classes"], {"features": X[:, 1:]}, tell, wrong)
    with pytest.raises(ValueError, match="features"):
        session.run_async(["classes"], {}, tell, wrong)
    assert right.event.wait(60)
    assert wrong.event.wait(60)
    return right.results, right.error, wrong.error != "", wrong.results


def a_profile(ort: Any, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(TAGGER, options)
    session.run(None, {"x": FRAMES[:, 0], "lengths": LENGTHS})
    name = session.end_profiling()
    events = json.loads(Path(name).read_text())
    ops = {event.get("args", {}).get("op_name") for event in events}
    fields = [{"cat", "pid", "tid", "dur", "ts", "ph", "name"} <= event.keys() for event in events]
    assert sorted(event["ts"] for event in events)[-1] < 60e6
    return type(name), [*folder.iterdir()] == [Path(name)], ops >= {"GRU", "TopK"}, all(fields)


def providers_that_change(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(CLASSIFIER)
    session.disable_fallback()
    session.set_providers(["CPUExecutionProvider"])
    first = session.run(None, {"features": X})
    session.set_providers(["CPUExecutionProvider"], [{}])
    return first, session.get_providers(), session.get_provider_options(), session.run(None, {"features": X})


def sizes_that_the_options_fix(ort: Any, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 4)
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    session = ort.InferenceSession(CLASSIFIER, options)
    shapes = [value.shape for value in (*session.get_inputs(), *session.get_outputs())]
    with pytest.raises(ort_errors.InvalidArgument):
        session.run(None, {"features": X[:3]})
    return session.run(None, {"features": X}), shapes, [path.name for path in folder.iterdir()]


def options_of_a_run(ort: Any, folder: Path) -> Any:
    session, options = ort.InferenceSession(CLASSIFIER), ort.RunOptions()
    options.log_severity_level, options.logid, options.only_execute_path_to_fetches = 3, "mine", True
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return session.run(["classes"], {"features": X}, options)


def labels_in_the_metadata(ort: Any, folder: Path) -> Any:
    made = onnx.load_model_from_string(CLASSIFIER)
    onnx.helper.set_model_props(made, {"labels": json.dumps([*"abcdefghij"])})
    session = ort.InferenceSession(made.SerializeToString())
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    (classes,) = session.run(["classes"], {"features": X[:1]})
    return [labels[number] for number in classes[0]]


def inputs_made_of_what_the_model_says(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(TAGGER)
    types = {"tensor(float)": np.float32, "tensor(int32)": np.int32}
    feeds = {
        one.name: np.ones([size if isinstance(size, int) else 3 for size in one.shape], types[one.type])
        for one in session.get_inputs()
    }
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))["tags"], str(session.get_inputs()[0])


def an_input_that_may_be_absent(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(
        model(
            """g (optional(float[4]) x, float[4] y) => (float[2] best, int64[2] at) {
            has = OptionalHasElement(x)  z = If (has) <
              then_branch = t () => (float[4] a) { a = OptionalGetElement(x) },
              else_branch = e () => (float[4] b) { b = Identity(y) }>
            k = Constant<value_ints = [2]>()  best, at = TopK(z, k) }"""
        )
    )
    y = X[0, :4]
    feeds: list[dict[str, Any]] = [{"x": -y, "y": y}, {"x": None, "y": y}]
    return [session.run(None, one) for one in feeds], [one.type for one in session.get_inputs()]


def an_absent_input_that_is_not_named(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(
        model(
            """g (optional(float[4]) x, float[4] y) => (bool has, float[2] best, int64[2] at) {
            has = OptionalHasElement(x)  k = Constant<value_ints = [2]>()  best, at = TopK(y, k) }"""
        )
    )
    return session.run(None, {"y": X[0, :4]})


def beams_of_any_number(ort: Any, folder: Path) -> Any:
    session, scores = ort.InferenceSession(BEAMS), np.round(X * 3)  # with ties
    scores[:, 3] = np.inf
    with pytest.raises(ort_errors.Fail):
        session.run(None, {"scores": scores, "k": np.array([FEATURES + 1])})
    return [session.run(None, {"scores": scores, "k": np.array([k])})[1] for k in (1, 4, FEATURES)]


def views_halves_and_vectors(ort: Any, folder: Path) -> Any:
    session = ort.InferenceSession(
        model(
            """g (float16[n, 6] x) => (float16[n, 2] best, int64[n, 2] at, float16[n, 6] back) {
            k = Constant<value_ints = [2]>()  best, at = TopK(x, k)
            lengths = Constant<value_ints = [2, 1, 3]>()
            back = ReverseSequence<batch_axis = 0, time_axis = 1>(x, lengths) }"""
        )
    )
    x = X[:3].astype(np.float16)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ascontiguousarray(x[:, ::-1][:, :6]))
    binding.bind_output("back")
    session.run_with_iobinding(binding)
    bound = [value.numpy() for value in binding.get_outputs_as_ortvaluevector()]
    return session.run(("at", "back"), {"x": x[:, ::-1][:, :6]}), bound


def errors_of_calls(ort: Any, folder: Path) -> Any:
    """Each is caught by the class that ONNX Runtime raises."""
    session, tagger, found = ort.InferenceSession(CLASSIFIER), ort.InferenceSession(TAGGER), []
    feeds = {"x": FRAMES[:, 0], "lengths": LENGTHS}
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ValueError, lambda: session.run(None, {})),
        (ort_errors.InvalidArgument, lambda: session.run(["misspelled"], {"features": X})),
        (ort_errors.InvalidArgument, lambda: session.run(None, {"features": X, "more": X})),
        (ort_errors.InvalidArgument, lambda: session.run(None, {"features": X.astype(np.float64)})),
        (ort_errors.InvalidArgument, lambda: session.run(None, {"features": X[0]})),
        (ort_errors.InvalidArgument, lambda: session.run(None, {"features": X[:, 1:]})),
        (ort_errors.InvalidArgument, lambda: tagger.run(None, feeds | {"lengths": LENGTHS[:1]})),
        (ort_errors.NoSuchFile, lambda: ort.InferenceSession(str(folder / "absent.onnx"))),
        (ort_errors.InvalidProtobuf, lambda: ort.InferenceSession(b"no model")),
        (ort_errors.InvalidGraph, lambda: ort.InferenceSession(CLASSIFIER.replace(b"Softmax", b"Softmix"))),
    ]
    for number, (error, call) in enumerate(calls):
        with pytest.raises(error):
            call()
        found.append(number)
    return found


PROGRAMS: dict[Callable[[Any, Path], Any], Callable[[], Any] | None] = {
    a_file_s_name: None,
    a_path_with_options: None,
    the_best_device: None,
    words_of_the_constructor: None,
    a_state_that_is_carried: exact_stream,
    a_state_that_is_an_ort_value: exact_stream,
    a_state_that_is_bound: exact_stream,
    a_state_in_two_places_by_turns: exact_stream,
    batches_of_other_sizes: None,
    threads_that_share_a_session: None,
    calls_that_do_not_wait: None,
    a_profile: None,
    providers_that_change: None,
    sizes_that_the_options_fix: None,
    options_of_a_run: None,
    labels_in_the_metadata: None,
    inputs_made_of_what_the_model_says: None,
    an_input_that_may_be_absent: None,
    an_absent_input_that_is_not_named: None,
    beams_of_any_number: None,
    views_halves_and_vectors: None,
    errors_of_calls: None,
}


@pytest.mark.filterwarnings("ignore:.*CUDAExecutionProvider")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_is_the_same(program: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    results = []
    for ort in (cudml.onnx, onnxruntime):
        folder = tmp_path / ort.__name__
        folder.mkdir()
        results.append(program(ort, folder))
    exact = PROGRAMS[program]
    assert_agree(results[0], results[1], exact and exact())


def test_the_tags_and_states_of_two_directions() -> None:
    feeds = {"x": FRAMES[:, 0], "lengths": LENGTHS}
    ours, theirs = (ort.InferenceSession(TAGGER).run(None, feeds) for ort in (cudml.onnx, onnxruntime))
    assert_agree(ours, theirs, exact_tags())


def test_a_name_that_neither_has() -> None:
    with pytest.raises(
        AttributeError, match=r"'cudml\.onnx' has no attribute 'Nothing', nor has onnxruntime"
    ):
        cudml.onnx.Nothing  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"Session has no get_input_memory_infos, .* ask an onnxruntime\."
    ):
        cudml.onnx.InferenceSession(BEAMS).get_input_memory_infos()


def test_a_session_whose_new_providers_are_wrong_is_left_as_it_is() -> None:
    session = cudml.onnx.Session(CLASSIFIER, ops=["Slice"])
    with pytest.raises(ValueError, match="providers has Nonsense"):
        session.set_providers(["Nonsense"])
    session.set_providers(["CPUExecutionProvider"])
    assert session.placed == []
    assert session.end_profiling() == ""
