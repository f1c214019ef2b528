"""Results that another library takes by DLPack, on a stream of its own."""

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]


def test_a_consumer_of_a_result_waits_on_its_own_stream(rng: np.random.Generator) -> None:
    """DLPack orders the consumer's stream after CuPy's current one, on which the work is."""
    import cupy

    array = rng.standard_normal((300, 200), np.float32)
    lengths = np.full((300, 1), 200, np.uint32)
    a, on_gpu = cupy.asarray(array), cupy.asarray(lengths)
    own, consumer = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.Device().synchronize()
    with own:
        result = cudml.reverse_subsequences(a, on_gpu)
        result.__dlpack__(stream=consumer.ptr, max_version=(1, 0))
    with consumer:
        copied = result.copy()
    consumer.synchronize()
    assert_identical(copied.get(), np.ascontiguousarray(array[:, ::-1]))


def test_pytorch_takes_a_result_on_its_own_stream(rng: np.random.Generator) -> None:
    import cupy

    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cudml[torch]'")
    if not torch.cuda.is_available():
        pytest.skip("this build of PyTorch has no CUDA")
    array = rng.standard_normal((300, 200), np.float32)
    with cupy.cuda.Stream(non_blocking=True):
        a = cupy.asarray(array)
        for _ in range(10):
            with torch.cuda.stream(torch.cuda.Stream()):
                tensor = torch.from_dlpack(cudml.slice(a, (299, 199), (300, 200), (-1, -1))) + 1
                assert_identical(tensor.cpu().numpy(), array[::-1, ::-1] + 1)
