"""Shared by the GRU tests: random layers, running them in any layout, and the bound on their error."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from cudml.devices import Device
from cudml.dtypes import BY_NUMPY_NAME
from cudml.enums import DataType, ExecutionFlags, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.operator import GruDesc, plan
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc, tensor_of
from proof.oracle.gru import Weights, gru
from tests.support import to_device, to_numpy
from tests.support.random_arrays import Layout

FORWARD = RecurrentNetworkDirection.FORWARD
BACKWARD = RecurrentNetworkDirection.BACKWARD
BIDIRECTIONAL = RecurrentNetworkDirection.BIDIRECTIONAL

STANDARD = (Activation.sigmoid(), Activation.tanh())

#: Paths that take only types of 16 bits, only float32, only float32 that may be rounded to TF32, and only one
#: step.
MATRIX_PATHS = ("matrix_grid",)
SINGLE_PATHS = ("split_products", "rounded_products")
ROUNDED_PATHS = ("rounded_products",)
ONE_STEP_PATHS = ("step",)


def dtypes_of(path: str) -> tuple[Any, ...]:
    """The types that a path takes."""
    halves = (np.float16, ml_dtypes.bfloat16)
    if path in SINGLE_PATHS:
        return (np.float32,)
    return halves if path in MATRIX_PATHS else (np.float32, *halves)


#: Array of ONNX's shape -> its member of the descriptor.
MEMBERS = {
    "x": "input_tensor",
    "w": "weight_tensor",
    "r": "recurrence_tensor",
    "b": "bias_tensor",
    "h0": "hidden_init_tensor",
    "lengths": "sequence_lengths_tensor",
    "sequence": "output_sequence_tensor",
    "single": "output_single_tensor",
}


@dataclass(frozen=True)
class Options:
    """The attributes of a layer; one direction's activations stand for both."""

    direction: RecurrentNetworkDirection = FORWARD
    linear_before_reset: bool = True
    activations: tuple[Activation, ...] = STANDARD
    clip: float = math.inf

    @property
    def num_directions(self) -> int:
        return 2 if self.direction == BIDIRECTIONAL else 1

    @property
    def all_activations(self) -> tuple[Activation, ...]:
        missing = 2 * self.num_directions // len(self.activations)
        return self.activations * missing


def random_layer(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int],
    options: Options,
    *,
    dtype: Any = np.float32,
    path: str | None = None,
    bias: bool = True,
    h0: bool = True,
    lengths: Any = None,
) -> Weights:
    """Arrays for T steps of N sequences, I inputs and H hidden units, weights as frameworks draw them.

    A path that does not take `dtype` gets a type that it takes; a path of one step gets only the first step.
    Products may be by TF32 if the path is for that.
    """
    if path is not None and dtype not in dtypes_of(path):
        dtype = dtypes_of(path)[0]
    num_steps, batch, num_inputs, hidden = sizes
    if path in ONE_STEP_PATHS:
        num_steps = 1
    d = options.num_directions
    bound = hidden**-0.5

    def weights(*shape: int) -> np.ndarray:
        return rng.uniform(-bound, bound, shape).astype(dtype)

    return Weights(
        x=rng.standard_normal((num_steps, batch, num_inputs)).astype(dtype),
        w=weights(d, 3 * hidden, num_inputs),
        r=weights(d, 3 * hidden, hidden),
        b=weights(d, 6 * hidden) if bias else None,
        h0=rng.standard_normal((d, batch, hidden)).astype(dtype) if h0 else None,
        lengths=None if lengths is None else np.asarray(lengths, np.uint32),
        allows_tf32=path in ROUNDED_PATHS,
    )


def run_gru(
    device: Device,
    arrays: Weights,
    options: Options,
    *,
    outputs: tuple[str, ...] = ("sequence", "single"),
    layouts: dict[str, Layout] | None = None,
    path: str | None = None,
    limits: Limits | None = None,
    change: Callable[[Plan], Plan] = lambda plan: plan,
    workspace: Callable[[Device, Plan], Any] | None = None,
) -> dict[str, np.ndarray]:
    """The outputs by name. In a layout, what lies around an output must be as before.

    `workspace` makes the temporary resource, a stale one unless told otherwise.
    """
    inputs = {name: a for name in MEMBERS if (a := getattr(arrays, name, None)) is not None}
    num_steps, batch, _ = arrays.x.shape
    hidden = arrays.r.shape[2]
    shapes = {
        "sequence": (num_steps, options.num_directions, batch, hidden),
        "single": (options.num_directions, batch, hidden),
    }
    operands, views, befores = {}, {}, {}
    tensors: dict[str, Any] = dict.fromkeys(MEMBERS.values())
    for name in (*inputs, *outputs):
        dtype = inputs[name].dtype if name in inputs else arrays.x.dtype
        shape = inputs[name].shape if name in inputs else shapes[name]
        layout = (layouts or {}).get(name) or packed_layout(shape)
        before = np.full(layout.packed_size, 7, dtype)
        if name in inputs:
            target = layout.view(before)
            target.flags.writeable = True
            target[...] = inputs[name]
        befores[name] = before
        moved = to_device(device, before)
        operands[name] = moved
        views[name] = layout.view(moved)
        tensors[MEMBERS[name]] = four_dimensional(name, layout.view(before))
    desc = GruDesc(
        **tensors,
        activation_descs=options.all_activations,
        direction=options.direction,
        linear_before_reset=options.linear_before_reset,
    )
    flags = ExecutionFlags(arrays.allows_tf32)
    chosen = change(plan(desc, limits or limits_for(device, path), options.clip, False, flags, path=path))
    by_member = {MEMBERS[name]: view for name, view in views.items()}
    temporary = (workspace or stale_workspace)(device, chosen)
    device.load(chosen)([by_member[name] for name in chosen.operands], temporary)
    found = {name: to_numpy(views[name]).copy() for name in outputs}
    for name in outputs:
        if layouts and name in layouts:
            expected = befores[name].copy()
            layouts[name].view(expected)[...] = found[name]
            np.testing.assert_array_equal(to_numpy(operands[name]), expected)
    return found


def limits_for(device: Device, path: str | None) -> Limits:
    """The device's limits; on the emulator, with enough multiprocessors for all blocks of a path."""
    if path in MATRIX_PATHS and device.limits.compute_capability == 0:
        return replace(device.limits, num_multiprocessors=40)
    return device.limits


def packed_layout(shape: tuple[int, ...]) -> Layout:
    return Layout(shape, (slice(None),) * len(shape), tuple(range(len(shape))), shape)


def four_dimensional(name: str, array: np.ndarray) -> TensorDesc:
    """The descriptor of an array with dimensions of size 1 before its own."""
    kind = DataType.UINT32 if name == "lengths" else BY_NUMPY_NAME[array.dtype.name]
    return tensor_of(kind, (1,) * (4 - array.ndim) + array.shape, array)


def stale_workspace(device: Device, chosen: Any) -> Any:
    """A temporary resource whose exchanged words claim to be of exchange 1: NaN, or pairs of wrong states."""
    if not chosen.temporary_bytes:
        return None
    is_paired = chosen.steps[-1].function == "gru_matrix_grid"
    word = np.uint32(0x4000_4000 | 0x3E00_3E00) if is_paired else np.uint64(1 << 32 | 0x7FC0_0000)
    words = to_device(device, np.full(chosen.temporary_bytes // word.itemsize, word))
    return words.view(np.uint8)


#: Orders of the same sums in which NumPy's error is measured.
NUMPY_ORDERS = 4


def assert_as_precise_as_numpy(
    got: dict[str, np.ndarray], arrays: Weights | Sequence[Weights], options: Options
) -> None:
    """The error against float64 is at most twice that of NumPy in float32, with rounded outputs.

    If TF32 is allowed, NumPy rounds the operands of products to it.

    In a small layer a few roundings decide, so NumPy's error is the largest of several orders of the hidden
    units and inputs, and at least float32's spacing at 1, where gates are, or at a larger result.

    Each of several layers reads the states of the layer before it; its own x is ignored.
    """
    layers = [arrays] if isinstance(arrays, Weights) else [*arrays]
    dtype = layers[0].x.dtype
    exact = stack(layers, options)
    largest = max(abs(a[np.isfinite(a)]).max(initial=0) for a in exact.values())
    allowed = float(np.spacing(np.float32(max(1, largest))))
    rng = np.random.default_rng(0)
    for _ in range(NUMPY_ORDERS):
        hidden, inputs = (rng.permutation(size) for size in (layers[0].r.shape[2], layers[0].x.shape[2]))
        results = stack(reordered(layers, hidden, inputs, options.num_directions), options, np.float32)
        for name, result in results.items():
            allowed = max(allowed, error(result.astype(dtype), exact[name][..., hidden]))
    for name, result in got.items():
        assert result.shape == exact[name].shape
        assert result.dtype == dtype
        found = error(result, exact[name])
        assert found <= 2 * allowed, f"{name}: error {found:.3g}, NumPy has {allowed:.3g}"
        np.testing.assert_array_equal(np.isnan(result), np.isnan(exact[name]), name)


def stack(
    layers: Sequence[Weights], options: Options, precision: type[np.floating] = np.float64
) -> dict[str, np.ndarray]:
    """The last layer's sequence and all layers' last states; below float64, layers pass on rounded states."""
    attributes = options.all_activations, options.direction, options.linear_before_reset
    dtype = precision if precision is np.float64 else layers[0].x.dtype
    singles = []
    sequence = np.empty(0)
    for number, layer in enumerate(layers):
        if number:
            steps, directions, batch, hidden = sequence.shape
            passed = sequence.astype(dtype).transpose(0, 2, 1, 3).reshape(steps, batch, directions * hidden)
            layer = replace(layer, x=passed)
        sequence, single = gru(layer, *attributes, precision, options.clip)
        singles.append(single)
    return {"sequence": sequence, "single": np.concatenate(singles)}


def reordered(
    layers: Sequence[Weights], hidden: np.ndarray, inputs: np.ndarray, directions: int
) -> list[Weights]:
    """The same layers with their hidden units and inputs in another order."""
    units = len(hidden)
    rows = np.concatenate([hidden + gate * units for gate in range(6)])
    passed = np.concatenate([hidden + number * units for number in range(directions)])
    return [
        Weights(
            x=layer.x if number else layer.x[..., inputs],
            w=layer.w[:, rows[: 3 * units]][..., passed if number else inputs],
            r=layer.r[:, rows[: 3 * units]][..., hidden],
            b=None if layer.b is None else layer.b[:, rows],
            h0=None if layer.h0 is None else layer.h0[..., hidden],
            lengths=layer.lengths,
            allows_tf32=layer.allows_tf32,
        )
        for number, layer in enumerate(layers)
    ]


def error(result: np.ndarray, exact: np.ndarray) -> float:
    """The root mean square difference of finite elements: the largest one is a matter of luck."""
    finite = np.isfinite(exact)
    return (
        float(np.sqrt(np.mean((result[finite].astype(np.float64) - exact[finite]) ** 2)))
        if finite.any()
        else 0.0
    )
