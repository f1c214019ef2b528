"""The operators of `torch.library`, in `torch.ops.cudml`: how one is defined with all its rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cudml.torch.checks import TensorTypeError

#: The operators exist for as long as this object.
library = torch.library.Library("cudml", "DEF")

#: What `torch.vmap` gives a batching rule: the dimension of the batch in each argument.
Dims = Sequence[int | None]


def batch_first(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def define(
    schema: str,
    function: str,
    tensors: Sequence[str],
    *,
    computes: Mapping[str, Callable[..., Any]],
    empty: Callable[..., Any],
    batched: Callable[..., Any],
) -> Any:
    """Define an operator and return it.

    Parameters
    ----------
    schema : str
        Its name, arguments and results, as PyTorch writes them.
    function : str
        The function that errors name.
    tensors : sequence of str
        The names of its first arguments, tensors or lists of them, which errors name too.
    computes : mapping
        Backend, "CPU" or "CUDA", to the function that computes there.
    empty : callable
        Makes the outputs before they are computed; traces call it.
    batched : callable
        The batching rule of `torch.vmap`.
    """
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, _refusing(function, *tensors), "CompositeExplicitAutograd")
    for backend, compute in computes.items():
        library.impl(name, compute, backend)
        # Without this, a fallback looks for gradients, which do not exist.
        library.impl(name, torch.library.fallthrough_kernel, f"Autograd{backend}")
    torch.library.register_fake(f"cudml::{name}", empty, lib=library)
    torch.library.register_vmap(f"cudml::{name}", batched, lib=library)
    # Found once: looking it up takes 0.3 us of a call.
    return getattr(torch.ops.cudml, name).default


def _refusing(function: str, *names: str) -> Callable[..., Any]:
    """An operator for tensors that no other implementation takes."""

    def refuse(*arguments: Any) -> Any:
        lists = [given if isinstance(given, (list, tuple)) else [given] for given in arguments]
        for name, tensor in [(name, one) for name, own in zip(names, lists, strict=False) for one in own]:
            is_plain = tensor is None or (tensor.layout is torch.strided and not tensor.is_quantized)
            if not is_plain or tensor.device.type not in ("cpu", "cuda"):
                got = f"of {tensor.dtype}, {tensor.layout} and on {tensor.device}"
                raise TensorTypeError(
                    f"{function}: {name} is {got}, must be dense, not quantized, and on a CPU or a CUDA GPU"
                )
        raise TensorTypeError(f"{function}: tensors are on different devices")

    return refuse
