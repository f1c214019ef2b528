"""The committed tables of predicted times, how they are read and written; differences from cudml's own."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bench.results import RESULTS

TABLE = RESULTS / "predicted-h200.csv"
_TITLE = "# Predicted, not measured."

#: A dataclass of texts and numbers, a column for each member.
R = TypeVar("R")

#: The relative change of a case's time above which the table differs.
TOLERANCE = 0.05


@dataclass(frozen=True)
class Row:
    """A case: its predicted and minimum time, its bound, and its use of resources.

    `limit_us` is the case's bytes over the bandwidth of memory. `lane_instructions` are per byte. Pipes are
    shares of the time in which a multiprocessor works. Sectors are of 32 bytes. `cupy_us` is what CuPy's own
    kernels would take, 0 where they were not predicted.
    """

    operator: str
    case: str
    time_us: float
    limit_us: float
    bound: str
    launches: int
    lane_instructions: float
    issue: float
    alu: float
    fma: float
    shared: float
    tensor: float
    l1_sectors: int
    l2_sectors: int
    memory_sectors: int
    barriers: int
    warps: int
    waves: float
    kernels: str
    cupy_us: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """The key of the row."""
        return self.operator, self.case

    def __str__(self) -> str:
        of_limit = f"{self.time_us / self.limit_us:.2f}x memory" if self.limit_us > 1 else ""
        time = f"{self.time_us:>10.1f} us {of_limit:>14}"
        return f"{self.operator:<12.12} {self.case:<60.60}{time}  {self.bound:<9}{self.kernels}"


def read_rows(kind: type[R], path: Path) -> tuple[str, list[R]]:
    """What the first line of a table says of its origin, and the rows; nothing if there is no file."""
    if not path.exists():
        return "", []
    first, *lines = path.read_text().splitlines()
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    rows = [kind(**{name: types[name](text) for name, text in row.items()}) for row in csv.DictReader(lines)]
    return first.removeprefix(_TITLE).strip(), rows


def text_of(kind: type[R], rows: Iterable[R], origin: str = "") -> str:
    """The text of a table."""
    text = io.StringIO()
    text.write(f"{_TITLE} {origin}".rstrip() + "\n")
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)  # type: ignore[call-overload]
    return text.getvalue()


def read(path: Path = TABLE) -> tuple[str, list[Row]]:
    """The version of NVRTC that made the code, and the rows; no rows if there is no file."""
    origin, rows = read_rows(Row, path)
    return origin.removeprefix("NVRTC ") or "none", rows


def table_text(version: str, rows: Iterable[Row]) -> str:
    """The file's text."""
    return text_of(Row, rows, f"NVRTC {version}")


def differences(recorded: Iterable[Row], rows: Iterable[Row]) -> list[str]:
    """The cases that became slower or faster, or are not in the table."""
    known = {row.key: row for row in recorded}
    found = []
    for row in rows:
        old = known.get(row.key)
        if old is None:
            found.append(f"{row.operator}, {row.case}: not in {TABLE.name}; run `python -m bench predict`")
        elif row.time_us > old.time_us * (1 + TOLERANCE):
            found.append(
                f"{row.operator}, {row.case}: slower, {old.time_us} -> {row.time_us} us ({row.bound})"
            )
        elif row.time_us < old.time_us * (1 - TOLERANCE):
            found.append(
                f"{row.operator}, {row.case}: faster, {old.time_us} -> {row.time_us} us; "
                "run `python -m bench predict` to renew the table"
            )
    return found
