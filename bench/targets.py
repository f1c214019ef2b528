"""The device that a run measures: its array library, its name, and what produced the numbers."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Target:
    """`kind` is "cpu" or "cuda"; `environment` goes into every row of the results."""

    kind: str
    name: str
    xp: Any
    l2_bytes: int
    environment: Mapping[str, str]

    @property
    def slug(self) -> str:
        """The name as a file name: `nvidia-h200`."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def get_target(kind: str | None, commit: str | None = None) -> Target:
    """The device of a kind; None means the GPU if CuPy finds one, else the CPU."""
    from cudml.devices import cuda

    status = cuda.status()
    if kind == "cuda" and not status.usable:
        raise SystemExit(f"no GPU: {status.reason}")
    environment = {"commit": commit or _commit(), "numpy": np.__version__, "cudml": _version("cudml")}
    if kind == "cpu" or not status.usable:
        return Target("cpu", _cpu_name(), np, 0, environment | {"cores": str(os.cpu_count())})
    return _cuda_target(environment)


def installed(modules: tuple[str, ...]) -> bool:
    """Whether all modules can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def to_torch(array: Any) -> Any:
    """The same memory as a torch tensor."""
    import torch

    return torch.from_dlpack(array)


def from_torch(tensor: Any) -> Any:
    """The same memory as an array of NumPy or CuPy."""
    if tensor.device.type == "cpu":
        return tensor.numpy()
    import cupy

    return cupy.from_dlpack(tensor.contiguous())


def from_jax(array: Any) -> Any:
    """The same memory as an array of NumPy or CuPy."""
    if array.device.platform == "cpu":
        return np.asarray(array)
    import cupy

    return cupy.from_dlpack(array)


def library_of(array: Any) -> Any:
    """The library of an array: NumPy or CuPy."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def to_numpy(array: Any) -> np.ndarray:
    """Copy an array to host memory, unless it is there already."""
    return array if isinstance(array, np.ndarray) else array.get()


def _cuda_target(environment: dict[str, str]) -> Target:
    import cupy

    device = cupy.cuda.Device()
    properties = cupy.cuda.runtime.getDeviceProperties(device.id)
    environment |= {
        "cupy": cupy.__version__,
        "torch": _version("torch"),
        "cuda": _dotted(cupy.cuda.runtime.runtimeGetVersion()),
        "driver": _driver(device.id),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
    }
    return Target("cuda", properties["name"].decode(), cupy, properties["l2CacheSize"], environment)


def _driver(device_id: int) -> str:
    """The driver's release, or the CUDA version that it supports if nvidia-smi is missing."""
    query = ["nvidia-smi", f"--id={device_id}", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        import cupy

        return "CUDA " + _dotted(cupy.cuda.runtime.driverGetVersion())


def _dotted(version: int) -> str:
    """13000 -> 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _commit() -> str:
    """The checkout's commit, with a + if tracked files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
