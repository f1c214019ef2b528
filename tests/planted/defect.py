"""One defect: a change of one file, the cases that it makes fail, and their reports."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Reports by kind.
RACE = r"race: this"
BOUNDS = r"out-of-bounds (read|write)|index out of bounds|bytes at offset \d+ of \w+, which has"
UNWRITTEN = r"read of memory that was never written"
NOT_ZERO = r"is not left zero"
MISALIGNED = r"misaligned access"
MASK = r"does not contain the calling lane"
DIVERGENT = r"divergent barrier"
HANGS = r"gave up"
WRONG = r"AssertionError"

_PARTS = ("bench", "cudml", "kernels", "tests", "pyproject.toml")
_TIME_LIMIT = 300


@dataclass(frozen=True)
class Defect:
    """`old` stands once in `file`; the first of the `cases` that fails reports what `report` matches.

    Cases are those of `tests/support/observed_cases.py`. Where there are `tests`, tests are run instead.
    """

    file: str
    old: str
    new: str
    cases: tuple[str, ...]
    report: str
    tests: tuple[str, ...] = ()

    def changed(self, text: str) -> str:
        """The file's text with the defect."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times, not once: {self.old}")
        return text.replace(self.old, self.new)

    def escapes(self, copy: Path, cache: Path) -> str | None:
        """Plant it in a copy of the checkout; returns how it escaped its cases, or None if it was caught."""
        path = copy / self.file
        original = path.read_text()
        path.write_text(self.changed(original))
        try:
            result = _run(self._arguments(), copy, cache)
        finally:
            path.write_text(original)
        if result.returncode == 0:
            return "no case failed"
        said = result.stdout + result.stderr
        if not re.search(self.report, said):
            return f"no report matches {self.report!r}; exit {result.returncode}:\n{said}"
        return None

    def _arguments(self) -> tuple[str, ...]:
        if self.tests:
            return ("-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--predictions", *self.tests)
        return ("-m", "tests.planted", *self.cases)


def copy_checkout(folder: Path) -> None:
    """The requirements of running cases."""
    for part in _PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)


def _run(arguments: tuple[str, ...], copy: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """In a separate process, because a defect may crash it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CUDML_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT,
    )
