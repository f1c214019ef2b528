"""`top_k` and `gru` of Dask arrays, whose chunks are NumPy's or CuPy's, on one machine or many."""

from collections.abc import Sequence
from functools import partial
from operator import index, itemgetter
from typing import Any, Literal

import numpy as np

from cudml.checks import is_integer
from cudml.errors import a_type, not_installed
from cudml.functions import gru as _gru
from cudml.functions import top_k as _top_k
from cudml.functions import words
from cudml.functions.arguments import advice
from cudml.functions.words import naming_words
from cudml.operators.gru.activations import Activation

try:
    import dask.array as da
    from dask.core import flatten
except ModuleNotFoundError as error:
    raise not_installed("dask", "dask", error) from None

__all__ = ["gru", "top_k"]


@naming_words(words.TOP_K)
def top_k(
    a: da.Array,
    k: int,
    *,
    axis: int = -1,
    mode: Literal["largest", "smallest"] = "largest",
    nan: Literal["last", "greatest"] = "last",
    lengths: Any = None,
    split_every: int | dict[int, int] | None = None,
) -> _top_k.TopKResult[Any, Any]:
    """Select the k largest or smallest elements along an axis, best first, and their indices.

    Each chunk is reduced to its own k, and these are merged in a tree. Computing both outputs together, with
    `dask.compute`, reads the chunks once.

    Parameters
    ----------
    a : dask.array.Array
        At least 1-D, of a type of `cudml.top_k`, in chunks of any sizes.
    k, axis, mode, nan
        As for `cudml.top_k`.
    lengths : array, list or int, optional
        As for `cudml.top_k`, as a Dask array or another: the number of elements of each row of the whole axis
        that count. Chunks behind these elements are read, and ignored.
    split_every : int or dict, optional
        How many chunks are merged at a time, 2 or more, by axis if a dictionary; None is Dask's own choice.

    Returns
    -------
    TopKResult
        `values` of the dtype of `a` and `indices` of int64, those of the whole axis; one chunk along it.

    Raises
    ------
    ValueError
        `k`, `mode`, `nan` or `split_every` is invalid, lengths do not broadcast, or the sizes of the chunks
        are not known.
    TypeError
        Not a Dask array, an unsupported dtype, or lengths that are not integers.
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
    chunks. Progress of long work is Dask's: `dask.diagnostics.ProgressBar`, or the dashboard of a cluster,
    where the tasks are `top_k-chunk`, one for each chunk, and `top_k-merge`. Source: `cudml.top_k`,
    `dask.array.reduction`.
    """
    if not isinstance(a, da.Array):
        raise _no_dask_array("top_k", "a", a)
    if any(np.isnan(a.shape)):
        expected = "known sizes: call a.compute_chunk_sizes() first"
        raise ValueError(f"top_k: a has shape {a.shape}, with chunks of unknown sizes, must have {expected}")
    numbers = split_every.values() if isinstance(split_every, dict) else [split_every or 2]
    if split_every == 0 or not all(is_integer(number) and number >= 2 for number in numbers):
        expected = "None, an integer of at least 2 or a dictionary of these by axis"
        raise ValueError(f"top_k: split_every is {split_every!r}, must be {expected}")
    kinds = {"a": (a.shape, a.dtype)}
    _top_k._top_k.outputs_for(kinds, (k, axis, mode, nan))
    k, axis = index(k), index(axis) % a.ndim
    counts: tuple[da.Array, ...] = ()
    if lengths is not None:
        given = lengths if isinstance(lengths, da.Array) else da.from_array(np.asarray(lengths), chunks=-1)
        if any(np.isnan(given.shape)):
            expected = "known sizes: call lengths.compute_chunk_sizes() first"
            raise ValueError(f"top_k: lengths has shape {given.shape}, must have {expected}")
        _top_k._ragged_top_k.outputs_for(
            kinds | {"lengths": (given.shape, given.dtype)}, (k, axis, mode, nan)
        )
        lanes = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
        chunks = (*a.chunks[:axis], (1,), *a.chunks[axis + 1 :])
        # Dask does not broadcast an axis of one element and empty chunks.
        own = [
            (1,) if size == 1 else row
            for size, row in zip(given.shape, chunks[a.ndim - given.ndim :], strict=True)
        ]
        counts = (da.broadcast_to(given.rechunk(tuple(own)), lanes, chunks=chunks),)
    starts = np.cumsum((0, *a.chunks[axis][:-1]))
    no_pairs = np.empty((0,) * a.ndim, object)
    choice = {"k": k, "axis": axis, "mode": mode, "nan": nan}
    parts = da.map_blocks(
        *(_select, a, *counts),
        **choice,
        starts=starts,
        token="top_k-chunk",
        dtype=no_pairs.dtype,
        meta=no_pairs,
        chunks=a.chunks,
    )
    merge = partial(_merge, k=k, mode=mode, nan=nan)
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
        name="top_k-merge",
        dtype=no_pairs.dtype,
        meta=no_pairs,
    )
    values = merged.map_blocks(itemgetter(0), token="top_k-values", dtype=a.dtype, meta=a._meta)
    indices = merged.map_blocks(
        itemgetter(1), token="top_k-indices", dtype=np.int64, meta=a._meta.astype(np.int64)
    )
    return _top_k.TopKResult(values, indices)


@naming_words(words.GRU)
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
    Progress of long work is Dask's, by chunks of the batch, whose tasks are `gru-chunk`. Source: GRU of ONNX,
    `cudml.gru`.
    """
    if not isinstance(x, da.Array):
        raise _no_dask_array("gru", "x", x)
    if any(np.isnan(x.shape)):
        expected = "known sizes: call x.compute_chunk_sizes() first"
        raise ValueError(f"gru: x has shape {x.shape}, with chunks of unknown sizes, must have {expected}")
    if is_integer(sequence_lengths) and x.ndim == 3:  # one number for all sequences
        sequence_lengths = np.full(x.shape[1], min(max(sequence_lengths, 0), x.shape[0]))
    letters = {"x": "tni", "w": "dgi", "r": "dgh", "b": "de", "h0": "dnh", "sequence_lengths": "n"}
    arguments = zip(letters, (x, w, r, b, h0, sequence_lengths), strict=True)
    given = {name: array for name, array in arguments if array is not None}
    arrays = {name: _dask_array(name, array) for name, array in given.items()}
    options = {"direction": direction, "activations": activations, "linear_before_reset": linear_before_reset}
    bound = _gru.clip_bound(clip)
    kinds = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    outputs = _gru._gru.outputs_for(kinds, (tuple(arrays), *options.values(), bound))
    pairs = da.blockwise(
        partial(_layer, names=tuple(arrays), clip=bound, **options),
        "n",
        *(item for name, array in arrays.items() for item in (array, letters[name])),
        concatenate=True,
        token="gru-chunk",
        dtype=object,
        meta=np.empty(0, object),
    )
    results = []
    for number, (axes, (shape, dtype)) in enumerate(zip(("tdnh", "dnh"), outputs, strict=True)):
        sizes = {letter: size for letter, size in zip(axes, shape, strict=True) if letter != "n"}
        meta = x._meta.astype(dtype)
        pick = itemgetter(number)
        token = f"gru-{_gru.GruResult._fields[number]}"
        results.append(
            da.blockwise(pick, axes, pairs, "n", new_axes=sizes, token=token, dtype=dtype, meta=meta)
        )
    return _gru.GruResult(*results)


def _no_dask_array(function: str, name: str, candidate: Any) -> TypeError:
    expected = f"a Dask array: {advice(name, candidate, 'dask.array.from_array makes one')}"
    return TypeError(f"{function}: {name} is {a_type(candidate)}, must be {expected}")


def _dask_array(name: str, array: Any) -> da.Array:
    """An argument of `gru` as a Dask array."""
    if isinstance(array, da.Array):
        return array
    try:
        return da.from_array(np.asanyarray(array), chunks=-1)
    except ValueError as error:
        raise ValueError(f"gru: {name} is {a_type(array)}, must be an array: {error}") from None


def _select(
    chunk: Any,
    lengths: Any = None,
    *,
    k: int,
    axis: int,
    mode: Any,
    nan: Any,
    starts: Any,
    block_id: tuple[int, ...] = (),
) -> tuple[Any, Any, Any]:
    """The top k of a chunk, with indices of the whole axis, and the numbers that count in rows, or None."""
    size, start = chunk.shape[axis], int(starts[block_id[axis]])
    count = min(k, size)
    if lengths is None:
        values, indices = _top_k.top_k(chunk, count, axis=axis, mode=mode, nan=nan)
        indices += start
        return values, indices, None
    if lengths.dtype == np.uint64:  # int64 does not hold all its numbers
        lengths = lengths.clip(0, start + size)
    ends = (lengths.astype(np.int64) - start).clip(0, size)
    values, indices = _ragged(chunk, count, ends, axis, mode, nan)
    indices[indices >= 0] += start
    return values, indices, ends.clip(0, count)


def _ragged(a: Any, k: int, lengths: Any, axis: int, mode: Any, nan: Any) -> Any:
    """`cudml.top_k` of rows that end; lengths on a host are copied to a chunk's GPU."""
    given = lengths if type(lengths) is type(a) else lengths.tolist()
    return _top_k.top_k(a, k, axis=axis, mode=mode, nan=nan, lengths=given)


def _keep(part: Any, axis: Any, keepdims: bool) -> Any:
    return part


def _merge(parts: Any, k: int, mode: Any, nan: Any, axis: tuple[int], keepdims: bool) -> tuple[Any, Any, Any]:
    """The top k of several parts in the order of the axis, so that equal values keep the lower index."""
    all_values, all_indices, counts = zip(*flatten([parts]), strict=True)
    values, indices = (np.concatenate(arrays, axis=axis[0]) for arrays in (all_values, all_indices))
    count = min(k, values.shape[axis[0]])
    if counts[0] is None:
        values, places = _top_k.top_k(values, count, axis=axis[0], mode=mode, nan=nan)
        return values, np.take_along_axis(indices, places, axis=axis[0]), None
    # A row ends in one part, and has nothing in later parts: the elements that count come first in each row.
    total = sum(counts[1:], counts[0])
    values, places = _ragged(values, count, total, axis[0], mode, nan)
    # The place of a missing element is -1, the last place, whose index is -1.
    return values, np.take_along_axis(indices, places, axis=axis[0]), total.clip(0, count)


def _layer(*arrays: Any, names: Sequence[str], **options: Any) -> tuple[Any, Any]:
    return tuple(_gru.gru(**dict(zip(names, arrays, strict=True)), **options))
