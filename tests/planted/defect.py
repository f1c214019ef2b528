"""One defect: a change of one file, the cases that it turns red, and what they report."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

#: What is reported, by kind.
RACE = r"race: this"
BOUNDS = r"out-of-bounds (read|write)|index out of bounds|bytes at offset \d+ of \w+, which has"
UNWRITTEN = r"read of memory that was never written"
MISALIGNED = r"misaligned access"
MASK = r"does not contain the calling lane"
HANGS = r"without ending or waiting|wait for each other|nobody"
WRONG = r"AssertionError"

_PARTS = ("cudml", "kernels", "tests")
_TIME_LIMIT = 1200


@dataclass(frozen=True)
class Defect:
    """`old` stands once in `file`; the first of the `cases` that fails reports what `report` matches.

    Cases are those of `tests/observed_cases.py`.
    """

    file: str
    old: str
    new: str
    cases: tuple[str, ...]
    report: str

    def changed(self, text: str) -> str:
        """The file's text with the defect."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times, not once: {self.old}")
        return text.replace(self.old, self.new)

    def escapes(self, copy: Path, cache: Path) -> str | None:
        """Plant it in a copy of the checkout; how it escaped its cases, None where it was caught."""
        path = copy / self.file
        original = path.read_text()
        path.write_text(self.changed(original))
        try:
            result = _run_cases(self.cases, copy, cache)
        finally:
            path.write_text(original)
        if result.returncode == 0:
            return "no case failed"
        if not re.search(self.report, result.stderr):
            return f"no report matches {self.report!r}; exit {result.returncode}:\n{result.stderr}"
        return None


def copy_checkout(folder: Path) -> None:
    """What running cases takes."""
    for part in _PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))


def _run_cases(cases: tuple[str, ...], copy: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since what is planted may take it down."""
    environment = {**os.environ, "CUDML_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.planted", *cases]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_TIME_LIMIT
    )
