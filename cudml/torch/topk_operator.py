"""The operators `topk`, `topk_ragged` and `topk_into`: what they compute, check, trace and batch."""

from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any, Literal

import torch

from cudml.functions import top_k as top_k_function
from cudml.functions.top_k import top_k
from cudml.functions.words import renamed
from cudml.torch.calls import (
    arrays_of,
    current_stream,
    from_numpy,
    graph_memory,
    is_captured_on,
    operands_at,
    planned_calls,
    remember,
    streams,
)
from cudml.torch.checks import (
    INDEX_TYPES,
    NUMPY_TYPES,
    TOPK_TYPES,
    TensorTypeError,
    check_type,
    refuse_gradients,
)
from cudml.torch.library import Dims, batch_first, define

_INT64 = torch.int64


def topk_on_gpu(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    number = input.get_device()
    stream = current_stream(number)
    key = input.shape, input.stride(), input.dtype, number, k, dim, largest
    planned = planned_calls.get(key)
    if planned is None or input.requires_grad or (stream and is_captured_on(number, stream)):
        return _topk_anew(input, k, dim, largest, stream, key)
    launch, (mask,), scratch_bytes, shape, strides = planned
    place = input.data_ptr()
    if place & mask:
        return _topk_anew(input, k, dim, largest, stream, key)
    values = input.new_empty_strided(shape, strides)
    indices = input.new_empty_strided(shape, strides, dtype=_INT64)
    operands = operands_at[place], operands_at[values.data_ptr()], operands_at[indices.data_ptr()]
    if scratch_bytes:
        # The scratch may be freed at once: PyTorch reuses it in the stream's order.
        scratch = input.new_empty(scratch_bytes, dtype=torch.uint8)
        launch(operands, operands_at[scratch.data_ptr()], streams[stream])
    else:
        launch(operands, None, streams[stream])
    return values, indices


def _topk_anew(
    input: torch.Tensor, k: int, dim: int, largest: bool, stream: int, key: Hashable
) -> tuple[torch.Tensor, torch.Tensor]:
    """`topk_on_gpu` by the array function, for a call that is not known yet or is captured in a graph."""
    if input.requires_grad:
        refuse_gradients("topk", input=input)
        input = input.detach()
    out = topk_empty(input, k, dim, largest)
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    is_captured = is_captured_on(input.get_device(), stream)
    with graph_memory(input) if is_captured else nullcontext():
        top_k(input, k, axis=dim, mode=mode, nan="greatest", out=out, stream=stream)
    if not is_captured and key not in planned_calls:
        remember(key, top_k_function._top_k, (input,), out, (k, dim, mode, "greatest"), stream)
    return out


def topk_on_cpu(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if input.requires_grad:
        refuse_gradients("topk", input=input)
        input = input.detach()
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    if input.dtype in NUMPY_TYPES:
        # Sharing new arrays takes a third of the time of making tensors and sharing them.
        try:
            values, indices = top_k(input.numpy(), k, axis=dim, mode=mode, nan="greatest")
        except ValueError:
            topk_empty(input, k, dim, largest)  # raises PyTorch's error
            raise
        return from_numpy(values), from_numpy(indices)
    out = topk_empty(input, k, dim, largest)
    top_k(input, k, axis=dim, mode=mode, nan="greatest", out=out)
    return out


def check_dim(rank: int, dim: int) -> None:
    if not -rank <= dim < rank:
        raise IndexError(f"topk: dim is {dim}, must be from {-rank} to {rank - 1}")


def _topk_ragged(
    input: torch.Tensor, lengths: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out = topk_empty(input, k, dim, largest)
    _topk_into(input, lengths, k, dim, largest, *out)
    return out


def _topk_into(
    input: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    dim: int,
    largest: bool,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """`topk_ragged` and `topk_into` on tensors of a CPU and of CUDA."""
    _topk_into_checked(input, lengths, k, dim, largest, values, indices)
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    options: dict[str, Any] = {"axis": dim, "mode": mode, "nan": "greatest"}
    if input.is_cpu:
        a, counts, *out = arrays_of(input, lengths, values, indices)
        try:
            top_k(a, k, lengths=counts, out=(out[0], out[1]), **options)
        except ValueError as error:
            raise renamed(error, "a", "input") from None
        return
    # A tensor that requires a gradient cannot be shared; no gradient is wanted here.
    tensors = (input, lengths, values, indices)
    given: list[Any] = [one.detach() if one is not None and one.requires_grad else one for one in tensors]
    stream = current_stream(input.get_device())
    is_captured = is_captured_on(input.get_device(), stream)
    with graph_memory(input) if is_captured else nullcontext():
        try:
            top_k(given[0], k, lengths=given[1], out=(given[2], given[3]), stream=stream, **options)
        except ValueError as error:
            raise renamed(error, "a", "input") from None


def _topk_into_checked(
    input: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    dim: int,
    largest: bool,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """The checks of `topk_into`; tracing does nothing else."""
    refuse_gradients("topk", input=input, **{"out[0]": values})
    shape = _topk_shape(input, k, dim)
    check_type("topk", "out[0]", values, {input.dtype})
    check_type("topk", "out[1]", indices, INDEX_TYPES)
    for name, tensor in (("out[0]", values), ("out[1]", indices)):
        if tensor.device != input.device:
            raise TensorTypeError(f"topk: {name} is on {tensor.device}, must be on {input.device}, as input")
        if list(tensor.shape) != shape:
            raise RuntimeError(f"topk: {name} is of shape {tuple(tensor.shape)}, must be {tuple(shape)}")


def _topk_ragged_empty(
    input: torch.Tensor, lengths: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    refuse_gradients("topk", input=input)
    return topk_empty(input, k, dim, largest)


def _topk_shape(input: torch.Tensor, k: int, dim: int) -> list[int]:
    """The shape of the results."""
    check_type("topk", "input", input, TOPK_TYPES)
    check_dim(input.dim(), dim)
    shape = list(input.shape)
    size = shape[dim]
    message = f"must be from 0 to {size}, the size of dim {dim}"
    torch._check(k >= 0, lambda: f"topk: k is {k}, {message}")
    torch._check(k <= size, lambda: f"topk: k is {k}, {message}")
    shape[dim] = k
    return shape


def topk_empty(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    shape = _topk_shape(input, k, dim)
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int64)


def _topk_batched(
    info: Any, dims: Dims, input: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    input = batch_first(input, dims[0], info.batch_size)
    return topk_operator(input, k, _dim_of_one(input, dim), largest), (0, 0)


def _topk_ragged_batched(
    info: Any,
    dims: Dims,
    input: torch.Tensor,
    lengths: torch.Tensor,
    k: int,
    dim: int,
    largest: bool,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    input, lengths = (
        batch_first(tensor, place, info.batch_size)
        for tensor, place in zip((input, lengths), dims, strict=False)
    )
    one = _dim_of_one(input, dim)
    return ragged_operator(input, lengths, k, one, largest), (0, 0)


def _topk_into_batched(
    info: Any,
    dims: Dims,
    input: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    dim: int,
    largest: bool,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> tuple[None, None]:
    for name, place in (("out[0]", dims[-2]), ("out[1]", dims[-1])):
        if place is None:
            raise RuntimeError(f"topk: {name} is one for a whole batch of torch.vmap, must be batched too")
    size = info.batch_size
    input = batch_first(input, dims[0], size)
    if lengths is not None:
        lengths = batch_first(lengths, dims[1], size)
    out = batch_first(values, dims[-2], size), batch_first(indices, dims[-1], size)
    into_operator(input, lengths, k, _dim_of_one(input, dim), largest, *out)
    return None, None


def _dim_of_one(batch: torch.Tensor, dim: int) -> int:
    """A dimension of one tensor of a batch, counted from the end; raises IndexError if out of range."""
    rank = batch.dim() - 1
    check_dim(rank, dim)
    return dim if dim < 0 else dim - rank


topk_operator = define(
    "topk(Tensor input, SymInt k, int dim, bool largest) -> (Tensor values, Tensor indices)",
    "topk",
    ("input",),
    computes={"CPU": topk_on_cpu, "CUDA": topk_on_gpu},
    empty=topk_empty,
    batched=_topk_batched,
)
ragged_operator = define(
    "topk_ragged(Tensor input, Tensor lengths, SymInt k, int dim, bool largest)"
    " -> (Tensor values, Tensor indices)",
    "topk",
    ("input", "lengths"),
    computes={"CPU": _topk_ragged, "CUDA": _topk_ragged},
    empty=_topk_ragged_empty,
    batched=_topk_ragged_batched,
)
into_operator = define(
    "topk_into(Tensor input, Tensor? lengths, SymInt k, int dim, bool largest,"
    " Tensor(a!) values, Tensor(b!) indices) -> ()",
    "topk",
    ("input", "lengths"),
    computes={"CPU": _topk_into, "CUDA": _topk_into},
    empty=_topk_into_checked,
    batched=_topk_into_batched,
)
