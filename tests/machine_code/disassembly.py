"""Count the machine instructions of kernels with NVIDIA's disassembler."""

import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from tests.machine_code.compiler import disassembler


def opcodes_of(cubin: bytes) -> dict[str, Counter[str]]:
    """By mangled name, how often each opcode occurs; opcodes have their suffixes, `LDG.E.128.CONSTANT`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        shown = subprocess.run([disassembler(), "-json", path], capture_output=True, check=True)
    functions = json.loads(shown.stdout)[1]
    return {
        function["function-name"]: Counter(step["opcode"] for step in function["sass-instructions"])
        for function in functions
    }


def count(opcodes: Counter[str], *prefixes: str, containing: str = "") -> int:
    """How many instructions have one of the names: `LDG.E.128` is an `LDG`, `LDGSTS.E.128` is none."""
    return sum(
        number
        for opcode, number in opcodes.items()
        if opcode.split(".")[0] in prefixes and containing in opcode
    )
