"""What messages, pages and scripts tell to install is in `pyproject.toml`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: The folders and kinds of files that tell what to install; `.ci/run` has no suffix.
PLACES = (".ci", ".github", "bench", "cudml", "docs", "examples", "kernels", "proof", "recipe", "tests")
SUFFIXES = {"", ".cpp", ".cu", ".h", ".json", ".md", ".py", ".rst", ".toml", ".yaml", ".yml"}

#: How a command or a sentence names extras and groups.
NAMING = {
    "project.optional-dependencies": re.compile(
        r"""(?:\bcudml|['"]\.|\.whl\))\[([\w,]+)\]['"]|extra_requirements: \[([\w,]+)\]|`(\w+)` extra\b"""
    ),
    "dependency-groups": re.compile(r"--group[ \n]([a-z]\w*)|`(\w+)` group\b"),
}


def defined(table: str) -> set[str]:
    """The names of a table of `pyproject.toml`."""
    project = (ROOT / "pyproject.toml").read_text()
    return set(
        re.findall(r"^(\w+) = \[", project.partition(f"[{table}]")[2].partition("\n[")[0], re.MULTILINE)
    )


def texts() -> Iterator[Path]:
    """The files of a checkout that tell what to install, without what builds leave."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES - {""})
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def named(table: str, path: Path) -> set[str]:
    """The extras or groups that a file names."""
    found = NAMING[table].findall(path.read_text())
    return {name for hit in found for names in hit for name in names.split(",") if name}


@pytest.mark.parametrize("table", NAMING)
def test_what_is_named_exists(table: str) -> None:
    seen = {name: path for path in texts() for name in named(table, path)}
    assert seen.keys() == defined(table), {name: str(seen.get(name)) for name in seen.keys() ^ defined(table)}


def test_every_group_is_in_the_page_for_contributors() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    groups = page[page.index("### Dependency groups") : page.index("### Machine code")]
    assert set(re.findall(r"^\| `(\w+)` \|", groups, re.MULTILINE)) == defined("dependency-groups")
