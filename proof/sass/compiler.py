"""NVRTC with the option list that `cupy.RawModule` uses."""

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

from cudml.devices.kernel_text import kernel_text
from cudml.devices.sources import kernel_root
from cudml.plans import KernelLaunch
from cudml.settings import cache_dir
from proof.sass import nvrtc
from proof.sass.nvrtc import Compiled


@functools.cache
def unavailable() -> str | None:
    """Why machine code cannot be made and read here; None if it can."""
    try:
        nvrtc.version()
    except Exception as error:  # CuPy or NVRTC is missing, and CuPy says so in several ways
        return f"no NVRTC: {type(error).__name__}: {error}"
    return None if disassembler() else "no nvdisasm: pip install nvidia-cuda-nvdisasm"


@functools.cache
def nvrtc_version() -> str:
    """The version and build of the compiler, which determine the machine code."""
    # The interface has no build number; the wheel's version has it.
    major, minor = nvrtc.version()
    for name in ("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{major}"):
        if importlib.util.find_spec("nvidia") is None:
            break
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if found.startswith(f"{major}.{minor}."):
            return found
    return f"{major}.{minor}"


@functools.cache
def disassembler() -> str | None:
    """The path of nvdisasm: of the `nvidia-cuda-nvdisasm` wheel, else of a toolkit in PATH."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in Path(folder).glob("cu*/bin/nvdisasm"):
            return str(found)
    return shutil.which("nvdisasm")


def device_options() -> tuple[str, ...]:
    """The options that `cudml.devices.cuda` gives to `RawModule`."""
    return ("--std=c++17", f"-I{kernel_root()}")


def nvrtc_options(architecture: str, options: Sequence[str]) -> tuple[str, ...]:
    """The whole list, in CuPy's order; its own `-ftz=true` wins over any of ours."""
    from cupy._core.core import assemble_cupy_compiler_options

    assembled: tuple[str, ...] = assemble_cupy_compiler_options(tuple(options))
    return (*assembled, "-ftz=true", f"-arch={architecture}", "--device-as-default-execution-space")


def code_key(text: str, architecture: str, names: Sequence[str], options: Sequence[str] = ()) -> str:
    """The key of files that keep machine code: everything that decides it.

    Folders of headers are left out, so another environment with the same compiler finds the same files:
    kernels include no header but the project's, and a text has the hash of those.
    """
    chosen = [option for option in nvrtc_options(architecture, options) if not option.startswith("-I")]
    return "\0".join((text, *names, *chosen, nvrtc_version()))


def compile_cubin(
    text: str, architecture: str, name_expressions: Sequence[str], options: Sequence[str] = ()
) -> Compiled:
    """Compile a text for an architecture ("sm_90").

    Parameters
    ----------
    options : sequence of str
        Options besides the device's, such as `--ptxas-options=-v`, which fills the log.

    Raises
    ------
    RuntimeError
        The text does not compile; has the log.
    """
    whole = nvrtc_options(architecture, (*device_options(), *options))
    return nvrtc.compile_program(text, whole, name_expressions)


def compiled_launches(launches: Sequence[KernelLaunch], architecture: str) -> Compiled:
    """Instances of one source, compiled together, with the log; kept on disk."""
    names = [launch.name_expression for launch in launches]
    return compiled_instances(kernel_text(launches), architecture, names)


def compiled_instances(text: str, architecture: str, names: Sequence[str]) -> Compiled:
    """As `compiled_launches`, for their text."""
    return compiled_text(text, architecture, names, ("--ptxas-options=-v",))


def compiled_text(
    text: str, architecture: str, names: Sequence[str], options: Sequence[str] = ()
) -> Compiled:
    """As `compile_cubin`, kept on disk by `code_key`."""
    key = code_key(text, architecture, names, options)
    path = cache_dir() / "machine-code" / f"{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
        kept: Compiled = pickle.loads(path.read_bytes())
        return kept
    made = compile_cubin(text, architecture, names, options)
    # Another process may store the same at the same time: each writes its own file and renames it.
    own = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(pickle.dumps(made))
        os.replace(own, path)
    return made
