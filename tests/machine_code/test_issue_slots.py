"""Instructions that the filter of long rows spends on an element that it drops, counted in runs of its code.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

from dataclasses import replace

import numpy as np
import pytest

from proof.sass.compiler import unavailable
from proof.sass.launch import Buffer, run
from proof.sass.plan import HOPPER, launch_of
from tests.support.top_k_runs import Options, launches, plan_for

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: A multiprocessor runs two blocks at once, each with a row of its own.
LIMITS = replace(HOPPER.limits, num_multiprocessors=1)
NUM_ROWS = 2
K = 16

#: At 4.3 TB/s, a multiprocessor of an H200 has 31, 15.6 and 7.8 instructions for an element. Those that the
#: loop does not use are for listed elements, samples and merges.
MOST = {"float32": 12, "float16": 7, "int8": 5}

#: Two row lengths; the difference of their counts has no sample, no list and no results.
LENGTHS = (1 << 18, 1 << 19)


def instructions(dtype: str, row_length: int) -> int:
    """A warp's instructions for rows of equal elements: a few tiles fill the list, then all are dropped."""
    x = np.ones((NUM_ROWS, row_length), dtype)
    plan = plan_for(x, Options(K, path="block_filter"), LIMITS)
    (launch,) = launches(plan)
    results = {"output_value_tensor": x.itemsize, "output_index_tensor": 4}
    buffers = {"input_tensor": Buffer(x.view(np.uint8).reshape(-1))} | {
        name: Buffer(np.empty(NUM_ROWS * K * size, np.uint8), is_output=True)
        for name, size in results.items()
    }
    return run(launch_of(launch, buffers)).totals.instructions


@pytest.mark.parametrize("dtype", MOST)
def test_instructions_of_an_element(dtype: str) -> None:
    less, more = (instructions(dtype, length) for length in LENGTHS)
    slots = 32 * (more - less) / (NUM_ROWS * (LENGTHS[1] - LENGTHS[0]))
    assert slots <= MOST[dtype]
