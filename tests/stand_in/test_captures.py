"""Graphs: captured work is done at each launch of the graph, and calls that a capture forbids fail."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.stand_in import OVER_STAND_IN
from tests.stand_in.test_refusals import refused

pytestmark = OVER_STAND_IN

GLOBAL, THREAD_LOCAL, RELAXED = range(3)


@pytest.fixture
def cupy() -> Any:
    import cupy

    cupy.arange(8, dtype=np.int32) * 2 + 1  # builds its kernels outside of captures
    return cupy


@pytest.fixture
def stream(cupy: Any) -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def test_replays_compute_on_changed_inputs(cupy: Any, stream: Any) -> None:
    a, out = cupy.arange(8, dtype=np.int32), cupy.zeros(8, np.int32)
    cupy.multiply(a, 2, out=out)
    cupy.cuda.Device().synchronize()
    out.fill(-1)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        cupy.multiply(a, 2, out=out)
        graph = stream.end_capture()
        assert out.get().tolist() == [-1] * 8
        for first in (0, 10):
            a.set(np.arange(first, first + 8, dtype=np.int32))
            graph.launch(stream)
            assert np.array_equal(out.get(), 2 * np.arange(first, first + 8))


def test_streams_that_join_a_capture_are_part_of_the_graph(cupy: Any, stream: Any) -> None:
    a, b, out = (cupy.zeros(8, np.int32) for _ in range(3))
    cupy.add(a, b, out=out)
    cupy.cuda.Device().synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    fork = stream.record()
    other.wait_event(fork)
    with stream:
        a.fill(3)
    with other:
        b.fill(4)
    stream.wait_event(other.record())
    with stream:
        cupy.add(a, b, out=out)
    graph = stream.end_capture()
    graph.launch(stream)
    with stream:
        assert out.get().tolist() == [7] * 8


def test_stream_that_joined_and_is_not_waited_for(cupy: Any, stream: Any) -> None:
    a, other = cupy.zeros(8, np.int32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()  # the other stream does not wait for the zeros
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        a.fill(4)
    with refused(904, "a stream took part and was not waited for"):
        stream.end_capture()
    with other:
        a.fill(5)  # it is not captured any more
        assert a.get().tolist() == [5] * 8


def _event(cupy: Any) -> Any:
    return cupy.cuda.Event()


def _load(cupy: Any, stream: Any) -> None:
    cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing").kernel  # noqa: B018


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda cupy, stream: cupy.cuda.Device().synchronize(), "a synchronisation of the device"),
        (lambda cupy, stream: stream.synchronize(), "a synchronisation"),
        (lambda cupy, stream: cupy.cuda.Stream(non_blocking=True).synchronize(), "a synchronisation"),
        (lambda cupy, stream: cupy.cuda.runtime.malloc(64), "an allocation"),
        (lambda cupy, stream: _event(cupy).done, "a query of an event"),
        (lambda cupy, stream: stream.done, "a query of a stream"),
        (_load, "the load of a module"),
    ],
)
def test_forbidden_call_ends_the_capture(
    cupy: Any, stream: Any, call: Callable[[Any, Any], Any], what: str
) -> None:
    stream.begin_capture(GLOBAL)
    with refused(900, f"{what} while a stream is captured"):
        call(cupy, stream)
    with refused(901, f"there was {what} while the stream was captured"):
        stream.end_capture()
    stream.synchronize()


def test_the_legacy_stream_while_a_blocking_stream_is_captured(cupy: Any) -> None:
    a, stream = cupy.zeros(8, np.int32), cupy.cuda.Stream()
    stream.begin_capture()
    with refused(906, "on the legacy stream while a stream is captured"):
        a.fill(1)
    with refused(901, "on the legacy stream"):
        stream.end_capture()


def test_waits_across_the_border_of_a_capture(cupy: Any, stream: Any) -> None:
    event = cupy.cuda.Stream(non_blocking=True).record()
    stream.begin_capture()
    with refused(905, "waits for work outside of its graph"):
        stream.wait_event(event)
    with refused(901, "an event from outside"):
        stream.end_capture()


def test_relaxed_capture_allows_what_may_be_unsafe(cupy: Any, stream: Any) -> None:
    runtime = cupy.cuda.runtime
    stream.begin_capture(RELAXED)
    runtime.free(runtime.malloc(64))
    with refused(900, "the stream is captured"):
        stream.synchronize()
    with refused(901, "a synchronisation"):
        stream.end_capture()


@pytest.mark.parametrize("mode", [THREAD_LOCAL, RELAXED])
def test_no_thread_synchronises_a_device_with_a_captured_stream(cupy: Any, stream: Any, mode: int) -> None:
    stream.begin_capture(mode)
    with ThreadPoolExecutor(1) as other, refused(900, "a synchronisation of the device"):
        other.submit(cupy.cuda.Device(1).synchronize).result()
        other.submit(cupy.cuda.Device(0).synchronize).result()
    with refused(901, "a synchronisation of the device"):
        stream.end_capture()


def test_the_driver_forbids_less_after_the_mode_is_exchanged(cupy: Any, stream: Any) -> None:
    from cudml.devices.cuda.driver import relaxed_capture

    stream.begin_capture(GLOBAL)
    with relaxed_capture():
        assert _event(cupy).done
    stream.end_capture()


def test_end_without_a_beginning(cupy: Any, stream: Any) -> None:
    with refused(903, "no capture began on this stream"):
        cupy.cuda.runtime.streamEndCapture(stream.ptr)
    with refused(900, "the legacy stream cannot be captured"):
        cupy.cuda.runtime.streamBeginCapture(0, RELAXED)
