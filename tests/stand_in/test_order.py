"""Streams and events: work is done as late as it may be, so readers that do not wait see the old values."""

import threading
from typing import Any

import numpy as np
import pytest

from tests.stand_in import OVER_STAND_IN, the_stand_in

pytestmark = [
    *OVER_STAND_IN,
    pytest.mark.skipif(
        OVER_STAND_IN[1].args[0] or the_stand_in().settings.seed is not None,
        reason="the order is another one with a seed",
    ),
]

OLD, NEW = 1, 2


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


@pytest.fixture
def array(cupy: Any) -> Any:
    """An array of eight OLD elements, for which nothing is queued."""
    made = cupy.full(8, OLD, np.int32)
    cupy.cuda.Device().synchronize()
    return made


def _stream(cupy: Any) -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def test_stream_that_does_not_wait_sees_what_was_there(cupy: Any, array: Any) -> None:
    writer, reader = _stream(cupy), _stream(cupy)
    with writer:
        array.fill(NEW)
    with reader:
        assert array.get().tolist() == [OLD] * 8
    writer.synchronize()
    with reader:
        assert array.get().tolist() == [NEW] * 8


def test_stream_that_waits_for_an_event(cupy: Any, array: Any) -> None:
    """It sees work queued before the event was recorded, and no work queued after."""
    writer, reader = _stream(cupy), _stream(cupy)
    with writer:
        array.fill(NEW)
        event = writer.record()
        array.fill(NEW + 1)
    reader.wait_event(event)
    with reader:
        assert array.get().tolist() == [NEW] * 8
    writer.synchronize()
    assert array.get().tolist() == [NEW + 1] * 8


def test_event_counts_where_it_was_recorded_last_before_the_wait(cupy: Any, array: Any) -> None:
    writer, reader = _stream(cupy), _stream(cupy)
    event = writer.record()
    reader.wait_event(event)
    with writer:
        array.fill(NEW)
        event.record(writer)
    with reader:
        assert array.get().tolist() == [OLD] * 8
    reader.wait_event(event)
    with reader:
        assert array.get().tolist() == [NEW] * 8


@pytest.mark.parametrize("non_blocking", [False, True])
def test_legacy_stream_waits_for_blocking_streams_alone(cupy: Any, array: Any, non_blocking: bool) -> None:
    writer = cupy.cuda.Stream(non_blocking=non_blocking)
    with writer:
        array.fill(NEW)
    assert array.get().tolist() == [OLD if non_blocking else NEW] * 8


@pytest.mark.parametrize("non_blocking", [False, True])
def test_blocking_streams_alone_wait_for_the_legacy_stream(cupy: Any, array: Any, non_blocking: bool) -> None:
    array.fill(NEW)
    with cupy.cuda.Stream(non_blocking=non_blocking):
        assert array.get().tolist() == [OLD if non_blocking else NEW] * 8


def test_each_thread_has_a_default_stream_of_its_own(cupy: Any, array: Any) -> None:
    """They do not wait for each other, but the legacy stream waits for both."""
    found = {}

    def write() -> None:
        with cupy.cuda.Stream.ptds:
            array.fill(NEW)

    def read() -> None:
        with cupy.cuda.Stream.ptds:
            found["other"] = array.get().tolist()

    for target in (write, read):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert found["other"] == [OLD] * 8
    assert array.get().tolist() == [NEW] * 8


def test_a_destroyed_handle_comes_again(cupy: Any, array: Any) -> None:
    """Work queued on the destroyed stream is not work of the new one."""
    first = _stream(cupy)
    handle = first.ptr
    with first:
        array.fill(NEW)
    del first
    second = _stream(cupy)
    assert second.ptr == handle
    with second:
        assert array.get().tolist() == [OLD] * 8
    cupy.cuda.Device().synchronize()
    assert array.get().tolist() == [NEW] * 8


def test_memory_returns_at_its_point_of_the_stream(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    stream = _stream(cupy)
    free, _ = runtime.memGetInfo()
    address = runtime.mallocAsync(1000, stream.ptr)
    runtime.memsetAsync(address, 7, 1000, stream.ptr)
    runtime.freeAsync(address, stream.ptr)
    assert runtime.memGetInfo()[0] == free - 1000
    stream.synchronize()
    assert runtime.memGetInfo()[0] == free


def test_pinned_memory_is_read_when_the_copy_is_done(cupy: Any) -> None:
    """Pageable memory is read when the copy is queued."""
    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(32), np.int32, 8)
    pageable = np.empty(8, np.int32)
    stream = _stream(cupy)
    for source, expected in ((pinned, NEW), (pageable, OLD)):
        array = cupy.empty(8, np.int32)
        source[...] = OLD
        array.data.copy_from_host_async(source.ctypes.data, array.nbytes, stream)
        source[...] = NEW
        with stream:
            assert array.get().tolist() == [expected] * 8


def test_event_is_not_done_before_its_work(cupy: Any, array: Any) -> None:
    """A question makes some progress, so that a loop of them ends."""
    stream = _stream(cupy)
    with stream:
        array.fill(NEW)
        array.fill(NEW + 1)
        event = stream.record()
    answers = []
    while not (answers and answers[-1]):
        answers.append(event.done)
    assert answers[:2] == [False, False]
    with _stream(cupy):
        assert array.get().tolist() == [NEW + 1] * 8


def test_elapsed_time_grows_with_the_work(cupy: Any) -> None:
    from tests.stand_in import kernel

    text = """extern "C" __global__ void chain(float* a, int n) {
      float x = 0; for (int i = 0; i < n; ++i) x = x * 0.5f + 1; *a = x; }"""
    run, out = kernel(text, "chain"), cupy.zeros(1, np.float32)
    times = []
    for count in (100, 1000):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        run((1,), (1,), (out, np.int32(count)))
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop))
    assert 5 < times[1] / times[0] < 12
