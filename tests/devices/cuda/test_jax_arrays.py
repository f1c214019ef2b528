"""`cudml.jax` on arrays in a GPU's memory: results, under `jit` and `vmap`, in the order of JAX's stream."""

from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """JAX's first GPU; JAX leaves some of its memory to CuPy."""
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'cudml[jax]'")
    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")


def test_top_k(gpu: Any, rng: np.random.Generator) -> None:
    """The first call plans; later calls find the plan, for new values and for a function traced anew."""
    import jax

    from cudml import jax as adapter

    for _ in range(2):
        selected = jax.jit(lambda a: adapter.top_k(a + 1, 5))
        for _ in range(3):
            array = rng.integers(-99, 99, (4, 300)).astype(np.float32)
            found = selected(jax.device_put(array, gpu))
            values, indices = cudml.top_k(array + 1, 5)
            assert found.values.devices() == {gpu}
            assert_identical(np.asarray(found.values), values)
            assert_identical(np.asarray(found.indices), indices.astype(np.int32))


def test_top_k_of_batches(gpu: Any, rng: np.random.Generator) -> None:
    import jax

    from cudml import jax as adapter

    array = rng.integers(0, 5, (3, 6, 70)).astype(np.float32)
    found = jax.vmap(lambda a: adapter.top_k(a, 4))(jax.device_put(array, gpu))
    for got, right in zip(found, cudml.top_k(array, 4), strict=True):
        assert np.array_equal(got, right)


def test_work_before_and_after_is_in_order(gpu: Any, rng: np.random.Generator) -> None:
    """Each result is an argument of the next call, and its memory becomes free at once."""
    import jax

    from cudml import jax as adapter

    array = rng.standard_normal((64, 1000), np.float32)

    @jax.jit
    def chain(a: Any) -> Any:
        for _ in range(20):
            a = adapter.top_k(a, a.shape[1] - 10).values[:, ::-1] * 2
        return a

    expected = array
    for _ in range(20):
        expected = cudml.top_k(expected, expected.shape[1] - 10).values[:, ::-1] * 2
    assert_identical(np.asarray(chain(jax.device_put(array, gpu))), np.ascontiguousarray(expected))


def test_gru(gpu: Any, rng: np.random.Generator) -> None:
    """The results are the array function's on CuPy's arrays."""
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    import cupy
    import jax

    from cudml import jax as adapter

    shapes = {"x": (6, 5, 3), "w": (1, 12, 3), "r": (1, 12, 4), "b": (1, 24), "h0": (1, 5, 4)}
    arrays: dict[str, Any] = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    arrays["sequence_lengths"] = rng.integers(0, 7, 5).astype(np.int32)
    wanted = cudml.gru(**{name: cupy.asarray(array) for name, array in arrays.items()})
    found = jax.jit(adapter.gru)(**{name: jax.device_put(array, gpu) for name, array in arrays.items()})
    for got, right in zip(found, wanted, strict=True):
        assert_identical(np.asarray(got), right.get())
