"""Run a plan in check mode: on private copies of its buffers, with every memory access observed."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.devices.emulator import library_steps, meter
from cudml.devices.emulator.launch import BufferTable, Kernel, WaitReports, load_kernels
from cudml.devices.emulator.schedule import Schedule
from cudml.devices.emulator.structures import Check, Region
from cudml.devices.interface import Array
from cudml.errors import KernelError
from cudml.plans import WORKSPACE_ALIGNMENT, KernelLaunch, LibraryStep, Plan
from cudml.tensors import byte_extent

#: Unused bytes on both sides of a private copy.
_PADDING = 4096

#: Per byte: the private copy, the initialisation mark, and a quarter of its word's cell in the checker.
_BYTES_PER_BYTE = 1 + 1 + 16


@dataclass
class _Buffer:
    """A private copy of the memory of one operand, or of several that overlap, or of a workspace."""

    names: list[str]
    low: int  # start of the original
    high: int
    is_output: bool
    is_writable: bool
    memory: Array  # with padding
    start: int  # start of the copy
    initialised: Array | None

    @property
    def num_bytes(self) -> int:
        return self.high - self.low

    @property
    def contents(self) -> Array:
        """The copy without its padding."""
        first = self.start - self.memory.ctypes.data
        return self.memory[first : first + self.num_bytes]


def _extent(array: Array) -> tuple[int, int]:
    """The addresses of an array's first byte and of the byte past its last."""
    start = array.__array_interface__["data"][0]
    low, high = byte_extent(array.shape, array.strides, array.itemsize)
    return start + low, start + high


def _available_bytes() -> int | None:
    """Available memory, or None if the system does not report it."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def load_checked(plan: Plan) -> "CheckedProgram":
    """Compile and load the instrumented kernels of a plan."""
    return CheckedProgram(plan, load_kernels(plan, is_checked=True).steps)


class CheckedProgram:
    """A plan whose kernels are instrumented."""

    def __init__(self, plan: Plan, steps: Sequence[Kernel | LibraryStep]) -> None:
        self._plan, self._steps = plan, steps

    def __call__(self, operands: Sequence[Array], schedule: Schedule, shift: int = 0) -> None:
        """Run every step on private copies and copy the results back.

        Raises KernelError with all defects of the first step that has any, and leaves the operands unchanged;
        MemoryError if the checker would need more memory than is available.
        """
        extents = {name: _extent(array) for name, array in zip(self._plan.operands, operands, strict=True)}
        self._require_memory(extents)
        buffers = self._private_buffers(extents)
        of_name = {name: buffer for buffer in buffers for name in buffer.names}
        addresses = {
            name: of_name[name].start + array.__array_interface__["data"][0] - of_name[name].low
            for name, array in zip(self._plan.operands, operands, strict=True)
        }
        # The buffer is the whole array, wherever in it the pointer is.
        addresses[self._plan.operands[0]] += shift
        addresses |= {piece.name: of_name[piece.name].start for piece in self._plan.workspaces}
        table = BufferTable(tuple(addresses))
        for number, address in enumerate(addresses.values()):
            table.addresses[number] = address
        for step in self._steps:
            if isinstance(step, Kernel):
                self._run_kernel(step, table, buffers, schedule)
            else:
                self._run_library_step(step, of_name, addresses)
        self._require_zeros(of_name)
        for buffer in buffers:
            if buffer.is_output and buffer.num_bytes:
                library_steps.move(buffer.low, buffer.start, buffer.num_bytes)

    def _require_zeros(self, of_name: dict[str, _Buffer]) -> None:
        """Raise KernelError unless every workspace that must be left zero is zero."""
        reports = []
        for piece in self._plan.workspaces:
            if piece.is_left_zero and (places := np.flatnonzero(of_name[piece.name].contents)).size:
                where = f"{places.size} bytes of {piece.num_bytes}, the first at byte offset {places[0]}"
                reports.append(f"{piece.name} is not left zero: {where}")
        if reports:
            raise KernelError(reports)

    def _require_memory(self, extents: dict[str, tuple[int, int]]) -> None:
        buffers = [high - low for low, high in extents.values()]
        buffers += [piece.num_bytes for piece in self._plan.workspaces]
        shared = 0
        for step in self._plan.steps:
            if isinstance(step, KernelLaunch):
                all_live = step.cooperative or step.waits
                num_blocks = int(np.prod(step.grid)) if all_live else step.cluster_blocks
                shared = max(shared, num_blocks * step.shared_bytes)
        needed = (sum(buffers) + shared) * _BYTES_PER_BYTE
        available = _available_bytes()
        if available is not None and needed > available:
            raise MemoryError(
                f"check mode needs up to {needed / 2**30:.2f} GiB for {self._plan.operator}, "
                f"{available / 2**30:.2f} GiB are available; use smaller arrays"
            )

    def _private_buffers(self, extents: dict[str, tuple[int, int]]) -> list[_Buffer]:
        """A copy for each group of overlapping operands, and memory for each workspace."""
        plan = self._plan
        groups: list[tuple[int, int, list[str]]] = []
        for name, (low, high) in sorted(extents.items(), key=lambda item: item[1]):
            if groups and low < groups[-1][1]:
                first, end, names = groups[-1]
                groups[-1] = (first, max(end, high), [*names, name])
            else:
                groups.append((low, high, [name]))
        buffers = []
        for low, high, names in groups:
            is_output = not plan.outputs or any(name in plan.outputs for name in names)
            starts_empty = bool(plan.outputs) and all(name in plan.outputs for name in names)
            buffer = _new_buffer(names, low, high, is_output, starts_empty)
            if buffer.num_bytes:
                library_steps.move(buffer.start, low, buffer.num_bytes)
            buffers.append(buffer)
        for piece in plan.workspaces:
            buffer = _new_buffer([piece.name], 0, piece.num_bytes, False, not piece.is_left_zero)
            buffer.is_writable = True
            if piece.is_left_zero:
                buffer.contents[...] = 0
            buffers.append(buffer)
        return buffers

    def _run_kernel(
        self, kernel: Kernel, table: BufferTable, buffers: list[_Buffer], schedule: Schedule
    ) -> None:
        names = [", ".join(buffer.names).encode() for buffer in buffers]
        waits = WaitReports(kernel.launch) if kernel.launch.waits else None
        own = [] if waits is None else waits.regions()
        regions = (Region * max(len(buffers) + len(own), 1))(
            *(
                Region(
                    start=buffer.start,
                    bytes=buffer.num_bytes,
                    name=name,
                    initialised=None if buffer.initialised is None else buffer.initialised.ctypes.data,
                    writable=buffer.is_writable,
                )
                for buffer, name in zip(buffers, names, strict=True)
            ),
            *own,
        )
        report = meter.current()
        check = Check(
            regions=ctypes.cast(regions, ctypes.POINTER(Region)),
            num_regions=len(buffers) + len(own),
            use_meter=report is not None,
        )
        kernel.prepared(table, schedule, check, waits)()
        if report is not None:
            report.add(kernel.launch, [buffer.names for buffer in buffers], regions, check)

    def _run_library_step(
        self, step: LibraryStep, of_name: dict[str, _Buffer], addresses: dict[str, int]
    ) -> None:
        reports = []
        for name, offset, num_bytes, is_write in library_steps.accesses(step):
            buffer = of_name[name]
            first = addresses[name] - buffer.start + offset
            if first < 0 or first + num_bytes > buffer.num_bytes:
                reports.append(
                    f"{step}: {num_bytes} bytes at offset {first} of {name}, which has {buffer.num_bytes}"
                )
            elif buffer.initialised is not None:
                piece = buffer.initialised[first : first + num_bytes]
                if is_write:
                    piece[:] = 1
                elif not piece.all():
                    where = first + int(np.argmin(piece))
                    reports.append(
                        f"{step}: read of memory that was never written; byte offset {where} of {name}"
                    )
        if reports:
            raise KernelError(reports)
        library_steps.prepare(step)(addresses)


def _new_buffer(names: list[str], low: int, high: int, is_output: bool, starts_empty: bool) -> _Buffer:
    """Memory between padding, at the same offset modulo WORKSPACE_ALIGNMENT as the original."""
    num_bytes = high - low
    memory: Any = np.empty(num_bytes + 2 * _PADDING + WORKSPACE_ALIGNMENT, np.uint8)
    first = memory.ctypes.data + _PADDING
    start = first + (low - first) % WORKSPACE_ALIGNMENT
    initialised = np.zeros(num_bytes, np.uint8) if starts_empty else None
    return _Buffer(names, low, high, is_output, is_output, memory, start, initialised)
