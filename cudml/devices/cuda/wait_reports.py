"""Reports of one GPU's kernels that gave up waiting for other blocks.

The reports are in pinned memory, at the same address on the host and on every GPU of the process. The host
can therefore read them without a driver call: each call reads one word before it launches. The first call on
that GPU after the kernel has ended raises the error, whether the kernel was launched by a call or by the
replay of a graph.
"""

import ctypes
from typing import Any

from cudml.devices import waits
from cudml.locks import Lock
from cudml.plans import KernelLaunch

_PAGE_BYTES = 4096

#: Space before the first page's reports, for the word shared by all kernels.
_WORD_BYTES = 64


class WaitReports:
    """One report per kernel instance that waits.

    Reports live as long as the process, because a graph may replay a kernel at any time.
    """

    def __init__(self, cupy: Any) -> None:
        self._allocate = cupy.cuda.alloc_pinned_memory
        self._lock = Lock()
        self._pages = [self._allocate(_PAGE_BYTES)]
        self._used = _WORD_BYTES
        self._reports: dict[tuple[str, str], tuple[KernelLaunch, waits.WaitReport]] = {}
        #: Not 0 once any kernel of the GPU has given up.
        self.gave_up = ctypes.c_uint32.from_address(self._pages[0].ptr)
        self.gave_up.value = 0

    def address_for(self, launch: KernelLaunch) -> int:
        """The address of a kernel instance's report, set up with the current limit on first use."""
        with self._lock.held():
            key = launch.source, launch.name_expression
            if key not in self._reports:
                self._reports[key] = launch, self._new_report()
            return ctypes.addressof(self._reports[key][1])

    def _new_report(self) -> waits.WaitReport:
        size = ctypes.sizeof(waits.WaitReport)
        if self._used + size > _PAGE_BYTES:
            self._pages.append(self._allocate(_PAGE_BYTES))
            self._used = 0
        report = waits.WaitReport.from_address(self._pages[-1].ptr + self._used)
        self._used += size
        waits.set_up(report, ctypes.addressof(self.gave_up))
        return report

    def raise_reported(self) -> None:
        """Raise KernelError once for all reports that are set."""
        with self._lock.held():
            self.gave_up.value = 0
            waits.raise_reported(list(self._reports.values()))
