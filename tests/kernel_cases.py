"""Small problems that reach every kernel, each with its plan and its operands: for proofs on the emulator."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from cudml.devices import emulator
from cudml.dtypes import ElementType
from cudml.enums import AxisDirection, DataType, RecurrentNetworkDirection
from cudml.operators import OPERATORS, operator_type_of
from cudml.operators.activations import Activation
from cudml.operators.gru import GruDesc
from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
from cudml.operators.slice import Slice1Desc
from cudml.operators.top_k import TopK1Desc
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc, packed_strides
from tests.layouts import Layout

#: The shape of a GPU and that of a CPU, where a block is one thread.
GPU = replace(emulator.get_device().limits, warp_lanes=32)
CPU = replace(GPU, warp_lanes=1)


@dataclass(frozen=True)
class Case:
    """A descriptor on a device; `path` None leaves the choice to the plan.

    `content` says what an input is full of: "few" different values, so that many tie, "any" bits, or values
    in "ascending" order. A GRU has normal numbers instead. `length` is that of every sequence, None for any.
    """

    descriptor: Any
    path: str | None = None
    limits: Limits = GPU
    content: str = "few"
    length: int | None = None

    @property
    def operator(self) -> str:
        """The module of the operator."""
        return OPERATORS[operator_type_of(self.descriptor)].module

    def plan(self) -> Plan:
        """The steps."""
        choice = {} if self.path is None else {"path": self.path}
        plan: Plan = import_module(f"cudml.operators.{self.operator}").plan(
            self.descriptor, self.limits, **choice
        )
        return plan

    def launches(self) -> list[KernelLaunch]:
        """Those steps that are kernels of ours."""
        return [step for step in self.plan().steps if isinstance(step, KernelLaunch)]


def operands_of(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays by member in the descriptor's layout, at the start of a sector; outputs are full of 0xA5."""
    plan = case.plan()
    return {
        name: _array(getattr(case.descriptor, name), name in plan.outputs, name, case, rng)
        for name in plan.operands
    }


def run(case: Case, operands: dict[str, np.ndarray]) -> dict[str, bytes]:
    """Every byte of the outputs. Before, the temporary resource is full of ones."""
    plan = case.plan()
    workspace = np.full(plan.temporary_bytes, 0xFF, np.uint8) if plan.temporary_bytes else None
    emulator.get_device().load(plan)([operands[name] for name in plan.operands], workspace)
    return {name: operands[name].tobytes() for name in plan.outputs}


def _array(
    tensor: TensorDesc, is_output: bool, name: str, case: Case, rng: np.random.Generator
) -> np.ndarray:
    """One operand; its dtype is unsigned or made of bytes, since kernels know bits alone."""
    item = tensor.element.size
    low = sum(min((n - 1) * s, 0) for n, s in zip(tensor.sizes, tensor.element_strides, strict=True))
    memory = np.empty(tensor.span_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    raw = memory[start : start + tensor.span_bytes]
    raw[:] = 0xA5 if is_output else _content(tensor, name, case, rng).view(np.uint8)
    return Layout(tensor, -low * item, tensor.span_bytes).view(raw)


def _content(tensor: TensorDesc, name: str, case: Case, rng: np.random.Generator) -> np.ndarray:
    count, item = tensor.span_bytes // tensor.element.size, tensor.element.size
    if name == "sequence_lengths_tensor":
        if case.length is not None:
            return np.full(count, case.length, f"u{item}")
        longest = case.descriptor.input_tensor.sizes[getattr(case.descriptor, "axis", 1)]
        return rng.integers(0, longest + 2, count).astype(f"u{item}")
    if case.operator == "gru":
        return rng.standard_normal(count, np.float32).astype(tensor.element.numpy_name)
    if item > 8 or case.content == "any":
        return rng.integers(0, 256, count * item, np.uint8)
    if case.content == "ascending":
        return np.arange(count).astype(f"u{item}")
    return rng.integers(0, 40, count).astype(f"u{item}") << (8 * (item - 1) if count % 2 else 0)


def top_k(
    sizes: tuple[int, ...],
    k: int,
    element: ElementType = DataType.UINT32,
    *,
    axis: int | None = None,
    strides: tuple[int, ...] | None = None,
) -> TopK1Desc:
    """The largest along an axis, the last by default."""
    axis = len(sizes) - 1 if axis is None else axis
    out = (*sizes[:axis], k, *sizes[axis + 1 :])
    return TopK1Desc(
        TensorDesc(element, sizes, strides),
        TensorDesc(element, out),
        TensorDesc(DataType.UINT32, out),
        axis,
        k,
        AxisDirection.DECREASING,
    )


def gru(
    num_steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    data_type: DataType = DataType.FLOAT32,
    activations: tuple[Activation, ...] = (Activation.sigmoid(), Activation.tanh()),
    direction: RecurrentNetworkDirection = RecurrentNetworkDirection.FORWARD,
    linear_before_reset: bool = True,
    has_lengths: bool = True,
) -> GruDesc:
    """A layer with every optional tensor, but perhaps lengths."""
    directions = 2 if direction is RecurrentNetworkDirection.BIDIRECTIONAL else 1
    return GruDesc(
        TensorDesc(data_type, (1, num_steps, batch, inputs)),
        TensorDesc(data_type, (1, directions, 3 * hidden, inputs)),
        TensorDesc(data_type, (1, directions, 3 * hidden, hidden)),
        TensorDesc(data_type, (1, 1, directions, 6 * hidden)),
        TensorDesc(data_type, (1, directions, batch, hidden)),
        TensorDesc(DataType.UINT32, (1, 1, 1, batch)) if has_lengths else None,
        TensorDesc(data_type, (num_steps, directions, batch, hidden)),
        TensorDesc(data_type, (1, directions, batch, hidden)),
        activations * directions,
        direction,
        linear_before_reset,
    )


def copy(
    sizes: tuple[int, ...],
    item_bytes: ElementType,
    steps: tuple[int, ...],
    *,
    offsets: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    out_pad: int = 0,
) -> Slice1Desc:
    """Every step-th element of a tensor; rows of the output are `out_pad` elements apart."""
    offsets = offsets or (0,) * len(sizes)
    windows = tuple(n - offset for n, offset in zip(sizes, offsets, strict=True))
    out = tuple(math.ceil(n / abs(step)) for n, step in zip(windows, steps, strict=True))
    padded = packed_strides((*out[:-1], out[-1] + out_pad))
    return Slice1Desc(
        TensorDesc(item_bytes, sizes, strides),
        TensorDesc(item_bytes, out, padded if out_pad else None),
        offsets,
        windows,
        steps,
    )


def reversal(
    sizes: tuple[int, ...],
    element: ElementType,
    axis: int,
    *,
    one_length_a_row: bool = False,
    pad: int = 0,
    length_type: DataType = DataType.UINT32,
) -> ReverseSubsequencesDesc:
    """Lanes along an axis of a tensor whose rows are `pad` elements apart."""
    one = tuple(1 if d == axis else n for d, n in enumerate(sizes))
    shared = (*packed_strides(one[:-1]), 0) if one_length_a_row else None
    tensor = TensorDesc(element, sizes, packed_strides((*sizes[:-1], sizes[-1] + pad)) if pad else None)
    return ReverseSubsequencesDesc(tensor, TensorDesc(length_type, one, shared), tensor, axis)
