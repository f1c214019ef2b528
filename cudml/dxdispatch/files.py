"""The files that a model names: confined to a folder, and opened so that no symbolic link leads out of it."""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cudml.errors import ModelError

#: The longest name of a file in bytes, on Linux's file systems.
_MAX_NAME_BYTES = 255

#: Flags for opening a path step by step, so that a link created after resolution is not followed.
_STEP_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutsideError(ValueError):
    """A path leads out of the folder that it is confined to; `place` is its target."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


def resolve_inside(root: Path, path: Path, *, allow_outside: bool) -> str:
    """The place that a path leads to, with every link followed. It need not exist.

    Raises OutsideError if it is not within `root`, ValueError if no file can have the name.
    """
    place = os.path.realpath(path)
    base = os.path.realpath(root)
    if not allow_outside and os.path.commonpath((base, place)) != base:
        raise OutsideError(place)
    return place


def check_target(root: Path, path: Path, *, allow_outside: bool) -> None:
    """Raise what `resolve_inside` raises, and ValueError if no file of that name can be written."""
    place = resolve_inside(root, path, allow_outside=allow_outside)
    num_bytes = len(os.fsencode(os.path.basename(place)))
    if num_bytes > _MAX_NAME_BYTES:
        raise ValueError(f"{num_bytes} bytes long, more than {_MAX_NAME_BYTES}")
    if os.path.isdir(place):
        raise ValueError(f"{place} is a folder")


def open_inside(root: Path, path: Path, *, allow_outside: bool) -> BinaryIO:
    """Open a regular file for reading; raises OSError, and what `resolve_inside` raises."""
    place = resolve_inside(root, path, allow_outside=allow_outside)
    with _folder_of(place, create=False) as folder:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(os.path.basename(place), flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(file, "rb")
    except OSError:
        os.close(file)
        raise


def write_inside(root: Path, path: Path, write: Callable[[BinaryIO], object], *, allow_outside: bool) -> None:
    """Let `write` write a file, which replaces the old one only when it is complete.

    Creates missing folders. Raises OSError, and what `resolve_inside` raises.
    """
    place = resolve_inside(root, path, allow_outside=allow_outside)
    name = os.path.basename(place)
    # A link at the end of the path is not followed either: a rename replaces the link itself.
    with _folder_of(place, create=True) as folder:
        scratch = f".cudml-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(scratch, flags, 0o666, dir_fd=folder), "wb") as file:
                write(file)
            os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch, dir_fd=folder)
            raise


def read_npy(file: BinaryIO) -> np.ndarray:
    """The array of an .npy file; raises ValueError if NumPy cannot read it without pickles."""
    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a broken header ends in anything from TokenError to MemoryError
        raise ValueError(str(error)) from error


def save_inside(root: Path, path: Path, values: np.ndarray, *, allow_outside: bool) -> None:
    """Save an array: as NumPy's format if the path ends in .npy, else as its bytes.

    Raises ModelError if the file cannot be written, or must not be written there.
    """

    def write(file: BinaryIO) -> None:
        if path.suffix.lower() == ".npy":
            np.save(file, values, allow_pickle=False)
        else:
            values.tofile(file)

    try:
        write_inside(root, path, write, allow_outside=allow_outside)
    except OutsideError as error:
        raise ModelError("the file", f"within {root}", f"a link to {error.place}", str(path)) from None
    except OSError as error:
        raise ModelError("the file", "writable", f"not written ({error.strerror})", str(path)) from None


@contextmanager
def _folder_of(place: str, *, create: bool) -> Iterator[int]:
    """A file descriptor of the folder of a resolved path."""
    folder = os.open("/", _STEP_FLAGS)
    try:
        for part in Path(place).parts[1:-1]:
            try:
                inner = os.open(part, _STEP_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                if not create:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                inner = os.open(part, _STEP_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)
