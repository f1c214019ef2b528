"""The process that the stand-in lives in, for tests."""

import importlib.util
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.devices.cuda.stand_in import cases

#: Marks of the test files that use it.
NEEDS_STAND_IN = [
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is a shared library of Linux"),
]

#: Calls a function in the process of the stand-in.
Run = Callable[..., Any]


@contextmanager
def running(cache_folder: Path) -> Iterator[Run]:
    """The process, from its start to its end."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, cases.start, (str(cache_folder),)) as pool:
        yield lambda function, *given, **named: pool.submit(function, *given, **named).result(120)
