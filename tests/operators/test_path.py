"""One kind of path: every operator's table, the choice it prints, the numbers behind it."""

import json
import re
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from math import inf
from pathlib import Path as File
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from cudml.operators import choice
from cudml.operators.gru.clocks import Clocks
from cudml.operators.path import Basis, Choice, Path, first_that_pays
from cudml.plans import Limits
from proof.sass.plan import HOPPER

#: The modules with `PATHS` and `choose_path`.
PATHS = ("slice.paths", "reverse_subsequences.paths", "gru.paths", "top_k.paths")

#: The modules with `THRESHOLDS` in code.
THRESHOLDS = (
    "launch_shape",
    *(f"top_k.{name}" for name in ("arg_max", "block_sort", "cluster", "columns", "filter", "groups")),
    *(f"top_k.{name}" for name in ("keep", "radix", "serial")),
)

#: Operators whose choice has its numbers in a data file, and their dataclass.
TUNED: dict[str, type[Any]] = {
    "gru": Clocks,
    **{
        name: import_module(f"cudml.operators.{name}.thresholds").Thresholds
        for name in ("slice", "reverse_subsequences")
    },
}


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
    problems = r"\d+ problems, seed \d+|\d+ layers"
    assert re.match(rf"(Predicted, not measured|Measured)\b.* regret: .* \(({problems})\)$", source)
    assert choice.text_of(source, asdict(choice.numbers_of(operator, TUNED[operator]))) == text


@pytest.mark.parametrize("operator", TUNED)
def test_a_data_file_has_the_declared_numbers(operator: str) -> None:
    kind = TUNED[operator]
    numbers = choice.numbers_of(operator, kind)
    for name, declared in get_type_hints(kind).items():
        assert _is_of(getattr(numbers, name), declared), name


def _is_of(value: Any, declared: Any) -> bool:
    """Whether a number, or each of the tuple's numbers, has the declared type; infinite ones have any."""
    if get_origin(declared) is not tuple:
        return value == inf or type(value) in (int, declared)
    each, *rest = get_args(declared)
    parts = [each] * len(value) if rest == [...] else [each, *rest]
    return len(value) == len(parts) and all(map(_is_of, value, parts))


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
    (tmp_path / "fewer").write_text(choice.text_of("Typed", {"most": 1}))
    with pytest.raises(TypeError, match="parts"):
        choice.numbers_of("fewer", Numbers)


def test_the_first_path_that_pays_by_the_numbers_is_taken() -> None:
    def path(name: str, least: int) -> Path[int]:
        return Path(name, "", lambda problem, limits: problem >= least, lambda problem, limits: ((), ()))

    def why(problem: int, limits: Limits, numbers: Numbers) -> str | None:
        return f"{problem}, {numbers.most} or fewer" if problem <= numbers.most else None

    def choose(problem: int, most: float) -> Choice[int]:
        preferred = [(path("first", 10), why), (path("second", 0), why)]
        return first_that_pays(preferred, path("last", 0), problem, HOPPER.limits, Numbers((), most))

    assert repr(choose(10, 12)) == "first: 10, 12 or fewer"
    assert repr(choose(9, 12)) == "second: 9, 12 or fewer"
    assert repr(choose(13, 12)) == "last: nothing else pays"
    assert repr(choose(13, inf)) == "first: 13, inf or fewer"
