"""Processes of their own, for tests that fork, or start others."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]

#: Seconds that a test in a process of its own may take.
_TIME_LIMIT = 300


def run_limited(command: Sequence[str], seconds: float, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command and capture what it prints; `subprocess.TimeoutExpired` if it takes longer.

    On a timeout, the processes that it started end with it. `subprocess.run` would wait for them to close the
    pipes.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=_ROOT, start_new_session=True, **options
    ) as process:
        try:
            printed, messages = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, messages)


def in_new_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a new interpreter, without the threads that earlier tests left in the worker.

    In a forked child, a library such as JAX may wait forever for a lock that one of its threads held in the
    parent. The test's parameters must be literals.
    """

    @functools.wraps(test)
    def run(**parameters: object) -> None:
        call = f"{test.__name__}.__wrapped__(**{parameters!r})"
        command = [sys.executable, "-c", f"from {test.__module__} import {test.__name__}; {call}"]
        done = run_limited(command, _TIME_LIMIT, env={**os.environ, "PYTHONWARNINGS": "ignore"})
        assert done.returncode == 0, done.stderr

    return run
