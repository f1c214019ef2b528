"""ONNX's TopK, GRU, Slice and ReverseSequence as cudml descriptors, and as calls of the array functions.

The mapping is that of ONNX's operator pages: https://onnx.ai/onnx/operators/.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import cudml
from cudml import Activation, AxisDirection, DataType, RecurrentNetworkDirection, TensorDesc
from cudml.devices import Device
from proof.oracle.gru import Weights, gru
from tests.support import to_device, to_numpy

#: In ONNX, the largest integer as the end of a backward slice also means "to the first element".
_TO_THE_END = (2**31 - 1, 2**63 - 1)


@dataclass(frozen=True)
class Call:
    """One ONNX node with its inputs: None where an optional input is left out."""

    op: str
    opset: int
    inputs: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    #: Which outputs are requested.
    wanted: tuple[bool, ...] = (True,)

    def input(self, position: int) -> np.ndarray | None:
        """The input at a position; None if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None


def call_of_node(node: onnx.NodeProto, opset: int, inputs: Iterable[np.ndarray]) -> Call:
    """The call of a node, given the inputs that are not left out."""
    given = iter(inputs)
    return Call(
        op=node.op_type,
        opset=opset,
        inputs=tuple(next(given) if name else None for name in node.input),
        attrs={attribute.name: _attribute_value(attribute) for attribute in node.attribute},
        wanted=tuple(bool(name) for name in node.output),
    )


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.STRING:
        return value.decode()
    return [v.decode() for v in value] if attribute.type == onnx.AttributeProto.STRINGS else value


def run_descriptor(call: Call, device: Device) -> list[np.ndarray]:
    """The requested outputs, computed by an operator compiled from a descriptor."""
    return _DESCRIPTORS[call.op](call, device)


def run_array_function(call: Call, device: Device) -> list[np.ndarray]:
    """The requested outputs, computed by the array function of the operator."""
    return _ARRAY_FUNCTIONS[call.op](call, device)


def dispatch(desc: Any, device: Device, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Compile a descriptor, bind the inputs and fresh outputs, run, and return the outputs by member."""
    outputs = {
        member: device.empty(tensor.sizes, tensor.element.numpy_name)
        for member, tensor in vars(desc).items()
        if isinstance(tensor, TensorDesc) and member not in inputs
    }
    bound = {member: to_device(device, array) for member, array in inputs.items()}
    cudml.compile_operator(desc, device=device.name).dispatch(**bound, **outputs)
    return {member: to_numpy(array) for member, array in outputs.items()}


# TopK


def _top_k_arguments(call: Call) -> tuple[np.ndarray, int, int, bool]:
    """The input, k, the axis counted from the front, and whether the largest are wanted."""
    x = call.inputs[0]
    k = call.attrs["k"] if call.opset < 10 else int(call.inputs[1].item())
    return x, k, call.attrs.get("axis", -1) % x.ndim, bool(call.attrs.get("largest", 1))


def _top_k_descriptor(call: Call, device: Device) -> list[np.ndarray]:
    x, k, axis, largest = _top_k_arguments(call)
    sizes = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    desc = cudml.TopK1Desc(
        input_tensor=TensorDesc.of(x),
        output_value_tensor=TensorDesc(TensorDesc.of(x).data_type, sizes),
        output_index_tensor=TensorDesc(DataType.UINT64, sizes),
        axis=axis,
        k=k,
        axis_direction=AxisDirection.DECREASING if largest else AxisDirection.INCREASING,
    )
    outputs = dispatch(desc, device, input_tensor=x)
    return [outputs["output_value_tensor"], outputs["output_index_tensor"].view(np.int64)]


def _top_k_array_function(call: Call, device: Device) -> list[np.ndarray]:
    x, k, axis, largest = _top_k_arguments(call)
    result = cudml.top_k(to_device(device, x), k, axis=axis, mode="largest" if largest else "smallest")
    return [to_numpy(array) for array in result]


# Slice


def slice_ranges(call: Call) -> list[range]:
    """The input indices that each dimension of the output reads."""
    x = call.inputs[0]
    if call.opset < 10:
        starts, ends = call.attrs["starts"], call.attrs["ends"]
        axes, steps = call.attrs.get("axes"), None
    else:
        starts, ends = (call.inputs[i].tolist() for i in (1, 2))
        axes, steps = (None if a is None else a.tolist() for a in (call.input(3), call.input(4)))
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    ranges = [range(size) for size in x.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end in _TO_THE_END else end
        found = range(*slice(start, stop, step).indices(x.shape[axis]))
        # ONNX's steps have 64 bits; for a range of one element, the step is of no matter and becomes 1. An
        # empty range has no first element.
        ranges[axis] = found if len(found) > 1 else range(found[0], found[0] + 1) if found else range(0)
    return ranges


def _slice_descriptor(call: Call, device: Device) -> list[np.ndarray]:
    x = call.inputs[0]
    ranges = slice_ranges(call)
    tensors = {
        "input_tensor": TensorDesc.of(x),
        "output_tensor": TensorDesc(TensorDesc.of(x).data_type, tuple(map(len, ranges))),
    }
    desc: cudml.SliceDesc | cudml.Slice1Desc
    if all(r.step > 0 for r in ranges):
        desc = cudml.SliceDesc(
            **tensors,
            offsets=tuple(r.start for r in ranges),
            sizes=tuple(map(len, ranges)),
            strides=tuple(r.step for r in ranges),
        )
    else:
        desc = cudml.Slice1Desc(
            **tensors,
            input_window_offsets=tuple(min(r) for r in ranges),
            input_window_sizes=tuple(max(r) - min(r) + 1 for r in ranges),
            input_window_strides=tuple(r.step for r in ranges),
        )
    return [dispatch(desc, device, input_tensor=x)["output_tensor"]]


def _slice_array_function(call: Call, device: Device) -> list[np.ndarray]:
    ranges = slice_ranges(call)
    sliced = cudml.slice(
        to_device(device, call.inputs[0]),
        tuple(r.start for r in ranges),
        tuple(map(len, ranges)),
        tuple(r.step for r in ranges),
    )
    return [to_numpy(sliced)]


# ReverseSequence


def _reverse_arguments(call: Call) -> tuple[np.ndarray, np.ndarray, int]:
    """The input, lengths of the input's shape with 1 on the time axis, and the time axis."""
    x, lengths = call.inputs
    time_axis = call.attrs.get("time_axis", 0) % x.ndim
    batch_axis = call.attrs.get("batch_axis", 1) % x.ndim
    along_batch = [1] * x.ndim
    along_batch[batch_axis] = x.shape[batch_axis]
    sizes = tuple(1 if axis == time_axis else size for axis, size in enumerate(x.shape))
    return x, np.broadcast_to(lengths.reshape(along_batch), sizes), time_axis


def _reverse_descriptor(call: Call, device: Device) -> list[np.ndarray]:
    x, lengths, time_axis = _reverse_arguments(call)
    lengths = lengths.astype(np.uint64)
    desc = cudml.ReverseSubsequencesDesc(
        input_tensor=TensorDesc.of(x),
        sequence_lengths_tensor=TensorDesc.of(lengths),
        output_tensor=TensorDesc.of(x),
        axis=time_axis,
    )
    return [dispatch(desc, device, input_tensor=x, sequence_lengths_tensor=lengths)["output_tensor"]]


def _reverse_array_function(call: Call, device: Device) -> list[np.ndarray]:
    x, lengths, time_axis = _reverse_arguments(call)
    result = cudml.reverse_subsequences(to_device(device, x), to_device(device, lengths), axis=time_axis)
    return [to_numpy(result)]


# GRU

#: Activation -> its constructor, and ONNX's defaults for its parameters, alpha or alpha and beta.
_ACTIVATIONS: dict[str, tuple[Callable[..., Activation], tuple[float, ...]]] = {
    "affine": (Activation.linear, (1.0, 0.0)),
    "elu": (Activation.elu, (1.0,)),
    "hardsigmoid": (Activation.hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (Activation.leaky_relu, (0.01,)),
    "relu": (Activation.relu, ()),
    "scaledtanh": (Activation.scaled_tanh, (1.0, 1.0)),
    "sigmoid": (Activation.sigmoid, ()),
    "softplus": (lambda: Activation.softplus(1.0), ()),
    "softsign": (Activation.softsign, ()),
    "tanh": (Activation.tanh, ()),
    "thresholdedrelu": (Activation.thresholded_relu, (1.0,)),
}


def activations_of(call: Call, num_directions: int) -> tuple[Activation, ...]:
    """f and g of each direction; alpha and beta list values only for the activations that take them."""
    names = call.attrs.get("activations", ["Sigmoid", "Tanh"] * num_directions)
    given = iter(call.attrs.get("activation_alpha", ())), iter(call.attrs.get("activation_beta", ()))
    found = []
    for name in names:
        make, defaults = _ACTIVATIONS[name.lower()]
        found.append(make(*(next(values, default) for values, default in zip(given, defaults, strict=False))))
    return tuple(found)


_DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}


def _gru_arguments(call: Call) -> dict[str, np.ndarray]:
    """The inputs that are there, time first, by ONNX's names."""
    names = ("X", "W", "R", "B", "sequence_lens", "initial_h")
    inputs = {name: call.input(i) for i, name in enumerate(names) if call.input(i) is not None}
    if call.attrs.get("layout", 0):
        for name in {"X", "initial_h"} & set(inputs):
            inputs[name] = np.ascontiguousarray(inputs[name].swapaxes(0, 1))
    return inputs


def _gru_outputs(call: Call, sequence: np.ndarray | None, single: np.ndarray | None) -> list[np.ndarray]:
    """Y and Y_h as requested, from (T, D, N, H) and (D, N, H)."""
    if call.attrs.get("layout", 0):
        sequence = None if sequence is None else sequence.transpose(2, 0, 1, 3)
        single = None if single is None else single.swapaxes(0, 1)
    wanted = (*call.wanted, False)[:2]
    return [output for output, want in zip((sequence, single), wanted, strict=True) if want]


def _gru_descriptor(call: Call, device: Device) -> list[np.ndarray]:
    given = _gru_arguments(call)
    (num_steps, batch_size, _), hidden_size = given["X"].shape, given["R"].shape[2]
    num_directions = len(given["R"])
    inputs = {
        "input_tensor": given["X"][None],
        "weight_tensor": given["W"][None],
        "recurrence_tensor": given["R"][None],
    }
    if "B" in given:
        inputs["bias_tensor"] = given["B"][None, None]
    if "initial_h" in given:
        inputs["hidden_init_tensor"] = given["initial_h"][None]
    if "sequence_lens" in given:
        inputs["sequence_lengths_tensor"] = given["sequence_lens"].astype(np.uint32)[None, None, None]
    kind = TensorDesc.of(given["X"]).data_type
    sizes = {
        "output_sequence_tensor": (num_steps, num_directions, batch_size, hidden_size),
        "output_single_tensor": (1, num_directions, batch_size, hidden_size),
    }
    outputs = {
        member: TensorDesc(kind, size)
        for (member, size), wanted in zip(sizes.items(), call.wanted, strict=False)
        if wanted
    }
    desc = cudml.GruDesc(
        **dict.fromkeys(("bias_tensor", "hidden_init_tensor", "sequence_lengths_tensor", *sizes))
        | {member: TensorDesc.of(array) for member, array in inputs.items()}
        | outputs,
        activation_descs=activations_of(call, num_directions),
        direction=_DIRECTIONS[call.attrs.get("direction", "forward")],
        linear_before_reset=bool(call.attrs.get("linear_before_reset", 0)),
    )
    found = dispatch(desc, device, **inputs)
    single = found.get("output_single_tensor")
    return _gru_outputs(call, found.get("output_sequence_tensor"), None if single is None else single[0])


def _gru_array_function(call: Call, device: Device) -> list[np.ndarray]:
    given = {name: to_device(device, array) for name, array in _gru_arguments(call).items()}
    result = cudml.gru(
        given["X"],
        given["W"],
        given["R"],
        given.get("B"),
        given.get("initial_h"),
        given.get("sequence_lens"),
        direction=call.attrs.get("direction", "forward"),
        activations=activations_of(call, len(given["R"])),
        linear_before_reset=bool(call.attrs.get("linear_before_reset", 0)),
        clip=call.attrs.get("clip"),
    )
    return _gru_outputs(call, *map(to_numpy, result))


def gru_by_its_formulas(call: Call, precision: type[np.floating] = np.float64) -> list[np.ndarray]:
    """The result of `run_descriptor` for a GRU, computed by the oracle in a precision."""
    given = _gru_arguments(call)
    arrays = Weights(
        given["X"],
        given["W"],
        given["R"],
        given.get("B"),
        given.get("initial_h"),
        given.get("sequence_lens"),
    )
    outputs = gru(
        arrays,
        activations_of(call, len(given["R"])),
        _DIRECTIONS[call.attrs.get("direction", "forward")],
        bool(call.attrs.get("linear_before_reset", 0)),
        precision,
        call.attrs.get("clip", math.inf),
    )
    return _gru_outputs(call, *outputs)


_DESCRIPTORS: dict[str, Callable[[Call, Device], list[np.ndarray]]] = {
    "TopK": _top_k_descriptor,
    "Slice": _slice_descriptor,
    "ReverseSequence": _reverse_descriptor,
    "GRU": _gru_descriptor,
}
_ARRAY_FUNCTIONS: dict[str, Callable[[Call, Device], list[np.ndarray]]] = {
    "TopK": _top_k_array_function,
    "Slice": _slice_array_function,
    "ReverseSequence": _reverse_array_function,
    "GRU": _gru_array_function,
}
