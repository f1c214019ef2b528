"""`python -m bench plan top_k`: the path chosen for each length and k, and predicted times of all that can.

Needs CuPy, NVRTC and nvdisasm (the `nvrtc` extra), and no GPU. Prints the points with their times, then jumps
of more than 1.5 times between neighbouring sizes, and points of which another path is predicted to take 10 %
less. Without options it does so for the committed grid, and writes bench/results/top_k_scan.csv.
"""

import argparse
import sys

from bench.prediction import scan
from tests.machine_code.compiler import nvrtc_version, unavailable


def main(arguments: list[str]) -> int:
    """Print the scan; return 1 if it finds a jump or a dear choice, or if nothing can be predicted."""
    parser = argparse.ArgumentParser(
        prog="python -m bench plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operator", choices=["top_k"])
    parser.add_argument("--layout", choices=["rows", "columns"], default="rows", help="default: %(default)s")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="numbers of rows")
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument("--k", type=int, nargs="+", default=[8, 100], metavar="K", help="default: 8 100")
    parser.add_argument(
        "--length", type=int, nargs="+", default=[], metavar="L", help="lengths along which k varies"
    )
    parser.add_argument("--max-length", type=int, default=1 << 18, metavar="L", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    grid = scan.GRID
    if options.rows:
        wanted = (tuple(given) for given in (options.rows, options.k, options.length))
        grid = (scan.Lines(options.layout, options.dtype, *wanted, options.max_length),)
    rows = []
    for point in scan.points(grid):
        rows.append(scan.row_of(point))
        print(rows[-1], flush=True)
    if not options.rows:
        scan.TABLE.write_text(scan.table_text(nvrtc_version(), rows))
    found = [*scan.jumps(rows), *scan.dear(rows)]
    print("\n".join([f"{len(rows)} points, {len(found)} findings", *found]))
    return 1 if found else 0
