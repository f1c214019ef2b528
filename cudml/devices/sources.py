"""Find the kernel sources, follow their includes, and hash what they reach."""

import hashlib
import os
import re
from functools import cache, lru_cache
from pathlib import Path

_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


@cache
def kernel_root() -> Path:
    """The folder of the kernels: inside the installed package, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "kernels", package.parent / "kernels"):
        if root.is_dir():
            return root
    raise FileNotFoundError(f"no kernels/ folder in {package} or beside it: the installation is incomplete")


@cache
def reached_files(source: str) -> tuple[Path, ...]:
    """The source and all files that it includes by quoted name, each once, in the order of first inclusion.

    `source` is relative to `kernel_root()`, or absolute. As compilers do, an include is looked up next to the
    file that names it, then in `kernel_root()`; one found in neither is left to the compiler and skipped.
    """
    reached: dict[Path, None] = {}

    def follow(path: Path) -> None:
        if path in reached:
            return
        reached[path] = None
        for name in _QUOTED_INCLUDE.findall(path.read_text(encoding="utf-8")):
            for folder in (path.parent, kernel_root()):
                if (folder / name).is_file():
                    follow((folder / name).resolve())
                    break

    follow((kernel_root() / source).resolve())
    return tuple(reached)


def source_hash(source: str) -> str:
    """The hash of the text of `source` and of every file it reaches, in hexadecimal."""
    paths = reached_files(source)
    stats = map(os.stat, paths)
    return _hash_of(paths, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats))


@lru_cache(maxsize=256)
def _hash_of(paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> str:
    """The hash of files last written at these times and of these sizes: a file is read again once edited."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.fsencode(path.name) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
