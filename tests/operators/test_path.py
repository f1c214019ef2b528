"""One kind of path: every operator's table, the choice it prints, the numbers behind it."""

import json
import re
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from math import inf
from pathlib import Path as File
from typing import get_args

import pytest

from cudml.operators import choice
from cudml.operators.path import Basis, Path
from cudml.operators.top_k.thresholds import Thresholds

#: The modules with `PATHS` and `choose_path`.
PATHS = ("slice.paths", "reverse_subsequences.paths", "gru.paths", "top_k.paths")

#: The modules with `THRESHOLDS`.
THRESHOLDS = (
    "launch_shape",
    "slice.paths",
    "reverse_subsequences.paths",
    "gru.shapes",
    *(f"top_k.{name}" for name in ("arg_max", "block_sort", "cluster", "columns", "filter", "groups")),
    *(f"top_k.{name}" for name in ("keep", "radix", "serial")),
)

#: Operators whose choice has its numbers in a data file, and their dataclass.
TUNED = {"top_k": Thresholds}


@pytest.mark.parametrize("module", PATHS)
def test_paths_are_found_by_their_names_and_say_what_they_are_for(module: str) -> None:
    paths = import_module(f"cudml.operators.{module}").PATHS
    for name, path in paths.items():
        assert isinstance(path, Path)
        assert name == path.name
        assert repr(path) == f"{name} ({path.good_at})"
    assert len({path.good_at for path in paths.values()}) == len(paths)


@pytest.mark.parametrize("module", THRESHOLDS)
def test_every_threshold_says_what_it_rests_on(module: str) -> None:
    declared = fields(import_module(f"cudml.operators.{module}").THRESHOLDS)
    assert declared
    for number in declared:
        assert number.metadata["basis"] in get_args(Basis), number.name
        assert number.metadata["why"], number.name


@pytest.mark.parametrize("operator", TUNED)
def test_a_data_file_is_as_the_command_writes_it(operator: str) -> None:
    text = choice.path_of(operator).read_text(encoding="utf-8")
    source = json.loads(text)["source"]
    assert re.match(r"(Predicted, not measured|Measured)\b.* regret: .* \(\d+ problems, seed \d+\)$", source)
    assert choice.text_of(source, asdict(choice.numbers_of(operator, TUNED[operator]))) == text


@dataclass(frozen=True)
class Numbers:
    parts: tuple[tuple[float, int], ...]
    most: float


def test_numbers_are_read_as_they_are_written(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers(((0.5, 3), (1 / 3, 1 << 40)), inf)
    monkeypatch.setattr(choice, "path_of", lambda operator: tmp_path / operator)
    (tmp_path / "one").write_text(choice.text_of("Typed", asdict(numbers)))
    assert choice.numbers_of("one", Numbers) == numbers
    assert json.loads((tmp_path / "one").read_text())["most"] is None
    (tmp_path / "more").write_text(choice.text_of("Typed", {**asdict(numbers), "least": 1}))
    with pytest.raises(TypeError, match="least"):
        choice.numbers_of("more", Numbers)
