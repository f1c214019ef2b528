"""What the handlers of `cudml.jax` compute in a GPU's buffers: there may be no JAX for a GPU."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'cudml[jax]'")

import cudml  # noqa: E402
from cudml.devices import cuda  # noqa: E402
from cudml.jax import functions  # noqa: E402
from cudml.jax.calls import gpu_memory  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]


def memory_of(array: Any, dtype: Any = None) -> Any:
    return gpu_memory(array.data.ptr, array.shape, np.dtype(dtype or array.dtype))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float32", "float64"])
def test_top_k_is_ordered_by_the_stream_and_written_in_place(dtype: str, rng: np.random.Generator) -> None:
    import cupy

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a = rng.integers(0, 4, (3, 50)).astype(kind)
    bits = np.dtype(f"u{kind.itemsize}")
    given = cupy.asarray(a.view(bits))
    source, values = cupy.zeros_like(given), cupy.zeros((3, 2), bits)
    indices = cupy.zeros((3, 2), np.int32)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source[...] = given
    options = {"k": 2, "axis": -1, "mode": "largest", "nan": "greatest"}
    outputs = memory_of(values, kind), memory_of(indices)
    functions._compute_top_k(options, [memory_of(source, kind)], outputs, stream.ptr)
    stream.synchronize()
    expected = cudml.top_k(a, 2, nan="greatest")
    assert np.array_equal(values.get().view(kind), expected.values)
    assert np.array_equal(indices.get(), expected.indices)


def test_gru_is_that_of_the_array_function(rng: np.random.Generator) -> None:
    import cupy

    shapes = {"x": (5, 3, 2), "w": (1, 12, 2), "r": (1, 12, 4)}
    arrays = {name: cupy.asarray(rng.standard_normal(s, dtype=np.float32)) for name, s in shapes.items()}
    outputs = cupy.zeros((5, 1, 3, 4), np.float32), cupy.zeros((1, 3, 4), np.float32)
    stream = cupy.cuda.get_current_stream()
    options = {
        "names": [*arrays],
        "direction": "forward",
        "activations": [("ACTIVATION_SIGMOID", []), ("ACTIVATION_TANH", [])],
        "linear_before_reset": False,
        "clip": None,
    }
    functions._compute_gru(
        options, [*map(memory_of, arrays.values())], [*map(memory_of, outputs)], stream.ptr or 1
    )
    stream.synchronize()
    for got, right in zip(outputs, cudml.gru(**arrays), strict=True):
        assert np.array_equal(got.get(), right.get())
