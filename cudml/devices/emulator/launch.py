"""Call compiled kernels: arguments, launch structure, error text."""

import ctypes
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cudml import locks
from cudml.devices import sources, waits
from cudml.devices.emulator import build, cache_files, library_steps, symbols
from cudml.devices.emulator.processes import build_together
from cudml.devices.emulator.schedule import ORDERS, Schedule
from cudml.devices.emulator.structures import Check, Dim, Launch, Region
from cudml.devices.interface import Array
from cudml.devices.shortcuts import address_of
from cudml.errors import CompilerError, KernelError
from cudml.plans import WAIT_REPORT, KernelLaunch, LibraryStep, Plan

#: SimtStatus of a launch that must be resumed or abandoned.
_PAUSED = 2

#: Separates the reports of a launch in its error text.
_REPORT_SEPARATOR = "\f"


@cache
def _load(path: Path) -> ctypes.CDLL:
    try:
        with locks.no_fork:
            return ctypes.CDLL(str(path))
    except OSError as error:
        cache_files.discard(path)
        raise CompilerError(
            f"a compiled kernel cannot be loaded: {error}. Either the compiler (CUDML_CXX) is for another "
            "machine, or the cache folder (CUDML_CACHE_DIR) is on a file system that forbids execution"
        ) from error


@cache
def _load_runtime(path: Path) -> ctypes.CDLL:
    """Modules find the runtime by its soname once it is loaded."""
    library = _load(path)
    library.simt_error.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True)
class _Loaded:
    """A kernel instance in this process: its module, the function in it, and the runtime."""

    module: Path
    function: Any
    runtime: ctypes.CDLL


#: Instances by `KernelLaunch.instance` and check mode. They stay loaded even if a source is edited.
_loaded: dict[Hashable, _Loaded] = {}


def _compile(launch: KernelLaunch, is_checked: bool) -> _Loaded:
    runtime = _load_runtime(build.runtime(is_checked=is_checked))
    module = build.module(launch, is_checked=is_checked)
    # No argtypes: every call passes the same two references, without conversion.
    function = _load(module).simt_kernel
    function.restype = ctypes.c_int
    return _Loaded(module, function, runtime)


def load_kernels(plan: Plan, *, is_checked: bool = False) -> "LoadedPlan":
    """Read a plan and load its kernels; kernels that are not cached are compiled concurrently."""
    launches, missing = [], {}
    for step in plan.steps:
        if isinstance(step, KernelLaunch):
            key = step.instance, is_checked
            launches.append((step, key, step.params.pack()))
            if key not in _loaded:
                missing[key] = step
    workspaces, zeros = plan.offsets(), plan.offsets(left_zero=True)
    workspace_bytes, zero_bytes = plan.temporary_bytes, plan.zero_bytes
    if missing:
        try:
            found = build_together(lambda launch: _compile(launch, is_checked), missing.values())
        finally:
            cache_files.folder.warn()
        _loaded.update(zip(missing, found, strict=True))
    kernels = iter([Kernel(launch, _loaded[key], is_checked, params) for launch, key, params in launches])
    steps = [next(kernels) if isinstance(step, KernelLaunch) else step for step in plan.steps]
    return LoadedPlan(steps, plan.operands, workspaces, zeros, workspace_bytes, zero_bytes)


class BufferTable:
    """The addresses of a plan's buffers, in memory from which kernels read their arguments.

    The caller fills `addresses`, in the order of the names, before it runs a kernel. A table is used by one
    call at a time.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        # The last address stays null, for absent buffers.
        self.addresses = (ctypes.c_uint64 * (len(names) + 1))()

    def place(self, name: str | None) -> int:
        """The address of a buffer's entry in the table."""
        number = len(self._numbers) if name is None else self._numbers[name]
        return ctypes.addressof(self.addresses) + 8 * number

    def by_name(self) -> dict[str, int]:
        """All addresses by buffer name."""
        return {name: self.addresses[number] for name, number in self._numbers.items()}


class WaitReports:
    """The wait report of a kernel, used by one call at a time, and the pointer to it, a kernel argument."""

    def __init__(self, launch: KernelLaunch) -> None:
        self._launch = launch
        self._report, self._gave_up = waits.WaitReport(), ctypes.c_uint32()
        self._address = ctypes.c_uint64(ctypes.addressof(self._report))
        waits.set_up(self._report, ctypes.addressof(self._gave_up))

    def place(self) -> int:
        """The address of the pointer."""
        return ctypes.addressof(self._address)

    def regions(self) -> list[Region]:
        """The memory that the kernel may access in addition to its buffers."""
        return [
            Region(
                start=ctypes.addressof(part),
                bytes=ctypes.sizeof(part),
                name=WAIT_REPORT.encode(),
                initialised=None,
                writable=True,
            )
            for part in (self._report, self._gave_up)
        ]

    def raise_after(self, run: Callable[[], None]) -> None:
        """Run, then raise KernelError if the kernel reported that it gave up a wait."""
        run()
        if self._gave_up.value:
            self._gave_up.value = 0
            waits.raise_reported([(self._launch, self._report)])


def _num_cores(schedule: Schedule) -> int:
    """Number of threads of the system that run blocks by default; one if the order must be repeatable."""
    return len(os.sched_getaffinity(0)) if schedule.order == "fast" and not schedule.check else 1


class Kernel:
    """A compiled and loaded launch of a plan.

    A checked kernel is instrumented and needs a `check` for each run.
    """

    def __init__(self, launch: KernelLaunch, loaded: _Loaded, is_checked: bool, params: bytes) -> None:
        self.launch = launch
        self._loaded = loaded
        self._is_checked = is_checked
        self._params = ctypes.create_string_buffer(params)

    def prepared(
        self,
        buffers: BufferTable,
        schedule: Schedule,
        check: Check | None = None,
        reports: "WaitReports | None" = None,
    ) -> Callable[[], None]:
        """A function that runs all blocks by a schedule, on the buffers of a table, for one call at a time.

        It raises KernelError if a block fails. In the main thread, a launch pauses ten times a second to let
        signal handlers run; if one raises an exception, the launch is stopped before the exception
        propagates.
        """
        structure = self._structure(schedule)
        if check is not None:
            structure.check = ctypes.pointer(check)
        if reports is None and self.launch.waits:
            reports = WaitReports(self.launch)
        places = [
            reports.place() if reports is not None and name == WAIT_REPORT else buffers.place(name)
            for name in self.launch.buffers
        ]
        table = (ctypes.c_void_p * (len(places) + 1))(*places, ctypes.addressof(self._params))
        function, runtime = self._loaded.function, self._loaded.runtime
        resume, abandon = runtime.simt_resume, runtime.simt_abandon
        launch, arguments = ctypes.byref(structure), ctypes.byref(table)

        def run() -> None:
            try:
                status = function(launch, arguments)
                while status == _PAUSED:
                    status = resume(launch)
            except BaseException:
                abandon(launch)
                raise
            if status:
                raise self._error_of_launch()

        return run if reports is None else lambda: reports.raise_after(run)

    def _error_of_launch(self) -> KernelError:
        told = self._loaded.runtime.simt_error().decode(errors="replace")
        text = told.replace(f"{sources.kernel_root()}/", "")
        return KernelError(symbols.with_lines(text, self._loaded.module).split(_REPORT_SEPARATOR))

    def _structure(self, schedule: Schedule) -> Launch:
        launch = self.launch
        if self._is_checked:
            # The checker has a single state for all blocks, and instrumented code needs larger frames.
            schedule = replace(schedule, workers=1, check=True, stack_kib=schedule.stack_kib or 256)
        return Launch(
            grid=Dim(*launch.grid),
            block=Dim(*launch.block),
            cluster_blocks=launch.cluster_blocks,
            shared_bytes=launch.shared_bytes,
            # Blocks that wait for others run beside them, as on a GPU.
            cooperative=launch.cooperative or bool(launch.waits),
            workers=schedule.workers or _num_cores(schedule),
            order=ORDERS.index(schedule.order),
            strict=schedule.is_strict,
            guard=schedule.guard,
            use_poison=schedule.poison is not None,
            poison=schedule.poison or 0,
            stack_kib=schedule.stack_kib,
            seed=schedule.seed & 0xFFFFFFFFFFFFFFFF,
            time_limit=schedule.seconds_without_progress,
        )


@dataclass(slots=True)
class PreparedSteps:
    """State of one call at a time: the addresses that its kernels read, the steps that use them, memory that
    these leave zero, and the number and the offset of each piece of a workspace."""

    schedule: Schedule
    addresses: ctypes.Array[ctypes.c_uint64]
    runs: tuple[Callable[[], None], ...]
    zeros: Array
    workspace_offsets: tuple[tuple[int, int], ...]
    workspace_bytes: int


@dataclass(slots=True)
class LoadedPlan:
    """The steps of a plan, kernels loaded, and the places of its buffers: calls do not read the plan again.

    `workspaces` and `zeros` are the plan's `offsets`, in scratch and in memory that is left zero.
    """

    steps: Sequence[Kernel | LibraryStep]
    operands: tuple[str, ...]
    workspaces: Mapping[str, int]
    zeros: Mapping[str, int]
    workspace_bytes: int
    zero_bytes: int

    def prepared(self, schedule: Schedule) -> PreparedSteps:
        """The steps, prepared to be run by a schedule, by one call at a time."""
        buffers = BufferTable((*self.operands, *self.workspaces, *self.zeros))
        first, zeros = len(self.operands), np.zeros(self.zero_bytes, np.uint8)
        for number, offset in enumerate(self.zeros.values(), first + len(self.workspaces)):
            buffers.addresses[number] = address_of(zeros) + offset
        runs = tuple(
            step.prepared(buffers, schedule) if isinstance(step, Kernel) else _library_run(step, buffers)
            for step in self.steps
        )
        workspaces = tuple(enumerate(self.workspaces.values(), first))
        return PreparedSteps(schedule, buffers.addresses, runs, zeros, workspaces, self.workspace_bytes)


def _library_run(step: LibraryStep, buffers: BufferTable) -> Callable[[], None]:
    run = library_steps.prepare(step)
    return lambda: run(buffers.by_name())
