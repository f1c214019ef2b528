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
from tests.machine_code.sass.encoding import PIPES, Instruction, Launch, Range, Rates, Request, Totals
from tests.machine_code.sass.rates import h200

#: Where the constant bank of a launch has its sizes and, on sm_90, the arguments.
_ARGUMENTS = 0x210
_MAX_INSTRUCTIONS = 1 << 33
_ERROR_BYTES = 1024
_PAGE = 4096


class MachineError(RuntimeError):
    """What a kernel's machine code did wrong: the access, the instruction, its block and warp."""


def zeros(num_bytes: int) -> np.ndarray:
    """Bytes that take memory only where they are written, a small page at a time."""
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
    is_made : bool
        The contents are made page by page when they are first read, for arrays larger than memory.
    """

    def __init__(self, array: np.ndarray, *, is_output: bool = False, is_made: bool = False) -> None:
        self.array = array
        self.written = zeros(array.nbytes) if is_output else None
        self._filled = zeros(-(-array.nbytes // _PAGE)) if is_made else None

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(self.array.ctypes.data)

    def range(self) -> Range:
        """As the machine takes it."""

        def place(array: np.ndarray | None) -> int | None:
            return None if array is None else int(array.ctypes.data)

        return Range(self.address, self.array.nbytes, self.address, place(self.written), place(self._filled))


@dataclass(frozen=True)
class Counts:
    """What the blocks of a launch did.

    `executed` and `lanes` say of each instruction how many warps executed it, and how many of their lanes.
    The rest is of all of them: warp instructions, by pipe as well; sectors of 32 bytes asked of the
    first-level cache, the second and memory; wavefronts of shared storage; clocks of one multiprocessor.
    """

    executed: np.ndarray
    lanes: np.ndarray
    num_blocks: int
    clocks: int
    instructions: int
    pipe_instructions: dict[str, int]
    sectors_loaded: int
    sectors_stored: int
    l2_sectors_loaded: int
    l2_sectors_stored: int
    memory_sectors_loaded: int
    memory_sectors_stored: int
    bytes_loaded: int
    bytes_stored: int
    wavefronts: int
    barriers: int


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
    chosen = list(range(math.prod(grid)) if blocks is None else blocks)
    bank = bytearray(_ARGUMENTS) + arguments + bytes(-len(arguments) % 16)
    struct.pack_into("<6I", bank, 0, *block, *grid)
    launch = Launch((ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*block), cluster_blocks, shared_bytes)
    kept = []
    for number, data in {0: bytes(bank), **code.constants}.items():
        kept.append(ctypes.create_string_buffer(data, len(data)))
        launch.constants[number] = ctypes.cast(kept[-1], ctypes.c_char_p)
        launch.constant_bytes[number] = len(data)
    count = len(code.instructions)
    executed, lanes = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    totals, error = Totals(), ctypes.create_string_buffer(_ERROR_BYTES)
    counters = ctypes.POINTER(ctypes.c_uint64)
    request = Request(
        code=(Instruction * count)(*code.instructions),
        texts=(ctypes.c_char_p * count)(*(text.encode() for text in code.texts)),
        num_instructions=count,
        launch=launch,
        ranges=(Range * len(buffers))(*(buffer.range() for buffer in buffers)),
        num_ranges=len(buffers),
        blocks=(ctypes.c_uint32 * len(chosen))(*chosen),
        num_blocks=len(chosen),
        num_multiprocessors=num_multiprocessors,
        resident_blocks=resident_blocks,
        max_instructions=max_instructions,
        rates=ctypes.pointer(rates or h200()),
        executed=executed.ctypes.data_as(counters),
        lanes=lanes.ctypes.data_as(counters),
        totals=ctypes.pointer(totals),
        error=ctypes.cast(error, ctypes.c_char_p),
        error_bytes=_ERROR_BYTES,
    )
    if machine.library().sass_run(ctypes.byref(request)):
        raise MachineError(error.value.decode())
    named = {name: getattr(totals, name) for name, _ in Totals._fields_ if name != "lanes"}
    named["pipe_instructions"] = dict(zip(PIPES, totals.pipe_instructions, strict=True))
    return Counts(executed, lanes, len(chosen), **named)
