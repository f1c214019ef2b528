"""Facts about compiled kernel instances, which are compiled many at a time and cached on disk."""

import contextlib
import functools
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cudml.devices.emulator.cache_files import make_folder
from cudml.devices.kernel_text import kernel_text
from cudml.plans import KernelLaunch
from cudml.settings import cache_dir
from proof.sass import cubin, disassembly
from proof.sass.architectures import Architecture
from proof.sass.compiler import code_key, compiled_launches
from proof.sass.forms import form_of

#: Instructions that multiply matrices, of all architectures.
MATRIX_OPCODES = ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCQMMA")


@dataclass(frozen=True)
class Facts:
    """One kernel instance on one architecture: what its cubin, the compiler's log and its code say.

    `flight_bytes` are the bytes that a thread's global loads bring at once, `forms` the instructions' forms.
    """

    kernel: cubin.Kernel
    spilled_bytes: int
    opcodes: Counter[str]
    flight_bytes: int
    forms: frozenset[str]

    def count(self, *prefixes: str, containing: str = "") -> int:
        """How many instructions of these names the code has."""
        return disassembly.count(self.opcodes, *prefixes, containing=containing)

    def resident_blocks(self, launch: KernelLaunch, architecture: Architecture) -> int:
        """Blocks of the launch that one multiprocessor holds at once."""
        return architecture.resident_blocks(
            self.kernel.registers, math.prod(launch.block), self.kernel.shared_bytes + launch.shared_bytes
        )

    def resident_flight_bytes(self, launch: KernelLaunch, architecture: Architecture) -> int:
        """Bytes of the global loads that all threads of a multiprocessor have in flight."""
        return self.resident_blocks(launch, architecture) * math.prod(launch.block) * self.flight_bytes


def facts_of(launches: Sequence[KernelLaunch], architecture: Architecture) -> dict[str, Facts]:
    """The facts of instances of one source by name expression, from the cache if they are there."""
    text = kernel_text(launches)
    names = [launch.name_expression for launch in launches]
    key = code_key(text, architecture.name, names) + _reader_hash()
    path = cache_dir() / "machine-code" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    known = _load(path)
    if known is None:
        known = _measure(launches, architecture)
        _store(path, known)
    return known


def _measure(launches: Sequence[KernelLaunch], architecture: Architecture) -> dict[str, Facts]:
    compiled = compiled_launches(launches, architecture.name)
    kernels = cubin.kernels_of(compiled.cubin)
    spilled = cubin.spilled_bytes(compiled.log)
    code = disassembly.instructions_of(compiled.cubin)
    return {
        name: Facts(
            kernels[mangled],
            spilled[mangled],
            disassembly.opcodes_of(code[mangled]),
            disassembly.flight_bytes_of(code[mangled]),
            frozenset(map(form_of, code[mangled])),
        )
        for name, mangled in compiled.mangled.items()
    }


@functools.cache
def _reader_hash() -> str:
    """A hash of the files that read facts: cached facts are read again if one of the files changes."""
    digest = hashlib.sha256()
    for name in ("compiler", "cubin", "disassembly", "facts", "forms", "nvrtc"):
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> dict[str, Facts] | None:
    try:
        rows: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return {name: _facts(row) for name, row in rows.items()}


def _facts(row: dict[str, Any]) -> Facts:
    fields = row["kernel"]
    fields["parameters"] = tuple(map(tuple, fields["parameters"]))
    if fields.get("cluster") is not None:
        fields["cluster"] = tuple(fields["cluster"])
    opcodes, forms = Counter(row["opcodes"]), frozenset(row["forms"])
    return Facts(cubin.Kernel(**fields), row["spilled_bytes"], opcodes, row["flight_bytes"], forms)


def _store(path: Path, known: dict[str, Facts]) -> None:
    rows = {
        name: {
            "kernel": asdict(facts.kernel),
            "spilled_bytes": facts.spilled_bytes,
            "opcodes": dict(facts.opcodes),
            "flight_bytes": facts.flight_bytes,
            "forms": sorted(facts.forms),
        }
        for name, facts in known.items()
    }
    # Another process may store the same at the same time: each writes its own file and renames it.
    own = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        own.write_text(json.dumps(rows))
        os.replace(own, path)
