"""Other orders by seed: all are legal, and kernels of two streams are also interleaved."""

import os
import subprocess
import sys

import pytest

from tests.stand_in import OVER_STAND_IN

pytestmark = OVER_STAND_IN

#: Two streams count up one counter; the last block of a launch adds up the parts and sets it to zero again.
_PROGRAM = """
import sys
from proof import stand_in
stand_in.load(seed=int(sys.argv[1]) or None)
import cupy, numpy as np
text = r'''extern "C" __global__
void total(const unsigned* a, unsigned* parts, unsigned* count, unsigned* out) {
  parts[blockIdx.x] = a[blockIdx.x];
  __threadfence();
  if (atomicAdd(count, 1) != gridDim.x - 1) return;
  unsigned sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += atomicAdd(parts + i, 0);
  *out = sum;
  *count = 0;
}'''
total = cupy.RawKernel(text, "total")
sums = []
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
shared = cupy.zeros(1, np.uint32)
for number, stream in enumerate(streams):
    a = cupy.full(8, number + 1, np.uint32)
    parts, out = cupy.zeros(8, np.uint32), cupy.zeros(1, np.uint32)
    count = shared if sys.argv[2] == "shared" else cupy.zeros(1, np.uint32)
    sums.append((a, parts, count, out))
cupy.cuda.Device().synchronize()
for arrays, stream in zip(sums, streams):
    total((8,), (1,), arrays, stream=stream)
cupy.cuda.Device().synchronize()
print([int(arrays[-1].get()[0]) for arrays in sums])
"""


def _sums(seed: int, counters: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "CUDML_TEST_STAND_IN"}
    command = [sys.executable, "-c", _PROGRAM, str(seed), counters]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


@pytest.mark.parametrize("seed", [0, *range(1, 6)])
def test_own_counters_give_the_sums_in_every_order(seed: int) -> None:
    assert _sums(seed, "own") == "[8, 16]\n"


def test_counters_shared_by_two_streams_are_found_by_a_seed() -> None:
    assert {_sums(seed, "shared") for seed in range(1, 6)} - {"[8, 16]\n"}
