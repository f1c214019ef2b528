"""Fail if tests that CI should run were skipped: else a broken extra or group would go unnoticed.

    python .ci/ran.py RESULTS.xml [--some MODULE...] [--all MODULE...] [--least NUMBER] [--seconds NUMBER]

RESULTS.xml is pytest's --junitxml. At least one test of each module after --some must have run, and every
test of each module after --all; all modules together must have run --least tests, in at most --seconds.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree


def main() -> None:
    """Print how many tests of each module ran, and why the others were skipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results")
    parser.add_argument("--some", nargs="+", default=[], metavar="MODULE")
    parser.add_argument("--all", nargs="+", default=[], metavar="MODULE")
    parser.add_argument("--least", type=int, default=0, metavar="NUMBER")
    parser.add_argument("--seconds", type=float, metavar="NUMBER")
    options = parser.parse_args()
    root = ElementTree.parse(options.results).getroot()
    cases = list(root.iter("testcase"))
    wrong = []
    for module in (*options.some, *options.all):
        num_run, num_skipped = _told(module, [case for case in cases if case.get("classname") == module])
        if num_run == 0 or (num_skipped and module in options.all):
            wrong.append(f"tests of {module} that have to run were skipped")
    if options.least:
        num_run, _ = _told("together", cases)
        if num_run < options.least:
            wrong.append(f"{num_run} tests ran, {options.least} have to")
    if options.seconds is not None:
        seconds = sum(float(suite.get("time", "nan")) for suite in root.iter("testsuite"))
        print(f"in {seconds:.0f} s")
        if not seconds <= options.seconds:
            wrong.append(f"{seconds:.0f} s, {options.seconds:.0f} is the limit")
    if wrong:
        sys.exit("\n".join(wrong))


def _told(name: str, cases: Sequence[ElementTree.Element]) -> tuple[int, int]:
    """How many tests ran and how many were skipped, printed with the reasons."""
    reasons = [skip.get("message") for case in cases if (skip := case.find("skipped")) is not None]
    num_run = len(cases) - len(reasons)
    print(f"{name}: {num_run} tests ran, {len(reasons)} were skipped")
    for reason, count in Counter(reasons).items():
        print(f"  {count} x {reason}")
    return num_run, len(reasons)


if __name__ == "__main__":
    main()
