"""`python -m bench day 1`, `2`, `3`: prove and time everything on a GPU that is there for ten minutes.

Day 1 runs the tests on the GPU, and each kernel instance under memcheck. Day 2 runs small instances under
NVIDIA's other checkers. Day 3 measures the GPU's own figures, each operator beside its peers, and each path
of the planners' scans. A step has its share of the time, and what it did is in the folder at once. The same
command goes on where the last one ended. Needs CuPy and pytest, and no network.
"""

import argparse
import hashlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from bench import results
from bench.day.engine import DONE, ROOT, STOPPED, Day, OtherOriginError
from bench.day.steps import DAYS
from bench.targets import get_target

#: Sources whose results belong together.
_SOURCES = ("cudml", "kernels", "proof", "bench", "tests")
_SUFFIXES = (".py", ".cu", ".cuh", ".h", ".c", ".cpp")

#: Exit codes beside 0: a step found something wrong or could not run; all is well but more is to be done.
_PROBLEM, _UNFINISHED = 1, 3


def main(arguments: list[str]) -> int:
    """Run a day; 0 if all its steps are done, 1 if one failed or was skipped, 3 if there is more to do."""
    options = _parser().parse_args(arguments)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # commands in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    steps = DAYS[options.day]
    if unknown := [name for name in options.again if name not in {step.name for step in steps}]:
        raise SystemExit(f"no step {', '.join(unknown)}; there are {', '.join(step.name for step in steps)}")
    if options.list:
        for step in steps:
            print(f"{step.name:<28}{step.seconds:>5} s  python -m {' '.join(step.command)}")
        return 0
    source = source_digest()
    runner: tuple[str, ...] = ()
    if options.dry_run:
        device, commit = "the stand-in", ""
        runner = ("bench.day.over_stand_in",)
        steps = tuple(
            replace(step, command=(*step.command, *step.small)) for step in steps if step.small is not None
        )
    else:
        target = get_target("cuda", options.commit)
        device, commit = target.name, target.environment["commit"]
    origin = {"device": device, "source": source, "commit": commit or f"source-{source}"}
    try:
        day = Day(options.day, options.results.resolve(), origin, runner)
    except OtherOriginError as error:
        print(f"{error}: choose another folder", file=sys.stderr)
        return _PROBLEM
    day.run(steps, 60 * options.minutes, options.again, lambda text: print(text, flush=True))
    states = [day.ended[step.name].state for step in steps]
    print(f"\n{device}, day {options.day}: {states.count(DONE)} of {len(steps)} steps done")
    for step in steps:
        ended = day.ended[step.name]
        last = ended.told.splitlines()[-1] if ended.told else ""
        print(f"{step.name:<28}{ended.state:<9}{ended.seconds:>5.0f} s  {last}")
    if STOPPED in states:
        print("the same command goes on")
        return _UNFINISHED
    return 0 if set(states) == {DONE} else _PROBLEM


def source_digest() -> str:
    """A digest of the sources that results belong to, because a copied tree may have no git."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for parent, _, names in sorted(os.walk(ROOT / folder)):
            for name in sorted(names):
                if name.endswith(_SUFFIXES):
                    path = Path(parent, name)
                    digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:10]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("day", type=int, choices=DAYS)
    parser.add_argument(
        "--results",
        type=results.folder,
        required=True,
        metavar="FOLDER",
        help="for what is kept: one for each GPU and commit",
    )
    parser.add_argument("--minutes", type=float, default=9.5, help="in all (default %(default)s)")
    parser.add_argument(
        "--again", action="append", default=[], metavar="STEP", help="run a step that ended from its start"
    )
    parser.add_argument("--list", action="store_true", help="print the steps and run nothing")
    parser.add_argument("--commit", help="recorded if git is not available")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run a small part of the steps over the stand-in for CUDA, without checkers; no time is meant",
    )
    return parser
