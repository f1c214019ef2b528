"""What a driver refuses, the stand-in refuses: with CUDA's number, the reason, and the call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.stand_in import OVER_STAND_IN, kernel, the_stand_in
from tests.stand_in.process import alone

pytestmark = OVER_STAND_IN

_COPY = """extern "C" __global__ void copy(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i];
}"""
_REVERSE = """extern "C" __global__ void reverse(float* b) {
  extern __shared__ float s[];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  b[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}"""
_RANKS = """extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(unsigned* b) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  b[blockIdx.x] = rank;
}"""
_BLOCKS = 'extern "C" __global__ void blocks(unsigned* b) { if (!threadIdx.x) b[blockIdx.x] = gridDim.x; }'


@contextmanager
def refused(number: int, text: str) -> Iterator[None]:
    """The call within is refused by CUDA's number for a reason."""
    from cupy_backends.cuda.api.driver import CUDADriverError
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    with pytest.raises((CUDARuntimeError, CUDADriverError)) as caught:
        yield
    assert caught.value.status == number
    assert text in str(caught.value)


def _arrays() -> tuple[Any, Any]:
    import cupy

    return cupy.arange(64, dtype=np.float32), cupy.zeros(64, np.float32)


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "number", "text"),
    [
        ((1, 65536, 1), (32, 1, 1), 0, 1, "a grid of (1, 65536, 1) blocks"),
        ((1, 1, 1), (32, 1, 65), 0, 1, "a block of (32, 1, 65) threads"),
        ((1, 1, 1), (512, 3, 1), 0, 1, "a block of 1536 threads, 1024 is the most"),
        (
            (1, 1, 1),
            (64, 1, 1),
            49153,
            1,
            "49153 bytes of shared storage, the kernel's attribute allows 49152",
        ),
    ],
)
def test_launch_beyond_the_limits(
    grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, number: int, text: str
) -> None:
    a, b = _arrays()
    with refused(number, text):
        kernel(_COPY, "copy")(grid, block, (a, b, np.int32(64)), shared_mem=shared_bytes)


def test_shared_storage_of_the_attribute() -> None:
    """A launch with as much as was allowed runs, and no kernel is allowed more than a block has."""
    _, b = _arrays()
    reversing = kernel(_REVERSE, "reverse")
    reversing.max_dynamic_shared_size_bytes = 60000
    reversing((1,), (64,), (b,), shared_mem=60000)
    assert np.array_equal(b.get(), np.arange(64)[::-1])
    with refused(1, "60001 bytes of shared storage, the kernel's attribute allows 60000"):
        reversing((1,), (64,), (b,), shared_mem=60001)
    with refused(1, "232449 bytes of dynamic shared storage, 232448 is the most"):
        reversing.max_dynamic_shared_size_bytes = 232449


def test_grid_that_is_not_made_of_clusters() -> None:
    import cupy

    ranks = cupy.zeros(4, np.uint32)
    pairs = kernel(_RANKS, "ranks")
    pairs((4,), (32,), (ranks,))
    assert ranks.get().tolist() == [0, 1, 0, 1]
    with refused(1, "a grid of (3, 1, 1) blocks is not made of clusters of (2, 1, 1)"):
        pairs((3,), (32,), (ranks,))


def test_clusters_larger_than_every_gpu_has_need_an_attribute() -> None:
    import cupy

    ranks = cupy.zeros(16, np.uint32)
    sixteen = kernel(_RANKS.replace("2, 1, 1", "16, 1, 1"), "ranks")
    with refused(912, "clusters of 16 blocks, 8 is the most"):
        sixteen((16,), (32,), (ranks,))
    cupy.cuda.driver.funcSetAttribute(sixteen.kernel.ptr, 14, 1)
    sixteen((16,), (32,), (ranks,))
    assert ranks.get().tolist() == list(range(16))


def test_cluster_that_no_part_of_the_gpu_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 1024 threads and 200 KiB, one on each multiprocessor."""
    import cupy

    from cudml.devices.cuda.driver import max_active_clusters

    ranks, block = cupy.zeros(4, np.uint32), (1024, 1, 1)
    pairs = kernel(_RANKS, "ranks")
    pairs.max_dynamic_shared_size_bytes = 200 << 10

    def fitting(shared_bytes: int, cluster_blocks: int = 2) -> int:
        return max_active_clusters(pairs.kernel.ptr, (4, 1, 1), block, shared_bytes, cluster_blocks)

    monkeypatch.setattr(the_stand_in().settings, "gpcs", (3, 2, 1))
    # Two blocks fit on a multiprocessor without shared storage.
    assert (fitting(200 << 10), fitting(0), fitting(0, 4)) == (2, 6, 0)
    pairs((4,), block, (ranks,), shared_mem=200 << 10)
    monkeypatch.setattr(the_stand_in().settings, "gpcs", (1,) * 6)
    assert (fitting(200 << 10), fitting(0)) == (0, 6)
    with refused(912, "clusters of 2 blocks, no part of the GPU has room for one"):
        pairs((4,), block, (ranks,), shared_mem=200 << 10)
    pairs((4,), block, (ranks,))


def test_cooperative_grid_that_is_not_resident() -> None:
    """Two blocks of 1024 threads fit on each of 132 multiprocessors."""
    import cupy
    from cupy.cuda import driver

    seen = cupy.zeros(265, np.uint32)
    blocks = kernel(_BLOCKS, "blocks")
    address = np.array([seen.data.ptr], np.uint64)
    arguments = np.array([address.ctypes.data], np.uint64)  # which must live until the launches
    driver.launchCooperativeKernel(blocks.kernel.ptr, 264, 1, 1, 1024, 1, 1, 0, 0, arguments.ctypes.data)
    assert seen.get()[:264].tolist() == [264] * 264
    with refused(720, "a cooperative grid of 265 blocks, 264 fit"):
        driver.launchCooperativeKernel(blocks.kernel.ptr, 265, 1, 1, 1024, 1, 1, 0, 0, arguments.ctypes.data)


def test_kernel_that_is_not_in_the_module() -> None:
    import cupy

    module = cupy.RawModule(code=_COPY)
    with refused(500, "the module has no kernel paste"):
        module.get_function("paste").kernel  # noqa: B018


def test_cubin_of_another_architecture() -> None:
    from cupy_backends.cuda.api import driver

    from proof.sass.compiler import compile_cubin

    other = compile_cubin(_COPY, "sm_80", ())
    with refused(209, "a cubin for sm_80 on a GPU of sm_90"):
        driver.moduleLoadData(other.cubin)
    with refused(200, "not a cubin"):
        driver.moduleLoadData(b"no machine code")


def test_memory_that_is_used_up() -> None:
    import cupy
    from cupy.cuda import runtime

    free, _ = runtime.memGetInfo()
    with refused(2, f"{free + 1} bytes, {free} are free"):
        runtime.malloc(free + 1)
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=1 << 40)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        pool.malloc(free + 512)
    address = runtime.malloc(1000)
    assert runtime.memGetInfo()[0] == free - 1000
    runtime.free(address)
    assert runtime.memGetInfo()[0] == free


def test_addresses_that_are_no_memory_of_a_gpu() -> None:
    from cupy.cuda import runtime

    on_host = np.zeros(64, np.uint8)
    address = runtime.malloc(64)
    with refused(1, "is no memory of a GPU"):
        runtime.memsetAsync(on_host.ctypes.data, 0, 64, 0)
    with refused(21, "kind 3"):
        runtime.memcpy(address, on_host.ctypes.data, 64, runtime.memcpyDeviceToDevice)
    with refused(1, "65 bytes at"):
        runtime.memsetAsync(address, 0, 65, 0)
    runtime.free(address)
    with refused(1, "is not allocated"):
        runtime.memcpyAsync(address, on_host.ctypes.data, 64, runtime.memcpyDefault, 0)
    with refused(1, "is not the address of an allocation"):
        runtime.free(address)


def test_stream_of_another_gpu() -> None:
    import cupy
    from cupy.cuda import runtime

    with cupy.cuda.Device(1):
        other = cupy.cuda.Stream(non_blocking=True)
        event = cupy.cuda.Event()
    a, _ = _arrays()
    with refused(400, "a stream of cuda:1 while cuda:0 is current"):
        runtime.memsetAsync(a.data.ptr, 0, 4, other.ptr)
    with refused(400, "an event of another GPU than the stream's"):
        event.record(cupy.cuda.Stream(non_blocking=True))
    with refused(400, "is no stream"):
        runtime.streamSynchronize(0x1234)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda runtime: runtime.memPoolDestroy(0), "cudaMemPoolDestroy"),
        (lambda runtime: runtime.memPrefetchAsync(0, 1, 0, 0), "cudaMemPrefetchAsync"),
        (lambda runtime: runtime.profilerStart(), "cudaProfilerStart"),
        (lambda runtime: runtime.ipcGetMemHandle(0), "cudaIpcGetMemHandle"),
    ],
)
def test_call_that_is_not_known(call: Callable[[Any], Any], name: str) -> None:
    from cupy.cuda import runtime

    with pytest.raises(NotImplementedError, match=f"{name} is not known to the stand-in for CUDA"):
        call(runtime)


def test_host_that_reads_memory_of_a_gpu() -> None:
    told = alone("""
        import ctypes
        a = cupy.arange(4)
        print(a.get()[3], flush=True)
        print(ctypes.c_int64.from_address(a.data.ptr).value, flush=True)
    """)
    assert (told.stdout, told.returncode) == ("3\n", -11)


def test_use_after_a_fork() -> None:
    told = alone("""
        import os
        a = cupy.arange(4)
        child = os.fork()
        if not child:
            try:
                a.get()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(a.get()[3])
    """)
    assert "cudaErrorInitializationError" in told.stdout
    assert told.stdout.endswith("\n3\n")


def test_handles_that_live_until_the_process_ends() -> None:
    """Those of a thread are destroyed after its Python code can run."""
    told = alone("""
        print(cupy.cuda.device.get_cublas_handle() > 0)
        stream = cupy.cuda.Stream(non_blocking=True)
    """)
    assert (told.stdout, told.returncode) == ("True\n", 0)


def test_kernel_that_leaves_its_memory() -> None:
    """The error comes from the call that waits, names the access, and stays."""
    told = alone("""
        past = cupy.RawKernel('extern "C" __global__ void past(float* a) { a[threadIdx.x + 1] = 1; }', "past")
        address = cupy.cuda.runtime.malloc(128)
        past((1,), (32,), (np.uint64(address),))
        print("launched")
        for _ in range(2):
            try:
                cupy.cuda.Device().synchronize()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                print(error.status, error)
    """)
    first, *errors = told.stdout.splitlines()
    assert first == "launched"
    assert len(errors) == 2
    assert all(error.startswith("700 cudaErrorIllegalAddress") for error in errors)
    assert all("store of 4 bytes at" in error and "outside every buffer" in error for error in errors)


def test_gpu_that_is_lost() -> None:
    told = alone("""
        a = cupy.arange(4)
        made.lose(0)
        for call in (a.get, lambda: a + 1, cupy.cuda.Stream.null.synchronize):
            try:
                call()
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
                print(error.status, "cuda:0 was lost" in str(error))
        with cupy.cuda.Device(1):
            print(cupy.arange(4).get()[3])
    """)
    assert told.stdout == "46 True\n" * 3 + "3\n"
