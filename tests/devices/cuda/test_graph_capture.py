"""Every kernel instance of every operator in a captured CUDA graph: a replay gives the bits of a call.

So do array functions and a dispatch that take their scratch themselves, whatever became of CuPy's pool.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from cudml.plans import Plan
from proof import stand_in
from proof.instances import operators
from tests.gpu_instances import contents, first_element, smallest, tensors_of
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

#: Instances that only larger descriptors reach are left out, above all those of top-k's long rows.
MAX_BYTES = 64 << 20
MAX_BYTES_OVER_STAND_IN = 256 << 10


@pytest.mark.parametrize("operator", operators())
def test_replay_gives_the_bits_of_a_call(operator: str, rng: np.random.Generator) -> None:
    gpu = cuda.get_device()
    max_bytes = MAX_BYTES_OVER_STAND_IN if stand_in.loaded() else MAX_BYTES
    for descriptor, plan in smallest(operator, gpu.limits, max_bytes):
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


def _top_k(inputs: dict[str, Any]) -> Any:
    return cudml.top_k(inputs["row"], 3000)


def _gru(inputs: dict[str, Any]) -> Any:
    return cudml.gru(inputs["x"], inputs["w"], inputs["r"])


def _gru_with_lengths(inputs: dict[str, Any]) -> Any:
    return cudml.gru(inputs["x"], inputs["w"], inputs["r"], sequence_lengths=inputs["lengths"])


def _slice(inputs: dict[str, Any]) -> Any:
    return (cudml.slice(inputs["x"], (0, 1, 2), (20, 3, 50), (1, 1, 1)),)


def _reversal_of_many_dimensions(inputs: dict[str, Any]) -> Any:
    return (cudml.reverse_subsequences(inputs["nine"].T, inputs["nine_lengths"]),)


def _dispatch(inputs: dict[str, Any]) -> Any:
    import cupy

    row = inputs["row"].reshape(1, 1, 1, -1)
    outputs = cupy.empty((1, 1, 1, 3000), np.float32), cupy.empty((1, 1, 1, 3000), np.uint32)
    tensors = [cudml.TensorDesc.of(array) for array in (row, *outputs)]
    desc = cudml.TopK1Desc(*tensors, axis=3, k=3000, axis_direction=cudml.AxisDirection.DECREASING)
    operator = cudml.compile_operator(desc, device="cuda")
    assert operator.temporary_resource_size > 0
    operator.dispatch(input_tensor=row, output_value_tensor=outputs[0], output_index_tensor=outputs[1])
    return outputs


@pytest.mark.parametrize(
    "call", [_top_k, _gru, _gru_with_lengths, _slice, _reversal_of_many_dimensions, _dispatch]
)
def test_replay_gives_the_bits_of_a_call_whatever_else_took_memory(
    call: Callable[[dict[str, Any]], Any], rng: np.random.Generator
) -> None:
    """Between capture and replay, and again after it, all free memory of the call's pool is overwritten."""
    if call in (_gru, _gru_with_lengths):
        pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    import cupy

    steps, batch, size = 20, 4, 64
    shapes = {
        "row": (1 << 17,),
        "x": (steps, batch, size),
        "w": (1, 3 * size, size),
        "r": (1, 3 * size, size),
        "nine": (2,) * 9,
    }
    stream = cupy.cuda.Stream(non_blocking=True)
    pool = cupy.cuda.MemoryPool()

    def values(seed: int) -> dict[str, np.ndarray]:
        own = np.random.default_rng(seed)
        found = {name: own.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        found["lengths"] = own.integers(-1, steps + 2, batch)
        found["nine_lengths"] = own.integers(0, 3, (*(2,) * 8, 1)).astype(np.uint32)
        return found

    def disturb() -> list[Any]:
        """Allocates the pool's free memory, in pieces of many sizes, and writes to it."""
        pieces = []
        for bits in range(24, 8, -1):
            while pool.free_bytes() >= 1 << bits and len(pieces) < 4096:
                before = pool.total_bytes()
                pieces.append(cupy.empty(1 << bits, np.uint8))
                pieces[-1].data.memset_async(0xEE, 1 << bits)
                if pool.total_bytes() > before:  # the free memory lies in smaller pieces
                    break
        return pieces

    first, second = (int(seed) for seed in rng.integers(2**32, size=2))
    with stream, cupy.cuda.using_allocator(pool.malloc):
        inputs = {name: cupy.asarray(array) for name, array in values(second).items()}
        expected = [array.get() for array in call(inputs)]
        for name, array in values(first).items():
            inputs[name].set(array)
        stream.begin_capture()
        outputs = call(inputs)
        graph = stream.end_capture()
        for name, array in values(second).items():
            inputs[name].set(array)
        pieces = disturb()
        for _ in range(2):
            for output in outputs:
                output.data.memset_async(1, output.nbytes)
            graph.launch(stream)
            for output, wanted in zip(outputs, expected, strict=True):
                assert_identical(output, wanted)
            assert all((piece.get() == 0xEE).all() for piece in pieces), "a replay wrote to others' memory"
