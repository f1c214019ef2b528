"""`python -m bench machine-code`: facts about the machine code of every kernel, as a table.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` group), and no GPU. Code with a problem, such as spilled
registers, is an error. `--check` writes nothing and prints the differences from the committed table.
`--architecture` makes the rows of one architecture, by this machine's NVRTC, and compares them with those of
the committed table.
"""

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from cudml.devices import get_device
from cudml.plans import WARP_LANES, KernelLaunch
from proof.instances import batches, instances
from proof.sass.architectures import ARCHITECTURES, Architecture
from proof.sass.compiler import nvrtc_version, unavailable
from proof.sass.facts import Facts, facts_of
from proof.sass.problems import problems_of
from proof.sass.text_hash import BITS, text_hash

TABLE = Path(__file__).parent / "results" / "machine_code.csv"


@dataclass(frozen=True)
class Row:
    """The instances of one kernel on one architecture: their number, and the least or the most of each fact.

    `text` is the sum of the hashes of all instances (`proof.sass.text_hash`), in hexadecimal.
    Registers are those of a thread, `warps` the warps that a multiprocessor holds at once, and `flight_bytes`
    the bytes that their loads bring at once.
    """

    source: str
    kernel: str
    architecture: str
    instances: int
    text: str
    min_registers: int
    max_registers: int
    max_stack_bytes: int
    min_warps: int
    min_flight_bytes: int
    max_code_bytes: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the row: kernel and architecture."""
        return self.source, self.kernel, self.architecture

    def beside(self, other: "Row") -> "Row":
        """The row of the instances of both."""
        values = {name: choose(getattr(self, name), getattr(other, name)) for name, choose in _EXTREMES}
        text = _hexadecimal(int(self.text, 16) + int(other.text, 16))
        return replace(self, instances=self.instances + other.instances, text=text, **values)


#: The columns of an extreme, and the function that chooses it.
_EXTREMES = [
    (field.name, min if field.name.startswith("min_") else max)
    for field in fields(Row)
    if field.name.startswith(("min_", "max_"))
]


def _hexadecimal(value: int) -> str:
    """A hash, or a sum of hashes, as the table writes it."""
    return f"{value % (1 << BITS):0{BITS // 4}x}"


@dataclass(frozen=True)
class Table:
    """The rows, and the version of NVRTC that made the code."""

    version: str
    rows: tuple[Row, ...]


def row_of(launch: KernelLaunch, facts: Facts, architecture: Architecture) -> Row:
    """The row of one instance."""
    warps = facts.resident_blocks(launch, architecture) * math.ceil(math.prod(launch.block) / WARP_LANES)
    return Row(
        source=launch.source,
        kernel=launch.function,
        architecture=architecture.name,
        instances=1,
        text=_hexadecimal(text_hash(launch)),
        min_registers=facts.kernel.registers,
        max_registers=facts.kernel.registers,
        max_stack_bytes=facts.kernel.stack_bytes,
        min_warps=warps,
        min_flight_bytes=facts.resident_flight_bytes(launch, architecture),
        max_code_bytes=facts.kernel.code_bytes,
    )


def rows_of(launches: Iterable[KernelLaunch], architecture: Architecture) -> list[Row]:
    """The rows of instances of one source, compiled together.

    Raises
    ------
    ValueError
        The code of an instance has a problem, such as spilled registers; names all of them.
    """
    batch = list(launches)
    facts = facts_of(batch, architecture)
    problems = [
        f"{launch.name_expression} on {architecture.name}: {problem}"
        for launch in batch
        for problem in problems_of(launch, facts[launch.name_expression], architecture)
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return joined(row_of(launch, facts[launch.name_expression], architecture) for launch in batch)


def joined(rows: Iterable[Row]) -> list[Row]:
    """One row for each kernel and architecture, in the order of the table."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        found[row.key] = found[row.key].beside(row) if row.key in found else row
    order = {architecture.name: number for number, architecture in enumerate(ARCHITECTURES)}
    return sorted(found.values(), key=lambda row: (row.source, row.kernel, order[row.architecture]))


def present(architecture: Architecture) -> dict[tuple[str, str, str], tuple[int, str]]:
    """The instances and the `text` that the rows of the present kernels have, by key, without compiling."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for launch in instances(architecture.limits):
        key = (launch.source, launch.function, architecture.name)
        count, text = found.get(key, (0, 0))
        found[key] = count + 1, text + text_hash(launch)
    return {key: (count, _hexadecimal(text)) for key, (count, text) in found.items()}


def measured(architectures: Sequence[Architecture] = ARCHITECTURES, only: str = "") -> list[Row]:
    """The rows of every kernel on architectures; earlier compilations are taken from the cache.

    Only sources whose path contains the text `only` are compiled.
    """
    work = [
        (architecture, batch)
        for architecture in architectures
        for batch in batches(architecture.limits)
        if only in batch[0].source
    ]

    with ThreadPoolExecutor() as pool:  # the compiler works without Python's lock
        return joined(row for part in pool.map(lambda one: rows_of(one[1], one[0]), work) for row in part)


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
    """The differences between two tables, one line per kernel and architecture."""
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


def beyond(recorded: Iterable[Row], rows: Iterable[Row]) -> list[str]:
    """Extremes of some instances beyond the recorded extremes of all instances, one line per kernel."""
    found = []
    known = {row.key: row for row in recorded}
    for row in rows:
        if row.key in known:
            whole = known[row.key]
            both = replace(whole.beside(row), instances=whole.instances, text=whole.text)
            found += differences([whole], [both])
        else:
            found.append(f"{' '.join(row.key)}: is new")
    return found


def _own_architecture() -> str:
    """The architecture of the current GPU."""
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
    try:
        table = Table(nvrtc_version(), tuple(measured(architectures, options.only)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
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
