"""`cudml.jax` beside the array functions and JAX's own, under `jit` and `vmap`, on a CPU."""

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'cudml[jax]'")

import jax.numpy as jnp  # noqa: E402

import cudml  # noqa: E402
import cudml.jax as adapter  # noqa: E402
from tests.support import assert_identical  # noqa: E402

TYPES = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_top_k_is_that_of_the_array_function(dtype: str, mode: Any, rng: np.random.Generator) -> None:
    a = jnp.asarray(rng.integers(-4, 5, (3, 20, 4))).astype(dtype)
    for axis in (0, 1, -1):
        result = jax.jit(lambda a, axis=axis: adapter.top_k(a, 2, axis=axis, mode=mode))(a)
        values, indices = cudml.top_k(np.asarray(a), 2, axis=axis, mode=mode)
        assert_identical(np.asarray(result.values), values)
        assert_identical(np.asarray(result.indices), indices.astype(np.int32))


def test_top_k_ranks_nan_as_jax_does_or_as_asked() -> None:
    a = jnp.array([1.0, jnp.nan, jnp.inf, 2.0, jnp.nan])
    assert adapter.top_k(a, 4).indices.tolist() == jax.lax.top_k(a, 4)[1].tolist()
    assert adapter.top_k(a, 4, nan="last").indices.tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_of_batches(axis: int, rng: np.random.Generator) -> None:
    """`vmap` over each dimension, once and twice, and over a batch without elements."""
    a = jnp.asarray(rng.integers(0, 5, (4, 5, 6, 7)).astype(np.float32))
    for batch in range(3):
        mapped = jax.vmap(lambda a: adapter.top_k(a, 2, axis=axis), in_axes=batch)(a)
        parts = np.moveaxis(np.asarray(a), batch, 0)
        for number, part in enumerate(parts):
            for got, right in zip(mapped, cudml.top_k(part, 2, axis=axis), strict=True):
                assert np.array_equal(got[number], right)
    twice = jax.vmap(jax.vmap(lambda a: adapter.top_k(a, 2, axis=axis)))(a)
    expected = cudml.top_k(np.asarray(a), 2, axis=axis if axis < 0 else axis + 2)
    for got, right in zip(twice, expected, strict=True):
        assert np.array_equal(got, right)
    assert jax.vmap(lambda a: adapter.top_k(a, 2))(a[:0]).values.shape == (0, 5, 6, 2)


@pytest.mark.parametrize("has_all", [True, False])
def test_gru_is_that_of_the_array_function(has_all: bool, rng: np.random.Generator) -> None:
    shapes = {"x": (6, 5, 3), "w": (2, 12, 3), "r": (2, 12, 4), "b": (2, 24), "h0": (2, 5, 4)}
    arrays: Any = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    arrays["sequence_lengths"] = rng.integers(0, 7, 5).astype(np.int32)
    if not has_all:
        arrays = {name: arrays[name] for name in ("x", "w", "r")}
    options: Any = {"direction": "bidirectional", "linear_before_reset": True, "clip": 0.3}
    result = jax.jit(lambda arrays: adapter.gru(**arrays, **options))(arrays)
    for got, right in zip(result, cudml.gru(**arrays, **options), strict=True):
        assert_identical(np.asarray(got), right)


def test_arguments_are_left_as_they_are() -> None:
    a = jnp.arange(12.0)
    before = np.array(a)
    result = adapter.top_k(a, 12)
    jax.block_until_ready(result)
    assert np.array_equal(a, before)
    assert result.values.tolist() == before[::-1].tolist()


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "k is 9, must be from 0 to the size of axis 0", lambda a: adapter.top_k(a, 9)),
        (ValueError, "mode is 'x'", lambda a: adapter.top_k(a, 1, mode="x")),
        (ValueError, "nan is 'x'", lambda a: adapter.top_k(a, 1, nan="x")),
        (TypeError, "a is of dtype complex64", lambda a: adapter.top_k(a.astype("complex64"), 1)),
        (np.exceptions.AxisError, "axis 1 is out of bounds", lambda a: adapter.top_k(a, 1, axis=1)),
        (ValueError, r"x is of shape \(4,\), must be", lambda a: adapter.gru(a, a, a)),
        (TypeError, "a is a list, must be a JAX array", lambda a: adapter.top_k([1.0], 1)),
        (TypeError, "clip is '1', must be a number above 0", lambda a: adapter.gru(a, a, a, clip="1")),
        (TypeError, "w is None, must be an array", lambda a: adapter.gru(a, None, a)),
        (ValueError, "do not support JVP", lambda a: jax.grad(lambda a: adapter.top_k(a, 1).values.sum())(a)),
    ],
)
def test_errors_come_when_a_call_is_traced(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        jax.jit(call)(jnp.zeros(4))
