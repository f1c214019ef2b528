"""Read the machine instructions of kernels with NVIDIA's disassembler."""

import contextlib
import functools
import gzip
import hashlib
import json
import os
import re
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cudml.devices.emulator.cache_files import make_folder
from cudml.settings import cache_dir
from proof.sass.compiler import disassembler

#: Instructions that end a sequence, unless a predicate may disable them.
_JUMPS = ("BRA", "EXIT", "RET", "BRX", "JMP")

_BYTES_OF_SUFFIX = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_REGISTER_BYTES = 4


@dataclass(frozen=True)
class Instruction:
    """One instruction: its opcode with suffixes (`LDG.E.128.CONSTANT`), and operands as they are spelled."""

    opcode: str
    operands: str
    is_predicated: bool

    @property
    def name(self) -> str:
        """The opcode without suffixes."""
        return self.opcode.split(".")[0]

    @property
    def num_bytes(self) -> int:
        """Bytes that a load or store moves for each lane."""
        sizes = [_BYTES_OF_SUFFIX[s] for s in self.opcode.split(".")[1:] if s in _BYTES_OF_SUFFIX]
        return sizes[0] if sizes else _REGISTER_BYTES

    @property
    def registers(self) -> list[int]:
        """The numbers of the registers that are spelled out, in order: 4 for `R4` or a vector from R4 on."""
        return [int(number) for number in re.findall(r"\bR(\d+)\b", self.operands)]


def disassembled(cubin: bytes, *options: str) -> str:
    """The output of nvdisasm.

    Raises
    ------
    FileNotFoundError
        No disassembler was found.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [_tool(), *options, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def kept_disassembled(cubin: bytes, *options: str) -> str:
    """As `disassembled`, kept on disk: nvdisasm takes half a second for the smallest cubin."""
    key = repr((disassembler_version(), options)).encode() + cubin
    path = cache_dir() / "machine-code" / f"{hashlib.sha256(key).hexdigest()}.sass"
    with contextlib.suppress(OSError, EOFError, zlib.error):
        return gzip.decompress(path.read_bytes()).decode()
    printed = disassembled(cubin, *options)
    # Another process may store the same at the same time: each writes its own file and renames it.
    own = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        own.write_bytes(gzip.compress(printed.encode(), compresslevel=1))
        os.replace(own, path)
    return printed


def disassembler_version() -> str:
    """The disassembler's version and build, which decide what it prints."""
    return _version_of(_tool())


@functools.cache
def _version_of(tool: str) -> str:
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout


def _tool() -> str:
    tool = disassembler()
    if tool is None:
        raise FileNotFoundError("there is no nvdisasm: pip install nvidia-cuda-nvdisasm")
    return tool


def instructions_of(cubin: bytes) -> dict[str, list[Instruction]]:
    """By mangled name, a kernel's instructions in the order of their addresses."""
    functions = json.loads(disassembled(cubin, "-json"))[1]
    return {
        function["function-name"]: [
            Instruction(step["opcode"], step.get("operands", ""), "predicate" in step)
            for step in function["sass-instructions"]
        ]
        for function in functions
    }


def opcodes_of(instructions: Iterable[Instruction]) -> Counter[str]:
    """How often each opcode occurs; opcodes have their suffixes."""
    return Counter(instruction.opcode for instruction in instructions)


def count(opcodes: Counter[str], *prefixes: str, containing: str = "") -> int:
    """How many instructions have one of the names: `LDG.E.128` is an `LDG`, `LDGSTS.E.128` is not."""
    return sum(
        number
        for opcode, number in opcodes.items()
        if opcode.split(".")[0] in prefixes and containing in opcode
    )


def flight_bytes_of(instructions: Iterable[Instruction]) -> int:
    """The most bytes that a thread's global loads bring at once, before it waits for one of them.

    Loads are assumed to arrive in order: an instruction that reads or overwrites a load's register has waited
    for all loads before it. Conditional branches are not taken, and behind a jump nothing is under way.
    """
    under_way: list[tuple[set[int], int]] = []
    most = 0
    for instruction in instructions:
        is_load = instruction.name == "LDG"
        if not (is_load or under_way):
            continue
        touched = set(instruction.registers)
        if is_load or instruction.name in ("STG", "STS"):
            # The registers of the value: the first operand of a load, the last of a store.
            first = instruction.registers[0 if is_load else -1] if instruction.registers else 0
            value = set(range(first, first + max(1, instruction.num_bytes // _REGISTER_BYTES)))
            touched |= value
        waited_for = [position for position, (loaded, _) in enumerate(under_way) if loaded & touched]
        if waited_for:
            del under_way[: waited_for[-1] + 1]
        if instruction.name in _JUMPS and not instruction.is_predicated:
            under_way.clear()
        if is_load:
            under_way.append((value, instruction.num_bytes))
            most = max(most, sum(num_bytes for _, num_bytes in under_way))
    return most
