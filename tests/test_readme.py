"""What the README shows runs and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudml import settings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()

#: Each Python block, with the text block that follows it, where one does.
EXAMPLES = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", README, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == README.count("```python") >= 3


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_prints_what_the_readme_says(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_first_example_is_on_the_first_screen() -> None:
    assert README.index("```python") < README.index("pip install") < README.index("## ")
    assert len(EXAMPLES[0][0].splitlines()) <= 8


def test_environment_variables_are_those_of_the_settings() -> None:
    table = README[README.index("## Environment variables") :]
    documented = re.findall(r"^\| `(CUDML_\w+)` \|", table, re.MULTILINE)
    assert documented == re.findall(r"^(CUDML_\w+)  ", settings.__doc__, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target
