"""The examples in docstrings run unchanged and print the shown results."""

import doctest
import inspect
import io
from importlib import import_module
from pathlib import Path

import pytest

import cudml

PACKAGE = Path(cudml.__file__).parent
MODULES = sorted(
    ".".join(["cudml", *path.relative_to(PACKAGE).with_suffix("").parts])
    for path in PACKAGE.rglob("*.py")
    if ">>>" in path.read_text()
)

#: Modules that need a framework, which may not be installed.
FRAMEWORKS = {
    "cudml.torch.functions": "torch",
    "cudml.torch.layers": "torch",
    "cudml.torch.translations": "torch",
    "cudml.dask": "dask",
    "cudml.jax.functions": "jax",
    "cudml.onnx.session": "onnxruntime",
}

#: Public names that need no example: results, exceptions and enumerations.
ANSWERS = (BaseException, tuple, cudml.CompiledOperator, cudml.Problem)


@pytest.mark.parametrize("module", MODULES)
def test_examples_run_as_they_stand(module: str) -> None:
    """Pasted into an interpreter, which knows none of the module's own names."""
    if module in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[module])
    tests = [t for t in doctest.DocTestFinder().find(import_module(module), globs={}) if t.examples]
    assert tests
    for test in tests:
        told = io.StringIO()
        assert not doctest.DocTestRunner().run(test, out=told.write).failed, told.getvalue()


@pytest.mark.parametrize("name", cudml.__all__)
def test_public_names_are_described(name: str) -> None:
    value = getattr(cudml, name)
    text = inspect.getdoc(value) or ""
    assert text
    assert not text.startswith(f"{name}(")  # what a dataclass says of itself
    is_answer = inspect.isclass(value) and (issubclass(value, ANSWERS) or hasattr(value, "__members__"))
    assert is_answer or ">>> " in text
    if inspect.isfunction(value):
        assert "Raises\n------" in text
        assert not inspect.signature(value).parameters or "Parameters\n----------" in text
