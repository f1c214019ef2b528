"""Each planted defect is reported by a case of the check mode, and each barrier of the kernels is needed."""

import re
from pathlib import Path

import pytest

from tests.planted import gru, machine_code, movement, top_k, wide_offsets
from tests.planted.barriers import BARRIERS
from tests.planted.defect import ROOT, copy_checkout
from tests.support.observed_cases import CASES

DEFECTS = {**top_k.DEFECTS, **gru.DEFECTS, **movement.DEFECTS, **wide_offsets.DEFECTS, **machine_code.DEFECTS}
ALL = {**DEFECTS, **BARRIERS}

_CONSTANT = re.compile(r"\b[A-Z_][A-Z_]+\b")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that compiled code of unchanged files is found again."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels of the copy; the user's own cache is not changed."""
    return tmp_path_factory.mktemp("planted_cache")


@pytest.mark.planted
@pytest.mark.parametrize("name", ALL)
def test_it_is_caught(name: str, copy: Path, cache: Path) -> None:
    how = ALL[name].escapes(copy, cache)
    assert how is None, how


@pytest.mark.parametrize("name", ALL)
def test_it_can_be_planted(name: str) -> None:
    """The text to change is there once, and so are the cases that are to catch it."""
    defect = ALL[name]
    text = (ROOT / defect.file).read_text()
    assert defect.changed(text) != text
    if defect.file.endswith(".py"):  # An unknown name would be an error of another kind.
        assert set(_CONSTANT.findall(defect.new)) <= set(_CONSTANT.findall(text))
    assert defect.cases or defect.tests
    assert set(defect.cases) <= set(CASES)
    for test in defect.tests:
        file, function = test.split("[")[0].split("::")
        assert f"def {function}(" in (ROOT / file).read_text()


def test_there_are_many_kinds_of_defects() -> None:
    operators = {defect.file.split("/")[1] for defect in DEFECTS.values() if "kernels/" in defect.file}
    assert operators >= {"common", "gru", "reverse_subsequences", "slice", "top_k"}
    assert len(DEFECTS) >= 46
