"""Translate code offsets of a module to file, line and function."""

import os
import re
import shutil
from pathlib import Path

from cudml.devices.emulator import build, processes

_PLACE = re.compile(r"\{pc ([0-9a-f]+)\}")
_MAX_FRAMES = 3


def with_lines(text: str, module: Path) -> str:
    """Replace each `{pc OFFSET}` of a text by its source locations, innermost first.

    Frames of the emulator's own headers are left out, so that an intrinsic is attributed to its caller.
    """
    offsets = sorted(set(_PLACE.findall(text)))
    if not offsets:
        return text
    names = _look_up(offsets, module)
    return _PLACE.sub(lambda match: names[match[1]], text)


def _look_up(offsets: list[str], module: Path) -> dict[str, str]:
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return {offset: f"{module.name}+0x{offset} (install binutils for lines)" for offset in offsets}
    command = [tool, "-a", "-f", "-C", "-i", "-e", str(module), *(f"0x{offset}" for offset in offsets)]
    answer = processes.output(command)
    # For each address: the address itself, then two lines a frame, function and file:line.
    names = {}
    for part in re.split(r"^0x", os.fsdecode(answer), flags=re.MULTILINE)[1:]:
        address, *lines = part.splitlines()
        frames = list(zip(lines[::2], lines[1::2], strict=True))
        own = [(f, place) for f, place in frames if not place.startswith(f"{build.SIMT}/")] or frames[-1:]
        names[f"{int(address, 16):x}"] = " <- ".join(map(_frame, own[:_MAX_FRAMES]))
    return names


def _frame(frame: tuple[str, str]) -> str:
    function, place = frame
    place = re.sub(r" \(discriminator \d+\)$", "", place)
    place = re.sub(r"^/kernels/", "kernels/", place)
    # "void scale<3>(int*, Params)" is "scale<3>".
    name = re.sub(r"^(?:void|auto) ", "", function.split("(")[0])
    return f"{place} in {name}"
