"""`top_k` and `gru` for JAX arrays, under `jax.jit`; `top_k` also under `jax.vmap`.

They run on XLA's stream, in XLA's buffers, through `jax.experimental.buffer_callback`, which JAX calls
experimental: another release may change it. A CPU's arrays run on the emulator. There are no gradients.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from cudml.errors import a_type
from cudml.functions import gru as _gru
from cudml.functions import top_k as _top_k
from cudml.operators.activations import Activation

__all__ = ["gru", "top_k"]

#: DLPack's device type of a CPU.
_CPU = 1

_MAX_INDEX = int(np.iinfo(np.int32).max)


def top_k(
    a: Any,
    k: int,
    /,
    *,
    axis: int = -1,
    mode: Literal["largest", "smallest"] = "largest",
    nan: Literal["last", "greatest"] = "greatest",
) -> _top_k.TopKResult[Any, Any]:
    """Select the k largest or smallest elements along an axis, best first, and their indices.

    Parameters
    ----------
    a : jax.Array
        At least 1-D, of a type of `cudml.top_k`.
    k, axis, mode, nan
        As for `cudml.top_k`; static under `jit`. NaN is greatest by default, as in `jax.lax.top_k`.

    Returns
    -------
    TopKResult
        `values` of the dtype of `a` and `indices` of int32, with size k at the axis.

    Raises
    ------
    ValueError
        `k`, `mode` or `nan` is invalid, or the axis is longer than int32 can index.
    TypeError
        The dtype is not supported.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, cudml.jax
    >>> values, indices = jax.jit(lambda a: cudml.jax.top_k(a, 3))(jnp.array([1.0, 5.0, 5.0, 2.0]))
    >>> values.tolist(), indices.tolist()
    ([5.0, 5.0, 2.0], [1, 2, 3])

    Notes
    -----
    Ties are broken by the lower index. Source: `jax.lax.top_k`, `cudml.top_k`.
    """
    given = {"a": _kind("top_k", "a", a)}
    (shape, dtype), _ = _top_k._top_k.outputs_for(given, (k, axis, mode, nan))
    axis = axis if axis < 0 else axis - a.ndim  # under vmap, other dimensions come before
    if a.shape[axis] > _MAX_INDEX + 1:
        raise ValueError(f"top_k: axis {axis} has {a.shape[axis]} elements, int32 indexes {_MAX_INDEX + 1}")

    def compute(context: Any, out: Sequence[Any], source: Any) -> None:
        source, values, indices = map(_shared, (source, *out))
        stream = _stream(context, source)
        _top_k.top_k(source, k, axis=axis, mode=mode, nan=nan, out=(values, indices), stream=stream)

    outputs = [jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(shape, np.int32)]
    return _top_k.TopKResult(*buffer_callback(compute, outputs, vmap_method="broadcast_all")(a))


def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    h0: Any = None,
    sequence_lengths: Any = None,
    *,
    direction: Literal["forward", "reverse", "backward", "bidirectional"] = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
) -> _gru.GruResult[Any]:
    """A layer of gated recurrent units over whole sequences, with ONNX's shapes and gate order.

    Parameters
    ----------
    x, w, r, b, h0, sequence_lengths : jax.Array
        As for `cudml.gru`.
    direction, activations, linear_before_reset, clip
        As for `cudml.gru`; static under `jit`.

    Returns
    -------
    GruResult
        `sequence` (T, D, N, H) and `single` (D, N, H).

    Raises
    ------
    ValueError, TypeError
        As for `cudml.gru`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, cudml.jax
    >>> layer = jax.jit(cudml.jax.gru)
    >>> sequence, single = layer(jnp.ones((5, 2, 3)), jnp.ones((1, 12, 3)), jnp.ones((1, 12, 4)))
    >>> sequence.shape, single.shape
    ((5, 1, 2, 4), (1, 2, 4))

    Notes
    -----
    Source: GRU of ONNX, `cudml.gru`.
    """
    arguments = zip(_gru._gru.input_names, (x, w, r, b, h0, sequence_lengths), strict=True)
    given = {name: array for name, array in arguments if array is not None}
    kinds = {name: _kind("gru", name, array) for name, array in given.items()}
    bound = _gru.clip_bound(clip)
    options = (direction, activations, linear_before_reset, bound)
    outputs = [jax.ShapeDtypeStruct(*kind) for kind in _gru._gru.outputs_for(kinds, (tuple(given), *options))]

    def compute(context: Any, out: Sequence[Any], sources: dict[str, Any]) -> None:
        arrays = {name: _shared(source) for name, source in sources.items()}
        _gru.gru(
            **arrays,
            direction=direction,
            activations=activations,
            linear_before_reset=linear_before_reset,
            clip=bound,
            out=(_shared(out[0]), _shared(out[1])),
            stream=_stream(context, arrays["x"]),
        )

    return _gru.GruResult(*buffer_callback(compute, outputs)(given))


def _kind(function: str, name: str, array: Any) -> tuple[tuple[int, ...], Any]:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"{function}: {name} is {a_type(array)}, must be a JAX array")
    return array.shape, array.dtype


def _shared(buffer: Any) -> Any:
    """The array that cudml takes for a buffer: a NumPy array on a CPU."""
    return np.asarray(buffer) if buffer.__dlpack_device__()[0] == _CPU else buffer


def _stream(context: Any, array: Any) -> int | None:
    return None if isinstance(array, np.ndarray) else context.stream
