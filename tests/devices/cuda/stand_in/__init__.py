"""Put the stand-in for a GPU (`stand_in.c`) under CuPy, for this process and before CuPy is imported."""

import ctypes
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cudml.devices.emulator.build import compiler

#: The stand-in's name for the loader; it also plays cuBLAS.
SONAME = "libcuda.so.1"

_SOURCE = Path(__file__).with_name("stand_in.c")
_METH_VARARGS, _METH_NOARGS = 1, 4

#: Objects that CuPy points to for the life of the process.
_kept: list[Any] = []


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class Launch:
    """One recorded launch; `arguments` has the bytes of every parameter."""

    cooperative: bool
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    device: int
    arguments: tuple[bytes, ...]


class StandIn:
    """The loaded stand-in: its settings, and the calls since `record()`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.stand_in_record.restype = ctypes.c_char_p

    def set(self, **settings: int) -> None:
        """Set `num_devices`, `resident_blocks`, `max_threads_of_kernel` or `compute_capability`. The others
        are `captured_stream`, a stream's handle or 0 for none; `old_device`, the number of the device of
        capability 7.0 or -1 for none; `pending_events`, whether the work before an event is pending;
        `active_clusters` of a launch; and `cluster_status`, the driver's status when it reports the
        clusters."""
        for name, value in settings.items():
            if self._library.stand_in_set(name.encode(), ctypes.c_long(value)):
                raise KeyError(name)

    def record(self, *parameter_sizes: int) -> None:
        """Forget the calls so far and record from now on, with the sizes of launched kernels' parameters."""
        sizes = (ctypes.c_size_t * len(parameter_sizes))(*parameter_sizes)
        self._library.stand_in_set_parameters(len(parameter_sizes), sizes)
        self._library.stand_in_clear()
        self.set(record_calls=1)

    def calls(self) -> list[str]:
        """The calls since `record()`, one line each."""
        return self._library.stand_in_record().decode().splitlines()

    def launches(self) -> list[Launch]:
        """The launches among `calls()`."""
        return [_parse_launch(line) for line in self.calls() if line.startswith("cuLaunch")]


def _parse_launch(line: str) -> Launch:
    words = line.split()
    numbers = {words[i]: i + 1 for i in range(len(words)) if words[i].isalpha()}

    def integers(word: str, count: int) -> tuple[int, ...]:
        start = numbers[word]
        return tuple(map(int, words[start : start + count]))

    return Launch(
        cooperative=words[0] == "cuLaunchCooperativeKernel",
        grid=integers("grid", 3),
        block=integers("block", 3),
        shared_bytes=integers("shared", 1)[0],
        stream=integers("stream", 1)[0],
        device=integers("device", 1)[0],
        arguments=tuple(map(bytes.fromhex, words[words.index("arguments") + 1 :])),
    )


def load() -> StandIn:
    """Build and load the stand-in and put it under CuPy, which must not be imported yet."""
    if "cupy" in sys.modules:
        raise RuntimeError("CuPy is imported already: the stand-in must come first")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SONAME
        # CuPy asks the loader for libcuda.so.1 and gets the library that is loaded under that name.
        flags = ("-x", "c", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}")
        command = [*compiler().command, *flags, "-o", str(path), str(_SOURCE), "-lpthread"]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    stand_in = StandIn(library)

    from cupy_backends.cuda.api import runtime

    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsules = runtime.__pyx_capi__
    for name in list(capsules):
        function = getattr(library, f"runtime_{name}", None)
        if function is not None:
            # A capsule's name is the function's C signature; the importing module compares it.
            signature = ctypes.create_string_buffer(api.PyCapsule_GetName(capsules[name]))
            _kept.append(signature)
            address = ctypes.cast(function, ctypes.c_void_p)
            capsules[name] = api.PyCapsule_New(address, ctypes.cast(signature, ctypes.c_char_p), None)

    api.PyCFunction_NewEx.restype = ctypes.py_object
    api.PyCFunction_NewEx.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    for name, flags in (
        ("getDevice", _METH_NOARGS),
        ("getDeviceCount", _METH_NOARGS),
        ("deviceGetAttribute", _METH_VARARGS),
        ("memsetAsync", _METH_VARARGS),
        ("memcpyAsync", _METH_VARARGS),
        ("setDevice", _METH_VARARGS),
        ("streamIsCapturing", _METH_VARARGS),
        ("streamWaitEvent", _METH_VARARGS),
    ):
        function = ctypes.cast(getattr(library, f"call_{name}"), ctypes.c_void_p)
        definition = _MethodDef(name.encode(), function.value, flags, None)
        _kept.append(definition)
        setattr(runtime, name, api.PyCFunction_NewEx(ctypes.addressof(definition), None, None))
    library.stand_in_device_of.argtypes = [ctypes.c_ssize_t]
    runtime.pointerGetAttributes = lambda address: SimpleNamespace(device=library.stand_in_device_of(address))
    return stand_in
