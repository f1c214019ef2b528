"""`top_k` and `gru` of Dask arrays, whose chunks are NumPy's or CuPy's, on one machine or many."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.core import flatten

from cudml.functions import gru as _gru
from cudml.functions import top_k as _top_k
from cudml.operators.activations import Activation

__all__ = ["gru", "top_k"]


def top_k(
    a: da.Array,
    k: int,
    /,
    *,
    axis: int = -1,
    mode: Literal["largest", "smallest"] = "largest",
    split_every: int | None = None,
) -> _top_k.TopKResult[Any, Any]:
    """Select the k largest or smallest elements along an axis, best first, and their indices.

    Each chunk is reduced to its own k, and these are merged in a tree. Computing both outputs together, with
    `dask.compute`, reads the chunks once.

    Parameters
    ----------
    a : dask.array.Array
        At least 1-D, of a type of `cudml.top_k`, in chunks of any sizes.
    k, axis, mode
        As for `cudml.top_k`.
    split_every : int, optional
        How many chunks are merged at a time; None is Dask's own choice.

    Returns
    -------
    TopKResult
        `values` of the dtype of `a` and `indices` of int64, those of the whole axis; one chunk along it.

    Raises
    ------
    ValueError
        `k` or `mode` is invalid, or the sizes of the chunks are not known.
    TypeError
        Not a Dask array, or an unsupported dtype.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import dask, dask.array as da, cudml.dask
    >>> a = da.from_array([1.0, 5.0, 2.0, 5.0], chunks=2)
    >>> values, indices = dask.compute(*cudml.dask.top_k(a, 3))
    >>> values.tolist(), indices.tolist()
    ([5.0, 5.0, 2.0], [1, 3, 2])

    Notes
    -----
    The result is that of `cudml.top_k` for the whole array: ties are broken by the lower index, for any
    chunks. Source: `cudml.top_k`, `dask.array.reduction`.
    """
    if not isinstance(a, da.Array):
        raise TypeError(f"top_k: a is of type {type(a).__name__}, must be a Dask array")
    if any(np.isnan(a.shape)):
        expected = "known sizes: call a.compute_chunk_sizes() first"
        raise ValueError(f"top_k: a has shape {a.shape}, with chunks of unknown sizes, must have {expected}")
    _top_k._top_k.outputs_for({"a": (a.shape, a.dtype)}, (k, axis, mode, "last"))
    axis %= a.ndim
    starts = np.cumsum((0, *a.chunks[axis][:-1]))
    no_pairs = np.empty((0,) * a.ndim, object)
    parts = a.map_blocks(
        _select, k=k, axis=axis, mode=mode, starts=starts, dtype=no_pairs.dtype, meta=no_pairs
    )
    merge = partial(_merge, k=k, mode=mode)
    merged = da.reduction(
        parts,
        chunk=_keep,
        combine=merge,
        aggregate=merge,
        axis=axis,
        keepdims=True,
        split_every=split_every,
        concatenate=False,
        output_size=k,
        dtype=no_pairs.dtype,
        meta=no_pairs,
    )
    values = merged.map_blocks(itemgetter(0), dtype=a.dtype, meta=a._meta)
    return _top_k.TopKResult(
        values, merged.map_blocks(itemgetter(1), dtype=np.int64, meta=a._meta.astype(np.int64))
    )


def gru(
    x: da.Array,
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
    """A layer of gated recurrent units, computed separately for each chunk of the batch.

    Parameters
    ----------
    x : dask.array.Array
        (T, N, I), in chunks along N; chunks along T and I are joined.
    w, r, b, h0, sequence_lengths
        As for `cudml.gru`, as Dask arrays or others. Weights are one chunk, which each worker receives once.
    direction, activations, linear_before_reset, clip
        As for `cudml.gru`.

    Returns
    -------
    GruResult
        `sequence` (T, D, N, H) and `single` (D, N, H), chunked along N as `x`.

    Raises
    ------
    ValueError, TypeError
        As for `cudml.gru`; also if `x` is not a Dask array.

    Examples
    --------
    >>> import numpy as np, dask.array as da, cudml.dask
    >>> x = da.ones((5, 4, 3), chunks=(5, 2, 3), dtype=np.float32)
    >>> sequence, single = cudml.dask.gru(x, np.ones((1, 12, 3), np.float32), np.ones((1, 12, 4), np.float32))
    >>> sequence.shape, single.chunks
    ((5, 1, 4, 4), ((1,), (2, 2), (4,)))

    Notes
    -----
    Source: GRU of ONNX, `cudml.gru`.
    """
    if not isinstance(x, da.Array):
        raise TypeError(f"gru: x is of type {type(x).__name__}, must be a Dask array")
    if any(np.isnan(x.shape)):
        expected = "known sizes: call x.compute_chunk_sizes() first"
        raise ValueError(f"gru: x has shape {x.shape}, with chunks of unknown sizes, must have {expected}")
    letters = {"x": "tni", "w": "dgi", "r": "dgh", "b": "de", "h0": "dnh", "sequence_lengths": "n"}
    arguments = zip(letters, (x, w, r, b, h0, sequence_lengths), strict=True)
    given = {name: array for name, array in arguments if array is not None}
    arrays = {
        name: array if isinstance(array, da.Array) else da.from_array(np.asanyarray(array), chunks=-1)
        for name, array in given.items()
    }
    options = {"direction": direction, "activations": activations, "linear_before_reset": linear_before_reset}
    bound = _gru.clip_bound(clip)
    kinds = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    outputs = _gru._gru.outputs_for(kinds, (tuple(arrays), *options.values(), bound))
    pairs = da.blockwise(
        partial(_layer, names=tuple(arrays), clip=bound, **options),
        "n",
        *(item for name, array in arrays.items() for item in (array, letters[name])),
        concatenate=True,
        dtype=object,
        meta=np.empty(0, object),
    )
    results = []
    for number, (axes, (shape, dtype)) in enumerate(zip(("tdnh", "dnh"), outputs, strict=True)):
        sizes = {letter: size for letter, size in zip(axes, shape, strict=True) if letter != "n"}
        meta = x._meta.astype(dtype)
        pick = itemgetter(number)
        results.append(da.blockwise(pick, axes, pairs, "n", new_axes=sizes, dtype=dtype, meta=meta))
    return _gru.GruResult(*results)


def _select(
    chunk: Any, k: int, axis: int, mode: Any, starts: Any, block_id: tuple[int, ...] = ()
) -> tuple[Any, Any]:
    """The top k of a chunk, with indices of the whole axis."""
    values, indices = _top_k.top_k(chunk, min(k, chunk.shape[axis]), axis=axis, mode=mode)
    indices += starts[block_id[axis]]
    return values, indices


def _keep(part: Any, axis: Any, keepdims: bool) -> Any:
    return part


def _merge(parts: Any, k: int, mode: Any, axis: tuple[int], keepdims: bool) -> tuple[Any, Any]:
    """The top k of several, which are in the order of the axis, so that equal values keep the lower index."""
    values, indices = (np.concatenate(arrays, axis=axis[0]) for arrays in zip(*flatten([parts]), strict=True))
    values, places = _top_k.top_k(values, min(k, values.shape[axis[0]]), axis=axis[0], mode=mode)
    return values, np.take_along_axis(indices, places, axis=axis[0])


def _layer(*arrays: Any, names: Sequence[str], **options: Any) -> tuple[Any, Any]:
    return tuple(_gru.gru(**dict(zip(names, arrays, strict=True)), **options))
