"""Each planted defect is reported by a case of the check mode, and each barrier of the kernels is needed."""

import re
from pathlib import Path

import pytest

from tests.planted import cuda, gru, host, machine_code, movement, top_k, wide_offsets
from tests.planted.barriers import BARRIERS, RELAXED
from tests.planted.defect import ROOT, copy_checkout
from tests.support.observed_cases import CASES

FILES = (top_k, gru, movement, host, cuda, wide_offsets, machine_code)
DEFECTS = {name: defect for file in FILES for name, defect in file.DEFECTS.items()}
ALL = {**DEFECTS, **BARRIERS}

_CONSTANT = re.compile(r"\b[A-Z_][A-Z_]+\b")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all tests, so that compiled code of unchanged files is found again."""
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
    assert how is None, f"{name}: {how}"


@pytest.mark.parametrize("name", ALL)
def test_it_can_be_planted(name: str) -> None:
    """The text to change occurs once, and the cases that must catch the change exist."""
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


@pytest.mark.parametrize("name", [name for name, defect in DEFECTS.items() if defect.start is None])
def test_it_can_be_planted_in_a_reformatted_file(name: str) -> None:
    """With a line for each word, and without comments, the same tokens change."""
    defect = DEFECTS[name]
    text = (ROOT / defect.file).read_text()
    assert _words(defect.changed(_words(text))) == _words(defect.changed(text))


def _words(text: str) -> str:
    return "\n".join(re.sub(r"//.*", "", text).split())


def test_every_function_that_orders_memory_is_removed_somewhere() -> None:
    text = (ROOT / "kernels/common/intrinsics.cuh").read_text()
    ordering = set(re.findall(r"\b(\w*(?:release|acquire)\w*)\(", re.sub(r"//.*", "", text)))
    assert {name.removesuffix("(") for name in RELAXED} >= ordering


def test_there_are_many_kinds_of_defects() -> None:
    operators = {defect.file.split("/")[1] for defect in DEFECTS.values() if "kernels/" in defect.file}
    assert operators >= {"common", "gru", "reverse_subsequences", "slice", "top_k"}
    assert len(DEFECTS) >= 46
