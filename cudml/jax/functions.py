"""The functions of `cudml.jax`."""

from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import Any, Literal

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from cudml.enums import OperatorType
from cudml.errors import a_type
from cudml.functions import gru as _gru
from cudml.functions import top_k as _top_k
from cudml.functions import words
from cudml.functions.arguments import advice
from cudml.functions.words import naming_words, renamed
from cudml.jax.calls import call, check_version, register
from cudml.operators.gru.activations import Activation

_MAX_INDEX = int(np.iinfo(np.int32).max)

#: Numbers in the places of symbolic sizes while a call is checked: no layer is given these sizes.
_PLACES = (8191, 131071)


@naming_words(words.TOP_K)
def top_k(
    operand: Any,
    k: int,
    *,
    axis: int = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    nan: Literal["last", "greatest"] = "greatest",
    lengths: Any = None,
) -> _top_k.TopKResult[Any, Any]:
    """Select the k largest or smallest elements along an axis, best first, and their indices.

    Parameters
    ----------
    operand : jax.Array
        At least 1-D, of a type of `cudml.top_k`. Sizes may be symbolic under `jax.export`.
    k, axis, mode, sorted, nan
        As for `cudml.top_k`; static under `jit`. NaN is greatest by default, as in `jax.lax.top_k`.
    lengths : jax.Array, optional
        As for `cudml.top_k`: the number of elements of each row that count.

    Returns
    -------
    TopKResult
        `values` of the dtype of `operand` and `indices` of int32, with size k at the axis.

    Raises
    ------
    ValueError
        `k`, `mode` or `nan` is invalid, or the axis is longer than int32 can index. Where the size of the
        axis is symbolic, a `k` above it is an error of the exported program when it runs.
    TypeError
        The dtype is not supported.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, cudml.jax
    >>> values, indices = jax.jit(lambda a: cudml.jax.top_k(a, k=3))(jnp.array([1.0, 5.0, 5.0, 2.0]))
    >>> values.tolist(), indices.tolist()
    ([5.0, 5.0, 2.0], [1, 2, 3])

    Notes
    -----
    Ties are broken by the lower index, as by `jax.lax.top_k`. Here all NaNs tie, and so do -0.0 and +0.0.
    `jax.lax.top_k` ranks by IEEE 754's total order: +0.0 before -0.0, NaNs without a sign first and NaNs with
    a sign last. Source: `jax.lax.top_k`, `jax.numpy.top_k`, `cudml.top_k`.
    """
    del sorted  # results always are
    operand = _checked("top_k", "operand", operand)
    arrays = {"a": operand}
    k, axis = _static("top_k", "k", k), _static("top_k", "axis", axis)
    shape = operand.shape
    # A k above a symbolic size is found when the program runs.
    sizes = [size if isinstance(size, int) else max(k, 1) for size in shape]
    kinds = {"a": (tuple(sizes), operand.dtype)}
    _check_top_k(_top_k._top_k, kinds, (k, axis, mode, nan))
    axis = axis if axis < 0 else axis - operand.ndim  # under vmap, other dimensions come before
    if sizes[axis] > _MAX_INDEX + 1:
        raise ValueError(f"top_k: axis {axis} has {shape[axis]} elements, int32 indexes {_MAX_INDEX + 1}")
    if lengths is not None:
        lengths = jnp.asarray(lengths)
        lane_sizes = tuple(size if isinstance(size, int) else 1 for size in lengths.shape)
        kinds = kinds | {"lengths": (lane_sizes, lengths.dtype)}
        _check_top_k(_top_k._ragged_top_k, kinds, (k, axis, mode, nan))
        arrays["lengths"] = jnp.broadcast_to(lengths, _with(shape, axis, 1))
    found = _with(shape, axis, k)
    outputs = [jax.ShapeDtypeStruct(found, operand.dtype), jax.ShapeDtypeStruct(found, np.int32)]
    options = {"k": k, "axis": axis, "mode": mode, "nan": nan}
    instead = "call it with jax.lax.stop_gradient(operand), and take values by jax.numpy.take_along_axis"
    return _top_k.TopKResult(*call("cudml_top_k", outputs, options, *arrays.values(), instead=instead))


@naming_words(words.GRU)
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
        As for `cudml.gru`; lengths may be a list or a number, too. T and N may be symbolic under
        `jax.export`.
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
    Under `jax.vmap`, batches of `x`, `h0` and `sequence_lengths` are one call with more sequences; for each
    of several weights there is a call. Source: GRU of ONNX, `cudml.gru`.
    """
    x = _checked("gru", "x", x)
    if isinstance(sequence_lengths, (list, tuple, int)):
        sequence_lengths = jnp.asarray(sequence_lengths)
        if sequence_lengths.ndim == 0 and x.ndim == 3:
            sequence_lengths = jnp.broadcast_to(sequence_lengths, x.shape[1:2])
    arguments = zip(_gru._gru.input_names, (x, w, r, b, h0, sequence_lengths), strict=True)
    given = {name: _checked("gru", name, array) for name, array in arguments if array is not None}
    bound = _gru.clip_bound(clip)
    options = (direction, activations, linear_before_reset, bound)
    kinds, places = _sizes_of_layer(given)
    try:
        _gru._gru.outputs_for(kinds, (tuple(given), *options))
    except ValueError as error:
        text = str(error)
        for size, number in places.items():
            text = text.replace(str(number), str(size))
        raise ValueError(text) from None
    num_directions = 2 if direction == "bidirectional" else 1
    chosen = _gru._activations("gru", activations, num_directions)
    told = {
        "names": [*given],
        "direction": direction,
        "activations": [(item.operator_type.name, item.parameters) for item in chosen],
        "linear_before_reset": bool(linear_before_reset),
        "clip": None if bound == np.inf else bound,
    }
    return _gru.GruResult(*_layer_of(told)(*given.values()))


def _layer_of(options: dict[str, Any]) -> Any:
    """The layer as a function of its arrays, with its batching rule for `jax.vmap`."""
    names = options["names"]

    @custom_vmap
    def layer(*arrays: Any) -> Any:
        given = dict(zip(names, arrays, strict=True))
        (steps, batch, _), (num_directions, _, hidden) = given["x"].shape, given["r"].shape
        dtype = given["x"].dtype
        outputs = [
            jax.ShapeDtypeStruct((steps, num_directions, batch, hidden), dtype),
            jax.ShapeDtypeStruct((num_directions, batch, hidden), dtype),
        ]
        return tuple(
            call("cudml_gru", outputs, options, *arrays, instead="call it with jax.lax.stop_gradient(x)")
        )

    @layer.def_vmap
    def layers(axis_size: int, in_batched: Sequence[bool], *arrays: Any) -> Any:
        is_batched = dict(zip(names, in_batched, strict=True))
        if is_batched["w"] or is_batched["r"] or is_batched.get("b", False):
            whole = [
                array if is_one_of_many else jnp.broadcast_to(array, (axis_size, *array.shape))
                for array, is_one_of_many in zip(arrays, in_batched, strict=True)
            ]
            return jax.lax.map(lambda row: layer(*row), tuple(whole)), (True, True)
        joined = []
        for name, array in zip(names, arrays, strict=True):
            if name in ("w", "r", "b"):
                joined.append(array)
                continue
            axis = 0 if name == "sequence_lengths" else 1  # of the sequences
            whole = array if is_batched[name] else jnp.broadcast_to(array, (axis_size, *array.shape))
            moved = jnp.moveaxis(whole, 0, axis)
            joined.append(moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :]))
        sequence, single = layer(*joined)
        results = []
        for array, axis in ((sequence, 2), (single, 1)):
            parts = array.reshape(*array.shape[:axis], axis_size, -1, *array.shape[axis + 1 :])
            results.append(jnp.moveaxis(parts, axis, 0))
        return tuple(results), (True, True)

    return layer


def _check_top_k(function: Any, kinds: dict[str, Any], options: tuple[Any, ...]) -> None:
    """Raise what a call of arrays of these sizes and dtypes would raise, in JAX's words."""
    try:
        function.outputs_for(kinds, options)
    except (TypeError, ValueError) as error:
        raise renamed(error, "a", "operand") from None


def _checked(function: str, name: str, array: Any) -> Any:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        expected = f"a JAX array: {advice(name, array, 'jax.numpy.asarray makes one')}"
        raise TypeError(f"{function}: {name} is {a_type(array)}, must be {expected}")
    return jnp.asarray(array)  # NumPy's as JAX has them, without types of 64 bits unless these are enabled


def _static(function: str, name: str, value: Any) -> int:
    try:
        return index(value)
    except (TypeError, jax.errors.ConcretizationTypeError):
        expected = f"an integer that is known when the call is traced: static_argnames={name!r} of jax.jit"
        raise TypeError(f"{function}: {name} is {a_type(value)}, must be {expected}") from None


def _with(shape: tuple[Any, ...], axis: int, size: int) -> tuple[Any, ...]:
    """A shape with another size at an axis, which is counted from the end."""
    place = len(shape) + axis
    return (*shape[:place], size, *shape[place + 1 :])


def _sizes_of_layer(given: dict[str, Any]) -> tuple[dict[str, tuple[tuple[int, ...], Any]], dict[Any, int]]:
    """The sizes and dtypes of a layer's arrays, and the numbers in the places of symbolic T and N."""
    places: dict[Any, int] = {}
    kinds = {}
    for name, array in given.items():
        sizes = []
        for size in array.shape:
            if not isinstance(size, int) and size not in places:
                if name != "x" or len(places) == len(_PLACES):
                    expected = "a number: only T and N, the first two of x, may be symbolic"
                    raise TypeError(f"gru: a size of {name} is {size}, must be {expected}")
                places[size] = _PLACES[len(places)]
            sizes.append(size if isinstance(size, int) else places[size])
        kinds[name] = (tuple(sizes), array.dtype)
    return kinds, places


def _compute_top_k(
    options: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any], stream: int | None
) -> None:
    lengths = inputs[1] if len(inputs) > 1 else None
    _top_k.top_k(
        inputs[0],
        options["k"],
        axis=options["axis"],
        mode=options["mode"],
        nan=options["nan"],
        lengths=lengths,
        out=(outputs[0], outputs[1]),
        stream=stream,
    )


def _compute_gru(
    options: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any], stream: int | None
) -> None:
    _gru.gru(
        **dict(zip(options["names"], inputs, strict=True)),
        direction=options["direction"],
        activations=[Activation(OperatorType[name], values) for name, values in options["activations"]],
        linear_before_reset=options["linear_before_reset"],
        clip=options["clip"],
        out=(outputs[0], outputs[1]),
        stream=stream,
    )


check_version(Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h"))
register("cudml_top_k", _compute_top_k)
register("cudml_gru", _compute_gru)
# What an exported program returns, for the process that reads it.
for _result in (_top_k.TopKResult, _gru.GruResult):
    jax.export.register_namedtuple_serialization(_result, serialized_name=f"cudml.{_result.__name__}")
