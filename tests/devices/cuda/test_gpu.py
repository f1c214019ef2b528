"""The CUDA device on a real GPU: streams, graphs, modules, large and cooperative grids, exact products.

Tests that need no GPU are in `test_device.py`; the operators' own tests check their results on a GPU.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cudml.devices import cuda, take
from cudml.plans import Copy, Fill, KernelLaunch, MatMul, Plan, Workspace
from proof import stand_in
from tests.devices.cuda.stand_in.cases import KERNELS
from tests.support.params import params_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

_OPERANDS = ("a", "bias", "out")


@pytest.fixture
def gpu() -> cuda.CudaDevice:
    return cuda.get_device()


@pytest.fixture
def stream() -> Iterator[Any]:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    yield stream
    stream.synchronize()


def scale_step(num_items: int, factor: float, *, bias_index: int = 0, **changes: Any) -> KernelLaunch:
    """out = a * factor + bias[bias_index]."""
    values: dict[str, Any] = {
        "source": str(KERNELS / "scale.cu"),
        "function": "scale",
        "template": ("Float32", changes.pop("variant", 0)),
        "grid": (-(-num_items // 128), 1, 1),
        "block": (128, 1, 1),
        "buffers": _OPERANDS,
        "params": params_of(
            bias_index=("Int32", bias_index),
            num_items=("Int64", num_items),
            factor=("Float32", factor),
            unused=("UInt32", (0, 0, 0)),
        ),
    }
    return KernelLaunch(**(values | changes))


def plan_of(*steps: Any, workspaces: tuple[Workspace, ...] = ()) -> Plan:
    return Plan("TEST", _OPERANDS, steps, workspaces, ("out",))


def on_gpu(gpu: cuda.CudaDevice, array: np.ndarray) -> Any:
    import cupy

    moved = gpu.empty(array.shape, array.dtype)
    moved.set(array)
    cupy.cuda.Device(gpu.number).synchronize()  # streams that do not wait for the default one may read it
    return moved


def whole_numbers(count: int) -> np.ndarray:
    """Small integers, with which the arithmetic of the tests is exact."""
    return (np.arange(count) % 1000).astype(np.float32)


@pytest.mark.parametrize("how", ["current", "cupy", "integer"])
def test_work_is_ordered_on_the_stream(gpu: cuda.CudaDevice, stream: Any, how: str) -> None:
    count = 1 << (14 if stand_in.loaded() else 22)  # only long work makes a GPU late
    program = gpu.load(
        plan_of(scale_step(count, 2.0), scale_step(count, 3.0, buffers=("out", "bias", "out")))
    )
    a, bias = on_gpu(gpu, np.zeros(count, np.float32)), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((count,), np.float32)
    source = on_gpu(gpu, whole_numbers(count))
    with stream:
        a[...] = source
        if how == "current":
            program((a, bias, out), None)
    if how != "current":
        program((a, bias, out), None, stream if how == "cupy" else stream.ptr)
    with stream:
        got = out.get()
    assert np.array_equal(got, (whole_numbers(count) * 2 + 1) * 3 + 1)


def test_null_pointer_and_offset_into_the_workspace(gpu: cuda.CudaDevice) -> None:
    plan = plan_of(
        scale_step(100, 2.0, buffers=("a", None, "second")),
        scale_step(100, 1.0, buffers=("second", "bias", "out"), bias_index=3),
        workspaces=(Workspace("first", 12), Workspace("second", 400)),
    )
    program = gpu.load(plan)
    a, bias = on_gpu(gpu, whole_numbers(100)), on_gpu(gpu, np.arange(4, dtype=np.float32))
    out, workspace = gpu.empty((100,), np.float32), gpu.empty((plan.temporary_bytes,), np.uint8)
    program((a, bias, out), workspace)
    assert np.array_equal(out.get(), whole_numbers(100) * 2 + 3)


def test_captured_graph_replays_every_kind_of_step(gpu: cuda.CudaDevice, stream: Any) -> None:
    """A product where cuBLAS is installed, a fill, a copy, launches, one of them cooperative."""
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    size = 64
    plan = plan_of(
        Fill("bias", 4, 0),
        MatMul("a", "a", "product", m=size, n=size, k=size, element="float32"),
        scale_step(size * size, 2.0, buffers=("product", "bias", "out")),
        Copy("out", "copied", 4 * size * size),
        scale_step(size * size, 3.0, buffers=("copied", "bias", "out"), cooperative=True),
        workspaces=(Workspace("product", 4 * size * size), Workspace("copied", 4 * size * size)),
    )
    program = gpu.load(plan)
    first, second = np.eye(size, dtype=np.float32), whole_numbers(size * size).reshape(size, size) % 8
    a, bias = on_gpu(gpu, first), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((size, size), np.float32)
    workspace = gpu.empty((plan.temporary_bytes,), np.uint8)
    program((a, bias, out), workspace, stream)
    with stream:
        stream.begin_capture()
        program((a, bias, out), workspace)
        graph = stream.end_capture()
        for matrix in (first, second):
            a.set(matrix)
            bias.fill(5)
            out.fill(-1)
            graph.launch(stream)
            assert np.array_equal(out.get(), matrix @ matrix.T * 6)


def test_long_stretch_is_copied_in_the_order_of_its_stream(gpu: cuda.CudaDevice, stream: Any) -> None:
    """80 MiB of a longer array, right after the stream has written them, at whole words and between them."""
    import cupy

    import cudml

    long = 80 << 18
    values = np.arange(long + 8, dtype=np.float32)
    with stream:
        a = cupy.empty(long + 8, np.float32)
        # A kernel copies bytes that are not whole words.
        for first, size in ((0, long), (1, 1 << 16 if stand_in.loaded() else long), (4, long)):
            a.data.memset_async(0xEE, a.nbytes)
            a.set(values)
            assert np.array_equal(cudml.slice(a, (first,), (size,)).get(), values[first : first + size])


def test_graph_replays_on_another_stream(gpu: cuda.CudaDevice, stream: Any) -> None:
    import cupy

    program = gpu.load(plan_of(scale_step(1000, 2.0)))
    a, bias = on_gpu(gpu, whole_numbers(1000)), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((1000,), np.float32)
    program((a, bias, out), None)
    with stream:
        stream.begin_capture()
        program((a, bias, out), None)
        graph = stream.end_capture()
    cupy.cuda.Device(gpu.number).synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    with other:
        out.fill(0)
        graph.launch(other)
        assert np.array_equal(out.get(), whole_numbers(1000) * 2 + 1)


def test_modules_live_side_by_side(gpu: cuda.CudaDevice) -> None:
    programs = [gpu.load(plan_of(scale_step(100, 2.0 + variant, variant=variant))) for variant in range(3)]
    again = gpu.load(plan_of(scale_step(100, 9.0, variant=1)))
    a, bias = on_gpu(gpu, whole_numbers(100)), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((100,), np.float32)
    for program, factor in [*zip(programs, (2, 3, 4), strict=True), (again, 9), (programs[1], 3)]:
        program((a, bias, out), None)
        assert np.array_equal(out.get(), whole_numbers(100) * factor + 1)


def test_more_shared_storage_than_the_default(gpu: cuda.CudaDevice) -> None:
    most = gpu.limits.shared_bytes_per_block
    program = gpu.load(plan_of(scale_step(100, 2.0, variant=7, shared_bytes=most)))
    a, bias = on_gpu(gpu, whole_numbers(100)), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((100,), np.float32)
    program((a, bias, out), None)
    assert np.array_equal(out.get(), whole_numbers(100) * 2 + 1)


def test_grid_of_many_blocks(gpu: cuda.CudaDevice) -> None:
    """More blocks along x than y and z allow, and the most that y allows with several along z."""
    count = 1 << 23
    wide = scale_step(count, 2.0, grid=(count // 32, 1, 1), block=(32, 1, 1))
    deep = scale_step(32, 2.0, grid=(1, 65535, 3), block=(32, 1, 1), buffers=("out", "bias", "a"))
    program = gpu.load(plan_of(wide, deep))
    a, bias = on_gpu(gpu, whole_numbers(count)), on_gpu(gpu, np.ones(1, np.float32))
    out = gpu.empty((count,), np.float32)
    program((a, bias, out), None)
    assert np.array_equal(out.get(), whole_numbers(count) * 2 + 1)
    assert np.array_equal(a.get()[:32], (whole_numbers(32) * 2 + 1) * 2 + 1)


def meet_plan(num_blocks: int) -> Plan:
    """Every block waits for all the others."""
    launch = KernelLaunch(
        source=str(KERNELS / "meet.cu"),
        function="meet",
        template=(),
        grid=(num_blocks, 1, 1),
        block=(1024, 1, 1),
        buffers=("arrived", "out"),
        params=params_of(num_blocks=("UInt32", num_blocks)),
        cooperative=True,
    )
    return Plan("TEST", ("out",), (Fill("arrived", 4), launch), (Workspace("arrived", 4),), ("out",))


def test_cooperative_grid_lives_at_once_and_one_that_cannot_is_refused(gpu: cuda.CudaDevice) -> None:
    limits = gpu.limits
    most = limits.num_multiprocessors * (limits.max_threads_per_multiprocessor // 1024)
    plan = meet_plan(most)
    out, workspace = gpu.empty((most,), np.uint32), gpu.empty((plan.temporary_bytes,), np.uint8)
    gpu.load(plan)((out,), workspace)
    assert np.array_equal(out.get(), np.full(most, most))
    with pytest.raises(ValueError, match=f"a cooperative grid of {most + 1} blocks, {most} fit on cuda"):
        gpu.load(meet_plan(most + 1))


@pytest.mark.parametrize("element", ["float32", "float16"])
def test_product_is_of_full_precision_whatever_the_process_chose(
    gpu: cuda.CudaDevice, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF32 would round 1 + 2**-11 to 1, and a float16 sum would lose bits; offsets are in elements."""
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    import cupy
    from cupy_backends.cuda.libs import cublas

    m, n, k = 96, 80, 128
    value = 1 + 2.0 ** (-11 if element == "float32" else -10)
    step = MatMul("a", "bias", "out", m=m, n=n, k=k, element=element, a_offset=8, b_offset=16, out_offset=4)
    program = gpu.load(plan_of(step))
    a, b = on_gpu(gpu, np.full(8 + m * k, value).astype(element)), on_gpu(gpu, np.ones(16 + n * k, element))
    out = on_gpu(gpu, np.full(4 + m * n, -1, np.float32))
    handle = cupy.cuda.device.get_cublas_handle()
    before = cublas.getMathMode(handle)
    tf32 = 3
    cublas.setMathMode(handle, tf32)
    try:
        program((a, b, out), None)
        assert cublas.getMathMode(handle) == tf32
    finally:
        cublas.setMathMode(handle, before)
    assert np.array_equal(out.get(), [-1] * 4 + [k * value] * (m * n))


def test_limits_are_the_drivers(gpu: cuda.CudaDevice) -> None:
    import cupy

    attributes = cupy.cuda.Device(gpu.number).attributes
    limits = gpu.limits
    assert limits.num_multiprocessors == attributes["MultiProcessorCount"]
    assert limits.shared_bytes_per_block == attributes["MaxSharedMemoryPerBlockOptin"]
    assert limits.l2_bytes == attributes["L2CacheSize"]
    assert limits.compute_capability == int(cupy.cuda.Device(gpu.number).compute_capability)


@pytest.mark.real_gpu("PyTorch brings a CUDA runtime of its own")
def test_tensor_of_another_library_is_shared(gpu: cuda.CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch is built without CUDA")
    tensor = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4)
    array = take(tensor)[0].array
    assert (array.data.ptr, array.shape) == (tensor.data_ptr(), (3, 4))
    assert type(take(tensor.cpu())[0].array) is np.ndarray
