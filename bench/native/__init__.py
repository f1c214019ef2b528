"""Peers that are C++ templates: small libraries of C functions, built by nvcc and called through ctypes.

`python -m bench build-peers` builds them; the `peers` group brings their headers. No GPU is needed to build.
"""

import argparse
import ctypes
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

#: Where built libraries lie, with those that they need: the folder can be taken to another machine.
BUILD = Path(__file__).parent / "build"

#: The compiler's options for every library. Without the last one, libraries in a process share the static
#: variables of inline functions, and CUB over one CUDA runtime would take answers of another from them.
OPTIONS = ("-O3", "-shared", "-Xcompiler", "-fPIC", "-Xcompiler", "-fno-gnu-unique")

_INSTALL = "pip install --group peers (pip 25.1 or later)"


@dataclass(frozen=True)
class Library:
    """A library of one source, `NAME.cu`.

    `includes` are folders of installed packages, `links` libraries of these packages that are needed at run
    time. `sources` has a file of this folder for each linked library that carries a CUDA runtime of its own:
    over another runtime, the file takes that library's place.
    """

    name: str
    standard: str
    includes: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    def files(self, is_over_runtime: bool) -> list[Path]:
        """What is compiled: its own file and, over another runtime, those of `sources`."""
        replacing = [name for _, name in self.sources if is_over_runtime]
        return [Path(__file__).parent / name for name in (f"{self.name}.cu", *replacing)]


#: By the name of the command's argument. The options of RAFT are those of its own build.
LIBRARIES = {
    "cub": Library("cub_top_k", "c++17", (("nvidia", "cu13/include/cccl"),)),
    "raft": Library(
        "raft_select_k",
        "c++20",
        (
            ("libraft", "include/rapids"),
            ("libraft", "include"),
            ("librmm", "include"),
            ("rapids_logger", "include"),
        ),
        (("librmm", "lib64/librmm.so"), ("rapids_logger", "lib64/librapids_logger.so")),
        (
            "--extended-lambda",
            "--expt-relaxed-constexpr",
            "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
            "-DRAFT_SYSTEM_LITTLE_ENDIAN=1",
        ),
        (("lib64/librmm.so", "rmm.cpp"),),
    ),
}


def unavailable(library: Library) -> str | None:
    """Why a library cannot be built; None if it can."""
    if nvcc() is None:
        return f"there is no nvcc: {_INSTALL}"
    missing = [f"{package}/{path}" for package, path in library.includes if not _installed(package, path)]
    if missing:
        return f"{', '.join(missing)} is not installed: {_INSTALL}"
    return None


def nvcc() -> str | None:
    """The compiler, of the wheel `nvidia-cuda-nvcc` or of a toolkit in PATH."""
    installed = _installed("nvidia", "cu13/bin/nvcc")
    return str(installed) if installed else shutil.which("nvcc")


def build(library: Library, architecture: str, folder: Path = BUILD, runtime: Path | None = None) -> Path:
    """Build a library for an architecture ("sm_90"), and put beside it what it needs.

    `runtime` is a library that is loaded before it in place of the CUDA runtime's. Then kernels are not
    compressed, and the library's `sources` are compiled into it.

    Raises RuntimeError if it cannot be built, with what the compiler says.
    """
    why = unavailable(library)
    if why is not None:
        raise RuntimeError(f"{library.name}: {why}")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{library.name}.so"
    replaced = dict(library.sources) if runtime else {}
    links = [(package, path) for package, path in library.links if path not in replaced]
    needed = [shutil.copy(_installed(package, path) or path, folder) for package, path in links]
    command = [nvcc() or "", *OPTIONS, f"-arch={architecture}", f"-std={library.standard}", *library.options]
    command += ["-Xlinker", "-rpath=$ORIGIN"]
    command += [f"-I{_installed(package, path)}" for package, path in library.includes]
    if runtime:
        command += ["-cudart", "none", "--compress-mode=none", "-Xlinker", str(runtime)]
    command += [*map(str, library.files(runtime is not None)), *map(str, needed), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{library.name}: nvcc exits with {done.returncode}\n{done.stderr}")
    return target


def _installed(package: str, path: str) -> Path | None:
    """A file or folder of an installed package; None if there is none."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((found for folder in folders if (found := Path(folder) / path).exists()), None)


@cache
def load(name: str, folder: Path = BUILD) -> ctypes.CDLL | None:
    """The built library `LIBRARIES[name]`; None if it was not built."""
    path = folder / f"{LIBRARIES[name].name}.so"
    return ctypes.CDLL(str(path)) if path.exists() else None


def main(arguments: list[str]) -> int:
    """Build the libraries that can be built here; 1 if none can, or one fails."""
    parser = argparse.ArgumentParser(prog="python -m bench build-peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(LIBRARIES)}; default: all")
    parser.add_argument(
        "--architecture", default="sm_90", metavar="SM", help="of the GPU (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    if unknown := [*{*options.names} - {*LIBRARIES}]:
        parser.error(f"unknown {', '.join(unknown)}; there are {', '.join(LIBRARIES)}")
    failed = False
    for name in options.names or LIBRARIES:
        try:
            print(f"{name}: {build(LIBRARIES[name], options.architecture)}", flush=True)
        except RuntimeError as error:
            failed = True
            print(error, file=sys.stderr)
    return int(failed)
