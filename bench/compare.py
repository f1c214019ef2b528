"""`python -m bench compare MEASURED`: measured times beside the predicted ones, the worst first.

MEASURED is the file that `python -m bench` writes for a GPU. The command prints each case with the ratio of
its measured time to the predicted one, and the medians by what bounds a case and by kernel. From the files
beside MEASURED, it prints the planner's choices that measured paths would change
(`python -m bench plan OPERATOR --measure`), and kernels whose machine code is not the predicted one
(`python -m bench machine-code --architecture own`). If kernels have changed since they were measured, a file
with MEASURED's name and `-predicted` before its suffix has the predictions of the measured ones.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import machine_code, results
from bench.prediction import standing, table
from bench.prediction.scan import OPERATORS, dear, scan_of

#: The cache state of predictions, the implementation that is predicted, and the predicted peer.
_CACHE, _OWN, _PEER = "cold", "cudml", "cupy"

#: The GPU of predictions.
_PREDICTED_ON = "H200"

#: Most cases that are named of those farther off than the proof allows.
_MAX_NAMED = 20

_BY_64 = "memory is read 64 bytes at a time, not 32 (above)"

#: Why a case takes longer than predicted, where that is known: by operator, and how its name begins.
_REASONS = {
    ("slice", r"every few \d+ by \(16,\) float32|part of rows 4194304 x (5|16) float32"): _BY_64,
    ("slice", r"one column"): f"in part, {_BY_64}",
}


@dataclass(frozen=True)
class Pair:
    """A case that was measured and predicted; `kernels` are the instances in order."""

    operator: str
    case: str
    bound: str
    kernels: tuple[str, ...]
    measured_us: float
    predicted_us: float

    @property
    def ratio(self) -> float:
        """The measured time over the predicted one."""
        return self.measured_us / self.predicted_us

    @property
    def error(self) -> float:
        """How far the times are apart, as a ratio of at least 1."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def functions(self) -> str:
        """The kernels without template arguments."""
        return " ".join(dict.fromkeys(kernel.partition("<")[0] for kernel in self.kernels))

    @property
    def is_within(self) -> bool:
        """Whether the prediction is no farther off than its proof allows."""
        return self.error <= 1 + standing.WORST_ERROR.get(self.bound, standing.WORST_ERROR_ELSEWHERE)

    @property
    def reason(self) -> str:
        """Why the times differ, as far as that is known."""
        known = (why for (operator, case), why in _REASONS.items() if self._is(operator, case))
        return next(known, "not explained yet")

    def _is(self, operator: str, case: str) -> bool:
        return operator == self.operator and re.match(case, self.case) is not None

    def __str__(self) -> str:
        return (
            f"{self.ratio:>6.2f}x {self.measured_us:>10.1f} us {self.predicted_us:>10.1f} us  "
            f"{self.bound:<8.8} {self.operator:<12.12} {self.case:<54.54} {' '.join(self.kernels)}"
        )


def of_measured_code(predicted: Iterable[table.Row], files: Iterable[Path]) -> list[table.Row]:
    """Predictions, in which rows of `files` replace those of the same case."""
    rows = {row.key: row for row in predicted}
    for path in files:
        rows |= {row.key: row for row in table.read(path)[1]}
    return [*rows.values()]


def pairs(measured: Iterable[results.Row], predicted: Iterable[table.Row]) -> list[Pair]:
    """The cases of both tables, the largest ratio first; CuPy's own kernels are cases, too."""
    known = {row.key: row for row in predicted}
    found = []
    for row in measured:
        other = known.get((row.operator, row.case))
        if row.cache != _CACHE or other is None:
            continue
        if row.implementation == _OWN:
            kernels = tuple(other.kernels.split())
            found.append(Pair(*other.key, other.bound, kernels, row.median_us, other.time_us))
        elif row.implementation == _PEER and other.cupy_us:
            found.append(Pair(*other.key, "", ("CuPy's",), row.median_us, other.cupy_us))
    return sorted(found, key=lambda pair: -pair.error)


def grouped(found: Iterable[Pair]) -> dict[tuple[str, str], list[float]]:
    """Ratios by what bounds a case, and by operator and kernels without template arguments."""
    by: dict[tuple[str, str], list[float]] = {}
    for pair in found:
        if pair.bound:
            by.setdefault(("bound", pair.bound), []).append(pair.ratio)
        by.setdefault((pair.operator, pair.functions), []).append(pair.ratio)
    return dict(sorted(by.items(), key=lambda item: (item[0][0] != "bound", item[0])))


def groups(found: Iterable[Pair]) -> Iterator[str]:
    """Lines of `grouped`."""
    yield f"{'':<22} {'':<48} {'cases':>5} {'median':>7} {'least':>7} {'most':>7}"
    for (kind, name), ratios in grouped(found).items():
        numbers = (statistics.median(ratios), min(ratios), max(ratios))
        yield f"{kind:<22} {name:<48} {len(ratios):>5} " + " ".join(f"{ratio:>6.2f}x" for ratio in numbers)


def measured_cases(rows: Iterable[results.Row]) -> set[tuple[str, str]]:
    """The operators and cases that were measured on the GPU of predictions."""
    return {
        (row.operator, row.case)
        for row in rows
        if _PREDICTED_ON in row.device and (row.implementation, row.cache) == (_OWN, _CACHE)
    }


def section(measured: Iterable[results.Row], predicted: Iterable[table.Row]) -> str:
    """What PREDICTION.md says of the predictions beside the times measured on the GPU of predictions."""
    found = pairs((row for row in measured if _PREDICTED_ON in row.device), predicted)
    if not found:
        return "No case has been measured."
    own = [pair for pair in found if pair.bound]
    lines = [
        f"{len(own)} cases of cudml have been measured, and {len(found) - len(own)} of CuPy's kernels. "
        "Ratios are the measured time over the predicted one.",
        "",
        "| | kernels | cases | median | least | most |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (kind, name), ratios in grouped(found).items():
        of = "all, bound by" if kind == "bound" else f"`{kind}`"
        numbers = (statistics.median(ratios), min(ratios), max(ratios))
        lines.append(f"| {of} | {name} | {len(ratios)} | " + " | ".join(f"{n:.2f}x" for n in numbers) + " |")
    beyond = [pair for pair in found if not pair.is_within]
    inside = len(found) - len(beyond)
    lines += ["", f"{inside} of the {len(found)} are no farther off than the proof allows."]
    if beyond:
        more = f" The {_MAX_NAMED} that are farthest off:" if len(beyond) > _MAX_NAMED else " The others:"
        lines[-1] += more
        lines += [
            "",
            "| ratio | measured | predicted | case | kernels | reason |",
            "|---:|---:|---:|---|---|---|",
        ]
        lines += [
            f"| {pair.ratio:.2f}x | {pair.measured_us:,.1f} us | {pair.predicted_us:,.1f} us "
            f"| `{pair.operator}`, {pair.case} | {pair.functions} | {pair.reason} |"
            for pair in beyond[:_MAX_NAMED]
        ]
    return "\n".join(lines)


def changed_choices(measured: Path) -> Iterator[str]:
    """Points whose fastest measured path is not the chosen one."""
    for operator in OPERATORS:
        scan = scan_of(operator)
        path = scan.measured_table(measured.stem, measured.parent)
        origin, rows = scan.read(path)
        if not rows:
            yield f"{operator}: no {path.name}; `python -m bench plan {operator} --measure` makes it"
            continue
        found = [*dear(rows)]
        yield f"{operator}: {len(found)} of {len(rows)} points would change ({origin})"
        yield from found


def changed_code(measured: Path) -> Iterator[str]:
    """Kernels whose machine code on the GPU differs from the predicted one."""
    own, predicted = (
        machine_code.recorded(p) for p in (measured.parent / "machine_code.csv", machine_code.TABLE)
    )
    if not own.rows or own == predicted:
        yield "no machine_code.csv; `python -m bench machine-code --architecture own --output FILE` makes it"
        return
    architectures = {row.architecture for row in own.rows}
    before = [row for row in predicted.rows if row.architecture in architectures]
    found = machine_code.differences(before, own.rows)
    yield f"{len(found)} of {len(own.rows)} kernels differ, NVRTC {predicted.version} -> {own.version}"
    yield from found


def main(arguments: list[str]) -> int:
    """Print the comparison; return 1 if no case was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measured", type=Path, metavar="MEASURED")
    parser.add_argument("--predicted", type=Path, default=table.TABLE, metavar="FILE")
    options = parser.parse_args(arguments)
    for path in (options.measured, options.predicted):
        if not path.is_file():
            parser.error(f"{path} is no file")
    rows = results.read(options.measured)
    version, predicted = table.read(options.predicted)
    before = options.measured.with_name(f"{options.measured.stem}{results.MEASURED_CODE}.csv")
    found = pairs(rows, of_measured_code(predicted, [before] if before.is_file() else []))
    if not found:
        print(f"{options.measured} has no case with a {_CACHE} L2 that was predicted", file=sys.stderr)
        return 1
    first = rows[0]
    compilers = sorted({row.nvrtc for row in rows if row.nvrtc})
    print(f"measured on {first.device}, NVRTC {', '.join(compilers)}")
    print(f"predicted for an {_PREDICTED_ON}, NVRTC {version}")
    if _PREDICTED_ON not in first.device:
        print(f"the GPU is no {_PREDICTED_ON}: ratios have the difference of both in them")
    print(f"\n{'ratio':>7} {'measured':>13} {'predicted':>13}  bound")
    for lines in (
        map(str, found),
        groups(found),
        changed_choices(options.measured),
        changed_code(options.measured),
    ):
        print(*lines, "", sep="\n")
    return 0
