"""The environment variables, read on each use, so that a program can set them at any time.

=====================  ==============================================================================
CUDML_CACHE_DIR        cache folder of compiled kernels; default `$XDG_CACHE_HOME/cudml`, `~/.cache/cudml`
CUDML_CACHE_SIZE       maximum size of the cache, such as `500M` or `2G`; default 1G
CUDML_CXX              host compiler of the CPU emulator, as a command line; default: the first one found
CUDML_EMULATOR         how the emulator runs kernels: `check`, or options such as `order=random,seed=3`
CUDML_GRAPHS           0 records no CUDA graph of a plan's repeated steps; read when a plan is loaded
CUDML_KEEP_SOURCE      1 keeps the generated sources next to the compiled modules
CUDML_PRINT_PLAN       1 prints every plan when it is loaded
CUDML_WAIT_LIMIT       seconds that a block waits for other blocks before it gives up; default 10; read when
                       a kernel is loaded
=====================  ==============================================================================
"""

import errno
import math
import os
import shlex
from pathlib import Path

from cudml.errors import SettingError

_DEFAULT_CACHE_SIZE = "1G"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def cache_dir() -> Path:
    """The cache folder of compiled kernels, which may not exist yet.

    Raises SettingError if CUDML_CACHE_DIR is relative, or names the home folder of a user who does not exist;
    FileNotFoundError if neither it nor XDG_CACHE_HOME is set and there is no home folder.
    """
    chosen = os.environ.get("CUDML_CACHE_DIR")
    if chosen:
        expanded = os.path.expanduser(chosen)
        if not os.path.isabs(expanded):
            no_home = "; there is no such home folder" if chosen.startswith("~") else ""
            raise SettingError(f"CUDML_CACHE_DIR is {chosen!r}, must be an absolute path{no_home}")
        return Path(expanded)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore relative paths
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        raise FileNotFoundError(errno.ENOENT, "there is no home folder")
    return Path(base) / "cudml"


def cache_bytes() -> int:
    """The maximum size of the cache in bytes.

    Raises SettingError if CUDML_CACHE_SIZE is not a size.
    """
    text = os.environ.get("CUDML_CACHE_SIZE") or _DEFAULT_CACHE_SIZE
    number, unit = (text[:-1], text[-1].upper()) if text[-1].upper() in _UNITS else (text, "")
    if not (number.isascii() and number.isdecimal()):
        units = ", ".join(filter(None, _UNITS))
        raise SettingError(
            f"CUDML_CACHE_SIZE is {text!r}, must be a number of bytes, or a number with one of {units}: '2G'"
        )
    return int(number) * _UNITS[unit]


def compiler_command() -> list[str] | None:
    """The host compiler of CUDML_CXX; None if it is not set.

    Raises SettingError if CUDML_CXX is not a valid command line.
    """
    chosen = os.environ.get("CUDML_CXX", "")
    try:
        return shlex.split(chosen) or None
    except ValueError as error:
        expected = "a command line, quoted as in a shell"
        raise SettingError(f"CUDML_CXX is {chosen!r}, must be {expected}: {error}") from None


def keep_source() -> bool:
    """Whether generated sources are kept next to the modules built from them."""
    return _is_on("CUDML_KEEP_SOURCE")


def record_graphs() -> bool:
    """Whether the repeated steps of a plan may be recorded as a CUDA graph."""
    return os.environ.get("CUDML_GRAPHS", "").lower() not in ("0", "false", "no", "off")


def print_plan() -> bool:
    """Whether a plan is printed when it is loaded."""
    return _is_on("CUDML_PRINT_PLAN")


def wait_limit() -> float:
    """Seconds that a block waits for other blocks of its grid before it gives up.

    Raises SettingError if CUDML_WAIT_LIMIT is not a positive number.
    """
    text = os.environ.get("CUDML_WAIT_LIMIT") or "10"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SettingError(f"CUDML_WAIT_LIMIT is {text!r}, must be a positive number of seconds")
    return seconds


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
