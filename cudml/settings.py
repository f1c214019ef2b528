"""The few environment variables, read each time they are asked for, so that a program can set them late.

=====================  ==============================================================================
CUDML_CACHE_DIR        where compiled kernels are kept; default `~/.cache/cudml` (XDG_CACHE_HOME is heeded)
CUDML_CXX              the host compiler of the CPU emulator, as a command line; default: the first found
CUDML_EMULATOR         how the emulator runs kernels: `check`, or options such as `order=random,seed=3`
CUDML_KEEP_SOURCE      1 keeps the generated sources beside the compiled modules
CUDML_PRINT_PLAN       1 prints every plan when it is loaded
=====================  ==============================================================================
"""

import os
import shlex
from functools import partial
from pathlib import Path

try:
    from posix import environ as _raw_environment  # the dictionary behind os.environ
except ImportError:  # there is no emulator either
    _raw_environment = {}


def cache_dir() -> Path:
    """The folder for compiled kernels; it need not exist."""
    chosen = os.environ.get("CUDML_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cudml"


def compiler_command() -> list[str] | None:
    """The host compiler the user asked for, None where the choice is ours."""
    return shlex.split(os.environ.get("CUDML_CXX", "")) or None


#: Gives the text of CUDML_EMULATOR, undecoded, or None; `devices/emulator/schedule.py` reads it. Every call
#: of an array function asks, and os.environ.get takes half a microsecond to say that a name is absent.
emulator_options = partial(_raw_environment.get, b"CUDML_EMULATOR")


def keep_source() -> bool:
    """Whether generated sources stay beside the modules built from them."""
    return _is_on("CUDML_KEEP_SOURCE")


def print_plan() -> bool:
    """Whether a plan is printed when it is loaded."""
    return _is_on("CUDML_PRINT_PLAN")


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
