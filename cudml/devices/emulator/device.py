"""The emulator as a `Device`: NumPy arrays, and programs made of compiled kernels."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from cudml.devices import Array, Layout
from cudml.devices.emulator import library_steps, meter
from cudml.devices.emulator import schedule as schedules
from cudml.devices.emulator.checked import CheckedProgram
from cudml.devices.emulator.launch import Kernel
from cudml.devices.emulator.schedule import Schedule
from cudml.plans import KernelLaunch, LibraryStep, Limits, Plan

#: What the emulator offers plans: one small made-up GPU, the same on every machine, so that a plan and
#: its tests do not depend on where they run. Shared storage is that of sm_90.
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

_LIMITS_BY_LANES = {lanes: replace(LIMITS, warp_lanes=lanes) for lanes in (1, 32)}


class EmulatorDevice:
    """NumPy arrays, and kernels run by the host's CPU."""

    name = "cpu"
    has_fixed_arrays = False

    @property
    def limits(self) -> Limits:
        """The same on every machine; `warp_lanes` as the current schedule wants kernels shaped."""
        return _LIMITS_BY_LANES[schedules.current().num_lanes]

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous array."""
        refuse_stream(stream)
        return np.empty(shape, dtype)

    def allocator(self, arrays: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[[], list[Array]]:
        """What makes new uninitialised C-contiguous arrays of these shapes and dtypes."""
        return lambda: [np.empty(shape, dtype) for shape, dtype in arrays]

    def owns(self, array: Any) -> bool:
        """Whether the array is a NumPy array."""
        return isinstance(array, np.ndarray)

    def address(self, array: Array) -> int:
        """Address of element (0, ..., 0)."""
        return int(array.__array_interface__["data"][0])

    def describe(self, array: Any) -> tuple[int, Layout]:
        """The address, and the rest in one hashable value; TypeError for all but a `numpy.ndarray`."""
        if type(array) is not np.ndarray:
            raise TypeError(f"cpu takes numpy.ndarray, got {type(array).__name__}")
        interface = array.__array_interface__
        address, is_read_only = interface["data"]
        num_lanes = schedules.current().num_lanes
        return address, (interface["shape"], interface["strides"], array.dtype, not is_read_only, num_lanes)

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Copy bytes from the address of one array to the address of another."""
        refuse_stream(stream)
        ctypes.memmove(self.address(destination), self.address(source), num_bytes)

    def keep_captured(
        self,
        made: Sequence[Array],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        stream: Any = None,
    ) -> None:
        """There are no graphs here."""

    def load(self, plan: Plan) -> "EmulatorProgram":
        """Compile the plan's kernels, those not in the cache at the same time.

        Raises
        ------
        CompilerError
            There is no compiler, or a kernel does not compile.
        """
        return EmulatorProgram(plan)


def refuse_stream(stream: Any) -> None:
    """Raise TypeError for anything but None: a stream on a CPU is a mistake of whoever has one."""
    if stream is not None:
        raise TypeError(f"stream must be None on cpu, which has no streams, got {type(stream).__name__}")


@cache
def get_device() -> EmulatorDevice:
    """The one emulator of this process."""
    return EmulatorDevice()


class EmulatorProgram:
    """A plan whose kernels are compiled; calls of one program from several threads take turns."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._lock = threading.Lock()
        self._offsets = plan.offsets()
        self._steps: tuple[_Step, ...] | None = None
        self._checked: CheckedProgram | None = None
        # The other way of running is compiled when it is first asked for.
        if _is_checked(schedules.current()):
            self._checked = CheckedProgram(plan)
        else:
            self._steps = _load_steps(plan)

    def __call__(self, operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
        """Run every step in order; see `cudml.devices.Program`.

        Raises
        ------
        TypeError
            A stream is given.
        KernelError
            A kernel went wrong; `reports` says where and how.
        """
        refuse_stream(stream)
        schedule = schedules.current()
        with self._lock:
            if _is_checked(schedule):
                if self._checked is None:
                    self._checked = CheckedProgram(self.plan)
                self._checked(operands, schedule)
                return
            if self._steps is None:
                self._steps = _load_steps(self.plan)
            addresses = {
                name: array.__array_interface__["data"][0]
                for name, array in zip(self.plan.operands, operands, strict=True)
            }
            if workspace is not None:
                start = workspace.__array_interface__["data"][0]
                for name, offset in self._offsets.items():
                    addresses[name] = start + offset
            for step in self._steps:
                step(addresses, schedule)


#: A step of a program: takes the addresses of all buffers by name.
_Step = Callable[[dict[str, int], Schedule], None]


def _is_checked(schedule: Schedule) -> bool:
    return schedule.check or meter.current() is not None


def _load_steps(plan: Plan) -> tuple[_Step, ...]:
    launches = [step for step in plan.steps if isinstance(step, KernelLaunch)]
    with ThreadPoolExecutor() as pool:
        kernels = iter(list(pool.map(Kernel, launches)))
    return tuple(
        _kernel_step(next(kernels)) if isinstance(step, KernelLaunch) else _library_step(step)
        for step in plan.steps
    )


def _kernel_step(kernel: Kernel) -> _Step:
    bound = [(i, name) for i, name in enumerate(kernel.launch.buffers) if name is not None]
    pointers = kernel.pointers

    def step(addresses: dict[str, int], schedule: Schedule) -> None:
        for i, name in bound:
            pointers[i] = addresses[name]
        kernel.run(schedule)

    return step


def _library_step(step: LibraryStep) -> _Step:
    run = library_steps.prepare(step)
    return lambda addresses, schedule: run(addresses)
