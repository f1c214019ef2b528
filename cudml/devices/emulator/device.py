"""The emulator as a `Device`: NumPy arrays, and programs made of compiled kernels."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from cudml.devices import Array, Layout
from cudml.devices.emulator import schedule as schedules
from cudml.devices.emulator.launch import Kernel
from cudml.devices.emulator.schedule import Schedule
from cudml.plans import Fill, KernelLaunch, Limits, MatMul, Plan

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

#: Half-precision operands of a matrix product are converted this many elements at a time.
_CONVERTED_ELEMENTS = 1 << 20


class EmulatorDevice:
    """NumPy arrays, and kernels run by the host's CPU."""

    name = "cpu"
    has_fixed_arrays = False

    @property
    def limits(self) -> Limits:
        """The same on every machine."""
        return LIMITS

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Array:
        """A new uninitialised C-contiguous array."""
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
        return address, (interface["shape"], interface["strides"], array.dtype, not is_read_only, 0)

    def copy_bytes(self, source: Array, destination: Array, num_bytes: int, stream: Any = None) -> None:
        """Copy bytes from the address of one array to the address of another."""
        ctypes.memmove(self.address(destination), self.address(source), num_bytes)

    def load(self, plan: Plan) -> "EmulatorProgram":
        """Compile the plan's kernels, those not in the cache at the same time.

        Raises
        ------
        CompilerError
            There is no compiler, or a kernel does not compile.
        """
        return EmulatorProgram(plan)


@cache
def get_device() -> EmulatorDevice:
    """The one emulator of this process."""
    return EmulatorDevice()


class EmulatorProgram:
    """A plan whose kernels are compiled; calls of one program from several threads take turns."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._num_operands = len(plan.operands)
        # Buffers by number: operands in order, then the workspaces.
        self._offsets = tuple(plan.offsets().values())
        names = [*plan.operands, *(piece.name for piece in plan.workspaces)]
        self._numbers = {name: number for number, name in enumerate(names)}
        launches = [step for step in plan.steps if isinstance(step, KernelLaunch)]
        with ThreadPoolExecutor() as pool:
            kernels = iter(list(pool.map(Kernel, launches)))
        self._steps = tuple(
            self._kernel_step(step, next(kernels))
            if isinstance(step, KernelLaunch)
            else self._library_step(step)
            for step in plan.steps
        )

    def __call__(self, operands: Sequence[Array], workspace: Array | None, stream: Any = None) -> None:
        """Run every step in order; see `cudml.devices.Program`. There are no streams here."""
        schedule = schedules.current()
        addresses = [array.__array_interface__["data"][0] for array in operands]
        if workspace is not None and self._offsets:
            start = workspace.__array_interface__["data"][0]
            addresses += [start + offset for offset in self._offsets]
        with self._lock:
            for step in self._steps:
                step(addresses, schedule)

    def _kernel_step(self, launch: KernelLaunch, kernel: Kernel) -> Callable[[list[int], Schedule], None]:
        bound = [(i, self._numbers[name]) for i, name in enumerate(launch.buffers) if name is not None]
        pointers = kernel.pointers

        def step(addresses: list[int], schedule: Schedule) -> None:
            for i, number in bound:
                pointers[i] = addresses[number]
            kernel.run(schedule)

        return step

    def _library_step(self, step: MatMul | Fill) -> Callable[[list[int], Schedule], None]:
        if isinstance(step, Fill):
            buffer, value, num_bytes = self._numbers[step.buffer], step.value, step.num_bytes

            def fill(addresses: list[int], schedule: Schedule) -> None:
                ctypes.memset(addresses[buffer], value, num_bytes)

            return fill
        a, b, out = (self._numbers[name] for name in (step.a, step.b, step.out))
        return lambda addresses, schedule: _matmul(step, addresses[a], addresses[b], addresses[out])


def _matrix(address: int, offset: int, rows: int, columns: int, dtype: Any) -> Array:
    """A packed matrix in memory that somebody else owns."""
    itemsize = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * (rows * columns * itemsize)).from_address(address + offset * itemsize)
    return np.frombuffer(memory, dtype).reshape(rows, columns)


def _matmul(step: MatMul, a: int, b: int, out: int) -> None:
    """`out = a @ b.T` in float32; half-precision rows of `a` are converted a piece at a time."""
    left = _matrix(a, step.a_offset, step.m, step.k, step.element)
    right = _matrix(b, step.b_offset, step.n, step.k, step.element).astype(np.float32, copy=False)
    result = _matrix(out, step.out_offset, step.m, step.n, np.float32)
    rows = step.m if step.element == "float32" else max(1, _CONVERTED_ELEMENTS // step.k)
    for first in range(0, step.m, rows):
        piece = left[first : first + rows].astype(np.float32, copy=False)
        np.matmul(piece, right.T, out=result[first : first + rows])
