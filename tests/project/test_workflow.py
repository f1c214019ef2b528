"""The hosted workflow: what it calls is there."""

import re
from pathlib import Path

import pytest

from bench.__main__ import COMMANDS
from tests.conftest import ARCHITECTURE_CHOICES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github/workflows/ci.yml").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()


def test_it_runs_what_a_developer_runs() -> None:
    assert "run: bash .ci/run\n" in TEXT
    assert (ROOT / ".ci/run").is_file()


def test_every_command_and_option_exists(pytestconfig: pytest.Config) -> None:
    commands = re.findall(r"python -m bench ([\w-]+)", TEXT)
    assert {"build-peers", "predict"} <= set(commands) <= set(COMMANDS)
    for options in re.findall(r"pytest(.*)", TEXT):
        for option, value in re.findall(r"--([\w-]+)(?: (\w+))?", options):
            default = pytestconfig.getoption(option)  # ValueError if there is none
            assert isinstance(default, bool) or value in ARCHITECTURE_CHOICES
        for folder in re.findall(r"tests/\w+", options):
            assert (ROOT / folder).is_dir()


def test_the_recipe_is_of_this_version_and_needs_what_the_package_needs() -> None:
    recipe = (ROOT / "recipe/recipe.yaml").read_text()
    (version,) = re.findall(r'^  version: "(.*)"$', recipe, re.MULTILINE)
    assert f'__version__ = "{version}"' in (ROOT / "cudml/__init__.py").read_text()
    (numpy,) = re.findall(r'^dependencies = \["(numpy>=.*)"\]', PROJECT, re.MULTILINE)
    assert f"- {numpy.replace('>=', ' >=')}\n" in recipe
    (python,) = re.findall(r'^requires-python = "(.*)"', PROJECT, re.MULTILINE)
    assert f"- python {python}\n" in recipe
