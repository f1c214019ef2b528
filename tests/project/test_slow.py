"""The list of slow tests names tests that exist, and the last lines of a run say what the run was."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slow import SLOW, takes_long

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("one", SLOW)
def test_what_is_slow_exists(one: str) -> None:
    path, _, test = one.partition("::")
    assert (ROOT / path).exists()
    assert not test or f"def {test}(" in (ROOT / path).read_text()


def test_a_place_has_all_that_is_in_it() -> None:
    place = next(one for one in SLOW if "::" not in one and not one.endswith(".py"))
    assert takes_long(f"{place}/test_any.py::test_it[1]")
    assert not takes_long(f"{place}_of_others/test_any.py::test_it")


def test_a_run_says_why_tests_were_skipped_and_how_long_it_took(tmp_path: Path) -> None:
    """The run is of a folder of its own, with this suite's conftest."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\ndef test_one():\n    pytest.skip('no reason')\n\ndef test_another():\n    pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = done.stdout.splitlines()
    assert "skipped 1: no reason" in lines
    assert any(re.fullmatch(r"took \d+ s on \d+ cores", line) for line in lines)
