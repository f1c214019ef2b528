"""Checks of tensors, which raise PyTorch's errors in PyTorch's words."""

from collections.abc import Collection
from operator import index
from typing import Any

import numpy as np
import torch

from cudml.errors import a_type
from cudml.functions.arguments import advice

#: The types that `Tensor.numpy` supports. Other tensors are passed on as they are, and shared by DLPack.
NUMPY_TYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
TOPK_TYPES = {*NUMPY_TYPES, torch.bfloat16}
GRU_TYPES = {torch.float16, torch.bfloat16, torch.float32}
LENGTH_TYPES = {kind for kind in NUMPY_TYPES - {torch.bool} if not kind.is_floating_point}
INDEX_TYPES = {torch.int32, torch.int64}


class TensorTypeError(TypeError, ValueError, RuntimeError):
    """A tensor of a wrong dtype or device: PyTorch raises one of the three, depending on the function."""


def check_tensor(function: str, tensor: Any, name: str = "input") -> None:
    if not isinstance(tensor, torch.Tensor):
        expected = f"a torch.Tensor: {advice(name, tensor, 'torch.as_tensor makes one')}"
        raise TypeError(f"{function}: {name} is {a_type(tensor)}, must be {expected}")


def check_flag(function: str, name: str, value: Any) -> None:
    if not isinstance(value, (bool, torch.SymBool, np.bool_)):
        raise TypeError(f"{function}: {name} is {value!r}, must be True or False")


def check_integer(function: str, name: str, value: Any) -> None:
    try:
        index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} is {value!r}, must be an integer") from None


def refuse_gradients(function: str, **tensors: torch.Tensor | None) -> None:
    if torch.is_grad_enabled():
        names = [name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad]
        if names:
            raise RuntimeError(
                f"{function}: cudml computes no gradients, and {', '.join(names)} "
                f"require{'s' * (len(names) == 1)} one: "
                "call it under torch.inference_mode() or torch.no_grad(), or detach it"
            )


def check_type(function: str, name: str, tensor: torch.Tensor, types: Collection[torch.dtype]) -> None:
    if tensor.dtype not in types:
        expected = ", ".join(sorted(str(dtype) for dtype in types))
        raise TensorTypeError(f"{function}: {name} is of {tensor.dtype}, must be one of {expected}")
