"""`GRU`: a layer of gated recurrent units over whole sequences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cudml.checks import (
    Problems,
    Support,
    check_enum,
    check_not_owned,
    check_same_type,
    check_sizes,
    check_support,
    check_tensor,
)
from cudml.enums import DataType, ExecutionFlags, FeatureLevel, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation, check_activation
from cudml.operators.gru.layer import NUM_GATES, Layer
from cudml.operators.gru.paths import PATHS, choose_path
from cudml.operators.gru.serial import padded_units, panels_step
from cudml.operators.gru.wave import PATHS as STACK_PATHS
from cudml.operators.gru.wave import Stack, member_of
from cudml.operators.path import named_path
from cudml.plans import Limits, Plan
from cudml.tensors import PlainMembers, TensorDesc


@dataclass(frozen=True)
class GruDesc(PlainMembers):
    """`DML_GRU_OPERATOR_DESC`: one layer of gated recurrent units, run over T steps of N sequences.

    With f and g the activations, X the input of a step and H the state before it, the gates are::

        z = f(X Wz^T + H Rz^T + Wbz + Rbz)
        r = f(X Wr^T + H Rr^T + Wbr + Rbr)
        h = g(X Wh^T + (r * H) Rh^T + Rbh + Wbh)      linear_before_reset False
        h = g(X Wh^T + r * (H Rh^T + Rbh) + Wbh)      linear_before_reset True

    and the next state is (1 - z) * h + z * H. Rows of the weights are in the order z, r, h.

    Parameters
    ----------
    input_tensor : TensorDesc
        X, (1, T, N, I) for I inputs. All tensors except the lengths have the same type, FLOAT32 or FLOAT16.
        FLOAT16 is computed in float32, with a float32 state; only the outputs are rounded.
    weight_tensor : TensorDesc
        W, (1, D, 3H, I) for H hidden units; D is 2 if `direction` is BIDIRECTIONAL (forward first),
        else 1.
    recurrence_tensor : TensorDesc
        R, (1, D, 3H, H).
    bias_tensor : TensorDesc or None
        (1, 1, D, 6H): Wb of z, r and h, then Rb. None is 0.
    hidden_init_tensor : TensorDesc or None
        (1, D, N, H): the states before the first step. None is 0.
    sequence_lengths_tensor : TensorDesc or None
        (1, 1, 1, N) of UINT32: the steps of each sequence; more than T counts as T. None is T for all.
    output_sequence_tensor : TensorDesc or None
        (T, D, N, H): the state after every step, at the time of its input; 0 past a sequence's length.
    output_single_tensor : TensorDesc or None
        (1, D, N, H): the state after the last processed step, which for a backward direction is the first
        in time; 0 for a sequence of length 0, even with `hidden_init_tensor`.
    activation_descs : sequence of Activation
        f and g; for BIDIRECTIONAL f and g forward, then f and g backward.
    direction : RecurrentNetworkDirection
        Backward directions start at each sequence's own last step.
    linear_before_reset : bool
        Whether the reset gate is applied after the linear transformation.

    Examples
    --------
    >>> from cudml import Activation, DataType, GruDesc, RecurrentNetworkDirection, TensorDesc
    >>> def tensor(*sizes):
    ...     return TensorDesc(DataType.FLOAT32, sizes)
    >>> desc = GruDesc(
    ...     tensor(1, 5, 2, 3), tensor(1, 1, 12, 3), tensor(1, 1, 12, 4), None, None, None,
    ...     tensor(5, 1, 2, 4), None, (Activation.sigmoid(), Activation.tanh()),
    ...     RecurrentNetworkDirection.FORWARD, True)
    >>> desc.output_sequence_tensor.sizes
    (5, 1, 2, 4)

    Notes
    -----
    Source: DML_GRU_OPERATOR_DESC of DirectML's documentation and the GRU operator of ONNX. The
    documentation does not define the steps past a sequence's length; cudml follows ONNX Runtime on the CPU.
    """

    input_tensor: TensorDesc
    weight_tensor: TensorDesc
    recurrence_tensor: TensorDesc
    bias_tensor: TensorDesc | None
    hidden_init_tensor: TensorDesc | None
    sequence_lengths_tensor: TensorDesc | None
    output_sequence_tensor: TensorDesc | None
    output_single_tensor: TensorDesc | None
    activation_descs: tuple[Activation, ...]
    direction: RecurrentNetworkDirection
    linear_before_reset: bool

    if TYPE_CHECKING:  # any sequence is accepted, a tuple is stored

        def __init__(
            self,
            input_tensor: TensorDesc,
            weight_tensor: TensorDesc,
            recurrence_tensor: TensorDesc,
            bias_tensor: TensorDesc | None,
            hidden_init_tensor: TensorDesc | None,
            sequence_lengths_tensor: TensorDesc | None,
            output_sequence_tensor: TensorDesc | None,
            output_single_tensor: TensorDesc | None,
            activation_descs: Sequence[Activation],
            direction: RecurrentNetworkDirection,
            linear_before_reset: bool,
        ) -> None: ...

    _sequences = ("activation_descs",)


#: The tensors that each layer of a stack has of its own.
LAYER_MEMBERS = ("weight_tensor", "recurrence_tensor", "bias_tensor")


@dataclass(frozen=True)
class StackDesc:
    """Layers on top of each other, with the same hidden size, directions and activations.

    `tensors` has the tensors by name, in the order of a call. Tensors of the whole stack have the names of
    `GruDesc`: the states before the first step and after the last are (1, L * D, N, H), with D rows for each
    layer; the output sequence is the last layer's. `member_of` names a layer's own tensors; those of the
    first layer have the names of `GruDesc`. The other members apply to every layer.
    """

    tensors: tuple[tuple[str, TensorDesc], ...]
    activation_descs: tuple[Activation, ...]
    direction: RecurrentNetworkDirection
    linear_before_reset: bool

    @classmethod
    def of_plain(cls, members: Mapping[str, Any]) -> "StackDesc":
        """The stack with these tensors and attributes."""
        tensors = tuple((name, one) for name, one in members.items() if isinstance(one, TensorDesc))
        return cls(tensors, *(members[name] for name in _ATTRIBUTES))

    @property
    def layers(self) -> tuple[GruDesc, ...]:
        """The layers. Between two layers, states of the directions lie side by side, as inputs do."""
        by_name = dict(self.tensors)
        given, single = by_name["input_tensor"], by_name["output_single_tensor"]
        kind = given.data_type
        _, steps, batch, _ = given.sizes
        directions, hidden = 2 if self.direction == _BIDIRECTIONAL else 1, single.sizes[3]
        row = directions * hidden
        num_layers = single.sizes[1] // directions

        def rows(member: str) -> TensorDesc | None:
            """A layer's part of the states of all layers."""
            whole = by_name.get(member)
            return None if whole is None else TensorDesc(kind, (1, directions, batch, hidden), whole.strides)

        def layer(number: int) -> GruDesc:
            passed = TensorDesc(kind, (steps, directions, batch, hidden), (batch * row, hidden, row, 1))
            is_last = number == num_layers - 1
            return GruDesc(
                given if number == 0 else TensorDesc(kind, (1, steps, batch, row)),
                by_name[member_of(number, "weight_tensor")],
                by_name[member_of(number, "recurrence_tensor")],
                by_name.get(member_of(number, "bias_tensor")),
                rows("hidden_init_tensor"),
                by_name.get("sequence_lengths_tensor"),
                by_name["output_sequence_tensor"] if is_last else passed,
                rows("output_single_tensor"),
                self.activation_descs,
                self.direction,
                self.linear_before_reset,
            )

        return tuple(map(layer, range(num_layers)))


_ATTRIBUTES = ("activation_descs", "direction", "linear_before_reset")
_BIDIRECTIONAL = RecurrentNetworkDirection.BIDIRECTIONAL

_INPUTS = (
    "input_tensor",
    "weight_tensor",
    "recurrence_tensor",
    "bias_tensor",
    "hidden_init_tensor",
    "sequence_lengths_tensor",
)
_OUTPUTS = ("output_sequence_tensor", "output_single_tensor")
_OPTIONAL = (*_INPUTS[3:], *_OUTPUTS)
_FLOATS = (DataType.FLOAT32, DataType.FLOAT16)

SUPPORT = (
    Support(
        FeatureLevel.LEVEL_1_0,
        (4,),
        dict.fromkeys((*_INPUTS, *_OUTPUTS), _FLOATS) | {"sequence_lengths_tensor": (DataType.UINT32,)},
    ),
)


def check(desc: GruDesc, level: FeatureLevel) -> None:
    """Raise `DescriptorError` with every rule of the operator that the descriptor breaks."""
    problems = Problems("GRU")
    tensors = {
        member: getattr(desc, member)
        for member in (*_INPUTS, *_OUTPUTS)
        if not (member in _OPTIONAL and getattr(desc, member) is None)
        and check_tensor(problems, member, getattr(desc, member), is_output=member in _OUTPUTS)
    }
    check_support(problems, SUPPORT, level, tensors)
    check_not_owned(problems, tensors, _INPUTS)
    if all(getattr(desc, member) is None for member in _OUTPUTS):
        problems.add("OutputSequenceTensor", "outputs", "given unless OutputSingleTensor is", "None")
    direction_ok = check_enum(problems, "Direction", desc.direction, RecurrentNetworkDirection)
    if not isinstance(desc.linear_before_reset, bool):
        problems.add("LinearBeforeReset", "type", "True or False", repr(desc.linear_before_reset))
    _check_activations(problems, desc, level, direction_ok)
    for member, tensor in tensors.items():
        if member not in ("input_tensor", "sequence_lengths_tensor") and "input_tensor" in tensors:
            check_same_type(problems, member, tensor, "input_tensor", desc.input_tensor)
    _check_sizes(problems, desc, tensors, direction_ok)
    problems.raise_if_any()


def _check_activations(problems: Problems, desc: GruDesc, level: FeatureLevel, direction_ok: bool) -> None:
    """Check the activations, and their number."""
    activations = desc.activation_descs
    if not isinstance(activations, tuple):
        problems.add("ActivationDescs", "type", "a sequence of cudml.Activation", repr(activations))
        return
    if direction_ok:
        count = 2 * _num_directions(desc)
        if len(activations) != count:
            expected = f"{count} for {desc.direction.name}: f and g of each direction"
            problems.add("ActivationDescCount", "length", expected, len(activations))
    for i, activation in enumerate(activations):
        check_activation(problems, f"ActivationDescs[{i}]", activation, level)


def _check_sizes(
    problems: Problems, desc: GruDesc, tensors: dict[str, TensorDesc], direction_ok: bool
) -> None:
    """Check every size against InputTensor, RecurrenceTensor's last size and Direction."""
    known = {member: tensor for member, tensor in tensors.items() if tensor.dimension_count == 4}
    if not direction_ok or not {"input_tensor", "recurrence_tensor"} <= set(known):
        return
    d = _num_directions(desc)
    _, t, n, i = desc.input_tensor.sizes
    h = desc.recurrence_tensor.sizes[3]
    rules = {
        "input_tensor": ((1, t, n, i), "(1, T, N, I)"),
        "weight_tensor": ((1, d, 3 * h, i), "(1, D, 3H, I)"),
        "recurrence_tensor": ((1, d, 3 * h, h), "(1, D, 3H, H)"),
        "bias_tensor": ((1, 1, d, 6 * h), "(1, 1, D, 6H)"),
        "hidden_init_tensor": ((1, d, n, h), "(1, D, N, H)"),
        "sequence_lengths_tensor": ((1, 1, 1, n), "(1, 1, 1, N)"),
        "output_sequence_tensor": ((t, d, n, h), "(T, D, N, H)"),
        "output_single_tensor": ((1, d, n, h), "(1, D, N, H)"),
    }
    for member, tensor in known.items():
        sizes, letters = rules[member]
        because = (
            f"{letters} with T {t}, N {n} and I {i} of InputTensor, H {h} of RecurrenceTensor, D {d} of "
        )
        check_sizes(problems, member, tensor, sizes, f"{because}Direction")


def _num_directions(desc: GruDesc) -> int:
    return 2 if desc.direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1


def layer_of(desc: GruDesc, clip: float = math.inf, flags: ExecutionFlags = ExecutionFlags.NONE) -> Layer:
    """The problem that a path solves."""
    members = (member for member in (*_INPUTS, *_OUTPUTS) if getattr(desc, member) is not None)
    return Layer(
        tensors={member: getattr(desc, member) for member in members},
        activations=desc.activation_descs,
        direction=desc.direction,
        linear_before_reset=desc.linear_before_reset,
        clip=clip,
        allows_tf32=ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION in flags,
    )


def stack_of(desc: StackDesc, clip: float = math.inf, flags: ExecutionFlags = ExecutionFlags.NONE) -> Stack:
    """The problem that a path for all layers at once solves."""
    layers = tuple(layer_of(layer, clip, flags) for layer in desc.layers)
    members = {name: tensor for name, tensor in desc.tensors if name in (*_INPUTS, *_OUTPUTS)}
    return Stack(layers, replace(layers[0], tensors=members))


def plan(
    desc: GruDesc | StackDesc,
    limits: Limits,
    clip: float = math.inf,
    has_panels: bool = False,
    flags: ExecutionFlags = ExecutionFlags.NONE,
    *,
    path: str | None = None,
) -> Plan:
    """The plan of a valid descriptor: project the input for all steps, then run them all in one launch.

    Where the chip cannot hold the weights, a product of the library and a launch for the gates take each step
    instead, or two of each if the reset gate comes before the candidate's product.

    Strides of the tensors may be negative, because the array functions use them.

    The bits of a result depend on the path, because each path sums in its own order. Except on the path
    "products", the bits of the recurrence depend on nothing else, neither on the batch nor on the device. The
    device's library (cuBLAS on a GPU) projects the input. The bits of that product depend on its shape, and
    so on T and N, on the device and on the library's version. The paths for a CPU, "serial" and "panels",
    project the input themselves; both give the same bits, on every machine and for every T and N.

    The inputs of all activations are bounded to [-clip, clip], which ONNX has and DirectML lacks.

    `has_panels` says that W and R are as `panels` makes them, in tensors of `panel_sizes` and float32.

    `flags` may allow products of float32 by TF32, which `cudml.gru` calls `allow_tf32`.

    `path` is a key of `PATHS` to take; None chooses the fastest. Raises ValueError if it is unknown or cannot
    compute this layer, or the hidden size is too large for the device.

    The plan of a stack computes all layers at once, on the path "wave". Raises ValueError if they do not fit.
    """
    if isinstance(desc, StackDesc):
        stack = stack_of(desc, clip, flags)
        steps, workspaces = named_path(STACK_PATHS, path or "wave", stack, limits).steps(stack, limits)
        operands = tuple(name for name, _ in desc.tensors)
        return Plan("GRU", operands, steps, workspaces, _OUTPUTS)
    layer = replace(layer_of(desc, clip, flags), has_panels=has_panels)
    taken = choose_path(layer, limits).path if path is None else named_path(PATHS, path, layer, limits)
    steps, workspaces = taken.steps(layer, limits)
    return Plan(
        operator="GRU",
        operands=tuple(layer.tensors),
        outputs=tuple(m for m in _OUTPUTS if m in layer.tensors),
        steps=steps,
        workspaces=workspaces,
    )


def panel_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of weights in panels: those of a matrix, (..., 3H, columns), with H rounded up."""
    *leading, num_rows, num_columns = sizes
    return (*leading, NUM_GATES * padded_units(num_rows // NUM_GATES), num_columns)


def panels(tensor: TensorDesc, limits: Limits, is_split: bool) -> Plan:
    """The plan that copies packed weights, W or R, into panels, from which a CPU multiplies the fastest.

    Its operands are `weights` and `panels`. R is split unless the layer is linear before reset; W never is.
    """
    step = panels_step(tensor, "weights", "panels", limits, is_split=is_split)
    return Plan("GRU", ("weights", "panels"), (step,), outputs=("panels",))
