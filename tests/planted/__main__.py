"""`python -m tests.planted CASE...`: check cases of `tests/support/observed_cases.py` until one fails."""

import sys

import numpy as np

from tests.support.observed_cases import CASES, check

for name in sys.argv[1:]:
    check(CASES[name], np.random.default_rng(0))
