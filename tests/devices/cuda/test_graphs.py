"""Graphs of a plan's repeated steps: how they are split, and that results are those of single launches.

Most plans here add a number to their output, so the result counts the repetitions. Calls of CUDA are counted
over the stand-in.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from time import sleep
from typing import Any

import numpy as np
import pytest

from cudml.devices import cuda
from cudml.devices.cuda import graphs
from cudml.plans import Cycle, Fill, Plan
from tests.devices.cuda.test_gpu import on_gpu, plan_of, scale_step
from tests.stand_in import OVER_STAND_IN, the_stand_in
from tests.support.gru_runs import BIDIRECTIONAL, Options, random_layer, run_gru

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]


def on_a_gpu(test: Callable[..., Any]) -> Callable[..., Any]:
    for mark in GPU:
        test = mark(test)
    return test


def over_stand_in(test: Callable[..., Any]) -> Callable[..., Any]:
    for mark in OVER_STAND_IN:
        test = mark(test)
    return test


#: Items of a buffer, and repetitions that make 1 launch and 4 launches of a graph of 16.
ITEMS, TIMES = 16, 1 + 4 * 16


def counting_plan(times: int) -> Plan:
    """out = times * bias: a fill, then additions."""
    addition = scale_step(ITEMS, 1.0, buffers=("out", "bias", "out"))
    return plan_of(Fill("out", 4 * ITEMS), *[addition] * times)


class Arrays:
    """The operands of a counting plan."""

    def __init__(self, gpu: cuda.CudaDevice, bias: float) -> None:
        with gpu.on_stream(None):
            self.a = on_gpu(gpu, np.zeros(1, np.float32))
            self.bias = on_gpu(gpu, np.full(1, bias, np.float32))
            self.out = on_gpu(gpu, np.full(ITEMS, -1, np.float32))
        self.operands = self.a, self.bias, self.out


@pytest.fixture
def gpu() -> cuda.CudaDevice:
    return cuda.get_device()


@pytest.fixture
def stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """How often the functions of CUDA are called within."""
    found: Counter[str] = Counter()
    gc.collect()  # graphs of former tests, which the collector would destroy at any time
    the_stand_in().record()
    yield found
    found.update(call for call, *_ in the_stand_in().calls)
    the_stand_in().calls.clear()


@pytest.mark.parametrize("times", [1, 2, 32])
def test_few_repetitions_are_launched_one_by_one(times: int) -> None:
    assert graphs.split(Cycle(3, 2, times)) is None
    assert graphs.split(None) is None


def test_repetitions_are_split_into_launches_of_one_graph() -> None:
    for times in range(33, 3000):
        alone, size, count = graphs.split(Cycle(3, 2, times)) or (0, 0, 0)
        assert alone + size * count == times
        assert 1 <= alone <= 1 + times // 16
        assert graphs.LEAST_REPETITIONS <= size <= graphs.MOST_REPETITIONS
        assert count >= 1


@pytest.mark.parametrize("setting", ["0", "off"])
def test_a_setting_turns_graphs_off(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("CUDML_GRAPHS", setting)
    assert graphs.split(Cycle(3, 2, 100)) is None


@on_a_gpu
@pytest.mark.parametrize("times", [1, 32, 33, 48, 100, 257])
def test_every_repetition_is_done_once(gpu: cuda.CudaDevice, stream: Any, times: int) -> None:
    program, arrays = gpu.load(counting_plan(times)), Arrays(gpu, 3)
    for _ in range(3):
        program(arrays.operands, None, stream)
        stream.synchronize()
        assert (arrays.out.get() == 3 * times).all()


@over_stand_in
def test_a_graph_is_recorded_once_for_its_addresses(gpu: cuda.CudaDevice, stream: Any) -> None:
    program, first, second = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3), Arrays(gpu, 5)
    for arrays in (first, second):
        with calls() as cold:
            program(arrays.operands, None, stream)
        assert cold["cudaGraphInstantiate"] == cold["cudaStreamBeginCapture"] == 1
        assert cold["cuLaunchKernel"] == 1 + 16  # 16 are recorded into the graph
        assert cold["cudaGraphLaunch"] == 4
    for arrays in (first, second, first):
        with calls() as warm:
            program(arrays.operands, None, stream)
        # No allocation, no synchronisation.
        assert {name: warm[name] for name in warm.keys() - {"cudaGetDevice", "cudaEnsure_context"}} == {
            "cudaMemsetAsync": 1,
            "cuLaunchKernel": 1,
            "cudaStreamIsCapturing": 1,
            "cudaGraphLaunch": 4,
        }
    stream.synchronize()
    assert (first.out.get() == 3 * TIMES).all()
    assert (second.out.get() == 5 * TIMES).all()


@over_stand_in
def test_addresses_without_arrays_take_the_same_graph(gpu: cuda.CudaDevice, stream: Any) -> None:
    """As `cudml.torch` gives them."""
    program, arrays = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3)
    with calls() as found:
        for operands in ([cuda.pointer(one.data.ptr) for one in arrays.operands], arrays.operands):
            program(operands, None, cuda.StreamHandle(stream.ptr))
            stream.synchronize()
            assert (arrays.out.get() == 3 * TIMES).all()
    assert found["cudaGraphInstantiate"] == 1
    assert found["cudaGraphLaunch"] == 8


@over_stand_in
def test_the_oldest_graph_is_dropped_and_recorded_again(gpu: cuda.CudaDevice, stream: Any) -> None:
    program = gpu.load(counting_plan(TIMES))
    arrays = [Arrays(gpu, number) for number in range(graphs.MAX_GRAPHS + 1)]
    with calls() as found:
        for one in arrays:
            program(one.operands, None, stream)
    assert found["cudaGraphInstantiate"] == len(arrays)
    assert found["cudaGraphExecDestroy"] == 1
    with calls() as found:
        for one in arrays[1:]:
            program(one.operands, None, stream)
    assert found["cudaGraphInstantiate"] == 0
    with calls() as found:
        program(arrays[0].operands, None, stream)
    assert found["cudaGraphInstantiate"] == found["cudaGraphExecDestroy"] == 1
    stream.synchronize()
    assert [one.out.get()[0] for one in arrays] == [number * TIMES for number in range(len(arrays))]


@over_stand_in
def test_graphs_go_with_their_program_while_they_run(gpu: cuda.CudaDevice, stream: Any) -> None:
    program, arrays = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3)
    with calls() as found:
        program(arrays.operands, None, stream)
        del program
        gc.collect()
    assert found["cudaGraphExecDestroy"] == 1
    assert found["cudaStreamSynchronize"] == found["cudaDeviceSynchronize"] == 0
    stream.synchronize()
    assert (arrays.out.get() == 3 * TIMES).all()


@on_a_gpu
def test_other_memory_at_the_same_addresses_is_computed(gpu: cuda.CudaDevice, stream: Any) -> None:
    """Nothing keeps the memory of a former call; a call reads and writes the memory that is there now."""
    import cupy

    program = gpu.load(counting_plan(TIMES))
    pool = cupy.cuda.MemoryPool()
    places = []
    for bias in (3, 7, 5, 9):
        with cupy.cuda.using_allocator(pool.malloc):
            arrays = Arrays(gpu, bias)
            places.append(tuple(array.data.ptr for array in arrays.operands))
            program(arrays.operands, None, stream)
            stream.synchronize()
            assert (arrays.out.get() == bias * TIMES).all()
            del arrays
    assert len({*places}) < len(places)


@on_a_gpu
@pytest.mark.parametrize("which", ["given", "current", "handle", "legacy"])
def test_graphs_are_ordered_with_the_callers_stream(gpu: cuda.CudaDevice, stream: Any, which: str) -> None:
    """Work queued before the graphs comes first, work queued after them last."""
    import cupy

    program, arrays = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3)
    other, copied = on_gpu(gpu, np.full(1, 4, np.float32)), on_gpu(gpu, np.zeros(ITEMS, np.float32))
    chosen = cupy.cuda.Stream.null if which == "legacy" else stream
    given = {"given": chosen, "current": None, "handle": stream.ptr, "legacy": None}[which]
    for value in (4, 9):
        other.fill(value)
        cupy.cuda.Device().synchronize()
        with chosen:
            cupy.copyto(arrays.bias, other)
            program(arrays.operands, None, given)
            cupy.copyto(copied, arrays.out)
            arrays.bias.fill(1000)
            assert (copied.get() == value * TIMES).all()


@on_a_gpu
def test_a_capture_of_the_caller_has_single_launches(gpu: cuda.CudaDevice, stream: Any) -> None:
    program, arrays = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3)
    program(arrays.operands, None, stream)
    stream.begin_capture()
    program(arrays.operands, None, stream)
    graph = stream.end_capture()
    with stream:
        arrays.bias.fill(5)
        arrays.out.fill(0)
        graph.launch(stream)
        assert (arrays.out.get() == 5 * TIMES).all()


@over_stand_in
def test_a_capture_of_the_caller_launches_no_graph(gpu: cuda.CudaDevice, stream: Any) -> None:
    program, arrays = gpu.load(counting_plan(TIMES)), Arrays(gpu, 3)
    program(arrays.operands, None, stream)
    stream.begin_capture()
    with calls() as found:
        program(arrays.operands, None, stream)
    stream.end_capture()
    assert found["cuLaunchKernel"] == TIMES
    assert found["cudaGraphLaunch"] == found["cudaStreamBeginCapture"] == 0


@over_stand_in
def test_a_graph_is_recorded_beside_the_strictest_capture(gpu: cuda.CudaDevice, stream: Any) -> None:
    """The same thread captures another stream in the mode in which CUDA forbids making graphs."""
    import cupy

    program = gpu.load(counting_plan(TIMES))
    arrays = [Arrays(gpu, number) for number in range(graphs.MAX_GRAPHS + 1)]
    captured = cupy.cuda.Stream(non_blocking=True)
    captured.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    for one in arrays:
        program(one.operands, None, stream)
    captured.end_capture()
    stream.synchronize()
    assert [one.out.get()[0] for one in arrays] == [number * TIMES for number in range(len(arrays))]


@over_stand_in
def test_a_program_of_another_device_than_the_current_one(stream: Any) -> None:
    import cupy

    gpu = cuda.get_device(1)
    program = gpu.load(counting_plan(TIMES))
    with cupy.cuda.Device(1):
        arrays, own = Arrays(gpu, 3), cupy.cuda.Stream(non_blocking=True)
    for _ in range(2):
        program(arrays.operands, None, own)
    with cupy.cuda.Device(1):
        own.synchronize()
        assert (arrays.out.get() == 3 * TIMES).all()


@on_a_gpu
@pytest.mark.parametrize("shares", [False, True])
def test_threads_run_one_program(gpu: cuda.CudaDevice, shares: bool) -> None:
    """Each thread has its own arrays, or all take turns with the same: CUDA synchronises no graph."""
    import cupy

    program = gpu.load(counting_plan(TIMES))
    common, num_threads, num_calls = Arrays(gpu, 3), 4, 5
    start = Barrier(num_threads)

    def run(number: int) -> bool:
        arrays = common if shares else Arrays(gpu, number)
        chosen = cupy.cuda.Stream(non_blocking=True)
        start.wait()
        good = True
        for _ in range(num_calls):
            program(arrays.operands, None, chosen)
            chosen.synchronize()
            good = good and (shares or bool((arrays.out.get() == number * TIMES).all()))
        return good

    with ThreadPoolExecutor(num_threads) as pool:
        assert all(pool.map(run, range(num_threads)))
    if shares:  # additions of several calls may be in any order, but each graph and fill is whole
        program(common.operands, None)
        assert (common.out.get() == 3 * TIMES).all()


@over_stand_in
def test_one_thread_at_a_time_uses_a_graph(gpu: cuda.CudaDevice) -> None:
    """CUDA leaves this to the caller, and the stand-in does not notice a violation."""
    import cupy

    arrays, steps = Arrays(gpu, 3), [lambda buffers, chosen: None]
    repeated = graphs.Repeated(cupy, steps, 16, 4)
    inside, most = 0, 0

    def launch(graph: int, handle: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        sleep(0.002)
        inside -= 1

    repeated._launch = launch

    def run(number: int) -> None:
        repeated(arrays.operands, cupy.cuda.Stream(non_blocking=True))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert most == 1
    assert len(repeated._graphs) == 1


@over_stand_in
def test_other_threads_go_on_while_a_graph_is_recorded(gpu: cuda.CudaDevice, stream: Any) -> None:
    """They allocate memory, ask for the state of events, and use the legacy default stream."""
    import cupy

    arrays, other, done = Arrays(gpu, 3), Arrays(gpu, 5), []
    event, runtime = cupy.cuda.Event(), cupy.cuda.runtime
    event.record()

    def work() -> bool:
        runtime.free(runtime.malloc(64))
        runtime.memsetAsync(other.out.data.ptr, 0, 4 * ITEMS, 0)
        return event.done in (False, True)

    def step(buffers: Any, chosen: Any) -> None:
        runtime.memsetAsync(arrays.out.data.ptr, 0, 4 * ITEMS, chosen.ptr)
        if runtime.streamIsCapturing(chosen.ptr) and not done:
            with ThreadPoolExecutor(1) as thread:
                done.append(thread.submit(work).result())

    with calls() as found:
        graphs.Repeated(cupy, [step], 16, 2)(arrays.operands, stream)
    assert done == [True]
    assert found["cudaGraphLaunch"] == 2


@over_stand_in
def test_launches_take_the_place_of_a_graph_that_is_not_recorded(
    gpu: cuda.CudaDevice, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread synchronises the GPU during the capture; CUDA refuses that and ends the capture."""
    import cupy

    monkeypatch.setattr(graphs, "_warn_of_graph", graphs._warn_of_graph.__wrapped__)
    arrays = Arrays(gpu, 3)
    program = gpu.load(counting_plan(2))
    refusals = []

    def add(buffers: Any, chosen: Any) -> None:
        cupy.cuda.runtime.memsetAsync(arrays.out.data.ptr, len(refusals), 4 * ITEMS, chosen.ptr)
        if cupy.cuda.runtime.streamIsCapturing(chosen.ptr) and not refusals:
            with ThreadPoolExecutor(1) as other:
                refusals.append(other.submit(cupy.cuda.Device(0).synchronize).exception())

    repeated = graphs.Repeated(cupy, [add], 16, 2)
    with calls() as found, pytest.warns(UserWarning, match="CUDA recorded no graph.*cudaErrorStreamCapture"):
        repeated(arrays.operands, stream)
    assert found["cudaMemsetAsync"] == 2 + 32  # the second memset finds that the capture has ended
    assert found["cudaGraphLaunch"] == 0
    assert len(refusals) == 1
    with calls() as found, warnings.catch_warnings():
        warnings.simplefilter("error")
        repeated(arrays.operands, stream)
    assert found["cudaGraphLaunch"] == 2
    program(arrays.operands, None, stream)
    stream.synchronize()
    assert (arrays.out.get() == 6).all()


@on_a_gpu
@pytest.mark.parametrize("path", ["products", "split_products", "rounded_products"])
@pytest.mark.parametrize("linear_before_reset", [True, False])
def test_a_recurrence_by_products_has_the_bits_of_single_launches(
    gpu: cuda.CudaDevice,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    linear_before_reset: bool,
    path: str,
) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    options = Options(BIDIRECTIONAL, linear_before_reset)
    layer = random_layer(rng, (37, 3, 5, 8), options, lengths=[37, 0, 20], path=path)
    results = []
    for setting in ("1", "0"):
        monkeypatch.setenv("CUDML_GRAPHS", setting)
        results.append(run_gru(gpu, layer, options, path=path))
    for name, expected in results[1].items():
        np.testing.assert_array_equal(results[0][name], expected)
