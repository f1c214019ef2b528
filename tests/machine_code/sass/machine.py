"""The machine: its C++ built once by the host's compiler, loaded, and its table of instructions."""

import ctypes
import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cudml.devices.emulator.build import compiler
from cudml.errors import CompilerError
from cudml.settings import cache_dir
from tests.machine_code.sass.encoding import STRUCTURES

SOURCES = Path(__file__).parent / "machine"
#: Rounding is set while instructions run, and sums must not be contracted.
_FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-frounding-math", "-ffp-contract=off", "-Wno-psabi")


@dataclass(frozen=True)
class Entry:
    """An instruction of the table: its number, and the suffixes that it knows."""

    number: int
    suffixes: frozenset[str]


def build(sources: Path = SOURCES) -> Path:
    """The library of the C++ in a folder, compiled if necessary.

    Raises
    ------
    CompilerError
        There is no compiler, or it refuses the text; has what it says.
    """
    command = (*compiler().command, *_FLAGS)
    text = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    key = hashlib.sha256(text + repr((command, compiler().version)).encode()).hexdigest()[:32]
    path = cache_dir() / "machine-code" / f"libsass-{key}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        objects = {file: Path(scratch) / f"{file.stem}.o" for file in sorted(sources.glob("*.cpp"))}
        _run(*([*command, "-c", file, "-o", to] for file, to in objects.items()))
        built = Path(scratch) / "built.so"
        _run([*command, "-shared", *objects.values(), "-o", built])
        os.replace(built, path)
    return path


def _run(*commands: list[str | Path]) -> None:
    """All at once."""
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate()[1].strip() for process in running]
    failed = [n for n, process in enumerate(running) if process.returncode]
    if failed:
        texts = [f"{shlex.join(map(str, commands[n]))}\n{said[n]}" for n in failed]
        raise CompilerError("the machine does not compile:\n" + "\n".join(texts))


@functools.cache
def library() -> ctypes.CDLL:
    """The machine, loaded; raises as `build` does."""
    loaded = ctypes.CDLL(str(build()))
    loaded.sass_table.restype = ctypes.c_char_p
    sizes = (ctypes.c_uint32 * len(STRUCTURES))()
    loaded.sass_sizes(sizes)
    differ = [s.__name__ for s, size in zip(STRUCTURES, sizes, strict=True) if ctypes.sizeof(s) != size]
    if differ:
        raise TypeError(f"not of the same size in C++ and in Python: {', '.join(differ)}")
    return loaded


@functools.cache
def _texts() -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Lines of the table; numbers of suffixes and of special registers."""
    *lines, suffix_names, special_names = library().sass_table().decode().splitlines()
    numbers = ({name: n for n, name in enumerate(names.split())} for names in (suffix_names, special_names))
    return lines, *numbers


@functools.cache
def table() -> dict[str, Entry]:
    """The instructions by opcode; those of one meaning share an entry."""
    found = {}
    for number, line in enumerate(_texts()[0]):
        name, also, form = line.split("\t")
        for opcode in (name, *also.split()):
            found[opcode] = Entry(number, frozenset(form.split()))
    return found


def suffixes() -> dict[str, int]:
    """The number of each suffix."""
    return _texts()[1]


def specials() -> dict[str, int]:
    """The number of each special register."""
    return _texts()[2]
