"""The machine: its C++ built once by the host's compiler, loaded, and its table of instructions."""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cudml.devices.emulator.build import compiler
from cudml.settings import cache_dir
from tests.machine_code.sass.encoding import STRUCTURES

_SOURCES = Path(__file__).parent / "machine"
#: Rounding is set while instructions run, and sums must not be contracted.
_FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-frounding-math", "-ffp-contract=off", "-Wno-psabi")


@dataclass(frozen=True)
class Entry:
    """An instruction of the table: its number, the pipe it goes through, the suffixes it knows."""

    number: int
    pipe: int
    suffixes: frozenset[str]


@functools.cache
def library() -> ctypes.CDLL:
    """The machine, compiled where it was not.

    Raises
    ------
    cudml.CompilerError, subprocess.CalledProcessError
        There is no compiler, or it refuses the text.
    """
    found = compiler()
    files = sorted(_SOURCES.glob("*.cpp"))
    text = b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))
    key = hashlib.sha256(text + repr((found, _FLAGS)).encode()).hexdigest()[:32]
    folder = cache_dir() / "machine-code"
    path = folder / f"libsass-{key}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            objects = [Path(scratch) / f"{file.stem}.o" for file in files]
            running = [
                subprocess.Popen([*found.command, *_FLAGS, "-c", file, "-o", to])
                for file, to in zip(files, objects, strict=True)
            ]
            for process in running:
                if process.wait():
                    raise subprocess.CalledProcessError(process.returncode, process.args)
            built = Path(scratch) / "built.so"
            subprocess.run([*found.command, "-shared", *objects, "-o", built], check=True)
            os.replace(built, path)
    loaded = ctypes.CDLL(str(path))
    loaded.sass_table.restype = loaded.sass_suffixes.restype = ctypes.c_char_p
    sizes = (ctypes.c_uint32 * len(STRUCTURES))()
    loaded.sass_sizes(sizes)
    differ = [s.__name__ for s, size in zip(STRUCTURES, sizes, strict=True) if ctypes.sizeof(s) != size]
    if differ:
        raise TypeError(f"not of the same size in C++ and in Python: {', '.join(differ)}")
    return loaded


@functools.cache
def table() -> dict[str, Entry]:
    """The instructions by opcode; those of one meaning share an entry."""
    found = {}
    for number, line in enumerate(library().sass_table().decode().splitlines()):
        name, also, pipe, form, _ = line.split("\t")
        for opcode in (name, *also.split()):
            found[opcode] = Entry(number, int(pipe), frozenset(form.split()))
    return found


@functools.cache
def suffixes() -> dict[str, int]:
    """The number of each suffix."""
    return {name: number for number, name in enumerate(library().sass_suffixes().decode().split())}
