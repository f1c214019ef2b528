"""`python -m bench report`: README.md's and results/README.md's tables, and plots, from the CSV files."""

import argparse
import importlib
from pathlib import Path
from statistics import geometric_mean
from typing import Any

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
    """Write the tables, and the plots if matplotlib is installed; return 1 if there is nothing to report."""
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
    if predictions:
        draw_predictions(predictions, folder / "predicted-h200.svg")
    for path, rows in devices.items():
        for operator in operators_of(rows):
            draw(rows, operator, path.with_name(f"{path.stem}-{operator}.svg"))
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


def plotter(path: Path) -> Any:
    """matplotlib's interface for files; None, with a message, if it is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print(f"{path.name}: left out, matplotlib is not installed")
        return None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cudml"  # the same plot gives the same file
    from matplotlib import pyplot

    return pyplot


def draw_predictions(rows: list[predicted.Row], path: Path) -> None:
    """Plot predicted times relative to the limit of memory, if that is more than a microsecond."""
    pyplot = plotter(path)
    if pyplot is None:
        return
    chosen = [row for row in rows if row.bound != "launch" and row.limit_us > 1]
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.2 * len(chosen)), layout="constrained")
    axes.axvline(1, color="black", linewidth=1)
    for number, bound in enumerate(sorted({row.bound for row in chosen})):
        places = [n for n, row in enumerate(chosen) if row.bound == bound]
        times = [chosen[n].time_us / chosen[n].limit_us for n in places]
        axes.plot(times, places, "osD^vPX*"[number % 8], linestyle="", label=bound)
    axes.set_xscale("log")
    axes.set_yticks(range(len(chosen)), [f"{row.operator}: {row.case}" for row in chosen], fontsize=6)
    axes.set_ylim(len(chosen), -1)
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.set_xlabel("predicted time over that of the case's bytes at 4.575 TB/s; shapes say what bounds it")
    axes.set_title("An H200, predicted from machine code, not measured")
    axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw(rows: list[Row], operator: str, path: Path) -> None:
    """Plot every peer's time relative to cudml's, one row per case; skip without matplotlib or peers."""
    pyplot = plotter(path)
    if pyplot is None:
        return
    cache = reported_cache(rows)
    chosen = [row for row in rows if row.operator == operator and row.cache == cache]
    own = {row.case: row.median_us for row in chosen if row.implementation == "cudml"}
    others = [row for row in chosen if row.implementation != "cudml" and row.case in own]
    if not others:
        return
    cases = list(own)
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.28 * len(cases)), layout="constrained")
    axes.axvline(1, color="black", linewidth=1)
    for number, peer in enumerate(dict.fromkeys(row.implementation for row in others)):
        of_peer = [row for row in others if row.implementation == peer]
        axes.plot(
            [row.median_us / own[row.case] for row in of_peer],
            [cases.index(row.case) for row in of_peer],
            "osD^vPX*"[number % 8],
            label=peer,
        )
    axes.set_xscale("log")
    axes.set_yticks(range(len(cases)), [f"{case}  {microseconds(own[case])}" for case in cases])
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.set_xlabel(f"time over that of cudml.{operator} (its own time beside each case)")
    axes.set_title(f"{operator} on {rows[0].device}")
    axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
