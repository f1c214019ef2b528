"""The layer of `cudml.torch`, and the replacement of PyTorch's in a model."""

from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from cudml.errors import a_type
from cudml.functions.gru_plan import GruPlan
from cudml.torch.calls import ARRAY, goes_straight, has_array
from cudml.torch.checks import GRU_TYPES, TensorTypeError, check_tensor, check_type, refuse_gradients
from cudml.torch.gru_operator import gru_on_cpu, gru_on_gpu, gru_operator
from cudml.torch.gru_stack_operator import (
    Layers,
    gru_by_plans,
    gru_stack_on_cpu,
    gru_stack_on_gpu,
    gru_stack_operator,
    layers_in_turn,
)

#: Identity, address, version and `requires_grad` of each weight.
_Key = list[tuple[int, int, int, bool]]


class _Kept(NamedTuple):
    """The rearranged weights of a module, and the key that shows whether they have changed since."""

    key: _Key
    layers: Layers
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    #: Whether autocast has converted them to this type.
    is_autocast: bool
    #: Whether all of them go straight to an operator's kernel.
    is_straight: bool
    #: Plans of all layers, for calls that go straight to a CPU's kernels.
    plans: list[GruPlan]
    #: While these are kept, no other tensor can have the identity or the address of one of them.
    weights: list[tuple[torch.Tensor, torch.Tensor]]

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor can be computed with these weights."""
        wants_gradient = (self.requires_grad or tensor.requires_grad) and torch.is_grad_enabled()
        return not wants_gradient and tensor.dtype is self.dtype and tensor.device == self.device


class GRU(torch.nn.RNNBase):
    """`torch.nn.GRU` for inference: the same arguments, parameters and results.

    Several layers, both directions, `batch_first`, unbatched input, an initial state, and packed sequences;
    float32, float16 and bfloat16. The parameters are those of `torch.nn.GRU`.

    Parameters
    ----------
    allow_tf32 : bool
        By name only, False by default, and an attribute that may be set later: whether products of float32
        may round their operands to TF32, as `cudml.gru` describes. `torch.backends.cudnn.allow_tf32`, which
        is True by default, is ignored. ONNX has no such attribute: an exported model computes in float32.

    Raises
    ------
    RuntimeError
        From a call: a tensor requires a gradient, or its size does not fit.
    TypeError
        From a call: an unsupported dtype or device. It is a ValueError and a RuntimeError, too, one of which
        PyTorch raises.

    Notes
    -----
    The class is a `torch.nn.RNNBase`, and no `torch.nn.GRU`, which `torch.compile` refuses: code that looks
    for layers by `isinstance` finds it by the former.

    Weights are rearranged in ONNX's order at the first call, on a CPU into panels, too (`cudml.GruPlan`), and
    again when one is replaced or moved, or its version counter changes. The counter ignores writes through
    `.data`: call `flatten_parameters()` after these. The copies take two or three times the weights' memory.

    Under `torch.autocast`, on a CPU as on a GPU, input, state and weights are rounded to the dtype of
    autocast, which the results have. Sums and the state between steps are float32 for every dtype; the states
    that a layer passes to the next are of the input's dtype.

    Several layers are one operator, `cudml.gru_stack`: on a GPU with room for all of them, layers of one
    direction run in one launch, each a step behind the one below. With dropout between layers in training,
    each layer is a call. Source: `torch.nn.GRU`.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> layer = cudml.torch.GRU(4, 8).requires_grad_(False)
    >>> output, state = layer(torch.zeros(5, 2, 4))
    >>> output.shape, state.shape
    (torch.Size([5, 2, 8]), torch.Size([1, 2, 8]))
    """

    #: What a layer has that `convert` made, or that was saved without it.
    allow_tf32 = False

    def __init__(self, *args: Any, allow_tf32: bool = False, **options: Any) -> None:
        if "proj_size" in options:  # which the base class has for LSTM
            raise ValueError("GRU: proj_size is for LSTM, must be left out")
        try:
            super().__init__("GRU", *args, **options)
        except (TypeError, ValueError) as error:
            given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())])
            raise type(error)(f"GRU({given}): {error}") from None
        if allow_tf32:
            self.allow_tf32 = True

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()
        return shown + ", allow_tf32=True" * self.allow_tf32

    def flatten_parameters(self) -> None:
        """Rearrange the weights again at the next call."""
        self.__dict__.pop("_ordered", None)

    def forward(self, input: Any, hx: torch.Tensor | None = None) -> tuple[Any, torch.Tensor]:
        """The state after every step, and the last state of each layer and direction."""
        if isinstance(input, Proxy) or isinstance(hx, Proxy):
            return self._call_in_trace(input, hx)
        if not isinstance(input, PackedSequence):
            return self._forward_padded(input, hx)
        padded, lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        if hx is not None:
            check_tensor("GRU", hx, "hx")
            self._check_hidden(hx, padded.shape[1])
            hx = self.permute_hidden(hx, input.sorted_indices)
        counts = lengths.to(input.data.device, torch.uint32)
        output, state = self._compute(*_autocast(padded, hx), counts)
        output = pack_padded_sequence(output, lengths).data
        packed = PackedSequence(output, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self.permute_hidden(state, input.unsorted_indices)

    def _call_in_trace(self, input: Any, hx: Any) -> tuple[Any, torch.Tensor]:
        """A call of this module as a node, which a trace of `torch.fx` makes for modules of `torch.nn`."""
        tracer = (input if isinstance(input, Proxy) else hx).tracer
        if tracer.root is self:
            expected = "a model with a GRU inside: put it in a torch.nn.Sequential"
            raise RuntimeError(f"GRU: what torch.fx traces is a GRU itself, must be {expected}")
        arguments = (input,) if hx is None else (input, hx)
        place = tracer.path_of_module(self)
        made: tuple[Any, torch.Tensor] = tracer.create_proxy("call_module", place, arguments, {})
        return made

    def _forward_padded(
        self, input: torch.Tensor, hx: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        check_tensor("GRU", input)
        input, hx, is_autocast = _autocast(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: input has {input.dim()} dimensions, must have 2 or 3")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"GRU: hx has {hx.dim()} dimensions, must have {input.dim()}, as input")
        if input.dim() == 2:
            states = None if hx is None else hx.unsqueeze(1)
            output, state = self._compute(input.unsqueeze(1), states, is_autocast)
            return output.squeeze(1), state.squeeze(1)
        output, state = self._compute(input.transpose(0, 1) if self.batch_first else input, hx, is_autocast)
        return output.transpose(0, 1) if self.batch_first else output, state

    def _compute(
        self,
        x: torch.Tensor,
        hx: torch.Tensor | None,
        is_autocast: bool,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The results of all layers for x (T, N, I) and hx (layers * D, N, H)."""
        is_jit = torch.jit.is_tracing()
        if not is_jit:  # else sizes are tensors, which no branch can see
            self._check_sizes(x, hx)
        # Modes of the dispatcher see operators, as `make_fx`, or compute nothing, as `FakeTensorMode`.
        is_traced = is_jit or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
        layers, is_straight, plans = self._in_onnx_order(x, hx, is_autocast, is_traced)
        for tensor in (x, hx, lengths):
            is_straight = is_straight and (tensor is None or goes_straight(tensor))
        drop = partial(torch.dropout, p=self.dropout, train=True) if self.dropout and self.training else None
        if is_straight and plans:
            return gru_by_plans(x, plans, hx, lengths, drop)
        one, several = gru_operator, gru_stack_operator
        if is_straight and x.is_cuda:
            one, several = gru_on_gpu, gru_stack_on_gpu
        elif is_straight:
            one, several = gru_on_cpu, gru_stack_on_cpu
        if self.allow_tf32:
            one, several = partial(one, allow_tf32=True), partial(several, allow_tf32=True)
        results: tuple[torch.Tensor, torch.Tensor]
        if len(layers.r) == 1:
            b = layers.b[0] if layers.b else None
            results = one(x, layers.w[0], layers.r[0], b, hx, lengths)
        elif drop is not None:
            results = layers_in_turn(one, x, layers.each(hx), lengths, drop)
        else:
            results = several(x, *layers, hx, lengths)
        return results

    def _check_sizes(self, x: torch.Tensor, hx: torch.Tensor | None) -> None:
        steps, batch, inputs = x.shape
        if steps == 0:
            raise RuntimeError("GRU: input has no steps, must have at least one")
        if inputs != self.input_size:
            raise RuntimeError(f"GRU: input.size(-1) is {inputs}, must be input_size = {self.input_size}")
        if hx is not None:
            self._check_hidden(hx, batch)

    def _check_hidden(self, hx: torch.Tensor, batch: int) -> None:
        shape = (self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size)
        if hx.shape != shape:
            raise RuntimeError(f"GRU: hx has size {tuple(hx.shape)}, must have {shape}")

    def _in_onnx_order(
        self, x: torch.Tensor, hx: torch.Tensor | None, is_autocast: bool, is_traced: bool
    ) -> tuple[Layers, bool, list[GruPlan]]:
        """The weights of every layer, rearranged again only if one has changed; checked with the input.

        Also whether they may go straight to the operator's kernel, and if so on a CPU, their plans.
        """
        own = self._parameters  # finds a weight faster than getattr, unless it is parametrised
        names = self._flat_weights_names
        given = weights = [own[name] if name in own else getattr(self, name) for name in names]
        key = None if is_traced else _key(weights)
        kept: _Kept | None = self.__dict__.get("_ordered")
        is_known = kept is not None and kept.key == key is not None and kept.is_autocast is is_autocast
        if kept is not None and is_known and kept.takes(x) and (hx is None or kept.takes(hx)):
            return kept.layers, kept.is_straight, kept.plans
        named = dict(zip(names, weights, strict=True))
        refuse_gradients("GRU", input=x, hx=hx, **named)
        check_type("GRU", "input", x, GRU_TYPES)
        if is_autocast:
            weights = [weight.to(x.dtype) for weight in weights]
            named = {}
        for name, tensor in {"hx": hx, **named}.items():
            if tensor is not None and (tensor.dtype is not x.dtype or tensor.device != x.device):
                expected = f"{x.dtype} on {x.device}, as input"
                raise TensorTypeError(f"GRU: {name} is {tensor.dtype} on {tensor.device}, must be {expected}")
        if x.dtype is torch.bfloat16 and x.is_cpu:  # else the operator would widen them at each call
            weights = [weight.float() for weight in weights]
        layers = self._rearranged(weights)
        is_straight = not is_traced and all(map(goes_straight, chain(*layers)))
        plans: list[GruPlan] = []
        if key is not None:
            if is_straight and x.is_cpu:
                plans = layers.plans()
            self.__dict__["_ordered"] = _Kept(
                key,
                _with_arrays(layers),
                x.dtype,
                x.device,
                any(weight.requires_grad for weight in given),
                is_autocast,
                is_straight,
                plans,
                [(weight, weight.detach()) for weight in given],
            )
        return layers, is_straight, plans

    def _rearranged(self, weights: list[torch.Tensor]) -> Layers:
        kinds = 4 if self.bias else 2  # weight_ih, weight_hh, bias_ih, bias_hh, of each direction in turn
        per_layer = kinds * (2 if self.bidirectional else 1)
        layers = Layers([], [], [])
        for first in range(0, len(weights), per_layer):
            layer = weights[first : first + per_layer]
            w, r, *biases = (torch.stack([*map(_update_first, layer[kind::kinds])]) for kind in range(kinds))
            layers.w.append(w)
            layers.r.append(r)
            if biases:
                layers.b.append(torch.cat(biases, dim=1))
        return layers

    def __prepare_scriptable__(self) -> Any:
        """Called by `torch.jit.script`."""
        expected = "torch.jit.trace, torch.export or torch.compile"
        raise RuntimeError(f"GRU: torch.jit.script cannot compile what computes it, must be {expected}")

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name != "_ordered"}


def convert(model: torch.nn.Module) -> torch.nn.Module:
    """Replace every `torch.nn.GRU` of a model, in place, by a `GRU` with the same parameters and hooks.

    Returns
    -------
    torch.nn.Module
        The model; its replacement if it is a `torch.nn.GRU` itself.

    Raises
    ------
    TypeError
        Not a module.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> model = cudml.torch.convert(torch.nn.Sequential(torch.nn.GRU(4, 8)))
    >>> model
    Sequential(
      (0): GRU(4, 8)
    )
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"convert: model is {a_type(model)}, must be a torch.nn.Module")
    replaced: dict[torch.nn.Module, torch.nn.Module] = {}
    for module in list(model.modules()):
        for name, child in module._modules.items():  # named_children() leaves out the second name of a module
            if type(child) is torch.nn.GRU:
                if child not in replaced:
                    replaced[child] = _converted(child)
                setattr(module, name, replaced[child])
    return _converted(model) if type(model) is torch.nn.GRU else model


def _converted(module: torch.nn.GRU) -> GRU:
    made = GRU.__new__(GRU)
    made.__dict__.update(module.__dict__)
    return made


def _key(weights: list[torch.Tensor]) -> _Key | None:
    """A key that changes with the weights; None for weights made in inference mode, which have no version."""
    try:
        return [(id(one), one.data_ptr(), one._version, one.requires_grad) for one in weights]
    except RuntimeError:
        return None


def _with_arrays(layers: Layers) -> Layers:
    """The weights; each weight in CPU memory gets an array of its memory as an attribute."""
    for tensor in chain(*layers):
        if has_array(tensor):
            setattr(tensor, ARRAY, tensor.numpy())
    return layers


def _update_first(weight: torch.Tensor) -> torch.Tensor:
    """PyTorch's gates (reset, update, new) in ONNX's order: update, reset, hidden."""
    size = weight.shape[0] // 3
    # Slices, which an exporter to ONNX computes itself; operators of several outputs are left to the runtime.
    return torch.cat((weight[size : 2 * size], weight[:size], weight[2 * size :]))


def _autocast(input: torch.Tensor, hx: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None, bool]:
    """The input and the state of a GRU, of autocast's dtype if it is enabled, and whether it is enabled."""
    if hx is not None:
        check_tensor("GRU", hx, "hx")
    device = input.device.type
    if not torch.is_autocast_enabled(device):
        return input, hx, False
    dtype = torch.get_autocast_dtype(device)
    # Like PyTorch, which leaves float64 alone.
    floats = (torch.float16, torch.bfloat16, torch.float32)
    if input.dtype in floats:
        input = input.to(dtype)
    if hx is not None and hx.dtype in floats:
        hx = hx.to(dtype)
    return input, hx, True
