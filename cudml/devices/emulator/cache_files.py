"""Compiled files that are kept between processes, in a folder that nobody but the user can write.

What is loaded from here runs with the user's rights. So folders and files are opened first and judged by
their descriptors: each must belong to the user and be writable by nobody else.
"""

import atexit
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cudml import settings
from cudml.devices.emulator import cache_size, processes
from cudml.devices.emulator.processes import Scratch
from cudml.errors import CompilerError

_DIGEST_BYTES = 32

#: Age of a scratch folder, in seconds, that no build still uses.
_ABANDONED_AFTER = 24 * 3600

#: How long a process compiles before it says so, in seconds.
_QUIET_SECONDS = 5.0

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


def _check_own(path: Path, status: os.stat_result) -> None:
    """Raise PermissionError unless the user owns the file or folder and nobody else can write it."""
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others can write it")


def _require_own_folder(path: Path) -> None:
    """Make a folder where it is missing, and raise OSError unless it is the user's alone."""
    make_folder(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_own(path, os.fstat(descriptor))
    finally:
        os.close(descriptor)
    # Who can rename a folder can put another in its place at any time.
    for parent in path.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"{parent} has mode {stat.S_IMODE(mode):04o}: others can replace {path}")


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents for the user alone, whatever the umask."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent)
    try:
        path.mkdir(0o700)
    except FileExistsError:  # another process was quicker, or it is no folder: opening it tells
        return
    path.chmod(0o700)


def _read_own(path: Path) -> bytes | None:
    """The content of a regular file of the user's that nobody else can write; None for all else."""
    try:
        # Without O_NONBLOCK a pipe in place of the file would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        _check_own(path, status)
        if not stat.S_ISREG(status.st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _write_own(path: Path, data: bytes) -> None:
    """Write a new file that only the user can read or write, whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)


class Folder:
    """The cache, or a temporary folder where the cache cannot be used."""

    def __init__(self) -> None:
        # No lock, which a fork could leave held: what several threads do at once are single appends and pops.
        self._made: list[tuple[int, Path]] = []
        self._unsaid: list[str] = []

    def path(self) -> Path:
        """Where to look for files and put them: a folder of the user's alone.

        Raises
        ------
        SettingError
            CUDML_CACHE_DIR cannot be a folder.
        CompilerError
            There is no place, not even a temporary one.
        """
        temporary = self._temporary()
        if temporary is not None:
            return temporary
        try:
            cache = settings.cache_dir()
            place = cache / "emulator"
            for folder in (cache, place):
                _require_own_folder(folder)
        except OSError as error:
            return self.fall_back(error)
        return place

    def _temporary(self) -> Path | None:
        """The temporary folder of this process; that of the one it was forked from goes with that one."""
        return next((path for process, path in self._made if process == os.getpid()), None)

    def fall_back(self, error: OSError) -> Path:
        """Carry on in a temporary folder, for the reason given.

        Raises
        ------
        CompilerError
            That folder cannot be used either.
        """
        try:
            made = Path(tempfile.mkdtemp(prefix="cudml-"))
        except OSError as second:
            raise nowhere_to_write(second) from error
        self._made.append((os.getpid(), made))
        place = self._temporary() or made
        if place != made:  # another thread was quicker
            made.rmdir()
            return place
        self._unsaid.append(
            f"the cache folder {_cache_name()} cannot be used ({error.strerror or error}); "
            "kernels are compiled anew in every process. CUDML_CACHE_DIR names another folder"
        )
        atexit.register(_remove_in, os.getpid(), made)
        return made

    def is_fallback(self, place: Path) -> bool:
        """Whether a place is the temporary folder."""
        return place == self._temporary()

    def warn(self) -> None:
        """Warn once where the cache could not be used, at the line of the user's that led here.

        Kernels are compiled in threads of their own, on whose stacks that line is not.
        """
        with suppress(IndexError):
            text = self._unsaid.pop()
            warnings.warn(text, RuntimeWarning, stacklevel=_users_level())


def _cache_name() -> str:
    try:
        return str(settings.cache_dir())
    except OSError:
        return "in the home folder"


def _remove_in(process: int, folder: Path) -> None:
    """Remove a folder, but not in a fork of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _users_level() -> int:
    """How many frames above the caller the innermost one outside of this package is, as `stacklevel`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def nowhere_to_write(error: OSError) -> CompilerError:
    """What is raised where even the temporary folder cannot be used."""
    return CompilerError(
        f"there is nowhere to put compiled kernels: neither in the cache folder {_cache_name()} nor in "
        f"temporary folders ({error.strerror or error}). CUDML_CACHE_DIR and TMPDIR name others"
    )


#: Where this process keeps what it compiles.
folder = Folder()


def _is_whole(path: Path) -> bool:
    """Whether a cached file carries the digest that was appended to it when it was written."""
    data = _read_own(path)
    if data is None or len(data) <= _DIGEST_BYTES:
        return False
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


def cached(name: str, build: Callable[[Scratch, Path], None]) -> Path:
    """The file `name` of the cache, built by `build(scratch, path)` where it is missing or damaged.

    The loader ignores what follows an ELF file's sections, so the digest stands at the end. Several
    processes may build one file at once: each writes its own and the last replaces the others. After a build
    the files not used for longest go, down to the size that CUDML_CACHE_SIZE allows.
    """
    most_bytes = settings.cache_bytes()
    while True:
        place = folder.path()
        if _is_whole(place / name):
            cache_size.mark_used(place / name)
            return place / name
        try:
            _remove_abandoned(place)
            with _announcement.compiling(), processes.scratch(place) as scratch:
                built = scratch.path / name
                build(scratch, built)
                data = built.read_bytes()
                # A new file, never the old one overwritten: that one may be mapped by a process.
                sealed = scratch.path / "sealed"
                _write_own(sealed, data + hashlib.sha256(data).digest())
                os.replace(sealed, place / name)
            cache_size.trim(place, most_bytes)
            return place / name
        except OSError as error:
            if folder.is_fallback(place):
                raise nowhere_to_write(error) from error
            folder.fall_back(error)


def keep_beside(name: str, text: bytes) -> None:
    """Put a file into the folder to be read by people, in place of one of that name."""
    place = folder.path()
    with processes.scratch(place) as scratch:
        _write_own(scratch.path / name, text)
        os.replace(scratch.path / name, place / name)


def discard(path: Path) -> None:
    """Remove a file that turned out to be unusable, so that the next call builds it anew."""
    with suppress(OSError):
        path.unlink()


def _remove_abandoned(place: Path) -> None:
    """Remove the scratch folders of builds that were killed."""
    oldest = time.time() - _ABANDONED_AFTER
    for path in place.glob("tmp*"):
        with suppress(OSError):  # another process may be as tidy
            if path.lstat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


class _Announcement:
    """One line on standard error, once this process has compiled for longer than people like to wait."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._is_made = False

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count the time of the block; the line comes while it still runs."""
        start = time.monotonic()
        timer = None
        if not self._is_made:
            timer = threading.Timer(max(_QUIET_SECONDS - self._seconds, 0), self._make)
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            self._seconds += time.monotonic() - start

    def _make(self) -> None:
        if self._is_made or sys.stderr is None:
            return
        self._is_made = True
        # A terminal may show a line of progress that was not ended.
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        text = "cudml: compiling kernels for the CPU, which takes up to a minute, once"
        with suppress(OSError, ValueError):  # the line is no reason to fail
            print(f"{start}{text}", file=sys.stderr, flush=True)


_announcement = _Announcement()
