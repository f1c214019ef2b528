"""`topk` and `nn.GRU` of PyTorch, computed by cudml: CUDA tensors on their GPU, CPU tensors by the emulator.

Both are operators of `torch.library`, in `torch.ops.cudml`, so `torch.compile` and `torch.export` trace them.
Outputs are PyTorch's, and PyTorch's current stream orders the work. There are no gradients: a tensor that
requires one is refused.
"""

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from math import inf
from operator import and_, index, or_
from typing import Any, Literal, NamedTuple

import numpy as np

from cudml.devices import Program, cuda
from cudml.errors import a_type, not_installed
from cudml.executable import Recent
from cudml.functions import gru as gru_function
from cudml.functions import top_k as top_k_function
from cudml.functions.calls import MAX_CALLS, ArrayFunction
from cudml.functions.gru import gru
from cudml.functions.top_k import top_k

try:
    import torch
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
    from torch.overrides import has_torch_function_unary
except ModuleNotFoundError as error:
    raise not_installed("torch", "torch", error) from None

__all__ = ["GRU", "convert", "topk"]

#: The operators exist for as long as this object.
_library = torch.library.Library("cudml", "DEF")
_library.define("topk(Tensor input, SymInt k, int dim, bool largest) -> (Tensor values, Tensor indices)")
_library.define(
    "topk_ragged(Tensor input, Tensor lengths, SymInt k, int dim, bool largest)"
    " -> (Tensor values, Tensor indices)"
)
_library.define(
    "topk_into(Tensor input, Tensor? lengths, SymInt k, int dim, bool largest,"
    " Tensor(a!) values, Tensor(b!) indices) -> ()"
)
_library.define(
    "gru(Tensor x, Tensor w, Tensor r, Tensor? b, Tensor? h0, Tensor? lengths)"
    " -> (Tensor sequence, Tensor single)"
)

# Found once: looking them up takes 0.3 us of a call.
_topk_operator, _gru_operator = torch.ops.cudml.topk.default, torch.ops.cudml.gru.default
_topk_result, _from_numpy = torch.return_types.topk, torch.from_numpy
_INT64 = torch.int64


def _bits_of_keys(*names: str) -> int:
    """Keys of PyTorch's dispatcher as bits; none if this release does not tell them."""
    keys = torch._C
    try:
        bits = [keys.DispatchKeySet(getattr(keys.DispatchKey, name)).raw_repr() for name in names]
        return int(reduce(or_, bits))
    except AttributeError:
        return 0


#: Keys of a dense CUDA tensor, and of a thread that does nothing special. With these alone, the dispatcher
#: calls the operators' CUDA kernels: what wraps tensors, or traces or transforms calls, adds others.
_STRAIGHT_KEYS = _bits_of_keys("CUDA", "ADInplaceOrView", "AutogradCUDA", "AutocastCUDA", "BackendSelect")

#: The types that `Tensor.numpy` supports. Other tensors are passed on as they are, and shared by DLPack.
_NUMPY_TYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
_TOPK_TYPES = {*_NUMPY_TYPES, torch.bfloat16}
_GRU_TYPES = {torch.float16, torch.bfloat16, torch.float32}
_LENGTH_TYPES = {kind for kind in _NUMPY_TYPES - {torch.bool} if not kind.is_floating_point}
_INDEX_TYPES = {torch.int32, torch.int64}


#: w, r and b of a layer, as `cudml.gru` takes them.
_Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

#: Identity, address, version and `requires_grad` of each weight.
_Key = list[tuple[int, int, int, bool]]

#: The attribute of a rearranged weight that is an array of the same memory. Making one takes 1.1 us.
_ARRAY = "cudml_array"


class _Planned(NamedTuple):
    """A call of an array function for CUDA tensors of certain layouts."""

    launch: Program
    #: By input, the bits that its address must not have.
    masks: tuple[int, ...]
    scratch_bytes: int
    #: Those of the first output.
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Operands(Recent[int, Any]):
    """Operands of programs by address: PyTorch gives the same memory again and again."""

    def __missing__(self, address: int) -> Any:
        made = self[address] = cuda.pointer(address)
        return made


class _Streams(Recent[int, cuda.StreamHandle]):
    """Streams by their handles."""

    def __missing__(self, handle: int) -> cuda.StreamHandle:
        made = self[handle] = cuda.StreamHandle(handle)
        return made


_operands, _streams = _Operands(4096), _Streams(256)

#: Calls on CUDA tensors by the tensors' layouts and the other arguments, as PyTorch has them; None for those
#: that take more than addresses. To share the tensors by DLPack takes longer than the whole call.
_planned: Recent[Hashable, _Planned | None] = Recent(MAX_CALLS)


class _Kept(NamedTuple):
    """The weights of a module that were rearranged, and what shows that they have not changed since."""

    key: _Key
    layers: list[_Weights]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    #: Whether autocast has made them of this type, whatever theirs is.
    is_autocast: bool
    #: While these are kept, no other tensor can have the identity or the address of one of them.
    weights: list[tuple[torch.Tensor, torch.Tensor]]

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor can be computed with these weights."""
        wants_gradient = (self.requires_grad or tensor.requires_grad) and torch.is_grad_enabled()
        return not wants_gradient and tensor.dtype is self.dtype and tensor.device == self.device


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
    _check_tensor("topk", input)
    dim = -1 if dim is None else dim
    if largest is not True and largest is not False:
        _check_flag("topk", "largest", largest)
    try:
        if lengths is not None or out is not None:
            return _topk_of_rows(input, k, dim, largest, lengths, out)
        if input.dim() == 0:  # one element, which PyTorch selects whether k is 0 or 1
            values, indices = _topk_operator(input.reshape(1), 1 if k == 0 else k, dim, largest)
            return _topk_result((values.reshape(()), indices.reshape(())))
        if input.is_cuda and type(k) is type(dim) is int and type(largest) is bool and _goes_straight(input):
            return _topk_result(_topk_on_gpu(input, k, dim, largest))
        return _topk_result(_topk_operator(input, k, dim, largest))
    except RuntimeError:
        # PyTorch's own error about what is no 64-bit integer names neither the function nor what is allowed.
        _check_numbers(input, k, dim)
        raise


class GRU(torch.nn.RNNBase):
    """`torch.nn.GRU` for inference: the same arguments, parameters and results.

    Several layers, both directions, `batch_first`, unbatched input, an initial state, and packed sequences;
    float32, float16 and bfloat16. The parameters are those of `torch.nn.GRU`.

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
    these.

    Under `torch.autocast`, on a CPU as on a GPU, input, state and weights are rounded to the dtype of
    autocast, which the results have. All layers of bfloat16 are computed in float32 from its values; only
    the results are rounded. Source: `torch.nn.GRU`.

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
        try:
            super().__init__("GRU", *args, **options)
        except (TypeError, ValueError) as error:
            given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())])
            raise type(error)(f"GRU({given}): {error}") from None

    def flatten_parameters(self) -> None:
        """Rearrange the weights again at the next call."""
        self.__dict__.pop("_ordered", None)

    def forward(self, input: Any, hx: torch.Tensor | None = None) -> tuple[Any, torch.Tensor]:
        """The state after every step, and the last state of each layer and direction."""
        if not isinstance(input, PackedSequence):
            return self._forward_padded(input, hx)
        padded, lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        if hx is not None:
            _check_tensor("GRU", hx, "hx")
            self._check_hidden(hx, padded.shape[1])
            hx = self.permute_hidden(hx, input.sorted_indices)
        output, state = self._compute(*_autocast(padded, hx), lengths.to(input.data.device, torch.uint32))
        output = pack_padded_sequence(output, lengths).data
        packed = PackedSequence(output, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self.permute_hidden(state, input.unsorted_indices)

    def _forward_padded(
        self, input: torch.Tensor, hx: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check_tensor("GRU", input)
        input, hx = _autocast(input, hx)
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
        if not torch.jit.is_tracing():  # where sizes are tensors, which no branch can see
            self._check_sizes(x, hx)
        layers = self._in_onnx_order(x, hx)
        num_directions = 2 if self.bidirectional else 1
        dtype = x.dtype
        if dtype is torch.bfloat16:
            x, hx = x.float(), None if hx is None else hx.float()
        states = []
        for layer, (w, r, b) in enumerate(layers):
            first = layer * num_directions
            h0 = None if hx is None else hx[first : first + num_directions]
            if layer and self.dropout and self.training:
                x = torch.dropout(x, self.dropout, True)
            x, single = _gru_operator(x, w, r, b, h0, lengths)
            states.append(single)
        state = states[0] if len(states) == 1 else torch.cat(states)
        return (x.to(dtype), state.to(dtype)) if dtype is torch.bfloat16 else (x, state)

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

    def _in_onnx_order(self, x: torch.Tensor, hx: torch.Tensor | None) -> list[_Weights]:
        """The weights of every layer, rearranged again only if one has changed; checked with the input."""
        own = self._parameters  # finds a weight faster than getattr, unless it is parametrised
        names = self._flat_weights_names
        given = weights = [own[name] if name in own else getattr(self, name) for name in names]
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        key = None if is_traced else _key(weights)
        kept: _Kept | None = self.__dict__.get("_ordered")
        is_autocast = torch.is_autocast_enabled(x.device.type)
        is_known = kept is not None and kept.key == key is not None and kept.is_autocast is is_autocast
        if kept is not None and is_known and kept.takes(x) and (hx is None or kept.takes(hx)):
            return kept.layers
        named = dict(zip(names, weights, strict=True))
        _refuse_gradients("GRU", input=x, hx=hx, **named)
        _check_type("GRU", "input", x, _GRU_TYPES)
        if is_autocast:
            weights = [weight.to(x.dtype) for weight in weights]
            named = {}
        for name, tensor in {"hx": hx, **named}.items():
            if tensor is not None and (tensor.dtype is not x.dtype or tensor.device != x.device):
                expected = f"{x.dtype} on {x.device}, as input"
                raise TypeError(f"GRU: {name} is {tensor.dtype} on {tensor.device}, must be {expected}")
        own_weights = [weight.float() for weight in weights] if x.dtype is torch.bfloat16 else weights
        layers = self._rearranged(own_weights)
        if key is not None:
            self.__dict__["_ordered"] = _Kept(
                key,
                _with_arrays(layers),
                x.dtype,
                x.device,
                any(weight.requires_grad for weight in given),
                is_autocast,
                [(weight, weight.detach()) for weight in given],
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


def _autocast(input: torch.Tensor, hx: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The input and the state of a GRU, of autocast's dtype if it is enabled."""
    if hx is not None:
        _check_tensor("GRU", hx, "hx")
    device = input.device.type
    if not torch.is_autocast_enabled(device):
        return input, hx
    dtype = torch.get_autocast_dtype(device)
    # As PyTorch, which leaves float64 alone.
    floats = (torch.float16, torch.bfloat16, torch.float32)
    if input.dtype in floats:
        input = input.to(dtype)
    if hx is not None and hx.dtype in floats:
        hx = hx.to(dtype)
    return input, hx


def _check_tensor(function: str, tensor: Any, name: str = "input") -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}: {name} is {a_type(tensor)}, must be a torch.Tensor")


def _check_flag(function: str, name: str, value: Any) -> None:
    if not isinstance(value, (bool, torch.SymBool, np.bool_)):
        raise TypeError(f"{function}: {name} is {value!r}, must be True or False")


def _check_numbers(input: torch.Tensor, k: Any, dim: Any) -> None:
    """Raise what is wrong with `k` and `dim`, if anything is."""
    for name, value in (("k", k), ("dim", dim)):
        try:
            index(value)
        except TypeError:
            raise TypeError(f"topk: {name} is {value!r}, must be an integer") from None
    _topk_empty(input.reshape(input.shape or 1), index(k), index(dim), True)


def _goes_straight(tensor: torch.Tensor) -> bool:
    """Whether an operator on a CUDA tensor would do nothing but call the kernel that is registered for it.

    The dispatcher takes a third of the time of a `topk`, to find that out.
    """
    torch_c = torch._C
    return (
        _STRAIGHT_KEYS != 0
        and not torch.compiler.is_compiling()
        and not has_torch_function_unary(tensor)
        and not torch_c._autograd._profiler_enabled()
        and not torch_c._dispatch_keys(tensor).raw_repr() & ~_STRAIGHT_KEYS
        and not torch_c._dispatch_tls_local_include_set().raw_repr() & ~_STRAIGHT_KEYS
    )


def _refuse_gradients(function: str, **tensors: torch.Tensor | None) -> None:
    if torch.is_grad_enabled():
        names = [name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad]
        if names:
            raise RuntimeError(
                f"{function}: cudml computes no gradients, and {', '.join(names)} "
                f"require{'s' * (len(names) == 1)} one: "
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


def _public_current_stream(number: int) -> int:
    return int(torch.cuda.current_stream(number).cuda_stream)


#: The handle of PyTorch's current stream of a GPU. The public way makes an object for each call; the other is
#: what TorchInductor's and Triton's launchers call, and a build without CUDA lacks it.
_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_current_stream)


def _is_captured(number: int, stream: int) -> bool:
    return stream != 0 and cuda.get_device(number).is_captured(stream)


def _graph_memory(like: torch.Tensor) -> AbstractContextManager[None]:
    """A context in which scratch comes from PyTorch's allocator, which captures a graph."""

    def allocate(num_bytes: int) -> torch.Tensor:
        return like.new_empty(num_bytes, dtype=torch.uint8)

    return cuda.get_device(like.get_device()).allocating(allocate)


def _topk_on_gpu(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    number = input.get_device()
    stream = _current_stream(number)
    key = input.shape, input.stride(), input.dtype, number, k, dim, largest
    planned = _planned.get(key)
    if planned is None or input.requires_grad or (stream and _is_captured(number, stream)):
        return _topk_anew(input, k, dim, largest, stream, key)
    launch, (mask,), scratch_bytes, shape, strides = planned
    place = input.data_ptr()
    if place & mask:
        return _topk_anew(input, k, dim, largest, stream, key)
    values = input.new_empty_strided(shape, strides)
    indices = input.new_empty_strided(shape, strides, dtype=_INT64)
    operands = _operands[place], _operands[values.data_ptr()], _operands[indices.data_ptr()]
    if scratch_bytes:
        # It may be given back at once: PyTorch reuses it in the stream's order.
        scratch = input.new_empty(scratch_bytes, dtype=torch.uint8)
        launch(operands, _operands[scratch.data_ptr()], _streams[stream])
    else:
        launch(operands, None, _streams[stream])
    return values, indices


def _topk_anew(
    input: torch.Tensor, k: int, dim: int, largest: bool, stream: int, key: Hashable
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_topk_on_gpu` by the array function, for a call that is not known yet or is captured in a graph."""
    if input.requires_grad:
        _refuse_gradients("topk", input=input)
        input = input.detach()
    out = _topk_empty(input, k, dim, largest)
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    is_captured = _is_captured(input.get_device(), stream)
    with _graph_memory(input) if is_captured else nullcontext():
        top_k(input, k, axis=dim, mode=mode, nan="greatest", out=out, stream=stream)
    if not is_captured and key not in _planned:
        _remember(key, top_k_function._top_k, (input,), out, (k, dim, mode, "greatest"), stream)
    return out


def _remember(
    key: Hashable,
    function: ArrayFunction,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    options: tuple[Any, ...],
    stream: int,
    names: tuple[str, ...] = (),
) -> None:
    """Keep the call of a function that was made with these arguments."""
    call = function.planned(inputs, outputs, options, stream, names)
    scratch_bytes = 0 if call.plan is None else call.plan.temporary_bytes
    layout = tuple(outputs[0].shape), outputs[0].stride()
    known = _Planned(call.launch, call.masks[: len(inputs)], scratch_bytes, *layout)
    _planned[key] = known if call.is_launch else None


def _topk(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if input.requires_grad:
        _refuse_gradients("topk", input=input)
        input = input.detach()
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    if input.dtype in _NUMPY_TYPES:
        # Sharing new arrays takes a third of the time of making tensors and sharing these.
        try:
            values, indices = top_k(input.numpy(), k, axis=dim, mode=mode, nan="greatest")
        except ValueError:
            _topk_empty(input, k, dim, largest)  # raises PyTorch's error
            raise
        return _from_numpy(values), _from_numpy(indices)
    out = _topk_empty(input, k, dim, largest)
    top_k(input, k, axis=dim, mode=mode, nan="greatest", out=out)
    return out


def _topk_of_rows(
    input: torch.Tensor, k: int, dim: int, largest: bool, lengths: Any, out: Any
) -> torch.return_types.topk:
    """`topk` of rows of given lengths, or into given tensors."""
    if input.dim() == 0:
        raise RuntimeError("topk: input has no dimension, must have one for lengths= and out=")
    _check_dim(input.dim(), dim)
    if lengths is not None:
        lengths = _lengths_of_rows(input, dim, lengths)
    if out is None:
        return _topk_result(torch.ops.cudml.topk_ragged.default(input, lengths, k, dim, largest))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"topk: out is {a_type(out)}, must be a pair of tensors: values, indices")
    values, indices = out
    for name, tensor in (("out[0]", values), ("out[1]", indices)):
        _check_tensor("topk", tensor, name)
    torch.ops.cudml.topk_into.default(input, lengths, k, dim, largest, values, indices)
    return _topk_result((values, indices))


def _check_dim(rank: int, dim: int) -> None:
    if not -rank <= dim < rank:
        raise IndexError(f"topk: dim is {dim}, must be from {-rank} to {rank - 1}")


def _lengths_of_rows(input: torch.Tensor, dim: int, lengths: Any) -> torch.Tensor:
    """The lengths, one for each row along a dimension that exists."""
    if not isinstance(lengths, torch.Tensor):
        raise TypeError(f"topk: lengths is {a_type(lengths)}, must be a torch.Tensor of an integer type")
    _check_type("topk", "lengths", lengths, _LENGTH_TYPES)
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


def _topk_ragged(
    input: torch.Tensor, lengths: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _topk_empty(input, k, dim, largest)
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
    """Both operators on tensors of a CPU and of CUDA."""
    _topk_into_checked(input, lengths, k, dim, largest, values, indices)
    mode: Literal["largest", "smallest"] = "largest" if largest else "smallest"
    options: dict[str, Any] = {"axis": dim, "mode": mode, "nan": "greatest"}
    if input.is_cpu:
        a, counts, *out = _arrays(input, lengths, values, indices)
        top_k(a, k, lengths=counts, out=(out[0], out[1]), **options)
        return
    # A tensor that requires a gradient, which nobody wants here, cannot be shared.
    tensors = (input, lengths, values, indices)
    given: list[Any] = [one.detach() if one is not None and one.requires_grad else one for one in tensors]
    stream = _current_stream(input.get_device())
    is_captured = _is_captured(input.get_device(), stream)
    with _graph_memory(input) if is_captured else nullcontext():
        top_k(given[0], k, lengths=given[1], out=(given[2], given[3]), stream=stream, **options)


def _topk_into_checked(
    input: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    dim: int,
    largest: bool,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """The checks of `topk_into`, which are all that tracing it does."""
    _refuse_gradients("topk", input=input, **{"out[0]": values})
    shape = _topk_shape(input, k, dim)
    _check_type("topk", "out[0]", values, {input.dtype})
    _check_type("topk", "out[1]", indices, _INDEX_TYPES)
    for name, tensor in (("out[0]", values), ("out[1]", indices)):
        if tensor.device != input.device:
            raise TypeError(f"topk: {name} is on {tensor.device}, must be on {input.device}, as input")
        if list(tensor.shape) != shape:
            raise RuntimeError(f"topk: {name} is of shape {tuple(tensor.shape)}, must be {tuple(shape)}")


def _topk_ragged_empty(
    input: torch.Tensor, lengths: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients("topk", input=input)
    return _topk_empty(input, k, dim, largest)


def _topk_shape(input: torch.Tensor, k: int, dim: int) -> list[int]:
    """The shape of the results."""
    _check_type("topk", "input", input, _TOPK_TYPES)
    _check_dim(input.dim(), dim)
    shape = list(input.shape)
    size = shape[dim]
    message = f"must be from 0 to {size}, the size of dim {dim}"
    torch._check(k >= 0, lambda: f"topk: k is {k}, {message}")
    torch._check(k <= size, lambda: f"topk: k is {k}, {message}")
    shape[dim] = k
    return shape


def _topk_empty(input: torch.Tensor, k: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    shape = _topk_shape(input, k, dim)
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int64)


def _gru(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if r.shape[0] == 1:  # as for topk; the states of one direction lie as PyTorch's do
        states, single = gru(*_arrays(x, w, r, b, h0, lengths), linear_before_reset=True)
        return _from_numpy(states[:, 0]), _from_numpy(single)
    sequence, single = _gru_empty(x, w, r)
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    states = sequence.view(steps, batch, num_directions, hidden).transpose(1, 2)
    gru(
        *_arrays(x, w, r, b, h0, lengths),
        direction=_direction(r),
        linear_before_reset=True,
        out=tuple(_arrays(states, single)),
    )
    return sequence, single


def _gru_on_gpu(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.is_cpu:
        return _gru(x, w, r, b, h0, lengths)  # which refuses the others
    number = x.get_device()
    stream = _current_stream(number)
    is_captured = stream != 0 and cuda.get_device(number).is_captured(stream)
    named = zip(gru_function._gru.input_names, (x, w, r, b, h0, lengths), strict=True)
    given = {name: tensor for name, tensor in named if tensor is not None}
    names, inputs = tuple(given), given.values()
    sequence, single = _gru_empty(x, w, r)
    key = names, *[(one.shape, one.stride(), one.dtype, one.get_device()) for one in inputs]
    planned = _planned.get(key)
    places = [one.data_ptr() for one in inputs]
    if planned is not None and not is_captured and not any(map(and_, places, planned.masks)):
        scratch = x.new_empty(planned.scratch_bytes, dtype=torch.uint8)
        written = sequence.data_ptr(), single.data_ptr()
        operands = [_operands[place] for place in (*places, *written)]
        planned.launch(operands, _operands[scratch.data_ptr()], _streams[stream])
        return sequence, single
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    out = sequence.view(steps, batch, num_directions, hidden).transpose(1, 2), single
    arrays = dict(zip(names, _arrays(*inputs), strict=True))
    with _graph_memory(x) if is_captured else nullcontext():
        gru(**arrays, direction=_direction(r), linear_before_reset=True, out=out, stream=stream)
    if not is_captured and key not in _planned:
        options = names, _direction(r), None, True, inf
        _remember(key, gru_function._gru, (*arrays.values(),), out, options, stream, names)
    return sequence, single


def _direction(r: torch.Tensor) -> Literal["forward", "bidirectional"]:
    return "bidirectional" if r.shape[0] == 2 else "forward"


def _gru_empty(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs before they are computed; also what `torch.compile` traces."""
    steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    return x.new_empty(steps, batch, num_directions * hidden), x.new_empty(num_directions, batch, hidden)


#: What `torch.vmap` gives a batching rule: the dimension of the batch in each argument.
_Dims = Sequence[int | None]


def _batch_first(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _topk_batched(
    info: Any, dims: _Dims, input: torch.Tensor, k: int, dim: int, largest: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    input = _batch_first(input, dims[0], info.batch_size)
    return _topk_operator(input, k, _dim_of_one(input, dim), largest), (0, 0)


def _topk_ragged_batched(
    info: Any,
    dims: _Dims,
    input: torch.Tensor,
    lengths: torch.Tensor,
    k: int,
    dim: int,
    largest: bool,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    input, lengths = (
        _batch_first(tensor, place, info.batch_size)
        for tensor, place in zip((input, lengths), dims, strict=False)
    )
    one = _dim_of_one(input, dim)
    return torch.ops.cudml.topk_ragged.default(input, lengths, k, one, largest), (0, 0)


def _topk_into_batched(
    info: Any,
    dims: _Dims,
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
    input = _batch_first(input, dims[0], size)
    if lengths is not None:
        lengths = _batch_first(lengths, dims[1], size)
    out = _batch_first(values, dims[-2], size), _batch_first(indices, dims[-1], size)
    torch.ops.cudml.topk_into.default(input, lengths, k, _dim_of_one(input, dim), largest, *out)
    return None, None


def _dim_of_one(batch: torch.Tensor, dim: int) -> int:
    """A dimension of one tensor of a batch, counted from the end; out of range if it is."""
    rank = batch.dim() - 1
    _check_dim(rank, dim)
    return dim if dim < 0 else dim - rank


def _gru_batched(
    info: Any,
    dims: _Dims,
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor | None,
    lengths: torch.Tensor | None,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    """Batches of sequences as one call with more of them; one call for each of several weights."""
    size = info.batch_size
    given = (x, w, r, b, h0, lengths)
    if any(place is not None for place in dims[1:4]):
        results = [
            _gru_operator(
                *(
                    one if one is None or place is None else one.select(place, number)
                    for one, place in zip(given, dims, strict=True)
                )
            )
            for number in range(size)
        ]
        sequences, singles = zip(*results, strict=True)
        return (torch.stack(sequences), torch.stack(singles)), (0, 0)
    joined = []
    for one, place, axis in zip((x, h0, lengths), (dims[0], dims[4], dims[5]), (1, 1, 0), strict=True):
        if one is not None:  # the batch before the sequences
            one = _batch_first(one, place, size).movedim(0, axis).flatten(axis, axis + 1)
        joined.append(one)
    sequence, single = _gru_operator(joined[0], w, r, b, *joined[1:])
    return (sequence.unflatten(1, (size, -1)), single.unflatten(1, (size, -1))), (1, 1)


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
for _name, _names in (("topk_ragged", ("input", "lengths")), ("topk_into", ("input", "lengths"))):
    _library.impl(_name, _refuse("topk", *_names), "CompositeExplicitAutograd")
_library.impl("gru", _refuse("gru", "x", "w", "r", "b", "h0", "lengths"), "CompositeExplicitAutograd")
for _name, _computes, _empty in (
    ("topk", {"CPU": _topk, "CUDA": _topk_on_gpu}, _topk_empty),
    ("topk_ragged", {"CPU": _topk_ragged, "CUDA": _topk_ragged}, _topk_ragged_empty),
    ("topk_into", {"CPU": _topk_into, "CUDA": _topk_into}, _topk_into_checked),
    ("gru", {"CPU": _gru, "CUDA": _gru_on_gpu}, _gru_empty),
):
    for _backend, _compute in _computes.items():
        _library.impl(_name, _compute, _backend)
        # Without this, a fallback looks for gradients, which do not exist.
        _library.impl(_name, torch.library.fallthrough_kernel, f"Autograd{_backend}")
    torch.library.register_fake(f"cudml::{_name}", _empty, lib=_library)
for _name, _batched in (
    ("topk", _topk_batched),
    ("topk_ragged", _topk_ragged_batched),
    ("topk_into", _topk_into_batched),
    ("gru", _gru_batched),
):
    torch.library.register_vmap(f"cudml::{_name}", _batched, lib=_library)
