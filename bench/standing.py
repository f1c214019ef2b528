"""Where cudml stands against its peers by measured times: ahead, tied or behind, for each case and peer."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from bench.prediction.standing import AHEAD, BEHIND, TIE
from bench.results import Row

#: Implementations that are timed as a limit, not as a library that does the same.
LIMITS = ("copy",)

#: Times that differ by less are a tie, by their ratio or by microseconds: one copy by the driver, timed under
#: several names in a run, differs by no more than one of these.
NEAR, NEAR_US = 0.025, 0.25

#: An error that no rounding makes, not even to 10 bits: states of a recurrence lie between -1 and 1.
WRONG = 0.01

_OFF = re.compile(r"error (?P<error>\S+), allowed (?P<allowed>\S+)")


@dataclass(frozen=True)
class Standing:
    """The measured rows of a case: cudml's own, and that of a peer."""

    own: Row
    other: Row

    @property
    def ratio(self) -> float:
        """The peer's time over cudml's."""
        return self.other.median_us / self.own.median_us

    @property
    def verdict(self) -> str:
        """`AHEAD`, `TIE` or `BEHIND`."""
        if are_near(self.own.median_us, self.other.median_us):
            return TIE
        return AHEAD if self.ratio > 1 else BEHIND


def are_near(one_us: float, other_us: float) -> bool:
    """Whether times differ by no more than those of the same work do."""
    less, more = sorted((one_us, other_us))
    return more <= less * (1 + NEAR) or more - less <= NEAR_US


def differs(row: Row) -> bool:
    """Whether the result was not what the check allows; such a peer is timed, and its row says so."""
    return row.checked.startswith("differs")


def excess(row: Row) -> float:
    """The error of a result that differs, over the error that the check allows; 0 if the check has none."""
    found = _OFF.search(row.checked)
    return float(found["error"]) / float(found["allowed"]) if found else 0.0


def is_wrong(row: Row) -> bool:
    """Whether the result is off by more than rounding, so that its time is not that of the same work."""
    found = _OFF.search(row.checked) if differs(row) else None
    return found is not None and not float(found["error"]) <= WRONG


def reported_cache(rows: Iterable[Row]) -> str:
    """The cache state that is reported: cold if it was measured, else warm."""
    return "cold" if any(row.cache == "cold" for row in rows) else "warm"


def standings(rows: Iterable[Row], limits: bool = False) -> list[Standing]:
    """Every case and peer, or limit, with a time of both, except wrong results."""
    rows = list(rows)
    cache = reported_cache(rows)
    chosen = [row for row in rows if row.cache == cache and not is_wrong(row)]
    own = {(row.operator, row.case): row for row in chosen if row.implementation == "cudml"}
    return [
        Standing(own[row.operator, row.case], row)
        for row in chosen
        if (row.operator, row.case) in own
        and row.implementation != "cudml"
        and (row.implementation in LIMITS) == limits
    ]


def times(ratio: float) -> str:
    """A ratio to two digits."""
    return f"{ratio:,.0f}x" if ratio >= 99.5 else f"{ratio:.2g}x"


def microseconds(time_us: float) -> str:
    """Format a number with about three digits."""
    return f"{time_us:,.0f} us" if time_us >= 100 else f"{time_us:.1f} us"


def of_peers(found: Iterable[Standing]) -> str:
    """For each peer its time over cudml's, and in how many cases cudml is ahead, tied and behind."""
    by_peer: dict[str, list[Standing]] = {}
    for one in found:
        by_peer.setdefault(one.other.implementation, []).append(one)
    told = []
    for peer, cases in by_peer.items():
        counts = Counter(one.verdict for one in cases)
        verdicts = "/".join(str(counts[verdict]) for verdict in (AHEAD, TIE, BEHIND))
        told.append(f"{peer} {times(geometric_mean(one.ratio for one in cases))} ({verdicts})")
    return "; ".join(told)


def not_ahead(found: Iterable[Standing]) -> list[str]:
    """The lines of a table: cases in which cudml is not ahead, the slowest beside a peer first."""
    order = {BEHIND: 0, TIE: 1}
    named = sorted(
        (one for one in found if one.verdict in order), key=lambda one: (order[one.verdict], one.ratio)
    )
    return [
        f"| {one.verdict} | `{one.own.operator}`, {one.own.case} | {microseconds(one.own.median_us)} "
        f"| {one.other.implementation} {microseconds(one.other.median_us)}{_how(one.other)} |"
        for one in named
    ]


def _how(other: Row) -> str:
    """What sets the work of a peer apart."""
    return ", other contract" * bool(other.contract) + ", differs" * differs(other)


def remarks(rows: Iterable[Row]) -> list[str]:
    """For each peer whose results differ from what the check allows, in how many cases, and how much."""
    by_peer: dict[str, list[Row]] = {}
    for row in rows:
        by_peer.setdefault(row.implementation, []).append(row)
    told = []
    for peer, of_peer in by_peer.items():
        wrong = [row for row in of_peer if is_wrong(row)]
        less_exact = [row for row in of_peer if differs(row) and not is_wrong(row)]
        for rows_of, what in (
            (less_exact, "differs in {} of {} cases, which count"),
            (wrong, "is wrong in {} of {} cases, which do not count"),
        ):
            if rows_of:
                most = max(rows_of, key=excess)
                told.append(
                    f"{peer} {what.format(len(rows_of), len(of_peer))}; the most, in {most.case}: "
                    f"{most.checked.removeprefix('differs: ')}."
                )
    return told
