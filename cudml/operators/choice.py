"""The numbers by which an operator estimates the times of its paths: a data file, not code.

`choices/OPERATOR.json` has a member for each field of the operator's dataclass. Its first member says how
well the numbers choose, and by which times. The dataclass says what each number counts, and for which path.
`python -m bench plan OPERATOR --write` tunes them.
"""

import json
from pathlib import Path
from typing import TypeVar

Numbers = TypeVar("Numbers")


def numbers_of(operator: str, kind: type[Numbers]) -> Numbers:
    """The numbers of an operator's data file.

    Raises TypeError if the file has other members than the dataclass.
    """
    members = json.loads(path_of(operator).read_text(encoding="utf-8"))
    del members["source"]
    return kind(**members)


def path_of(operator: str) -> Path:
    """The operator's data file."""
    return Path(__file__).with_name("choices") / f"{operator}.json"


def text_of(source: str, numbers: dict[str, int]) -> str:
    """The text of a data file: a line for its source, and one for each number."""
    return json.dumps({"source": source, **numbers}, indent=2) + "\n"
