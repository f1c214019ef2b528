"""Reading parsed JSON with its place in mind: every complaint names the keys that lead there."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from cudml.errors import SIMILARITY, ModelError

Result = TypeVar("Result")

#: How DxDispatch spells the floats that JSON has not.
SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_MAX_SHOWN = 60


@dataclass(frozen=True)
class Node:
    """A value, and the keys that lead to it from the top of `source`."""

    value: Any
    path: str = ""
    source: str = ""

    def fail(self, expected: str, got: str | None = None) -> NoReturn:
        """Raise `ModelError` about this place."""
        if got is None:
            got = repr(self.value)
            got = got if len(got) <= _MAX_SHOWN else f"{got[: _MAX_SHOWN - 3]}..."
        raise ModelError(self.path or "the top level", expected, got, self.source)

    def child(self, key: str | int) -> "Node":
        """The value of a key or an index that is there."""
        return Node(self.value[key], self._path_of(key), self.source)

    def _path_of(self, key: str | int) -> str:
        if isinstance(key, int):
            return f"{self.path}[{key}]"
        return f"{self.path}.{key}" if self.path else key

    def members(self) -> Mapping[str, Any]:
        """The value, which is an object."""
        if not isinstance(self.value, Mapping) or not all(isinstance(key, str) for key in self.value):
            self.fail("an object")
        return self.value

    def items(self) -> Iterator["Node"]:
        """The elements of the value, which is a list."""
        if not isinstance(self.value, (list, tuple)):
            self.fail("a list")
        for i in range(len(self.value)):
            yield self.child(i)

    def get(self, key: str) -> "Node | None":
        """The value of a key; None where it is absent or null."""
        return self.child(key) if self.members().get(key) is not None else None

    def need(self, key: str, expected: str) -> "Node":
        """The value of a key that has to be there."""
        node = self.get(key)
        if node is None:
            Node(None, self._path_of(key), self.source).fail(expected, "missing")
        return node

    def only(self, *keys: str) -> None:
        """Complain of a key that is none of these."""
        for key in self.members():
            if key not in keys and not key.startswith("$"):
                close = get_close_matches(key, keys, n=1, cutoff=SIMILARITY)
                hint = f"; the closest is {close[0]}" if close else ""
                self.child(key).fail(f"one of {', '.join(keys)}{hint}", "unknown")

    def text(self) -> str:
        """The value, which is a string."""
        if not isinstance(self.value, str):
            self.fail("a string")
        return self.value

    def integer(self) -> int:
        """The value, which is an integer."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("an integer")
        return self.value

    def integers(self) -> tuple[int, ...]:
        """The value, which is a list of integers."""
        return tuple(item.integer() for item in self.items())

    def number(self) -> float:
        """The value, which is a number, or one of the strings of `SPECIAL_FLOATS`."""
        if isinstance(self.value, str) and self.value.lower() in SPECIAL_FLOATS:
            return SPECIAL_FLOATS[self.value.lower()]
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool):
            try:
                return float(self.value)
            except OverflowError:
                self.fail("a number that float64 has, which ends at 1.8e308")
        self.fail('a number, "nan", "inf" or "-inf"')

    def boolean(self) -> bool:
        """The value, which is true, false, 0 or 1."""
        if self.value not in (0, 1):
            self.fail("true or false")
        return bool(self.value)

    def choice(self, choices: Mapping[str, Result], prefix: str) -> Result:
        """What a name stands for; the prefix may be left out."""
        name = self.text().removeprefix(prefix)
        if name not in choices:
            close = get_close_matches(name, choices, n=1, cutoff=SIMILARITY)
            hint = f"; the closest is {close[0]}" if close else ""
            self.fail(f"one of {', '.join(choices)}{hint}")
        return choices[name]
