"""The interface of the two devices, and the choice between them.

A device knows arrays, streams and how to run a `Plan`, but no operator.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from cudml.devices import dlpack
from cudml.devices.exchange import Exported, Taken
from cudml.plans import Limits, Plan

#: An array of a device's own library: numpy.ndarray on the emulator, cupy.ndarray on CUDA.
Array = Any

#: Shape, strides in bytes (or None if C-contiguous), dtype, whether writable, and the remaining input of a
#: plan: the number of the GPU, or on the CPU the number of lanes of a warp.
Layout = tuple[tuple[int, ...], tuple[int, ...] | None, Any, bool, int]


class GridTooLargeError(ValueError):
    """A cooperative grid has more blocks than the device can run at once, which is `fits`.

    Known only once the kernel is built; the device may be shared (MPS, MIG) or have less room than it
    reports.
    """

    def __init__(self, message: str, fits: int) -> None:
        super().__init__(message)
        self.fits = fits


class Program(Protocol):
    """A plan loaded on one device: kernels built, arguments prepared."""

    def __call__(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        """Run every step in order.

        `operands` follow `Plan.operands`; each is an array of the device whose address (of element
        (0, ..., 0)) is used and whose shape is not looked at. `workspace` is a uint8 array of at least
        `Plan.temporary_bytes`; None takes `Device.scratch`, the only allocation. Memory that the plan leaves
        zero is the device's own. `stream` None is the current stream. `shift` bytes are added to the address
        of the first operand.
        """


class Device(Protocol):
    """The interface of a device."""

    name: str

    #: The name of the clock that `time` uses, for messages.
    clock: str

    #: Whether an array object keeps its memory and dtype for life. A NumPy array may be resized in place.
    has_fixed_arrays: bool

    def __hash__(self) -> int:
        """Devices are compared by identity; each has a single object."""

    @property
    def limits(self) -> Limits:
        """The limits that plans must respect."""

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """Allocate an uninitialised C-contiguous array, ordered by the stream (None: the current one)."""

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """A function that calls `empty` for several shapes and dtypes."""

    def owns(self, array: Any) -> bool:
        """Whether the array is in this device's memory and of its own array type."""

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""

    def address_and_layout(self, array: Any) -> tuple[int, Layout]:
        """The address and, in a hashable value, everything else that decides how an array may be used.

        Quick, because every warm call needs it. Raises TypeError unless the array is of the device's array
        type or of a subclass of it that `owns` accepts. Arrays of other devices of the same kind differ in
        the layout.
        """

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Copy bytes from the address of one array to the address of another, in the stream's order."""

    def scratch(self, num_bytes: int, outputs: Sequence[Array], stream: Any = None, part: int = 0) -> Array:
        """Allocate uninitialised bytes for one call that writes the outputs, ordered by the stream.

        If the stream is being captured in a graph, they live as long as the outputs, and later captured calls
        with the same outputs reuse them; parts are separate.
        """

    def retain_for_graph(self, made: Sequence[Array], outputs: Sequence[Array]) -> None:
        """If the current stream is being captured, let arrays live as long as the outputs made from them."""

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """A context in which the device is current, and the stream too unless it is None.

        Raises TypeError or ValueError if it is not a stream of the device.
        """

    def sharing(self, shared: Sequence[Exported]) -> AbstractContextManager[None]:
        """A context in which the device is current; other libraries' later work on memory they share waits.

        It waits for the work that is queued in the context.
        """

    def hold(self, operands: dict[int, Any]) -> None:
        """Hold the memory of operands of `operand_makers`, by address, until the work on them is done."""

    def raise_reported(self) -> None:
        """Raise KernelError if a finished kernel reported a failure, as the next call would."""

    def time(self, call: Callable[[], None]) -> float:
        """Seconds that the device takes for the work that a call queues; waits for the end of it."""

    def load(self, plan: Plan) -> Program:
        """Build the plan's kernels (cached) and bind everything but the operands.

        Raises `GridTooLargeError` if the blocks of a cooperative grid cannot all run at once.
        """


def get_device(name: str | None = None) -> Device:
    """The device named "cuda", "cuda:1" or "cpu"; None means the current GPU, else the CPU."""
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


#: Array types of the devices' own libraries, once met -> what tells the device of such an array, and the
#: devices by that.
own_types: dict[type, tuple[Callable[[Any], Any], Mapping[Any, Device]]] = {}


#: Once `take` has met an array in a GPU's memory: what quickly makes an operand of a `Program` from another
#: library's array. It returns None unless `Device.hold` is enough, else the operand, with `ptr`, its address,
#: and `layout`, as of `Device.address_and_layout`, and what `hold` takes if it is the only one.
operand_makers: list[Callable[[Any], tuple[Any, dict[int, Any]] | None]] = []


def take(candidate: Any) -> tuple[Taken, Device] | None:
    """Take an array of any library as an array of a device's own type that shares its memory.

    Returns the array and the device, or None if the object is not an array.

    Raises ExchangeError if the object violates the protocol by which it would share its memory, DeviceError
    if it is in GPU memory that cannot be used.
    """
    from cudml.devices import cuda, emulator

    if isinstance(candidate, np.ndarray):
        own_types.setdefault(np.ndarray, (type, {np.ndarray: _cpu()}))
        return Taken(candidate if type(candidate) is np.ndarray else candidate.view(np.ndarray)), _cpu()
    if cuda.is_own(candidate):
        array, number_of = cuda.plain(candidate), attrgetter("data.device_id")
        device = cuda.get_device(number_of(array))
        own_types.setdefault(type(array), (number_of, cuda.devices))
        return Taken(array), device
    where = dlpack.device_of(candidate)
    if where is not None and where[0] in dlpack.CPU_TYPES:
        return emulator.take(candidate), _cpu()
    if _is_on_gpu(candidate, where):
        taken = cuda.take(candidate, where)
        operand_makers[:] = [cuda.operand_maker()]
        return taken, cuda.get_device(taken.array.data.device_id)
    return None


def device_of(candidate: Any) -> Device | None:
    """The device on which `take` would return an object, or None; raises as `take` does."""
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
    """Whether an object is in GPU memory; `where` is DLPack's answer, which takes precedence."""
    if where is not None:
        return where[0] in dlpack.CUDA_TYPES
    return hasattr(candidate, "__cuda_array_interface__")


def _cpu() -> Device:
    from cudml.devices import emulator

    return emulator.get_device()
