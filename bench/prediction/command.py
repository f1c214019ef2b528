"""`python -m bench predict`: the time of every case on an H200, from the machine code; needs no GPU.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` group). Writes bench/results/predicted-h200.csv; `--check` only
compares with it, `--micro` predicts the held-out rows of bench/micro, `--peers` other libraries' kernels into
bench/results/predicted-peers.csv, `--published` puts published times of such kernels on other GPUs beside the
model's, in bench/results/published.csv. `--trace CASE` prints where a warp of a case's kernels spends its
clocks, by instruction and by line of the source. bench/PREDICTION.md explains the model.
"""

import argparse
import importlib
import sys
from dataclasses import replace
from typing import Any

from bench.prediction import micro, native_peers, peers, published, trace
from bench.prediction.cases import predicted
from bench.prediction.rows import CONSTANTS, measured, reason
from bench.prediction.table import TABLE, Row, differences, read, table_text
from bench.runner import OPERATORS
from proof.sass.compiler import nvrtc_version, unavailable
from proof.sass.rates import MEMORY_RATE


def row_of(operator: str, case: Any) -> Row:
    """Predict a case."""
    found, kernels = predicted(operator, case)
    num_bytes = importlib.import_module(f"bench.{operator}").bytes_moved(case)

    def share(*names: str) -> float:
        return round(sum(found.limits[name] for name in names) / found.clocks, 3)

    return Row(
        operator,
        case.name,
        round(found.time_us, 2),
        round(num_bytes / MEMORY_RATE * 1e6, 2),
        found.bound,
        found.launches,
        round(32 * found.counts["instructions"] / num_bytes, 2),
        share("issue"),
        share("alu"),
        share("fma", "heavy", "half"),
        share("shared"),
        share("tensor"),
        *(round(found.counts[name]) for name in ("l1_sectors", "l2_sectors", "memory_sectors", "barriers")),
        found.warps,
        round(found.counts["waves"], 2),
        # Each step of a plan may be the same kernels again.
        " ".join(name.replace(", ", ",") for name in dict.fromkeys(kernels)),
    )


def cases(operator: str | None = None, name: str = "") -> list[tuple[str, Any]]:
    """Operators with their cases whose names contain a text."""
    return [
        (module, case)
        for module in ([operator] if operator else OPERATORS)
        for case in importlib.import_module(f"bench.{module}").CASES
        if name in case.name
    ]


def main(arguments: list[str]) -> int:
    """Predict and write, or compare; return 1 if something differs or nothing can be predicted."""
    parser = argparse.ArgumentParser(prog="python -m bench predict", description=__doc__)
    parser.add_argument("operator", nargs="?", choices=OPERATORS, help="default: all")
    parser.add_argument("--case", default="", metavar="NAME", help="cases whose name contains it")
    parser.add_argument("--check", action="store_true", help="write nothing, print the differences")
    parser.add_argument("--micro", action="store_true", help="predict the held-out rows of bench/micro")
    parser.add_argument("--peers", action="store_true", help="predict CUB's and RAFT's top-k, and PyTorch")
    parser.add_argument("--peer", default="", metavar="NAME", help="of --peers (default: all)")
    parser.add_argument("--published", action="store_true", help="compare with published times")
    parser.add_argument("--trace", metavar="CASE", help="print where a warp spends its clocks")
    parser.add_argument("--warp", type=int, default=0, metavar="N", help="of --trace (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.trace:
        return _trace(parser, options)
    if options.published and (options.micro or options.peers or options.operator or options.case):
        parser.error("--published has cases of its own: no operator, --case, --micro or --peers with it")
    if options.peers and options.micro:
        parser.error("--peers is about cases: no --micro with it")
    if options.peer not in ("", *native_peers.names()):
        parser.error(f"there is no peer {options.peer!r}, but {', '.join(native_peers.names())}")
    if options.peer and not options.peers:
        parser.error("--peer chooses one of --peers")
    if options.micro and (options.operator or options.check):
        parser.error("--micro is about rows of bench/micro: no operator and no --check with it")
    chosen = [] if options.micro else cases(options.operator, options.case)
    if not chosen and not (options.micro and micro.row_names(options.case)):
        parser.error(f"no {'row' if options.micro else 'case'} has {options.case!r} in its name")
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    if options.micro:
        return _micro(options.case)
    if options.published:
        return published.main(options.check)
    if options.peers:
        return native_peers.main(options.operator, options.case, options.check, options.peer)
    version, recorded = read()
    peer = {
        (module, name): time_us
        for module in ([] if options.check else peers.OPERATORS)
        if (names := [case.name for operator, case in chosen if operator == module])
        for name, time_us in peers.predicted(module, names).items()
    }
    rows: list[Row] = []
    for operator, case in chosen:
        rows.append(replace(row_of(operator, case), cupy_us=peer.get((operator, case.name), 0.0)))
        print(rows[-1], flush=True)
        if not options.check:  # at once, so that nothing is lost when it is interrupted
            merged = {row.key: row for row in recorded} | {row.key: row for row in rows}
            order = [(operator, case.name) for operator, case in cases()]
            TABLE.write_text(table_text(nvrtc_version(), [merged[key] for key in order if key in merged]))
    if not options.check:
        return 0
    if version != nvrtc_version():
        print(f"{TABLE.name} is by NVRTC {version}, this is {nvrtc_version()}", file=sys.stderr)
    found = differences(recorded, rows)
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


def _trace(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Print the traces of the only case that has a name, or whose name contains it."""
    if options.micro or options.peers or options.published or options.check or options.case:
        parser.error("--trace is about one case: no --case, --check, --micro, --peers or --published with it")
    found = cases(options.operator, options.trace)
    found = [pair for pair in found if pair[1].name == options.trace] or found
    if len(found) != 1:
        names = "; ".join(f"{operator}: {case.name}" for operator, case in found)
        parser.error(f"one case has to have {options.trace!r} in its name, {len(found)} have: {names}")
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    for one in trace.traces(*found[0], warp=options.warp):
        print(*one.text(), sep="\n")
    return 0


def _micro(names: str) -> int:
    """Every row of the micro-figures whose name has a text; those that are not predicted say why."""
    for name in measured():
        if names in name and (why := CONSTANTS.get(name) or reason(name)):
            print(f"{name:<72}{'gives' if name in CONSTANTS else 'not modelled:'} {why}")
    rows = []
    for row in micro.compared(names):
        rows.append(row)
        trivial = "" if row.trivial_error is None else f"  bytes over bandwidth {row.trivial_error:+.1%}"
        print(
            f"{row.name:<72}{row.measured:>8.4g} {row.unit:<7}"
            f"{row.predicted:>8.4g} {row.error:>+7.1%}{trivial}",
            flush=True,
        )
    failures = micro.failures(rows)
    print("\n".join([*micro.summary(rows), *failures]))
    return 1 if failures else 0
