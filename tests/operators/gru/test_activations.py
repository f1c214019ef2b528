"""Every activation at the numbers where formulas go wrong: NaN, infinities, zeros, borders, extremes."""

from pathlib import Path

import numpy as np
import pytest

from cudml.enums import OperatorType
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.plans import Params, ParamStruct
from proof.oracle.gru import apply
from tests.devices.emulator.support import launch

KERNEL = Path(__file__).parent / "kernels" / "activations.cu"
STRUCT = ParamStruct("Int64 num_elements", "Int32 code", "Float32 first, second")

#: Parameters beside the defaults: 1, and some of either sign.
PARAMETERS = ((1.0, 1.0), (0.25, 0.75), (0.5, -0.5), (3.0, 0.0))


def computed(activation: Activation, x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    first, second = (*activation.parameters, 0.0, 0.0)[:2]
    values = {
        "num_elements": x.size,
        "code": int(activation.operator_type),
        "first": first,
        "second": second,
    }
    launch(KERNEL, "activations", {"in": x, "out": out}, Params(STRUCT, values), block=1, outputs=("out",))
    return out


@pytest.mark.parametrize("operator_type", ACTIVATIONS, ids=lambda kind: kind.name)
def test_special_numbers(operator_type: OperatorType, rng: np.random.Generator) -> None:
    """The formula in float64, up to a few roundings; NaN gives NaN, whatever it compares to."""
    info = ACTIVATIONS[operator_type]
    for given in (info.defaults, *PARAMETERS):
        activation = Activation(operator_type, given[: len(info.parameters)])
        borders = [
            sign * (p + step) for p in activation.parameters for sign in (-1, 1) for step in (-0.1, 0, 0.1)
        ]
        fixed = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 80.0, -80.0, 1e30, -1e30]
        x = np.array([*fixed, *borders, *rng.normal(0, 4, 50)], np.float32)
        with np.errstate(all="ignore"):
            expected = apply(activation, x.astype(np.float64))
        expected[np.isnan(x)] = np.nan
        got = computed(activation, x)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=str(activation))
        np.testing.assert_allclose(got, expected.astype(np.float32), rtol=2e-6, atol=2e-7)
