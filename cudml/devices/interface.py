"""The interface of the two devices."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from cudml.devices.exchange import Exported
from cudml.plans import Limits, Plan

#: An array of a device's own library: numpy.ndarray on the emulator, cupy.ndarray on CUDA.
Array = Any

#: Shape, strides in bytes (or None if C-contiguous), dtype, whether writable, and the remaining input of a
#: plan: the number of the GPU, or on the CPU the number of lanes of a warp.
Layout = tuple[tuple[int, ...], tuple[int, ...] | None, Any, bool, int]


class LaunchTooLargeError(ValueError):
    """Blocks of a launch must run at once, and the device has no room for all of them.

    `limits` has the values of members of `Limits` that a launch must keep to, by name. They are known only
    once the kernel is built: the device may be shared (MPS), a part of a GPU (MIG), or have less room than it
    reports.
    """

    def __init__(self, message: str, **limits: int) -> None:
        super().__init__(message)
        self.limits = limits


class Program(Protocol):
    """A plan loaded on one device: kernels built, arguments prepared."""

    def __call__(
        self, operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0
    ) -> None:
        """Run every step in order.

        `operands` follow `Plan.operands`; each is an array of the device whose address (of element
        (0, ..., 0)) is used and whose shape is ignored. `workspace` is a uint8 array of at least
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
        """Devices are compared by identity; each device has a single object."""

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

        If the stream is being captured in a graph, the bytes live as long as the outputs, and later captured
        calls with the same outputs reuse them; each `part` has bytes of its own.
        """

    def retain_for_graph(self, made: Sequence[Array], outputs: Sequence[Array]) -> None:
        """If the current stream is being captured, let arrays live as long as the outputs made from them."""

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """A context in which the device is current, and the stream too unless it is None.

        Raises TypeError or ValueError if it is not a stream of the device.
        """

    def sharing(self, shared: Sequence[Exported]) -> AbstractContextManager[None]:
        """A context in which the device is current, around work on memory that other libraries share.

        The libraries' later work on that memory waits for the work that is queued in the context.
        """

    def check_stream(self, stream: Any) -> None:
        """Raise TypeError or ValueError as `on_stream` does."""

    def hold(self, operands: dict[int, Any]) -> None:
        """Hold the memory of operands of `operand_makers`, by address, until the work on them is done."""

    def order_after(self, operands: Collection[Any], stream: Any = None) -> None:
        """Order other libraries' later work as `sharing` does, for operands of `operand_makers`.

        It waits for the work on the stream (None: the current one).
        """

    def raise_reported(self) -> None:
        """Raise KernelError if a finished kernel reported a failure, as the next call would."""

    def time(self, call: Callable[[], None]) -> float:
        """Seconds that the device takes for the work that a call queues; waits until the work is done."""

    def load(self, plan: Plan) -> Program:
        """Build the plan's kernels (cached) and bind everything but the operands.

        Raises `LaunchTooLargeError` if the blocks of a cooperative grid or of a cluster cannot run at once.
        """
