"""Shared by the emulator's own tests: launching a test kernel under every thread order."""

from pathlib import Path
from typing import Any

import numpy as np

from cudml.devices import emulator
from cudml.plans import KernelLaunch, Params, Plan

KERNELS = Path(__file__).parent / "kernels"

#: Every thread order: the plain loop, both directions, three random ones.
EVERY_ORDER = (("fast", 0), ("forward", 0), ("reverse", 0), ("random", 1), ("random", 2), ("random", 3))


def launch(
    source: str | Path,
    function: str,
    buffers: dict[str, np.ndarray | None],
    params: Params,
    *,
    template: tuple[str | int | bool, ...] = (),
    grid: int | tuple[int, int, int] = 1,
    block: int | tuple[int, int, int] = 32,
    outputs: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """Run one kernel once under the current schedule.

    `source` is a file of `kernels/` or a path; `buffers` are the kernel's pointers in order;
    `options` are those of `KernelLaunch`.
    """
    names = tuple(name for name, array in buffers.items() if array is not None)
    step = KernelLaunch(
        source=str(KERNELS / source),
        function=function,
        template=template,
        grid=(grid, 1, 1) if isinstance(grid, int) else grid,
        block=(block, 1, 1) if isinstance(block, int) else block,
        buffers=tuple(name if array is not None else None for name, array in buffers.items()),
        params=params,
        **options,
    )
    program = emulator.get_device().load(Plan("test", names, (step,), outputs=outputs))
    program([buffers[name] for name in names], None)


def line_of(source: str | Path, text: str) -> str:
    """`file:line`, as messages end with, of the one line of a source that contains a text."""
    path = KERNELS / source
    found = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    assert len(found) == 1, f"{text!r} is in {len(found)} lines of {path.name}"
    return f"{path.name}:{found[0]}"
