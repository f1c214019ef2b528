"""Fail if tests that CI should run were skipped: a broken extra would go unnoticed otherwise.

    python .ci/ran.py RESULTS.xml [--some MODULE...] [--all MODULE...]

RESULTS.xml is pytest's --junitxml. Of the modules after --some at least one test must have run, of those
after --all every test.
"""

import argparse
import sys
from collections import Counter
from xml.etree import ElementTree


def main() -> None:
    """Print how many tests of each module ran, and why the others were skipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results")
    parser.add_argument("--some", nargs="+", default=[], metavar="MODULE")
    parser.add_argument("--all", nargs="+", default=[], metavar="MODULE")
    options = parser.parse_args()
    cases = list(ElementTree.parse(options.results).iter("testcase"))
    wrong = []
    for module in (*options.some, *options.all):
        own = [case for case in cases if case.get("classname") == module]
        skipped = [case.find("skipped") for case in own if case.find("skipped") is not None]
        num_run = len(own) - len(skipped)
        print(f"{module}: {num_run} tests ran, {len(skipped)} were skipped")
        for reason, count in Counter(skip.get("message") for skip in skipped).items():
            print(f"  {count} x {reason}")
        if num_run == 0 or (skipped and module in options.all):
            wrong.append(module)
    if wrong:
        sys.exit(f"tests that have to run were skipped: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
