"""`python -m bench threads`: how calls by several threads of the user scale on the CPU."""

import argparse
import importlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.runner import OPERATORS
from bench.sources import Source
from bench.targets import get_target
from cudml.devices import emulator


def main(arguments: list[str]) -> int:
    """Print the calls per second of 1, 2, 4 ... threads for the first quick case of each operator."""
    parser = argparse.ArgumentParser(prog="python -m bench threads", description=__doc__)
    parser.add_argument("--most", type=int, default=2, help="largest number of threads (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time for one measurement (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (default %(default)s)")
    options = parser.parse_args(arguments)
    xp = get_target("cpu", None).xp
    counts = [1 << i for i in range(options.most.bit_length()) if 1 << i <= options.most]
    for operator in OPERATORS:
        module: Any = importlib.import_module(f"bench.{operator}")
        case = next(case for case in module.CASES if case.quick)
        call = partial(module.run, case, module.make(case, Source(xp, 0)))
        rates: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(options.rounds):  # in turn, so that other load disturbs all alike
            for count in counts:
                rates[count].append(calls_per_second(call, count, options.seconds))
        alone = max(rates[1])
        for count, found in rates.items():
            print(
                f"{operator:<20} {case.name:<50.50} {count:>3} threads "
                f"{max(found):>8.0f} calls/s {max(found) / alone:>5.2f} x",
                flush=True,
            )
    return 0


def calls_per_second(call: Callable[[], Any], num_threads: int, seconds: float) -> float:
    """The rate of all threads together; each runs its kernels by itself."""
    made = [0] * num_threads
    ready, stop = threading.Barrier(num_threads + 1), threading.Event()

    def work(number: int) -> None:
        with emulator.schedule(workers=1):
            call()
            ready.wait()
            while not stop.is_set():
                call()
                made[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    elapsed = time.perf_counter() - start
    for thread in threads:
        thread.join()
    return sum(made) / elapsed
