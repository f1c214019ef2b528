"""Host time of calls on the CUDA path, over a stand-in for the driver: no GPU is needed.

    pytest bench/test_overhead.py -n 0 --benchmark-columns=min,median,iqr --benchmark-sort=name

Kernels do nothing here and the driver answers at once, so a figure is what Python and CuPy add to the
driver's own time of a launch. The tests of the bars compare with another call, timed in turns in one process;
the pieces show where the time goes, and the CuPy expressions what users of CuPy are used to.
"""

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import cycle
from timeit import timeit
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.devices.cuda.stand_in import load

#: Host time that a call may take, as a multiple of CuPy's own: `a + b`, a slice and its copy, a `RawKernel`.
TOP_K_BAR, SLICE_BAR, DISPATCH_BAR = 1.0, 0.65, 1.4

#: The same, as a multiple of the plain call: with new offsets, or arguments that need a conversion.
NEW_OFFSET_BAR, CONVERTED_BAR = 1.2, 1.5

#: The same, as a multiple of `top_k` of CuPy's array: `cudml.torch.topk` of a CUDA tensor, `top_k` with a
#: stream, and `top_k` with input and outputs of other libraries. PyTorch itself takes as long to make two
#: outputs and to look where a tensor is.
TORCH_ON_GPU_BAR, STREAM_BAR, ALL_CONVERTED_BAR = 1.5, 1.5, 3

#: Microseconds that an adapter may add to the array function on the CPU: a call by PyTorch, a node of ONNX.
TORCH_BAR_US, ONNX_BAR_US = 6, 15

#: The same for a layer of PyTorch. Calling a module and an operator, and sharing an array and two results,
#: take 8 us of it.
TORCH_MODULE_BAR_US = 16

#: The same for a call that is planned anew, its kernel loaded.
NEW_SHAPE_BAR = 15

# Many short rounds, so that the fastest one is undisturbed.
ROUNDS, CALLS_PER_ROUND = 500, 100

SHAPE = (64, 1000)


@pytest.fixture(scope="module")
def cupy() -> Any:
    """CuPy over the stand-in; this process must not have used the real driver."""
    if "cupy" in sys.modules:
        pytest.skip("CuPy is imported already: run this file alone, with -n 0")
    if find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: pip install --group nvrtc (no GPU is needed)")
    load()
    return importlib.import_module("cupy")


@pytest.fixture
def x(cupy: Any) -> Any:
    return cupy.ndarray(SHAPE, np.float32)


@pytest.fixture
def lengths(cupy: Any) -> Any:
    return cupy.ndarray((SHAPE[0], 1), np.uint32)


@pytest.fixture
def timed(benchmark: Any) -> Callable[..., None]:
    """Times a call that was made before; holds it to a multiple of another call's time if there is a bar.

    For that the two are timed in turns, so that both meet the same load.
    """

    def run(call: Callable[[], Any], other: Callable[[], Any] | None = None, bar: float = 0) -> None:
        call()
        benchmark.pedantic(call, rounds=ROUNDS, iterations=CALLS_PER_ROUND, warmup_rounds=3)
        if other is None:
            return
        other()
        turns = [[timeit(timed, number=CALLS_PER_ROUND) for timed in (call, other)] for _ in range(ROUNDS)]
        ratio = min(turn[0] for turn in turns) / min(turn[1] for turn in turns)
        benchmark.extra_info |= {"ratio": ratio, "bar": bar}
        assert ratio <= bar, f"{ratio:.2f} of the other call's time, the bar is {bar}"

    return run


# The calls that the bars limit.


def test_top_k(timed: Any, x: Any) -> None:
    import cudml

    timed(lambda: cudml.top_k(x, 16), lambda: x + x, TOP_K_BAR)


def test_top_k_out(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((SHAPE[0], 16), np.float32), cupy.ndarray((SHAPE[0], 16), np.int64)
    timed(lambda: cudml.top_k(x, 16, out=out), lambda: x + x, TOP_K_BAR)


@pytest.mark.parametrize("name", ["top_k", "slice", "reverse_subsequences"])
def test_a_new_shape(name: str, cupy: Any, x: Any, lengths: Any) -> None:
    """In short rounds, because planning takes longer than a call; no shape comes twice."""
    import cudml

    call: Callable[[Any, Any], Any] = {
        "top_k": lambda a, lengths: cudml.top_k(a, 16),
        "slice": lambda a, lengths: cudml.slice(a, (0, 1), (16, 100), (2, 3)),
        "reverse_subsequences": lambda a, lengths: cudml.reverse_subsequences(a, lengths),
    }[name]
    num_rows, num_columns = SHAPE
    others = [
        (cupy.ndarray((rows, columns), np.float32, x.data), cupy.ndarray((rows, 1), np.uint32, lengths.data))
        for rows in range(num_rows - 5, num_rows)
        for columns in range(num_columns - ROUNDS, num_columns)
    ]
    call(*others.pop())
    turns = [
        (timeit(lambda: call(*others.pop()), number=4) / 4, timeit(lambda: call(x, lengths), number=50) / 50)
        for _ in range(ROUNDS)
    ]
    ratio = min(turn[0] for turn in turns) / min(turn[1] for turn in turns)
    assert ratio <= NEW_SHAPE_BAR, f"{ratio:.1f} of a warm call's time, the bar is {NEW_SHAPE_BAR}"


class Exporter:
    """A GPU array of another library, shared by DLPack."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_top_k_of_a_dlpack_input(timed: Any, x: Any) -> None:
    import cudml

    foreign = Exporter(x)
    timed(lambda: cudml.top_k(foreign, 16), lambda: cudml.top_k(x, 16), CONVERTED_BAR)


class Unordered(Exporter):
    """An array of another library, which never waits."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        export = self.__dlpack__
        self.__dlpack__ = lambda stream, max_version: export(stream=-1, max_version=max_version)


def test_top_k_of_dlpack_with_outputs(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((SHAPE[0], 16), np.float32), cupy.ndarray((SHAPE[0], 16), np.int64)
    foreign, foreign_out = Unordered(x), (Unordered(out[0]), Unordered(out[1]))
    timed(
        lambda: cudml.top_k(foreign, 16, out=foreign_out),
        lambda: cudml.top_k(x, 16, out=out),
        ALL_CONVERTED_BAR,
    )


def test_top_k_on_a_stream_handle(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((SHAPE[0], 16), np.float32), cupy.ndarray((SHAPE[0], 16), np.int64)
    timed(lambda: cudml.top_k(x, 16, out=out, stream=0x7000), lambda: cudml.top_k(x, 16, out=out), STREAM_BAR)


def test_torch_topk_on_a_gpu(timed: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's build for a CPU has no tensors on a GPU, so a tensor on the CPU takes their way."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[torch]'")
    import cudml
    import cudml.torch as adapter
    from cudml.torch import calls, functions
    from tests.support import gpu_tensors

    stream = SimpleNamespace(cuda_stream=0)
    with gpu_tensors.tensors() as tensors:
        adapter.topk(tensors.on_gpu(np.zeros(SHAPE, np.float32)), 16)
        ((key, planned),) = calls.planned_calls.items()
        tensor = torch.zeros(SHAPE)
        known = tuple(tensor.get_device() if n == 3 else part for n, part in enumerate(key))
        monkeypatch.setitem(calls.planned_calls, known, planned)
        monkeypatch.setattr(functions, "topk_on_cpu", functions.topk_on_gpu)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda number: stream)
        timed(
            lambda: adapter.topk(tensor, 16),
            lambda: cudml.top_k(x, 16, nan="greatest"),
            TORCH_ON_GPU_BAR,
        )


def test_top_k_of_a_subclass(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    class Subclass(cupy.ndarray):  # type: ignore[misc]
        pass

    own = x.view(Subclass)
    timed(lambda: cudml.top_k(own, 16), lambda: cudml.top_k(x, 16), CONVERTED_BAR)


def cupy_slice_and_copy(cupy: Any, x: Any) -> Callable[[], Any]:
    """`slice` by CuPy."""
    return lambda: cupy.ascontiguousarray(x[0:64:2, 1:901:3])


def test_slice(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    timed(lambda: cudml.slice(x, (0, 1), (32, 300), (2, 3)), cupy_slice_and_copy(cupy, x), SLICE_BAR)


def test_slice_out(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((32, 300), np.float32)
    timed(lambda: cudml.slice(x, (0, 1), (32, 300), (2, 3), out=out), cupy_slice_and_copy(cupy, x), SLICE_BAR)


def test_slice_with_a_new_offset(timed: Any, x: Any) -> None:
    import cudml

    columns = cycle(range(100))

    def same() -> Any:
        next(columns)
        return cudml.slice(x, (0, 1), (32, 300), (2, 3))

    timed(lambda: cudml.slice(x, (0, next(columns)), (32, 300), (2, 3)), same, NEW_OFFSET_BAR)


def test_slice_of_one_stretch(timed: Any, cupy: Any, x: Any) -> None:
    """The driver's copy, which the stand-in really makes."""
    import cudml

    timed(lambda: cudml.slice(x, (0, 0), (1, 16)), cupy_slice_and_copy(cupy, x), SLICE_BAR)


def test_reverse_subsequences(timed: Any, cupy: Any, x: Any, lengths: Any) -> None:
    import cudml

    timed(lambda: cudml.reverse_subsequences(x, lengths), lambda: x + x, TOP_K_BAR)


def test_reverse_subsequences_out(timed: Any, cupy: Any, x: Any, lengths: Any) -> None:
    import cudml

    out = cupy.ndarray(SHAPE, np.float32)
    timed(lambda: cudml.reverse_subsequences(x, lengths, out=out), lambda: x + x, TOP_K_BAR)


def test_gru_with_int64_lengths(timed: Any, cupy: Any) -> None:
    import cudml
    from tests.devices.cuda.stand_in.products import cublas

    shapes = ((3, 2, 4), (1, 15, 4), (1, 15, 5))
    x, w, r = (cupy.ndarray(shape, np.float32) for shape in shapes)
    wide, plain = cupy.ndarray((2,), np.int64), cupy.ndarray((2,), np.uint32)
    with cublas():
        timed(
            lambda: cudml.gru(x, w, r, sequence_lengths=wide),
            lambda: cudml.gru(x, w, r, sequence_lengths=plain),
            CONVERTED_BAR,
        )


def test_dispatch_reverse_subsequences(timed: Any, cupy: Any, x: Any, lengths: Any) -> None:
    import cudml

    tensor, out = cudml.TensorDesc.of(x.reshape(1, 1, *SHAPE)), cupy.ndarray(SHAPE, np.float32)
    lengths_tensor = cudml.TensorDesc.of(lengths.reshape(1, 1, SHAPE[0], 1))
    desc = cudml.ReverseSubsequencesDesc(tensor, lengths_tensor, tensor, axis=3)
    operator = cudml.compile_operator(desc, device="cuda")
    timed(
        lambda: operator.dispatch(input_tensor=x, sequence_lengths_tensor=lengths, output_tensor=out),
        raw_kernel(cupy, x),
        DISPATCH_BAR,
    )


def test_dispatch_slice(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((1, 1, 32, 300), np.float32)
    desc = cudml.SliceDesc(
        cudml.TensorDesc.of(x.reshape(1, 1, *SHAPE)),
        cudml.TensorDesc.of(out),
        (0, 0, 0, 1),
        (1, 1, 32, 300),
        (1, 1, 2, 3),
    )
    operator = cudml.compile_operator(desc, device="cuda")
    timed(lambda: operator.dispatch(input_tensor=x, output_tensor=out), raw_kernel(cupy, x), DISPATCH_BAR)


# The adapters, on the CPU.


@pytest.fixture
def added(benchmark: Any) -> Callable[..., None]:
    """Times a call, and limits its time over `count`, less that of another call, in microseconds."""

    def run(call: Callable[[], Any], other: Callable[[], Any], bar: float, count: int = 1) -> None:
        call(), other()
        benchmark.pedantic(call, rounds=ROUNDS, iterations=CALLS_PER_ROUND, warmup_rounds=3)
        turns = [[timeit(timed, number=CALLS_PER_ROUND) for timed in (call, other)] for _ in range(ROUNDS)]
        ours, core = (min(times) / CALLS_PER_ROUND * 1e6 for times in zip(*turns, strict=True))
        difference = ours / count - core
        benchmark.extra_info |= {"added": difference, "bar": bar}
        assert difference <= bar, f"{difference:.1f} us beyond the core call's {core:.1f}, the bar is {bar}"

    return run


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)


def test_torch_topk(added: Any, rows: np.ndarray) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[torch]'")
    import cudml.torch

    tensor = torch.from_numpy(rows)
    added(lambda: cudml.torch.topk(tensor, 4), lambda: cudml.top_k(rows, 4, nan="greatest"), TORCH_BAR_US)


def test_torch_gru(added: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[torch]'")
    import cudml
    import cudml.torch

    layer, x = cudml.torch.GRU(4, 8, bias=False).requires_grad_(False), torch.zeros(2, 1, 4)
    arrays = [tensor.numpy()[np.newaxis] for tensor in (layer.weight_ih_l0, layer.weight_hh_l0)]
    added(lambda: layer(x), lambda: cudml.gru(x.numpy(), *arrays), TORCH_MODULE_BAR_US)


def test_onnx_topk(added: Any, rows: np.ndarray) -> None:
    import cudml

    session = onnx_session("(float[M, 64] x, int64[N] n) => (float[M, K] y, int64[M, K] i) {"
                           " k = Constant<value_ints = [4]>()  y, i = TopK(x, k) }")  # fmt: skip
    feeds = {"x": rows, "n": np.full(64, 3)}
    added(lambda: session.run(None, feeds), lambda: cudml.top_k(rows, 4, nan="greatest"), ONNX_BAR_US)


def test_onnx_chain(added: Any, rows: np.ndarray) -> None:
    import cudml

    session = onnx_session("(float[M, 64] x, int64[N] n) => (float[M, 64] y) { a = ReverseSequence(x, n)"
                           " b = ReverseSequence(a, n)  y = ReverseSequence(b, n) }")  # fmt: skip
    feeds = {"x": rows, "n": np.full(64, 3)}
    across = feeds["n"][np.newaxis]
    added(
        lambda: session.run(None, feeds),
        lambda: cudml.reverse_subsequences(rows, across, axis=0),
        ONNX_BAR_US,
        count=3,
    )


def onnx_session(graph: str) -> Any:
    onnx, _ = (
        pytest.importorskip(name, reason="ONNX or its Runtime is not installed: pip install -e '.[onnx]'")
        for name in ("onnx", "onnxruntime")
    )
    import cudml.onnx

    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {graph}')
    return cudml.onnx.Session(model, providers=["CPUExecutionProvider"])


# The pieces.


def sample_program() -> tuple[Any, Any]:
    """A loaded program of one kernel, and its device."""
    from cudml.devices import cuda
    from tests.devices.cuda.stand_in.cases import scale_plan

    device = cuda.get_device()
    return device.load(scale_plan()), device


def test_piece_program(timed: Any, x: Any) -> None:
    program, _ = sample_program()
    operands = (x, x, x)
    timed(lambda: program(operands, None))


def test_piece_program_on_a_stream(timed: Any, cupy: Any, x: Any) -> None:
    program, _ = sample_program()
    operands, stream = (x, x, x), cupy.cuda.Stream(non_blocking=True)
    timed(lambda: program(operands, None, stream))


def test_piece_program_on_a_stream_handle(timed: Any, x: Any) -> None:
    program, _ = sample_program()
    operands = (x, x, x)
    timed(lambda: program(operands, None, 0x7000))


def test_piece_empty(timed: Any, x: Any) -> None:
    _, device = sample_program()
    dtype = x.dtype
    timed(lambda: device.empty(SHAPE, dtype))


def test_piece_retain_for_graph(timed: Any, cupy: Any, x: Any) -> None:
    """What safety in a graph costs a call with scratch, on a stream that could be captured."""
    _, device = sample_program()
    with cupy.cuda.Stream(non_blocking=True):
        timed(lambda: device.retain_for_graph((x,), (x,)))


def test_piece_address_and_layout(timed: Any, x: Any) -> None:
    _, device = sample_program()
    timed(lambda: device.address_and_layout(x))


def test_piece_take(timed: Any, x: Any) -> None:
    from cudml.devices import take

    sample_program()
    timed(lambda: take(x))


# CuPy's own.


def raw_kernel(cupy: Any, x: Any) -> Callable[[], Any]:
    """The same kernel by CuPy's public interface, scalars as one structure."""
    from cudml.devices.kernel_text import kernel_text
    from cudml.devices.sources import kernel_root
    from tests.devices.cuda.stand_in.cases import scale_launch

    launch = scale_launch()
    module = cupy.RawModule(
        code=kernel_text((launch,)),
        options=("--std=c++17", f"-I{kernel_root()}"),
        name_expressions=(launch.name_expression,),
    )
    kernel = module.get_function(launch.name_expression)
    params = np.void(launch.params.pack())
    return lambda: kernel(launch.grid, launch.block, (x, x, x, params))


def test_cupy_raw_kernel(timed: Any, cupy: Any, x: Any) -> None:
    timed(raw_kernel(cupy, x))


def test_cupy_empty(timed: Any, cupy: Any) -> None:
    timed(lambda: cupy.empty(SHAPE, np.float32))


def test_cupy_add(timed: Any, x: Any) -> None:
    timed(lambda: x + x)


def test_cupy_slice_and_copy(timed: Any, cupy: Any, x: Any) -> None:
    timed(cupy_slice_and_copy(cupy, x))


def test_cupy_take_along_axis(timed: Any, cupy: Any, x: Any) -> None:
    indices = cupy.ndarray(SHAPE, np.int64)
    timed(lambda: cupy.take_along_axis(x, indices, 1))
