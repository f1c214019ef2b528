"""Modules and kernels: what a driver checks of a launch, and its execution as machine code."""

import ctypes
import hashlib
import math
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cudml.settings import cache_dir
from proof.sass import cubin, machine
from proof.sass.decode import Code as MachineCode
from proof.sass.decode import decode
from proof.sass.disassembly import disassembler_version
from proof.sass.encoding import Instruction
from proof.sass.launch import Launch, run
from proof.sass.plan import HOPPER
from proof.sass.rates import CLOCK_HZ
from proof.stand_in.errors import Code, CudaFailure, TooLargeError, UnknownCallError
from proof.stand_in.memory import Memory

#: Blocks of a grid along x, y and z, and threads of a block.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024

#: Shared storage of a block without `MAX_DYNAMIC_SHARED_SIZE_BYTES`.
DEFAULT_SHARED_BYTES = 48 << 10
PORTABLE_CLUSTER_BLOCKS, MAX_CLUSTER_BLOCKS = 8, 16

# Values of `CUfunction_attribute`.
_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES, _CONST_SIZE_BYTES, _LOCAL_SIZE_BYTES, _NUM_REGS = range(5)
_PTX_VERSION, _BINARY_VERSION = 5, 6
_MAX_DYNAMIC_SHARED_SIZE_BYTES, _PREFERRED_SHARED_MEMORY_CARVEOUT = 8, 9
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14

#: The machine keeps the registers of all blocks that it was given, 300 KB each.
_MAX_BLOCKS_AT_ONCE = 512

_PARAMETER_POINTER = ctypes.POINTER(ctypes.c_void_p)


@dataclass(eq=False)
class Function:
    """A kernel of a loaded module, on the GPU of the module."""

    name: str
    device: int
    facts: cubin.Kernel
    code: MachineCode
    max_dynamic_shared: int = DEFAULT_SHARED_BYTES
    allows_any_cluster: bool = False
    is_loaded: bool = True

    @property
    def max_threads(self) -> int:
        """Threads of a block that its registers and its launch bounds allow."""
        fits = next(
            t for t in range(MAX_THREADS, 0, -32) if HOPPER.resident_blocks(self.facts.registers, t, 0)
        )
        return min(fits, self.facts.max_threads or fits)

    def resident_blocks(self, num_threads: int, shared_bytes: int) -> int:
        """Blocks that a multiprocessor holds at once."""
        return HOPPER.resident_blocks(
            self.facts.registers, num_threads, self.facts.shared_bytes + shared_bytes
        )

    def cooperative_blocks(self, num_threads: int, shared_bytes: int, most: int | None) -> int:
        """The same for a cooperative grid, which may have less room."""
        resident = self.resident_blocks(num_threads, shared_bytes)
        return resident if most is None else min(most, resident)

    def active_clusters(self, num_threads: int, shared_bytes: int, gpcs: Sequence[int]) -> int:
        """Clusters that run at once; `gpcs` has the multiprocessors of each part that clusters lie within.

        Raises CudaFailure if they are larger than the kernel's attribute allows.
        """
        blocks = math.prod(self.facts.cluster)
        most = MAX_CLUSTER_BLOCKS if self.allows_any_cluster else PORTABLE_CLUSTER_BLOCKS
        if blocks > most:
            raise CudaFailure(Code.INVALID_CLUSTER_SIZE, f"clusters of {blocks} blocks, {most} is the most")
        resident = self.resident_blocks(num_threads, shared_bytes)
        return sum(size * resident // blocks for size in gpcs)

    def attribute(self, number: int) -> int:
        known = {
            _MAX_THREADS_PER_BLOCK: self.max_threads,
            _SHARED_SIZE_BYTES: self.facts.shared_bytes,
            _LOCAL_SIZE_BYTES: self.facts.stack_bytes,
            _NUM_REGS: self.facts.registers,
            _PTX_VERSION: HOPPER.number,
            _BINARY_VERSION: HOPPER.number,
            _MAX_DYNAMIC_SHARED_SIZE_BYTES: self.max_dynamic_shared,
        }
        if number not in known:
            raise UnknownCallError("cuFuncGetAttribute", f"attribute {number}")
        return known[number]

    def set_attribute(self, number: int, value: int) -> None:
        if number == _MAX_DYNAMIC_SHARED_SIZE_BYTES:
            most = HOPPER.shared_bytes_per_block - self.facts.shared_bytes
            if not 0 <= value <= most:
                raise CudaFailure(
                    Code.INVALID_VALUE, f"{value} bytes of dynamic shared storage, {most} is the most"
                )
            self.max_dynamic_shared = value
        elif number == _NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            self.allows_any_cluster = bool(value)
        elif number != _PREFERRED_SHARED_MEMORY_CARVEOUT:
            raise UnknownCallError("cuFuncSetAttribute", f"attribute {number}")


@dataclass(eq=False)
class Module:
    """A loaded cubin."""

    device: int
    kernels: dict[str, cubin.Kernel]
    codes: dict[str, MachineCode]
    functions: dict[str, Function] = field(default_factory=dict)

    def function(self, name: str) -> Function:
        if name not in self.kernels:
            raise CudaFailure(Code.NOT_FOUND, f"the module has no kernel {name}")
        if name not in self.functions:
            self.functions[name] = Function(name, self.device, self.kernels[name], self.codes[name])
        return self.functions[name]


def loaded(image: bytes, device: int) -> Module:
    """The module of a cubin; raises CudaFailure for what a driver cannot load."""
    if image[:4] != b"\x7fELF":
        if image.lstrip()[:2] == b"//" or b".version" in image[:4096]:
            raise UnknownCallError("cuModuleLoadData", "of PTX")
        raise CudaFailure(Code.INVALID_IMAGE, "not a cubin")
    number = cubin.architecture_of(image)
    if number != HOPPER.number:
        raise CudaFailure(Code.NO_BINARY_FOR_GPU, f"a cubin for sm_{number} on a GPU of sm_{HOPPER.number}")
    return Module(device, cubin.kernels_of(image), _decoded(image))


def _decoded(image: bytes) -> dict[str, MachineCode]:
    """`decode`, kept on disk, because the disassembler takes a second."""
    made_by = (machine.build().name, disassembler_version(), ctypes.sizeof(Instruction))
    key = hashlib.sha256(image + repr(made_by).encode()).hexdigest()
    path = cache_dir() / "machine-code" / f"{key}.decoded"
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        kept = pickle.loads(path.read_bytes())
        return {
            name: MachineCode(
                (Instruction * (len(data) // ctypes.sizeof(Instruction))).from_buffer_copy(data), *rest
            )
            for name, (data, *rest) in kept.items()
        }
    found = decode(image)
    kept = {
        name: (
            bytes(code.instructions),
            *[getattr(code, part) for part in list(code.__dataclass_fields__)[1:]],
        )
        for name, code in found.items()
    }
    own = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(pickle.dumps(kept))
        os.replace(own, path)
    return found


@dataclass(frozen=True)
class Request:
    """A launch as it was asked for, with its packed arguments."""

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: bytes
    is_cooperative: bool

    @property
    def num_blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def cluster_blocks(self) -> int:
        return math.prod(self.function.facts.cluster)

    def check(self, gpcs: Sequence[int], cooperative_blocks: int | None) -> None:
        """Raise CudaFailure for a launch that a driver refuses; the arguments are as in `Settings`."""
        function, threads = self.function, math.prod(self.block)
        if not all(1 <= size <= most for size, most in zip(self.grid, MAX_GRID, strict=True)):
            raise CudaFailure(
                Code.INVALID_VALUE, f"a grid of {self.grid} blocks, 1 to {MAX_GRID} are allowed"
            )
        if not all(1 <= size <= most for size, most in zip(self.block, MAX_BLOCK, strict=True)):
            raise CudaFailure(
                Code.INVALID_VALUE, f"a block of {self.block} threads, 1 to {MAX_BLOCK} are allowed"
            )
        if threads > MAX_THREADS:
            raise CudaFailure(Code.INVALID_VALUE, f"a block of {threads} threads, {MAX_THREADS} is the most")
        if self.shared_bytes > function.max_dynamic_shared:
            raise CudaFailure(
                Code.INVALID_VALUE,
                f"{self.shared_bytes} bytes of shared storage, the kernel's attribute allows "
                f"{function.max_dynamic_shared}",
            )
        if threads > function.max_threads:
            raise CudaFailure(
                Code.LAUNCH_OUT_OF_RESOURCES,
                f"a block of {threads} threads, the kernel allows {function.max_threads}",
            )
        if not function.resident_blocks(threads, self.shared_bytes):
            raise CudaFailure(Code.LAUNCH_OUT_OF_RESOURCES, "no block fits on a multiprocessor")
        self._check_cluster(threads, gpcs)
        if self.is_cooperative:
            fits = sum(gpcs) * function.cooperative_blocks(threads, self.shared_bytes, cooperative_blocks)
            if self.num_blocks > fits:
                raise CudaFailure(
                    Code.COOPERATIVE_LAUNCH_TOO_LARGE,
                    f"a cooperative grid of {self.num_blocks} blocks, {fits} fit",
                )

    def _check_cluster(self, num_threads: int, gpcs: Sequence[int]) -> None:
        cluster = self.function.facts.cluster
        if not self.function.active_clusters(num_threads, self.shared_bytes, gpcs):
            size = self.cluster_blocks
            raise CudaFailure(
                Code.INVALID_CLUSTER_SIZE, f"clusters of {size} blocks, no part of the GPU has room for one"
            )
        if any(size % part for size, part in zip(self.grid, cluster, strict=True)):
            raise CudaFailure(
                Code.INVALID_VALUE, f"a grid of {self.grid} blocks is not made of clusters of {cluster}"
            )
        if cluster[1:] != (1, 1):
            raise UnknownCallError("cuLaunchKernel", f"clusters of {cluster} blocks")

    def launch(self, memory: Memory, devices: set[int]) -> Launch:
        """The launch for the machine, on the memory that a GPU can use."""
        function = self.function
        return Launch(
            function.code,
            self.arguments,
            [allocation.buffer for allocation in memory.of_devices(devices) if allocation.num_bytes],
            self.grid,
            self.block,
            self.shared_bytes,
            self.cluster_blocks,
            function.resident_blocks(math.prod(self.block), self.shared_bytes),
        )

    def execute(self, launch: Launch, max_instructions: int, num_late: int = 0) -> Iterator[float]:
        """Run the launch in parts, between which other work may be done; yields the seconds of each.

        A grid of several clusters has two parts at least. A cooperative grid is one part; if its last blocks
        are late, they are another: the first blocks then wait for them until they give up. Raises
        TooLargeError if all parts together execute more instructions of warps.
        """
        blocks, multiprocessors = range(self.num_blocks), 1
        if self.is_cooperative:
            multiprocessors = -(-self.num_blocks // launch.resident_blocks)
            size = self.num_blocks - num_late
        else:
            clusters = self.num_blocks // self.cluster_blocks
            size = min(-(-clusters // 2), _MAX_BLOCKS_AT_ONCE // self.cluster_blocks) * self.cluster_blocks
        for first in range(0, self.num_blocks, size):
            counts = run(launch, blocks[first : first + size], num_multiprocessors=multiprocessors)
            max_instructions -= counts.totals.instructions
            if max_instructions < 0:
                raise TooLargeError(f"{self.function.name} on a grid of {self.grid} blocks")
            yield counts.totals.clocks / CLOCK_HZ


def packed_arguments(function: Function, parameters: int) -> bytes:
    """The arguments of a launch, read from an array of pointers with the sizes that the cubin has."""
    if not function.facts.parameters:
        return b""
    if not parameters:
        raise CudaFailure(Code.INVALID_VALUE, "a kernel with parameters is launched without arguments")
    packed = bytearray()
    pointers = ctypes.cast(parameters, _PARAMETER_POINTER)
    for number, (offset, size) in enumerate(function.facts.parameters):
        address = pointers[number]
        if not address:
            raise CudaFailure(Code.INVALID_VALUE, f"argument {number} of {function.name} is missing")
        packed += bytes(offset - len(packed)) + ctypes.string_at(address, size)
    return bytes(packed)
