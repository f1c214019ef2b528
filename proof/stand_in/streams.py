"""Streams and events, and the graphs that are captured from them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from threading import get_ident, local

from proof.stand_in.errors import Code, CudaFailure, UnknownCallError
from proof.stand_in.order import Operation, Order, Work

#: Handles of the default streams, which nobody creates.
LEGACY, LEGACY_ALIAS, PER_THREAD = 0, 1, 2

#: Flags of `cudaStreamCreateWithFlags` and `cudaEventCreateWithFlags`.
NON_BLOCKING = 1
DISABLE_TIMING = 2

_FIRST_STREAM, _FIRST_EVENT, _FIRST_GRAPH = 0x5000_0000, 0x6000_0000, 0x7000_0000
_HANDLE_BYTES = 16


class CaptureMode(IntEnum):
    """Values of `cudaStreamCaptureMode`."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


@dataclass(eq=False)
class Node:
    """A piece of work of a graph, and the nodes before it."""

    name: str
    device: int
    work: Work | None
    after: list["Node"]


@dataclass(eq=False)
class Graph:
    """The nodes that a capture recorded, or an instance of them; `last` is its last launch."""

    nodes: list[Node] = field(default_factory=list)
    last: Operation | None = None

    def copied(self) -> "Graph":
        """A graph of the same nodes, with launches of its own."""
        return Graph([*self.nodes])


@dataclass(eq=False)
class Capture:
    """A capture that goes on: streams that take part, and whether a forbidden call has ended it."""

    origin: "Stream"
    mode: CaptureMode
    thread: int
    graph: Graph = field(default_factory=Graph)
    streams: list["Stream"] = field(default_factory=list)
    problem: str = ""


@dataclass(eq=False)
class Stream:
    """A stream of a GPU; `last` is its last operation, `front` its last nodes while it is captured.

    Its handle is reused once it is destroyed, its `number` is not.
    """

    handle: int
    device: int
    is_blocking: bool = True
    flags: int = 0
    priority: int = 0
    last: Operation | None = None
    waits_for: list[Operation] = field(default_factory=list)
    capture: Capture | None = None
    front: list[Node] = field(default_factory=list)
    number: int = field(default_factory=count(1).__next__)


@dataclass(eq=False)
class Event:
    """An event, and where it was recorded last: behind an operation, or behind nodes of a capture."""

    handle: int
    device: int
    flags: int
    operation: Operation | None = None
    capture: Capture | None = None
    nodes: list[Node] = field(default_factory=list)


class Handles:
    """Numbers of things that are created and destroyed; the number freed last is reused first."""

    def __init__(self, first: int, kind: str) -> None:
        self._next = first
        self._kind = kind
        self._free: list[int] = []
        self.things: dict[int, object] = {}

    def new(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += _HANDLE_BYTES
        return self._next

    def find(self, handle: int) -> object:
        if handle not in self.things:
            raise CudaFailure(Code.INVALID_HANDLE, f"{handle:#x} is no {self._kind}")
        return self.things[handle]

    def destroy(self, handle: int) -> object:
        found = self.find(handle)
        del self.things[handle]
        self._free.append(handle)
        return found


class Streams:
    """The streams, events and graphs of a process."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._handles = Handles(_FIRST_STREAM, "stream")
        self._events = Handles(_FIRST_EVENT, "event")
        self._graphs = Handles(_FIRST_GRAPH, "graph")
        self._legacy: dict[int, Stream] = {}
        self._thread = local()
        self._of_threads: list[Stream] = []
        self._captures: list[Capture] = []
        self._modes: dict[int, CaptureMode] = {}

    # Streams.

    def create(self, device: int, flags: int, priority: int = 0) -> int:
        handle = self._handles.new()
        self._handles.things[handle] = Stream(handle, device, not flags & NON_BLOCKING, flags, priority)
        return handle

    def destroy(self, handle: int) -> None:
        """Its work goes on."""
        stream = self.get(handle, 0)
        if handle in (LEGACY, LEGACY_ALIAS, PER_THREAD):
            raise CudaFailure(Code.INVALID_HANDLE, "a default stream is not destroyed")
        if stream.capture is not None:
            self.forbid_in(stream.capture, "its stream is destroyed")
        self._handles.destroy(handle)
        if stream.is_blocking and stream.last is not None:
            self._legacy_of(stream.device).waits_for.append(stream.last)

    def get(self, handle: int, device: int) -> Stream:
        """A stream by its handle; the default streams are those of a GPU."""
        if handle in (LEGACY, LEGACY_ALIAS):
            return self._legacy_of(device)
        if handle == PER_THREAD:
            of_thread = self._thread.__dict__.setdefault("streams", {})
            if device not in of_thread:
                of_thread[device] = Stream(PER_THREAD, device)
                self._of_threads.append(of_thread[device])
            found: Stream = of_thread[device]
            return found
        created = self._handles.find(handle)
        assert isinstance(created, Stream)
        return created

    def _legacy_of(self, device: int) -> Stream:
        return self._legacy.setdefault(device, Stream(LEGACY, device))

    def _blocking(self, device: int) -> Iterator[Stream]:
        for stream in [*self._handles.things.values(), *self._of_threads]:
            if isinstance(stream, Stream) and stream.is_blocking and stream.device == device:
                yield stream

    def queue(self, stream: Stream, name: str, work: Work | None) -> Operation | None:
        """Queue work on a stream, or record it; returns the operation of work that is not recorded."""
        if stream.capture is not None:
            self.require_valid(stream.capture)
            node = Node(name, stream.device, work, stream.front)
            stream.capture.graph.nodes.append(node)
            stream.front = [node]
            return None
        after = [*stream.waits_for, *filter(None, [stream.last])]
        stream.waits_for.clear()
        if stream.handle == LEGACY:
            for other in self._blocking(stream.device):
                if other.capture is not None:
                    self.forbid_in(other.capture, f"{name} on the legacy stream")
                    raise CudaFailure(
                        Code.CAPTURE_IMPLICIT, f"{name} on the legacy stream while a stream is captured"
                    )
                after += [*other.waits_for, *filter(None, [other.last])]
        elif stream.is_blocking:
            after += filter(None, [self._legacy_of(stream.device).last])
        operation = Operation(name, stream.device, work, after)
        stream.last = operation
        return self.order.add(operation)

    def synchronize(self, stream: Stream) -> None:
        self.forbid_during_capture("a synchronisation")
        if stream.capture is not None:
            self.forbid_in(stream.capture, "a synchronisation")
            raise CudaFailure(Code.CAPTURE_UNSUPPORTED, "the stream is captured")
        # An operation of its own, because the stream may wait for others before its next work.
        self.order.complete(self.queue(stream, "synchronize", None))

    def is_done(self, stream: Stream) -> bool:
        """Whether a stream has nothing to do; some of its work is done with every question."""
        self.forbid_during_capture("a query of a stream")
        return self.order.advance(stream.last) and all(map(self.order.advance, stream.waits_for))

    # Events.

    def create_event(self, device: int, flags: int) -> int:
        handle = self._events.new()
        self._events.things[handle] = Event(handle, device, flags)
        return handle

    def destroy_event(self, handle: int) -> None:
        self._events.destroy(handle)

    def event(self, handle: int) -> Event:
        found = self._events.find(handle)
        assert isinstance(found, Event)
        return found

    def record(self, event: Event, stream: Stream) -> None:
        if event.device != stream.device:
            raise CudaFailure(Code.INVALID_HANDLE, "an event of another GPU than the stream's")
        event.operation, event.capture, event.nodes = None, stream.capture, [*stream.front]
        if stream.capture is None:
            event.operation = self.queue(stream, "eventRecord", None)

    def wait_event(self, stream: Stream, event: Event) -> None:
        if event.capture is not None and event.capture in self._captures:
            if stream.capture is None:
                if stream.handle == LEGACY:
                    self.forbid_in(event.capture, "the legacy stream waits for it")
                    raise CudaFailure(Code.CAPTURE_IMPLICIT, "the legacy stream waits for a captured event")
                stream.capture, stream.front = event.capture, []
                event.capture.streams.append(stream)
            elif stream.capture is not event.capture:
                self.forbid_in(event.capture, "it would be merged with another")
                self.forbid_in(stream.capture, "it would be merged with another")
                raise CudaFailure(Code.CAPTURE_MERGE, "an event of another capture")
            stream.front = [*stream.front, *(n for n in event.nodes if n not in stream.front)]
        elif stream.capture is not None:
            self.forbid_in(stream.capture, "it waits for an event from outside")
            raise CudaFailure(Code.CAPTURE_ISOLATION, "a captured stream waits for work outside of its graph")
        elif event.operation is not None and not event.operation.is_done:
            stream.waits_for.append(event.operation)
            # Later work on the legacy stream waits for this operation, even if nothing follows it here.
            self.queue(stream, "streamWaitEvent", None)

    def event_is_done(self, event: Event) -> bool:
        self._forbid_captured(event)
        self.forbid_during_capture("a query of an event")
        return self.order.advance(event.operation)

    def synchronize_event(self, event: Event) -> None:
        self._forbid_captured(event)
        self.forbid_during_capture("a synchronisation")
        self.order.complete(event.operation)

    def elapsed_ms(self, start: Event, stop: Event) -> float:
        for event in (start, stop):
            self._forbid_captured(event)
            if event.flags & DISABLE_TIMING or event.operation is None:
                raise CudaFailure(Code.INVALID_HANDLE, "an event without a time")
            if not event.operation.is_done:
                raise CudaFailure(Code.NOT_READY, "an event that has not come")
        assert start.operation is not None
        assert stop.operation is not None
        return 1000 * (stop.operation.end - start.operation.end)

    def _forbid_captured(self, event: Event) -> None:
        if event.capture is not None:
            self.forbid_in(event.capture, "a question about its event")
            raise CudaFailure(Code.CAPTURED_EVENT, "the event was recorded in a capture")

    # Captures.

    def begin_capture(self, stream: Stream, mode: CaptureMode) -> None:
        if stream.handle == LEGACY:
            raise CudaFailure(Code.CAPTURE_UNSUPPORTED, "the legacy stream cannot be captured")
        if stream.capture is not None:
            raise CudaFailure(Code.CAPTURE_UNSUPPORTED, "the stream is captured already")
        stream.capture, stream.front = Capture(stream, mode, get_ident()), []
        stream.capture.streams.append(stream)
        self._captures.append(stream.capture)

    def end_capture(self, stream: Stream) -> int:
        capture = stream.capture
        if capture is None or capture.origin is not stream:
            raise CudaFailure(Code.CAPTURE_UNMATCHED, "no capture began on this stream")
        if capture.mode is not CaptureMode.RELAXED and capture.thread != get_ident():
            raise CudaFailure(Code.CAPTURE_WRONG_THREAD, "another thread began the capture")
        self._captures.remove(capture)
        joined = _with_all_before(stream.front)
        strays = [other for other in capture.streams if not joined >= {*other.front}]
        for other in capture.streams:
            other.capture, other.front = None, []
        if capture.problem:
            raise CudaFailure(Code.CAPTURE_INVALIDATED, capture.problem)
        if strays:
            raise CudaFailure(Code.CAPTURE_UNJOINED, "a stream took part and was not waited for")
        return self.add_graph(capture.graph)

    def is_capturing(self, stream: Stream) -> bool:
        """Raises CudaFailure for the legacy stream where its use is forbidden."""
        if stream.handle == LEGACY and any(s.capture for s in self._blocking(stream.device)):
            raise CudaFailure(Code.CAPTURE_IMPLICIT, "the legacy stream while a stream is captured")
        return stream.capture is not None

    def exchange_mode(self, mode: CaptureMode) -> CaptureMode:
        """Give this thread another mode; returns the former one."""
        before = self._modes.get(get_ident(), CaptureMode.GLOBAL)
        self._modes[get_ident()] = mode
        return before

    def forbid_during_capture(self, what: str) -> None:
        """Raise CudaFailure if a call is unsafe now, as `cudaThreadExchangeStreamCaptureMode` documents."""
        thread = get_ident()
        mode = self._modes.get(thread, CaptureMode.GLOBAL)
        if mode is CaptureMode.RELAXED:
            return
        for capture in self._captures:
            own = capture.thread == thread and capture.mode is not CaptureMode.RELAXED
            others = mode is CaptureMode.GLOBAL and capture.mode is CaptureMode.GLOBAL
            if own or others:
                self.forbid_in(capture, what)
                raise CudaFailure(Code.CAPTURE_UNSUPPORTED, f"{what} while a stream is captured")

    def forbid_on_captured_device(self, device: int, what: str) -> None:
        """Raise CudaFailure while any thread captures a stream of a GPU, in whatever mode.

        The programming guide calls a synchronisation of a handle broader than the stream's invalid.
        """
        for capture in self._captures:
            if any(stream.device == device for stream in capture.streams):
                self.forbid_in(capture, what)
                raise CudaFailure(Code.CAPTURE_UNSUPPORTED, f"{what} while a stream is captured")

    def forbid_in(self, capture: Capture, what: str) -> None:
        """End a capture by a forbidden call."""
        capture.problem = capture.problem or f"there was {what} while the stream was captured"

    def require_valid(self, capture: Capture) -> None:
        if capture.problem:
            raise CudaFailure(Code.CAPTURE_INVALIDATED, capture.problem)

    # Graphs.

    def add_graph(self, graph: Graph) -> int:
        handle = self._graphs.new()
        self._graphs.things[handle] = graph
        return handle

    def graph(self, handle: int) -> Graph:
        found = self._graphs.find(handle)
        assert isinstance(found, Graph)
        return found

    def destroy_graph(self, handle: int) -> None:
        self._graphs.destroy(handle)

    def launch_graph(self, graph: Graph, stream: Stream) -> None:
        """Queue a replay; replays of one graph run one after another."""
        if stream.capture is not None:
            raise UnknownCallError("cudaGraphLaunch", "in a capture")
        start = self.queue(stream, "graphLaunch", None)
        assert start is not None
        made: dict[Node, Operation] = {}
        first = [start, *filter(None, [graph.last])]
        for node in graph.nodes:
            after = [made[one] for one in node.after] or first
            made[node] = self.order.add(Operation(node.name, node.device, node.work, after))
        graph.last = stream.last = self.order.add(
            Operation("graphEnd", stream.device, None, [start, *made.values()])
        )


def _with_all_before(nodes: list[Node]) -> set[Node]:
    found: set[Node] = set()
    left = [*nodes]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += node.after
    return found
