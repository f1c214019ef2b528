"""`cudml.onnx.Session` on a GPU, for models whose nodes cudml runs: ONNX Runtime may have none for GPUs."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from cudml.devices import cuda
from cudml.onnx import Session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

X = np.array([[1, 5, 2, 5], [0, -1, 3, 2], [7, 7, 7, 7]], np.float32)
TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] X) => (float[N, 2] Y, int64[N, 2] I) {
  n = Constant<value_ints = [1, 2, 1, 3]>()  k = Constant<value_ints = [2]>()
  turned = ReverseSequence(X, n)  Y, I = TopK(turned, k) }"""
TURNED = np.array([[1, -1, 2, 7], [0, 5, 3, 2], [7, 7, 7, 5]], np.float32)
EXPECTED = np.argsort(-TURNED, axis=1, kind="stable")[:, :2]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    return Session(onnx.parser.parse_model(TEXT))


def bind(session: Session, x: Any, y: Any) -> Any:
    binding = session.io_binding()
    place = {"device_type": "cuda", "device_id": 0, "element_type": np.float32}
    binding.bind_input("X", shape=x.shape, buffer_ptr=x.data.ptr, **place)
    binding.bind_output("Y", shape=y.shape, buffer_ptr=y.data.ptr, **place)
    binding.bind_output("I")
    return binding


def test_arrays_of_either_kind_go_in_and_numpy_s_come_out(session: Session) -> None:
    import cupy

    assert [row.runs_on for row in session.placed] == ["cudml", "cudml"]
    for x in (X, cupy.asarray(X)):
        values, indices = session.run(None, {"X": x})
        assert type(values) is type(indices) is np.ndarray
        assert np.array_equal(indices, EXPECTED)
        assert np.array_equal(values, np.take_along_axis(TURNED, EXPECTED, 1))


def test_named_results_stay_on_the_gpu(session: Session) -> None:
    import cupy

    results = session.run_named({"X": X})
    assert {type(result) for result in results.values()} == {cupy.ndarray}
    assert np.array_equal(results["I"].get(), EXPECTED)


def test_memory_is_bound(session: Session) -> None:
    import cupy

    x, y = cupy.asarray(X), cupy.zeros((3, 2), np.float32)
    binding = bind(session, x, y)
    session.run_with_iobinding(binding)
    values, indices = binding.copy_outputs_to_cpu()
    assert np.array_equal(indices, EXPECTED)
    assert np.array_equal(values, y.get())
    assert np.array_equal(values, np.take_along_axis(TURNED, EXPECTED, 1))


@pytest.mark.parametrize("way", ["run", "run_named", "bound"])
def test_the_callers_stream_is_waited_for_and_waits(way: str, session: Session) -> None:
    """The call sees work queued before it, and work queued after it sees its results."""
    import cupy

    x, y = cupy.zeros((3, 4), np.float32), cupy.zeros((3, 2), np.float32)
    right, copied = cupy.asarray(X), cupy.full((3, 2), -1, np.float32)
    cupy.cuda.Device().synchronize()
    caller = cupy.cuda.Stream(non_blocking=True)
    with caller:
        x[...] = right
        if way == "run":
            values: Any = session.run(["Y"], {"X": x})[0]
        elif way == "run_named":
            values = session.run_named({"X": x}, ["Y"])["Y"]
        else:
            session.run_with_iobinding(bind(session, x, y))
            values = y
        copied[...] = cupy.asarray(values)
    caller.synchronize()
    assert np.array_equal(copied.get(), np.take_along_axis(TURNED, EXPECTED, 1))


def test_a_stream_of_the_caller_orders_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    stream = cupy.cuda.Stream(non_blocking=True)
    session = Session(onnx.parser.parse_model(TEXT), stream=stream)
    with stream:
        values = session.run_named({"X": cupy.asarray(X)}, ["Y"])["Y"]
        assert np.array_equal(values.get(), np.take_along_axis(TURNED, EXPECTED, 1))


def test_a_value_that_is_needed_on_the_host_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """TopK's k, computed by a node on the GPU."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[4] X, int64[4] sizes)
      => (float[K] Y, int64[K] I) {
      two = Constant<value_ints = [2]>()  three = Constant<value_ints = [3]>()
      k = Slice(sizes, two, three)  Y, I = TopK(X, k) }"""
    session = Session(onnx.parser.parse_model(text), ops=("Slice", "TopK"))
    values, _ = session.run(None, {"X": X[0], "sizes": np.array([4, 1, 3, 1])})
    assert values.tolist() == [5, 5, 2]


def test_a_place_on_another_gpu_is_refused(session: Session) -> None:
    with pytest.raises(
        TypeError, match="device_type of Y is cuda with device_id 7, must be cpu or cuda with d"
    ):
        session.io_binding().bind_output("Y", "cuda", 7)
