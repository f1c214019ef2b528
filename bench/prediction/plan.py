"""`python -m bench plan OPERATOR`: the path chosen for each point of a scan, and the times of all that can.

Prints the points with their times, then those for which another path takes 10 % less, and for top-k jumps of
more than 1.5 times between neighbouring sizes. Times are predicted for an H200, which needs CuPy, NVRTC and
nvdisasm (the `nvrtc` group) and no GPU. `--random N --seed S` draws problems from the operator's
whole domain instead, and ends with how far the choices are from the best; for top-k by corrected times, which
are the predicted ones multiplied by the measured ratio of each path. If the options choose no points,
bench/results/OPERATOR_scan.csv gets them. With `--measure` they are measured on this GPU, whose table is
GPU-OPERATOR_scan.csv, and all paths have to give the same result.

`--random N --seed S --write` tunes the numbers of the operator's choice by the drawn problems, the scan's
points and those measured on an H200, and writes the file of cudml/operators/choices/, unless others take more
time: problems of seed S + 1, an eighth as many and at least 60, and every eighth measured point. For top-k,
slices and reversals it refines a decision tree, or grows one with `--anew` (scikit-learn, of the `bench`
group). From ten times N drawn problems, the N whose path is the least certain are then predicted, and added
to the known ones in bench/results/OPERATOR_drawn.csv.
"""

import argparse
import math
import sys
from typing import Any

from bench import results
from bench.checks import WrongResultError
from bench.paths import PathTimer, measured_rows, origin_of
from bench.prediction.draw import drawn, regret_line
from bench.prediction.grow import ByTree
from bench.prediction.scan import OPERATORS, Point, Scan, dear, predicted_by, scan_of
from bench.prediction.scans import top_k
from bench.prediction.tune import Tuning, rows_of
from bench.targets import get_target
from bench.timing import timer_of
from cudml.devices import get_device
from proof.sass.compiler import nvrtc_version, unavailable

#: The fewest problems that tell whether tuned numbers choose better.
_LEAST_OTHERS = 60

#: Problems that are drawn for each one that is added to known ones.
_CANDIDATES = 10

#: One in this number of points does not tune, but tells whether tuned numbers choose better.
_HELD_OUT = 8


def main(arguments: list[str]) -> int:
    """Print the scan.

    Returns 1 if a prediction finds a jump or a dear choice, or nothing can be predicted; after a measurement,
    if the paths of a point do not agree.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    scan = scan_of(options.operator)
    points = [point for point in _points(scan, options) if options.point in str(point)]
    if not points:
        parser.error(f"no point has {options.point!r} in its text")
    if options.measure and options.random:
        parser.error("--random draws problems for predictions, --measure takes the points of a scan")
    if options.write and not options.random:
        parser.error("--write tunes by problems of --random")
    if options.anew and not (options.write and isinstance(scan.choosing, ByTree)):
        parser.error("--anew grows a tree for --write")
    if options.measure:
        return _measure(scan, points, options)
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    if options.write:
        return _tune(scan, points, options)
    rows = []
    for point in points:
        rows.append(scan.row_of(point))
        print(rows[-1], flush=True)
    if points == scan.points():
        scan.table.write_text(scan.table_text(predicted_by(nvrtc_version()), rows))
    if options.random:
        if scan.corrects:
            print(f"by predicted times, {regret_line(rows, options.seed)}")
        print(regret_line(scan.corrected(rows), options.seed))
        return 0
    return 1 if _print_findings(scan, rows) else 0


def _tune(scan: Scan[Any], points: list[Any], options: argparse.Namespace) -> int:
    """Make a better choice from known times.

    Returns 1, and keeps the old one, if other problems take more time by the new one, or if they take as much
    and the known ones gain nothing.
    """
    choosing = scan.choosing
    other_points = drawn(scan, max(_LEAST_OTHERS, len(points) // _HELD_OUT), options.seed + 1)
    if isinstance(choosing, ByTree):
        rows = _known(scan, choosing, points, options.seed)
    else:
        rows = rows_of(scan, points)
    rows, other_rows = scan.corrected(rows), scan.corrected(rows_of(scan, other_points))
    # The scan's points are on both sides of sizes at which paths change. There, at such sizes of earlier
    # choices, and for problems that are served, a choice must not be dear either, by corrected times or by
    # predicted ones.
    origin, known = scan.measured()
    kept_back = known[::_HELD_OUT]
    measured = [row for row in known if row not in kept_back]
    # Predicted times of measured points would contradict measured ones, or tell of those kept back.
    in_known = {row.point for row in known}
    rows = [row for row in rows if row.point not in in_known]
    of_scan = {*scan.points(), *scan.served(), *scan.on_lines(row.point for row in rows)}
    predicted = rows_of(scan, sorted(of_scan - in_known, key=str))
    rows_of_scan = measured + scan.corrected(predicted) + (predicted if scan.corrects else [])
    tuned, others = Tuning(rows + rows_of_scan, choosing), Tuning(other_rows + kept_back, choosing)
    before = after = choosing.numbers
    changes = choosing.anew if options.anew else choosing.changes
    for changed, change in changes(rows + rows_of_scan, scan.draw):
        print(change, flush=True)
        after = changed
    regret = ""
    for when, numbers in (("before", before), ("after", after)):
        print(f"{when}: {regret_line(tuned.chosen(numbers), options.seed)}")
        regret = regret_line(others.chosen(numbers)[: len(other_rows)], options.seed + 1)
        print(f"others, {when}: {regret}")
    costs_before, costs_after = (
        [math.fsum(of.costs(numbers)) for of in (others, tuned)] for numbers in (before, after)
    )
    if costs_after >= costs_before:
        print("nothing is written")
        return 1
    kept = f"Measured: {', '.join(choosing.measured)}. " if choosing.measured else ""
    beside = f"{origin}, {len(measured)} points; else: " if measured else ""
    source = f"{kept}{beside}{predicted_by(nvrtc_version())}. {regret}"
    choosing.write(scan.operator, source, after)
    return 0


def _known(scan: Scan[Any], by_tree: ByTree[Any], points: list[Any], seed: int) -> list[Any]:
    """The rows of the table of drawn problems, with as many more as there are points, and those served."""
    known = scan.read(scan.drawn_table)[1]
    if known:
        candidates = drawn(scan, _CANDIDATES * len(points), seed)
        points = by_tree.least_certain(scan.corrected(known), candidates, len(points))
    in_table = {row.point for row in known}
    points = [*points, *(point for point in scan.served() if point not in in_table)]
    unique = {row.point: row for row in known + rows_of(scan, points)}
    scan.drawn_table.write_text(scan.table_text(predicted_by(nvrtc_version()), unique.values()))
    return [*unique.values()]


def _measure(scan: Scan[Any], points: list[Any], options: argparse.Namespace) -> int:
    target = get_target("cuda", options.commit)
    paths = PathTimer(target, timer_of(target), get_device("cuda"), options.seconds)
    table = scan.measured_table(target.slug, options.results)
    try:
        for row in measured_rows(scan, points, paths, table, origin_of(target), options.resume):
            print(row, flush=True)
            target.xp.get_default_memory_pool().free_all_blocks()
    except WrongResultError as error:
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        return 1
    origin, rows = scan.read(table)
    print(origin)
    _print_findings(scan, [row for row in rows if row.point in set(points)])
    return 0


def _print_findings(scan: Scan[Any], rows: list[Any]) -> list[str]:
    found = [*scan.findings(rows), *dear(rows)]
    print("\n".join([f"{len(rows)} points, {len(found)} findings", *found]))
    return found


def _points(scan: Scan[Any], options: argparse.Namespace) -> list[Point]:
    """The points of the operator's table, of top-k's options, or drawn ones."""
    if options.random:
        return drawn(scan, options.random, options.seed)
    if not getattr(options, "rows", None):
        return scan.points()
    wanted = (tuple(given) for given in (options.rows, options.k, options.length))
    return [*top_k.points([top_k.Lines(options.layout, options.dtype, *wanted, options.max_length)])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    operators = parser.add_subparsers(dest="operator", required=True)
    for name in OPERATORS:
        own = operators.add_parser(name)
        own.add_argument("--point", default="", metavar="TEXT", help="points whose text contains it")
        own.add_argument(
            "--random",
            type=_at_least_one,
            metavar="N",
            help="draw N problems of the whole domain instead",
        )
        own.add_argument("--seed", type=int, default=0, help="of the drawn ones (default %(default)s)")
        own.add_argument("--write", action="store_true", help="make a better choice by the drawn problems")
        own.add_argument("--anew", action="store_true", help="grow the tree rather than refine it")
        own.add_argument("--measure", action="store_true", help="measure on this GPU, predict nothing")
        own.add_argument(
            "--seconds", type=float, default=0.02, help="for one path of a point (default %(default)s)"
        )
        own.add_argument("--results", type=results.folder, default=results.RESULTS, metavar="FOLDER")
        own.add_argument("--commit", help="of a measurement, if git is not available")
        own.add_argument(
            "--resume", action="store_true", help="leave out points that the table has of the same origin"
        )
        if name == "top_k":
            _add_lines(own)
    return parser


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _add_lines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layout", choices=["rows", "columns"], default="rows", help="default: %(default)s")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="numbers of rows of another scan")
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument("--k", type=int, nargs="+", default=[8, 100], metavar="K", help="default: 8 100")
    parser.add_argument(
        "--length", type=int, nargs="+", default=[], metavar="L", help="lengths along which k varies"
    )
    parser.add_argument("--max-length", type=int, default=1 << 18, metavar="L", help="default: %(default)s")
