"""CUDA's runtime as CuPy's binding calls it; functions have the binding's names and arguments."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proof.sass.architectures import REGISTERS_PER_MULTIPROCESSOR
from proof.sass.plan import HOPPER
from proof.stand_in import kernels
from proof.stand_in.errors import Code, CudaFailure, TooLargeError
from proof.stand_in.kernels import Request
from proof.stand_in.memory import Kind, Memory
from proof.stand_in.order import Order, Work
from proof.stand_in.streams import CaptureMode, Stream, Streams

# Values of `cudaMemcpyKind`.
_HOST_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT = range(5)

#: Attributes of the GPU by their number in `cudaDeviceAttr`: an sm_90 with the numbers of an H100.
_ATTRIBUTES = {
    1: kernels.MAX_THREADS,
    **dict(zip((2, 3, 4), kernels.MAX_BLOCK, strict=True)),
    **dict(zip((5, 6, 7), kernels.MAX_GRID, strict=True)),
    8: kernels.DEFAULT_SHARED_BYTES,
    10: 32,
    12: REGISTERS_PER_MULTIPROCESSOR,
    38: HOPPER.l2_bytes,
    39: 32 * HOPPER.warps,
    41: 1,  # unified addressing
    75: HOPPER.number // 10,
    76: HOPPER.number % 10,
    81: HOPPER.shared_bytes,
    82: REGISTERS_PER_MULTIPROCESSOR,
    83: 1,  # managed memory
    89: 1,  # managed memory at the same time as the host
    95: 1,  # cooperative launches
    97: HOPPER.shared_bytes_per_block,
    106: HOPPER.blocks,
    115: 1,  # memory pools
}


_MULTIPROCESSOR_COUNT = 16

#: Calls that no GPU answers.
_OF_THE_PROCESS = ("cudaGetDevice", "cudaSetDevice", "cudaGetDeviceCount", "cudaDeviceGetAttribute")


@dataclass
class Settings:
    """What a test may choose.

    GPUs and the bytes of each, the seed of the order of work, how many of a cooperative grid's blocks come
    late, the instructions of warps that a kernel may execute, and whether kernels and products run at all.

    `gpcs` has the multiprocessors of each part of a GPU that clusters lie within: 15 clusters of 8 blocks run
    at once if each block takes a multiprocessor, as was measured. `cooperative_blocks` is how many blocks of
    a cooperative grid a multiprocessor has room for, if fewer than a kernel's resources allow: a GPU may have
    other users.
    """

    num_devices: int = 2
    memory_bytes: int = 8 << 30
    seed: int | None = None
    num_late_blocks: int = 0
    max_instructions: int = 1 << 40
    computes: bool = True
    gpcs: tuple[int, ...] = (18, 18, 18, 16, 16, 16, 16, 14)
    cooperative_blocks: int | None = None

    @property
    def num_multiprocessors(self) -> int:
        return sum(self.gpcs)


class Runtime:
    """The state of all GPUs, and the runtime's functions."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.process = os.getpid()
        self.order = Order(settings.seed)
        self.streams = Streams(self.order)
        self.memory = Memory(settings.memory_bytes)
        self.launched: Callable[[Request, int], None] | None = None
        self._thread = threading.local()
        self._peers: dict[int, set[int]] = {number: {number} for number in range(settings.num_devices)}
        self._problems: dict[int, CudaFailure] = {}
        self._too_large: TooLargeError | None = None
        self.order.on_failure(self._fail)

    # What every call does.

    def enter(self, call: str) -> None:
        """Raise CudaFailure where a call is not possible."""
        if os.getpid() != self.process:
            raise CudaFailure(Code.INITIALIZATION_ERROR, "CUDA was used before the process was forked")
        self.leave(call)

    def leave(self, call: str) -> None:
        """Raise the error of work that failed meanwhile, from every call that asks the GPU."""
        if call in _OF_THE_PROCESS:
            return
        if self._too_large is not None:
            problem, self._too_large = self._too_large, None
            raise problem
        failure = self._problems.get(self.device)
        if failure is not None:
            raise failure

    def lose(self, device: int) -> None:
        """Every later call on a GPU fails."""
        self._problems[device] = CudaFailure(Code.DEVICES_UNAVAILABLE, f"cuda:{device} was lost")

    def _fail(self, device: int, error: BaseException) -> None:
        if isinstance(error, TooLargeError):
            self._too_large = error
            return
        if isinstance(error, CudaFailure):
            problem = error
        else:
            problem = CudaFailure(Code.ILLEGAL_ADDRESS, f"{type(error).__name__}: {error}")
        if device not in self._problems:
            print(f"stand-in for CUDA: cuda:{device}: {problem.reason}", file=sys.stderr)
            self._problems[device] = problem

    @property
    def device(self) -> int:
        """The current GPU of this thread."""
        return getattr(self._thread, "device", 0)

    def stream(self, handle: int) -> Stream:
        """A stream of the current GPU."""
        found = self.streams.get(handle, self.device)
        if found.device != self.device:
            raise CudaFailure(
                Code.INVALID_HANDLE, f"a stream of cuda:{found.device} while cuda:{self.device} is current"
            )
        return found

    # Devices.

    def _ensure_context(self) -> None:
        pass

    def driverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def getDevice(self) -> int:  # noqa: N802
        return self.device

    def getDeviceCount(self) -> int:  # noqa: N802
        return self.settings.num_devices

    def setDevice(self, device: int) -> None:  # noqa: N802
        self._require_device(device)
        self._thread.device = device

    def _require_device(self, device: int) -> None:
        if not 0 <= device < self.settings.num_devices:
            raise CudaFailure(Code.INVALID_DEVICE, f"there is no cuda:{device}")

    def deviceGetAttribute(self, attribute: int, device: int) -> int:  # noqa: N802
        self._require_device(device)
        if attribute == _MULTIPROCESSOR_COUNT:
            return self.settings.num_multiprocessors
        if attribute not in _ATTRIBUTES:
            raise CudaFailure(Code.INVALID_VALUE, f"attribute {attribute} is not known to the stand-in")
        return _ATTRIBUTES[attribute]

    def deviceGetPCIBusId(self, device: int) -> str:  # noqa: N802
        self._require_device(device)
        return f"0000:{device + 1:02x}:00.0"

    def getDeviceProperties(self, device: int) -> dict[str, Any]:  # noqa: N802
        self._require_device(device)
        return {
            "name": b"stand-in",
            "major": HOPPER.number // 10,
            "minor": HOPPER.number % 10,
            "multiProcessorCount": self.settings.num_multiprocessors,
            "totalGlobalMem": self.settings.memory_bytes,
            "warpSize": 32,
            "maxThreadsPerBlock": kernels.MAX_THREADS,
            "sharedMemPerBlock": kernels.DEFAULT_SHARED_BYTES,
            "maxGridSize": kernels.MAX_GRID,
            "l2CacheSize": HOPPER.l2_bytes,
        }

    def deviceSynchronize(self) -> None:  # noqa: N802
        self.streams.forbid_on_captured_device(self.device, "a synchronisation of the device")
        self.streams.forbid_during_capture("a synchronisation")
        self.order.complete_all(self.device)

    def deviceCanAccessPeer(self, device: int, peer: int) -> int:  # noqa: N802
        self._require_device(device)
        self._require_device(peer)
        return int(device != peer)

    def deviceEnablePeerAccess(self, peer: int) -> None:  # noqa: N802
        self._require_device(peer)
        if peer == self.device:
            raise CudaFailure(Code.INVALID_DEVICE, "a GPU is not its own peer")
        if peer in self._peers[self.device]:
            raise CudaFailure(Code.PEER_ACCESS_ALREADY_ENABLED, f"of cuda:{self.device} to cuda:{peer}")
        self._peers[self.device].add(peer)

    def deviceDisablePeerAccess(self, peer: int) -> None:  # noqa: N802
        self._require_device(peer)
        if peer == self.device or peer not in self._peers[self.device]:
            raise CudaFailure(Code.PEER_ACCESS_NOT_ENABLED, f"of cuda:{self.device} to cuda:{peer}")
        self._peers[self.device].remove(peer)

    def _deviceEnsurePeerAccess(self, peer: int) -> None:  # noqa: N802
        self._require_device(peer)
        self._peers[self.device].add(peer)

    # Memory.

    def malloc(self, num_bytes: int) -> int:
        self.streams.forbid_during_capture("an allocation")
        return self.memory.allocate(num_bytes, self.device).address if num_bytes else 0

    def mallocManaged(self, num_bytes: int, flags: int) -> int:  # noqa: N802
        self.streams.forbid_during_capture("an allocation")
        return self.memory.allocate(num_bytes, self.device, Kind.MANAGED).address

    def hostAlloc(self, num_bytes: int, flags: int) -> int:  # noqa: N802
        self.streams.forbid_during_capture("an allocation")
        return self.memory.allocate(num_bytes, self.device, Kind.PINNED).address

    def free(self, address: int) -> None:
        """Waits for all work of the GPU, as CUDA does."""
        if not address:
            return
        self.streams.forbid_during_capture("cudaFree")
        found = self.memory.at(address)
        if found.kind is Kind.PINNED:
            raise CudaFailure(Code.INVALID_VALUE, "cudaFree of pinned memory")
        self.order.complete_all(found.device)
        self.memory.release(address)

    def freeHost(self, address: int) -> None:  # noqa: N802
        if not address:
            return
        self.streams.forbid_during_capture("cudaFreeHost")
        if self.memory.at(address).kind is not Kind.PINNED:
            raise CudaFailure(Code.INVALID_VALUE, "cudaFreeHost of memory that is not pinned")
        for device in range(self.settings.num_devices):
            self.order.complete_all(device)
        self.memory.release(address)

    def mallocAsync(self, num_bytes: int, stream: int) -> int:  # noqa: N802
        """In a capture the memory belongs to the graph and is not returned."""
        if not num_bytes:
            return 0
        found = self.stream(stream)
        made = self.memory.allocate(num_bytes, found.device)
        self.streams.queue(found, "mallocAsync", None)
        return made.address

    def freeAsync(self, address: int, stream: int) -> None:  # noqa: N802
        """Returns the memory at its point of the stream."""
        if not address:
            return
        self.memory.at(address)
        found = self.stream(stream)
        if found.capture is not None:
            self.streams.queue(found, "freeAsync", None)
            return

        def release() -> None:
            self.memory.release(address)

        self.streams.queue(found, "freeAsync", release)

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self.memory.free_bytes(self.device), self.settings.memory_bytes

    def pointerGetAttributes(self, address: int) -> Any:  # noqa: N802
        from cupy_backends.cuda.api.runtime import PointerAttributes

        found = self.memory.find(address)
        if found is None:
            return PointerAttributes(-2, 0, 0, 0)  # as CuPy has it for memory that CUDA does not know
        number = {Kind.PINNED: 1, Kind.DEVICE: 2, Kind.MANAGED: 3}[found.kind]
        on_host = 0 if found.kind is Kind.DEVICE else address
        return PointerAttributes(found.device, address, on_host, number)

    def pointerGetMemoryType(self, address: int) -> int:  # noqa: N802
        found = self.memory.find(address)
        return 0 if found is None else {Kind.PINNED: 1, Kind.DEVICE: 2, Kind.MANAGED: 3}[found.kind]

    # Copies and fills.

    def memcpy(self, to: int, source: int, num_bytes: int, kind: int) -> None:
        """On the legacy stream; waits unless both ends are a GPU's."""
        if not num_bytes:
            return
        if not self._is_on_device(to) or not self._is_on_device(source):
            self.streams.forbid_during_capture("cudaMemcpy")
        operation = self._copy(to, source, num_bytes, kind, self.stream(0), "memcpy")
        if operation is not None and not (self._is_on_device(to) and self._is_on_device(source)):
            self.order.complete(operation)

    def memcpyAsync(self, to: int, source: int, num_bytes: int, kind: int, stream: int) -> None:  # noqa: N802
        """Pageable memory of the host is read at once, and written before the call returns."""
        found = self.stream(stream)
        if not num_bytes:
            return
        operation = self._copy(to, source, num_bytes, kind, found, "memcpyAsync")
        if operation is not None and self.memory.find(to) is None:
            self.order.complete(operation)

    def memcpyPeerAsync(  # noqa: N802
        self, to: int, to_device: int, source: int, source_device: int, num_bytes: int, stream: int
    ) -> None:
        for address, device in ((to, to_device), (source, source_device)):
            self._require_device(device)
            found = self.memory.find(address)
            if found is None or found.device != device:
                raise CudaFailure(Code.INVALID_VALUE, f"{address:#x} is not memory of cuda:{device}")
        self._copy(to, source, num_bytes, _DEVICE_TO_DEVICE, self.stream(stream), "memcpyPeerAsync")

    def _copy(self, to: int, source: int, num_bytes: int, kind: int, stream: Stream, name: str) -> Any:
        ends = self._is_on_device(source), self._is_on_device(to)
        wanted = {
            _HOST_TO_HOST: (False, False),
            _HOST_TO_DEVICE: (False, True),
            _DEVICE_TO_HOST: (True, False),
            _DEVICE_TO_DEVICE: (True, True),
        }
        if kind != _DEFAULT and wanted.get(kind) != ends:
            raise CudaFailure(Code.INVALID_MEMCPY_DIRECTION, f"kind {kind} from {source:#x} to {to:#x}")
        view = self.memory.view
        view(to, num_bytes)
        origin = view(source, num_bytes)
        is_read_now = self.memory.find(source) is None and stream.capture is None
        staged = origin.copy() if is_read_now else None

        def copy() -> None:
            view(to, num_bytes)[...] = view(source, num_bytes) if staged is None else staged

        return self.streams.queue(stream, name, copy)

    def _is_on_device(self, address: int) -> bool:
        if self.memory.is_guarded(address):
            found = self.memory.find(address)
            return found is None or found.kind is not Kind.PINNED
        return False

    def memset(self, to: int, value: int, num_bytes: int) -> None:
        self._fill(to, value, num_bytes, self.stream(0), "memset")

    def memsetAsync(self, to: int, value: int, num_bytes: int, stream: int) -> None:  # noqa: N802
        self._fill(to, value, num_bytes, self.stream(stream), "memsetAsync")

    def _fill(self, to: int, value: int, num_bytes: int, stream: Stream, name: str) -> None:
        if self.memory.find(to) is None and num_bytes:
            raise CudaFailure(Code.INVALID_VALUE, f"{to:#x} is no memory of a GPU")
        self.memory.view(to, num_bytes)

        def fill() -> None:
            self.memory.view(to, num_bytes)[...] = value & 0xFF

        self.streams.queue(stream, name, fill)

    # Streams.

    def streamCreate(self) -> int:  # noqa: N802
        return self.streams.create(self.device, 0)

    def streamCreateWithFlags(self, flags: int) -> int:  # noqa: N802
        return self.streams.create(self.device, flags)

    def streamCreateWithPriority(self, flags: int, priority: int) -> int:  # noqa: N802
        return self.streams.create(self.device, flags, priority)

    def streamDestroy(self, stream: int) -> None:  # noqa: N802
        self.streams.destroy(stream)

    def streamGetFlags(self, stream: int) -> int:  # noqa: N802
        return self.stream(stream).flags

    def streamGetPriority(self, stream: int) -> int:  # noqa: N802
        return self.stream(stream).priority

    def streamSynchronize(self, stream: int) -> None:  # noqa: N802
        self.streams.synchronize(self.stream(stream))

    def streamQuery(self, stream: int) -> int:  # noqa: N802
        return 0 if self.streams.is_done(self.stream(stream)) else int(Code.NOT_READY)

    def streamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:  # noqa: N802
        self.streams.wait_event(self.stream(stream), self.streams.event(event))

    def launchHostFunc(self, stream: int, callback: Callable[[Any], Any], argument: Any) -> None:  # noqa: N802
        self.streams.queue(self.stream(stream), "launchHostFunc", lambda: callback(argument) and None)

    def streamIsCapturing(self, stream: int) -> bool:  # noqa: N802
        return self.streams.is_capturing(self.stream(stream))

    def streamBeginCapture(self, stream: int, mode: int = CaptureMode.RELAXED) -> None:  # noqa: N802
        self.streams.begin_capture(self.stream(stream), CaptureMode(mode))

    def streamEndCapture(self, stream: int) -> int:  # noqa: N802
        return self.streams.end_capture(self.stream(stream))

    # Events.

    def eventCreate(self) -> int:  # noqa: N802
        return self.streams.create_event(self.device, 0)

    def eventCreateWithFlags(self, flags: int) -> int:  # noqa: N802
        return self.streams.create_event(self.device, flags)

    def eventDestroy(self, event: int) -> None:  # noqa: N802
        self.streams.destroy_event(event)

    def eventRecord(self, event: int, stream: int) -> None:  # noqa: N802
        self.streams.record(self.streams.event(event), self.stream(stream))

    def eventQuery(self, event: int) -> int:  # noqa: N802
        return 0 if self.streams.event_is_done(self.streams.event(event)) else int(Code.NOT_READY)

    def eventSynchronize(self, event: int) -> None:  # noqa: N802
        self.streams.synchronize_event(self.streams.event(event))

    def eventElapsedTime(self, start: int, stop: int) -> float:  # noqa: N802
        """By the machine's clock, with one multiprocessor at a time: not a prediction."""
        return self.streams.elapsed_ms(self.streams.event(start), self.streams.event(stop))

    # Graphs.

    def graphInstantiate(self, graph: int) -> int:  # noqa: N802
        self.streams.forbid_during_capture("the instantiation of a graph")
        return self.streams.add_graph(self.streams.graph(graph).copied())

    def graphLaunch(self, graph: int, stream: int) -> None:  # noqa: N802
        self.streams.launch_graph(self.streams.graph(graph), self.stream(stream))

    def graphUpload(self, graph: int, stream: int) -> None:  # noqa: N802
        self.streams.graph(graph)
        self.stream(stream)

    def graphDestroy(self, graph: int) -> None:  # noqa: N802
        self.streams.destroy_graph(graph)

    def graphExecDestroy(self, graph: int) -> None:  # noqa: N802
        self.streams.destroy_graph(graph)

    # Kernels.

    def launch(self, request: Request, stream: int) -> None:
        """Check a launch and queue it."""
        found = self.stream(stream)
        if request.function.device != self.device or not request.function.is_loaded:
            raise CudaFailure(
                Code.INVALID_HANDLE, f"{request.function.name} is not loaded on cuda:{self.device}"
            )
        request.check(self.settings.gpcs, self.settings.cooperative_blocks)
        if self.launched is not None:
            self.launched(request, stream)
        self.streams.queue(found, request.function.name, self._work(request, found.device))

    def _work(self, request: Request, device: int) -> Work:
        def parts() -> Iterator[float]:
            if not self.settings.computes:
                return
            launch = request.launch(self.memory, self._peers[device])
            yield from request.execute(launch, self.settings.max_instructions, self.settings.num_late_blocks)

        return parts
