"""The README's examples run and print the shown results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cudml
from cudml import settings
from cudml.devices import emulator
from cudml.devices.cuda.device import MIN_COMPUTE_CAPABILITY
from tests.devices.emulator.test_check import run as run_planted

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)

#: Each Python block, with the text block that follows it, if any.
EXAMPLES = _BLOCK.findall(README)

#: The Python blocks of the site's own pages, by page and number.
OF_THE_SITE = {
    f"{path.stem}-{number}": block
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for number, block in enumerate(_BLOCK.findall(path.read_text()))
}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == README.count("```python") >= 3


def test_the_site_lists_every_public_name() -> None:
    listed = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE)
    assert sorted(name for name in listed if "." not in name) == sorted(cudml.__all__)


def test_the_site_has_examples() -> None:
    assert {"index-0", "errors-1", "coming_from-0"} <= set(OF_THE_SITE)


@pytest.mark.parametrize(
    ("code", "printed"),
    [*EXAMPLES, *OF_THE_SITE.values()],
    ids=[*map(str, range(len(EXAMPLES))), *OF_THE_SITE],
)
def test_example_prints_what_the_page_says(code: str, printed: str) -> None:
    for framework in re.findall(r"import (torch|dask|jax|onnx)\b", code):
        pytest.importorskip(framework)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_first_example_is_on_the_first_screen() -> None:
    """So are the description and the two commands that run cudml and its tests."""
    assert README.index("```python") < README.index("pip install") < README.index("## ")
    assert len(EXAMPLES[0][0].splitlines()) <= 8
    first_screen = README.splitlines()[:40]
    assert sum(" -m venv " in line for line in first_screen) == 2
    assert "## Install" in first_screen


def test_environment_variables_are_those_of_the_settings() -> None:
    table = (ROOT / "docs/settings.md").read_text()
    documented = re.findall(r"^\| `(CUDML_\w+)` \|", table, re.MULTILINE)
    assert documented == re.findall(r"^(CUDML_\w+)  ", settings.__doc__, re.MULTILINE)


def test_platforms_are_what_the_package_requires() -> None:
    table = README[README.index("## Install") : README.index("## Operators")]
    flat = " ".join(table.split())
    project = (ROOT / "pyproject.toml").read_text()
    (python,) = re.findall(r'^requires-python = ">=(.*)"', project, re.MULTILINE)
    (numpy,) = re.findall(r'^dependencies = \["numpy>=(.*)"\]', project, re.MULTILINE)
    assert f"Python {python} or later, with NumPy {numpy} or later" in flat
    assert f"compute capability {MIN_COMPUTE_CAPABILITY / 10} " in flat
    (torch,) = re.findall(r'^torch = \["torch>=(.*)"\]', project, re.MULTILINE)
    assert f"PyTorch {torch} or later |" in table
    wheels = re.findall(r'^cuda(\d+) = \["cupy-cuda\d+x>=(.*),<(\d+)"', project, re.MULTILINE)
    assert [name for name, *_ in wheels] == ["12", "13"]
    for name, oldest, beyond in wheels:
        (row,) = (
            line
            for line in table.splitlines()
            if line.startswith(f"| CUDA {name}.x | `pip install '.[cuda{name}]'` |")
        )
        assert oldest.startswith(f"{int(beyond) - 1}.")
        assert row.endswith(f"; CuPy {int(beyond) - 1}, from {oldest} on |")


def test_report_is_what_the_emulator_reports() -> None:
    page = (ROOT / "docs/kernel_authors.md").read_text()
    with emulator.schedule("forward", check=True), pytest.raises(cudml.KernelError) as caught:
        run_planted("stale_exchange", True, 1)
    assert caught.value.reports[0].replace(f"{ROOT}/", "") in " ".join(page.split())


def test_links_lead_somewhere() -> None:
    for target, place in re.findall(r"\]\(([^)#]+)(#[^)]*)?\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target
        if place:
            headings = re.findall(r"^#+ (.*)$", (ROOT / target).read_text(), re.MULTILINE)
            assert place[1:] in [heading.lower().replace(" ", "-") for heading in headings]
