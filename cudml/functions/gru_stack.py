"""The array function `gru_stack`: layers of gated recurrent units, each on top of the one before."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, SupportsIndex, overload

from cudml.devices import Array, Device, LaunchTooLargeError, Program
from cudml.dtypes import INTEGERS
from cudml.errors import a_type
from cudml.executable import load
from cudml.functions.arguments import (
    Arguments,
    Request,
    dtype_in,
    output_pair,
    raise_all,
    wrong_argument,
)
from cudml.functions.array_types import ForeignArray, HostLengths, NumPyArray, Scalar
from cudml.functions.calls import ArrayFunction
from cudml.functions.gru import (
    FLOATS,
    OUTPUTS,
    Direction,
    GruResult,
    cell_of,
    check_same_dtype,
    clip_bound,
    has_usual_types,
    inputs_of,
    outputs_of,
    shape_problems,
)
from cudml.functions.words import GRU_STACK, hiding_words, no_argument
from cudml.operators.gru import operator as _operator
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.operator import LAYER_MEMBERS, StackDesc, stack_of
from cudml.operators.gru.wave import member_of, takes_wave
from cudml.plans import Limits, Plan
from cudml.tensors import num_elements

_NAME = "gru_stack"

#: The arrays of a layer, in the order of `LAYER_MEMBERS`.
_LAYER_NAMES = ("w", "r", "b")

_OTHER_MEMBERS = {
    "x": "input_tensor",
    "h0": "hidden_init_tensor",
    "sequence_lengths": "sequence_lengths_tensor",
}

#: The shapes of the arrays of the whole stack, for messages.
_SHAPES = {"x": ("T", "N", "I"), "h0": ("LD", "N", "H"), "sequence_lengths": ("N",)}

#: The first scratch slot used here; the slots of arguments have greater numbers.
_FIRST_SCRATCH = -2


@overload
def gru_stack(
    x: NumPyArray[Scalar],
    layers: Sequence[Sequence[NumPyArray[Scalar] | None]],
    h0: NumPyArray[Scalar] | None = None,
    sequence_lengths: HostLengths | None = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[NumPyArray[Scalar], NumPyArray[Scalar]] | None = None,
    stream: None = None,
) -> GruResult[NumPyArray[Scalar]]: ...
@overload
def gru_stack(
    x: ForeignArray,
    layers: Sequence[Sequence[ForeignArray | None]],
    h0: ForeignArray | None = None,
    sequence_lengths: ForeignArray | Sequence[Any] | SupportsIndex | None = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
) -> GruResult[Any]: ...
@hiding_words
def gru_stack(
    x: Any,
    layers: Any,
    h0: Any = None,
    sequence_lengths: Any = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[str | Activation] | None = None,
    linear_before_reset: bool = False,
    clip: float | None = None,
    allow_tf32: bool = False,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
    **words: Any,
) -> GruResult[Any]:
    """A stack of layers of gated recurrent units: the inputs of a layer are the states of the layer below.

    T is the number of steps, N of sequences, I of inputs, H of hidden units, L of layers; D is 2 if the
    direction is "bidirectional", else 1.

    Parameters
    ----------
    x : array (T, N, I)
        The inputs of the first layer, as for `cudml.gru`.
    layers : sequence of (w, r) or (w, r, b)
        The weights of each layer, as for `cudml.gru`, of the dtype of `x`; b may be None. All have the same
        H. A layer after the first has I = D * H: the states of both directions, the forward ones first.
    h0 : array (L * D, N, H), optional
        The states before the first step: of each layer, the directions in turn. None is 0.
    sequence_lengths, stream
        As for `cudml.gru`.
    direction, activations, linear_before_reset, clip, allow_tf32
        As for `cudml.gru`, for every layer.
    out : (sequence, single), optional
        As for `cudml.gru`, of the shapes that are returned.

    Returns
    -------
    GruResult
        `sequence` (T, D, N, H), the states of the last layer, and `single` (L * D, N, H), the last states of
        each layer, in the order of `h0`. Both are as for `cudml.gru`.

    Raises
    ------
    ValueError, TypeError
        As `cudml.gru` does; also no layers, or layers that do not fit the one before.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> x, w = np.ones((5, 4, 2), np.float32), np.ones((1, 9, 2), np.float32)
    >>> r = np.zeros((1, 9, 3), np.float32)
    >>> sequence, single = cudml.gru_stack(x, [(w, r), (r, r)], linear_before_reset=True)
    >>> sequence.shape, single.shape
    ((5, 1, 4, 3), (2, 4, 3))

    Notes
    -----
    The states that a layer passes to the next are of the dtype of `x`. `torch.nn.GRU(num_layers=L)` computes
    the same with `linear_before_reset` and weights in another order of the gates.

    On a GPU that has room for them, two to four layers of one direction run in one launch, where each is a
    step behind the one below. The plan estimates when that is faster. Then products of a layer's inputs and
    of its states are summed together, in an order that depends on H alone. So the bits differ from those of
    `cudml.gru`. They depend on the batch and the device only through the first layer's product by cuBLAS.
    The error is within the same bound, twice that of NumPy in the same precision. Otherwise, and on a CPU,
    the bits are those of a call of `cudml.gru` for each layer.

    Source: GRU of DirectML's documentation, ONNX's GRU, and `torch.nn.GRU`.
    """
    if words:
        raise no_argument(gru_stack, next(iter(words)), GRU_STACK)
    given = named(x, layers, h0, sequence_lengths)
    names = (*given,)
    if isinstance(activations, list):
        activations = tuple(activations)
    cell = direction, activations, linear_before_reset, clip_bound(clip, _NAME), allow_tf32
    options: Any = (names, len(layers), *cell)
    if not has_usual_types(activations, linear_before_reset, allow_tf32):
        options = list(options)  # the check raises the error
    outputs = () if out is None else output_pair(_NAME, out, "sequence, single")
    inputs = (*given.values(),)
    call = _gru_stack.find(inputs, outputs, options, stream)
    if call is None:
        return GruResult._make(_gru_stack.plan_and_run(inputs, outputs, options, stream, names=names))
    return GruResult._make(call.run(inputs, outputs, stream))


def named(x: Any, layers: Any, h0: Any, sequence_lengths: Any) -> dict[str, Any]:
    """The given arrays of a call by their names in messages."""
    others = {"h0": h0, "sequence_lengths": sequence_lengths}
    given = {"x": x} | _of_layers(layers)
    return given | {name: array for name, array in others.items() if array is not None}


def _of_layers(layers: Any) -> dict[str, Any]:
    """The arrays of all layers by name."""
    if not isinstance(layers, (list, tuple)):
        raise TypeError(wrong_argument(_NAME, "layers", a_type(layers), "a list of (w, r) or (w, r, b)"))
    if not layers:
        raise ValueError(wrong_argument(_NAME, "layers", "empty", "of at least one layer"))
    arrays: dict[str, Any] = {}
    errors: list[Exception] = []
    for number, layer in enumerate(layers):
        name, expected = f"layers[{number}]", "(w, r) or (w, r, b)"
        if not isinstance(layer, (list, tuple)) or len(layer) not in (2, 3):
            got = f"{a_type(layer)} of {len(layer)}" if isinstance(layer, (list, tuple)) else a_type(layer)
            errors.append(TypeError(wrong_argument(_NAME, name, got, expected)))
            continue
        own = zip(_LAYER_NAMES, layer, strict=False)
        arrays |= {_name_in(number, one): array for one, array in own if one != "b" or array is not None}
    raise_all(_NAME, errors)
    return arrays


def _name_in(number: int, name: str) -> str:
    return f"{name} of layers[{number}]"


def _check_shapes(arrays: dict[str, Array], num_layers: int, num_directions: int) -> None:
    """Compare every shape with the shapes of x, of the first layer's r and of the layer before."""
    x, r = arrays["x"], arrays[_name_in(0, "r")]
    sizes = {"D": num_directions, "L": num_layers, "LD": num_layers * num_directions}
    sources = {"D": "direction", "L": "layers", "H": _name_in(0, "r"), **dict.fromkeys("TNI", "x")}
    if r.ndim == 3:
        sizes["H"] = r.shape[2]
    if x.ndim == 3:
        sizes |= dict(zip("TNI", x.shape, strict=True))
    whole = {name: arrays[name] for name in _SHAPES if name in arrays}
    problems = shape_problems(whole, sizes, sources, _SHAPES)
    for number in range(num_layers):
        if number and "H" in sizes:
            sizes["I"] = num_directions * sizes["H"]
            sources["I"] = f"the states of layers[{number - 1}]"
        given = {name: arrays.get(_name_in(number, name)) for name in _LAYER_NAMES}
        own = {name: array for name, array in given.items() if array is not None}
        problems += shape_problems(own, sizes, sources, where=f" of layers[{number}]")
    if problems:
        raise ValueError(f"{_NAME}: {'; '.join(problems)}")


class _Chain:
    """The program of a stack whose layers run one after the other, each by its plan and program."""

    def __init__(self, desc: StackDesc, device: Device, layers: Sequence[tuple[Plan, Program]]) -> None:
        self._device, self._layers = device, layers
        self._members = tuple(name for name, _ in desc.tensors)
        layer = desc.layers[-1]
        self._rows = layer.recurrence_tensor.sizes[1]
        # The size of the states that a layer passes to the next.
        self._bytes = num_elements(layer.input_tensor.sizes) * layer.input_tensor.element.size

    def __call__(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        """Compute the outputs from the inputs, on the current stream."""
        given = dict(zip(self._members, operands, strict=True))
        outputs = given["output_sequence_tensor"], given["output_single_tensor"]
        num_between = min(2, len(self._layers) - 1)
        with self._device.on_stream(None):
            between = [
                self._device.scratch(self._bytes, outputs, part=_FIRST_SCRATCH - number)
                for number in range(num_between)
            ]
            for number, (plan, launch) in enumerate(self._layers):
                own = {member: given.get(member_of(number, member)) for member in LAYER_MEMBERS}
                rows = slice(number * self._rows, (number + 1) * self._rows)
                for member in ("hidden_init_tensor", "output_single_tensor"):
                    if member in given:
                        own[member] = given[member][rows]
                if number > 0:
                    own["input_tensor"] = between[(number - 1) % 2]
                if number < len(self._layers) - 1:
                    own["output_sequence_tensor"] = between[number % 2]
                launch([own[name] if name in own else given[name] for name in plan.operands], None)


class _GruStack(ArrayFunction):
    """The array function."""

    name, input_names, output_names = _NAME, (*_OTHER_MEMBERS,), OUTPUTS
    lengths_axes = slice(1, 2)
    descriptor = StackDesc

    def check(
        self,
        given: Arguments,
        names: Sequence[str],
        num_layers: int,
        direction: Any,
        activations: Any,
        linear_before_reset: Any,
        clip: float = math.inf,
        allow_tf32: Any = False,
    ) -> Request:
        arrays = given.arrays
        x = arrays["x"]
        cell = cell_of(_NAME, direction, activations, linear_before_reset, clip, allow_tf32)
        kind = dtype_in(_NAME, "x", x, FLOATS)
        if "sequence_lengths" in names:
            dtype_in(_NAME, "sequence_lengths", arrays["sequence_lengths"], INTEGERS)
        floats = {name: arrays[name] for name in names if name != "sequence_lengths"}
        check_same_dtype(_NAME, floats, x.dtype, "as x")
        _check_shapes(arrays, num_layers, cell.num_directions)
        members = {name: member for name, member in _OTHER_MEMBERS.items() if name in arrays}
        for number in range(num_layers):
            for name, member in zip(_LAYER_NAMES, LAYER_MEMBERS, strict=True):
                members[_name_in(number, name)] = member_of(number, member)
        inputs = inputs_of({name: arrays[name] for name in names}, members)
        hidden, outs = arrays[_name_in(0, "r")].shape[2], [arrays.get(name) for name in OUTPUTS]
        outputs = outputs_of(_NAME, cell, kind, x, hidden, outs, num_layers)
        options, is_zero = (cell.clip, False, cell.flags), len(x) == 0
        return Request(inputs, outputs, cell.attributes, options, is_zero=is_zero, has_parts=True)

    def load_parts(
        self, desc: StackDesc, options: tuple[Any, ...], device: Device, limits: Limits
    ) -> tuple[Plan | None, Program]:
        """All layers at once, if that is estimated to be faster and the device has room; else one by one."""
        clip, _, flags = options
        if takes_wave(stack_of(desc, clip, flags), limits):
            with suppress(LaunchTooLargeError):
                return load(_operator.plan, desc, device, options, limits)
        layers = [load(_operator.plan, layer, device, options, limits) for layer in desc.layers]
        return None, _Chain(desc, device, layers)


_gru_stack = _GruStack()
