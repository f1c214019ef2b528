"""Run a launch of a kernel's machine code on NumPy memory, whole or some of its blocks."""

import ctypes
import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cudml.plans import round_up
from proof.sass import machine
from proof.sass.decode import Code
from proof.sass.encoding import PIPES, Issue, Range, Rates, Request, Totals
from proof.sass.rates import h200

#: Offsets in the constant bank of a launch: of the end of local memory and, on sm_90, of the arguments.
_STACK_TOP, _ARGUMENTS = 0x28, 0x210
_STACK_UNIT = 16
_MAX_INSTRUCTIONS = 1 << 33
_ERROR_BYTES = 1024
#: Instructions of a traced warp that are kept.
_MAX_ISSUES = 1 << 20


class MachineError(RuntimeError):
    """An error of a kernel's machine code: the access, the instruction, its block and warp."""


def zeros(num_bytes: int) -> np.ndarray:
    """Bytes that occupy memory only where they are written, in small pages."""
    pages = mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:num_bytes]


class Buffer:
    """Global memory of a launch: a C-contiguous array at its own address, or at one that kernels see.

    Kernels may write it if it `is_output` or if `written` is given, which counts the plain stores to each
    byte.
    """

    def __init__(
        self,
        array: np.ndarray,
        *,
        is_output: bool = False,
        address: int | None = None,
        written: np.ndarray | None = None,
    ) -> None:
        self.array = array
        self.address = int(array.ctypes.data) if address is None else address
        self.written = zeros(array.nbytes) if is_output and written is None else written


@dataclass(frozen=True)
class Launch:
    """A kernel's launch with its parameters as they are packed.

    A multiprocessor holds `resident_blocks` at once. `joint_blocks` neighbours wait for each other or go on
    with each other's work: none of them can be run without the rest. With `allows_undefined`, unwritten
    registers may be read and stored, as compilers do where the value does not matter. Earlier launches left
    the buffers `in_l2` in the second-level cache.
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
    allows_undefined: bool = False
    in_l2: Sequence[Buffer] = ()

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def bound(self) -> list[Buffer]:
        """The buffers into which an argument points."""
        words = np.frombuffer(self.arguments[: len(self.arguments) // 8 * 8], np.uint64).tolist()
        return [b for b in self.buffers if any(0 <= word - b.address < b.array.nbytes for word in words)]


@dataclass(frozen=True)
class Counts:
    """The execution of a launch's blocks: how many warps executed each instruction, and `Totals`.

    `issues` has a record with the fields of `Issue` for each instruction of the traced warp.
    """

    executed: np.ndarray
    num_blocks: int
    totals: Totals
    issues: np.ndarray

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
    traced: tuple[int, int] | None = None,
) -> Counts:
    """Run the blocks of a launch with these numbers, in whole clusters; None runs all blocks.

    `traced` is a block and one of its warps, by number, whose instructions are recorded.

    Raises
    ------
    MachineError
        An access out of the buffers or not aligned, a register that nobody wrote, threads that wait for
        ever, an instruction in a form that is not known.
    """
    chosen = np.array(range(launch.num_blocks) if blocks is None else blocks, np.uint32)
    sizes = struct.pack("<6I", *launch.block, *launch.grid).ljust(_STACK_TOP, b"\0")
    local_bytes = round_up(launch.code.stack_bytes, _STACK_UNIT)
    bank = (sizes + struct.pack("<I", local_bytes)).ljust(_ARGUMENTS, b"\0") + launch.arguments
    texts = [text.encode() for text in launch.code.texts]
    ranges = [
        Range(
            b.address,
            b.array.nbytes,
            b.array.ctypes.data,
            None if b.written is None else b.written.ctypes.data,
            b in launch.in_l2,
        )
        for b in launch.buffers
    ]
    executed = np.zeros(len(texts), np.uint64)
    rates, totals, error = rates or h200(), Totals(), ctypes.create_string_buffer(_ERROR_BYTES)
    issues, num_issues = np.zeros(_MAX_ISSUES if traced else 0, Issue), ctypes.c_uint64()
    traced_block, traced_warp = traced or (0, 0)
    text_array, range_array = (ctypes.c_char_p * len(texts))(*texts), (Range * len(ranges))(*ranges)
    request = Request(
        code=ctypes.addressof(launch.code.instructions),
        texts=ctypes.addressof(text_array),
        num_instructions=len(texts),
        grid=launch.grid,
        block=launch.block,
        cluster_blocks=launch.cluster_blocks,
        shared_bytes=launch.code.static_shared_bytes + launch.shared_bytes,
        local_bytes=local_bytes,
        allows_undefined=launch.allows_undefined,
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
        issues=issues.ctypes.data if traced else None,
        max_issues=issues.size,
        num_issues=ctypes.addressof(num_issues),
        traced_block=traced_block,
        traced_warp=traced_warp,
        error=ctypes.addressof(error),
        error_bytes=_ERROR_BYTES,
    )
    constants = {0: bank + bytes(-len(bank) % 16), **launch.code.constants}
    for number, data in constants.items():
        request.constants[number] = ctypes.cast(data, ctypes.c_void_p).value
        request.constant_bytes[number] = len(data)
    if machine.library().sass_run(ctypes.byref(request)):
        raise MachineError(error.value.decode())
    return Counts(executed, chosen.size, totals, issues[: num_issues.value])
