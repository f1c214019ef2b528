"""An ONNX session on a GPU: its stream is in order with the caller's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.stand_in import OVER_STAND_IN

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
