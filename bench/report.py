"""`python -m bench report`: the tables of README.md, results/README.md and PREDICTION.md, from the CSV files.

Measured times lead. Predicted ones stand for the cases that have not been measured on the GPU of predictions.
"""

import argparse
import importlib
from pathlib import Path

from bench import compare, results, standing
from bench.prediction import native_peers
from bench.prediction import standing as predicted_standing
from bench.prediction import table as predicted
from bench.results import Row
from bench.runner import OPERATORS

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PEERS_BEGIN, PEERS_END = "<!-- peers:begin -->", "<!-- peers:end -->"
COMPARED_BEGIN, COMPARED_END = "<!-- compared:begin -->", "<!-- compared:end -->"

#: Ends of the names of files that are no measurements of operators.
OTHERS = (
    "published",
    "-micro",
    "machine_code",
    "predicted-h200",
    results.MEASURED_CODE,
    "predicted-peers",
    "_scan",
    "_drawn",
    "_shapes",
    "top_k_traffic",
)

#: What computes peers on a GPU, if their names in the rows do not say so.
ON_A_GPU = {("gru", "torch"): "cuDNN", ("gru", "torch graph"): "cuDNN, replayed as a CUDA graph"}


def main(arguments: list[str]) -> int:
    """Write the tables; return 1 if there is nothing to report."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__)
    parser.add_argument("--results", type=results.folder, default=results.RESULTS, metavar="FOLDER")
    for name, what in (("readme", "README.md"), ("prediction", "bench/PREDICTION.md")):
        parser.add_argument(
            f"--{name}",
            type=Path,
            default=what,
            metavar="FILE",
            help="file with the marker lines (default: %(default)s)",
        )
    options = parser.parse_args(arguments)
    folder: Path = options.results
    readme: Path = options.readme
    try:
        readme_text = readme.read_text()
    except OSError as error:
        parser.error(f"{readme} cannot be read ({error.strerror})")
    devices = measured_devices(folder)
    if not devices:
        print(f"no results of present cases in {folder}")
        return 1
    readme_text = replaced(readme_text, "\n\n".join(map(summary, devices)), str(readme))
    predictions = predicted.read(folder / predicted.TABLE.name)[1]
    found: list[predicted_standing.Standing] = []
    if predictions:
        found = open_standings(devices, predictions, native_peers.read(folder / native_peers.TABLE.name))
        counts = predicted_standing.counts(found)
        readme_text = replaced(readme_text, counts, str(readme), begin=PEERS_BEGIN, end=PEERS_END)
        prediction: Path = options.prediction
        at_measurement = compare.of_measured_code(
            predictions, sorted(folder.glob(f"*{results.MEASURED_CODE}.csv"))
        )
        compared = compare.section([row for rows in devices for row in rows], at_measurement)
        text = replaced(prediction.read_text(), compared, str(prediction), COMPARED_BEGIN, COMPARED_END)
        prediction.write_text(text)
    (folder / "README.md").write_text(results_text(devices, found))
    readme.write_text(readme_text)
    return 0


def measured_devices(folder: Path) -> list[list[Row]]:
    """The rows of each device that was measured, GPUs first."""
    files = [path for path in sorted(folder.glob("*.csv")) if not path.stem.endswith(OTHERS)]
    devices = [rows for path in files if (rows := current_rows(path))]
    return sorted(devices, key=lambda rows: standing.reported_cache(rows) != "cold")


def open_standings(
    devices: list[list[Row]], predictions: list[predicted.Row], peers: list[native_peers.Row]
) -> list[predicted_standing.Standing]:
    """Where cudml stands by predicted times, in the cases that have not been measured."""
    known = compare.measured_cases(row for rows in devices for row in rows)
    rest = [row for row in predictions if row.key not in known]
    return predicted_standing.standings(rest, peers)


def results_text(devices: list[list[Row]], found: list[predicted_standing.Standing]) -> str:
    """The text of results/README.md; predictions follow the measured times of GPUs."""
    parts = ["# Results\n\nWritten by `python -m bench report`.\n"]
    on_cpus = [rows for rows in devices if standing.reported_cache(rows) != "cold"]
    parts += [device_text(rows) for rows in devices if rows not in on_cpus]
    parts += [predicted_standing.section(found)] if found else []
    parts += map(device_text, on_cpus)
    return "\n".join(parts)


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
    """For each operator, each peer's time over cudml's, and how often cudml is ahead, tied and behind."""
    heading = "time over cudml's, geometric mean (cases in which cudml is ahead/tied/behind)"
    lines = [f"on {rows[0].device} | cases | {heading}", "---|---:|---"]
    cache = standing.reported_cache(rows)
    found = standing.standings(rows)
    for operator in operators_of(rows):
        cases = [
            row.case
            for row in rows
            if (row.operator, row.implementation, row.cache) == (operator, "cudml", cache)
        ]
        told = standing.of_peers(one for one in found if one.own.operator == operator)
        lines.append(f"`{operator}` | {len(cases)} | {told}")
    return "\n".join(f"| {line} |" for line in lines)


def device_text(rows: list[Row]) -> str:
    """The device and versions of the runs, a table for each operator, and where cudml is not ahead."""
    parts: dict[str, list[str]] = {
        "driver": [row.driver for row in rows],
        "CUDA runtime": [row.cuda for row in rows],
        "NVRTC": [row.nvrtc for row in rows],
        "CuPy": [row.cupy for row in rows],
        "torch": [row.torch for row in rows],
        "commit": [row.commit for row in rows],
    }
    told = [f"{name} {', '.join(known)}" for name, all_ in parts.items() if (known := sorted({*all_} - {""}))]
    cache = standing.reported_cache(rows)
    how = "medians by CUDA events with a cold L2 cache" if cache == "cold" else "medians by the host's clock"
    device = rows[0].device
    lines = [f"**{device}** ({'; '.join([*told, how])}).", ""]
    for operator in operators_of(rows):
        chosen = [row for row in rows if row.operator == operator and row.cache == cache]
        lines += [table(chosen), ""]
        contracts = {row.implementation: row.contract for row in chosen if row.contract}
        if cache == "cold":
            used = {row.implementation for row in chosen}
            contracts |= {
                peer: what for (of, peer), what in ON_A_GPU.items() if of == operator and peer in used
            }
        if contracts:
            lines += ["; ".join(f"{name}: {contract}" for name, contract in contracts.items()) + ".", ""]
        for remark in standing.remarks(chosen):
            lines += [remark, ""]
    named = standing.not_ahead(standing.standings(rows))
    if named:
        lines += [
            f"**{device}**, measured: the cases in which cudml is not ahead of a peer. Times within "
            f"{100 * standing.NEAR:.2g} % or {standing.NEAR_US} us are a tie. Below each table are the "
            "contracts of peers.",
            "",
            "| | case | cudml | peer |",
            "|---|---|---:|---:|",
            *named,
            "",
        ]
    return "\n".join(lines)


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
        cells = [case, standing.microseconds(own.median_us), own.rate]
        for peer in peers:
            other = found.get(peer)
            cells.append(_beside(other, own) if other else "")
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def _beside(other: Row, own: Row) -> str:
    """The cell of a peer."""
    if standing.is_wrong(other):
        return "wrong"
    ratio = standing.times(other.median_us / own.median_us)
    return f"{standing.microseconds(other.median_us)} ({ratio})" + ", differs" * standing.differs(other)


def replaced(text: str, between: str, name: str, begin: str = BEGIN, end: str = END) -> str:
    """Replace the text between the markers."""
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{name} has no lines {begin} and {end}")
    return f"{before}{begin}\n{between}\n{end}{after}"
