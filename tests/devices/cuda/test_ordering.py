"""Streams, events and what calls share, on a GPU or over the stand-in, by the bytes that come out.

Over the stand-in, work is done as late as it may be, or in other orders by a seed, so results that nobody
waited for are missing. On a GPU, only long work would be late.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from proof import stand_in
from tests.support import assert_identical

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]

OLD, NEW, NEWER = 1, 2, 3
SHAPE = (4, 6)

#: A row of this length is read by several blocks.
ROW_LENGTH = 140_001


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


@pytest.fixture
def streams(cupy: Any) -> Iterator[list[Any]]:
    """Two streams that wait for no other one."""
    made = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    yield made
    for stream in made:
        stream.synchronize()


@pytest.fixture
def array(cupy: Any) -> Any:
    """An array of OLD elements, for which nothing is queued."""
    made = cupy.full(SHAPE, OLD, np.int32)
    cupy.cuda.Device().synchronize()
    return made


class ByInterface:
    """An array of a library that works on a stream and names it."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.__cuda_array_interface__ = {
            **array.__cuda_array_interface__,
            "stream": stream.ptr or 1,
            "version": 3,
        }
        self.array = array


class ByDlpack:
    """An array of a library that works on a stream, and lets the stream that it is asked for wait."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array, self._stream = array, stream

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int, **options: Any) -> Any:
        if stream != -1:
            event = self._stream.record()
            sys.modules["cupy"].cuda.runtime.streamWaitEvent(stream, event.ptr)
        return self.array.__dlpack__(stream=-1, **options)


def test_work_waits_for_the_stream_that_an_interface_names(streams: list[Any], array: Any) -> None:
    library, own = streams
    with library:
        array.fill(NEW)
    with own:
        found = cudml.slice(ByInterface(array, library), (0, 0), SHAPE)
        assert_identical(found, np.full(SHAPE, NEW, np.int32))


def test_the_stream_that_an_interface_names_waits_for_the_work(streams: list[Any], array: Any) -> None:
    library, own = streams
    with own:
        found = cudml.slice(ByInterface(array, library), (0, 0), SHAPE)
    with library:
        array.fill(NEW)
    library.synchronize()
    with own:
        assert_identical(found, np.full(SHAPE, OLD, np.int32))


def test_results_are_there_for_the_stream_that_an_interface_names(
    cupy: Any, streams: list[Any], array: Any
) -> None:
    library, own = streams
    out = cupy.zeros(SHAPE, np.int32)
    cupy.cuda.Device().synchronize()
    with own:
        array.fill(NEW)
        cudml.slice(array, (0, 0), SHAPE, out=ByInterface(out, library))
    with library:
        assert_identical(out, np.full(SHAPE, NEW, np.int32))


def test_work_is_ordered_with_the_library_of_a_dlpack_tensor(
    cupy: Any, streams: list[Any], array: Any
) -> None:
    """DLPack does not name the library's stream, so the legacy default stream waits for the work."""
    own = streams[0]
    array.fill(NEW)
    with own:
        found = cudml.slice(ByDlpack(array, cupy.cuda.Stream.null), (0, 0), SHAPE)
    array.fill(NEWER)
    cupy.cuda.Stream.null.synchronize()
    with own:
        assert_identical(found, np.full(SHAPE, NEW, np.int32))


def _top_k(inputs: dict[str, Any], stream: Any) -> Any:
    return cudml.top_k(inputs["x"], 3, stream=stream)


def _slice(inputs: dict[str, Any], stream: Any) -> Any:
    return (cudml.slice(inputs["x"], (1, 2, 0), (4, 3, 8), (1, -1, 1), stream=stream),)


def _reversal(inputs: dict[str, Any], stream: Any) -> Any:
    return (cudml.reverse_subsequences(inputs["x"], inputs["lengths"], 1, stream=stream),)


def _gru(inputs: dict[str, Any], stream: Any) -> Any:
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    return cudml.gru(inputs["x"], inputs["w"], inputs["r"], stream=stream)


class Protocol:
    """A stream of another library."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


HANDED: dict[str, Callable[[Any], Any]] = {
    "cupy": lambda stream: stream,
    "handle": lambda stream: stream.ptr,
    "protocol": Protocol,
}


@pytest.mark.parametrize("how", HANDED)
@pytest.mark.parametrize("function", [_top_k, _slice, _reversal, _gru])
def test_a_stream_that_is_given_orders_the_call(
    cupy: Any, streams: list[Any], function: Callable[..., Any], how: str, rng: np.random.Generator
) -> None:
    """The call comes after the stream's writes of its inputs, and before the reads of its results."""
    first, second = ({
        "x": rng.standard_normal((6, 5, 8), np.float32),
        "w": rng.standard_normal((1, 12, 8), np.float32),
        "r": rng.standard_normal((1, 12, 4), np.float32),
        "lengths": rng.integers(0, 6, (6, 1, 8), np.uint32),
    } for _ in range(2))  # fmt: skip
    inputs, later = ({name: cupy.asarray(a) for name, a in arrays.items()} for arrays in (first, second))
    kept = function(later, None)  # keeps later results from their addresses
    expected = [array.get() for array in kept]
    cupy.cuda.Device().synchronize()
    stream = streams[0]
    with stream:
        for name, array in later.items():
            cupy.copyto(inputs[name], array)
    found = function(inputs, HANDED[how](stream))
    with stream:
        for array, wanted in zip(found, expected, strict=True):
            assert_identical(array, wanted)


@pytest.fixture
def rows(cupy: Any, rng: np.random.Generator) -> tuple[list[Any], list[int]]:
    """Rows that several blocks share, and the index of the largest element of each.

    A counter, which the kernel leaves zero, tells which block is the last.
    """
    made = [rng.standard_normal(ROW_LENGTH, np.float32) for _ in range(8)]
    on_gpu = [cupy.asarray(row) for row in made]
    over = stand_in.loaded()
    with over.launches() if over else nullcontext([]) as launched:
        cudml.top_k(on_gpu[0], 1)
    assert all(request.grid[0] > 1 for request, _ in launched)
    cupy.cuda.Device().synchronize()
    return on_gpu, [int(row.argmax()) for row in made]


def in_order_of(seed: int) -> AbstractContextManager[None]:
    """Over the stand-in, the work within is done in the order of a seed."""
    over = stand_in.loaded()
    return over.ordered(seed) if over else nullcontext()


@pytest.mark.parametrize("seed", range(1, 9))
def test_streams_share_no_counters(streams: list[Any], seed: int, rows: tuple[list[Any], list[int]]) -> None:
    arrays, expected = rows
    found = []
    with in_order_of(seed):
        for number, row in enumerate(arrays):
            found.append(cudml.top_k(row, 1, stream=streams[number % 2]).indices)
        for stream in streams:
            stream.synchronize()
    assert [int(array.get()[0]) for array in found] == expected


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_replay_shares_no_counters_with_the_stream_that_was_captured(
    cupy: Any, streams: list[Any], seed: int, rows: tuple[list[Any], list[int]]
) -> None:
    arrays, expected = rows
    captured, other = streams
    cudml.top_k(arrays[0], 1, stream=captured)  # so that the stream has counters
    with captured:
        captured.begin_capture()
        replayed = cudml.top_k(arrays[0], 1)  # every replay writes both arrays
        graph = captured.end_capture()
    cupy.cuda.Device().synchronize()
    found = []
    with in_order_of(seed):
        for row in arrays[1:]:
            graph.launch(other)
            found.append(cudml.top_k(row, 1, stream=captured).indices)
        for stream in streams:
            stream.synchronize()
    assert [int(array.get()[0]) for array in [replayed.indices, *found]] == expected
