"""`topk` and `nn.GRU` of PyTorch, computed by cudml: CUDA tensors on their GPU, CPU tensors by the emulator.

Both are operators of `torch.library`, in `torch.ops.cudml`, so `torch.compile` and `torch.export` trace them.
Outputs are PyTorch's, and PyTorch's current stream orders the work. There are no gradients: a tensor that
requires one is refused.
"""

import itertools
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from cudml.devices import cuda
from cudml.errors import a_type
from cudml.functions.gru import gru
from cudml.functions.top_k import top_k

__all__ = ["GRU", "convert", "topk"]

#: The operators exist for as long as this object.
_library = torch.library.Library("cudml", "DEF")
_library.define("topk(Tensor input, SymInt k, int dim, bool largest) -> (Tensor values, Tensor indices)")
_library.define(
    "gru(Tensor x, Tensor w, Tensor r, Tensor? b, Tensor? h0, Tensor? lengths)"
    " -> (Tensor sequence, Tensor single)"
)

# Found once: looking them up takes 0.3 us of a call.
_topk_operator, _gru_operator = torch.ops.cudml.topk.default, torch.ops.cudml.gru.default
_topk_result, _from_numpy = torch.return_types.topk, torch.from_numpy

#: The types that `Tensor.numpy` supports. Other tensors are passed on as they are, and shared by DLPack.
_NUMPY_TYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
_TOPK_TYPES = {*_NUMPY_TYPES, torch.bfloat16}
_GRU_TYPES = {torch.float16, torch.float32}


#: w, r and b of a layer, as `cudml.gru` takes them.
_Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

#: Identity, address, version and `requires_grad` of each weight.
_Key = list[tuple[int, int, int, bool]]

#: The attribute of a rearranged weight that is an array of the same memory. Making one takes 1.1 us.
_ARRAY = "cudml_array"


class _Kept(NamedTuple):
    """The weights of a module that were rearranged, and what shows that they have not changed since."""

    key: _Key
    layers: list[_Weights]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    #: While these are kept, no other tensor can have the identity or the address of one of them.
    weights: list[tuple[torch.Tensor, torch.Tensor]]

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor can be computed with these weights."""
        wants_gradient = (self.requires_grad or tensor.requires_grad) and torch.is_grad_enabled()
        return not wants_gradient and tensor.dtype is self.dtype and tensor.device == self.device


def topk(
    input: torch.Tensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True
) -> Any:
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
        Accepted for compatibility with PyTorch: the results are always sorted.

    Returns
    -------
    torch.return_types.topk
        `values` of the dtype of `input` and `indices` of int64.

    Raises
    ------
    RuntimeError
        `input` requires a gradient, or `k` is out of range.
    IndexError
        `dim` is out of range.
    TypeError
        An unsupported dtype or device.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> values, indices = cudml.torch.topk(torch.tensor([1.0, 5.0, 5.0, 2.0]), 3)
    >>> values.tolist(), indices.tolist()
    ([5.0, 5.0, 2.0], [1, 2, 3])

    Notes
    -----
    NaN ranks above every number, as in PyTorch. Ties are broken by the lower index; PyTorch leaves them open.
    Source: `torch.topk`.
    """
    _check_tensor("topk", input)
    dim = -1 if dim is None else dim
    if input.dim() == 0:  # one element, which PyTorch selects whether k is 0 or 1
        values, indices = _topk_operator(input.reshape(1), max(k, 1), dim, largest)
        return _topk_result((values.reshape(()), indices.reshape(())))
    return _topk_result(_topk_operator(input, k, dim, largest))


class GRU(torch.nn.RNNBase):
    """`torch.nn.GRU` for inference: the same arguments, parameters and results.

    Several layers, both directions, `batch_first`, unbatched input, an initial state, and packed sequences;
    float32 and float16. The parameters are those of `torch.nn.GRU`.

    Raises
    ------
    RuntimeError
        From a call: a tensor requires a gradient, or its size does not fit.
    TypeError
        From a call: an unsupported dtype or device.

    Notes
    -----
    Weights are rearranged in ONNX's order at the first call, and again when one is replaced or moved, or its
    version counter changes. The counter ignores writes through `.data`: call `flatten_parameters()` after
    these. Source: `torch.nn.GRU`.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> layer = cudml.torch.GRU(4, 8).requires_grad_(False)
    >>> output, state = layer(torch.zeros(5, 2, 4))
    >>> output.shape, state.shape
    (torch.Size([5, 2, 8]), torch.Size([1, 2, 8]))
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if "proj_size" in options:  # which the base class has for LSTM
            raise ValueError("GRU: proj_size is for LSTM, must be left out")
        super().__init__("GRU", *args, **options)

    def flatten_parameters(self) -> None:
        """Rearrange the weights again at the next call."""
        self.__dict__.pop("_ordered", None)

    def forward(self, input: Any, hx: torch.Tensor | None = None) -> tuple[Any, torch.Tensor]:
        """The state after every step, and the last state of each layer and direction."""
        if not isinstance(input, PackedSequence):
            return self._forward_padded(input, hx)
        padded, lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        if hx is not None:
            hx = self.permute_hidden(hx, input.sorted_indices)
        output, state = self._compute(padded, hx, lengths.to(input.data.device, torch.uint32))
        output = pack_padded_sequence(output, lengths).data
        packed = PackedSequence(output, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self.permute_hidden(state, input.unsorted_indices)

    def _forward_padded(
        self, input: torch.Tensor, hx: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check_tensor("GRU", input)
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: input has {input.dim()} dimensions, must have 2 or 3")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"GRU: hx has {hx.dim()} dimensions, must have {input.dim()}, as input")
        if input.dim() == 2:
            output, state = self._compute(input.unsqueeze(1), None if hx is None else hx.unsqueeze(1))
            return output.squeeze(1), state.squeeze(1)
        output, state = self._compute(input.transpose(0, 1) if self.batch_first else input, hx)
        return output.transpose(0, 1) if self.batch_first else output, state

    def _compute(
        self, x: torch.Tensor, hx: torch.Tensor | None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All layers, of x (T, N, I) and hx (layers * D, N, H)."""
        steps, batch, inputs = x.shape
        if steps == 0:
            raise RuntimeError("GRU: input has no steps, must have at least one")
        if inputs != self.input_size:
            raise RuntimeError(f"GRU: input.size(-1) is {inputs}, must be input_size = {self.input_size}")
        layers = self._in_onnx_order(x, hx)
        num_directions = 2 if self.bidirectional else 1
        shape = (self.num_layers * num_directions, batch, self.hidden_size)
        if hx is not None and hx.shape != shape:
            raise RuntimeError(f"GRU: hx has size {tuple(hx.shape)}, must have {shape}")
        states = []
        for layer, (w, r, b) in enumerate(layers):
            first = layer * num_directions
            h0 = None if hx is None else hx[first : first + num_directions]
            if layer and self.dropout and self.training:
                x = torch.dropout(x, self.dropout, True)
            x, single = _gru_operator(x, w, r, b, h0, lengths)
            states.append(single)
        return x, states[0] if len(states) == 1 else torch.cat(states)

    def _in_onnx_order(self, x: torch.Tensor, hx: torch.Tensor | None) -> list[_Weights]:
        """The weights of every layer, rearranged again only if one has changed; checked with the input."""
        own = self._parameters  # finds a weight faster than getattr, unless it is parametrised
        names = self._flat_weights_names
        weights = [own[name] if name in own else getattr(self, name) for name in names]
        key = None if torch.compiler.is_compiling() else _key(weights)
        kept: _Kept | None = self.__dict__.get("_ordered")
        is_known = kept is not None and kept.key == key
        if kept is not None and is_known and kept.takes(x) and (hx is None or kept.takes(hx)):
            return kept.layers
        named = dict(zip(names, weights, strict=True))
        _refuse_gradients(input=x, hx=hx, **named)
        _check_type("GRU", "input", x, _GRU_TYPES)
        for name, tensor in {"hx": hx, **named}.items():
            if tensor is not None and (tensor.dtype is not x.dtype or tensor.device != x.device):
                expected = f"{x.dtype} on {x.device}, as input"
                raise TypeError(f"GRU: {name} is {tensor.dtype} on {tensor.device}, must be {expected}")
        layers = self._rearranged(weights)
        if key is not None:
            self.__dict__["_ordered"] = _Kept(
                key,
                _with_arrays(layers),
                x.dtype,
                x.device,
                any(weight.requires_grad for weight in weights),
                [(weight, weight.detach()) for weight in weights],
            )
        return layers

    def _rearranged(self, weights: list[torch.Tensor]) -> list[_Weights]:
        kinds = 4 if self.bias else 2  # weight_ih, weight_hh, bias_ih, bias_hh, of each direction in turn
        per_layer = kinds * (2 if self.bidirectional else 1)
        layers = []
        for first in range(0, len(weights), per_layer):
            layer = weights[first : first + per_layer]
            w, r, *biases = (torch.stack([*map(_update_first, layer[kind::kinds])]) for kind in range(kinds))
            layers.append((w, r, torch.cat(biases, dim=1) if biases else None))
        return layers

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name != "_ordered"}


def convert(model: torch.nn.Module) -> torch.nn.Module:
    """Replace every `torch.nn.GRU` of a model, in place, by a `GRU` with the same parameters and hooks.

    Returns
    -------
    torch.nn.Module
        The model; its replacement if it is a `torch.nn.GRU` itself.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> model = cudml.torch.convert(torch.nn.Sequential(torch.nn.GRU(4, 8)))
    >>> model
    Sequential(
      (0): GRU(4, 8)
    )
    """
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
    """What changes with the weights; None if nothing does, because they were made in inference mode."""
    try:
        return [(id(one), one.data_ptr(), one._version, one.requires_grad) for one in weights]
    except RuntimeError:
        return None


def _with_arrays(layers: list[_Weights]) -> list[_Weights]:
    """The weights; each one in CPU memory has an array of its memory."""
    for tensor in itertools.chain(*layers):
        if tensor is not None and _has_array(tensor):
            setattr(tensor, _ARRAY, tensor.numpy())
    return layers


def _update_first(weight: torch.Tensor) -> torch.Tensor:
    """PyTorch's gates (reset, update, new) in ONNX's order: update, reset, hidden."""
    reset, update, new = weight.chunk(3)
    return torch.cat((update, reset, new))


def _check_tensor(function: str, input: Any) -> None:
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{function}: input is {a_type(input)}, must be a torch.Tensor")


def _refuse_gradients(**tensors: torch.Tensor | None) -> None:
    if torch.is_grad_enabled():
        names = [name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad]
        if names:
            raise RuntimeError(
                f"cudml computes no gradients, and {', '.join(names)} require{'s' * (len(names) == 1)} one: "
                "call it under torch.inference_mode() or torch.no_grad(), or detach it"
            )


def _check_type(function: str, name: str, tensor: torch.Tensor, types: Collection[torch.dtype]) -> None:
    if tensor.dtype not in types:
        expected = ", ".join(sorted(str(dtype) for dtype in types))
        raise TypeError(f"{function}: {name} is of {tensor.dtype}, must be one of {expected}")


def _has_array(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _NUMPY_TYPES and tensor.is_cpu


def _arrays(*tensors: torch.Tensor | None) -> list[Any]:
    """The arrays that cudml takes for tensors."""
    arrays: list[Any] = []
    for tensor in tensors:
        array: Any = tensor
        if tensor is not None and (array := tensor.__dict__.get(_ARRAY)) is None:
            # The caller has seen that no gradient is wanted.
            plain = tensor.detach() if tensor.requires_grad else tensor
            try:
                array = plain.numpy() if tensor.is_cpu else plain
            except TypeError:  # of a type that NumPy lacks; comparing types takes longer
                array = plain
        arrays.append(array)
    return arrays


def _stream(tensor: torch.Tensor) -> int | None:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


def _graph_memory(tensor: torch.Tensor) -> AbstractContextManager[None]:
    """A context in which scratch comes from PyTorch's allocator while it captures a graph."""
    if not tensor.is_cuda or not torch.cuda.is_current_stream_capturing():
        return nullcontext()
    device, place = cuda.get_device(tensor.device.index), tensor.device
    return device.allocating(lambda num_bytes: torch.empty(num_bytes, dtype=torch.uint8, device=place))


def _topk(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if input.requires_grad:
        _refuse_gradients(input=input)
        input = input.detach()
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    if input.is_cpu and input.dtype in _NUMPY_TYPES:
        # Sharing new arrays takes a third of the time of making tensors and sharing these.
        try:
            values, indices = top_k(input.numpy(), k, axis=dim, mode=mode, nan="greatest")
        except ValueError:
            _topk_empty(input, k, dim, largest)  # raises PyTorch's error
            raise
        return _from_numpy(values), _from_numpy(indices)
    out = _topk_empty(input, k, dim, largest)
    with _graph_memory(input):
        top_k(input, k, axis=dim, mode=mode, nan="greatest", out=out, stream=_stream(input))
    return out


def _topk_empty(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    _check_type("topk", "input", input, _TOPK_TYPES)
    shape = list(input.shape)
    if not -len(shape) <= dim < len(shape):
        raise IndexError(f"topk: dim is {dim}, must be from {-len(shape)} to {len(shape) - 1}")
    size = shape[dim]
    torch._check(k >= 0, lambda: f"topk: k is {k}, must not be negative")
    torch._check(k <= size, lambda: f"topk: k is {k}, must be at most {size}, the size of dim {dim}")
    shape[dim] = k
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int64)


def _gru(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.is_cpu and r.shape[0] == 1:  # as for topk; the states of one direction lie as PyTorch's do
        states, single = gru(*_arrays(x, w, r, b, h0, lengths), linear_before_reset=True)
        return _from_numpy(states[:, 0]), _from_numpy(single)
    sequence, single = _gru_empty(x, w, r)
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    states = sequence.view(steps, batch, num_directions, hidden).transpose(1, 2)
    with _graph_memory(x):
        gru(
            *_arrays(x, w, r, b, h0, lengths),
            direction="bidirectional" if num_directions == 2 else "forward",
            linear_before_reset=True,
            out=tuple(_arrays(states, single)),
            stream=_stream(x),
        )
    return sequence, single


def _gru_empty(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    return x.new_empty(steps, batch, num_directions * hidden), x.new_empty(num_directions, batch, hidden)


def _refuse(function: str, *names: str) -> Callable[..., Any]:
    """An operator for tensors that no other implementation takes."""

    def refuse(*arguments: Any) -> Any:
        for name, tensor in zip(names, arguments, strict=False):
            is_plain = tensor is None or (tensor.layout is torch.strided and not tensor.is_quantized)
            if not is_plain or tensor.device.type not in ("cpu", "cuda"):
                got = f"of {tensor.dtype}, {tensor.layout} and on {tensor.device}"
                raise TypeError(
                    f"{function}: {name} is {got}, must be dense, not quantized, and on a CPU or a CUDA GPU"
                )
        raise TypeError(f"{function}: tensors are on different devices")

    return refuse


_library.impl("topk", _refuse("topk", "input"), "CompositeExplicitAutograd")
_library.impl("gru", _refuse("gru", "x", "w", "r", "b", "h0", "lengths"), "CompositeExplicitAutograd")
for _name, _compute, _empty in (("topk", _topk, _topk_empty), ("gru", _gru, _gru_empty)):
    for _backend in ("CPU", "CUDA"):
        _library.impl(_name, _compute, _backend)
        # Without this, a fallback looks for gradients, which do not exist.
        _library.impl(_name, torch.library.fallthrough_kernel, f"Autograd{_backend}")
    torch.library.register_fake(f"cudml::{_name}", _empty, lib=_library)
