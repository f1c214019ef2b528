"""The table of pipes in bench/PREDICTION.md against the machine's own."""

import re
from pathlib import Path

from proof.sass.encoding import PIPES
from proof.sass.machine import SOURCES
from proof.sass.rates import h200

ROOT = Path(__file__).resolve().parents[2]
#: An instruction with its other names and its pipe, as it stands beside its semantics.
_INSTRUCTION = re.compile(r'^(?:INSTRUCTION|VALUE)\((\w+), "([^"]*)", k(\w+)', re.MULTILINE)
#: The table's name for an instruction that it does not have.
_UNKNOWN = "UNKNOWN"


def instructions() -> dict[str, set[str]]:
    """The names of instructions by pipe."""
    found: dict[str, set[str]] = {pipe: set() for pipe in PIPES}
    for source in SOURCES.glob("*.cpp"):
        for name, others, pipe in _INSTRUCTION.findall(source.read_text()):
            found[pipe.lower()] |= {name, *others.split()} - {_UNKNOWN}
    return found


def test_every_pipe_is_told_with_its_instructions_and_times() -> None:
    text = (ROOT / "bench/PREDICTION.md").read_text()
    _, _, section = text.partition("### Pipes\n")
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (\d+) \| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE
    )
    rates = h200()
    expected = {
        pipe: (rates.pipe_clocks[number], rates.latency[number], instructions()[pipe])
        for number, pipe in enumerate(PIPES)
    }
    assert [row[0] for row in rows] == [*PIPES]
    assert {
        pipe: (float(clocks), float(latency), {*re.findall(r"\w+", names)})
        for pipe, clocks, latency, names, _ in rows
    } == expected
