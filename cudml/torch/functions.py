"""The function of `cudml.torch`."""

from collections.abc import Sequence
from operator import index
from typing import Any

import torch

from cudml.errors import a_type
from cudml.torch.calls import goes_straight
from cudml.torch.checks import LENGTH_TYPES, check_flag, check_tensor, check_type
from cudml.torch.topk_operator import (
    check_dim,
    into_operator,
    ragged_operator,
    topk_empty,
    topk_on_gpu,
    topk_operator,
)

_topk_result = torch.return_types.topk


def topk(
    input: torch.Tensor,
    k: int,
    dim: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    *,
    lengths: torch.Tensor | None = None,
    out: Sequence[torch.Tensor] | None = None,
) -> torch.return_types.topk:
    """Select the k largest or smallest elements along a dimension, best first.

    Parameters
    ----------
    input : Tensor
        Of any shape and strides, of bool, an integer type, float16, bfloat16, float32 or float64.
    k : int
        Number of elements to select, from 0 to the size of the dimension.
    dim : int, optional
        Dimension to select along; None is the last one.
    largest : bool
        Whether to select the largest elements or the smallest.
    sorted : bool
        Accepted for compatibility with PyTorch: the results are always sorted, with False too.
    lengths : Tensor, optional
        Number of elements that count in each row along `dim`, from its start, of an integer type and on the
        device of `input`; broadcasts to the shape of `input` with 1 at `dim`. Where a row has fewer than k,
        its results end with index -1 and the worst value of the type, as for `cudml.top_k`.
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
        A tensor requires a gradient, `k` is out of range, `lengths` does not broadcast, or `out` has
        another shape.
    IndexError
        `dim` is out of range.
    TypeError
        An unsupported dtype or device, a `k` or `dim` that is no integer, a `largest` that is no bool, an
        `out` that is no pair of tensors.
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

    Notes
    -----
    NaN ranks above every number, as in PyTorch. Ties are broken by the lower index; PyTorch leaves them open.
    Under `torch.vmap`, a batch is one call. Under `torch.autocast`, the dtype is that of `input`, as for
    `torch.topk`. Source: `torch.topk`.
    """
    check_tensor("topk", input)
    dim = -1 if dim is None else dim
    if largest is not True and largest is not False:
        check_flag("topk", "largest", largest)
    try:
        if lengths is not None or out is not None:
            return _topk_of_rows(input, k, dim, largest, lengths, out)
        if input.dim() == 0:  # one element, which PyTorch selects whether k is 0 or 1
            values, indices = topk_operator(input.reshape(1), 1 if k == 0 else k, dim, largest)
            return _topk_result((values.reshape(()), indices.reshape(())))
        if input.is_cuda and type(k) is type(dim) is int and type(largest) is bool and goes_straight(input):
            return _topk_result(topk_on_gpu(input, k, dim, largest))
        return _topk_result(topk_operator(input, k, dim, largest))
    except RuntimeError:
        # PyTorch's own error about what is no 64-bit integer names neither the function nor what is allowed.
        _check_numbers(input, k, dim)
        raise


def _check_numbers(input: torch.Tensor, k: Any, dim: Any) -> None:
    """Raise what is wrong with `k` and `dim`, if anything is."""
    for name, value in (("k", k), ("dim", dim)):
        try:
            index(value)
        except TypeError:
            raise TypeError(f"topk: {name} is {value!r}, must be an integer") from None
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
        raise TypeError(f"topk: lengths is on {lengths.device}, must be on {input.device}, as input")
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
