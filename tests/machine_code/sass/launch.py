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
from tests.machine_code.sass.encoding import PIPES, Range, Rates, Request, Totals
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
    """Global memory of a launch: a C-contiguous array at its own address.

    Kernels may write it if it `is_output`; `written` counts the plain stores to each byte.
    """

    def __init__(self, array: np.ndarray, *, is_output: bool = False) -> None:
        self.array, self.address = array, int(array.ctypes.data)
        self.written = zeros(array.nbytes) if is_output else None


@dataclass(frozen=True)
class Launch:
    """A kernel's launch with its parameters as they are packed.

    A multiprocessor holds `resident_blocks` at once. So many neighbours, `joint_blocks`, wait for each other
    or go on with what others left: none of them can be run without the rest.
    """

    code: Code
    arguments: bytes
    buffers: Sequence[Buffer]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster_blocks: int = 1
    resident_blocks: int = 1
    joint_blocks: int = 1

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True)
class Counts:
    """The execution of a launch's blocks: how many warps executed each instruction, and `Totals`."""

    executed: np.ndarray
    num_blocks: int
    totals: Totals

    def of_pipe(self, pipe: str) -> int:
        """Warp instructions that went through a pipe."""
        return int(self.totals.pipe_instructions[PIPES.index(pipe)])


def run(
    launch: Launch,
    blocks: Sequence[int] | None = None,
    *,
    num_multiprocessors: int = 1,
    rates: Rates | None = None,
    max_instructions: int = _MAX_INSTRUCTIONS,
) -> Counts:
    """Run blocks of a launch by their numbers, whole clusters; None is all.

    Raises
    ------
    MachineError
        An access out of the buffers or not aligned, a register that nobody wrote, threads that wait for
        ever, an instruction in a form that is not known.
    """
    chosen = np.array(range(launch.num_blocks) if blocks is None else blocks, np.uint32)
    bank = struct.pack("<6I", *launch.block, *launch.grid).ljust(_ARGUMENTS, b"\0") + launch.arguments
    texts = [text.encode() for text in launch.code.texts]
    ranges = [
        Range(b.address, b.array.nbytes, None if b.written is None else b.written.ctypes.data)
        for b in launch.buffers
    ]
    executed = np.zeros(len(texts), np.uint64)
    rates, totals, error = rates or h200(), Totals(), ctypes.create_string_buffer(_ERROR_BYTES)
    text_array, range_array = (ctypes.c_char_p * len(texts))(*texts), (Range * len(ranges))(*ranges)
    request = Request(
        code=ctypes.addressof(launch.code.instructions),
        texts=ctypes.addressof(text_array),
        num_instructions=len(texts),
        grid=launch.grid,
        block=launch.block,
        cluster_blocks=launch.cluster_blocks,
        shared_bytes=launch.shared_bytes,
        ranges=ctypes.addressof(range_array),
        num_ranges=len(ranges),
        blocks=chosen.ctypes.data,
        num_blocks=chosen.size,
        num_multiprocessors=num_multiprocessors,
        resident_blocks=launch.resident_blocks,
        max_instructions=max_instructions,
        rates=ctypes.addressof(rates),
        executed=executed.ctypes.data,
        totals=ctypes.addressof(totals),
        error=ctypes.addressof(error),
        error_bytes=_ERROR_BYTES,
    )
    constants = {0: bank + bytes(-len(bank) % 16), **launch.code.constants}
    for number, data in constants.items():
        request.constants[number] = ctypes.cast(data, ctypes.c_void_p).value
        request.constant_bytes[number] = len(data)
    if machine.library().sass_run(ctypes.byref(request)):
        raise MachineError(error.value.decode())
    return Counts(executed, chosen.size, totals)
