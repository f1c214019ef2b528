"""The CUDA device's messages if it cannot be used, and its text for the compiler; without GPU or CuPy."""

import importlib.abc
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda, take
from cudml.devices.cuda import device
from cudml.devices.kernel_text import kernel_text
from cudml.errors import DeviceError
from cudml.plans import KernelLaunch
from tests.support.params import params_of


@pytest.fixture(autouse=True)
def _not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_usable", [])


class _RuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaError {status}")


def fake_cupy(get_device_count: Any, capability: tuple[int, int] = (9, 0)) -> types.ModuleType:
    """The part of CuPy that `status` looks at."""
    major_attribute = 75
    runtime = types.SimpleNamespace(
        getDeviceCount=get_device_count,
        deviceGetAttribute=lambda attribute, number: capability[attribute - major_attribute],
    )
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(runtime=runtime)  # type: ignore[attr-defined]
    return module


def raising(error: Exception) -> Any:
    def get_device_count() -> int:
        raise error

    return get_device_count


@pytest.mark.parametrize(
    ("get_device_count", "capability", "usable", "reason"),
    [
        (raising(_RuntimeError(35)), (9, 0), False, "no CUDA driver, or one too old for this CuPy"),
        (
            raising(_RuntimeError(100)),
            (9, 0),
            False,
            "a CUDA driver, but no CUDA device that this process may see",
        ),
        (
            raising(_RuntimeError(999)),
            (9, 0),
            False,
            "the CUDA driver is broken: _RuntimeError: cudaError 999",
        ),
        (
            lambda: 1,
            (7, 0),
            False,
            "no CUDA device of compute capability 7.5 or more: cuda:0 has compute capability 7.0",
        ),
        (lambda: 0, (9, 0), False, "no CUDA device of compute capability 7.5 or more: there is none"),
        (
            lambda: 2,
            (12, 0),
            True,
            "cuda:0 of compute capability 12.0, cuda:1 of compute capability 12.0",
        ),
    ],
)
def test_status_tells_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    get_device_count: Any,
    capability: tuple[int, int],
    usable: bool,
    reason: str,
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(get_device_count, capability))
    assert device.status() == cuda.Status(usable, reason)


def test_a_device_that_cannot_be_asked_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = fake_cupy(lambda: 3)

    def attribute(attribute: int, number: int) -> int:
        if number == 0:
            raise _RuntimeError(46)
        return ((7, 0), (8, 6))[number - 1][attribute - 75]

    cupy.cuda.runtime.deviceGetAttribute = attribute
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert device.status() == cuda.Status(
        True,
        "cuda:0 cannot be asked: _RuntimeError: cudaError 46, cuda:1 has compute capability 7.0, "
        "cuda:2 of compute capability 8.6",
    )


def test_what_could_not_be_used_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(raising(_RuntimeError(999))))
    assert not device.status().usable
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(lambda: 1))
    assert device.status().usable
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert device.status().usable, "what can be used is looked at once"


def test_status_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert device.status() == cuda.Status(
        False, "CuPy is not installed: pip install 'cudml[cuda13]' or 'cudml[cuda12]'"
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(13, "Permission denied", "/cache"),
            "PermissionError: [Errno 13] Permission denied: '/cache'",
        ),
        (ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock"), "No module named 'fastrlock'"),
    ],
)
def test_status_of_a_cupy_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    class Broken(importlib.abc.MetaPathFinder):
        """Raises the error for CuPy."""

        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == "cupy":
                raise error

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert device.status() == cuda.Status(False, f"CuPy cannot be imported: {told}")


def test_device_that_cannot_be_used_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "status", lambda: cuda.Status(False, "no CUDA driver"))
    with pytest.raises(DeviceError, match="CUDA cannot be used: no CUDA driver"):
        cuda.get_device(0)


class _OnGpu:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class _WithInterface:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}  # noqa: RUF012


def test_gpu_array_without_a_usable_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the function, the argument, and the missing package."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    missing = "CuPy is not installed: pip install 'cudml[cuda13]' or 'cudml[cuda12]'"
    where = "in a GPU's memory, which cannot be used from here"
    for candidate, kind in ((_OnGpu(), "_OnGpu"), (_WithInterface(), "_WithInterface")):
        for name, call in (
            ("top_k: a", lambda one: cudml.top_k(one, 1)),
            ("slice: out", lambda one: cudml.slice(np.arange(3), (0,), (1,), out=one)),
            ("gru: w", lambda one: cudml.gru(np.ones((1, 1, 1), "f4"), one, one)),
        ):
            with pytest.raises(DeviceError) as caught:
                call(candidate)
            assert (
                str(caught.value) == f"{name} is a tests.devices.cuda.test_status.{kind} {where}: {missing}"
            )
    with pytest.raises(DeviceError, match=r"top_k: a is a .*_OnGpu in a GPU's memory"):
        cudml.top_k(_OnGpu(), 1, stream=1)


@pytest.mark.parametrize("candidate", [[1, 2], None, 3, "text"])
def test_objects_that_share_no_memory_are_not_arrays(candidate: Any) -> None:
    assert take(candidate) is None


def test_text_changes_with_every_file_it_reaches(tmp_path: Path) -> None:
    header = tmp_path / "depth.cuh"
    middle = tmp_path / "middle.cuh"
    source = tmp_path / "kernel.cu"
    header.write_text("constexpr int kDepth = 1;\n")
    middle.write_text('#include "depth.cuh"\n')
    source.write_text('#include "middle.cuh"\n__global__ void kernel(int* out) { out[0] = kDepth; }\n')
    launch = KernelLaunch(str(source), "kernel", (), (1, 1, 1), (1, 1, 1), ("out",), params_of())
    before = kernel_text((launch,)).splitlines()
    assert before == kernel_text((launch,)).splitlines()
    header.write_text("constexpr int kDepth = 2;\n")
    after = kernel_text((launch,)).splitlines()
    assert before[0] != after[0]
    assert before[1:] == after[1:]
