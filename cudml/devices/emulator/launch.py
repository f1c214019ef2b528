"""Call a compiled kernel: its arguments, the launch structure, the error text."""

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

from cudml.devices import sources
from cudml.devices.emulator import build, symbols
from cudml.devices.emulator.schedule import ORDERS, Schedule
from cudml.devices.emulator.structures import Check, Dim, Launch
from cudml.errors import KernelError
from cudml.plans import KernelLaunch

_ERROR_BYTES = 65536

#: Separates the reports of one launch in its error text.
_REPORT_SEPARATOR = "\f"


@cache
def _load_runtime(path: Path) -> ctypes.CDLL:
    """Modules find the runtime by its soname once it is loaded."""
    return ctypes.CDLL(str(path))


class Kernel:
    """A launch of a plan, compiled and loaded, with its arguments laid out.

    `pointers` is the array that the caller fills with the address of each buffer before `run`; one
    caller at a time. A checked kernel is instrumented, and needs the `check` of each run.
    """

    def __init__(self, launch: KernelLaunch, *, is_checked: bool = False) -> None:
        _load_runtime(build.runtime(is_checked=is_checked))
        self._module = build.module(launch.source, launch.name_expression, is_checked=is_checked)
        library = ctypes.CDLL(str(self._module))
        self._function = library.simt_kernel
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._function.restype = ctypes.c_int
        self.launch = launch
        self._is_checked = is_checked
        num_buffers = len(launch.buffers)
        self.pointers = (ctypes.c_uint64 * max(num_buffers, 1))()
        self._params = ctypes.create_string_buffer(launch.params.pack())
        self._check_arguments(library)
        addresses = [ctypes.addressof(self.pointers) + 8 * i for i in range(num_buffers)]
        self._arguments = (ctypes.c_void_p * (num_buffers + 1))(*addresses, ctypes.addressof(self._params))
        self._arguments_address = ctypes.addressof(self._arguments)
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._structures: dict[Schedule, tuple[Launch, int]] = {}

    def _check_arguments(self, library: ctypes.CDLL) -> None:
        """Compare what the plan passes with what the kernel takes."""
        sizes = ctypes.POINTER(ctypes.c_ulonglong).in_dll(library, "simt_argument_bytes")
        taken: list[int] = []
        while sizes[len(taken)]:
            taken.append(sizes[len(taken)])
        params_bytes = len(self.launch.params.pack())
        passed = [8] * len(self.launch.buffers) + ([params_bytes] if params_bytes else [])
        if taken != passed:
            raise KernelError(
                [
                    f"{self.launch.source} {self.launch.name_expression} takes arguments of {taken} bytes, "
                    f"the plan passes {passed}: {self.launch}"
                ]
            )

    def run(self, schedule: Schedule, check: Check | None = None) -> None:
        """Run all blocks; raise KernelError where one goes wrong."""
        prepared = self._structures.get(schedule)
        if prepared is None:
            structure = self._structure(schedule)
            prepared = self._structures[schedule] = (structure, ctypes.addressof(structure))
        if check is not None:
            prepared[0].check = ctypes.pointer(check)
        if self._function(prepared[1], self._arguments_address):
            text = self._error.value.decode(errors="replace").replace(f"{sources.kernel_root()}/", "")
            raise KernelError(symbols.with_lines(text, self._module).split(_REPORT_SEPARATOR))

    def _structure(self, schedule: Schedule) -> Launch:
        launch = self.launch
        if self._is_checked:
            # The checker has one state for all blocks, and instrumented code needs larger frames.
            schedule = replace(schedule, workers=1, check=True, stack_kib=schedule.stack_kib or 256)
        return Launch(
            grid=Dim(*launch.grid),
            block=Dim(*launch.block),
            cluster_blocks=launch.cluster_blocks,
            shared_bytes=launch.shared_bytes,
            cooperative=launch.cooperative,
            workers=schedule.num_workers,
            order=ORDERS.index(schedule.order),
            strict=schedule.is_strict,
            guard=schedule.guard,
            use_poison=schedule.poison is not None,
            poison=schedule.poison or 0,
            stack_kib=schedule.stack_kib,
            seed=schedule.seed & 0xFFFFFFFFFFFFFFFF,
            time_limit=schedule.time_limit,
            error=ctypes.cast(self._error, ctypes.c_char_p),
            error_capacity=_ERROR_BYTES,
        )
