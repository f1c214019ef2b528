"""Tests that fork, in a process of their own."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]

#: Seconds that such a test may take.
_TIME_LIMIT = 300


def in_new_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test by a new interpreter, which has none of the threads that others of its worker have left.

    A library such as JAX may never get a lock in a forked child that one of its threads had in the parent.
    The test's parameters must be literals.
    """

    @functools.wraps(test)
    def run(**parameters: object) -> None:
        call = f"{test.__name__}.__wrapped__(**{parameters!r})"
        done = subprocess.run(
            [sys.executable, "-c", f"from {test.__module__} import {test.__name__}; {call}"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
        )
        assert done.returncode == 0, done.stderr

    return run
