"""Helpers for tests of compiling and binding: operators with valid bindings, and problems of invalid ones."""

from typing import Any

import numpy as np
import pytest

from cudml import (
    Activation,
    BindingError,
    CompiledOperator,
    DataType,
    GruDesc,
    RecurrentNetworkDirection,
    ReverseSubsequencesDesc,
    SliceDesc,
    TensorDesc,
    compile_operator,
)
from cudml.devices import Device
from tests.support import to_device

F32, U32 = DataType.FLOAT32, DataType.UINT32

INPUT = TensorDesc(F32, (1, 1, 3, 4))
REVERSE = ReverseSubsequencesDesc(INPUT, TensorDesc(U32, (1, 1, 3, 1)), INPUT, 3)
X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
LENGTHS = np.array([[2], [4], [3]], np.uint32)
REVERSED = np.array([[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]], np.float32)
SENTINEL = np.float32(-77)


def bound(device: Device, **others: Any) -> dict[str, Any]:
    """Valid bindings of REVERSE, some of them replaced."""
    arrays = {
        "input_tensor": to_device(device, X),
        "sequence_lengths_tensor": to_device(device, LENGTHS),
        "output_tensor": to_device(device, np.full((3, 4), SENTINEL)),
    }
    return arrays | others


def copy_desc(tensor: TensorDesc, output: TensorDesc | None = None) -> SliceDesc:
    """SLICE that copies all of a tensor."""
    zeros, ones = (0,) * len(tensor.sizes), (1,) * len(tensor.sizes)
    output = output or TensorDesc(tensor.data_type, tensor.sizes)
    return SliceDesc(tensor, output, zeros, tensor.sizes, ones)


def refused(operator: CompiledOperator, **arguments: Any) -> list[str]:
    """The problems of a dispatch that must fail."""
    with pytest.raises(BindingError) as caught:
        operator.dispatch(**arguments)
    assert caught.value.operator == operator.name
    return [str(problem) for problem in caught.value.problems]


def with_scratch(device: Device) -> tuple[CompiledOperator, dict[str, Any]]:
    """An operator that needs a temporary resource, and valid bindings."""
    sizes = {"input_tensor": (1, 9, 2, 3), "weight_tensor": (1, 1, 12, 3), "recurrence_tensor": (1, 1, 12, 4)}
    rng = np.random.default_rng(1)
    arrays = {name: to_device(device, rng.random(size).astype(np.float32)) for name, size in sizes.items()}
    tensors = {name: TensorDesc(F32, size) for name, size in sizes.items()}
    output = (9, 1, 2, 4)
    desc = GruDesc(
        **tensors,
        bias_tensor=None,
        hidden_init_tensor=None,
        sequence_lengths_tensor=None,
        output_sequence_tensor=TensorDesc(F32, output),
        output_single_tensor=None,
        activation_descs=(Activation.sigmoid(), Activation.tanh()),
        direction=RecurrentNetworkDirection.FORWARD,
        linear_before_reset=True,
    )
    operator = compile_operator(desc, device=device)
    assert operator.temporary_resource_size > 0
    return operator, arrays | {"output_sequence_tensor": to_device(device, np.zeros(output, np.float32))}
