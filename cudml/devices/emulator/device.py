"""The emulator as a `Device`: NumPy arrays, and programs of compiled kernels."""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.ma import MaskedArray

from cudml.devices.emulator import library_steps, meter
from cudml.devices.emulator import schedule as schedules
from cudml.devices.emulator.checked import load_checked
from cudml.devices.emulator.launch import PreparedSteps, load_kernels
from cudml.devices.emulator.schedule import Schedule, chosen_schedule
from cudml.devices.exchange import Exported
from cudml.devices.interface import Array, Layout, Program
from cudml.devices.shortcuts import PLACE, POINTER_BYTES, address_of, emulator_options, pointers
from cudml.errors import a_type
from cudml.plans import Limits, Plan

#: The limits of a small fictitious GPU, the same on every machine, so that plans and their tests do not
#: depend on where they run. Shared storage is that of sm_90.
LIMITS = Limits(
    num_multiprocessors=4,
    max_threads_per_block=1024,
    shared_bytes_per_block=232448,
    shared_bytes_per_multiprocessor=233472,
    registers_per_multiprocessor=65536,
    max_threads_per_multiprocessor=2048,
    max_cluster_blocks=8,
    l2_bytes=32 << 20,
    compute_capability=0,
)

#: The shared storage of blocks of one thread fits a near cache of most CPUs.
_LIMITS_BY_LANES = {32: LIMITS, 1: replace(LIMITS, warp_lanes=1, shared_bytes_per_block=1 << 20)}


def current_schedule() -> Schedule:
    """The schedule of the innermost `with schedule(...)`, else that of CUDML_EMULATOR."""
    chosen = chosen_schedule()
    if chosen is not None:
        return chosen
    text, schedule = schedules.last_parsed
    return schedule if text == emulator_options() else schedules.environment_schedule()


class EmulatorDevice:
    """NumPy arrays, and kernels run by the host's CPU."""

    name = "cpu"
    clock = "host clock"
    has_fixed_arrays = False

    @property
    def limits(self) -> Limits:
        """The same on every machine, except for `warp_lanes`, which the current schedule sets."""
        return _LIMITS_BY_LANES[current_schedule().num_lanes]

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous array."""
        refuse_stream(stream)
        return np.empty(shape, dtype)

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """A function that allocates uninitialised C-contiguous arrays of these shapes and dtypes."""
        empty = np.empty
        # One and two arrays are by far the most frequent. Without a second frame, `top_k` takes 5 % less.
        if len(arrays) == 1:
            ((shape, dtype),) = arrays
            return lambda: [empty(shape, dtype)]
        if len(arrays) == 2:
            (shape, dtype), (other_shape, other_dtype) = arrays
            return lambda: [empty(shape, dtype), empty(other_shape, other_dtype)]
        return lambda: [empty(shape, dtype) for shape, dtype in arrays]

    def owns(self, array: Any) -> bool:
        """Whether the array is a NumPy array without a mask, which kernels would ignore."""
        return isinstance(array, np.ndarray) and not isinstance(array, MaskedArray)

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""
        return address_of(array)

    def address_and_layout(self, array: Any) -> tuple[int, Layout]:
        """The address, and the rest in one hashable value; TypeError for arrays that `owns` refuses."""
        if type(array) is not np.ndarray and not self.owns(array):
            raise TypeError(f"cpu takes numpy.ndarray, got {type(array).__name__}")
        layout = (
            array.shape,
            array.strides,
            array.dtype,
            array.flags.writeable,
            current_schedule().num_lanes,
        )
        return pointers[id(array) // POINTER_BYTES + PLACE], layout

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Copy bytes from the address of one array to the address of another."""
        refuse_stream(stream)
        library_steps.move(self.address(destination), self.address(source), num_bytes)

    def scratch(self, num_bytes: int, outputs: Sequence[Array], stream: Any = None, part: int = 0) -> Array:
        """Allocate uninitialised bytes for one call."""
        return self.empty((num_bytes,), np.uint8, stream)

    def retain_for_graph(self, made: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Do nothing: a CPU has no graphs."""

    def on_stream(self, stream: Any) -> AbstractContextManager[None]:
        """An empty context; raise TypeError unless the stream is None, because a CPU has no streams."""
        refuse_stream(stream)
        return nullcontext()

    def sharing(self, shared: Sequence[Exported]) -> AbstractContextManager[None]:
        """An empty context: a call is complete when it returns, so nothing has to be ordered."""
        return nullcontext()

    def check_stream(self, stream: Any) -> None:
        """Raise TypeError unless the stream is None, because a CPU has no streams."""
        refuse_stream(stream)

    def hold(self, operands: dict[int, Any]) -> None:
        """Do nothing: a call is complete when it returns."""

    def order_after(self, operands: Collection[Any], stream: Any = None) -> None:
        """Do nothing: a call is complete when it returns."""

    def raise_reported(self) -> None:
        """Do nothing: a call waits for its kernels and raises their errors itself."""

    def time(self, call: Callable[[], None]) -> float:
        """Seconds until a call returns."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def load(self, plan: Plan) -> Program:
        """Compile the plan's kernels that are not cached, concurrently.

        Raises CompilerError if there is no compiler, or a kernel does not compile. The program raises
        KernelError if a kernel fails.
        """
        return _loaded(plan)


def refuse_stream(stream: Any) -> None:
    """Raise TypeError unless the stream is None: a CPU has no streams."""
    if stream is not None:
        raise TypeError(f"stream is {a_type(stream)}, must be None on cpu, which has no streams")


@cache
def get_device() -> EmulatorDevice:
    """The emulator of this process."""
    return EmulatorDevice()


def _loaded(plan: Plan) -> Program:
    """A plan with compiled kernels, which several threads may run at the same time.

    Kernels with and without check mode are compiled when a call first needs them.

    A function, because calling an object with `__call__` takes longer: 6 % of `top_k`.
    """
    is_checked = current_schedule().check or meter.current() is not None
    checked = load_checked(plan) if is_checked else None
    loaded = None if is_checked else load_kernels(plan)
    # A call pops its steps and appends them again when it is done; a call that raises drops them. Pop and
    # append are atomic, so there is no lock, which would have to survive forks.
    free: list[PreparedSteps] = []

    def run(operands: Sequence[Array], workspace: Array | None, stream: Any = None, shift: int = 0) -> None:
        nonlocal checked, loaded
        if stream is not None:
            refuse_stream(stream)
        schedule = current_schedule()
        if schedule.check or meter.current() is not None:
            checked = checked or load_checked(plan)
            checked(operands, schedule, shift)
            return
        try:
            prepared = free.pop()
        except IndexError:
            prepared = None
        if prepared is None or prepared.schedule is not schedule:
            loaded = loaded or load_kernels(plan)
            prepared = loaded.prepared(schedule)
        addresses = prepared.addresses
        for number, operand in enumerate(operands):
            addresses[number] = pointers[id(operand) // POINTER_BYTES + PLACE]
        if shift:
            addresses[0] += shift
        if prepared.workspace_bytes:
            if workspace is None:
                workspace = np.empty(prepared.workspace_bytes, np.uint8)
            start = pointers[id(workspace) // POINTER_BYTES + PLACE]
            for number, offset in prepared.workspace_offsets:
                addresses[number] = start + offset
        for run_step in prepared.runs:
            run_step()
        free.append(prepared)

    return run
