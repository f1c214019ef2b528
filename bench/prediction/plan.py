"""`python -m bench plan OPERATOR`: the path chosen for each point of a scan, and the times of all that can.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` extra), and no GPU. Prints the points with their times, then those
of which another path is predicted to take 10 % less, and for top-k jumps of more than 1.5 times between
neighbouring sizes. Writes bench/results/OPERATOR_scan.csv, unless the options choose other points.
"""

import argparse
import sys
from typing import Any

from bench.prediction.scan import OPERATORS, Point, Scan, dear, scan_of
from bench.prediction.scans import top_k
from tests.machine_code.compiler import nvrtc_version, unavailable


def main(arguments: list[str]) -> int:
    """Print the scan; return 1 if it finds a jump or a dear choice, or if nothing can be predicted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    scan = scan_of(options.operator)
    every = scan.points()
    points = [point for point in _points(scan, options) if options.point in str(point)]
    if not points:
        parser.error(f"no point has {options.point!r} in its text")
    rows = []
    for point in points:
        rows.append(scan.row_of(point))
        print(rows[-1], flush=True)
    if points == every:
        scan.table.write_text(scan.table_text(nvrtc_version(), rows))
    found = [*scan.findings(rows), *dear(rows)]
    print("\n".join([f"{len(rows)} points, {len(found)} findings", *found]))
    return 1 if found else 0


def _points(scan: Scan[Any], options: argparse.Namespace) -> list[Point]:
    """Those of the operator's table, or of top-k's options."""
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
        if name == "top_k":
            _add_lines(own)
    return parser


def _add_lines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layout", choices=["rows", "columns"], default="rows", help="default: %(default)s")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="numbers of rows of another scan")
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument("--k", type=int, nargs="+", default=[8, 100], metavar="K", help="default: 8 100")
    parser.add_argument(
        "--length", type=int, nargs="+", default=[], metavar="L", help="lengths along which k varies"
    )
    parser.add_argument("--max-length", type=int, default=1 << 18, metavar="L", help="default: %(default)s")
