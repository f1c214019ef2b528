"""The fused activations of recurrent operators: the table of them, and the value that names one."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from cudml.checks import Problems
from cudml.enums import FeatureLevel, OperatorType


@dataclass(frozen=True)
class ActivationInfo:
    """One row of the table.

    `parameters` are the descriptor's members in their order, in snake_case. `defaults` are those of ONNX, or
    of the documentation for activations that ONNX's recurrent operators lack. Descriptors have no defaults.
    """

    operator_type: OperatorType
    onnx_name: str
    level: FeatureLevel
    parameters: tuple[str, ...] = ()
    defaults: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """`ACTIVATION_ELU`, as DirectML's messages and JSON models spell it."""
        return self.operator_type.name


_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875

_TABLE = (
    ActivationInfo(OperatorType.ACTIVATION_IDENTITY, "Identity", FeatureLevel.LEVEL_1_0),
    ActivationInfo(
        OperatorType.ACTIVATION_LINEAR, "Affine", FeatureLevel.LEVEL_1_0, ("alpha", "beta"), (1.0, 0.0)
    ),
    ActivationInfo(OperatorType.ACTIVATION_ELU, "Elu", FeatureLevel.LEVEL_1_0, ("alpha",), (1.0,)),
    ActivationInfo(OperatorType.ACTIVATION_RELU, "Relu", FeatureLevel.LEVEL_1_0),
    ActivationInfo(OperatorType.ACTIVATION_CELU, "Celu", FeatureLevel.LEVEL_3_0, ("alpha",), (1.0,)),
    ActivationInfo(OperatorType.ACTIVATION_GELU, "Gelu", FeatureLevel.LEVEL_5_1),
    ActivationInfo(
        OperatorType.ACTIVATION_SCALED_ELU,
        "Selu",
        FeatureLevel.LEVEL_1_0,
        ("alpha", "gamma"),
        (_SELU_ALPHA, _SELU_GAMMA),
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_LEAKY_RELU, "LeakyRelu", FeatureLevel.LEVEL_1_0, ("alpha",), (0.01,)
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_THRESHOLDED_RELU,
        "ThresholdedRelu",
        FeatureLevel.LEVEL_1_0,
        ("alpha",),
        (1.0,),
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_PARAMETRIC_SOFTPLUS,
        "ParametricSoftplus",
        FeatureLevel.LEVEL_1_0,
        ("alpha", "beta"),
        (1.0, 1.0),
    ),
    ActivationInfo(OperatorType.ACTIVATION_SIGMOID, "Sigmoid", FeatureLevel.LEVEL_1_0),
    ActivationInfo(
        OperatorType.ACTIVATION_HARD_SIGMOID,
        "HardSigmoid",
        FeatureLevel.LEVEL_1_0,
        ("alpha", "beta"),
        (0.2, 0.5),
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_SOFTPLUS, "Softplus", FeatureLevel.LEVEL_1_0, ("steepness",), (1.0,)
    ),
    ActivationInfo(OperatorType.ACTIVATION_SOFTSIGN, "Softsign", FeatureLevel.LEVEL_1_0),
    ActivationInfo(OperatorType.ACTIVATION_TANH, "Tanh", FeatureLevel.LEVEL_1_0),
    ActivationInfo(
        OperatorType.ACTIVATION_SCALED_TANH,
        "ScaledTanh",
        FeatureLevel.LEVEL_1_0,
        ("alpha", "beta"),
        (1.0, 1.0),
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_SHRINK, "Shrink", FeatureLevel.LEVEL_2_0, ("bias", "threshold"), (0.0, 0.5)
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_SWISH, "Swish", FeatureLevel.LEVEL_6_2, ("sigmoid_input_scale",), (1.0,)
    ),
    ActivationInfo(
        OperatorType.ACTIVATION_HARD_SWISH,
        "HardSwish",
        FeatureLevel.LEVEL_6_2,
        ("alpha", "beta"),
        (1 / 6, 0.5),
    ),
)

#: The legal activations of recurrent operators.
ACTIVATIONS: dict[OperatorType, ActivationInfo] = {row.operator_type: row for row in _TABLE}


def _info_of(kind: object) -> ActivationInfo | None:
    """The row of a legal activation; None for anything else."""
    return ACTIVATIONS.get(kind) if isinstance(kind, OperatorType) else None


_BY_ONNX_NAME = {row.onnx_name.lower(): row for row in _TABLE}

#: The level from which the steepness of SOFTPLUS may be below 1.
_FLAT_SOFTPLUS_LEVEL = FeatureLevel.LEVEL_6_4


def _plain_numbers(values: object) -> object:
    """Convert a sequence to a tuple, and real numbers of other libraries to float; keep anything else."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        return values
    return tuple(v if isinstance(v, (int, float)) or not isinstance(v, Real) else float(v) for v in values)


def activation_names() -> str:
    """The names of all activations, for messages."""
    return ", ".join(sorted(info.onnx_name for info in _TABLE))


def _row_named(name: str) -> ActivationInfo:
    """The row of an ONNX name, which may be in any case.

    Raises ValueError, which lists the known names, if there is no such row.
    """
    row = _BY_ONNX_NAME.get(name.lower())
    if row is None:
        raise ValueError(f"Activation: operator_type is {name!r}, must be one of {activation_names()}")
    return row


@dataclass(frozen=True, init=False)
class Activation:
    """A fused activation with its parameters, as in an activation's `DML_OPERATOR_DESC`.

    There is a constructor for every legal activation; like the C structs, they have no defaults.

    Parameters
    ----------
    operator_type : OperatorType or str
        One of `ACTIVATIONS`, or its name in ONNX, in any case; stored as an OperatorType.
    parameters : sequence of float, optional
        The members of its descriptor, in their order. The default is ONNX's defaults for a name, and no
        parameters for an OperatorType.

    Raises
    ------
    ValueError
        Unknown name.

    Examples
    --------
    >>> from cudml import Activation, OperatorType
    >>> Activation.leaky_relu(0.01)
    Activation.leaky_relu(alpha=0.01)
    >>> Activation.sigmoid() == Activation(OperatorType.ACTIVATION_SIGMOID) == Activation("Sigmoid")
    True
    >>> Activation("LeakyRelu")
    Activation.leaky_relu(alpha=0.01)

    Notes
    -----
    Source: the descriptors' pages of DirectML's documentation. The activations that recurrent operators take
    are from the maintainers' list in webmachinelearning/webnn#689. PARAMETERIZED_RELU is on that list, but
    its slope is a tensor, which a fused activation cannot carry.
    """

    operator_type: OperatorType
    parameters: tuple[float, ...]

    def __init__(self, operator_type: OperatorType | str, parameters: Sequence[float] | None = None) -> None:
        if isinstance(operator_type, str):
            row = _row_named(operator_type)
            operator_type = row.operator_type
            parameters = row.defaults if parameters is None else parameters
        object.__setattr__(self, "operator_type", operator_type)
        object.__setattr__(self, "parameters", _plain_numbers(() if parameters is None else parameters))

    def __repr__(self) -> str:
        info = _info_of(self.operator_type)
        values = self.parameters
        if info is None or not isinstance(values, tuple) or len(info.parameters) != len(values):
            return f"Activation({self.operator_type!r}, {self.parameters!r})"
        members = ", ".join(f"{n}={v!r}" for n, v in zip(info.parameters, values, strict=True))
        return f"Activation.{info.name.removeprefix('ACTIVATION_').lower()}({members})"

    @staticmethod
    def identity() -> "Activation":
        """x"""
        return Activation(OperatorType.ACTIVATION_IDENTITY)

    @staticmethod
    def linear(alpha: float, beta: float) -> "Activation":
        """alpha x + beta"""
        return Activation(OperatorType.ACTIVATION_LINEAR, (alpha, beta))

    @staticmethod
    def elu(alpha: float) -> "Activation":
        """x; below 0, alpha (e^x - 1)"""
        return Activation(OperatorType.ACTIVATION_ELU, (alpha,))

    @staticmethod
    def relu() -> "Activation":
        """max(0, x)"""
        return Activation(OperatorType.ACTIVATION_RELU)

    @staticmethod
    def celu(alpha: float) -> "Activation":
        """max(0, x) + min(0, alpha (e^(x / alpha) - 1)); from feature level 3_0"""
        return Activation(OperatorType.ACTIVATION_CELU, (alpha,))

    @staticmethod
    def gelu() -> "Activation":
        """x / 2 (1 + erf(x / sqrt 2)); from feature level 5_1"""
        return Activation(OperatorType.ACTIVATION_GELU)

    @staticmethod
    def scaled_elu(alpha: float, gamma: float) -> "Activation":
        """gamma x; where x is not above 0, gamma (alpha e^x - alpha)"""
        return Activation(OperatorType.ACTIVATION_SCALED_ELU, (alpha, gamma))

    @staticmethod
    def leaky_relu(alpha: float) -> "Activation":
        """x; below 0, alpha x"""
        return Activation(OperatorType.ACTIVATION_LEAKY_RELU, (alpha,))

    @staticmethod
    def thresholded_relu(alpha: float) -> "Activation":
        """x above alpha, else 0"""
        return Activation(OperatorType.ACTIVATION_THRESHOLDED_RELU, (alpha,))

    @staticmethod
    def parametric_softplus(alpha: float, beta: float) -> "Activation":
        """alpha ln(1 + e^(beta x))"""
        return Activation(OperatorType.ACTIVATION_PARAMETRIC_SOFTPLUS, (alpha, beta))

    @staticmethod
    def sigmoid() -> "Activation":
        """1 / (1 + e^-x)"""
        return Activation(OperatorType.ACTIVATION_SIGMOID)

    @staticmethod
    def hard_sigmoid(alpha: float, beta: float) -> "Activation":
        """alpha x + beta, at least 0 and at most 1"""
        return Activation(OperatorType.ACTIVATION_HARD_SIGMOID, (alpha, beta))

    @staticmethod
    def softplus(steepness: float) -> "Activation":
        """ln(1 + e^(steepness x)) / steepness; a steepness below 1 from feature level 6_4"""
        return Activation(OperatorType.ACTIVATION_SOFTPLUS, (steepness,))

    @staticmethod
    def softsign() -> "Activation":
        """x / (1 + abs(x))"""
        return Activation(OperatorType.ACTIVATION_SOFTSIGN)

    @staticmethod
    def tanh() -> "Activation":
        """tanh x"""
        return Activation(OperatorType.ACTIVATION_TANH)

    @staticmethod
    def scaled_tanh(alpha: float, beta: float) -> "Activation":
        """alpha tanh(beta x)"""
        return Activation(OperatorType.ACTIVATION_SCALED_TANH, (alpha, beta))

    @staticmethod
    def shrink(bias: float, threshold: float) -> "Activation":
        """x + bias below -threshold, x - bias above threshold, else 0; from feature level 2_0"""
        return Activation(OperatorType.ACTIVATION_SHRINK, (bias, threshold))

    @staticmethod
    def swish(sigmoid_input_scale: float) -> "Activation":
        """x sigmoid(sigmoid_input_scale x); from feature level 6_2"""
        return Activation(OperatorType.ACTIVATION_SWISH, (sigmoid_input_scale,))

    @staticmethod
    def hard_swish(alpha: float, beta: float) -> "Activation":
        """x hard_sigmoid(x; alpha, beta); from feature level 6_2"""
        return Activation(OperatorType.ACTIVATION_HARD_SWISH, (alpha, beta))


def check_activation(problems: Problems, member: str, activation: object, level: FeatureLevel) -> bool:
    """Report every broken rule of one activation; return whether there are none."""
    before = len(problems.found)
    if not isinstance(activation, Activation):
        problems.add(member, "type", "a cudml.Activation", repr(activation))
        return False
    info = _info_of(activation.operator_type)
    if info is None:
        kind = activation.operator_type
        got = kind.name if isinstance(kind, OperatorType) else repr(kind)
        names = ", ".join(row.name for row in _TABLE)
        problems.add(f"{member}.Type", "activation", f"one of {names}", got)
        return False
    if level < info.level:
        expected = f"an activation of feature level {level} ({info.name} is allowed from {info.level})"
        problems.add(f"{member}.Type", "level", expected, info.name)
    values = activation.parameters
    if not isinstance(values, tuple) or len(values) != len(info.parameters):
        expected = f"{len(info.parameters)} numbers" + "".join(
            f"{' (' if i == 0 else ', '}{name}" for i, name in enumerate(info.parameters)
        )
        expected += ")" if info.parameters else ""
        problems.add(f"{member}.parameters", "length", expected, repr(values))
        return False
    for name, value in zip(info.parameters, values, strict=True):
        spelled = "".join(word.capitalize() for word in name.split("_"))
        if not _is_float32(value):
            problems.add(f"{member}.{spelled}", "range", "a number that FLOAT32 can hold", repr(value))
        elif name == "steepness" and not value >= 1 and level < _FLAT_SOFTPLUS_LEVEL:
            expected = f"at least 1 at feature level {level} (less is allowed from {_FLAT_SOFTPLUS_LEVEL})"
            problems.add(f"{member}.{spelled}", "range", expected, value)
    return len(problems.found) == before


def _is_float32(value: object) -> bool:
    """Whether a value is a number that does not overflow in float32; infinity and NaN do not overflow."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        struct.pack("<f", value)
    except (OverflowError, struct.error):
        return False
    return True
