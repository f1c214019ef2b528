"""How operators call cudml: tensors as its arrays, PyTorch's stream and memory, and known calls."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

import torch
from torch.overrides import has_torch_function_unary

from cudml.devices import Program, cuda
from cudml.executable import Recent
from cudml.functions.calls import MAX_CALLS, ArrayFunction
from cudml.torch.checks import NUMPY_TYPES

#: Makes a CPU tensor of an array. Looked up once.
from_numpy = torch.from_numpy


def bits_of_keys(*names: str) -> int:
    """Keys of PyTorch's dispatcher as bits; 0 if this release of PyTorch does not tell them."""
    keys = torch._C
    try:
        bits = [keys.DispatchKeySet(getattr(keys.DispatchKey, name)).raw_repr() for name in names]
        return int(reduce(or_, bits))
    except AttributeError:
        return 0


#: Keys of a dense tensor of a CPU or of CUDA, and of a thread that does nothing special. With these alone,
#: the dispatcher calls the operators' kernels for that device: whatever wraps tensors, or traces or
#: transforms calls, adds other keys.
STRAIGHT_KEYS = bits_of_keys(
    *("CPU", "AutogradCPU", "AutocastCPU", "CUDA", "AutogradCUDA", "AutocastCUDA"),
    *("ADInplaceOrView", "BackendSelect"),
)

#: The attribute of a rearranged weight that holds an array of the same memory. Making the array takes 1.1 us.
ARRAY = "cudml_array"


class Planned(NamedTuple):
    """A call of an array function for CUDA tensors of certain layouts."""

    launch: Program
    #: By input, the bits that its address must not have.
    masks: tuple[int, ...]
    scratch_bytes: int
    #: Shape and strides of the first output.
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


operands_at, streams = _Operands(4096), _Streams(256)

#: Calls on CUDA tensors by PyTorch's layouts of the tensors and the other arguments; None for calls that take
#: more than addresses. Sharing the tensors by DLPack would take longer than the whole call.
planned_calls: Recent[Hashable, Planned | None] = Recent(MAX_CALLS)


def goes_straight(tensor: torch.Tensor) -> bool:
    """Whether an operator on a tensor would do nothing but call the kernel for the tensor's device.

    The dispatcher takes a third of the time of a `topk` to find out.
    """
    torch_c = torch._C
    return (
        STRAIGHT_KEYS != 0
        and not torch.compiler.is_compiling()
        and not has_torch_function_unary(tensor)
        and not torch_c._autograd._profiler_enabled()
        and not torch_c._dispatch_keys(tensor).raw_repr() & ~STRAIGHT_KEYS
        and not torch_c._dispatch_tls_local_include_set().raw_repr() & ~STRAIGHT_KEYS
    )


def has_array(tensor: torch.Tensor) -> bool:
    return tensor.dtype in NUMPY_TYPES and tensor.is_cpu


def arrays_of(*tensors: torch.Tensor | None) -> list[Any]:
    """The arrays that cudml takes for tensors."""
    arrays: list[Any] = []
    for tensor in tensors:
        array: Any = tensor
        if tensor is not None and (array := tensor.__dict__.get(ARRAY)) is None:
            # The caller has checked that no gradient is wanted.
            plain = tensor.detach() if tensor.requires_grad else tensor
            try:
                array = plain.numpy() if tensor.is_cpu else plain
            except TypeError:  # of a type that NumPy lacks; comparing types takes longer
                array = plain
        arrays.append(array)
    return arrays


def launched(
    planned: Planned, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], stream: int
) -> bool:
    """Launch a known call on a stream that is not captured, if the inputs' addresses suit it."""
    places = [one.data_ptr() for one in inputs]
    if any(map(and_, places, planned.masks)):
        return False
    # The scratch may be freed at once: PyTorch reuses it in the stream's order.
    scratch = inputs[0].new_empty(planned.scratch_bytes, dtype=torch.uint8)
    places += [one.data_ptr() for one in outputs]
    planned.launch([operands_at[place] for place in places], operands_at[scratch.data_ptr()], streams[stream])
    return True


def _public_current_stream(number: int) -> int:
    return int(torch.cuda.current_stream(number).cuda_stream)


#: Returns the handle of PyTorch's current stream of a GPU. The public function makes an object for each call.
#: The launchers of TorchInductor and Triton call the private one, which a build without CUDA lacks.
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_current_stream)


def is_captured_on(number: int, stream: int) -> bool:
    return stream != 0 and cuda.get_device(number).is_captured(stream)


def graph_memory(like: torch.Tensor) -> AbstractContextManager[None]:
    """A context in which scratch comes from PyTorch's allocator, which captures a graph."""

    def allocate(num_bytes: int) -> torch.Tensor:
        return like.new_empty(num_bytes, dtype=torch.uint8)

    return cuda.get_device(like.get_device()).allocating(allocate)


def remember(
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
    known = Planned(call.launch, call.masks[: len(inputs)], scratch_bytes, *layout)
    planned_calls[key] = known if call.is_launch else None
