"""Where cudml stands against its peers by predicted times: ahead, tied or behind, for each case and peer."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bench.prediction import native_peers, table
from bench.prediction.rows import GROUPS

#: The most that a row of the proof may be off, by what binds a launch: a row of copies and filters if memory
#: binds, else any row. Times that differ by less are a tie.
WORST_ERROR = {"DRAM": GROUPS["streaming"].worst}
WORST_ERROR_ELSEWHERE = max(group.worst for group in GROUPS.values())

AHEAD, TIE, BEHIND = "ahead", "tie", "behind"


@dataclass(frozen=True)
class Standing:
    """Both predicted times of a case, and what binds each; a peer's bound may not be known ("")."""

    operator: str
    case: str
    peer: str
    time_us: float
    peer_us: float
    bounds: tuple[str, str]

    @property
    def error(self) -> float:
        """The larger error that both times may have."""
        return max(WORST_ERROR.get(bound, WORST_ERROR_ELSEWHERE) for bound in self.bounds if bound)

    @property
    def verdict(self) -> str:
        """`AHEAD`, `TIE` or `BEHIND`."""
        if self.peer_us > self.time_us * (1 + self.error):
            return AHEAD
        return BEHIND if self.time_us > self.peer_us * (1 + self.error) else TIE


def standings(rows: Iterable[table.Row], peers: Iterable[native_peers.Row]) -> list[Standing]:
    """Every case and peer with a time of both."""
    known = {row.key: row for row in rows}
    found = [
        Standing(row.operator, row.case, "CuPy", row.time_us, row.cupy_us, (row.bound, ""))
        for row in known.values()
        if row.cupy_us
    ]
    for peer in peers:
        own = known.get((peer.operator, peer.case))
        if own and peer.time_us:
            bounds = own.bound, peer.bound
            found.append(Standing(peer.operator, peer.case, peer.peer, own.time_us, peer.time_us, bounds))
    return found


def counts(found: Iterable[Standing]) -> str:
    """The README's table: how often cudml is ahead, tied and behind, by operator and peer.

    `found` are cases that have not been measured.
    """
    verdicts: dict[tuple[str, str], Counter[str]] = {}
    for one in found:
        verdicts.setdefault((one.operator, one.peer), Counter())[one.verdict] += 1
    if not verdicts:
        return "No case is left that has not been measured."
    lines = ["| operator | peer | ahead | tie | behind |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| `{operator}` | {peer} | {count[AHEAD]} | {count[TIE]} | {count[BEHIND]} |"
        for (operator, peer), count in verdicts.items()
    ]
    return "\n".join(lines)


def section(found: Iterable[Standing]) -> str:
    """The section of the results: cases in which cudml is behind, then those of a tie.

    `found` are cases that have not been measured.
    """
    named = sorted((one for one in found if one.verdict != AHEAD), key=lambda one: one.verdict)
    of = "of the cases that have not been measured, the ones in which cudml is not ahead of a peer"
    lines = [f"**NVIDIA H200**, predicted, not measured: {of}.", ""]
    lines += ["| | case | cudml | peer |", "|---|---|---:|---:|"]
    lines += [
        f"| {one.verdict} | `{one.operator}`, {one.case} | {one.time_us:.4g} us "
        f"| {one.peer} {one.peer_us:.4g} us |"
        for one in named
    ]
    return "\n".join([*lines, ""])
