"""The cache of compiled files, in a folder that nobody but the user can write.

Code loaded from here runs with the user's privileges. Folders and files are therefore opened first and
checked through their descriptors: each must belong to the user and be writable by nobody else.
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

from cudml import locks, settings
from cudml.devices.emulator import cache_size, processes
from cudml.devices.emulator.processes import Scratch
from cudml.errors import CompilerError

_DIGEST_BYTES = 32

#: The number of the user who may do anything anyway.
_ROOT = 0

#: Age in seconds from which a scratch folder is no longer in use by a build.
_ABANDONED_AFTER = 24 * 3600

#: Seconds that a process compiles silently before it prints a line.
_QUIET_SECONDS = 5.0

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


def _check_own(path: Path, status: os.stat_result) -> None:
    """Raise PermissionError unless the user owns the file or folder and nobody else can write it."""
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others can write it")


def _require_own_folder(path: Path) -> None:
    """Create a folder if it is missing, and raise OSError unless only the user can write it."""
    make_folder(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_own(path, os.fstat(descriptor))
    finally:
        os.close(descriptor)
    for parent in _folders_on_the_way(path):
        _require_safe_parent(parent, path)


def _require_safe_parent(parent: Path, path: Path) -> None:
    """Raise PermissionError if others can replace what is in a folder, at any time.

    Its owner can, unless that is the user or root, and so can everyone who can write the folder. In a sticky
    folder, such as /tmp, only the owner of a file can replace it.
    """
    status = parent.stat()
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise PermissionError(f"{parent} belongs to user {status.st_uid}, who can replace {path}")
    mode = status.st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise PermissionError(f"{parent} has mode {stat.S_IMODE(mode):04o}: others can replace {path}")


def _folders_on_the_way(path: Path) -> list[Path]:
    """Every folder in which the system looks up a part of an absolute path, or of a symbolic link in it."""
    folders = []
    current, parts = Path(path.anchor), list(path.parts[1:])
    while parts:
        folders.append(current)
        found = current.parent if parts[0] == os.pardir else current / parts[0]
        if found.is_symlink():
            target = found.readlink()
            current = Path(target.anchor) if target.is_absolute() else current
            parts[:1] = target.parts[1:] if target.is_absolute() else target.parts
        else:
            current, parts = found, parts[1:]
    return folders


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, accessible only to the user, independent of the umask."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent)
    try:
        path.mkdir(0o700)
    except FileExistsError:  # another process created it, or it is not a folder: opening it tells
        return
    path.chmod(0o700)


def _read_own(path: Path) -> bytes | None:
    """The content of a regular file that the user owns and nobody else can write, else None."""
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
    """Write a new file that only the user can read or write, independent of the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)


class Folder:
    """The cache folder, or a temporary folder if the cache cannot be used."""

    def __init__(self) -> None:
        # No lock, which a fork could leave held: concurrent threads only append and pop.
        self._made: list[tuple[int, Path]] = []
        self._unsaid: list[str] = []

    def path(self) -> Path:
        """The folder to read and write, which only the user can write.

        Raises SettingError if CUDML_CACHE_DIR is invalid, CompilerError if there is no usable folder, not
        even a temporary one.
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
        """The temporary folder of this process; a forked child does not use its parent's."""
        return next((path for process, path in self._made if process == os.getpid()), None)

    def fall_back(self, error: OSError) -> Path:
        """Continue in a temporary folder, because of an error.

        Raises CompilerError if that folder cannot be used either.
        """
        try:
            with locks.no_fork:  # `tempfile` has a lock of its own
                made = Path(tempfile.mkdtemp(prefix="cudml-"))
        except OSError as second:
            raise nowhere_to_write(second) from error
        self._made.append((os.getpid(), made))
        place = self._temporary() or made
        if place != made:  # another thread created one first
            made.rmdir()
            return place
        self._unsaid.append(
            f"the cache folder {_cache_name()} cannot be used ({error.strerror or error}); "
            "every process compiles its kernels again. Set CUDML_CACHE_DIR to use another folder"
        )
        atexit.register(_remove_in, os.getpid(), made)
        return made

    def is_fallback(self, place: Path) -> bool:
        """Whether a folder is the temporary one."""
        return place == self._temporary()

    def warn(self) -> None:
        """Warn once if the cache cannot be used, with the user's line that led here as the location.

        Called by the user's thread: kernels are compiled in other threads, whose stacks do not contain that
        line.
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
    """Remove a folder, but not in a forked child of the process that created it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _users_level() -> int:
    """The `stacklevel` of the innermost frame outside this package, as seen from the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def nowhere_to_write(error: OSError) -> CompilerError:
    """The error if even the temporary folder cannot be used."""
    return CompilerError(
        f"compiled kernels cannot be stored: neither in the cache folder {_cache_name()} nor in a "
        f"temporary folder ({error.strerror or error}). Set CUDML_CACHE_DIR or TMPDIR to use another folder"
    )


#: The folder of this process's compiled files.
folder = Folder()


def _is_whole(path: Path) -> bool:
    """Whether a cached file ends with the digest that was appended when it was written."""
    data = _read_own(path)
    if data is None or len(data) <= _DIGEST_BYTES:
        return False
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


def cached(name: str, build: Callable[[Scratch, Path], None]) -> Path:
    """The file `name` of the cache, built by `build(scratch, path)` if it is missing or damaged.

    The digest is at the end, because the loader ignores anything after an ELF file's sections. Several
    processes may build one file at once: each writes its own, and the last one replaces the others. After a
    build, the least recently used files are removed until the cache fits CUDML_CACHE_SIZE.
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
                # Replace the old file instead of overwriting it: a process may have it mapped.
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
    """Write a file for people to read into the folder, replacing a file of that name."""
    place = folder.path()
    with processes.scratch(place) as scratch:
        _write_own(scratch.path / name, text)
        os.replace(scratch.path / name, place / name)


def discard(path: Path) -> None:
    """Remove an unusable file, so that the next call builds it again."""
    with suppress(OSError):
        path.unlink()


def _remove_abandoned(place: Path) -> None:
    """Remove the scratch folders of builds that were killed."""
    oldest = time.time() - _ABANDONED_AFTER
    for path in place.glob("tmp*"):
        with suppress(OSError):  # another process may be removing it, too
            if path.lstat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


class _Announcement:
    """Prints one line on standard error once this process has compiled for a while."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._is_made = False

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Measure the time of the block; print the line while it is still running."""
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
        # A terminal may show an unfinished progress line.
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        text = "cudml: compiling kernels for the CPU; the first time, this takes up to a minute"
        with suppress(OSError, ValueError):  # the call must not fail because of this line
            print(f"{start}{text}", file=sys.stderr, flush=True)


_announcement = _Announcement()
