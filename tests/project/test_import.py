"""`import cudml` is quick and brings in neither NumPy nor CuPy nor another framework."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cudml

MAX_SECONDS = 0.010
NUM_RUNS = 7

SCRIPT = """
import sys, time
start = time.process_time()
import cudml
print(time.process_time() - start)
heavy = {"cupy", "numpy", "torch", "dask", "jax", "onnx", "onnxruntime", "ctypes", "subprocess"}
print(*sorted(heavy & set(sys.modules)))
"""


def run() -> tuple[float, str]:
    """Seconds of processor time of the import in a new interpreter, and the frameworks that it imported."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    seconds, modules = done.stdout.splitlines()
    return float(seconds), modules


def test_import_brings_in_no_array_library() -> None:
    assert run()[1] == ""


def test_import_is_quick() -> None:
    run()  # writes the bytecode
    seconds = [run()[0] for _ in range(NUM_RUNS)]
    print("seconds:", *seconds)
    assert min(seconds) <= MAX_SECONDS


def test_ml_dtypes_is_not_needed() -> None:
    script = "import sys; sys.modules['ml_dtypes'] = None; import numpy, cudml; cudml.top_k(numpy.ones(1), 1)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("adapter", "package"),
    [("torch", "torch"), ("jax", "jax"), ("dask", "dask"), ("onnx", "onnx"), ("onnx", "onnxruntime")],
)
def test_an_adapter_without_its_package_names_the_extra(adapter: str, package: str) -> None:
    if package != adapter:
        pytest.importorskip(adapter)
    script = f"import sys; sys.modules[{package!r}] = None; import cudml.{adapter}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    expected = rf"ModuleNotFoundError: cudml\.{adapter} needs {package}[.\w]*, which is not installed: "
    assert re.match(expected + rf"pip install 'cudml\[{adapter}\]'$", done.stderr.splitlines()[-1])


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cudml", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"cudml {cudml.__version__}\n"), done.stderr


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_modules() -> None:
    """Type checkers read the import statements; the interpreter imports from `_HOMES`."""
    tree = ast.parse(Path(cudml.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module.removeprefix("cudml.")
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module != "typing"
        for alias in node.names
        if alias.asname == alias.name  # only then is it public to type checkers
    }
    assert seen == cudml._HOME_OF
    assert cudml.__all__ == sorted(seen)
