"""What kernels report of waits that they gave up, and the error that is made of it."""

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
    """Make a report empty, with the limit of now; `any_address` is of the word for all kernels."""
    report.any = any_address
    report.limit_ticks = min(math.ceil(settings.wait_limit() * _TICKS_PER_SECOND), _MAX_TICKS)
    report.wait = 0


def text_of(report: WaitReport, launch: KernelLaunch) -> str:
    """What the report says: which kernel, which block, what it waited for."""
    seconds = report.limit_ticks / _TICKS_PER_SECOND
    return (
        f"{launch.source} {launch.name_expression}: block {report.block} of {math.prod(launch.grid)} waited "
        f"{seconds:.3g} s (CUDML_WAIT_LIMIT) for {launch.waits[report.wait - 1]} and gave up; what the call "
        "computed is not valid"
    )


def raise_reported(reports: "list[tuple[KernelLaunch, WaitReport]]") -> None:
    """Raise KernelError with all that is reported, and make the reports empty."""
    texts = []
    for launch, report in reports:
        if report.wait:
            texts.append(text_of(report, launch))
            report.wait = 0
    if texts:
        raise KernelError(texts)
