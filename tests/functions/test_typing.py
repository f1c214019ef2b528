"""Type checkers on a program that uses the package: `tests/functions/typed/user.py`."""

import ast
import inspect
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import cudml

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = {
    "mypy": ["--strict", "--python-version", "3.10"],
    "pyright": ["--pythonversion", "3.10", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", COMMANDS)
def test_a_users_program_is_typed(checker: str) -> None:
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    command = [sys.executable, "-m", checker, *COMMANDS[checker], "tests/functions/typed/user.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_checker_finds_everything_without_optional_packages(tmp_path: Path) -> None:
    """Here the checker finds no package at all; only NumPy and the adapters' packages may be missing."""
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    program, config = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text("import cudml\nimport cudml.onnx\nimport cudml.cli.main\n")
    excused = ",".join(f"{name}.*" for name in ("google", "numpy", "onnx", "onnxruntime"))
    config.write_text(f"[mypy]\n[mypy-{excused}]\nignore_missing_imports = true\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-site-packages", "--config-file", str(config)),
            *("--cache-dir", str(tmp_path / "cache"), str(program)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def told_to_checkers() -> dict[str, list[str]]:
    """The parameters of every constructor that exists only for type checkers."""
    found = {}
    for path in sorted((ROOT / "cudml").rglob("*.py")):
        for cls in ast.walk(ast.parse(path.read_text())):
            if isinstance(cls, ast.ClassDef):
                hidden = [node for node in cls.body if isinstance(node, ast.If)]
                inits = [f for node in hidden for f in node.body if isinstance(f, ast.FunctionDef)]
                for init in inits:
                    found[cls.name] = [argument.arg for argument in init.args.args]
    return found


def test_constructors_for_checkers_match_the_real_ones() -> None:
    told = told_to_checkers()
    assert told.keys() == {"GruDesc", "Slice1Desc", "SliceDesc", "TensorDesc"}
    for name, parameters in told.items():
        assert parameters == ["self", *inspect.signature(getattr(cudml, name)).parameters]
