"""Where the kernels of one GPU report the waits that they gave up.

The reports are in pinned memory, which every GPU of the process sees at the address that the host sees it
at. So the host looks at them without asking the driver anything: each call reads one word before it
launches. An error comes to light with the first call on that GPU after the kernel has ended, whether the
kernel was launched by a call or by the replay of a graph.
"""

import ctypes
from typing import Any

from cudml.devices import waits
from cudml.devices.locks import Lock
from cudml.plans import KernelLaunch

_PAGE_BYTES = 4096

#: In front of the first page's reports: the word for all kernels.
_WORD_BYTES = 64


class WaitReports:
    """One report for each kernel instance that waits.

    They live as long as the process, because graphs keep kernels and replay them at any time.
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
        """The address of the report of a kernel instance; its limit is that of now."""
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
        """Raise KernelError with what is reported, once."""
        with self._lock.held():
            self.gave_up.value = 0
            waits.raise_reported(list(self._reports.values()))
