"""NVRTC's own interface, of any version: the one that CuPy loads, or the file that CUDML_TEST_NVRTC names."""

import ctypes
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass

#: A library to use instead of CuPy's, to see that another release makes good code of the kernels as well.
CHOSEN = os.environ.get("CUDML_TEST_NVRTC")


@dataclass(frozen=True)
class Compiled:
    """A cubin, the mangled name of each name expression, and the compiler's log."""

    cubin: bytes
    mangled: dict[str, str]
    log: str


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library.

    Raises
    ------
    OSError, ImportError
        NVRTC was not found; CuPy reports that in several ways.
    """
    if CHOSEN:
        # It looks for its built-in functions by a plain name.
        folder = os.path.dirname(CHOSEN)
        for name in sorted(os.listdir(folder)):
            if name.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(CHOSEN)
    from cupy_backends.cuda.libs import nvrtc

    major, _ = nvrtc.getVersion()
    return ctypes.CDLL(f"libnvrtc.so.{major}")  # loaded by CuPy, so found wherever it lies


def version() -> tuple[int, int]:
    """Major and minor number of the release."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@functools.cache
def architectures() -> tuple[int, ...]:
    """Numbers of the architectures that can be compiled for."""
    count = ctypes.c_int()
    _call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    _call("nvrtcGetSupportedArchs", numbers)
    return tuple(numbers)


def compile_program(text: str, options: Sequence[str], name_expressions: Sequence[str]) -> Compiled:
    """Compile a text for the architecture that the options name.

    Raises
    ------
    RuntimeError
        The text does not compile; has the log.
    """
    program = ctypes.c_void_p()
    _call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    try:
        for name in name_expressions:
            _call("nvrtcAddNameExpression", program, name.encode())
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            _call("nvrtcCompileProgram", program, len(options), given)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{_bytes(program, 'ProgramLog').decode()}") from error
        return Compiled(
            _bytes(program, "CUBIN"),
            {name: _mangled(program, name) for name in name_expressions},
            _bytes(program, "ProgramLog").rstrip(b"\0").decode(),
        )
    finally:
        _call("nvrtcDestroyProgram", ctypes.byref(program))


def _mangled(program: ctypes.c_void_p, name: str) -> str:
    found = ctypes.c_char_p()
    _call("nvrtcGetLoweredName", program, name.encode(), ctypes.byref(found))
    assert found.value is not None
    return found.value.decode()


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{what}", program, data)
    return data.raw


def _call(function: str, *arguments: object) -> None:
    result = getattr(library(), function)(*arguments)
    if result:
        error_string = library().nvrtcGetErrorString
        error_string.restype = ctypes.c_char_p
        raise RuntimeError(f"{function}: {error_string(result).decode()}")
