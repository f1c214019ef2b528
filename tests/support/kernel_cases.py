"""Small problems that reach every kernel, each with its plan, operands and oracle."""

import ctypes
import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from cudml.devices import emulator
from cudml.dtypes import ElementType
from cudml.enums import AxisDirection, DataType, ExecutionFlags, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.operator import GruDesc, StackDesc
from cudml.operators.gru.wave import member_of
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc
from cudml.operators.slice.operator import Slice1Desc
from cudml.operators.top_k.operator import RaggedTopKDesc, TopK1Desc
from cudml.plans import KernelLaunch, Limits, Plan
from cudml.tensors import TensorDesc, byte_extent, packed_strides
from proof.instances import tensors_by_member
from proof.oracle.gru import Weights
from proof.oracle.reverse_subsequences import reverse_lanes
from proof.oracle.slice import slice1_elements
from proof.oracle.top_k import ragged_top_k as ragged_first_k
from proof.oracle.top_k import top_k as first_k
from tests.support.gru_runs import Options, assert_as_precise_as_numpy
from tests.support.layouts import Layout

#: The shape of a GPU and that of a CPU, where a block is one thread.
GPU = replace(emulator.get_device().limits, warp_lanes=32)
CPU = replace(GPU, warp_lanes=1)

#: The value of a ragged row's missing results: no element has it, except with "any" bits.
MISSING = 0x63

#: The initial value of every byte of an output: a NaN in each floating-point type.
_BLANK = 0xFF


@dataclass(frozen=True)
class Case:
    """A descriptor on a device; `path` None leaves the choice to the plan.

    `content` says what an input is full of: "few" different values, so that many tie, or "few but one",
    "any" bits, or values in "ascending" or "descending" order, in ascending "steps" or "pairs" that are far
    apart, or all "equal", or "close" but for one, or "close but for some", or "in threes" that differ in the
    lowest bits; the greatest may be "in every eighth load" of 16 bytes. A GRU has normal numbers instead.
    `length` is the length of every sequence, None for random ones. Tensors begin `skew` elements after the
    start of a sector. Only the plans of a GRU depend on `flags`.
    """

    descriptor: Any
    path: str | None = None
    limits: Limits = GPU
    content: str = "few"
    length: int | None = None
    skew: int = 0
    flags: ExecutionFlags = ExecutionFlags.NONE

    @property
    def operator(self) -> str:
        """The folder of the operator."""
        return type(self.descriptor).__module__.split(".")[-2]

    def plan(self) -> Plan:
        """The steps."""
        choice: dict[str, Any] = {} if self.path is None else {"path": self.path}
        if self.flags:
            choice["flags"] = self.flags
        plan: Plan = import_module(f"cudml.operators.{self.operator}.operator").plan(
            self.descriptor, self.limits, **choice
        )
        return plan

    def launches(self) -> list[KernelLaunch]:
        """The steps that are the project's own kernels."""
        return [step for step in self.plan().steps if isinstance(step, KernelLaunch)]


def operands_of(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays by member in the descriptor's layout; outputs are full of NaN."""
    plan, tensors = case.plan(), tensors_by_member(case.descriptor)
    return {name: _array(tensors[name], name in plan.outputs, name, case, rng) for name in plan.operands}


def run(case: Case, operands: dict[str, np.ndarray]) -> dict[str, bytes]:
    """Run with a temporary resource full of ones; return every byte of the outputs and of their gaps."""
    plan = case.plan()
    workspace = np.full(plan.temporary_bytes, 0xFF, np.uint8) if plan.temporary_bytes else None
    emulator.get_device().load(plan)([operands[name] for name in plan.operands], workspace)
    return {name: _bytes_of(operands[name]) for name in plan.outputs}


def expected(case: Case, operands: dict[str, np.ndarray]) -> dict[str, bytes]:
    """What `run` must return, from the oracle; not for a GRU, whose results are not exact."""
    desc, x = case.descriptor, operands["input_tensor"]
    if case.operator == "top_k":
        numbers = x.view(desc.input_tensor.element.numpy_name)
        order = {"largest": desc.axis_direction is AxisDirection.DECREASING}
        values, indices = first_k(numbers, desc.k, desc.axis, **order)
        if isinstance(desc, RaggedTopKDesc):
            lengths = _numbers(operands["sequence_lengths_tensor"])
            missing = np.array(desc.missing, f"u{numbers.itemsize}").view(numbers.dtype)
            values, indices = ragged_first_k(numbers, lengths, desc.k, desc.axis, missing=missing, **order)
        results = {"output_value_tensor": values, "output_index_tensor": indices.astype(np.uint32)}
    elif case.operator == "slice":
        windows = desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides
        results = {"output_tensor": slice1_elements(x, *windows, desc.output_tensor.sizes)}
    else:
        lengths = _numbers(operands["sequence_lengths_tensor"])
        results = {"output_tensor": reverse_lanes(x, lengths, desc.axis)}
    return {name: _bytes_with(operands[name], result) for name, result in results.items()}


def require_precise(case: Case, operands: dict[str, np.ndarray]) -> None:
    """Compare the outputs of a GRU or of several layers, after `run`, with the oracle."""
    desc = case.descriptor
    layers = desc.layers if isinstance(desc, StackDesc) else (desc,)
    first = layers[0]
    dtype = first.input_tensor.element.numpy_name

    def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return operands[name].view(dtype).reshape(shape)

    steps, directions, batch, hidden = first.output_sequence_tensor.sizes
    lengths = operands.get("sequence_lengths_tensor")
    states = array("hidden_init_tensor", (len(layers), directions, batch, hidden))
    arrays = [
        Weights(
            x=array("input_tensor", (steps, batch, -1)),
            w=array(member_of(number, "weight_tensor"), (directions, 3 * hidden, -1)),
            r=array(member_of(number, "recurrence_tensor"), (directions, 3 * hidden, hidden)),
            b=array(member_of(number, "bias_tensor"), (directions, 6 * hidden)),
            h0=states[number],
            lengths=None if lengths is None else _numbers(lengths).reshape(batch),
            allows_tf32=bool(case.flags),
        )
        for number in range(len(layers))
    ]
    got = {
        "sequence": array("output_sequence_tensor", (steps, directions, batch, hidden)),
        "single": array("output_single_tensor", (len(layers) * directions, batch, hidden)),
    }
    options = Options(desc.direction, desc.linear_before_reset, desc.activation_descs[:2])
    assert_as_precise_as_numpy(got, arrays, options)


def _numbers(array: np.ndarray) -> np.ndarray:
    """Raw elements as unsigned integers."""
    return array.view(f"u{array.itemsize}")


def _bytes_of(array: np.ndarray) -> bytes:
    """From the first to the last byte of an array, with the gaps between its elements."""
    low, high = byte_extent(array.shape, array.strides, array.itemsize)
    return ctypes.string_at(array.ctypes.data + low, high - low)


def _bytes_with(array: np.ndarray, result: np.ndarray) -> bytes:
    """The bytes of an output with the result in it; gaps stay as they were."""
    low, high = byte_extent(array.shape, array.strides, array.itemsize)
    raw = np.full(high - low, _BLANK, np.uint8)
    view = np.ndarray(array.shape, result.dtype, raw, -low, array.strides)
    view[...] = result
    return raw.tobytes()


def _array(
    tensor: TensorDesc, is_output: bool, name: str, case: Case, rng: np.random.Generator
) -> np.ndarray:
    """One operand; its dtype is unsigned or made of bytes, because kernels only see bits."""
    item = tensor.element.size
    low = sum(min((n - 1) * s, 0) for n, s in zip(tensor.sizes, tensor.element_strides, strict=True))
    memory = np.empty(tensor.span_bytes + 64 + case.skew * item, np.uint8)
    start = -memory.ctypes.data % 64 + case.skew * item
    raw = memory[start : start + tensor.span_bytes]
    raw[:] = _BLANK if is_output else _content(tensor, name, case, rng).view(np.uint8)
    return Layout(tensor, -low * item, tensor.span_bytes).view(raw)


def _content(tensor: TensorDesc, name: str, case: Case, rng: np.random.Generator) -> np.ndarray:
    count, item = tensor.span_bytes // tensor.element.size, tensor.element.size
    if name == "sequence_lengths_tensor":
        if case.length is not None:
            return np.full(count, case.length, f"u{item}")
        longest = _longest(case.descriptor)
        return rng.integers(0, longest + 2, count).astype(f"u{item}")
    if case.operator == "gru":
        numbers = rng.standard_normal(count, np.float32)
        if name.endswith(("weight_tensor", "recurrence_tensor")):
            numbers /= math.sqrt(tensor.sizes[2] // 3)
        return numbers.astype(tensor.element.numpy_name)
    if item > 8 or case.content == "any":
        return rng.integers(0, 256, count * item, np.uint8)
    if case.content == "ascending":
        return np.arange(count).astype(f"u{item}")
    if case.content == "close":
        numbers = np.arange(count).astype(f"u{item}")
        numbers[count // 3] = np.iinfo(numbers.dtype).max
        return numbers
    if case.content == "close but for some":
        # In every 128th load of 16 bytes, so that a sample of every eighth load has them.
        numbers = rng.permutation(count).astype(f"u{item}")
        numbers[:: 128 * 16 // item] |= np.uint64(1 << (8 * item - 1)).astype(numbers.dtype)
        return numbers
    if case.content == "in threes":
        place = np.arange(count)
        upper = rng.permutation(count // 3 + 1)[place // 3].astype(f"u{item}")
        return (upper << (8 * item - count.bit_length())) + (place % 3).astype(f"u{item}")
    if case.content == "steps":
        return (np.arange(count) * 21 // count).astype(f"u{item}")
    if case.content == "pairs":
        group, place = divmod(np.arange(count), 2048)
        return (group * 1024 + place % 1024).astype(f"u{item}")
    if case.content == "equal":
        return np.ones(count, f"u{item}")
    if case.content == "in every eighth load":
        is_greater = np.arange(count) // (16 // item) % 8 == 0
        return (np.arange(count, 0, -1) + (count << 1) * is_greater).astype(f"u{item}")
    if case.content == "descending":
        return np.arange(count, 0, -1).astype(f"u{item}")
    numbers = rng.integers(0, 40, count).astype(f"u{item}") << (8 * (item - 1) if count % 2 else 0)
    if case.content == "few but one":
        numbers[count // 3] = numbers.max() + 1
    return numbers


def _longest(descriptor: Any) -> int:
    """The largest length that counts."""
    if isinstance(descriptor, StackDesc):
        descriptor = descriptor.layers[0]
    longest: int = descriptor.input_tensor.sizes[getattr(descriptor, "axis", 1)]
    return longest


def top_k(
    sizes: tuple[int, ...],
    k: int,
    element: ElementType = DataType.UINT32,
    *,
    axis: int | None = None,
    strides: tuple[int, ...] | None = None,
    value_pad: int = 0,
    index_pad: int = 0,
    length_type: DataType | None = None,
) -> TopK1Desc:
    """The largest elements along an axis, the last by default; pads separate the rows of results.

    With a `length_type`, rows are ragged.
    """
    axis = len(sizes) - 1 if axis is None else axis
    out = (*sizes[:axis], k, *sizes[axis + 1 :])
    x, values = TensorDesc(element, sizes, strides), _padded(element, out, value_pad)
    members = x, values, _padded(DataType.UINT32, out, index_pad), axis, k, AxisDirection.DECREASING
    if length_type is None:
        return TopK1Desc(*members)
    lengths = TensorDesc(length_type, (*sizes[:axis], 1, *sizes[axis + 1 :]))
    return RaggedTopKDesc(*members, lengths, MISSING)


def gru(
    num_steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    data_type: ElementType = DataType.FLOAT32,
    activations: tuple[Activation, ...] = (Activation.sigmoid(), Activation.tanh()),
    direction: RecurrentNetworkDirection = RecurrentNetworkDirection.FORWARD,
    linear_before_reset: bool = True,
    has_lengths: bool = True,
    length_type: DataType = DataType.UINT32,
    pads: tuple[int, int, int] = (0, 0, 0),
    input_pad: int = 0,
) -> GruDesc:
    """A layer with every optional tensor; lengths only if `has_lengths`.

    Rows of states are `pads` apart, those of the input and the weights `input_pad`.
    """
    directions = 2 if direction is RecurrentNetworkDirection.BIDIRECTIONAL else 1
    return GruDesc(
        _padded(data_type, (1, num_steps, batch, inputs), input_pad),
        _padded(data_type, (1, directions, 3 * hidden, inputs), input_pad),
        _padded(data_type, (1, directions, 3 * hidden, hidden), input_pad),
        TensorDesc(data_type, (1, 1, directions, 6 * hidden)),
        _padded(data_type, (1, directions, batch, hidden), pads[0]),
        TensorDesc(length_type, (1, 1, 1, batch)) if has_lengths else None,
        _padded(data_type, (num_steps, directions, batch, hidden), pads[1]),
        _padded(data_type, (1, directions, batch, hidden), pads[2]),
        activations * directions,
        direction,
        linear_before_reset,
    )


def gru_stack(
    num_layers: int, num_steps: int, batch: int, inputs: int, hidden: int, **options: Any
) -> StackDesc:
    """Layers with the optional tensors and the `options` of `gru`."""
    first = gru(num_steps, batch, inputs, hidden, **options)
    upper = gru(num_steps, batch, hidden, hidden, **options)
    own = ("weight_tensor", "recurrence_tensor", "bias_tensor")
    members = {name: one for name, one in vars(first).items() if name not in own}
    for number, layer in enumerate((first, *(upper,) * (num_layers - 1))):
        members |= {member_of(number, name): getattr(layer, name) for name in own}
    for name in ("hidden_init_tensor", "output_single_tensor"):
        one = members[name]
        batch_stride = one.element_strides[2]
        sizes = (1, num_layers, batch, hidden)
        members[name] = TensorDesc(
            one.data_type, sizes, (num_layers * batch * batch_stride, batch * batch_stride, batch_stride, 1)
        )
    outputs = {name: members.pop(name) for name in ("output_sequence_tensor", "output_single_tensor")}
    return StackDesc.of_plain({**members, **outputs})


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
    return Slice1Desc(
        TensorDesc(item_bytes, sizes, strides),
        _padded(item_bytes, out, out_pad),
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
    out_pad: int | None = None,
    length_type: DataType = DataType.UINT32,
) -> ReverseSubsequencesDesc:
    """Lanes along an axis of a tensor whose rows are `pad` elements apart, in the output `out_pad`."""
    one = tuple(1 if d == axis else n for d, n in enumerate(sizes))
    shared = (*packed_strides(one[:-1]), 0) if one_length_a_row else None
    source, target = (
        _padded(element, sizes, pad),
        _padded(element, sizes, pad if out_pad is None else out_pad),
    )
    return ReverseSubsequencesDesc(source, TensorDesc(length_type, one, shared), target, axis)


def _padded(element: ElementType, sizes: tuple[int, ...], pad: int) -> TensorDesc:
    """A tensor whose rows are `pad` elements apart."""
    return TensorDesc(element, sizes, packed_strides((*sizes[:-1], sizes[-1] + pad)) if pad else None)
