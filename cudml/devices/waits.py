"""Reports of kernels that gave up waiting for other blocks, and the error raised for them."""

import ctypes
import math

from cudml import settings
from cudml.errors import KernelError
from cudml.plans import KernelLaunch

#: kernels/common/wait.cuh: a tick is 2^10 ns.
_TICKS_PER_SECOND = 1e9 / 1024
_MAX_TICKS = 2**32 - 1


class WaitReport(ctypes.Structure):
    """`WaitReport` of kernels/common/wait.cuh, member for member; `any` is the address of a word."""

    _fields_ = [
        ("any", ctypes.c_uint64),
        ("limit_ticks", ctypes.c_uint32),
        ("wait", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


def set_up(report: WaitReport, any_address: int) -> None:
    """Clear a report and set the current limit; `any_address` is the address of all kernels' shared word."""
    report.any = any_address
    report.limit_ticks = min(math.ceil(settings.wait_limit() * _TICKS_PER_SECOND), _MAX_TICKS)
    report.wait = 0


def text_of(report: WaitReport, launch: KernelLaunch) -> str:
    """The text of a report: which kernel, which block, and what it waited for."""
    seconds = report.limit_ticks / _TICKS_PER_SECOND
    return (
        f"{launch.source} {launch.name_expression}: block {report.block} of {math.prod(launch.grid)} waited "
        f"{seconds:.3g} s (CUDML_WAIT_LIMIT) for {launch.waits[report.wait - 1]} and gave up; what the call "
        "computed is not valid"
    )


def raise_reported(reports: "list[tuple[KernelLaunch, WaitReport]]") -> None:
    """Clear the reports and raise KernelError if any of them is set."""
    texts = []
    for launch, report in reports:
        if report.wait:
            texts.append(text_of(report, launch))
            report.wait = 0
    if texts:
        raise KernelError(texts)
