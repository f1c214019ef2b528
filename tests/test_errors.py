"""The exceptions as values: pickled in a worker process and raised in its parent."""

import pickle

import pytest

from cudml import BindingError, DescriptorError, KernelError, ModelError, Problem

PROBLEMS = [Problem("K", "range", "at most 4", "5"), Problem("Axis", "range", "0", "1")]
ERRORS: list[Exception] = [
    DescriptorError("TOP_K", PROBLEMS),
    BindingError("GRU", PROBLEMS[:1]),
    KernelError(["a.cu:1: race", "a.cu:2: race"]),
    ModelError("commands", "a list", "{}", "model.json"),
    ModelError("commands", "a list", "{}"),
]


def test_problems_of_a_model_survive_it_too() -> None:
    error = ModelError("commands", "a list", "{}", "a.json", [ModelError("resources", "an object", "[]")])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "a.json: commands is {}, must be a list\n  resources is [], must be an object"
    assert [(other.path, other.got) for other in again.others] == [("resources", "[]")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_the_way_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
