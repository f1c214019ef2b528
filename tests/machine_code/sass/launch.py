"""Run a launch of a kernel's machine code on NumPy memory, whole or some of its blocks."""

import ctypes
import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.machine_code.sass import machine
from tests.machine_code.sass.decode import Code
from tests.machine_code.sass.encoding import PIPES, Launch, Range, Rates, Request, Totals
from tests.machine_code.sass.rates import h200

#: Where the constant bank of a launch has its sizes and, on sm_90, the arguments.
_ARGUMENTS = 0x210
_MAX_INSTRUCTIONS = 1 << 33
_ERROR_BYTES = 1024


class MachineError(RuntimeError):
    """An error of a kernel's machine code: the access, the instruction, its block and warp."""


def zeros(num_bytes: int) -> np.ndarray:
    """Bytes that occupy memory only where they are written, in small pages."""
    pages = mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:num_bytes]


class Buffer:
    """Global memory of a launch.

    Parameters
    ----------
    array : numpy.ndarray
        C-contiguous; its address is the buffer's.
    is_output : bool
        Whether kernels may write it. `written` counts the plain stores to each byte.
    """

    def __init__(self, array: np.ndarray, *, is_output: bool = False) -> None:
        self.array = array
        self.written = zeros(array.nbytes) if is_output else None

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(self.array.ctypes.data)

    def range(self) -> Range:
        """As the machine takes it."""
        written = None if self.written is None else self.written.ctypes.data
        return Range(self.address, self.array.nbytes, written)


@dataclass(frozen=True)
class Counts:
    """The execution of a launch's blocks.

    `executed` and `lanes` say of each instruction how many warps executed it, and how many of their lanes.
    The rest is of all of them, as `Totals` in `machine/encoding.h` says.
    """

    executed: np.ndarray
    lanes: np.ndarray
    num_blocks: int
    totals: Totals

    def of_pipe(self, pipe: str) -> int:
        """Warp instructions that went through a pipe."""
        return int(self.totals.pipe_instructions[PIPES.index(pipe)])


def run(
    code: Code,
    arguments: bytes,
    buffers: Sequence[Buffer],
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int = 0,
    cluster_blocks: int = 1,
    blocks: Sequence[int] | None = None,
    num_multiprocessors: int = 1,
    resident_blocks: int = 1,
    rates: Rates | None = None,
    max_instructions: int = _MAX_INSTRUCTIONS,
) -> Counts:
    """Run blocks of a launch.

    Parameters
    ----------
    arguments : bytes
        The kernel's parameters as they are packed.
    blocks : sequence of int, optional
        The numbers of the blocks to run, whole clusters; None is all.
    num_multiprocessors, resident_blocks : int
        How many there are, and how many blocks each holds at once. A cooperative launch needs room for all.

    Raises
    ------
    MachineError
        An access out of the buffers or not aligned, a register that nobody wrote, threads that wait for
        ever, an instruction in a form that is not known.
    """
    chosen = np.array(range(math.prod(grid)) if blocks is None else blocks, np.uint32)
    bank = bytearray(_ARGUMENTS) + arguments + bytes(-len(arguments) % 16)
    struct.pack_into("<6I", bank, 0, *block, *grid)
    launch = Launch(grid, block, cluster_blocks, shared_bytes)
    constants = {0: bytes(bank), **code.constants}
    for number, data in constants.items():
        launch.constants[number] = ctypes.cast(data, ctypes.c_void_p).value
        launch.constant_bytes[number] = len(data)
    count = len(code.instructions)
    texts = (ctypes.c_char_p * count)(*(text.encode() for text in code.texts))
    ranges = (Range * len(buffers))(*(buffer.range() for buffer in buffers))
    executed, lanes = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    rates, totals, error = rates or h200(), Totals(), ctypes.create_string_buffer(_ERROR_BYTES)
    request = Request(
        code=ctypes.addressof(code.instructions),
        texts=ctypes.addressof(texts),
        num_instructions=count,
        launch=launch,
        ranges=ctypes.addressof(ranges),
        num_ranges=len(buffers),
        blocks=chosen.ctypes.data,
        num_blocks=chosen.size,
        num_multiprocessors=num_multiprocessors,
        resident_blocks=resident_blocks,
        max_instructions=max_instructions,
        rates=ctypes.addressof(rates),
        executed=executed.ctypes.data,
        lanes=lanes.ctypes.data,
        totals=ctypes.addressof(totals),
        error=ctypes.addressof(error),
        error_bytes=_ERROR_BYTES,
    )
    if machine.library().sass_run(ctypes.byref(request)):
        raise MachineError(error.value.decode())
    return Counts(executed, lanes, chosen.size, totals)
