"""The operator `gru`, a layer in ONNX's order of weights: what it computes, traces and batches."""

from contextlib import nullcontext
from math import inf
from typing import Any, Literal

import torch

from cudml.functions import gru as gru_function
from cudml.functions.gru import gru
from cudml.functions.gru_plan import GruPlan
from cudml.torch.calls import (
    arrays_of,
    current_stream,
    from_numpy,
    graph_memory,
    is_captured_on,
    launched,
    planned_calls,
    remember,
)
from cudml.torch.library import Dims, batch_first, define


def gru_on_cpu(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.dtype is torch.bfloat16:
        # A caller may keep weights of float32: to widen them takes several times as long as a step.
        b, h0 = (None if one is None else one.float() for one in (b, h0))
        sequence, single = gru_on_cpu(x.float(), w.float(), r.float(), b, h0, lengths)
        return sequence.to(x.dtype), single.to(x.dtype)
    if r.shape[0] == 1:  # new arrays, as for topk: the states of one direction have PyTorch's layout
        given = arrays_of(x, w, r, b, h0, lengths)
        states, single = gru(*given, linear_before_reset=True, allow_tf32=allow_tf32)
        return from_numpy(states[:, 0]), from_numpy(single)
    sequence, single = gru_empty(x, w, r)
    gru(
        *arrays_of(x, w, r, b, h0, lengths),
        direction=direction_of(r),
        linear_before_reset=True,
        allow_tf32=allow_tf32,
        out=tuple(arrays_of(states_of(sequence, r), single)),
    )
    return sequence, single


def gru_by_plan(
    x: torch.Tensor, plan: GruPlan, h0: torch.Tensor | None, lengths: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gru_on_cpu` with weights that are arranged already, of float32 for an x of bfloat16."""
    if x.dtype is torch.bfloat16:
        sequence, single = gru_by_plan(x.float(), plan, None if h0 is None else h0.float(), lengths)
        return sequence.to(x.dtype), single.to(x.dtype)
    given = arrays_of(x, h0, lengths)
    if plan.num_directions == 1:
        states, single = plan(*given)
        return from_numpy(states[:, 0]), from_numpy(single)
    states = x.new_empty(*x.shape[:2], 2, plan.hidden_size)
    single = x.new_empty(2, x.shape[1], plan.hidden_size)
    plan(*given, out=tuple(arrays_of(states.transpose(1, 2), single)))
    return states.flatten(2), single


def gru_on_gpu(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.is_cpu:
        return gru_on_cpu(x, w, r, b, h0, lengths, allow_tf32)  # which refuses tensors on other devices
    outputs = gru_empty(x, w, r)
    gru_into(*outputs, x, w, r, b, h0, lengths, allow_tf32)
    return outputs


def gru_into(
    sequence: torch.Tensor,
    single: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> None:
    """Write the layer's results on a GPU."""
    number = x.get_device()
    stream = current_stream(number)
    is_captured = is_captured_on(number, stream)
    named = zip(gru_function._gru.input_names, (x, w, r, b, h0, lengths), strict=True)
    given = {name: tensor for name, tensor in named if tensor is not None}
    names, inputs = tuple(given), (*given.values(),)
    key = names, allow_tf32, *[(one.shape, one.stride(), one.dtype, one.get_device()) for one in inputs]
    planned = planned_calls.get(key)
    if planned is not None and not is_captured and launched(planned, inputs, (sequence, single), stream):
        return
    out = states_of(sequence, r), single
    arrays = dict(zip(names, arrays_of(*inputs), strict=True))
    with graph_memory(x) if is_captured else nullcontext():
        gru(
            **arrays,
            direction=direction_of(r),
            linear_before_reset=True,
            allow_tf32=allow_tf32,
            out=out,
            stream=stream,
        )
    if not is_captured and key not in planned_calls:
        options = names, direction_of(r), None, True, inf, allow_tf32
        remember(key, gru_function._gru, (*arrays.values(),), out, options, stream, names)


def states_of(sequence: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """PyTorch's sequence of states (T, N, D * H) in the form of `cudml.gru`'s, (T, D, N, H)."""
    num_directions, _, hidden = r.shape
    return sequence.view(*sequence.shape[:2], num_directions, hidden).transpose(1, 2)


def direction_of(r: torch.Tensor) -> Literal["forward", "bidirectional"]:
    return "bidirectional" if r.shape[0] == 2 else "forward"


def gru_empty(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    return x.new_empty(steps, batch, num_directions * hidden), x.new_empty(num_directions, batch, hidden)


def gru_batched(
    info: Any,
    dims: Dims,
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    """Batches of sequences as one call with more of them; one call for each of several weights."""
    size = info.batch_size
    given = (x, w, r, b, h0, lengths)
    if any(place is not None for place in dims[1:4]):
        results = [
            gru_operator(
                *(
                    one if one is None or place is None else one.select(place, number)
                    for one, place in zip(given, dims[:6], strict=True)
                ),
                allow_tf32,
            )
            for number in range(size)
        ]
        sequences, singles = zip(*results, strict=True)
        return (torch.stack(sequences), torch.stack(singles)), (0, 0)
    joined = []
    for one, place, axis in zip((x, h0, lengths), (dims[0], dims[4], dims[5]), (1, 1, 0), strict=True):
        if one is not None:  # the batch before the sequences
            one = batch_first(one, place, size).movedim(0, axis).flatten(axis, axis + 1)
        joined.append(one)
    sequence, single = gru_operator(joined[0], w, r, b, *joined[1:], allow_tf32)
    return (sequence.unflatten(1, (size, -1)), single.unflatten(1, (size, -1))), (1, 1)


gru_operator = define(
    "gru(Tensor x, Tensor w, Tensor r, Tensor? b, Tensor? h0, Tensor? lengths,"
    " bool allow_tf32=False)"
    " -> (Tensor sequence, Tensor single)",
    "gru",
    gru_function._gru.input_names,
    computes={"CPU": gru_on_cpu, "CUDA": gru_on_gpu},
    empty=gru_empty,
    batched=gru_batched,
)
