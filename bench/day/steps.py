"""The steps of each day as data, the most valuable first."""

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

#: What the engine puts into commands: the folder of the results, and the commit for their rows.
FOLDER, COMMIT = "{folder}", "{commit}"

#: With this argument a command leaves out what it did before; it is dropped to do all of a step again.
RESUME = "--resume"

#: Processes of tests that share the GPU, each with a context in its memory.
_NUM_PROCESSES = min(12, os.cpu_count() or 1)


#: Instances of small descriptors of one operator.
_SMALL_INSTANCES = ("slice", "--max-mib", "0.0001")


@dataclass(frozen=True)
class Step:
    """A command, and its share of the day in seconds.

    `command` is a module for `python -m` and its arguments; `checker` is put before Python. `needs` names
    modules without which it is skipped. `journal` is the file in which the command notes what it did; a step
    that failed and noted more than before is run again, because a fault on the GPU ends the process. `small`
    are arguments that make the step short enough for the stand-in, which runs the machine code without a GPU;
    None if no arguments do.
    """

    name: str
    seconds: int
    command: tuple[str, ...]
    checker: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    journal: str = ""
    small: tuple[str, ...] | None = None

    @property
    def missing(self) -> str:
        """What the step needs and this machine does not have; empty if it has everything."""
        absent = [name for name in self.needs if find_spec(name) is None]
        return ", ".join([*absent, *([] if found(self.checker) else self.checker[:1])])


def found(checker: tuple[str, ...]) -> tuple[str, ...] | None:
    """The checker with its path, looked for in PATH and in the toolkit; None if it is not there."""
    if not checker:
        return ()
    toolkit = Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")) / "bin"
    path = shutil.which(checker[0]) or shutil.which(checker[0], path=str(toolkit))
    return (path, *checker[1:]) if path else None


def _checked(tool: str, seconds: int, *options: str) -> Step:
    """Every kernel instance under one tool of NVIDIA's checker."""
    journal = f"{tool}.csv"
    return Step(
        tool,
        seconds,
        ("tests.gpu_instances", *options, "--journal", f"{FOLDER}/{journal}"),
        checker=("compute-sanitizer", "--tool", tool, "--error-exitcode", "1"),
        journal=journal,
        small=_SMALL_INSTANCES,
    )


def _measured(operator: str, seconds: int, small_case: str | None = None) -> Step:
    """An operator beside its peers except JAX, which takes a second to compile each shape.

    The check of recurrences computes in float64, which the stand-in lacks.
    """
    peers = ("--peers", "--without", "jax", "--seconds", "0.1")
    options = (*peers, "--results", FOLDER, "--commit", COMMIT, RESUME)
    small = ("--filter", f"^{small_case}") if small_case else None
    return Step(operator, seconds, ("bench", operator, "--device", "cuda", *options), small=small)


def _scanned(operator: str, seconds: int, small: tuple[str, ...] | None = None) -> Step:
    """The times of all paths. Points of slices and reversals have 128 MiB, too much for the stand-in."""
    options = ("--measure", "--results", FOLDER, "--commit", COMMIT, RESUME)
    return Step(f"{operator} paths", seconds, ("bench", "plan", operator, *options), small=small)


def _tests() -> Step:
    processes = ("-n", str(_NUM_PROCESSES), "--dist", "worksteal") if find_spec("xdist") else ()
    options = ("-o", "addopts=", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider", *processes)
    outcomes = ("-p", "bench.day.outcomes", "--outcomes", f"{FOLDER}/tests.csv")
    command = ("pytest", "-m", "gpu", *options, *outcomes)
    small = ("-n", "0", "tests/devices/cuda/test_gpu.py", "-k", "offset_into_the_workspace")
    return Step("tests", 300, command, needs=("pytest", "hypothesis"), journal="tests.csv", small=small)


#: Compiles for CuPy's cache, in which the other steps find every kernel.
_BUILD = Step("build", 60, ("tests.gpu_instances", "--build"), small=_SMALL_INSTANCES)

DAYS = {
    1: (_BUILD, _tests(), _checked("memcheck", 200)),
    2: (
        _BUILD,
        _checked("racecheck", 200, "--max-mib", "4"),
        _checked("initcheck", 150, "--max-mib", "4"),
        _checked("synccheck", 150, "--max-mib", "4"),
    ),
    3: (
        Step(
            "micro",
            100,
            ("bench", "micro", "--results", FOLDER, "--commit", COMMIT, RESUME),
            small=("launch",),
        ),
        _measured("top_k", 110, "experts 512 x 64"),
        _measured("gru", 100),
        _measured("slice", 50, "part of a vector 1024 "),
        _measured("reverse_subsequences", 40, "rows 64 x 256"),
        Step(
            "machine code",
            30,
            ("bench", "machine-code", "--architecture", "own", "--output", f"{FOLDER}/machine_code.csv"),
            small=("--only", "slice/runs"),
        ),
        _scanned("top_k", 60, ("--rows", "2", "--k", "3", "--max-length", "16")),
        _scanned("gru", 30),
        _scanned("slice", 25),
        _scanned("reverse_subsequences", 25),
    ),
}
