"""Host code of a CUDA program over the stand-in: its memory, its kernels, and what it launches."""

import ctypes
import functools
import hashlib
import importlib.util
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, run
from typing import Any

import numpy as np

from cudml.devices.emulator.build import compiler
from cudml.errors import CompilerError
from cudml.plans import Copy, Fill
from cudml.settings import cache_dir
from proof.runtime.fat_binary import cubins
from proof.sass.architectures import REGISTERS_PER_MULTIPROCESSOR
from proof.sass.cubin import kernels_of
from proof.sass.decode import decode
from proof.sass.launch import Buffer, Launch, zeros
from proof.sass.plan import HOPPER, Kernel
from proof.sass.rates import H200, Gpu

_SOURCE = Path(__file__).with_name("runtime.cpp")
#: The version of each symbol, which programs ask for together with the library.
_VERSIONS = Path(__file__).with_name("runtime.map")
#: The name by which programs ask for the library; a library of this name that is loaded already serves them.
NAME = "libcudart.so.13"
_MAX_THREADS = 1024
#: The byte that fills memory nobody wrote.
_UNWRITTEN = 0xA5


class _Facts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in ("resident_blocks", "registers", "shared_bytes", "local_bytes", "max_threads")
    ]


def _values(gpu: Gpu) -> dict[str, int]:
    return {
        "capability": HOPPER.number,
        "multiprocessors": gpu.num_multiprocessors,
        "threads_per_multiprocessor": 32 * HOPPER.warps,
        "blocks_per_multiprocessor": HOPPER.blocks,
        "shared_bytes_per_block": HOPPER.shared_bytes_per_block,
        "shared_bytes_per_multiprocessor": HOPPER.shared_bytes,
        "reserved_shared_bytes": HOPPER.reserved_shared_bytes,
        "registers": REGISTERS_PER_MULTIPROCESSOR,
        "l2_bytes": HOPPER.l2_bytes,
        "clock_khz": int(gpu.clock_hz / 1e3),
    }


class _Device(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in _values(H200)]


_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_POINTERS = ctypes.POINTER(ctypes.c_void_p)


class _Host(ctypes.Structure):
    _fields_ = [
        (name, ctypes.CFUNCTYPE(ctypes.c_int, *parameters))
        for name, parameters in {
            "launch": (
                *(_TEXT, _POINTER, ctypes.POINTER(ctypes.c_uint * 6), _SIZE),
                *(ctypes.c_uint, ctypes.c_int, _POINTERS),
            ),
            "allocate": (_POINTERS, _SIZE),
            "release": (_POINTER,),
            "transfer": (_POINTER, _POINTER, _SIZE),
            "describe": (_TEXT, _POINTER, ctypes.c_int, _SIZE, ctypes.POINTER(_Facts)),
        }.items()
    ]


def unavailable() -> str | None:
    """Why the stand-in cannot be built; None if it can."""
    return None if _headers() else "no cuda_runtime_api.h: pip install --group nvrtc (pip 25.1 or later)"


def build() -> Path:
    """The stand-in's library, compiled if necessary.

    Raises
    ------
    CompilerError
        There is no compiler, or it refuses the text; has its message.
    """
    command = [*compiler().command, "-std=c++17", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
    command += [f"-I{_headers()}", str(_SOURCE), f"-Wl,--version-script={_VERSIONS}"]
    texts = _SOURCE.read_bytes(), _VERSIONS.read_bytes()
    key = hashlib.sha256(repr((command, texts, compiler().version)).encode())
    path = cache_dir() / "machine-code" / f"runtime-{key.hexdigest()[:32]}" / NAME
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / NAME
        done = run([*command, "-o", built], stderr=PIPE, text=True)
        if done.returncode:
            raise CompilerError(f"the stand-in for the CUDA runtime does not compile:\n{done.stderr.strip()}")
        os.replace(built, path)
    return path


def _headers() -> Path | None:
    """The folder of the CUDA runtime's headers, of the wheel `nvidia-cuda-runtime`."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in Path(folder).glob("cu*/include/cuda_runtime_api.h"):
            return found.parent
    return None


class Runtime:
    """The device that programs over the stand-in see: the `Runtime` that was made last.

    `launch` runs a launch and may look at it. `transfer` is called after fills and copies within the device,
    with the memory that they used.
    """

    def __init__(
        self,
        launch: Callable[[str, Launch], None],
        transfer: Callable[[Copy | Fill, list[Buffer]], None] | None = None,
        gpu: Gpu = H200,
    ) -> None:
        self._launch_function, self._transfer_function = launch, transfer
        self._memory: dict[int, Buffer] = {}
        self._error: Exception | None = None
        self._host = _Host(
            *(
                function(functools.partial(self._guarded, getattr(self, f"_{name}")))
                for name, function in _Host._fields_
            )
        )
        library = ctypes.CDLL(str(build()), ctypes.RTLD_GLOBAL)
        library.stand_in_connect(ctypes.byref(self._host), ctypes.byref(_Device(*_values(gpu).values())))

    def empty(self, shape: Any, dtype: Any = float) -> np.ndarray:
        """An array in the device's memory that nobody wrote, at a multiple of 512 bytes."""
        count, item = math.prod(np.atleast_1d(shape).tolist()), np.dtype(dtype).itemsize
        memory = zeros(max(count * item, 1))
        memory[...] = _UNWRITTEN
        self._memory[memory.ctypes.data] = Buffer(memory, is_output=True)
        return memory[: count * item].view(dtype).reshape(shape)

    def array(self, data: np.ndarray) -> np.ndarray:
        """A copy in the device's memory."""
        copied = self.empty(data.shape, data.dtype)
        copied[...] = data
        return copied

    def written(self, address: int, num_bytes: int) -> np.ndarray:
        """How often kernels stored to each byte of memory that the program has."""
        buffer = self._memory[address]
        assert buffer.written is not None
        return buffer.written[:num_bytes]

    def error(self) -> Exception | None:
        """The first error since the last time, which the program saw as an error of CUDA."""
        found, self._error = self._error, None
        return found

    def _guarded(self, function: Callable[..., None], *given: Any) -> int:
        try:
            function(*given)
        except Exception as error:  # a caller in C++ sees a number
            self._error = self._error or error
            return 1
        return 0

    def _launch(
        self,
        name: bytes,
        image: int,
        shape: Any,
        shared_bytes: int,
        cluster: int,
        cooperative: int,
        given: Any,
    ) -> None:
        kernel = _kernels(image)[name.decode()]
        packed = bytearray()
        for number, (offset, size) in enumerate(kernel.facts.parameters):
            packed += bytes(offset - len(packed)) + ctypes.string_at(given[number], size)
        grid, block = tuple(shape.contents[:3]), tuple(shape.contents[3:])
        launch = Launch(
            kernel.code,
            bytes(packed),
            list(self._memory.values()),
            grid,
            block,
            shared_bytes,
            cluster,
            kernel.resident_blocks(math.prod(block), shared_bytes),
            math.prod(grid) if cooperative else cluster,
            allows_undefined=True,  # CUB's radix sort stores items that are not there, and never reads them
        )
        self._launch_function(name.decode(), launch)

    def _allocate(self, place: Any, num_bytes: int) -> None:
        place[0] = self.empty(num_bytes, np.uint8).ctypes.data

    def _release(self, place: int | None) -> None:
        if place is not None:
            del self._memory[place]

    def _transfer(self, place: int, source: int | None, num_bytes: int) -> None:
        if self._transfer_function and num_bytes:
            used = [
                buffer
                for address, buffer in self._memory.items()
                if any(0 <= given - address < buffer.array.nbytes for given in (place, source or 0))
            ]
            step = Copy("", "", num_bytes) if source else Fill("", num_bytes)
            self._transfer_function(step, used)

    def _describe(self, name: bytes, image: int, threads: int, shared_bytes: int, found: Any) -> None:
        kernel = _kernels(image)[name.decode()]
        facts = kernel.facts
        found.contents.resident_blocks = kernel.resident_blocks(threads, shared_bytes)
        found.contents.registers, found.contents.shared_bytes = facts.registers, facts.shared_bytes
        found.contents.local_bytes = facts.stack_bytes
        found.contents.max_threads = facts.max_threads or _MAX_THREADS


class _Kernels(dict[str, Kernel]):
    """The kernels of a fat binary by mangled name, each decoded when it is asked for."""

    def __init__(self, image: int) -> None:
        self._cubins = cubins(image, HOPPER.number)

    def __missing__(self, name: str) -> Kernel:
        for cubin in self._cubins:
            if facts := kernels_of(cubin).get(name):
                self[name] = Kernel(decode(cubin, name)[name], facts)
                return self[name]
        raise KeyError(f"no {HOPPER.name} code of {name}")


@functools.cache
def _kernels(image: int) -> _Kernels:
    return _Kernels(image)
