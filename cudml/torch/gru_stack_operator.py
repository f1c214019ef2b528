"""The operator `gru_stack`, layers on top of each other: what it computes, traces and batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from math import inf
from typing import Any, NamedTuple

import torch

from cudml.functions import gru as gru_function
from cudml.functions import gru_stack as gru_stack_function
from cudml.functions.gru_plan import GruPlan
from cudml.functions.gru_stack import gru_stack
from cudml.torch.calls import (
    arrays_of,
    current_stream,
    graph_memory,
    is_captured_on,
    launched,
    planned_calls,
    remember,
)
from cudml.torch.gru_operator import (
    direction_of,
    gru_batched,
    gru_by_plan,
    gru_into,
    gru_on_cpu,
    states_of,
)
from cudml.torch.library import batch_first, define

#: w, r, b and the initial states of a layer.
_Layer = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


class Layers(NamedTuple):
    """The weights of layers, from the first one up, each as `cudml.gru` takes it."""

    w: list[torch.Tensor]
    r: list[torch.Tensor]
    #: Empty if there are no biases.
    b: list[torch.Tensor]

    def each(self, h0: torch.Tensor | None) -> Iterator[_Layer]:
        """w, r, b and the initial states of each layer, from the initial states (L * D, N, H) of all."""
        for number, (w, r) in enumerate(zip(self.w, self.r, strict=True)):
            yield w, r, self.b[number] if self.b else None, None if h0 is None else h0[self.rows(number)]

    def rows(self, number: int) -> slice:
        """The rows of a layer among the states (L * D, N, H)."""
        return rows_of(number, self.r[0].shape[0])

    def plans(self) -> list[GruPlan]:
        """A plan of each layer, with copies of its weights."""
        weights = zip(self.w, self.r, self.b or [None] * len(self.w), strict=True)
        options: Any = {"direction": direction_of(self.r[0]), "linear_before_reset": True}
        return [GruPlan(*arrays_of(*layer), **options) for layer in weights]


def rows_of(number: int, num_directions: int) -> slice:
    """The rows of a layer among the states (L * D, N, H) of all."""
    return slice(number * num_directions, (number + 1) * num_directions)


def gru_by_plans(
    x: torch.Tensor,
    plans: Sequence[GruPlan],
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    between: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gru_stack_on_cpu` with weights that are arranged already."""
    if len(plans) == 1:  # a slice of the states takes a microsecond
        return gru_by_plan(x, plans[0], h0, lengths)
    d = plans[0].num_directions
    layers = ((plan, None if h0 is None else h0[rows_of(number, d)]) for number, plan in enumerate(plans))
    return layers_in_turn(gru_by_plan, x, layers, lengths, between)


def layers_in_turn(
    compute: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    x: torch.Tensor,
    layers: Iterable[tuple[Any, ...]],
    lengths: torch.Tensor | None,
    between: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The results by a call for each layer, which takes x, the layer's tensors, and the lengths.

    `between` changes the states that a layer passes to the next.
    """
    singles: list[torch.Tensor] = []
    for own in layers:
        if singles and between is not None:
            x = between(x)
        x, single = compute(x, *own, lengths)
        singles.append(single)
    return x, torch.cat(singles)


def gru_stack_on_cpu(
    x: torch.Tensor,
    w: list[torch.Tensor],
    r: list[torch.Tensor],
    b: list[torch.Tensor],
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return layers_in_turn(partial(gru_on_cpu, allow_tf32=allow_tf32), x, Layers(w, r, b).each(h0), lengths)


def gru_stack_on_gpu(
    x: torch.Tensor,
    w: list[torch.Tensor],
    r: list[torch.Tensor],
    b: list[torch.Tensor],
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.is_cpu:
        return gru_stack_on_cpu(x, w, r, b, h0, lengths, allow_tf32)  # which refuses tensors on other devices
    number = x.get_device()
    stream = current_stream(number)
    is_captured = is_captured_on(number, stream)
    layers = [(*one,) for one in zip(w, r, b or [None] * len(w), strict=True)]
    given = gru_stack_function.named(x, layers, h0, lengths)
    names, inputs = (*given,), (*given.values(),)
    key = names, allow_tf32, *[(one.shape, one.stride(), one.dtype, one.get_device()) for one in inputs]
    sequence, single = _stack_empty(x, w, r)
    if not is_captured:
        if key not in planned_calls:
            out = states_of(sequence, r[0]), single
            known = names, len(layers), direction_of(r[0]), None, True, inf, allow_tf32
            remember(key, gru_stack_function._gru_stack, arrays_of(*inputs), out, known, stream, names)
        planned = planned_calls.get(key)
        if planned is None:
            _into_in_turn(sequence, single, x, Layers(w, r, b), h0, lengths, allow_tf32)
            return sequence, single
        if launched(planned, inputs, (sequence, single), stream):
            return sequence, single
    plain, first, lengths_array = arrays_of(x, h0, lengths)
    own = [arrays_of(*layer) for layer in layers]
    options: Any = {"direction": direction_of(r[0]), "linear_before_reset": True, "stream": stream}
    options["allow_tf32"] = allow_tf32
    with graph_memory(x) if is_captured else nullcontext():
        gru_stack(plain, own, first, lengths_array, **options, out=(states_of(sequence, r[0]), single))
    return sequence, single


def _into_in_turn(
    sequence: torch.Tensor,
    single: torch.Tensor,
    x: torch.Tensor,
    layers: Layers,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool,
) -> None:
    """Write the results on a GPU by a call for each layer, which finds its own launch."""
    last = len(layers.r) - 1
    for number, own in enumerate(layers.each(h0)):
        states = sequence if number == last else sequence.new_empty(sequence.shape)
        gru_into(states, single[layers.rows(number)], x, *own, lengths, allow_tf32)
        x = states


def _stack_empty(
    x: torch.Tensor, w: list[torch.Tensor], r: list[torch.Tensor], *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    steps, batch, _ = x.shape
    num_directions, _, hidden = r[0].shape
    shape = len(r) * num_directions, batch, hidden
    return x.new_empty(steps, batch, num_directions * hidden), x.new_empty(shape)


def _stack_batched(
    info: Any,
    dims: tuple[Any, ...],
    x: torch.Tensor,
    w: list[torch.Tensor],
    r: list[torch.Tensor],
    b: list[torch.Tensor],
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
    allow_tf32: bool = False,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    """The batching rule, layer by layer: the states of a layer are a batch for the next layer."""
    size, num_directions = info.batch_size, r[0].shape[-3]
    of_x, of_w, of_r, of_b, of_h0, of_lengths = dims[:6]
    states = None if h0 is None else batch_first(h0, of_h0, size)
    singles = []
    for number in range(len(r)):
        rows = slice(number * num_directions, (number + 1) * num_directions)
        (x, single), (of_x, place) = gru_batched(
            info,
            (of_x, of_w[number], of_r[number], of_b[number] if b else None, 0, of_lengths),
            x,
            w[number],
            r[number],
            b[number] if b else None,
            None if states is None else states[:, rows],
            lengths,
            allow_tf32,
        )
        singles.append(single.movedim(place, 0))
    return (x, torch.cat(singles, dim=1)), (of_x, 0)


gru_stack_operator = define(
    "gru_stack(Tensor x, Tensor[] w, Tensor[] r, Tensor[] b, Tensor? h0, Tensor? lengths,"
    " bool allow_tf32=False)"
    " -> (Tensor sequence, Tensor single)",
    "gru",
    gru_function._gru.input_names,
    computes={"CPU": gru_stack_on_cpu, "CUDA": gru_stack_on_gpu},
    empty=_stack_empty,
    batched=_stack_batched,
)
