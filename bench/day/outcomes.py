"""A plugin of pytest: notes each test's outcome as it ends, and leaves out tests with an outcome.

`pytest -p bench.day.outcomes --outcomes FILE`. A run may be stopped and go on later. A test that leaves the
GPU unusable ends its worker, which pytest-xdist replaces, so that the tests after it do not fail because of
it.
"""

import csv
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

#: Seconds in which a report reaches the process that gathers reports.
_TO_SEND = 0.5
_MAX_MESSAGE = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file."""
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="CSV file of tests that ended")


def pytest_configure(config: pytest.Config) -> None:
    """Read which tests ended before. Workers get them from the gathering process, so that all agree."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(set(config.workerinput["ended"])))
    else:
        gatherer = Gatherer(config.getoption("--outcomes"))
        config.pluginmanager.register(gatherer)
        config.pluginmanager.register(_LeavesOut(gatherer.ended))
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(_Sender(gatherer.ended))


class _LeavesOut:
    def __init__(self, ended: set[str]) -> None:
        self._ended = ended

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self._ended]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in self._ended]


class _Sender:
    def __init__(self, ended: set[str]) -> None:
        self._ended = ended

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["ended"] = sorted(self._ended)


class Worker(_LeavesOut):
    """The plugin in a process that runs tests for another one."""

    def __init__(self, ended: set[str]) -> None:
        super().__init__(ended)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        self._failed |= report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """End after a failure that has left the GPU unusable; the test counts as one that crashed."""
        if self._failed and _is_gpu_lost():
            time.sleep(_TO_SEND)
            os._exit(1)
        self._failed = False


class Gatherer:
    """Writes a line for each test: its name, outcome, seconds, and the error's first line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._results: dict[str, tuple[str, str]] = {}
        self._noted: set[str] = set()
        self.ended: set[str] = set()
        if path.exists():
            with path.open(newline="") as file:
                self.ended = {row["test"] for row in csv.DictReader(file)}
        else:
            self._write("test", "outcome", "seconds", "message")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Join the reports of a test's set-up, call and tear-down; the worst counts."""
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.failed:
            self._results[name] = ("failed", _message(report))
        elif report.skipped:
            self._results.setdefault(name, ("skipped", _message(report)))
        if report.when not in ("setup", "call", "teardown"):  # its worker crashed, and nothing else will come
            self.pytest_runtest_logfinish(name)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note a test that has ended."""
        if nodeid in self._noted:  # a worker that ended itself has crashed after its test
            return
        self._noted.add(nodeid)
        outcome, message = self._results.pop(nodeid, ("passed", ""))
        self._write(nodeid, outcome, f"{self._seconds.pop(nodeid, 0.0):.3f}", message)

    def _write(self, *cells: str) -> None:
        with self._path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)


def _message(report: pytest.TestReport) -> str:
    told: Any = report.longrepr
    if isinstance(told, tuple):  # of a skipped test: file, line, reason
        text = str(told[2])
    else:
        crash = getattr(told, "reprcrash", None)
        text = crash.message if crash else str(told)
    return text.strip().partition("\n")[0][:_MAX_MESSAGE]


def _is_gpu_lost() -> bool:
    """Whether every call of CUDA fails in this process, as after a kernel's fault."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return False
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False
