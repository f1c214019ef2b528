"""One defect: a change of one file, the cases that it makes fail, and their reports."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
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

_PARTS = ("bench", "cudml", "kernels", "proof", "tests", "pyproject.toml")
_TIME_LIMIT = 300
#: Options of a test that is left out by default.
_ALL_TESTS = ("--predictions", "--architectures", "some")


@dataclass(frozen=True)
class Defect:
    """A change of code, `old`, in `file`; the first of the `cases` that fails reports what `report` matches.

    Code is compared token by token: neither line breaks, spaces nor comments count, so a place survives any
    formatter. `old` stands there once, or else begins at `start`. Cases are those of
    `tests/support/observed_cases.py`. If there are `tests`, they are run instead, and GPU tests run over
    the stand-in for CUDA.
    """

    file: str
    old: str
    new: str
    cases: tuple[str, ...]
    report: str
    tests: tuple[str, ...] = ()
    start: int | None = None
    over_stand_in: bool = False

    def changed(self, text: str) -> str:
        """The file's text with the defect."""
        code = _pattern(self.old)
        at_start = None if self.start is None else code.match(text, self.start)
        places = [at_start] if at_start else [*code.finditer(text)]
        if len(places) != 1:
            raise ValueError(f"{self.file} has {len(places)} times, not once: {self.old}")
        return text[: places[0].start()] + self.new + text[places[0].end() :]

    def escapes(self, copy: Path, cache: Path) -> str | None:
        """Plant it in a copy of the checkout; returns how it escaped its cases, or None if it was caught."""
        path = copy / self.file
        original = path.read_text()
        path.write_text(self.changed(original))
        try:
            result = _run(self._arguments(), copy, cache, self.over_stand_in)
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
            return ("-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", *_ALL_TESTS, *self.tests)
        return ("-m", "tests.planted", *self.cases)


@cache
def _pattern(code: str) -> re.Pattern[str]:
    """Matches the code's tokens with any space and comments between them."""
    tokens = [re.escape(token) for token in re.findall(r"\w+|[^\w\s]", code)]
    border = [r"\b" if re.match(r"\w", code.strip()[end]) else "" for end in (0, -1)]
    return re.compile(border[0] + r"(?:\s|//[^\n]*\n)*".join(tokens) + border[1])


def copy_checkout(folder: Path) -> None:
    """Copy the files that running cases needs."""
    for part in _PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)


def _run(
    arguments: tuple[str, ...], copy: Path, cache: Path, over_stand_in: bool
) -> subprocess.CompletedProcess[str]:
    """Run Python in a separate process, because a defect may crash it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CUDML_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["CUDML_TEST_STAND_IN"] = "0" if over_stand_in else ""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT,
    )
