"""One kind of path: every operator's table, the choice it prints, the numbers behind it."""

import json
import re
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path as File

import pytest

from cudml.operators import choice
from cudml.operators.gru.clocks import CLOCKS
from cudml.operators.path import Path, first_that_can
from proof.sass.plan import HOPPER

#: The modules with `PATHS` and `choose_path`.
PATHS = ("slice.paths", "reverse_subsequences.paths", "gru.paths", "top_k.paths")


@pytest.mark.parametrize("module", PATHS)
def test_paths_are_found_by_their_names_and_say_what_they_are_for(module: str) -> None:
    paths = import_module(f"cudml.operators.{module}").PATHS
    for name, path in paths.items():
        assert isinstance(path, Path)
        assert name == path.name
        assert repr(path) == f"{name} ({path.good_at})"
    assert len({path.good_at for path in paths.values()}) == len(paths)


def test_a_data_file_is_as_the_command_writes_it() -> None:
    text = choice.path_of("gru").read_text(encoding="utf-8")
    source = json.loads(text)["source"]
    problems = r"\d+ problems, seed \d+|\d+ layers"
    assert re.match(rf"(Predicted, not measured|Measured)\b.* regret: .* \(({problems})\)$", source)
    assert choice.text_of(source, asdict(CLOCKS)) == text
    assert {type(number) for number in asdict(CLOCKS).values()} == {int}


@dataclass(frozen=True)
class Numbers:
    least: int
    most: int


def test_numbers_are_read_as_they_are_written(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers(3, 1 << 40)
    monkeypatch.setattr(choice, "path_of", lambda operator: tmp_path / operator)
    (tmp_path / "one").write_text(choice.text_of("Typed", asdict(numbers)))
    assert choice.numbers_of("one", Numbers) == numbers
    (tmp_path / "more").write_text(choice.text_of("Typed", {**asdict(numbers), "fewest": 1}))
    with pytest.raises(TypeError, match="fewest"):
        choice.numbers_of("more", Numbers)
    (tmp_path / "fewer").write_text(choice.text_of("Typed", {"most": 1}))
    with pytest.raises(TypeError, match="least"):
        choice.numbers_of("fewer", Numbers)


def path(name: str, least: int) -> Path[int]:
    return Path(name, "", lambda problem, limits: problem >= least, lambda problem, limits: ((), ()))


def test_the_first_ranked_path_that_can_is_taken() -> None:
    paths = {"first": path("first", 10), "second": path("second", 5), "last": path("last", 0)}
    for problem, ranked, taken in (
        (10, ("first", "second"), "first"),
        (10, ("second", "first"), "second"),
        (9, ("first", "second"), "second"),
        (4, ("first", "second"), "last"),
        (10, (), "last"),
    ):
        assert first_that_can(paths, ranked, problem, HOPPER.limits, paths["last"]).name == taken
