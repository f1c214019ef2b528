"""Every kernel instance of every operator in a captured CUDA graph: a replay gives the bits of a call."""

from typing import Any

import numpy as np
import pytest

from cudml.devices import cuda
from cudml.plans import Plan
from tests.gpu_instances import contents, first_element, smallest, tensors_of
from tests.instances import operators
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

MAX_BYTES = 64 << 20


@pytest.mark.parametrize("operator", operators())
def test_replay_gives_the_bits_of_a_call(operator: str, rng: np.random.Generator) -> None:
    gpu = cuda.get_device()
    for descriptor, plan in smallest(operator, gpu.limits, MAX_BYTES):
        _check_replay(gpu, descriptor, plan, rng)


def _check_replay(gpu: cuda.CudaDevice, descriptor: Any, plan: Plan, rng: np.random.Generator) -> None:
    import cupy

    tensors = tensors_of(descriptor, plan)
    arrays = {name: gpu.empty((tensor.span_bytes,), np.uint8) for name, tensor in tensors.items()}
    workspace = gpu.empty((plan.temporary_bytes,), np.uint8) if plan.temporary_bytes else None
    operands = [first_element(arrays[name], tensor) for name, tensor in tensors.items()]
    program = gpu.load(plan)
    stream = cupy.cuda.Stream(non_blocking=True)

    def prepare(seed: int) -> None:
        """Inputs of a seed, outputs and workspace of one byte value, so that gaps compare equal."""
        own = np.random.default_rng(seed)
        for name, tensor in tensors.items():
            if name in plan.outputs:
                arrays[name].fill(0xEE)
            else:
                arrays[name].set(contents(own, name, tensor))
        if workspace is not None:
            workspace.fill(0xEE)

    first, second = (int(seed) for seed in rng.integers(2**32, size=2))
    with stream:
        prepare(second)
        program(operands, workspace)
        expected = {name: arrays[name].get() for name in plan.outputs}
        prepare(first)
        stream.begin_capture()
        program(operands, workspace)
        graph = stream.end_capture()
        for _ in range(2):
            prepare(second)
            graph.launch(stream)
            for name, values in expected.items():
                assert_identical(arrays[name], values)
