"""A few of the random calls of tests/differential.py; its command line runs as many as one likes."""

import numpy as np
import pytest

from cudml.devices import Device
from tests.differential import CHECKS, run_cases

CASES_PER_TEST = 25
TESTS_PER_OPERATOR = 4


@pytest.mark.parametrize("part", range(TESTS_PER_OPERATOR))
@pytest.mark.parametrize("operator", CHECKS)
def test_random_calls_agree(operator: str, part: int, device: Device, rng: np.random.Generator) -> None:
    run_cases(operator, int(rng.integers(2**32)), range(CASES_PER_TEST), device)
