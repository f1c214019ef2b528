"""Committed results: one CSV file per device, one row per operator, case, implementation and cache state."""

import argparse
import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

#: Follows the name of a GPU in the names of tables that keep predictions for code that was measured on it and
#: has changed since.
MEASURED_CODE = "-predicted"


def folder(text: str) -> Path:
    """A folder for results, from a command line; created at once, so that no run fails after measuring.

    Raises
    ------
    argparse.ArgumentTypeError
        The folder cannot be created.
    """
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be made ({error.strerror})") from None
    return Path(text)


@dataclass(frozen=True)
class Row:
    """One measurement, with everything needed to repeat it.

    `implementation` is "cudml" or the name of a peer, and `contract` says how that peer's result may differ.
    `checked` says what the result was compared with (empty: not compared). `host_us` is empty on the CPU.
    `steps` is 0 for operators without sequential steps.
    """

    operator: str
    case: str
    implementation: str
    cache: str
    median_us: float
    p20_us: float
    p80_us: float
    repeats: int
    host_us: float | None
    bytes_moved: int
    steps: int
    checked: str
    contract: str
    device: str
    driver: str = ""
    cuda: str = ""
    nvrtc: str = ""
    cupy: str = ""
    torch: str = ""
    numpy: str = ""
    cores: str = ""
    cudml: str = ""
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of the row: a newer measurement with the same key replaces it."""
        return self.operator, self.case, self.implementation, self.cache

    @property
    def gb_per_s(self) -> float:
        """Bytes moved divided by the median time, in 1e9 bytes per second; a stand-in may take no time."""
        return self.bytes_moved / self.median_us / 1000 if self.median_us else float("inf")

    @property
    def rate(self) -> str:
        """Bandwidth, or the time per step."""
        return f"{self.median_us / self.steps:.2f} us/step" if self.steps else f"{self.gb_per_s:,.0f} GB/s"


def read(path: Path) -> list[Row]:
    """All rows of a file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_row(record) for record in csv.DictReader(file)]


def cases_of(path: Path, commit: str) -> frozenset[tuple[str, str]]:
    """The operators and cases with rows of a commit in a file."""
    return frozenset((row.operator, row.case) for row in read(path) if row.commit == commit)


def merge(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file: replace rows with the same key, append new ones."""
    merged = {row.key: row for row in read(path)} | {row.key: row for row in rows}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [member.name for member in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in merged.values():
            writer.writerow({name: _text(value) for name, value in asdict(row).items()})


def _text(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else value


def _row(record: dict[str, str]) -> Row:
    members: dict[str, Any] = dict(record)
    for name in ("median_us", "p20_us", "p80_us"):
        members[name] = float(record[name])
    for name in ("repeats", "bytes_moved", "steps"):
        members[name] = int(record[name])
    members["host_us"] = float(record["host_us"]) if record["host_us"] else None
    return Row(**members)
