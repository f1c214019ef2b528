"""The machine: its C++ built once by the host's compiler, loaded, and its table of instructions."""

import ctypes
import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cudml.devices.emulator.build import compiler
from cudml.errors import CompilerError
from cudml.settings import cache_dir
from proof.sass.encoding import STRUCTURES

SOURCES = Path(__file__).parent / "machine"
#: Rounding is set while instructions run, and sums must not be contracted.
_FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-frounding-math", "-ffp-contract=off", "-Wno-psabi")


@dataclass(frozen=True)
class Entry:
    """An instruction of the table: its number, and the suffixes that it knows."""

    number: int
    suffixes: frozenset[str]


class Table(NamedTuple):
    """Entries by opcode, shared by opcodes of one meaning; numbers of suffixes and of special registers."""

    entries: dict[str, Entry]
    suffixes: dict[str, int]
    specials: dict[str, int]


def build(sources: Path = SOURCES) -> Path:
    """The library of the C++ in a folder, compiled if necessary.

    Raises
    ------
    CompilerError
        There is no compiler, or it refuses the text; has its message.
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
        with ThreadPoolExecutor() as pool:
            list(pool.map(_run, ([*command, "-c", file, "-o", to] for file, to in objects.items())))
        built = Path(scratch) / "built.so"
        _run([*command, "-shared", *objects.values(), "-o", built])
        os.replace(built, path)
    return path


def _run(command: list[str | Path]) -> None:
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        text = f"{shlex.join(map(str, command))}\n{result.stderr.strip()}"
        raise CompilerError(f"the machine does not compile:\n{text}")


@functools.cache
def library() -> ctypes.CDLL:
    """The machine, loaded; raises as `build` does."""
    loaded = ctypes.CDLL(str(build()))
    loaded.sass_table.restype = ctypes.c_char_p
    return loaded


@functools.cache
def table() -> Table:
    """The machine's table of instructions."""
    *lines, suffix_names, special_names, sizes = library().sass_table().decode().splitlines()
    differ = [
        s.__name__ for s, n in zip(STRUCTURES, sizes.split(), strict=True) if ctypes.sizeof(s) != int(n)
    ]
    if differ:
        raise TypeError(f"not of the same size in C++ and in Python: {', '.join(differ)}")
    entries = {}
    for number, line in enumerate(lines):
        name, also, form = line.split("\t")
        entries |= dict.fromkeys((name, *also.split()), Entry(number, frozenset(form.split())))
    numbers = ({name: n for n, name in enumerate(names.split())} for names in (suffix_names, special_names))
    return Table(entries, *numbers)
