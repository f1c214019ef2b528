"""Libraries in place of NVIDIA's that a program names but must not need: each function fails and is noted.

With them, PyTorch loads over the stand-in for the CUDA runtime without cuBLAS, cuDNN and the driver.
"""

import ctypes
import hashlib
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, run

import numpy as np

from cudml.devices.emulator.build import compiler
from cudml.errors import CompilerError
from cudml.settings import cache_dir

#: The library of all functions. The libraries that programs name are empty: for symbols in these, the loader
#: would ask for versions.
_FUNCTIONS = "libabsent.so"
_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
_FUNCTION = re.compile(r"_*(cu|nv|nccl)[A-Za-z]\w*")

#: ELF: the tag of a dynamic entry that names a library, and the section number of an undefined symbol.
_NEEDED, _UNDEFINED = 1, 0
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)

#: Text that all functions share. Only the first function called is reported: it is why others were called.
_TEXT = """
static const char* called = nullptr;
extern "C" const char* absent_called() {
  const char* found = called;
  called = nullptr;
  return found ? found : "";
}
static int absent(const char* name) {
  if (!called) called = name;
  return 999;  // cudaErrorUnknown, and an error of every other library
}
"""


@dataclass(frozen=True)
class _Names:
    """The libraries that a shared object needs, and its symbols that other objects may see."""

    libraries: frozenset[str]
    defined: frozenset[str]
    undefined: frozenset[str]


def load(libraries: Sequence[Path], present: Path) -> Callable[[], str]:
    """Load stand-ins for NVIDIA's libraries that shared objects name, but for each other and `present`.

    Returns a function, which gives the name of the first absent function called since the last time, or "".

    Raises
    ------
    CompilerError
        There is no compiler, or it refuses the text; has its message.
    """
    read = {path.name: _names_in(path) for path in libraries}
    here = _names_in(present)
    defined = here.defined.union(*(names.defined for names in read.values()))
    needed = frozenset[str]().union(*(names.libraries for names in read.values()))
    undefined = frozenset[str]().union(*(names.undefined for names in read.values()))
    absent = sorted(name for name in needed - read.keys() - {present.name} if _LIBRARY.match(name))
    functions = sorted(name for name in undefined - defined if _FUNCTION.fullmatch(name))
    folder = _build(absent, functions, present)
    for name in (_FUNCTIONS, *absent):
        ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    called = ctypes.CDLL(str(folder / _FUNCTIONS)).absent_called
    called.restype = ctypes.c_char_p
    return lambda: called().decode()


def _build(libraries: Sequence[str], functions: Iterable[str], present: Path) -> Path:
    """A folder with the libraries and the library of their functions, which each of them links."""
    bodies = [f'extern "C" int {name}() {{ return absent("{name}"); }}' for name in functions]
    text = "\n".join([_TEXT, *bodies])
    command = [*compiler().command, "-std=c++17", "-O1", "-w", "-fno-builtin", "-shared", "-fPIC"]
    links = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]
    key = hashlib.sha256(repr((command, links, text, libraries, present, compiler().version)).encode())
    folder = cache_dir() / "machine-code" / f"absent-{key.hexdigest()[:32]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        built = Path(scratch) / "built"
        built.mkdir()
        for name in (_FUNCTIONS, *libraries):
            source = Path(scratch) / f"{name}.cpp"
            source.write_text(text if name == _FUNCTIONS else "")
            needed = [present] if name == _FUNCTIONS else [built / _FUNCTIONS]
            named = [f"-Wl,-soname,{name}", source, *links, *needed, "-o", built / name]
            done = run([*command, *named], stderr=PIPE, text=True)
            if done.returncode:
                raise CompilerError(f"{name} in place of NVIDIA's does not compile:\n{done.stderr.strip()}")
        os.replace(built, folder)
    return folder


def _names_in(path: Path) -> _Names:
    """The names in a shared object, which may have gigabytes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as elf:
        table = struct.unpack_from("<Q", elf, 0x28)[0]
        entry_size, count, _ = struct.unpack_from("<3H", elf, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + n * entry_size) for n in range(count)]

        def body(kind: int) -> tuple[bytes, bytes]:
            """A section of a kind, and the section with its names."""
            header = next(header for header in headers if header[1] == kind)
            names = headers[header[6]]
            return tuple(elf[offset : offset + size] for *_, offset, size in (header[:6], names[:6]))

        symbols, names = body(11)
        entries, libraries = body(6)

    def text(strings: bytes, start: int) -> str:
        return strings[start : strings.index(b"\0", start)].decode()

    found = np.frombuffer(symbols, _SYMBOL)
    is_undefined = found["section"] == _UNDEFINED
    return _Names(
        frozenset(
            text(libraries, value) for tag, value in struct.iter_unpack("<QQ", entries) if tag == _NEEDED
        ),
        frozenset(text(names, start) for start in found["name"][~is_undefined].tolist()),
        frozenset(text(names, start) for start in found["name"][is_undefined].tolist()),
    )
