"""The numbers that decide between an operator's paths: a data file, not code.

`choices/OPERATOR.json` has a member for each field of the operator's dataclass, and says first how well they
choose, by which times. The dataclass says what a number counts, and the path that it is about.
`python -m bench plan OPERATOR --write` tunes them.
"""

import json
from math import inf
from pathlib import Path
from typing import Any, TypeVar

Numbers = TypeVar("Numbers")


def numbers_of(operator: str, kind: type[Numbers]) -> Numbers:
    """The numbers of an operator's data file; null is infinite.

    Raises TypeError if the file has other members than the dataclass.
    """
    members = json.loads(path_of(operator).read_text(encoding="utf-8"))
    del members["source"]
    return kind(**{name: _value_of(number) for name, number in members.items()})


def width_of(item_bytes: int) -> int:
    """The place of a size among 1, 2, 4, 8 and 16 bytes, by which numbers "by width" are found."""
    return item_bytes.bit_length() - 1


def path_of(operator: str) -> Path:
    """The operator's data file."""
    return Path(__file__).with_name("choices") / f"{operator}.json"


def _value_of(number: Any) -> Any:
    if isinstance(number, list):
        return tuple(map(_value_of, number))
    return inf if number is None else number


def text_of(source: str, numbers: dict[str, Any]) -> str:
    """The text of a data file: a line for its source, and one for each number."""
    lines = [f'  "source": {json.dumps(source)}']
    lines += [f'  "{name}": {json.dumps(_written(number))}' for name, number in numbers.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _written(number: Any) -> Any:
    if isinstance(number, tuple):
        return [*map(_written, number)]
    return None if number == inf else number
