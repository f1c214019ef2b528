"""Host time of calls on the CUDA path, over a stand-in for the driver: no GPU is needed.

    pytest bench/test_overhead.py -n 0 --benchmark-columns=min,median,iqr --benchmark-sort=name

Kernels do nothing here and the driver answers at once, so a figure is what Python and CuPy add to the
driver's own time of a launch. The tests of the bars fail where the least of many rounds is over the bar;
the pieces show where the time goes, and the CuPy expressions what users of CuPy are used to.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.devices.cuda.stand_in import load

#: Host time over the driver's launch that a call may take, in microseconds.
ARRAY_FUNCTION_BAR_US = 4.0
DISPATCH_BAR_US = 2.0

# Short rounds, many of them: the least is then one that nothing disturbed.
ROUNDS, CALLS_PER_ROUND = 500, 100

SHAPE = (64, 1000)


@pytest.fixture(scope="module")
def cupy() -> Any:
    """CuPy over the stand-in; it must not be in use in this process for real."""
    if "cupy" in sys.modules:
        pytest.skip("CuPy is imported already: run this file alone, with -n 0")
    if find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: pip install -e '.[nvrtc]' (no GPU is needed)")
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
    """Times a call that was made before, and holds it to a bar if there is one."""

    def run(call: Callable[[], Any], bar_us: float | None = None) -> None:
        call()
        benchmark.pedantic(call, rounds=ROUNDS, iterations=CALLS_PER_ROUND, warmup_rounds=3)
        least_us = benchmark.stats.stats.min * 1e6
        if bar_us is not None:
            benchmark.extra_info["bar_us"] = bar_us
            assert least_us <= bar_us, f"{least_us:.2f} us, the bar is {bar_us} us"

    return run


# What the bars are about.


def test_top_k(timed: Any, x: Any) -> None:
    import cudml

    timed(lambda: cudml.top_k(x, 16), ARRAY_FUNCTION_BAR_US)


def test_top_k_out(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((SHAPE[0], 16), np.float32), cupy.ndarray((SHAPE[0], 16), np.int64)
    timed(lambda: cudml.top_k(x, 16, out=out), ARRAY_FUNCTION_BAR_US)


def test_slice(timed: Any, x: Any) -> None:
    import cudml

    timed(lambda: cudml.slice(x, (0, 1), (32, 300), (2, 3)), ARRAY_FUNCTION_BAR_US)


def test_slice_out(timed: Any, cupy: Any, x: Any) -> None:
    import cudml

    out = cupy.ndarray((32, 300), np.float32)
    timed(lambda: cudml.slice(x, (0, 1), (32, 300), (2, 3), out=out), ARRAY_FUNCTION_BAR_US)


def test_slice_of_one_stretch(timed: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's copy, which is for long stretches, on few bytes: it happens here."""
    import cudml
    from cudml.operators import slice_paths

    always = replace(slice_paths.THRESHOLDS, min_driver_copy_bytes=0)
    monkeypatch.setattr(slice_paths, "THRESHOLDS", always)
    timed(lambda: cudml.slice(x, (0, 0), (1, 16)), ARRAY_FUNCTION_BAR_US)


def test_reverse_subsequences(timed: Any, x: Any, lengths: Any) -> None:
    import cudml

    timed(lambda: cudml.reverse_subsequences(x, lengths), ARRAY_FUNCTION_BAR_US)


def test_reverse_subsequences_out(timed: Any, cupy: Any, x: Any, lengths: Any) -> None:
    import cudml

    out = cupy.ndarray(SHAPE, np.float32)
    timed(lambda: cudml.reverse_subsequences(x, lengths, out=out), ARRAY_FUNCTION_BAR_US)


def test_dispatch_reverse_subsequences(timed: Any, cupy: Any, x: Any, lengths: Any) -> None:
    import cudml

    tensor, out = cudml.TensorDesc.of(x.reshape(1, 1, *SHAPE)), cupy.ndarray(SHAPE, np.float32)
    lengths_tensor = cudml.TensorDesc.of(lengths.reshape(1, 1, SHAPE[0], 1))
    desc = cudml.ReverseSubsequencesDesc(tensor, lengths_tensor, tensor, axis=3)
    operator = cudml.compile_operator(desc, device="cuda")
    timed(
        lambda: operator.dispatch(input_tensor=x, sequence_lengths_tensor=lengths, output_tensor=out),
        DISPATCH_BAR_US,
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
    timed(lambda: operator.dispatch(input_tensor=x, output_tensor=out), DISPATCH_BAR_US)


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


def test_piece_keep_captured(timed: Any, cupy: Any, x: Any) -> None:
    """What a call with scratch pays to be safe in a graph, on a stream that could be captured."""
    _, device = sample_program()
    with cupy.cuda.Stream(non_blocking=True):
        timed(lambda: device.keep_captured((x,), (), (x,)))


def test_piece_describe(timed: Any, x: Any) -> None:
    _, device = sample_program()
    timed(lambda: device.describe(x))


def test_piece_take(timed: Any, x: Any) -> None:
    from cudml.devices import take

    sample_program()
    timed(lambda: take(x))


# CuPy's own.


def test_cupy_raw_kernel(timed: Any, cupy: Any, x: Any) -> None:
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
    timed(lambda: kernel(launch.grid, launch.block, (x, x, x, params)))


def test_cupy_empty(timed: Any, cupy: Any) -> None:
    timed(lambda: cupy.empty(SHAPE, np.float32))


def test_cupy_add(timed: Any, x: Any) -> None:
    timed(lambda: x + x)


def test_cupy_slice_and_copy(timed: Any, cupy: Any, x: Any) -> None:
    timed(lambda: cupy.ascontiguousarray(x[0:64:2, 1:901:3]))


def test_cupy_take_along_axis(timed: Any, cupy: Any, x: Any) -> None:
    indices = cupy.ndarray(SHAPE, np.int64)
    timed(lambda: cupy.take_along_axis(x, indices, 1))
