"""One kind of path: every operator's table, the choice it prints, the numbers behind it."""

from dataclasses import fields
from importlib import import_module
from typing import get_args

import pytest

from cudml.operators.path import Basis, Path

#: The modules with `PATHS` and `choose_path`.
PATHS = ("slice.paths", "reverse_subsequences.paths", "gru.paths", "top_k.paths")

#: The modules with `THRESHOLDS`.
THRESHOLDS = (
    "launch_shape",
    "slice.paths",
    "reverse_subsequences.paths",
    "gru.shapes",
    *(f"top_k.{name}" for name in ("arg_max", "cluster", "columns", "filter", "groups", "paths")),
    *(f"top_k.{name}" for name in ("radix", "serial")),
)


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
