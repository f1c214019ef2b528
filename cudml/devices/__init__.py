"""The two devices behind one small interface, and the choice between them.

A device knows arrays, streams and how to run a `Plan`; it knows no operator.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from cudml.devices import dlpack
from cudml.devices.exchange import Exported, Taken
from cudml.plans import Limits, Plan

#: An array of a device's own library: numpy.ndarray on the emulator, cupy.ndarray on CUDA.
Array = Any

#: Shape, strides in bytes (or None where C-contiguous), dtype, whether writable, and what else decides a
#: plan: the number of the GPU, or on the CPU the lanes of a warp.
Layout = tuple[tuple[int, ...], tuple[int, ...] | None, Any, bool, int]


class GridTooLargeError(ValueError):
    """A cooperative grid has more blocks than the device can run at once, of which there are `fits`.

    Known only once the kernel is built, and where the device is shared (MPS, MIG) or smaller than it says.
    """

    def __init__(self, message: str, fits: int) -> None:
        super().__init__(message)
        self.fits = fits


class Program(Protocol):
    """A plan made ready for one device: modules loaded, arguments prepared."""

    def __call__(self, operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
        """Run every step in order.

        `operands` follow `Plan.operands`; each is an array of the device whose address (of element
        (0, ..., 0)) is used and whose shape is not looked at. `workspace` is a uint8 array of at least
        `Plan.temporary_bytes`. `stream` None is the current stream. Nothing is allocated.
        """


class Device(Protocol):
    """What the package asks of a device."""

    name: str

    #: What `time` measures with, as people call it.
    clock: str

    #: Whether an array object has the same memory and dtype for life. NumPy's may be resized in place.
    has_fixed_arrays: bool

    def __hash__(self) -> int:
        """Devices are compared by identity; there is one object for each."""

    @property
    def limits(self) -> Limits:
        """What plans may use."""

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous array, whose memory the stream (None: the current one) orders."""

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """What `empty` does for several shapes and dtypes at once, as often as it is called."""

    def owns(self, array: Any) -> bool:
        """Whether the array lives in this device's memory and is of its own array type."""

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""

    def describe(self, array: Any) -> tuple[int, Layout]:
        """The address and, in a hashable value, everything else that decides how an array may be used.

        Quick, because every warm call does it. Raises TypeError for what is not exactly of the device's
        array type; arrays of other devices of the same kind differ in the layout.
        """

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Copy bytes from the address of one array to the address of another, in the stream's order."""

    def scratch(self, num_bytes: int, outputs: Sequence[Array], stream: Any = None) -> Array:
        """Uninitialised bytes for one call that writes the outputs, in the order of the stream.

        Where the stream is captured in a graph, they stay as long as the outputs, and later captured calls
        of the same outputs have them, too.
        """

    def keep_captured(
        self,
        made: Sequence[Array],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        stream: Any = None,
    ) -> None:
        """Where the stream is captured in a graph, let arrays that a call made live as long as its outputs.

        `made` are converted arguments; those that are views of inputs or outputs are left out.
        """

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """A context in which the device is the current one, and the stream its current one unless it is None.

        Raises TypeError or ValueError for what is no stream of the device.
        """

    def sharing(self, shared: Sequence[Exported]) -> AbstractContextManager[None]:
        """A context around work on the memory of other libraries, which orders what they do afterwards."""

    def raise_reported(self) -> None:
        """Raise KernelError if a kernel that has ended reported that it went wrong; the next call would."""

    def time(self, call: Callable[[], None]) -> float:
        """Seconds that the device takes for what a call queues on its current stream; waits for the end."""

    def load(self, plan: Plan) -> Program:
        """Build the plan's kernels (cached) and bind everything but the operands.

        Raises `GridTooLargeError` where the blocks of a grid could not wait for each other.
        """


def get_device(name: str | None = None) -> Device:
    """The device of a name: "cuda", "cuda:1" or "cpu"; None is the current GPU, else the CPU."""
    if name == "cpu":
        return _cpu()
    if name is None:
        from cudml.devices import cuda

        return cuda.get_device(None) if cuda.status().usable else _cpu()
    kind, colon, number = name.partition(":")
    if kind == "cuda" and (not colon or number.isdecimal()):
        from cudml.devices import cuda

        return cuda.get_device(int(number) if colon else None)
    raise ValueError(f"device is {name!r}, must be 'cpu', 'cuda' or 'cuda:N' with N a device number")


def take(candidate: Any) -> tuple[Taken, Device] | None:
    """What an object of an array library is on a device: an array of the device's own type that shares its
    memory, and the device; None for what is no such object.

    Raises
    ------
    cudml.devices.exchange.ExchangeError
        It does not keep to the protocol by which it would share its memory; says how.
    cudml.errors.DeviceError
        It is in a GPU's memory, and that cannot be used from here; says why.
    """
    from cudml.devices import cuda, emulator

    if isinstance(candidate, np.ndarray):
        return Taken(candidate if type(candidate) is np.ndarray else candidate.view(np.ndarray)), _cpu()
    if cuda.is_own(candidate):
        return Taken(candidate), cuda.get_device(candidate.data.device_id)
    where = dlpack.device_of(candidate)
    if where is not None and where[0] in dlpack.CPU_TYPES:
        return emulator.take(candidate), _cpu()
    if _is_on_gpu(candidate, where):
        taken = cuda.take(candidate, where)
        return taken, cuda.get_device(taken.array.data.device_id)
    return None


def device_of(candidate: Any) -> Device | None:
    """The device that `take` would take an object on, None for what it would not; raises as `take` does."""
    from cudml.devices import cuda

    if isinstance(candidate, np.ndarray):
        return _cpu()
    if cuda.is_own(candidate):
        return cuda.get_device(candidate.data.device_id)
    where = dlpack.device_of(candidate)
    if where is not None and where[0] in dlpack.CPU_TYPES:
        return _cpu()
    return cuda.get_device(cuda.number_of(candidate, where)) if _is_on_gpu(candidate, where) else None


def _is_on_gpu(candidate: Any, where: tuple[int, int] | None) -> bool:
    """Whether an object has a GPU's memory; `where` is what DLPack says, which comes first."""
    if where is not None:
        return where[0] in dlpack.CUDA_TYPES
    return hasattr(candidate, "__cuda_array_interface__")


def _cpu() -> Device:
    from cudml.devices import emulator

    return emulator.get_device()
