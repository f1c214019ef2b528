"""Programs of JAX, with `jax.lax.top_k` and a scan of GRU cells and with the functions of `cudml.jax`."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'cudml[jax]'")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import cudml.jax  # noqa: E402
from tests.programs import assert_agree  # noqa: E402

STEPS, BATCH, INPUTS, HIDDEN = 6, 3, 5, 8


def scanned_gru(x: Any, w: Any, r: Any, b: Any, h0: Any) -> Any:
    """A layer of one direction as JAX's users write it, with ONNX's shapes."""
    w, r, (of_inputs, of_states) = w[0], r[0], b[0].reshape(2, -1)

    def cell(state: Any, row: Any) -> Any:
        update, reset, new = jnp.split(row @ w.T + of_inputs, 3, axis=-1)
        own_update, own_reset, own_new = jnp.split(state @ r.T + of_states, 3, axis=-1)
        update = jax.nn.sigmoid(update + own_update)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * own_new)
        state = (1 - update) * new + update * state
        return state, state

    last, states = lax.scan(cell, h0[0], x)
    return states[:, None], last[None]


THEIRS = SimpleNamespace(top_k=lax.top_k, gru=scanned_gru)
OURS = SimpleNamespace(top_k=cudml.jax.top_k, gru=partial(cudml.jax.gru, linear_before_reset=True))


def numbers(seed: int, *shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def layer() -> tuple[Any, ...]:
    """w, r, b and h0."""
    shapes = ((1, 3 * HIDDEN, INPUTS), (1, 3 * HIDDEN, HIDDEN), (1, 6 * HIDDEN), (1, BATCH, HIDDEN))
    return tuple(numbers(seed, *shape) for seed, shape in enumerate(shapes))


X = numbers(10, STEPS, BATCH, INPUTS)


def compiled_calls(lib: Any) -> Any:
    a = jnp.round(numbers(1, 4, 20) * 5)  # with ties
    return (
        jax.jit(lib.top_k, static_argnums=1)(a, 3),
        jax.jit(lib.top_k, static_argnames="k")(a, k=3),
        jax.jit(partial(lib.top_k, k=3))(operand=a),
        jax.jit(lambda a: lib.top_k(a, 2)).lower(a).compile()(a),
        jax.jit(lambda a: lib.top_k(a, 2, axis=0))(a),
        [str(value.aval) for value in jax.make_jaxpr(lambda a: lib.top_k(a, 2))(a).jaxpr.outvars],
    )


def maps_of_maps(lib: Any) -> Any:
    a = numbers(2, 3, 4, 9)
    best = lambda row: lib.top_k(row, 2)  # noqa: E731
    return jax.vmap(best)(a), jax.vmap(lib.top_k, in_axes=(2, None))(a, 2), jax.vmap(jax.vmap(best))(a)


def a_scan(lib: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        values, at = lib.top_k(carry + row, 3)
        return carry.at[at].add(-values), (values, at)

    return lax.scan(step, jnp.zeros(10), numbers(3, 5, 10))


def loops_and_branches(lib: Any) -> Any:
    a = numbers(4, 8)
    return (
        lax.fori_loop(0, 3, lambda _, a: a.at[lib.top_k(a, 1)[1]].set(-jnp.inf), a),
        lax.while_loop(lambda a: a.max() > 0.1, lambda a: a.at[lib.top_k(a, 2)[1]].multiply(0.5), a),
        [lax.cond(flag, lambda a: lib.top_k(a, 2)[0], lambda a: -lib.top_k(-a, 2)[0], a) for flag in (0, 1)],
    )


def beam_search(lib: Any) -> Any:
    batch, beams, words, steps = 2, 3, 7, 4
    logs = jax.nn.log_softmax(numbers(5, steps, batch, beams, words))

    def step(state: Any, row: Any) -> Any:
        scores, texts, number = state
        scores, places = lib.top_k((scores[..., None] + row).reshape(batch, -1), beams)
        texts = jnp.take_along_axis(texts, (places // words)[..., None], 1)
        return (scores, texts.at[:, :, number].set(places % words), number + 1), None

    first = jnp.array([[0, -1e9, -1e9]] * batch), jnp.zeros((batch, beams, steps), jnp.int32), 0
    return jax.jit(lambda logs: lax.scan(step, first, logs)[0])(logs)


def sampling(lib: Any) -> Any:
    logits = numbers(6, 4, 50)

    @jax.jit
    def sample(key: Any, logits: Any) -> Any:
        values, at = lib.top_k(logits, 5)
        return jnp.take_along_axis(at, jax.random.categorical(key, values)[:, None], -1)

    masked = jnp.where(logits < lib.top_k(logits, 5)[0][..., -1:], -jnp.inf, logits)
    return sample(jax.random.key(1), logits), masked


def routing_to_experts(lib: Any) -> Any:
    weights, experts = lib.top_k(jax.nn.softmax(numbers(7, 12, 8)), 2)
    return weights / weights.sum(-1, keepdims=True), experts, jax.nn.one_hot(experts, 8).sum(1)


def nearest_neighbours(lib: Any) -> Any:
    queries, points = numbers(8, 5, 3), numbers(9, 30, 3)
    values, at = lib.top_k(-((queries[:, None] - points) ** 2).sum(-1), 4)
    return -values, at


def other_dtypes_and_sizes(lib: Any) -> Any:
    a = (numbers(11, 30) * 90).astype(jnp.float32)
    dtypes = (jnp.float16, jnp.bfloat16, jnp.int8, jnp.int32, jnp.uint16)
    kinds = [lib.top_k(jnp.abs(a).astype(dtype), 4) for dtype in dtypes]
    return (
        [(values.astype(jnp.float32), at, str(values.dtype)) for values, at in kinds],
        lib.top_k(a, 0),
        lib.top_k(jnp.zeros((0, 4)), 2),
        lib.top_k(np.arange(6.0)[::-1], 2),
    )


def gradients(lib: Any) -> Any:
    """Gradients of the selected elements, by indices, and of arrays beside the selection."""
    a, b = numbers(12, 3, 5), numbers(13, 3)

    def chosen(a: Any) -> Any:
        _, at = lib.top_k(lax.stop_gradient(a), 2)
        return jnp.take_along_axis(a, at, -1).sum()

    return jax.grad(chosen)(a), jax.grad(lambda b: (b * lib.top_k(a, 2)[0].sum()).sum())(b)


def arrays_on_a_mesh(lib: Any) -> Any:
    spec = jax.sharding.PartitionSpec("rows")
    mesh = jax.make_mesh((1,), ("rows",))
    a = jax.device_put(numbers(14, 4, 9), jax.sharding.NamedSharding(mesh, spec))
    best = lambda a: tuple(lib.top_k(a, 2))  # noqa: E731
    return jax.jit(best)(a), jax.shard_map(best, mesh=mesh, in_specs=spec, out_specs=spec)(a)


def errors(lib: Any) -> Any:
    """By the classes that JAX raises."""
    a, caught = numbers(15, 3), []
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ValueError, lambda: lib.top_k(a, 4)),
        (ValueError, lambda: lib.top_k(a, -1)),
        (ValueError, lambda: lib.top_k(jnp.float32(1), 1)),
        (ValueError, lambda: lib.top_k(a, 1, axis=1)),
        (TypeError, lambda: jax.jit(lib.top_k)(a, 1)),
        (TypeError, lambda: lib.top_k([1, 2], 1)),
        (TypeError, lambda: lib.top_k(a, 1.5)),
    ]
    for number, (error, call) in enumerate(calls):
        with pytest.raises(error):
            call()
        caught.append(number)
    return caught


def a_layer(lib: Any) -> Any:
    return jax.jit(lib.gru)(X, *layer())


def a_layer_step_by_step(lib: Any) -> Any:
    w, r, b, h0 = layer()
    step = jax.jit(lambda state, row: lib.gru(row[None], w, r, b, state))
    outputs, state = [], h0
    for row in X:
        output, state = step(state, row)
        outputs.append(output)
    return jnp.concatenate(outputs), state


def a_layer_in_a_scan(lib: Any) -> Any:
    w, r, b, h0 = layer()

    def chunk(state: Any, rows: Any) -> Any:
        output, state = lib.gru(rows, w, r, b, state)
        return state, output

    last, outputs = lax.scan(chunk, h0, X.reshape(3, 2, BATCH, INPUTS))
    return outputs.reshape(STEPS, 1, BATCH, HIDDEN), last


def layers_that_are_mapped(lib: Any) -> Any:
    """Batches of inputs, and one of weights."""
    w, r, b, h0 = layer()
    inputs = jax.vmap(lib.gru, in_axes=(0, None, None, None, None))(jnp.stack([X, -X]), w, r, b, h0)
    weights = jax.vmap(lib.gru, in_axes=(None, 0, None, None, None))(X, jnp.stack([w, -w]), r, b, h0)
    return *inputs, *weights


CHOICES = [
    *(compiled_calls, maps_of_maps, a_scan, loops_and_branches, beam_search, sampling, routing_to_experts),
    *(nearest_neighbours, other_dtypes_and_sizes, gradients, arrays_on_a_mesh, errors),
]
LAYERS = [a_layer, a_layer_step_by_step, a_layer_in_a_scan, layers_that_are_mapped]


def arrays(found: Any) -> Any:
    if isinstance(found, jax.Array):
        return np.asarray(found)
    return [arrays(one) for one in found] if isinstance(found, (list, tuple)) else found


@pytest.mark.parametrize("program", CHOICES, ids=lambda program: program.__name__)
def test_a_program_that_chooses_is_the_same(program: Callable[[Any], Any]) -> None:
    assert_agree(arrays(program(OURS)), arrays(program(THEIRS)))


@pytest.mark.parametrize("program", LAYERS, ids=lambda program: program.__name__)
def test_a_program_with_a_layer_is_as_exact(
    program: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = arrays(program(OURS)), arrays(program(THEIRS))
    with jax.enable_x64(True):
        monkeypatch.setattr(f"{__name__}.X", jnp.asarray(X, jnp.float64))
        own = [jnp.asarray(one, jnp.float64) for one in layer()]
        monkeypatch.setattr(f"{__name__}.layer", lambda: own)
        exact = arrays(program(THEIRS))
    assert {one.dtype for one in exact} == {np.dtype(np.float64)}
    assert_agree(ours, theirs, exact)


@pytest.mark.parametrize(
    "call", [lambda a: OURS.top_k(a, 2)[0].sum(), lambda x: OURS.gru(x, *layer())[0].sum()]
)
def test_a_gradient_of_a_result_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, NotImplementedError), match=r"jax\.lax\.stop_gradient"):
        jax.grad(call)(X)
