"""The function of `cudml.torch`."""

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from cudml.errors import a_type
from cudml.functions.words import hiding_words, no_argument
from cudml.torch.calls import goes_straight
from cudml.torch.checks import (
    INDEX_TYPES,
    LENGTH_TYPES,
    TOPK_TYPES,
    TensorTypeError,
    check_flag,
    check_integer,
    check_tensor,
    check_type,
    refuse_gradients,
)
from cudml.torch.topk_operator import (
    check_dim,
    into_operator,
    ragged_operator,
    topk_empty,
    topk_on_cpu,
    topk_on_gpu,
    topk_operator,
)

_topk_result = torch.return_types.topk


@hiding_words
def topk(
    input: torch.Tensor,
    k: int,
    dim: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    *,
    lengths: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    max_length: int | None = None,
    out: Sequence[torch.Tensor] | None = None,
    **words: Any,
) -> torch.return_types.topk:
    """Select the k largest or smallest elements along a dimension, best first.

    Parameters
    ----------
    input : Tensor
        Of any shape and strides, of bool, an integer type, float16, bfloat16, float32 or float64.
    k : int
        Number of elements to select, from 0 to the size of the dimension.
    dim : int, optional
        Dimension to select along; None is the last one. As in PyTorch, `axis` is another word for it.
    largest : bool
        Whether to select the largest elements or the smallest.
    sorted : bool
        Accepted for compatibility with PyTorch: the results are always sorted, with False too.
    lengths : Tensor, optional
        Number of elements that count in each row along `dim`, from its start, of an integer type and on the
        device of `input`; broadcasts to the shape of `input` with 1 at `dim`. Where a row has fewer than k,
        its results end with index -1 and the worst value of the type, as for `cudml.top_k`.
    offsets : Tensor, optional
        Bounds of consecutive rows in a 1-D `input`: the start of each row, then the end of the last one. 1-D,
        of int32 or int64 and on the device of `input`, like the row pointers of a CSR matrix or the offsets
        of a jagged tensor. Each row has a row of results, with indices counted from its start. `k` may be
        above the length of a row, whose results then end as with `lengths`.
    max_length : int, optional
        With `offsets`, the number of elements of each row that count, from its start. None is the longest
        row, which the host waits for: `torch.compile` needs a number.
    out : (Tensor, Tensor), optional
        Tensors to write the results to, of exactly their shape and of any strides: values of the dtype of
        `input`, indices of int32 or int64. They are not resized. Given again, they are written again.

    Returns
    -------
    torch.return_types.topk
        `values` of the dtype of `input` and `indices` of int64, or those of `out`.

    Raises
    ------
    RuntimeError
        A tensor requires a gradient, `k` or `max_length` is out of range, `lengths` does not broadcast,
        `offsets` is not for rows of a 1-D `input`, or `out` has another shape.
    IndexError
        `dim` is out of range.
    TypeError
        An unsupported dtype or device (a RuntimeError, too, as PyTorch raises), a `k` or `dim` that is no
        integer, a `largest` that is no bool, an `out` that is no pair of tensors, an argument of another
        library.
    ValueError
        A tensor of `out` overlaps another one.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> values, indices = cudml.torch.topk(torch.tensor([1.0, 5.0, 5.0, 2.0]), 3)
    >>> values.tolist(), indices.tolist()
    ([5.0, 5.0, 2.0], [1, 2, 3])
    >>> rows, lengths = torch.tensor([[1.0, 5.0], [2.0, 3.0]]), torch.tensor([[2], [1]])
    >>> cudml.torch.topk(rows, 2, lengths=lengths).indices.tolist()
    [[1, 0], [0, -1]]
    >>> cudml.torch.topk(torch.tensor([1.0, 5.0, 2.0]), 2, offsets=torch.tensor([0, 2, 3])).indices.tolist()
    [[1, 0], [0, -1]]

    Notes
    -----
    NaN ranks above every number, as in PyTorch. Ties are broken by the lower index; PyTorch leaves them open.
    Rows of `offsets` are first copied into a matrix as wide as the longest one.
    Under `torch.vmap`, a batch is one call. Under `torch.autocast`, the dtype is that of `input`, as for
    `torch.topk`. Source: `torch.topk`.
    """
    if words:
        dim = _dim_of(words, dim)
    if not isinstance(input, torch.Tensor):
        if has_torch_function_unary(input):  # an object that stands for a tensor, as in torch.fx
            options = {"lengths": lengths, "offsets": offsets, "max_length": max_length, "out": out}
            return handle_torch_function(topk, (input,), input, k, dim, largest, sorted, **options)
        check_tensor("topk", input)
    dim = -1 if dim is None else dim
    if largest is not True and largest is not False:
        check_flag("topk", "largest", largest)
    if offsets is not None or max_length is not None:
        return _topk_of_segments(input, k, dim, largest, lengths, offsets, max_length, out)
    try:
        if lengths is not None or out is not None:
            return _topk_of_rows(input, k, dim, largest, lengths, out)
        if input.dim() == 0:  # one element, which PyTorch selects whether k is 0 or 1
            values, indices = topk_operator(input.reshape(1), 1 if k == 0 else k, dim, largest)
            return _topk_result((values.reshape(()), indices.reshape(())))
        if type(k) is type(dim) is int and type(largest) is bool and goes_straight(input):
            compute = topk_on_gpu if input.is_cuda else topk_on_cpu
            return _topk_result(compute(input, k, dim, largest))
        return _topk_result(topk_operator(input, k, dim, largest))
    except TensorTypeError:
        raise
    except RuntimeError:
        # PyTorch's error about a value that is no 64-bit integer names neither the function nor the bounds.
        _check_numbers(input, k, dim)
        raise


#: Other libraries' names of arguments, and their counterparts in `topk`.
_WORDS = {
    "mode": "largest=True or largest=False",
    "descending": "largest=True or largest=False",
    "nan": "left out: NaN is the greatest, as for torch.topk; cudml.top_k has nan=",
    "stream": "left out: PyTorch's current stream orders the work",
    "row_splits": "offsets=",
    "crow_indices": "offsets=",
    "indptr": "offsets=",
    "cu_seqlens": "offsets=",
    "seq_lens": "lengths=",
    "max_seqlen": "max_length=",
}


def _dim_of(words: dict[str, Any], dim: int | None) -> int | None:
    """The dimension given as `axis`, the only other name that is allowed."""
    for name in words:
        if name != "axis":
            raise no_argument(topk, name, _WORDS)
    if dim is not None:
        raise TypeError(f"topk: dim is {dim} and axis is {words['axis']}, must be one of them")
    axis: int | None = words["axis"]
    return axis


#: Unsigned types, which PyTorch does not gather -> signed types of the same bits.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _topk_of_segments(
    input: torch.Tensor,
    k: int,
    dim: int,
    largest: bool,
    lengths: Any,
    offsets: Any,
    max_length: int | None,
    out: Any,
) -> torch.return_types.topk:
    """`topk` of rows that lie one behind another, as rows of given lengths of a matrix."""
    if offsets is None:
        raise TypeError("topk: max_length is given without offsets, must be left out")
    if torch.jit.is_tracing():
        raise RuntimeError("topk: offsets is in a trace, which keeps sizes, must be under torch.export")
    if lengths is not None:
        raise TypeError("topk: lengths is given with offsets, which say how long rows are, must be left out")
    for name, number in (("k", k), ("dim", dim), ("max_length", 0 if max_length is None else max_length)):
        check_integer("topk", name, number)
        if number < 0 and name != "dim":
            raise RuntimeError(f"topk: {name} is {number}, must be 0 or more")
    if input.dim() != 1:
        raise RuntimeError(f"topk: input has {input.dim()} dimensions, must have 1 if offsets is given")
    check_dim(1, dim)
    check_type("topk", "input", input, TOPK_TYPES)
    refuse_gradients("topk", input=input)
    if not isinstance(offsets, torch.Tensor):
        raise TypeError(f"topk: offsets is {a_type(offsets)}, must be a torch.Tensor of int32 or int64")
    check_type("topk", "offsets", offsets, INDEX_TYPES)
    if offsets.device != input.device:
        raise TensorTypeError(f"topk: offsets is on {offsets.device}, must be on {input.device}, as input")
    if offsets.dim() != 1 or offsets.shape[0] == 0:
        expected = "of one dimension and at least one element: the start of each row and the end of the last"
        raise RuntimeError(f"topk: offsets is of shape {tuple(offsets.shape)}, must be {expected}")
    last = min(input.shape[0], torch.iinfo(offsets.dtype).max)
    bounds = offsets.clamp(0, last)
    starts, counts = bounds[:-1].unsqueeze(1), bounds.diff().unsqueeze(1)
    longest = _longest(counts) if max_length is None else max_length
    width = max(longest, k)
    if last == 0:
        rows = input.new_zeros(starts.shape[0], width)
    else:
        # Elements past a row's end are read and do not count. Sums that overflow are below 0.
        places = (starts + torch.arange(width, dtype=offsets.dtype, device=offsets.device)).clamp(0, last - 1)
        plain = input.view(_SIGNED.get(input.dtype, input.dtype))
        rows = plain.index_select(0, places.flatten()).view(input.dtype).view(starts.shape[0], width)
    return _topk_of_rows(rows, k, -1, largest, counts.clamp(max=longest), out)


def _longest(counts: torch.Tensor) -> int:
    """The length of the longest row, which the host waits for."""
    if torch.compiler.is_compiling() or (counts.is_cuda and torch.cuda.is_current_stream_capturing()):
        raise RuntimeError(
            "topk: max_length is None, must be a number under torch.compile and torch.export and in a graph, "
            "which cannot wait for offsets"
        )
    return max(0, int(counts.max())) if counts.numel() else 0


def _check_numbers(input: torch.Tensor, k: Any, dim: Any) -> None:
    """Raise the error about `k` or `dim`, if one of them is wrong."""
    for name, value in (("k", k), ("dim", dim)):
        check_integer("topk", name, value)
    topk_empty(input.reshape(input.shape or 1), index(k), index(dim), True)


def _topk_of_rows(
    input: torch.Tensor, k: int, dim: int, largest: bool, lengths: Any, out: Any
) -> torch.return_types.topk:
    """`topk` of rows of given lengths, or into given tensors."""
    if input.dim() == 0:
        raise RuntimeError("topk: input has no dimension, must have one for lengths= and out=")
    check_dim(input.dim(), dim)
    if lengths is not None:
        lengths = _lengths_of_rows(input, dim, lengths)
    if out is None:
        return _topk_result(ragged_operator(input, lengths, k, dim, largest))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"topk: out is {a_type(out)}, must be a pair of tensors: values, indices")
    values, indices = out
    for name, tensor in (("out[0]", values), ("out[1]", indices)):
        check_tensor("topk", tensor, name)
    into_operator(input, lengths, k, dim, largest, values, indices)
    return _topk_result((values, indices))


def _lengths_of_rows(input: torch.Tensor, dim: int, lengths: Any) -> torch.Tensor:
    """The lengths, one for each row along a dimension that exists."""
    if not isinstance(lengths, torch.Tensor):
        raise TypeError(f"topk: lengths is {a_type(lengths)}, must be a torch.Tensor of an integer type")
    check_type("topk", "lengths", lengths, LENGTH_TYPES)
    if lengths.device != input.device:
        raise TensorTypeError(f"topk: lengths is on {lengths.device}, must be on {input.device}, as input")
    shape = list(input.shape)
    shape[dim] = 1
    if list(lengths.shape) == shape:
        return lengths
    sizes = reversed(lengths.shape)
    if lengths.dim() > len(shape) or any(
        size not in (1, wanted) for size, wanted in zip(sizes, reversed(shape), strict=False)
    ):
        got, expected = tuple(lengths.shape), f"of a shape that broadcasts to {tuple(shape)}"
        raise RuntimeError(f"topk: lengths is of shape {got}, must be {expected}")
    return lengths.expand(shape)
