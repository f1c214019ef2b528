"""The parts of an operator's benchmark file: its cases as data, and a handful of functions.

`bench/<operator>.py` holds these names, and `bench/slice.py` is the example to follow:

``CASES``
    a tuple of frozen dataclasses derived from `Case`, the most informative first.
``make(case, source)``
    the inputs by name, as arrays of ``source.xp`` (NumPy on the CPU, CuPy on a GPU).
``run(case, inputs)``
    cudml's array function on those inputs.
``check(case, inputs, got)``
    raises `WrongResultError` unless ``got``, a result of `run`, is right by an oracle that is not cudml;
    says what it compared ("exact", "64 rows exact", "error 2e-07 of 5e-07").
``bytes_moved(case)``
    the fewest bytes that must be read and written: every needed input byte once, every output byte once.
``PEERS``
    a dictionary from the name of a peer to its `Peer`.
``steps(case)``
    only for an operator with sequential steps: their number, so that reports give the time of one step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bench.sources import Source

Inputs = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to time.

    `name` is unique within the operator and identifies the case in committed results, so a changed shape
    takes a new name. `quick` cases are small enough for the CPU emulator and make up `--quick`.
    """

    name: str
    quick: bool = False


@dataclass(frozen=True)
class Peer:
    """Another way to compute the same result, as a user of that library would write it.

    `prepare(case, inputs)` does what is not to be timed (converting arrays, loading weights) and returns
    the call to time, or None if the peer cannot do the case. `contract` says how the result may differ from
    cudml's. The result is checked like cudml's own if there is no contract, or if `is_checked`, because the
    data of the cases do not show the difference; otherwise by `check`, which compares what the contract
    leaves. `needs` names the modules that have to be importable, `devices` the kinds of device. A peer that
    `has_own_stream` does not wait for the null stream, where events are recorded: its call ends when the
    result is there, and the host's clock times it.
    """

    prepare: Callable[[Any, Inputs], Callable[[], Any] | None]
    contract: str = ""
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    is_checked: bool = False
    check: Callable[[Any, Inputs, Any], str] | None = None
    has_own_stream: bool = False


class OperatorBench(Protocol):
    """The module `bench/<operator>.py`."""

    CASES: tuple[Case, ...]
    PEERS: Mapping[str, Peer]

    def make(self, case: Any, source: Source) -> Inputs: ...

    def run(self, case: Any, inputs: Inputs) -> Any: ...

    def check(self, case: Any, inputs: Inputs, got: Any) -> str: ...

    def bytes_moved(self, case: Any) -> int: ...


class WrongResultError(Exception):
    """A result differs from the oracle's; nothing is timed."""
