"""Two GPUs: kernels use the memory of the other after peer access is enabled, copies and events need none."""

from typing import Any

import numpy as np
import pytest

import cudml
from tests.stand_in import OVER_STAND_IN
from tests.stand_in.process import alone
from tests.stand_in.test_refusals import refused

pytestmark = OVER_STAND_IN

INVALID_VALUE, INVALID_DEVICE, ALREADY_ENABLED, NOT_ENABLED = 1, 101, 704, 705


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


def _on(number: int, array: np.ndarray) -> Any:
    import cupy

    with cupy.cuda.Device(number):
        made = cupy.asarray(array)
        cupy.cuda.Device().synchronize()
        return made


#: A kernel of cuda:0 that adds to memory of cuda:1; each line tells the outcome.
_KERNEL = """
add = cupy.RawKernel(
    'extern "C" __global__ void add(float* a, const float* b) { a[threadIdx.x] += b[threadIdx.x]; }', "add"
)
own = cupy.ones(32, np.float32)
with cupy.cuda.Device(1):
    other = cupy.full(32, 2, np.float32)
    cupy.cuda.Device().synchronize()
cupy.cuda.Device().synchronize()
runtime = cupy.cuda.runtime

def tell(a, b):
    add((1,), (32,), (a, b))
    try:
        cupy.cuda.Device().synchronize()
    except runtime.CUDARuntimeError as error:
        print(error.status, "outside every buffer" in str(error))
    else:
        with a.device:
            print(float(a.get()[0]))
"""


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("tell(own, other)", ["700 True"]),
        ("tell(other, own)", ["700 True"]),
        ("runtime.deviceEnablePeerAccess(1); tell(own, other); tell(other, own)", ["3.0", "5.0"]),
        ("cupy.cuda.Device(1).use(); runtime.deviceEnablePeerAccess(0); cupy.cuda.Device(0).use(); "
         "tell(own, other)", ["700 True"]),
        ("runtime.deviceEnablePeerAccess(1); tell(own, other); runtime.deviceDisablePeerAccess(1); "
         "tell(own, other)", ["3.0", "700 True"]),
    ],
    ids=["read", "write", "enabled", "enabled for the other", "disabled again"],
)  # fmt: skip
def test_kernel_on_memory_of_the_other_gpu(calls: str, expected: list[str]) -> None:
    told = alone(_KERNEL + calls)
    assert told.stdout.splitlines() == expected, told.stderr


def test_peer_access_that_cannot_be_changed(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    assert [runtime.deviceCanAccessPeer(0, peer) for peer in (0, 1)] == [0, 1]
    with refused(INVALID_DEVICE, "there is no cuda:2"):
        runtime.deviceCanAccessPeer(0, 2)
    with refused(INVALID_DEVICE, "a GPU is not its own peer"):
        runtime.deviceEnablePeerAccess(0)
    with refused(NOT_ENABLED, "of cuda:0 to cuda:1"):
        runtime.deviceDisablePeerAccess(1)
    runtime.deviceEnablePeerAccess(1)
    try:
        with refused(ALREADY_ENABLED, "of cuda:0 to cuda:1"):
            runtime.deviceEnablePeerAccess(1)
        with cupy.cuda.Device(1), refused(NOT_ENABLED, "of cuda:1 to cuda:0"):
            runtime.deviceDisablePeerAccess(0)
    finally:
        runtime.deviceDisablePeerAccess(1)


def test_copy_between_gpus_needs_no_access(cupy: Any) -> None:
    source, target = _on(1, np.arange(8, dtype=np.int32)), _on(0, np.zeros(8, np.int32))
    runtime = cupy.cuda.runtime
    runtime.memcpyPeerAsync(target.data.ptr, 0, source.data.ptr, 1, 32, 0)
    assert target.get().tolist() == list(range(8))
    with refused(INVALID_VALUE, "is not memory of cuda:0"):
        runtime.memcpyPeerAsync(target.data.ptr, 0, source.data.ptr, 0, 32, 0)
    target.fill(0)
    runtime.memcpyAsync(target.data.ptr, source.data.ptr, 32, runtime.memcpyDefault, 0)
    assert target.get().tolist() == list(range(8))


def test_stream_that_waits_for_an_event_of_the_other_gpu(cupy: Any) -> None:
    """Without the wait, the copy has the old values."""
    source, target = _on(1, np.zeros(8, np.int32)), _on(0, np.zeros(8, np.int32))
    with cupy.cuda.Device(1):
        writer = cupy.cuda.Stream(non_blocking=True)
        with writer:
            source.fill(7)
        written = writer.record()
    reader = cupy.cuda.Stream(non_blocking=True)
    reader.wait_event(written)
    cupy.cuda.runtime.memcpyPeerAsync(target.data.ptr, 0, source.data.ptr, 1, 32, reader.ptr)
    with reader:
        assert target.get().tolist() == [7] * 8


@pytest.mark.parametrize("current", [0, 1])
def test_each_gpu_computes_on_its_own_memory(current: int, cupy: Any, rng: np.random.Generator) -> None:
    """Whichever is current: kernels, scratch, counters, reports and products are of the arrays' GPU.

    Neither GPU may use the other's memory, which the stand-in would refuse.
    """
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    shapes = (3, 2, 4), (1, 24, 4), (1, 24, 8)
    layer = [rng.standard_normal(shape, np.float32) for shape in shapes]
    # By kernels with scratch, with counters that are left zero, and with a report of waits.
    rows = [rng.permutation(length).astype(np.float32)[None] for length in (40_000, 65_536)]
    asked = [(rows[0], 4000), (rows[1], 1), (rows[1], 60)]
    results = []
    with cupy.cuda.Device(current):
        for number in range(2):
            places = [_on(number, array) for array in layer]
            found = [*cudml.gru(*places)]
            for row, k in asked:
                found += [*cudml.top_k(_on(number, row), k)]
            assert cupy.cuda.runtime.getDevice() == current
            assert {array.device.id for array in found} == {number}
            with cupy.cuda.Device(number):
                cupy.cuda.Device().synchronize()
                results.append([array.get() for array in found])
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)
    for (row, k), places in zip(asked, results[0][3::2], strict=True):
        assert np.array_equal(places, np.argsort(-row, axis=1)[:, :k])


def test_gpu_that_is_lost_takes_no_other_with_it() -> None:
    """What is on it raises the driver's error, by a new call and by the wait for an old one."""
    told = alone("""
        import cudml
        rows = []
        for number in range(2):
            with cupy.cuda.Device(number):
                rows.append(cupy.arange(100, dtype=np.float32))
                print(int(cudml.top_k(rows[number], 2).indices.get()[0]))
        late = cudml.top_k(rows[1], 3)
        made.lose(1)
        for call in (lambda: cudml.top_k(rows[1], 2), lambda: cudml.top_k(rows[1], 5), late.indices.get):
            try:
                call()
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
                print(error.status, "cuda:1 was lost" in str(error))
        print(int(cudml.top_k(rows[0], 2).indices.get()[1]))
    """)
    assert told.stdout.splitlines() == ["99", "99", *["46 True"] * 3, "98"], told.stderr
