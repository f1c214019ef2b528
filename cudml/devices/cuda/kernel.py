"""Kernel instances, built and loaded by CuPy on one device, and their launch parameters."""

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from cudml.devices.cuda.guards import check_kernel
from cudml.devices.sources import kernel_root
from cudml.errors import CompilerError, DeviceError
from cudml.plans import KernelLaunch, Limits

#: Cluster size that every device with clusters supports; larger clusters need an attribute of the kernel.
PORTABLE_CLUSTER_BLOCKS = 8

#: Dynamic shared storage that a kernel may use without opting in to more.
DEFAULT_SHARED_BYTES = 48 * 1024

# Values of `CUfunction_attribute`.
_MAX_THREADS_PER_BLOCK = 0
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class Kernel:
    """One kernel instance loaded on one device."""

    def __init__(self, cupy: Any, launch: KernelLaunch, text: str) -> None:
        self._driver = cupy.cuda.driver
        self._shared_bytes = DEFAULT_SHARED_BYTES
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

    def grant(self, launch: KernelLaunch) -> None:
        """Allow the kernel the shared storage and the cluster size of this launch."""
        if launch.shared_bytes > self._shared_bytes:
            self._raw.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._shared_bytes = launch.shared_bytes
        if launch.cluster_blocks > PORTABLE_CLUSTER_BLOCKS:
            self._driver.funcSetAttribute(self.function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)

    def check(self, launch: KernelLaunch, limits: Limits, device: str) -> None:
        """Raise if this kernel does not allow the launch on this device."""
        max_threads = self._driver.funcGetAttribute(_MAX_THREADS_PER_BLOCK, self.function.ptr)
        resident_blocks = 0
        if launch.cooperative:
            resident_blocks = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(
                self.function.ptr, math.prod(launch.block), launch.shared_bytes
            )
        check_kernel(launch, limits, device, max_threads, resident_blocks)

    def params(self, launch: KernelLaunch) -> tuple[Any, ...]:
        """The kernel's last argument, the struct, ready to be passed; empty if it takes none."""
        return (by_value(launch.params.pack()),) if launch.params.fields else ()


@cache
def _by_value_type() -> Any:
    from cupy.cuda.function import CPointer

    class ByValue(CPointer):  # type: ignore[misc]
        """Bytes in host memory as one kernel argument; CuPy passes their address to the driver."""

        def __init__(self, data: bytes) -> None:
            self._bytes = np.frombuffer(data, np.uint8).copy()
            super().__init__(_address_of(self._bytes))

    return ByValue


def by_value(data: bytes) -> Any:
    """Wrap bytes as a kernel argument."""
    return _by_value_type()(data)


def _address_of(storage: np.ndarray) -> int:
    return int(storage.__array_interface__["data"][0])


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
