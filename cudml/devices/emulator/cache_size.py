"""Bound the size of the folder of compiled files by removing the least recently used ones."""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Names of compiled files and kept sources, which end in a hash; other files in the folder are left alone.
_OWN_NAME = re.compile(r".+-[0-9a-f]{32}\.(so|cpp)")

#: A file used within this many seconds is kept: the process that looked for it may be about to load it.
IN_USE_SECONDS = 60.0


@dataclass(frozen=True)
class KeptFile:
    """A file of the cache, its size, and the time of its last use in seconds since the epoch."""

    path: Path
    num_bytes: int
    last_used: float


def kept_files(place: Path) -> Iterator[KeptFile]:
    """The compiled files of a folder; none if the folder does not exist."""
    with suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            # Another process may just have replaced the file.
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if _OWN_NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                    yield KeptFile(Path(entry.path), status.st_size, status.st_mtime)


def mark_used(path: Path) -> None:
    """Record the use of a file in its modification time: many systems do not keep access times."""
    with suppress(OSError):  # a read-only folder is never trimmed either
        os.utime(path, follow_symlinks=False)


def trim(place: Path, most_bytes: int) -> None:
    """Remove the least recently used files until the folder has at most `most_bytes` bytes.

    A process that has loaded a removed file can still use it.
    """
    files = sorted(kept_files(place), key=lambda file: file.last_used)
    too_many = sum(file.num_bytes for file in files) - most_bytes
    in_use_since = time.time() - IN_USE_SECONDS
    for file in files:
        if too_many <= 0 or file.last_used > in_use_since:
            return
        with suppress(OSError):
            file.path.unlink()
            too_many -= file.num_bytes


def clear(place: Path) -> list[KeptFile]:
    """Remove every compiled file, and the folders that killed builds left; return the removed files.

    Raises OSError if a file cannot be removed.
    """
    removed = []
    for file in list(kept_files(place)):
        with suppress(FileNotFoundError):
            file.path.unlink()
            removed.append(file)
    for scratch in place.glob("tmp*"):
        if scratch.is_dir() and not scratch.is_symlink():
            shutil.rmtree(scratch, ignore_errors=True)
    return removed
