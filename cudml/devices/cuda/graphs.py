"""The steps that a long plan repeats, as a CUDA graph that the plan owns.

A recurrence by products makes two or more launches for each step in time, and the host takes longer for a
launch than the GPU for its kernel. Such a plan ends with the same steps again and again. Some repetitions are
recorded once as a graph, and the graph is launched until all are done: launching the graph costs the host
about as much as launching one kernel, however long the sequence is.

Invariants:

* A graph has the addresses of the call that it was recorded for, and is launched only by calls with these
  addresses, to which the memory belongs at that time. So the graph holds no memory of a caller, and scratch
  needs no longer life than in a call without a graph.
* It is recorded on a stream of its own and launched on the caller's, behind what is queued there and before
  what follows. CUDA also orders it behind its own former launch, on whatever stream that was.
* CUDA does not synchronise calls on a graph object. A lock is held while a graph is looked up, recorded,
  launched and dropped, since two threads may run one plan with the same arrays.
* A dropped graph may still run: CUDA frees it once it is done, and nothing waits.
* If the caller captures a graph, launches go into the caller's graph, one by one.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cudml.devices.cuda.driver import relaxed_capture
from cudml.devices.cuda.streams import LEGACY_STREAMS
from cudml.errors import DeviceError
from cudml.locks import Lock
from cudml.plans import Cycle
from cudml.settings import record_graphs

# Runs a step with the addresses or arrays of operands and workspaces, and the stream or None.
Run = Callable[[Sequence[Any], Any], None]

#: Bounds of the repetitions in a graph, by estimate: enough to keep the GPU busy while the host launches the
#: next graph, and so few that recording takes less time than the launches that it spares in the first call.
LEAST_REPETITIONS, MOST_REPETITIONS = 16, 32

#: Maximum number of graphs of a plan, enough for a loop over two sets of arrays on several streams.
MAX_GRAPHS = 8


def pointer_of(buffer: Any) -> int:
    """The address of an array, or an address."""
    return buffer if type(buffer) is int else buffer.data.ptr


def split(cycle: Cycle | None) -> tuple[int, int, int] | None:
    """The numbers of repetitions launched one by one, of repetitions in a graph, and of the graph's launches.

    None if there are too few repetitions, or if the user wants no graphs. A graph is recorded at the first
    call with its addresses, which must be no slower than without a graph. At least one repetition comes
    before the graph, so that the work of libraries at their first call, such as loading kernels, is not done
    in a capture.
    """
    if cycle is None or cycle.times <= 2 * LEAST_REPETITIONS or not record_graphs():
        return None
    others = cycle.times - 1
    size = min(range(LEAST_REPETITIONS, MOST_REPETITIONS + 1), key=lambda size: others % size)
    return 1 + others % size, size, others // size


class Repeated:
    """Prepared steps that are run in turn, `size` times each for `count` launches of a graph."""

    def __init__(self, cupy: Any, steps: Sequence[Run], size: int, count: int) -> None:
        runtime = cupy.cuda.runtime
        self._steps, self._size, self._count = steps, size, count
        self._current_stream = cupy.cuda.get_current_stream
        self._new_stream = cupy.cuda.Stream
        self._is_capturing, self._launch = runtime.streamIsCapturing, runtime.graphLaunch
        self._relaxed = runtime.streamCaptureModeRelaxed
        self._errors = (runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError, DeviceError)
        # CuPy's graphs by the addresses of all buffers; a graph is destroyed with its last reference.
        self._graphs: dict[tuple[int, ...], Any] = {}
        self._lock = Lock()

    def __call__(self, buffers: Sequence[Any], stream: Any) -> None:
        chosen = self._current_stream() if stream is None else stream
        if chosen.ptr not in LEGACY_STREAMS and self._is_capturing(chosen.ptr):
            self._run(buffers, chosen, self._count)
            return
        key = tuple([pointer_of(buffer) for buffer in buffers])
        with self._lock.held():
            graph = self._graphs.get(key) or self._recorded(key, buffers)
            if graph is not None:
                for _ in range(self._count):
                    self._launch(graph.graphExec, chosen.ptr)
                return
        self._run(buffers, chosen, self._count)

    def _run(self, buffers: Sequence[Any], stream: Any, count: int) -> None:
        for _ in range(self._size * count):
            for step in self._steps:
                step(buffers, stream)

    def _recorded(self, key: tuple[int, ...], buffers: Sequence[Any]) -> Any | None:
        """A new graph of the steps on the buffers; None if CUDA refuses, which changes nothing but the time.

        CUDA ends a capture in which another thread synchronises the whole GPU, for example.
        """
        try:
            # Relaxed, because this thread or another may be capturing a graph of its own: otherwise, CUDA
            # forbids making a stream and a graph meanwhile.
            with relaxed_capture():
                graph = self._capture(buffers)
                if len(self._graphs) >= MAX_GRAPHS:
                    del self._graphs[next(iter(self._graphs))]  # the oldest
                self._graphs[key] = graph
        except self._errors as error:
            _warn_of_graph(str(error))
            return None
        return graph

    def _capture(self, buffers: Sequence[Any]) -> Any:
        # While a blocking stream is captured, no thread may use the legacy default stream.
        stream = self._new_stream(non_blocking=True)
        # In another mode, other threads could allocate nothing meanwhile.
        stream.begin_capture(self._relaxed)
        try:
            # Launches only name the stream: nothing is queued on it, so it has nothing to wait for.
            self._run(buffers, stream, 1)
        finally:
            graph = stream.end_capture()
        return graph


@cache
def _warn_of_graph(problem: str) -> None:
    warnings.warn(f"CUDA recorded no graph, kernels are launched one by one: {problem}", stacklevel=2)
