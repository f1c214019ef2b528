"""`python -m bench machine-code`: what the compiler makes of every kernel instance, as a table to compare.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` extra), and no GPU. `--check` writes nothing and tells what
differs from the committed table.
"""

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from cudml.plans import KernelLaunch
from tests.instances import batches
from tests.machine_code.architectures import ARCHITECTURES, Architecture
from tests.machine_code.compiler import nvrtc_version, unavailable
from tests.machine_code.facts import MATRIX_OPCODES, Facts, facts_of

TABLE = Path(__file__).parent / "results" / "machine_code.csv"


@dataclass(frozen=True)
class Row:
    """One kernel instance on one architecture.

    `shared_bytes` is what its launch asks for. `blocks` and `warps` are those that one multiprocessor holds
    at once. Loads and stores are global instructions in the code, `_16` those of 16 bytes; `generic` are
    accesses whose memory space the compiler did not know.
    """

    source: str
    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    threads: int
    shared_bytes: int
    blocks: int
    warps: int
    loads: int
    loads_16: int
    stores: int
    stores_16: int
    generic: int
    matrix: int
    code_bytes: int


def row_of(launch: KernelLaunch, facts: Facts, architecture: Architecture) -> Row:
    """The row of one instance."""
    threads = math.prod(launch.block)
    blocks = facts.resident_blocks(launch, architecture)
    return Row(
        source=launch.source,
        kernel=launch.name_expression,
        architecture=architecture.name,
        registers=facts.kernel.registers,
        stack_bytes=facts.kernel.stack_bytes,
        threads=threads,
        shared_bytes=launch.shared_bytes,
        blocks=blocks,
        warps=blocks * math.ceil(threads / 32),
        loads=facts.count("LDG", "LDGSTS"),
        loads_16=facts.count("LDG", "LDGSTS", containing=".128"),
        stores=facts.count("STG"),
        stores_16=facts.count("STG", containing=".128"),
        generic=facts.count("LD", "ST"),
        matrix=facts.count(*MATRIX_OPCODES),
        code_bytes=facts.kernel.code_bytes,
    )


def measured() -> list[Row]:
    """The rows of every instance on every architecture; what was compiled before comes from the cache."""
    work = [(architecture, batch) for architecture in ARCHITECTURES for batch in batches(architecture.limits)]

    def rows(item: tuple[Architecture, list[KernelLaunch]]) -> list[Row]:
        architecture, batch = item
        facts = facts_of(batch, architecture)
        return [row_of(launch, facts[launch.name_expression], architecture) for launch in batch]

    with ThreadPoolExecutor() as pool:  # the compiler works without Python's lock
        found = [row for part in pool.map(rows, work) for row in part]
    order = {architecture.name: number for number, architecture in enumerate(ARCHITECTURES)}
    return sorted(found, key=lambda row: (row.source, row.kernel, order[row.architecture]))


def table_text(version: str, rows: Iterable[Row]) -> str:
    """The file's text: the compiler's version, then the table."""
    text = io.StringIO()
    text.write(f"# NVRTC {version}\n")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def recorded_version(text: str) -> str:
    """The compiler's version that a table was made with."""
    return text.partition("\n")[0].removeprefix("# NVRTC ")


def differences(recorded: str, fresh: str) -> list[str]:
    """What changed from one table to another, one line for each instance and architecture."""
    before, after = (_by_instance(text) for text in (recorded, fresh))
    found = []
    for key in sorted(before.keys() | after.keys()):
        name = " ".join(key)
        if key not in after:
            found.append(f"{name}: is no longer there")
        elif key not in before:
            found.append(f"{name}: is new")
        else:
            changes = [
                f"{column} {old} -> {after[key][column]}"
                for column, old in before[key].items()
                if after[key][column] != old
            ]
            if changes:
                found.append(f"{name}: {', '.join(changes)}")
    return found


def _by_instance(text: str) -> dict[tuple[str, str, str], dict[str, str]]:
    rows = csv.DictReader(text.splitlines()[1:])
    return {(row["source"], row["kernel"], row["architecture"]): row for row in rows}


def main(arguments: Sequence[str]) -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m bench machine-code", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the table differs")
    parser.add_argument("--output", type=Path, default=TABLE, metavar="FILE", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if unavailable():
        print(unavailable(), file=sys.stderr)
        return 2
    rows = measured()
    text = table_text(nvrtc_version(), rows)
    recorded = options.output.read_text() if options.output.exists() else table_text("none", ())
    changed = differences(recorded, text)
    for line in changed:
        print(line)
    print(f"{len(rows)} rows by NVRTC {nvrtc_version()}, {len(changed)} differ", file=sys.stderr)
    if options.check:
        return 1 if changed else 0
    options.output.write_text(text)
    return 0
