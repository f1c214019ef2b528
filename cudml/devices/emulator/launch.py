"""Call a compiled kernel: the launch structure, the arguments, the error text."""

import ctypes
from functools import cache
from pathlib import Path

from cudml.devices import sources
from cudml.devices.emulator import build
from cudml.devices.emulator.schedule import ORDERS, Schedule
from cudml.errors import KernelError
from cudml.plans import KernelLaunch

_ERROR_BYTES = 16384


class _Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _LaunchStructure(ctypes.Structure):
    """SimtLaunch of simt/interface.h."""

    _fields_ = [
        ("grid", _Dim),
        ("block", _Dim),
        ("cluster_blocks", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("order", ctypes.c_uint),
        ("strict", ctypes.c_uint),
        ("guard", ctypes.c_uint),
        ("use_poison", ctypes.c_uint),
        ("poison", ctypes.c_uint),
        ("stack_kib", ctypes.c_uint),
        ("seed", ctypes.c_ulonglong),
        ("time_limit", ctypes.c_double),
        ("error", ctypes.c_char_p),
        ("error_capacity", ctypes.c_ulonglong),
    ]


@cache
def _load_runtime(path: Path) -> ctypes.CDLL:
    """Modules find the runtime by its soname once it is loaded."""
    return ctypes.CDLL(str(path))


class Kernel:
    """A launch of a plan, compiled and loaded, with its arguments laid out.

    `pointers` is the array that the caller fills with the address of each buffer before `run`; one
    caller at a time.
    """

    def __init__(self, launch: KernelLaunch) -> None:
        _load_runtime(build.runtime())
        library = ctypes.CDLL(str(build.module(launch.source, launch.name_expression)))
        self._function = library.simt_kernel
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._function.restype = ctypes.c_int
        self._launch = launch
        num_buffers = len(launch.buffers)
        self.pointers = (ctypes.c_uint64 * max(num_buffers, 1))()
        self._params = ctypes.create_string_buffer(launch.params.pack())
        self._check_arguments(library)
        addresses = [ctypes.addressof(self.pointers) + 8 * i for i in range(num_buffers)]
        self._arguments = (ctypes.c_void_p * (num_buffers + 1))(*addresses, ctypes.addressof(self._params))
        self._arguments_address = ctypes.addressof(self._arguments)
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._structures: dict[Schedule, tuple[_LaunchStructure, int]] = {}

    def _check_arguments(self, library: ctypes.CDLL) -> None:
        """Compare what the plan passes with what the kernel takes."""
        sizes = ctypes.POINTER(ctypes.c_ulonglong).in_dll(library, "simt_argument_bytes")
        taken: list[int] = []
        while sizes[len(taken)]:
            taken.append(sizes[len(taken)])
        params_bytes = len(self._launch.params.pack())
        passed = [8] * len(self._launch.buffers) + ([params_bytes] if params_bytes else [])
        if taken != passed:
            raise KernelError(
                [
                    f"{self._launch.source} {self._launch.name_expression} takes arguments of {taken} bytes, "
                    f"the plan passes {passed}: {self._launch}"
                ]
            )

    def run(self, schedule: Schedule) -> None:
        """Run all blocks; raise KernelError where one goes wrong."""
        prepared = self._structures.get(schedule)
        if prepared is None:
            structure = self._structure(schedule)
            prepared = self._structures[schedule] = (structure, ctypes.addressof(structure))
        if self._function(prepared[1], self._arguments_address):
            text = self._error.value.decode(errors="replace")
            raise KernelError([text.replace(f"{sources.kernel_root()}/", "")])

    def _structure(self, schedule: Schedule) -> _LaunchStructure:
        launch = self._launch
        return _LaunchStructure(
            grid=_Dim(*launch.grid),
            block=_Dim(*launch.block),
            cluster_blocks=launch.cluster_blocks,
            shared_bytes=launch.shared_bytes,
            cooperative=launch.cooperative,
            workers=schedule.num_workers,
            order=ORDERS.index(schedule.order),
            strict=schedule.strict,
            guard=schedule.guard,
            use_poison=schedule.poison is not None,
            poison=schedule.poison or 0,
            stack_kib=schedule.stack_kib,
            seed=schedule.seed & 0xFFFFFFFFFFFFFFFF,
            time_limit=schedule.time_limit,
            error=ctypes.cast(self._error, ctypes.c_char_p),
            error_capacity=_ERROR_BYTES,
        )
