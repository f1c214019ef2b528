"""A GRU layer by its formulas, in NumPy and in any precision.

It shares no arithmetic with the package or the benchmark, so that a mistake there is not repeated here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cudml.enums import OperatorType, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation

_SQRT_2 = 1.4142135623730951


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function, in float64: NumPy has none."""
    from math import erf

    return np.array([erf(float(v)) for v in x.ravel()], np.float64).reshape(x.shape)


def _hard_sigmoid(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return np.maximum(0, np.minimum(alpha * x + beta, 1))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # 1 / infinity is the limit
        return 1 / (1 + np.exp(-x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, x.dtype.type(0))


_FORMULAS: dict[OperatorType, Callable[..., np.ndarray]] = {
    OperatorType.ACTIVATION_IDENTITY: lambda x: x,
    OperatorType.ACTIVATION_LINEAR: lambda x, a, b: a * x + b,
    OperatorType.ACTIVATION_ELU: lambda x, a: np.where(x >= 0, x, a * np.expm1(x)),
    OperatorType.ACTIVATION_RELU: lambda x: np.maximum(x, 0),
    OperatorType.ACTIVATION_CELU: lambda x, a: np.maximum(x, 0) + np.minimum(0, a * np.expm1(x / a)),
    OperatorType.ACTIVATION_GELU: lambda x: (x / 2 * (1 + _erf(x / _SQRT_2))).astype(x.dtype),
    OperatorType.ACTIVATION_SCALED_ELU: lambda x, a, g: np.where(x > 0, g * x, g * (a * np.expm1(x))),
    OperatorType.ACTIVATION_LEAKY_RELU: lambda x, a: np.where(x >= 0, x, a * x),
    OperatorType.ACTIVATION_THRESHOLDED_RELU: lambda x, a: np.where(x > a, x, 0),
    OperatorType.ACTIVATION_PARAMETRIC_SOFTPLUS: lambda x, a, b: a * _softplus(b * x),
    OperatorType.ACTIVATION_SIGMOID: _sigmoid,
    OperatorType.ACTIVATION_HARD_SIGMOID: _hard_sigmoid,
    OperatorType.ACTIVATION_SOFTPLUS: lambda x, s: _softplus(s * x) / s,
    OperatorType.ACTIVATION_SOFTSIGN: lambda x: x / (1 + abs(x)),
    OperatorType.ACTIVATION_TANH: np.tanh,
    OperatorType.ACTIVATION_SCALED_TANH: lambda x, a, b: a * np.tanh(b * x),
    OperatorType.ACTIVATION_SHRINK: lambda x, b, t: np.where(x < -t, x + b, np.where(x > t, x - b, 0)),
    OperatorType.ACTIVATION_SWISH: lambda x, s: x * _sigmoid(s * x),
    OperatorType.ACTIVATION_HARD_SWISH: lambda x, a, b: x * _hard_sigmoid(x, a, b),
}


def apply(activation: Activation, x: np.ndarray) -> np.ndarray:
    """The activation by its formula, in the precision of `x`."""
    parameters = [x.dtype.type(value) for value in activation.parameters]
    return _FORMULAS[activation.operator_type](x, *parameters)


def _apply_clipped(activation: Activation, clip: np.floating, x: np.ndarray) -> np.ndarray:
    return apply(activation, np.clip(x, -clip, clip))


@dataclass(frozen=True)
class Weights:
    """A layer's arrays in ONNX's shapes; `h0`, `b` and `lengths` may be None.

    `allows_tf32` says that products in float32 are of operands rounded to TF32.
    """

    x: np.ndarray
    w: np.ndarray
    r: np.ndarray
    b: np.ndarray | None = None
    h0: np.ndarray | None = None
    lengths: np.ndarray | None = None
    allows_tf32: bool = False


def as_tf32(values: np.ndarray) -> np.ndarray:
    """The nearest numbers with the 10 bits of mantissa of TF32; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(values), values, rounded)


def gru(
    arrays: Weights,
    activations: Sequence[Activation],
    direction: RecurrentNetworkDirection,
    linear_before_reset: bool,
    precision: type[np.floating] = np.float64,
    clip: float = math.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """(T, D, N, H) and (D, N, H), computed and kept in `precision`; activations clip inputs to [-clip, clip].

    Every sequence takes its own number of steps, at most T; a backward direction starts at its last.
    Outputs past a sequence's end are 0, and so are both outputs of a sequence without steps.
    """
    rounds = arrays.allows_tf32 and precision is np.float32

    def factor(values: np.ndarray) -> np.ndarray:
        """An operand as products take it."""
        return as_tf32(values) if rounds else values

    x, w, r = (factor(a.astype(precision)) for a in (arrays.x, arrays.w, arrays.r))
    num_steps, batch, _ = x.shape
    num_directions, _, hidden = r.shape
    b = np.zeros((num_directions, 6 * hidden)) if arrays.b is None else arrays.b
    h0 = np.zeros((num_directions, batch, hidden)) if arrays.h0 is None else arrays.h0
    given = np.full(batch, num_steps) if arrays.lengths is None else arrays.lengths
    lengths = np.minimum(given.astype(np.int64), num_steps)
    sequence = np.zeros((num_steps, num_directions, batch, hidden), precision)
    single = np.zeros((num_directions, batch, hidden), precision)
    for d in range(num_directions):
        is_backward = d == 1 or direction == RecurrentNetworkDirection.BACKWARD
        f, g = (partial(_apply_clipped, a, precision(clip)) for a in activations[2 * d : 2 * d + 2])
        wb, rb = b[d].astype(precision).reshape(2, 3 * hidden)
        wz, wr, wh = w[d].reshape(3, hidden, -1)
        rz, rr, rh = r[d].reshape(3, hidden, hidden)
        (wbz, wbr, wbh), (rbz, rbr, rbh) = wb.reshape(3, hidden), rb.reshape(3, hidden)
        state = h0[d].astype(precision)
        for step in range(num_steps):
            (n,) = np.nonzero(step < lengths)
            if len(n) == 0:
                break
            t = lengths[n] - 1 - step if is_backward else np.full(len(n), step)
            now, before = x[t, n], state[n]
            h = factor(before)
            z = f(now @ wz.T + h @ rz.T + wbz + rbz)
            reset = f(now @ wr.T + h @ rr.T + wbr + rbr)
            if linear_before_reset:
                candidate = g(now @ wh.T + reset * (h @ rh.T + rbh) + wbh)
            else:
                candidate = g(now @ wh.T + factor(reset * before) @ rh.T + rbh + wbh)
            state[n] = (1 - z) * candidate + z * before
            sequence[t, d, n] = state[n]
        single[d, lengths > 0] = state[lengths > 0]
    return sequence, single
