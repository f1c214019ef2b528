"""`cudml.torch` and `cudml.jax` on a GPU: results, a consumer's stream, and PyTorch's graphs."""

from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.real_gpu("PyTorch and JAX bring a CUDA runtime of their own"),
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

SHAPE, K = (7, 3000), 5


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch is built without CUDA, or finds no GPU")
    return found


@pytest.fixture
def jax() -> Any:
    found = pytest.importorskip("jax")
    if found.default_backend() != "gpu":
        pytest.skip("JAX is installed without CUDA, or finds no GPU")
    return found


def _expected(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return tuple(cudml.top_k(row, K))


def test_topk_is_that_of_the_array_function(torch: Any, rng: np.random.Generator) -> None:
    import cudml.torch as adapter

    array = rng.standard_normal(SHAPE, np.float32)
    found = adapter.topk(torch.from_numpy(array).cuda(), K)
    assert found.values.is_cuda
    for tensor, wanted in zip(found, _expected(array), strict=True):
        assert_identical(tensor.cpu().numpy(), wanted)


def test_gru_agrees_with_that_of_torch(torch: Any) -> None:
    import cudml.torch as adapter

    torch.manual_seed(3)
    with torch.no_grad():
        layer = torch.nn.GRU(6, 40, num_layers=2, bidirectional=True)
        x = torch.randn(9, 4, 6)
        expected = layer(x)
        found = adapter.convert(layer).cuda()(x.cuda())
    for tensor, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(tensor.cpu(), wanted)


def test_calls_are_ordered_by_torch_s_current_stream(torch: Any, rng: np.random.Generator) -> None:
    """The call comes after long work on that stream that writes its input, and before an overwrite of it."""
    import cudml.torch as adapter

    array = rng.standard_normal(SHAPE, np.float32)
    source = torch.from_numpy(array).cuda()
    x, large = torch.zeros_like(source), torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(8):
            large = large @ large * 1e-4
        x.copy_(source)
        found = adapter.topk(x, K)
        x.zero_()
    stream.synchronize()
    for tensor, wanted in zip(found, _expected(array), strict=True):
        assert_identical(tensor.cpu().numpy(), wanted)


@pytest.mark.parametrize("length", [3000, 1 << 20])
def test_replays_of_torch_s_graphs(torch: Any, length: int, rng: np.random.Generator) -> None:
    """On changed inputs, after all free memory of both pools was overwritten; long rows need scratch."""
    import cupy

    import cudml.torch as adapter

    arrays = [rng.standard_normal((1, length), np.float32) for _ in range(3)]
    x = torch.from_numpy(arrays[0]).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        adapter.topk(x, K)  # plans and compiles
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = adapter.topk(x, K)
    for array in arrays[1:]:
        x.copy_(torch.from_numpy(array))
        pieces = [torch.full((1 << bits,), 0xEE, dtype=torch.uint8, device="cuda") for bits in range(9, 25)]
        pieces += [cupy.full(1 << bits, 0xEE, np.uint8) for bits in range(9, 25)]
        cupy.cuda.Device().synchronize()
        graph.replay()
        torch.cuda.synchronize()
        for tensor, wanted in zip(found, _expected(array), strict=True):
            assert_identical(tensor.cpu().numpy(), wanted)
        assert all(bool((piece == 0xEE).all()) for piece in pieces), "a replay wrote to others' memory"


def test_jax_top_k_is_that_of_the_array_function(jax: Any, rng: np.random.Generator) -> None:
    import cudml.jax as adapter

    array = rng.standard_normal(SHAPE, np.float32)
    found = jax.jit(lambda a: adapter.top_k(a, K))(array)
    values, indices = _expected(array)
    assert_identical(np.asarray(found.values), values)
    assert_identical(np.asarray(found.indices), indices.astype(np.int32))
