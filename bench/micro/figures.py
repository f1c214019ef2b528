"""Shared by the measurements: a figure, and the GPU with its loader and timers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.sources import Source
from bench.targets import Target
from bench.timing import CudaTimer
from cudml.devices.cuda.kernel import DEFAULT_SHARED_BYTES
from cudml.devices.sources import kernel_root

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """One measured number, with its circumstances and its unit."""

    group: str
    name: str
    value: float
    unit: str


class Kernel:
    """A kernel instance that is launched by `kernel(grid, block, *arguments)`, along x only."""

    def __init__(self, function: Any, shared_bytes: int) -> None:
        self.function = function
        self._shared_bytes = shared_bytes
        if shared_bytes > DEFAULT_SHARED_BYTES:
            function.max_dynamic_shared_size_bytes = shared_bytes

    def __call__(self, grid: int, block: int, *arguments: Any) -> None:
        self.function((grid,), (block,), arguments, shared_mem=self._shared_bytes)


class Gpu:
    """The current GPU: arrays (`xp` is CuPy), kernels from the files of this folder, times."""

    def __init__(self, target: Target) -> None:
        self.xp = target.xp
        self.source = Source(target.xp, 1)
        self.timer = CudaTimer(target.l2_bytes)
        #: Clusters of blocks and a copy engine that kernels control came with the same compute capability.
        self.has_clusters = int(self.xp.cuda.Device().compute_capability) >= 90
        self.num_multiprocessors: int = self.xp.cuda.Device().attributes["MultiProcessorCount"]

    def kernel(self, file: str, name: str, cooperative: bool = False, shared_bytes: int = 0) -> Kernel:
        """An instance built from a file of this folder."""
        module = self.xp.RawModule(
            code=(HERE / file).read_text(),
            options=("--std=c++17", f"-I{kernel_root()}"),
            name_expressions=(name,),
            enable_cooperative_groups=cooperative,
        )
        return Kernel(module.get_function(name), shared_bytes)

    def int64(self, count: int = 1) -> Any:
        """Zeroed numbers for a kernel's results."""
        return self.xp.zeros(count, dtype=np.int64)

    def uint32(self, count: int = 1) -> Any:
        """Zeroed words."""
        return self.xp.zeros(count, dtype=np.uint32)

    def flush(self) -> None:
        """Fill the L2 with lines that no measurement uses."""
        self.timer.flush()

    def cold_us(self, call: Callable[[], Any]) -> float:
        """Median time with a cold L2."""
        return self.timer.measure(call, "cold", 0.03).median_us

    def warm_us(self, call: Callable[[], Any]) -> float:
        """Median time with whatever the L2 holds from the call before."""
        return self.timer.measure(call, "warm", 0.03).median_us
