"""Products by cuBLAS over the stand-in, which plays it; results go back by value."""

import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cudml.plans import MatMul, Plan, Workspace, product_workspace_size
from tests.devices.cuda.stand_in import SONAME
from tests.devices.cuda.stand_in.cases import addresses, operands, the_stand_in


@contextmanager
def cublas() -> Iterator[None]:
    """Put the stand-in's cuBLAS in the place of CuPy's binding; a request for CuPy's own handle fails."""
    import cupy
    from cupy_backends.cuda import libs

    def refuse() -> int:
        raise AssertionError("CuPy's handle is its user's")

    name = "cupy_backends.cuda.libs.cublas"
    library = types.ModuleType(name)
    library.__file__ = SONAME
    device_module = cupy.cuda.device
    get_handle = device_module.get_cublas_handle
    sys.modules[name] = libs.cublas = library
    device_module.get_cublas_handle = refuse
    try:
        yield
    finally:
        device_module.get_cublas_handle = get_handle
        del sys.modules[name], libs.cublas


def workspaces_of(step: MatMul) -> tuple[Workspace, ...]:
    """The product's workspace, behind another piece so that it does not begin the temporary resource."""
    if step.workspace is None:
        return ()
    size = product_workspace_size(step.workspace_bytes)
    return Workspace("other", 8), Workspace(step.workspace, size)


def multiply(step: MatMul, how: str, shift: int = 0) -> dict[str, Any]:
    """The calls of cuBLAS for a plan of one product: on the current stream, on a named stream, or while
    the named stream is captured. The temporary resource starts `shift` bytes from a multiple of 256."""
    import cupy

    from cudml.devices import cuda

    device = cuda.get_device(0)
    arrays = operands(device)
    stream = None if how == "current" else cupy.cuda.Stream(non_blocking=True)
    plan = Plan("TEST", ("a", "b", "out"), (step,), workspaces_of(step), ("out",))
    resource = device.empty((plan.temporary_bytes + shift,), np.uint8)[shift:]
    with cublas():
        program = device.load(plan)
        the_stand_in().set(captured_stream=stream.ptr if stream and how == "captured" else 0)
        the_stand_in().record()
        error = ""
        try:
            program(arrays, resource if plan.workspaces else None, stream)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        finally:
            the_stand_in().set(captured_stream=0)
    return {
        "calls": [line.split() for line in the_stand_in().calls() if line.startswith("cublas")],
        "stream": stream.ptr if stream else 0,
        "addresses": addresses(arrays),
        "resource": resource.data.ptr,
        "error": error,
    }


def handles_of_threads() -> dict[str, Any]:
    """The handles that threads multiply with, on each GPU, and the calls that make the handles.

    One thread loads a plan, two others run it at the same time, and a later thread runs it again.
    """
    from cudml.devices import cuda
    from cudml.devices.cuda import cublas as products

    products.handles.cache_clear()
    step = MatMul("a", "b", "out", m=5, n=7, k=3, element="float32")
    plan = Plan("TEST", ("a", "b", "out"), (step,), (), ("out",))
    used: dict[str, list[int]] = {}
    calls: dict[str, list[str]] = {}

    def note(what: str) -> None:
        lines = the_stand_in().calls()
        used[what] = [int(line.split()[1]) for line in lines if line.startswith("cublasGemmEx")]
        calls[what] = [line for line in lines if line.startswith("cublasCreate")]
        the_stand_in().record()

    with cublas():
        the_stand_in().record()
        devices = [cuda.get_device(number) for number in range(2)]
        programs = [device.load(plan) for device in devices]
        note("load")
        barrier = threading.Barrier(2)

        def run(number: int) -> None:
            own = operands(devices[number])
            barrier.wait()
            for _ in range(2):
                programs[number](own, None)
            barrier.wait()

        for number in range(2):
            threads = [threading.Thread(target=run, args=(number,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            note(f"device {number}")
        barrier = threading.Barrier(1)
        later = threading.Thread(target=run, args=(0,))
        later.start()
        later.join()
        note("later")
    return {"used": used, "made": calls}
