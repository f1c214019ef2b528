"""The GPUs of this machine as devices, through CuPy: arrays, limits, and loading of plans."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from cudml.devices import shortcuts
from cudml.devices.cuda import capture, cublas, sharing
from cudml.devices.cuda.kernel import PORTABLE_CLUSTER_BLOCKS
from cudml.devices.cuda.program import ProgramLoader
from cudml.devices.cuda.streams import LEGACY_STREAMS, Streams
from cudml.devices.cuda.zeros import Zeros
from cudml.devices.exchange import Exported, Taken
from cudml.devices.interface import Array, Layout
from cudml.errors import DeviceError
from cudml.locks import import_unforked
from cudml.plans import Limits

#: The oldest GPUs that the CUDA 13 compiler supports.
MIN_COMPUTE_CAPABILITY = 75

# Values of `cudaError`.
_ERROR_INITIALIZATION = 3
_ERROR_INSUFFICIENT_DRIVER = 35
_ERROR_NO_DEVICE = 100


@dataclass(frozen=True)
class Status:
    """Whether CUDA can be used on this machine, and what was found or what is missing."""

    usable: bool
    reason: str
    is_lost_by_fork: bool = False


#: The only status of a child that was forked after its parent used CUDA.
_LOST = Status(
    False,
    "it was used before this process was forked, and CUDA does not work in such a child; start the process "
    "by multiprocessing's method 'spawn', or use CUDA in children only",
    is_lost_by_fork=True,
)

#: The result of the last probe, if it was usable.
_usable: list[Status] = []


def _lose_in_child() -> None:
    if _usable:
        _usable[:] = [_LOST]
        devices.clear()


os.register_at_fork(after_in_child=_lose_in_child)


def status() -> Status:
    """Whether there is a usable GPU; never raises. A negative result is not cached.

    Examples
    --------
    >>> from cudml.devices import cuda
    >>> cuda.status().reason  # doctest: +SKIP
    'no CUDA driver, or one too old for this CuPy'
    """
    if _usable:
        return _usable[0]
    found = _probe()
    if found.usable:
        _usable.append(found)
    return found


def _probe() -> Status:
    try:
        cupy = import_unforked("cupy")
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            return Status(False, "CuPy is not installed: pip install 'cudml[cuda13]' or 'cudml[cuda12]'")
        return Status(False, f"CuPy cannot be imported: {error}")
    except Exception as error:  # built for another NumPy, a cache folder that cannot be created, ...
        return Status(False, f"CuPy cannot be imported: {type(error).__name__}: {error}")
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:
        # CUDA's answer in a child whose parent used CUDA through another library.
        is_lost = getattr(error, "status", None) == _ERROR_INITIALIZATION
        return _LOST if is_lost else Status(False, _driver_problem(error))
    problems = [_device_problem(runtime, number) for number in range(count)]
    told = ", ".join(
        f"cuda:{number} {problem or f'of compute capability {_compute_capability(runtime, number) / 10:.1f}'}"
        for number, problem in enumerate(problems)
    )
    if None in problems:
        return Status(True, told)
    least = f"no CUDA device of compute capability {MIN_COMPUTE_CAPABILITY / 10} or more"
    return Status(False, f"{least}: {told or 'there is none'}")


def _driver_problem(error: Exception) -> str:
    code = getattr(error, "status", None)
    if code == _ERROR_INSUFFICIENT_DRIVER:
        return "no CUDA driver, or one too old for this CuPy"
    if code == _ERROR_NO_DEVICE:
        return "a CUDA driver, but no CUDA device that this process may see"
    return f"the CUDA driver is broken: {type(error).__name__}: {error}"


def _device_problem(runtime: Any, number: int) -> str | None:
    """Why one device cannot be used; None if it can."""
    try:
        capability = _compute_capability(runtime, number)
    except Exception as error:  # lost, in an exclusive process, ...
        return f"cannot be asked: {type(error).__name__}: {error}"
    return None if capability >= MIN_COMPUTE_CAPABILITY else f"has compute capability {capability / 10:.1f}"


def _compute_capability(runtime: Any, number: int) -> int:
    # CuPy has no names for these two.
    major, minor = (int(runtime.deviceGetAttribute(code, number)) for code in (75, 76))
    return 10 * major + minor


#: The devices that were used, by number.
devices: dict[int, "CudaDevice"] = {}


def get_device(number: int | None = None) -> "CudaDevice":
    """The GPU with a number, always the same object; None means the current one.

    If the current one is not usable, None means the first usable one.

    Raises DeviceError if there is no usable GPU, or none with that number.
    """
    found = status()
    if not found.usable:
        raise DeviceError(f"CUDA cannot be used: {found.reason}")
    runtime = import_unforked("cupy").cuda.runtime
    if number is None:
        number = int(runtime.getDevice())
        if number not in devices and _device_problem(runtime, number) is not None:
            others = range(runtime.getDeviceCount())
            number = next((other for other in others if _device_problem(runtime, other) is None), number)
    if number not in devices:
        if number >= (count := runtime.getDeviceCount()):
            raise DeviceError(f"cuda:{number} does not exist: this process sees {count} CUDA devices")
        if problem := _device_problem(runtime, number):
            least = f"{MIN_COMPUTE_CAPABILITY / 10} is the least"
            raise DeviceError(f"cuda:{number} {problem}" + (f", {least}" * problem.startswith("has")))
        # Atomic, so there is no lock that a fork could leave held; concurrent threads get the same object.
        devices.setdefault(number, CudaDevice(number))
    return devices[number]


def is_own(candidate: Any) -> bool:
    """Whether an object is a CuPy array, without importing CuPy."""
    # Another thread may be importing CuPy; nobody has an array of it before that is done.
    ndarray = getattr(sys.modules.get("cupy"), "ndarray", None)
    return ndarray is not None and isinstance(candidate, ndarray)


def plain(array: Any) -> Array:
    """A CuPy array as an array of CuPy's own class: a view if it is of a subclass."""
    cupy = sys.modules["cupy"]
    return array if type(array) is cupy.ndarray else cupy.ndarray.view(array, type=cupy.ndarray)


def take(candidate: Any, where: tuple[int, int] | None) -> Taken:
    """A CuPy array that shares the memory of an object on a GPU, without a copy; `sharing.py` explains how.

    `where` is the object's `dlpack.device_of`, None if it has only `__cuda_array_interface__`.

    Raises DeviceError if CUDA cannot be used, ExchangeError if the object violates the protocol or CuPy does
    not support its elements.
    """
    return sharing.take(_cupy_for_arrays(), candidate, where)


@cache
def operand_maker() -> Callable[[Any, Any, bool], tuple[Any, dict[int, Any] | None] | None]:
    """A quick maker of operands of programs from other libraries' arrays: `sharing.operand_maker`."""
    return sharing.operand_maker(_cupy_for_arrays())


def number_of(candidate: Any, where: tuple[int, int] | None) -> int:
    """The number of the GPU on which `take` would return an object."""
    return sharing.number_of(_cupy_for_arrays(), candidate, where)


def _cupy_for_arrays() -> Any:
    found = status()
    if not found.usable:
        raise DeviceError(found.reason)
    return import_unforked("cupy")


@lru_cache(maxsize=64)
def _scalar_type(dtype: Any) -> Any:
    """The scalar type, which CuPy resolves faster than a dtype; the dtype if that is not equivalent."""
    kind = np.dtype(dtype)
    return kind.type if np.dtype(kind.type) == kind else kind


def _allocators(cupy: Any, number: int) -> Callable[[list[Any]], Callable[[], list[Array]]]:
    """A maker of functions that allocate arrays of given shapes and types on a GPU."""
    ndarray, current_device, device = cupy.ndarray, cupy.cuda.runtime.getDevice, cupy.cuda.Device
    new, initialize = shortcuts.construction(ndarray)

    def allocator_of(wanted: list[Any]) -> Callable[[], list[Array]]:
        def allocate() -> list[Array]:
            if current_device() != number:
                with device(number):
                    return [ndarray(shape, dtype) for shape, dtype in wanted]
            made = []
            for shape, dtype in wanted:
                array = new(ndarray)
                initialize(array, shape, dtype)
                made.append(array)
            return made

        return allocate

    return allocator_of


class CudaDevice:
    """One GPU through CuPy, made by `get_device`. Implements `cudml.devices.Device`.

    Outputs and workspaces come from CuPy's allocator. Kernels are built once per device; loaded programs may
    be run from any thread.
    """

    clock = "CUDA events"
    has_fixed_arrays = True

    def __init__(self, number: int) -> None:
        cupy = import_unforked("cupy")
        self.name = f"cuda:{number}"
        self.number = number
        self._cupy = cupy
        self._ndarray = cupy.ndarray
        self._current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
        self._allocator_of = _allocators(cupy, number)
        self._lent: Any = type("LentMemory", (cupy.cuda.UnownedMemory,), {})
        #: The limits that the driver reports for this GPU.
        self.limits = self._read_limits()
        self._as_stream = self.check_stream = Streams(cupy, number)
        self._zeros = Zeros(cupy, number, self.scratch)
        self._programs = ProgramLoader(
            cupy, number, self.limits, self._as_stream, self.scratch, self._zeros.address
        )
        self.load = self._programs.load
        self.hold = sharing.holder(cupy, number)

    def _read_limits(self) -> Limits:
        runtime = self._cupy.cuda.runtime

        def attribute(name: str) -> int:
            return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), self.number))

        capability = _compute_capability(runtime, self.number)
        return Limits(
            num_multiprocessors=attribute("MultiProcessorCount"),
            max_threads_per_block=attribute("MaxThreadsPerBlock"),
            shared_bytes_per_block=attribute("MaxSharedMemoryPerBlockOptin"),
            shared_bytes_per_multiprocessor=attribute("MaxSharedMemoryPerMultiprocessor"),
            registers_per_multiprocessor=attribute("MaxRegistersPerMultiprocessor"),
            max_threads_per_multiprocessor=attribute("MaxThreadsPerMultiProcessor"),
            max_cluster_blocks=PORTABLE_CLUSTER_BLOCKS if capability >= 90 else 1,
            l2_bytes=attribute("L2CacheSize"),
            compute_capability=capability,
            product_workspace_bytes=cublas.workspace_bytes(capability),
        )

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous `cupy.ndarray` on this GPU, in the stream's order."""
        if stream is None and self._current_device() == self.number:
            return self._ndarray(shape, dtype)
        with self.on_stream(stream):
            return self._ndarray(shape, dtype)

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """A function that calls `empty` for several shapes and dtypes, ordered by the current stream."""
        return self._allocator_of([(shape, _scalar_type(dtype)) for shape, dtype in arrays])

    def owns(self, array: Any) -> bool:
        """Whether the array is a `cupy.ndarray` in this GPU's memory."""
        return isinstance(array, self._ndarray) and array.data.device_id == self.number

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""
        return int(array.data.ptr)

    def address_and_layout(self, array: Any) -> tuple[int, Layout]:
        """The address, and the rest in one hashable value; TypeError for all but a `cupy.ndarray`."""
        if not isinstance(array, self._ndarray):
            raise TypeError(f"{self.name} takes cupy.ndarray, got {type(array).__name__}")
        memory = array.data
        strides = None if array._c_contiguous else array.strides
        return memory.ptr, (array.shape, strides, array.dtype, True, memory.device_id)

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Queue a copy of bytes on this GPU."""
        runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(self.number):
            chosen = self._cupy.cuda.get_current_stream() if stream is None else self._as_stream(stream)
            runtime.memcpyAsync(
                destination.data.ptr, source.data.ptr, num_bytes, runtime.memcpyDefault, chosen.ptr
            )

    def scratch(self, num_bytes: int, outputs: Sequence[Array], stream: Any = None, part: int = 0) -> Array:
        """Allocate uninitialised bytes for a call; during a capture they stay allocated (`capture.py`)."""
        if not self.is_captured(stream):
            return self.empty((num_bytes,), np.uint8, stream)
        former = capture.former_scratch(outputs, part, num_bytes)
        if former is not None:
            return former
        made = self.empty((num_bytes,), np.uint8, stream)
        if not self._is_of_a_graph(made):
            capture.keep_scratch(made, outputs, part)
        return made

    def retain_for_graph(self, made: Sequence[Array], outputs: Sequence[Array]) -> None:
        """During a capture, let arrays live as long as the outputs made from them (`capture.py`)."""
        if self.is_captured(None):
            for array in made:
                if not self._is_of_a_graph(array):
                    capture.keep_scratch(array, outputs, None)

    def allocating(self, allocate: Callable[[int], Any]) -> AbstractContextManager[None]:
        """A context in which new arrays of this thread are in memory of another library's allocator.

        `allocate` takes a number of bytes; its result owns the memory and has its address as `data_ptr()`. If
        the library captures a graph, it must keep what it allocates in the capture for that graph alone.
        """
        cuda = self._cupy.cuda

        def lend(num_bytes: int) -> Any:
            owner = allocate(num_bytes)
            return cuda.MemoryPointer(self._lent(owner.data_ptr(), num_bytes, owner, self.number), 0)

        context: AbstractContextManager[None] = cuda.using_allocator(lend)
        return context

    def _is_of_a_graph(self, array: Array) -> bool:
        """Whether the memory of an array made in a capture belongs to the graph: from CUDA's own pool, which
        graph nodes allocate and free, or from a library that keeps it for the graph."""
        return isinstance(array.data.mem, (self._cupy.cuda.MemoryAsync, self._lent))

    def is_captured(self, stream: Any) -> bool:
        """Whether the work on a stream (None: the current one) is being captured in a graph."""
        cuda = self._cupy.cuda
        handle = (cuda.get_current_stream(self.number) if stream is None else self._as_stream(stream)).ptr
        return handle not in LEGACY_STREAMS and bool(cuda.runtime.streamIsCapturing(handle))

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """A context in which this GPU is current, and the stream too unless it is None."""
        if stream is None:
            device: AbstractContextManager[None] = self._cupy.cuda.Device(self.number)
            return device
        return self._made_current(self._as_stream(stream))

    def sharing(self, shared: Sequence[Exported]) -> AbstractContextManager[None]:
        """A context in which this GPU is current, around work on other libraries' memory (`sharing.py`)."""
        if shared:
            return sharing.sharing(self._cupy, self.number, shared)
        current: AbstractContextManager[None] = self._cupy.cuda.Device(self.number)
        return current

    @contextmanager
    def _made_current(self, stream: Any) -> Iterator[None]:
        """`on_stream` for a stream that `Streams` returned."""
        with self._cupy.cuda.Device(self.number):
            if not hasattr(stream, "__enter__"):
                stream = self._cupy.cuda.Stream.from_external(stream)
            with stream:
                yield

    def order_after(self, operands: Collection[Any], stream: Any = None) -> None:
        """Let other libraries' later work on memory they share wait for the work on a stream."""
        own = self._cupy.cuda.get_current_stream() if stream is None else self._as_stream(stream)
        sharing.order_after(self._cupy, self.number, own, operands)

    def raise_reported(self) -> None:
        """Raise KernelError if a finished kernel gave up a wait; no driver call is made."""
        self._programs.raise_reported()

    def time(self, call: Callable[[], None]) -> float:
        """Seconds between two events on the current stream, recorded before and after the call."""
        cuda = self._cupy.cuda
        with cuda.Device(self.number):
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            return float(cuda.get_elapsed_time(start, stop)) / 1000
