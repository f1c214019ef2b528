"""The stand-in for CUDA: what it computes, refuses, orders and records.

The tests run in the process that loads the stand-in, so they are skipped unless `CUDML_TEST_STAND_IN` is
set.
"""

from typing import Any

import pytest

from proof import stand_in

OVER_STAND_IN = [
    pytest.mark.gpu,
    pytest.mark.skipif(stand_in.loaded() is None, reason="CUDML_TEST_STAND_IN is not set"),
]


def the_stand_in() -> stand_in.StandIn:
    found = stand_in.loaded()
    assert found is not None
    return found


def kernel(text: str, name: str, **options: Any) -> Any:
    """A kernel of a text, compiled like any kernel of CuPy."""
    import cupy

    return cupy.RawKernel(text, name, **options)
