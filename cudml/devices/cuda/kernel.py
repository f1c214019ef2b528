"""Kernel instances, built and loaded by CuPy on one device, and checks that the device can launch them."""

import math
import os
import warnings
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cudml.devices.cuda.driver import max_active_clusters
from cudml.devices.interface import LaunchTooLargeError
from cudml.devices.kernel_text import kernel_text
from cudml.devices.sources import kernel_root
from cudml.errors import CompilerError, DeviceError
from cudml.locks import Lock, import_unforked
from cudml.plans import MAX_GRID_BLOCKS, KernelLaunch, Limits

#: Maximum number of blocks along x, y and z, the same on every GPU.
MAX_GRID = (MAX_GRID_BLOCKS, 65535, 65535)

#: Cluster size that every device with clusters supports; larger clusters need an attribute of the kernel.
PORTABLE_CLUSTER_BLOCKS = 8

#: Dynamic shared storage that a kernel may use without opting in to more.
DEFAULT_SHARED_BYTES = 48 * 1024

# Values of `CUfunction_attribute`.
_MAX_THREADS_PER_BLOCK = 0
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class Kernel:
    """One kernel instance loaded on one device."""

    def __init__(self, cupy: Any, launch: KernelLaunch) -> None:
        self._driver = cupy.cuda.driver
        self._shared_bytes = DEFAULT_SHARED_BYTES
        self._lock = Lock()
        text = kernel_text((launch,))
        options = ("--std=c++17", f"-I{kernel_root()}")
        compile_error = cupy.cuda.compiler.CompileException
        told = f"{launch.source}: {launch.name_expression}"

        def build() -> Any:
            module = cupy.RawModule(code=text, options=options, name_expressions=(launch.name_expression,))
            raw = module.get_function(launch.name_expression)
            return raw, raw.kernel

        try:
            try:
                self._raw, self.function = build()
            except OSError as error:
                _warn_of_cache(str(error))
                with _cache_in_memory():
                    self._raw, self.function = build()
        except compile_error as error:
            raise CompilerError(f"{told} does not compile:\n{error.get_message()}") from error
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise DeviceError(f"{told} cannot be loaded: {error}") from error
        except RuntimeError as error:  # CuPy finds no NVRTC or no CUDA headers
            raise CompilerError(
                f"{told} cannot be compiled ({error}): pip install 'cudml[cuda13]' or 'cudml[cuda12]' "
                "brings the compiler and its headers"
            ) from error
        #: Threads of a block that the kernel's registers allow.
        self._max_threads = self._driver.funcGetAttribute(_MAX_THREADS_PER_BLOCK, self.function.ptr)

    def allow(self, launch: KernelLaunch, limits: Limits, device: str) -> None:
        """Allow the kernel the shared storage and the cluster size of a launch that the device can run.

        Raises LaunchTooLargeError if another plan may fit: the grid is cooperative and larger than the device
        holds at once (CuPy would shrink it with a warning), or the device has no room for a cluster (the
        launch would fail). Raises ValueError if the device cannot run the launch for another reason, or if
        the grid is empty (CuPy would launch one block).
        """
        grid, threads, shared_bytes = launch.grid, math.prod(launch.block), launch.shared_bytes
        (x, y, z), (most_x, most_y, most_z) = grid, MAX_GRID
        if x < 1 or y < 1 or z < 1 or threads < 1:
            raise _refused(launch, f"an empty launch, grid {grid} and block {launch.block}")
        if x > most_x or y > most_y or z > most_z:
            raise _refused(launch, f"a grid of {grid} blocks, CUDA allows {MAX_GRID}")
        if threads > limits.max_threads_per_block:
            most = limits.max_threads_per_block
            raise _refused(launch, f"a block of {launch.block} threads, {device} allows {most}")
        if shared_bytes > limits.shared_bytes_per_block:
            most = limits.shared_bytes_per_block
            raise _refused(launch, f"{shared_bytes} bytes of shared storage, {device} has {most}")
        if grid[0] % launch.cluster_blocks:
            clusters = f"clusters of {launch.cluster_blocks}"
            raise _refused(launch, f"a grid of {grid[0]} blocks is not made of {clusters}")
        if threads > self._max_threads:
            most = self._max_threads
            raise _refused(launch, f"a block of {threads} threads, its registers allow {most} on {device}")
        if shared_bytes > self._shared_bytes:
            with self._lock.held():  # two threads might grant less after more
                self._shared_bytes = max(shared_bytes, self._shared_bytes)
                self._raw.max_dynamic_shared_size_bytes = self._shared_bytes
        if launch.cluster_blocks > PORTABLE_CLUSTER_BLOCKS:
            self._driver.funcSetAttribute(self.function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        handle = self.function.ptr
        if launch.cluster_blocks > 1:
            size = launch.cluster_blocks
            if not max_active_clusters(handle, grid, launch.block, shared_bytes, size):
                problem = _refused(
                    launch,
                    f"clusters of {size} blocks, {device} has no room for one ({threads} threads and "
                    f"{shared_bytes} bytes of shared storage a block)",
                )
                raise LaunchTooLargeError(str(problem), max_cluster_blocks=size // 2)
        if launch.cooperative:
            resident = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(handle, threads, shared_bytes)
            fits, num_blocks = resident * limits.num_multiprocessors, math.prod(grid)
            if num_blocks > fits:
                problem = _refused(
                    launch,
                    f"a cooperative grid of {num_blocks} blocks, {fits} fit on {device} ({resident} of "
                    f"{threads} threads and {shared_bytes} bytes of shared storage on each of "
                    f"{limits.num_multiprocessors} multiprocessors)",
                )
                raise LaunchTooLargeError(str(problem), most_resident_blocks=fits)


def _refused(launch: KernelLaunch, problem: str) -> ValueError:
    """The error about a launch that a device cannot run; says what would fit."""
    return ValueError(f"{launch.source}: {launch.name_expression}: {problem}")


@cache
def _by_value_type() -> Any:
    base: Any = import_unforked("cupy.cuda.function").CPointer

    class ByValue(base):  # type: ignore[misc]
        """The address of bytes in host memory, which CuPy passes to the driver, and their owner."""

        __slots__ = ("held", "ptr")

        @property
        def data(self) -> Any:
            return self

    return ByValue


def by_value(data: bytes) -> Any:
    """Wrap bytes as a kernel argument."""
    held = array("B", data)
    argument = _by_value_type()(held.buffer_info()[0])
    argument.held = held
    return argument


def pointer(address: int) -> Any:
    """An operand or a workspace of programs at an address; launched faster than an integer or an array.

    Not for work that is captured in a graph, nor for an operand that is shifted.
    """
    argument = by_value(address.to_bytes(8, "little"))
    argument.ptr = address
    return argument


@cache
def _warn_of_cache(problem: str) -> None:
    warnings.warn(
        f"CuPy's kernel cache cannot be used, every process compiles again: {problem}", stacklevel=2
    )


@contextmanager
def _cache_in_memory() -> Iterator[None]:
    before = os.environ.get("CUPY_CACHE_IN_MEMORY")
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUPY_CACHE_IN_MEMORY"]
        else:
            os.environ["CUPY_CACHE_IN_MEMORY"] = before
