"""`python -m bench [operator] [--quick]`, `python -m bench COMMAND`: see `COMMANDS`."""

import argparse
import importlib
import re
import sys
import time

from bench import results
from bench.results import Row
from bench.runner import OPERATORS, Options, Runner
from bench.targets import get_target
from bench.timing import timer_of

COMMANDS = {
    "report": "bench.report",
    "plots": "bench.plots",
    "micro": "bench.micro.command",
    "machine-code": "bench.machine_code",
    "predict": "bench.prediction.command",
    "plan": "bench.prediction.plan",
    "gru-shapes": "bench.gru_shapes",
    "traffic": "bench.traffic",
    "threads": "bench.threads",
    "dask": "bench.dask",
    "build-peers": "bench.native",
    "day": "bench.day.command",
    "compare": "bench.compare",
}


def main(arguments: list[str]) -> int:
    """Run a subcommand, or the benchmarks; return 1 if a result was wrong or a call failed."""
    if arguments and arguments[0] in COMMANDS:
        command: int = importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])
        return command
    options = _parser().parse_args(arguments)
    target = get_target(options.device, options.commit)
    path = options.results / f"{target.slug}.csv"
    runner = Runner(
        target,
        timer_of(target),
        Options(
            quick=options.quick,
            names=options.filter,
            peers=options.peers,
            without=frozenset(options.without),
            seconds=options.seconds,
            deadline=time.monotonic() + 60 * options.minutes,
            done=results.cases_of(path, target.environment["commit"]) if options.resume else frozenset(),
        ),
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )
    print(f"{target.name}: " + ", ".join(f"{k} {v}" for k, v in target.environment.items() if v))
    for operator in [options.operator] if options.operator else OPERATORS:
        for row in runner.run(operator):
            print(_line(row), flush=True)
            if not options.dry:  # at once, so that nothing is lost when a later case hangs
                results.merge(path, [row])
    if not runner.num_cases:
        runner.problems.append(f"no case of this device matches --filter {options.filter.pattern!r}")
    for problem in runner.problems:
        print(problem, file=sys.stderr)
    return 1 if runner.problems else 0


def _line(row: Row) -> str:
    return (
        f"{row.operator:<12.12} {row.case:<44.44} {row.implementation:<20.20} {row.cache:<5}"
        f"{row.median_us:>12.1f} us {row.rate:>14}  {row.checked}"
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression ({error})") from None


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Check and time operators on the device present and keep the rows in a CSV file. "
        f"Other commands: {', '.join(COMMANDS)}.",
    )
    parser.add_argument("operator", nargs="?", choices=OPERATORS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small cases only; always so on the CPU")
    parser.add_argument(
        "--filter", type=_pattern, default="", metavar="REGEX", help="cases whose name it matches somewhere"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if there is one")
    parser.add_argument("--peers", action="store_true", help="time the peers that are installed, too")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="leave out peers that need it, as jax, whose every shape takes a second to compile",
    )
    parser.add_argument(
        "--seconds", type=_positive, default=0.2, help="time for one measurement (default %(default)s)"
    )
    parser.add_argument(
        "--minutes",
        type=_positive,
        default=float("inf"),
        help="start no case after this long (default: no limit)",
    )
    parser.add_argument(
        "--results",
        type=results.folder,
        default=results.RESULTS,
        metavar="FOLDER",
        help="where the CSV file is",
    )
    parser.add_argument("--dry", action="store_true", help="write no file")
    parser.add_argument(
        "--resume", action="store_true", help="leave out cases that the file has of the same commit"
    )
    parser.add_argument("--commit", help="recorded in the rows if git is not available")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
