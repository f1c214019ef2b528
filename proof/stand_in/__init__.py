"""A stand-in for CUDA and its GPUs, under CuPy: it runs the machine code of kernels on memory of its own.

`load` puts it in place before CuPy is imported. CuPy, NVRTC and the program above run unchanged. It refuses
what CUDA documents as an error, queues work and does it as late as it may or in other orders by a seed, and
records and replays graphs. A call that it does not know is an error that names the call. It tells nothing
about time.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proof.stand_in import binding, cublas, library
from proof.stand_in.driver import Driver
from proof.stand_in.errors import CudaFailure, UnknownCallError
from proof.stand_in.kernels import Request
from proof.stand_in.runtime import Runtime, Settings

__all__ = ["Request", "Settings", "StandIn", "load", "loaded"]

#: Functions of the bindings that ask no driver.
_OWN = {
    "check_status",
    "get_build_version",
    "_getCUDAMajorVersion",
    "_getLocalRuntimeVersion",
    "_is_cuda_python",
    "_export_enum",
    "runtimeGetVersion",
    "make_Extent",
    "make_Pos",
    "make_PitchedPtr",
    "getChannelDesc",
    "getTextureObjectResourceDesc",
    "getTextureObjectTextureDesc",
}

_loaded: list["StandIn"] = []


class StandIn:
    """The loaded stand-in: its settings, and the calls since `record`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.runtime = Runtime(settings)
        self.calls: list[tuple[Any, ...]] = []
        self._records = False

    def record(self) -> None:
        """Forget the calls so far and note each from now on: its name and its arguments."""
        self.calls.clear()
        self._records = True

    @contextmanager
    def launches(self) -> Iterator[list[tuple[Request, int]]]:
        """The launches inside the block, each with its stream."""
        found: list[tuple[Request, int]] = []
        self.runtime.launched = lambda request, stream: found.append((request, stream))
        try:
            yield found
        finally:
            self.runtime.launched = None

    @contextmanager
    def ordered(self, seed: int | None) -> Iterator[None]:
        """Order the work inside the block by another seed than the settings'."""
        self.runtime.order.choose(seed)
        try:
            yield
        finally:
            self.runtime.order.choose(self.settings.seed)

    def lose(self, device: int) -> None:
        """Let a GPU answer no more calls."""
        self.runtime.lose(device)

    def guarded(
        self, call: str, function: Callable[..., Any], error_of: Callable[[int], Exception]
    ) -> Callable[..., Any]:
        """A function of CUDA as the bindings call it: one call at a time, and its errors are CUDA's."""
        runtime, has_ended = self.runtime, sys.is_finalizing

        @functools.wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            if has_ended():  # CuPy frees memory when the modules are gone already
                return None
            try:
                with runtime.lock:
                    runtime.enter(call)
                    if self._records:
                        self.calls.append((call, *given))
                    found = function(*given, **named)
                    runtime.leave(call)
                    return found
            except CudaFailure as failure:
                error = error_of(failure.code)
                error.args = (f"{error}: {failure.reason} ({call})",)
                raise error from None

        return run


def loaded() -> StandIn | None:
    """The stand-in of this process, if there is one."""
    return _loaded[0] if _loaded else None


def load(**settings: Any) -> StandIn:
    """Put the stand-in under CuPy, which must not be imported yet; once in a process.

    Parameters
    ----------
    **settings
        Fields of `Settings`.

    Raises
    ------
    RuntimeError
        CuPy is imported already, or the stand-in was loaded.
    """
    if "cupy" in sys.modules or _loaded:
        raise RuntimeError("the stand-in for CUDA must be loaded once and before CuPy")
    made = StandIn(Settings(**settings))
    _install(made)
    _loaded.append(made)
    return made


def _install(made: StandIn) -> None:
    # CUB's kernels are linked with a runtime of their own.
    os.environ["CUPY_ACCELERATORS"] = ""
    driver = Driver(made.runtime)
    library.install(made.runtime, driver)
    cublas.install(made.runtime)
    # Found only now, because the bindings look for the driver's library when they are imported.
    from cupy_backends.cuda.api import driver as driver_binding
    from cupy_backends.cuda.api import runtime as runtime_binding

    for module, owner, prefix, error_of in (
        (runtime_binding, made.runtime, "cuda", runtime_binding.CUDARuntimeError),
        (driver_binding, driver, "cu", driver_binding.CUDADriverError),
    ):
        binding.replace(module, functools.partial(_function, made, owner, prefix, error_of))


def _function(
    made: StandIn, owner: Any, prefix: str, error_of: Callable[[int], Exception], name: str
) -> Callable[..., Any] | None:
    """The replacement of a binding's function: the owner's method of that name, or an error."""
    if name in _OWN or name.startswith("__"):
        return None
    call = prefix + name.lstrip("_")[:1].upper() + name.lstrip("_")[1:]
    if not hasattr(type(owner), name):

        def unknown(*given: Any, **named: Any) -> Any:
            raise UnknownCallError(call)

        return unknown
    return made.guarded(call, getattr(owner, name), error_of)
