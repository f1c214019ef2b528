"""Compile kernel instances and the runtime with the host's C++ compiler, and cache them on disk.

A module is one generated translation unit per kernel instance. Its file name contains a hash of everything
that the compiled code depends on, so an existing file is always up to date.
"""

import errno
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cudml import locks, settings
from cudml.devices import sources
from cudml.devices.emulator import cache_files, elf, processes
from cudml.devices.emulator.processes import Scratch
from cudml.devices.kernel_text import SIGNATURE, assertions
from cudml.errors import CompilerError
from cudml.plans import KernelLaunch

#: The emulator's C++.
SIMT = Path(__file__).resolve().parent / "simt"
_COMPILERS = ("g++", "c++", "clang++")
_INSTALL = "install g++ or clang++, set CUDML_CXX, or `pip install 'cudml[cpu]'` for a compiler as a wheel"

# Kernels read storage as other types than it was written as, as CUDA code does.
_COMMON_FLAGS = ("-std=c++17", "-fPIC", "-w", "-fno-strict-aliasing")
_MODULE_FLAGS = ("-fno-math-errno", "-ffp-contract=off", "-fvisibility=hidden")
_SERIAL_FLAGS = (*_MODULE_FLAGS, "-O2", "-march=native")
# -O1 builds in two thirds of -O2's time, and most kernels for GPUs run as fast here.
_THREADED_FLAGS = (*_MODULE_FLAGS, "-O1", "-march=native")
# Messages need lines and inlined calls only; variables take a third of the build, and -O1 half as long again
# as -Og. A loop that is interrupted in a linkage stub would be reported without a line, so calls do without
# stubs.
_CHECKED_FLAGS = (*_MODULE_FLAGS, "-Og", "-g1", "-fno-plt")
_CHECKED_DEFINES = ("-DSIMT_CHECK",)
_MEMORY_FUNCTIONS = ("memcpy", "memmove", "memset")
# Not -march=native: the context switch saves only the registers of the base instruction set.
_RUNTIME_FLAGS = ("-O2", "-pthread")


@dataclass(frozen=True)
class Compiler:
    """A host C++ compiler: its command, and its version text, which identifies it."""

    command: tuple[str, ...]
    version: str


@cache
def _compiler(chosen: tuple[str, ...] | None, path: str | None) -> Compiler:
    """The compiler of CUDML_CXX, or else the first one found; `path` is only a cache key."""
    for command in _candidates(chosen):
        try:
            version = processes.output([*command, "--version"])
        except (OSError, subprocess.CalledProcessError) as error:
            if chosen is None:
                continue
            message = f"CUDML_CXX is {shlex.join(chosen)!r}, which cannot be run ({error}); {_INSTALL}"
            raise CompilerError(message) from error
        return Compiler(command, os.fsdecode(version))
    raise CompilerError(f"no C++ compiler found for the CPU emulator ({', '.join(_COMPILERS)}); {_INSTALL}")


def _candidates(chosen: tuple[str, ...] | None) -> list[tuple[str, ...]]:
    if chosen is not None:
        return [chosen]
    found: list[tuple[str, ...]] = [(name,) for name in _COMPILERS if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        found.append((sys.executable, "-m", "ziglang", "c++"))
    return found


def compiler() -> Compiler:
    """The host compiler, looked up once per value of CUDML_CXX and PATH.

    Raises CompilerError, which says what to install, if there is none.
    """
    chosen = settings.compiler_command()
    return _compiler(tuple(chosen) if chosen else None, os.environ.get("PATH"))


@cache
def _cpu() -> str:
    """What `-march=native` depends on: code for one CPU may be illegal on another that shares the folder."""
    wanted = ("model name", "flags", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    end = lines.index("") if "" in lines else len(lines)
    return "\n".join([platform.machine(), *(line for line in lines[:end] if line.startswith(wanted))])


@cache
def _own_text() -> bytes:
    """Name and content of every C++ file of the emulator."""
    files = sorted(path for path in SIMT.rglob("*") if path.suffix in (".h", ".cuh", ".cpp"))
    return b"\0".join(str(path.relative_to(SIMT)).encode() + b"\0" + path.read_bytes() for path in files)


def _key(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = os.fsencode(part) if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _run(scratch: Scratch, command: Sequence[str], what: str, hint: str = "") -> None:
    try:
        result = scratch.run(command)
    except OSError as error:
        raise CompilerError(f"{shlex.join(command[:1])} cannot be run ({error}); {_INSTALL}") from error
    if result.returncode == 0:
        return
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if str(full.strerror) in result.stderr:
        raise full
    raise CompilerError(f"{what} does not compile:\n{shlex.join(command)}\n{result.stderr.strip()}{hint}")


def _require_library(found: Compiler, path: Path, symbol: str) -> None:
    """Raise CompilerError unless the compiler wrote a loadable library; cached files stay."""
    try:
        elf.require_symbol(path, symbol)
    except FileNotFoundError:
        written = "nothing"
    except ValueError as error:
        written = str(error)
    else:
        return
    command = shlex.join(found.command)
    raise CompilerError(f"{command} (CUDML_CXX) reports success, but what it wrote is {written}; {_INSTALL}")


def runtime_source(*, is_checked: bool = False) -> str:
    """The runtime as one translation unit: parsing the C++ library's headers takes most of the time."""
    folders = ("runtime", "check") if is_checked else ("runtime",)
    parts = [part for name in folders for part in sorted((SIMT / name).glob("*.cpp"))]
    return "".join(f'#include "{part}"\n' for part in parts)


def runtime(*, is_checked: bool = False) -> Path:
    """The runtime library, compiled if necessary.

    Raises CompilerError if there is no compiler, or with `is_checked` it cannot instrument.
    """
    found = compiler()
    if is_checked:
        _require_sanitizer(found)
    flags = (*_COMMON_FLAGS, *_RUNTIME_FLAGS, *(_CHECKED_DEFINES if is_checked else ()))
    name = f"libcudml-simt-{_key(_own_text(), found.version, *found.command, *flags, platform.machine())}.so"

    def build(scratch: Scratch, path: Path) -> None:
        text = path.with_suffix(".cpp")
        text.write_bytes(os.fsencode(runtime_source(is_checked=is_checked)))
        link = ["-shared", f"-Wl,-soname,{name}", "-o", str(path)]
        hint = f"\nThe compiler may be incomplete or too old for C++17; {_INSTALL}"
        _run(scratch, [*found.command, *flags, str(text), *link], "the emulator's runtime", hint)
        _require_library(found, path, "simt_launch")

    return cache_files.cached(name, build)


def _module_flags(found: Compiler, launch: KernelLaunch, is_checked: bool) -> tuple[str, ...]:
    if not is_checked:
        return (*_COMMON_FLAGS, *(_SERIAL_FLAGS if launch.block == (1, 1, 1) else _THREADED_FLAGS))
    return (*_COMMON_FLAGS, *_CHECKED_FLAGS, *_CHECKED_DEFINES, *_sanitizer_flags(found))


def _is_clang(found: Compiler) -> bool:
    return "clang" in found.version


def _sanitizer_flags(found: Compiler) -> tuple[str, ...]:
    """Flags that insert the calls implemented by simt/check/hooks.cpp.

    Part of clang's "bounds" traps instead of calling a hook, so only "array-bounds" is used. By default,
    clang does not instrument a read that is followed by a write to the same address, though the read may be
    of uninitialised memory, nor an access through a known null pointer. GNU's addr2line does not find inlined
    frames in its newest debug format. The compiler of the wheel ignores anything after "thread" in the same
    option.
    """
    if _is_clang(found):
        return (
            "-fsanitize=thread",
            "-fsanitize=alignment,array-bounds",
            "-fno-delete-null-pointer-checks",
            "-gdwarf-4",
            *("-mllvm", "-tsan-instrument-read-before-write"),
        )
    return ("-fsanitize=thread,alignment,bounds",)


def _checked_link_flags(found: Compiler) -> tuple[str, ...]:
    """Flags that redirect other calls to the hooks.

    clang before 16 calls functions of the C library where later versions call hooks, and the compiler of the
    wheel links its own array-bounds handlers.
    """
    if not _is_clang(found):
        return ()
    return ("-fno-sanitize=undefined", *(f"-Wl,--wrap={name}" for name in _MEMORY_FUNCTIONS))


def _libraries(found: Compiler) -> tuple[str, ...]:
    """The libraries that a module is linked with besides the runtime.

    Not the C++ library: no kernel calls it, and GNU's linker takes longer for its symbols than for all else.
    """
    is_gnu = "Free Software Foundation" in found.version
    return ("-nodefaultlibs", "-lm", "-lc", "-lgcc") if is_gnu else ()


@cache
def _require_sanitizer(found: Compiler) -> None:
    """Raise CompilerError if the compiler cannot instrument."""
    flags = _sanitizer_flags(found)
    with locks.no_fork:  # `tempfile` has a lock of its own
        place = Path(tempfile.gettempdir())
    with processes.scratch(place) as scratch:
        text = scratch.path / "probe.cpp"
        text.write_text("int x;\n")
        command = [*found.command, *flags, "-c", str(text), "-o", str(text.with_suffix(".o"))]
        result = scratch.run(command)
    if result.returncode:
        raise CompilerError(
            f"{shlex.join(found.command)} cannot instrument code for the check mode "
            f"({shlex.join(flags)}): {result.stderr.strip()}\n"
            "g++ 8 or later, clang++ 11 or later and the compiler of `pip install 'cudml[cpu]'` can"
        )


def module(launch: KernelLaunch, *, is_checked: bool = False) -> Path:
    """The module of the kernel instance that a launch names, compiled if necessary.

    Parameters
    ----------
    launch : KernelLaunch
        Its source, relative to `kernels/` or absolute, the instance, and the parameters it must take.
    is_checked : bool
        Instrument it for check mode.

    Raises
    ------
    CompilerError
        There is no compiler, it cannot instrument, the source has an error, or the launch passes a parameter
        that the kernel does not take; includes the compiler's messages.
    """
    source, name_expression = launch.source, launch.name_expression
    found = compiler()
    library = runtime(is_checked=is_checked)
    root = sources.kernel_root()
    # Messages and debug information say kernels/..., independent of its location. In debug information the
    # path stays absolute, or else the compilation folder would be prepended; `symbols.py` removes the slash.
    shorten = (f"-fmacro-prefix-map={root}=kernels", f"-fdebug-prefix-map={root}=/kernels")
    flags = (*_module_flags(found, launch, is_checked), *shorten)
    stub = (
        f'#include "simt.h"\n#include "{root / source}"\n#include "{SIGNATURE}"\n'
        f"namespace launch_0 {{\n{assertions(launch)}\n}}\nSIMT_EXPORT({name_expression})\n"
    )
    link = ("-shared", *(_checked_link_flags(found) if is_checked else ()))
    libraries = _libraries(found)
    compiled_by = (found.version, *found.command, *flags, *link, *libraries, _cpu())
    hashes = (sources.source_hash(source), sources.source_hash(SIGNATURE))
    key = _key(stub, *hashes, library.name, *compiled_by)
    function = "".join(c if c.isalnum() else "_" for c in name_expression)[:60]
    name = f"{function}-{key}.so"

    what = f"{source} {name_expression}"

    def build(scratch: Scratch, path: Path) -> None:
        text = path.with_suffix(".cpp")
        text.write_bytes(os.fsencode(stub))
        if settings.keep_source():
            cache_files.keep_beside(text.name, os.fsencode(stub))
        includes = [f"-I{SIMT / 'overlay'}", f"-I{SIMT}", f"-I{root}"]
        # Linked without the compiler's sanitizer libraries: the runtime implements their functions.
        code = path.with_suffix(".o")
        _run(scratch, [*found.command, *flags, *includes, "-c", str(text), "-o", str(code)], what)
        linked = (str(code), str(library), *libraries)
        _run(scratch, [*found.command, *link, *linked, "-o", str(path)], what)
        _require_library(found, path, "simt_kernel")

    return cache_files.cached(name, build)
