"""Call a compiled kernel: its arguments, the launch structure, the error text."""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

from cudml.devices import sources, waits
from cudml.devices.emulator import build, cache_files, symbols
from cudml.devices.emulator.schedule import ORDERS, Schedule
from cudml.devices.emulator.structures import Check, Dim, Launch, Region
from cudml.errors import CompilerError, KernelError
from cudml.plans import WAIT_REPORT, KernelLaunch

_ERROR_BYTES = 65536

#: Separates the reports of one launch in its error text.
_REPORT_SEPARATOR = "\f"


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        cache_files.discard(path)
        raise CompilerError(
            f"what was compiled cannot be loaded: {error}. Either the compiler (CUDML_CXX) is one for "
            "another machine, or the cache folder (CUDML_CACHE_DIR) is where nothing may be executed"
        ) from error


@cache
def _load_runtime(path: Path) -> ctypes.CDLL:
    """Modules find the runtime by its soname once it is loaded."""
    return _load(path)


def load_kernels(
    launches: Sequence[KernelLaunch], buffers: "BufferTable", *, is_checked: bool = False
) -> list["Kernel"]:
    """Compile and load kernels, those not in the cache at the same time."""
    try:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda launch: Kernel(launch, buffers, is_checked=is_checked), launches))
    finally:
        cache_files.folder.warn()


class BufferTable:
    """The addresses of a plan's buffers, in memory where kernels fetch their arguments.

    The caller fills `addresses`, in the order of the names, before it runs a kernel; one caller at a time.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        # The last one stays null: an absent buffer's.
        self.addresses = (ctypes.c_uint64 * (len(names) + 1))()

    def place(self, name: str | None) -> int:
        """Where the address of a buffer is."""
        number = len(self._numbers) if name is None else self._numbers[name]
        return ctypes.addressof(self.addresses) + 8 * number

    def by_name(self) -> dict[str, int]:
        """All addresses."""
        return {name: self.addresses[number] for name, number in self._numbers.items()}


class Kernel:
    """A launch of a plan, compiled and loaded, with its arguments laid out.

    A checked kernel is instrumented, and needs the `check` of each run.
    """

    def __init__(self, launch: KernelLaunch, buffers: BufferTable, *, is_checked: bool = False) -> None:
        _load_runtime(build.runtime(is_checked=is_checked))
        self._module = build.module(launch.source, launch.name_expression, is_checked=is_checked)
        library = _load(self._module)
        # No argtypes: every call passes the same two references, which need no conversion.
        self._function = library.simt_kernel
        self._function.restype = ctypes.c_int
        self.launch = launch
        self._is_checked = is_checked
        self._buffers = buffers  # kept alive: the arguments point into it
        self._params = ctypes.create_string_buffer(launch.params.pack())
        self._check_arguments(library)
        # The pointer to the report, where the kernel's argument is fetched.
        self.report, self._gave_up = waits.WaitReport(), ctypes.c_uint32()
        self._report_address = ctypes.c_uint64(ctypes.addressof(self.report))
        places = [
            ctypes.addressof(self._report_address) if name == WAIT_REPORT else buffers.place(name)
            for name in launch.buffers
        ]
        self._arguments = (ctypes.c_void_p * (len(places) + 1))(*places, ctypes.addressof(self._params))
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)

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

    def prepared(self, schedule: Schedule, check: Check | None = None) -> Callable[[], None]:
        """What runs all blocks by a schedule; it raises KernelError where one goes wrong."""
        structure = self._structure(schedule)
        if check is not None:
            structure.check = ctypes.pointer(check)
        function, launch, arguments = self._function, ctypes.byref(structure), ctypes.byref(self._arguments)

        def run() -> None:
            if function(launch, arguments):
                raise self._error_of_launch()

        if not self.launch.waits:
            return run
        waits.set_up(self.report, ctypes.addressof(self._gave_up))

        def run_with_waits() -> None:
            run()
            if self._gave_up.value:
                self._gave_up.value = 0
                waits.raise_reported([(self.launch, self.report)])

        return run_with_waits

    def own_regions(self) -> list[Region]:
        """The memory that the kernel may access beside its buffers."""
        if not self.launch.waits:
            return []
        parts = (self.report, self._gave_up)
        return [
            Region(
                start=ctypes.addressof(part),
                bytes=ctypes.sizeof(part),
                name=WAIT_REPORT.encode(),
                initialised=None,
                writable=True,
            )
            for part in parts
        ]

    def _error_of_launch(self) -> KernelError:
        text = self._error.value.decode(errors="replace").replace(f"{sources.kernel_root()}/", "")
        return KernelError(symbols.with_lines(text, self._module).split(_REPORT_SEPARATOR))

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
