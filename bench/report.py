"""`python -m bench report`: README.md's and results/README.md's tables, from the CSV files."""

import argparse
import importlib
from pathlib import Path
from statistics import geometric_mean

from bench import results
from bench.prediction import native_peers, standing
from bench.prediction import table as predicted
from bench.results import Row
from bench.runner import OPERATORS

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PEERS_BEGIN, PEERS_END = "<!-- peers:begin -->", "<!-- peers:end -->"

#: Files that are no measurements of operators.
OTHERS = (
    "published",
    "-micro",
    "machine_code",
    "predicted-h200",
    "predicted-peers",
    "_scan",
    "top_k_traffic",
)

#: What the benchmarks time as a limit, not as a library that does the same.
LIMITS = ("copy",)


def main(arguments: list[str]) -> int:
    """Write the tables; return 1 if there is nothing to report."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__)
    parser.add_argument("--results", type=results.folder, default=results.RESULTS, metavar="FOLDER")
    parser.add_argument(
        "--readme",
        type=Path,
        default="README.md",
        metavar="FILE",
        help="file with the two marker lines (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    folder: Path = options.results
    readme: Path = options.readme
    try:
        readme_text = readme.read_text()
    except OSError as error:
        parser.error(f"{readme} cannot be read ({error.strerror})")
    files = [p for p in sorted(folder.glob("*.csv")) if not p.stem.endswith(OTHERS)]
    devices = {path: rows for path in files if (rows := current_rows(path))}
    if not devices:
        print(f"no results of present cases in {folder}")
        return 1
    readme_text = replaced(readme_text, "\n\n".join(map(summary, devices.values())), str(readme))
    tables = "\n".join(map(device_text, devices.values()))
    predictions = predicted.read(folder / predicted.TABLE.name)[1]
    if predictions:
        found = standing.standings(predictions, native_peers.read(folder / native_peers.TABLE.name))
        counts = standing.counts(found)
        readme_text = replaced(readme_text, counts, str(readme), begin=PEERS_BEGIN, end=PEERS_END)
        tables += f"\n{standing.section(found)}"
    (folder / "README.md").write_text(f"# Results\n\nWritten by `python -m bench report`.\n\n{tables}")
    readme.write_text(readme_text)
    return 0


def current_rows(path: Path) -> list[Row]:
    """The rows of a file whose case still exists, in the order of the operators' cases."""
    rows = results.read(path)
    order = {
        (operator, case.name): number
        for operator in OPERATORS
        for number, case in enumerate(importlib.import_module(f"bench.{operator}").CASES)
    }
    known = [row for row in rows if (row.operator, row.case) in order]
    return sorted(known, key=lambda row: (OPERATORS.index(row.operator), order[row.operator, row.case]))


def operators_of(rows: list[Row]) -> list[str]:
    """The operators that have rows."""
    return [operator for operator in OPERATORS if any(row.operator == operator for row in rows)]


def summary(rows: list[Row]) -> str:
    """For each operator, each peer's time over cudml's, and in how many cases cudml is faster."""
    lines = [
        f"on {rows[0].device} | cases | time over cudml's, geometric mean (cases in which cudml is faster)"
    ]
    lines += ["---|---:|---"]
    for operator in operators_of(rows):
        chosen = [row for row in rows if row.operator == operator and row.cache == reported_cache(rows)]
        own = {row.case: row.median_us for row in chosen if row.implementation == "cudml"}
        ratios: dict[str, list[float]] = {}
        for row in chosen:
            if row.case in own and row.implementation not in ("cudml", *LIMITS):
                ratios.setdefault(row.implementation, []).append(row.median_us / own[row.case])
        told = [
            f"{peer} {times(geometric_mean(found))} ({sum(ratio > 1 for ratio in found)}"
            + (f" of {len(found)})" if len(found) < len(own) else ")")
            for peer, found in ratios.items()
        ]
        lines.append(f"`{operator}` | {len(own)} | {'; '.join(told)}")
    return "\n".join(f"| {line} |" for line in lines)


def device_text(rows: list[Row]) -> str:
    """The device and versions of the runs, and a table for each operator."""
    first = rows[0]
    parts = {"driver": first.driver, "CUDA": first.cuda, "CuPy": first.cupy, "torch": first.torch}
    told = [f"{name} {version}" for name, version in parts.items() if version]
    commits = sorted({row.commit for row in rows if row.commit})
    told += [f"commit {', '.join(commits)}"] if commits else []
    cache = reported_cache(rows)
    how = "medians by CUDA events with a cold L2 cache" if cache == "cold" else "medians by the host's clock"
    lines = [f"**{first.device}** ({'; '.join([*told, how])}).", ""]
    for operator in operators_of(rows):
        chosen = [row for row in rows if row.operator == operator and row.cache == cache]
        lines += [table(chosen), ""]
        contracts = {row.implementation: row.contract for row in chosen if row.contract}
        if contracts:
            lines += ["; ".join(f"{name}: {contract}" for name, contract in contracts.items()) + ".", ""]
    return "\n".join(lines)


def reported_cache(rows: list[Row]) -> str:
    """The cold row if it was measured, else the warm one."""
    return "cold" if any(row.cache == "cold" for row in rows) else "warm"


def table(rows: list[Row]) -> str:
    """One line per case: cudml's time and bandwidth, every peer's time, and its ratio to cudml's."""
    peers = list(dict.fromkeys(row.implementation for row in rows if row.implementation != "cudml"))
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, {})[row.implementation] = row
    header = [f"`{rows[0].operator}`", "cudml", "rate", *peers]
    lines = [" | ".join(header), " | ".join(["---", *["---:"] * (len(header) - 1)])]
    measured = [(case, found) for case, found in by_case.items() if "cudml" in found]
    for case, found in measured:
        own = found["cudml"]
        cells = [case, microseconds(own.median_us), own.rate]
        for peer in peers:
            other = found.get(peer)
            cells.append(
                f"{microseconds(other.median_us)} ({times(other.median_us / own.median_us)})" if other else ""
            )
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def times(ratio: float) -> str:
    """A ratio to two digits."""
    return f"{ratio:,.0f}x" if ratio >= 99.5 else f"{ratio:.2g}x"


def microseconds(time_us: float) -> str:
    """Format a number with about three digits."""
    return f"{time_us:,.0f} us" if time_us >= 100 else f"{time_us:.1f} us"


def replaced(text: str, between: str, name: str, begin: str = BEGIN, end: str = END) -> str:
    """Replace the text between the markers."""
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{name} has no lines {begin} and {end}")
    return f"{before}{begin}\n{between}\n{end}{after}"
