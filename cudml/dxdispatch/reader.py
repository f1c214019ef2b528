"""Read parsed JSON and track the position: every error names the keys that lead to the value."""

import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, NoReturn, TypeVar

from cudml.errors import SIMILARITY, ModelError

Result = TypeVar("Result")

#: DxDispatch's spelling of the floats that JSON lacks.
SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_MAX_SHOWN = 60

#: Longer integers are described by their length: Python refuses to print thousands of digits.
_MAX_SHOWN_BITS = 2048


class _Shown(reprlib.Repr):
    """The text of a value for an error: a bounded `repr`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = _MAX_SHOWN
        self.maxstring = self.maxother = 2 * _MAX_SHOWN

    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() > _MAX_SHOWN_BITS:
            return f"an integer of {value.bit_length()} bits"
        return repr(value)

    def repr_dict(self, value: dict[Any, Any], level: int) -> str:
        # In the file's order; reprlib would sort.
        if not value:
            return "{}"
        if level <= 0:
            return "{...}"
        shown = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in _first(value)]
        return f"{{{', '.join(shown)}}}"

    def repr_str(self, value: str, level: int) -> str:
        return repr(value[: self.maxstring])


def _first(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return list(islice(value.items(), _MAX_SHOWN))


_shown = _Shown().repr


def close_hint(name: str, names: Iterable[str]) -> str:
    """`; the closest is NAME` if one of the names is similar to the given one."""
    close = get_close_matches(name[: 4 * _MAX_SHOWN], names, n=1, cutoff=SIMILARITY)
    return f"; the closest is {close[0]}" if close else ""


def all_of(readers: Iterable[Callable[[], Any]]) -> list[Any]:
    """The result of each reader; if some raise `ModelError`, raises one error with the problems of all."""
    results = []
    problems: list[ModelError] = []
    for read in readers:
        try:
            results.append(read())
        except ModelError as error:
            alone = ModelError(error.path, error.expected, error.got, error.source)
            problems += [alone, *error.others]
    if problems:
        first, *others = problems
        raise ModelError(first.path, first.expected, first.got, first.source, others)
    return results


@dataclass(frozen=True)
class Node:
    """A value, and the keys that lead to it from the top of `source`."""

    value: Any
    path: str = ""
    source: str = ""

    def fail(self, expected: str, got: str | None = None) -> NoReturn:
        """Raise `ModelError` about this value."""
        if got is None:
            got = _shown(self.value)
            got = got if len(got) <= _MAX_SHOWN else f"{got[: _MAX_SHOWN - 3]}..."
        raise ModelError(self.path or "the top level", expected, got, self.source)

    def child(self, key: str | int) -> "Node":
        """The value of an existing key or index."""
        return Node(self.value[key], self._path_of(key), self.source)

    def _path_of(self, key: str | int) -> str:
        if isinstance(key, int):
            return f"{self.path}[{key}]"
        return f"{self.path}.{key}" if self.path else key

    def members(self) -> Mapping[str, Any]:
        """The value, which must be an object."""
        if not isinstance(self.value, Mapping) or not all(isinstance(key, str) for key in self.value):
            self.fail("an object")
        return self.value

    def items(self) -> Iterator["Node"]:
        """The elements of the value, which must be a list."""
        if not isinstance(self.value, (list, tuple)):
            self.fail("a list")
        for i in range(len(self.value)):
            yield self.child(i)

    def get(self, key: str) -> "Node | None":
        """The value of a key; None if it is absent or null."""
        return self.child(key) if self.members().get(key) is not None else None

    def need(self, key: str, expected: str) -> "Node":
        """The value of a required key."""
        node = self.get(key)
        if node is None:
            Node(None, self._path_of(key), self.source).fail(expected, "missing")
        return node

    def only(self, *keys: str) -> None:
        """Raise `ModelError` for the keys that are not among these."""
        unknown = [key for key in self.members() if key not in keys and not key.startswith("$")]
        all_of(
            partial(self.child(key).fail, f"one of {', '.join(keys)}{close_hint(key, keys)}", "unknown")
            for key in unknown
        )

    def text(self) -> str:
        """The value, which must be a string."""
        if not isinstance(self.value, str):
            self.fail("a string")
        return self.value

    def integer(self) -> int:
        """The value, which must be an integer."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("an integer")
        return self.value

    def integer_from(self, least: int, most: int | None = None) -> int:
        """The value, which must be an integer in a range; an end of None is unbounded."""
        value = self.integer()
        if value < least or (most is not None and value > most):
            self.fail(f"at least {least}" if most is None else f"from {least} to {most}")
        return value

    def integers(self) -> tuple[int, ...]:
        """The value, which must be a list of integers."""
        return tuple(item.integer() for item in self.items())

    def number(self) -> float:
        """The value, which must be a number or one of the strings of `SPECIAL_FLOATS`."""
        if isinstance(self.value, str) and self.value.lower() in SPECIAL_FLOATS:
            return SPECIAL_FLOATS[self.value.lower()]
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool):
            try:
                return float(self.value)
            except OverflowError:
                self.fail("a number that float64 has, which ends at 1.8e308")
        self.fail('a number, "nan", "inf" or "-inf"')

    def boolean(self) -> bool:
        """The value, which must be true, false, 0 or 1."""
        if self.value not in (0, 1):
            self.fail("true or false")
        return bool(self.value)

    def choice(self, choices: Mapping[str, Result], prefix: str = "", *, any_case: bool = False) -> Result:
        """The choice that a name stands for; the prefix is optional, and with `any_case` so is the case."""
        name = self.text().removeprefix(prefix)
        if any_case:
            name = next((choice for choice in choices if choice.lower() == name.lower()), name)
        if name not in choices:
            self.fail(f"one of {', '.join(choices)}{close_hint(name, choices)}")
        return choices[name]
