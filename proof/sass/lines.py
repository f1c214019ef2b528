"""The line of a kernel's source that each of its instructions is from."""

import re
from pathlib import Path

from cudml.devices.kernel_text import kernel_text
from cudml.devices.sources import kernel_root
from cudml.plans import KernelLaunch
from proof.sass.architectures import Architecture
from proof.sass.compiler import compiled_text
from proof.sass.disassembly import disassembled

#: Lines that nvdisasm prints for a function: its name, a place, an instruction. The first place before an
#: instruction is in the innermost inlined function.
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_PLACE = re.compile(r'//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s")


def lines_of(launch: KernelLaunch, architecture: Architecture) -> list[str]:
    """`file:line` of each instruction of a launch's kernel, in the order of their addresses.

    The kernel is compiled with `-lineinfo`, which leaves its instructions as they are. Files are relative to
    the folder of kernels.
    """
    name = launch.name_expression
    made = compiled_text(kernel_text((launch,)), architecture.name, (name,), ("-lineinfo",))
    return places_in(disassembled(made.cubin, "-gi", "-c"))[made.mangled[name]]


def places_in(text: str) -> dict[str, list[str]]:
    """By function, `file:line` of each instruction in the output of nvdisasm with `-gi`."""
    found: dict[str, list[str]] = {}
    function, place, is_innermost = "", "", True
    for line in text.splitlines():
        if section := _SECTION.match(line):
            function, place = section[1], ""
            found[function] = []
        elif marked := _PLACE.search(line):
            if is_innermost:
                place = f"{_short(marked[1])}:{marked[2]}"
            is_innermost = False
        elif function and _INSTRUCTION.match(line):
            found[function].append(place)
            is_innermost = True
    return found


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(kernel_root())) if path.is_relative_to(kernel_root()) else path.name
