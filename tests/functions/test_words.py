"""What errors say about another library's words; the calls with them are in `test_bad_arguments.py`."""

import inspect
from typing import Any

import pytest

import cudml
from cudml.functions import words

#: Each table, and the function that it is for.
TABLES = [
    (words.TOP_K, cudml.top_k),
    (words.SLICE, cudml.slice),
    (words.REVERSE_SUBSEQUENCES, cudml.reverse_subsequences),
    (words.GRU, cudml.gru),
    (words.GRU_STACK, cudml.gru_stack),
]


@pytest.mark.parametrize(("table", "function"), TABLES)
def test_words_are_others_and_meanings_are_ours(table: Any, function: Any) -> None:
    """No argument of the function is a foreign word, and errors name only real arguments."""
    own = inspect.signature(function).parameters
    assert not {*table} & {*own}
    for meaning in table.values():
        for name in {part.split("=")[0] for part in meaning.split() if "=" in part}:
            assert name in own, meaning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "top_k: a is of dtype complex64, must be of bool",
            "top_k: x is of dtype complex64, must be of bool",
        ),
        ("top_k: a must have a dimension: axis", "top_k: x must have a dimension: axis"),
        ("f: out[0] is overlapping a, must be in", "f: out[0] is overlapping x, must be in"),
        (
            "f: lengths is of a shape that, the shape of a with 1",
            "f: lengths is of a shape that, the shape of x with 1",
        ),
        ("f: b is on cuda:0, must be on cpu, where a is", "f: b is on cuda:0, must be on cpu, where x is"),
        ("f: a list is a list", "f: a list is a list"),
    ],
)
def test_an_adapter_s_name_is_in_the_place_of_ours(text: str, expected: str) -> None:
    error = words.renamed(ValueError(text), "a", "x")
    assert (type(error), str(error)) == (ValueError, expected)


def test_words_are_no_part_of_a_signature() -> None:
    """A function takes other words only to report them, and `k` is required."""
    for function in (cudml.top_k, cudml.slice, cudml.reverse_subsequences, cudml.gru, cudml.gru_stack):
        kinds = {one.name: one for one in inspect.signature(function).parameters.values()}
        assert "words" in function.__code__.co_varnames
        assert "words" not in kinds
    assert inspect.signature(cudml.top_k).parameters["k"].default is inspect.Parameter.empty
