"""`python -m bench machine-code`: facts about the machine code of every kernel instance, as a table.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` extra), and no GPU. `--check` writes nothing and prints what
differs from the committed table. `--architecture` makes the rows of one, by this machine's NVRTC, and
compares them with those of the committed table.
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

from cudml.devices import get_device
from cudml.plans import KernelLaunch
from proof.instances import batches
from proof.sass.architectures import ARCHITECTURES, Architecture
from proof.sass.compiler import nvrtc_version, unavailable
from proof.sass.facts import MATRIX_OPCODES, Facts, facts_of

TABLE = Path(__file__).parent / "results" / "machine_code.csv"


@dataclass(frozen=True)
class Row:
    """One kernel instance on one architecture.

    `shared_bytes` are those that its launch asks for. A multiprocessor holds `blocks` and `warps` at once;
    `flight_bytes` is what their loads bring at once. Loads and stores are global instructions in the code,
    `_16` those of 16 bytes; `generic` are accesses whose memory space the compiler did not know.
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
    flight_bytes: int
    loads: int
    loads_16: int
    stores: int
    stores_16: int
    generic: int
    matrix: int
    code_bytes: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the row: kernel instance and architecture."""
        return self.source, self.kernel, self.architecture


@dataclass(frozen=True)
class Table:
    """The rows, and the version of NVRTC that made the code."""

    version: str
    rows: tuple[Row, ...]

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of this table with the same keys as the given ones."""
        keys = {row.key for row in rows}
        return [row for row in self.rows if row.key in keys]


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
        flight_bytes=facts.resident_flight_bytes(launch, architecture),
        loads=facts.count("LDG", "LDGSTS"),
        loads_16=facts.count("LDG", "LDGSTS", containing=".128"),
        stores=facts.count("STG"),
        stores_16=facts.count("STG", containing=".128"),
        generic=facts.count("LD", "ST"),
        matrix=facts.count(*MATRIX_OPCODES),
        code_bytes=facts.kernel.code_bytes,
    )


def measured(architectures: Sequence[Architecture] = ARCHITECTURES, only: str = "") -> list[Row]:
    """The rows of every instance on architectures; earlier compilations are taken from the cache.

    Those of sources whose path contains the text `only`.
    """
    work = [
        (architecture, batch)
        for architecture in architectures
        for batch in batches(architecture.limits)
        if only in batch[0].source
    ]

    def rows(item: tuple[Architecture, list[KernelLaunch]]) -> list[Row]:
        architecture, batch = item
        facts = facts_of(batch, architecture)
        return [row_of(launch, facts[launch.name_expression], architecture) for launch in batch]

    with ThreadPoolExecutor() as pool:  # the compiler works without Python's lock
        found = [row for part in pool.map(rows, work) for row in part]
    order = {architecture.name: number for number, architecture in enumerate(ARCHITECTURES)}
    return sorted(found, key=lambda row: (row.source, row.kernel, order[row.architecture]))


def table_text(table: Table) -> str:
    """The file's text: the compiler's version, then the table."""
    text = io.StringIO()
    text.write(f"# NVRTC {table.version}\n")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in table.rows)
    return text.getvalue()


def recorded(path: Path = TABLE) -> Table:
    """The table of a file; empty and without version if there is no file, or it has other columns."""
    if not path.exists():
        return Table("none", ())
    first, *lines = path.read_text().splitlines()
    types = {field.name: int if field.type in (int, "int") else str for field in fields(Row)}
    table = csv.DictReader(lines)
    if table.fieldnames != list(types):
        return Table("none", ())
    rows = tuple(Row(**{name: types[name](value) for name, value in line.items()}) for line in table)
    return Table(first.removeprefix("# NVRTC "), rows)


def differences(before: Iterable[Row], after: Iterable[Row]) -> list[str]:
    """The differences between two tables, one line per instance and architecture."""
    old, new = ({row.key: asdict(row) for row in rows} for rows in (before, after))
    found = []
    for key in sorted(old.keys() | new.keys()):
        name = " ".join(key)
        if key not in new:
            found.append(f"{name}: is no longer there")
        elif key not in old:
            found.append(f"{name}: is new")
        elif old[key] != new[key]:
            columns = [column for column in old[key] if old[key][column] != new[key][column]]
            found.append(f"{name}: " + ", ".join(f"{c} {old[key][c]} -> {new[key][c]}" for c in columns))
    return found


def _own_architecture() -> str:
    """That of the current GPU."""
    limits = get_device("cuda").limits
    return f"sm_{limits.compute_capability}"


def main(arguments: Sequence[str]) -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m bench machine-code", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the table differs"
    )
    parser.add_argument("--output", type=Path, default=TABLE, metavar="FILE", help="default: %(default)s")
    parser.add_argument(
        "--architecture",
        choices=["own", *(architecture.name for architecture in ARCHITECTURES)],
        help="the only one; own is that of this machine's GPU (default: all)",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="sources whose path contains it")
    options = parser.parse_args(arguments)
    if (options.architecture or options.only) and options.output == TABLE and not options.check:
        parser.error("--architecture and --only need --output or --check: the committed table has all rows")
    if unavailable():
        print(unavailable(), file=sys.stderr)
        return 2
    name = _own_architecture() if options.architecture == "own" else options.architecture
    architectures = [one for one in ARCHITECTURES if name in (None, one.name)]
    if not architectures:
        print(f"{name} is none of {', '.join(one.name for one in ARCHITECTURES)}", file=sys.stderr)
        return 2
    table = Table(nvrtc_version(), tuple(measured(architectures, options.only)))
    before = recorded(TABLE if name or options.only else options.output)
    same = [row for row in before.rows if name in (None, row.architecture) and options.only in row.source]
    changed = differences(same, table.rows)
    for line in changed:
        print(line)
    told = f"{len(table.rows)} rows by NVRTC {table.version}, {len(changed)} differ"
    print(f"{told} from those by NVRTC {before.version}", file=sys.stderr)
    if options.check:
        return 1 if changed else 0
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(table_text(table))
    return 0
