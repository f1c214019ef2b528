"""An ONNX session on a GPU: its stream is in order with the caller's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proof.oracle.gru import Weights
from proof.stand_in.kernels import Request
from tests.stand_in import OVER_STAND_IN, the_stand_in
from tests.support import to_numpy
from tests.support.gru_runs import Options, assert_as_precise_as_numpy

pytestmark = OVER_STAND_IN


def session_of(graph: str, **options: Any) -> Any:
    """A session of a model whose nodes are all cudml's: no ONNX Runtime here has a GPU."""
    onnx = pytest.importorskip("onnx", reason="ONNX is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import cudml.onnx

    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {graph}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
        return cudml.onnx.Session(model, providers=["CUDAExecutionProvider"], **options)


_TOP_K = """(float[N] x) => (float[K] v, int64[K] i)
{ k = Constant<value_ints = [3]>() v, i = TopK(x, k) }"""


@pytest.mark.parametrize("makes", [lambda cupy, array: array, lambda cupy, array: cupy.asarray(array)])
def test_results_are_there_for_the_callers_stream(makes: Callable[[Any, np.ndarray], Any]) -> None:
    """Inputs of the host and of the GPU, which are written late, and results, which are read at once."""
    import cupy

    session = session_of(_TOP_K)
    values = np.arange(100, dtype=np.float32)
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for shift in range(3):
                found = session.run_named({"x": makes(cupy, np.roll(values, shift))})
                assert found["v"].get().tolist() == [99, 98, 97]
                assert found["i"].get().tolist() == [(place + shift) % 100 for place in (99, 98, 97)]


def test_stream_that_the_caller_names_orders_the_run() -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    session = session_of(_TOP_K, stream=stream)
    with stream:
        x = cupy.arange(100, dtype=np.float32)
    found = session.run_named({"x": x})
    with stream:
        assert found["v"].get().tolist() == [99, 98, 97]


def test_number_of_results_that_the_gpu_computes() -> None:
    """An input that cudml reads on the host is waited for."""
    import cupy

    session = session_of(
        """(int64[1] n, float[N] x) => (float[K] v)
        { most, place = TopK(n, n) v, i = TopK(x, most) }"""
    )
    found = session.run_named({"n": cupy.ones(1, np.int64), "x": cupy.arange(100, dtype=np.float32)})
    assert found["v"].get().tolist() == [99]


#: Initial states of two layers: none, slices of one value, a value each, or one for the upper layer. If a
#: node of another kind made a value after the first layer, ONNX Runtime would run it between the layers.
_STATES = {
    "none": ("", "", ""),
    "one value": ("g0 = Slice(h, zero, one)  g1 = Slice(h, one, two)", "g0", "g1"),
    "their own": ("", "h", "k"),
    "the upper layer": ("", "", "k"),
}


@pytest.mark.parametrize("states", _STATES)
def test_layers_on_top_of_each_other_are_one_launch(
    states: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a second call, which has fewer steps and finds the weights on the GPU."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from cudml.onnx import stacks

    steps, batch, inputs, hidden = 6, 2, 3, 8
    slices, lower, upper = _STATES[states]
    weights = {
        name: rng.uniform(-0.5, 0.5, (1, 3 * hidden, size)).astype(np.float32)
        for name, size in (("w0", inputs), ("r0", hidden), ("w1", hidden), ("r1", hidden))
    }
    numbers = {name: ", ".join(map(str, array.ravel().tolist())) for name, array in weights.items()}
    constants = ", ".join(
        f"float[{', '.join(map(str, weights[name].shape))}] {name} = {{{numbers[name]}}}" for name in weights
    )
    rows = 2 if slices else 1
    session = session_of(
        f"""(float[T, N, {inputs}] x, float[{rows}, N, {hidden}] h, float[1, N, {hidden}] k) =>
        (float[T, 1, N, {hidden}] y, float[1, N, {hidden}] a, float[1, N, {hidden}] b)
        <{constants}>
        {{ zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
        two = Constant<value_ints = [2]>()  {slices}
        z, a = GRU <hidden_size = {hidden}, linear_before_reset = 1> (x, w0, r0, , , {lower})
        s = Squeeze(z, one)
        y, b = GRU <hidden_size = {hidden}, linear_before_reset = 1> (s, w1, r1, , , {upper}) }}"""
    )
    assert len(session._steps) == 1
    uploads = []
    upload = stacks.upload
    monkeypatch.setattr(stacks, "upload", lambda *given: uploads.append(given) or upload(*given))
    x, h, k = (
        rng.uniform(-1, 1, shape).astype(np.float32)
        for shape in ((steps, batch, inputs), (rows, batch, hidden), (1, batch, hidden))
    )
    zeros = np.zeros_like(k)
    h0 = {
        "none": None,
        "one value": h,
        "their own": np.concatenate([h[:1], k]),
        "the upper layer": np.concatenate([zeros, k]),
    }[states]
    for count in (steps, steps - 1):
        with the_stand_in().launches() as launched:
            found = session.run_named({"x": x[:count], "h": h, "k": k})
            results = {name: to_numpy(array) for name, array in found.items()}
        kernels = [launch for launch, _ in launched if isinstance(launch, Request)]  # others are cuBLAS's
        recurrences = [launch for launch in kernels if "gru_" in launch.function.name]
        assert [("gru_wave" in one.function.name, one.is_cooperative) for one in recurrences] == [
            (True, True)
        ]
        layers = [
            Weights(
                x[:count], weights[f"w{i}"], weights[f"r{i}"], None, None if h0 is None else h0[i : i + 1]
            )
            for i in (0, 1)
        ]
        found = {"sequence": results["y"], "single": np.concatenate([results["a"], results["b"]])}
        assert_as_precise_as_numpy(found, layers, Options(linear_before_reset=True))
    assert len(uploads) == len(weights)
