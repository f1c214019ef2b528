"""The size of the folder of compiled files: bounded, the ones not used for longest dropped first."""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Names of compiled files and kept sources, which end in a hash; all else in the folder is somebody else's.
_OWN_NAME = re.compile(r".+-[0-9a-f]{32}\.(so|cpp)")

#: A file used within so many seconds stays: the process that looked for it may be about to load it.
IN_USE_SECONDS = 60.0


@dataclass(frozen=True)
class KeptFile:
    """A file of the cache, its bytes, and when it was last used, in seconds since the epoch."""

    path: Path
    num_bytes: int
    last_used: float


def kept_files(place: Path) -> Iterator[KeptFile]:
    """The files that were compiled into a folder; none where it does not exist."""
    with suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            # What another process was just replacing may be gone again.
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if _OWN_NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                    yield KeptFile(Path(entry.path), status.st_size, status.st_mtime)


def mark_used(path: Path) -> None:
    """Note that a file is used now, in the time of its last change: many systems keep no other."""
    with suppress(OSError):  # a folder that is read-only is never trimmed either
        os.utime(path, follow_symlinks=False)


def trim(place: Path, most_bytes: int) -> None:
    """Remove files, those first that were not used for longest, until the folder has at most so many bytes.

    Files that a process has loaded go on working for it.
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
    """Remove every compiled file and what killed builds left behind; gives the files that are gone.

    Raises
    ------
    OSError
        A file cannot be removed.
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
