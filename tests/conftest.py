"""Fixtures that every test file shares: the devices, a seeded generator, the emulator's schedules."""

import os
import platform
import shlex
import signal
import time
import zlib
from collections import Counter
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

from cudml.devices import Device, get_device
from cudml.devices.cuda import status
from cudml.devices.emulator import build
from cudml.devices.emulator import launch as launches
from proof.stand_in import loaded as loaded_stand_in
from tests.devices.cuda.stand_in.process import Run, running
from tests.support import over_stand_in, slow

# Before anything asks whether there is a GPU.
over_stand_in.load()

# The first example of a kernel compiles it, and other work may run at the same time.
hypothesis.settings.register_profile("cudml", deadline=None)
hypothesis.settings.load_profile("cudml")


#: Values of `--architectures`; each one includes the compilations of the values before it.
ARCHITECTURE_CHOICES = ("few", "some", "all")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that choose the tests, and how kernels run on the CPU."""
    parser.addoption("--sanitize", action="store_true", help="run kernels in the CPU emulator's check mode")
    parser.addoption(
        "--planted", action="store_true", help="plant defects in a copy and see tests catch them"
    )
    parser.addoption(
        "--predictions", action="store_true", help="predict every case of bench/, not one of each kernel"
    )
    parser.addoption(
        "--architectures",
        choices=ARCHITECTURE_CHOICES,
        default="few",
        help="compile some kernels for sm_90 (default), all for it and some for six more, or all for all",
    )
    parser.addoption(
        "--all-cases",
        action="store_true",
        help=f"over the stand-in for CUDA, run every case, not {over_stand_in.MAX_CASES} of each test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """On the CPU, tests run the kernels of a GPU; the environment tells worker and child processes so.

    Shells start background commands with SIGINT ignored. Tests that stop a call by Ctrl-C would never end.
    Threads of OpenMP, which scikit-learn and PyTorch start, wait for each other in loops by default; with a
    worker for each core, they would keep other workers from their cores.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["CUDML_EMULATOR"] = "check" if config.getoption("--sanitize") else "warp_lanes=32"


# This runs before the plugin of `-m`, so that the plugin sees the marks that are set here.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need an option, and the cases of a CPU's kernels from those on a GPU.

    Each of the emulator's own tests sets the mode that it is about, so `--sanitize` leaves them out.
    Tests marked `planted` or `predictions` take long, so they run only with the option of that name.
    """
    for item in items:
        if slow.takes_long(item.nodeid):
            item.add_marker(pytest.mark.slow)
    left_out = {i for i in items if i.get_closest_marker("gpu") and i.get_closest_marker("cpu_only")}
    if config.getoption("--sanitize"):
        left_out |= {item for item in items if "emulator" in item.path.parts}
    for marker in ("planted", "predictions"):
        if not config.getoption(f"--{marker}"):
            left_out |= {item for item in items if item.get_closest_marker(marker)}
    chosen = ARCHITECTURE_CHOICES.index(config.getoption("--architectures"))
    for item in items:
        mark = item.get_closest_marker("architectures")
        if mark is not None and ARCHITECTURE_CHOICES.index(mark.args[0]) > chosen:
            left_out.add(item)
    if loaded_stand_in() is not None:
        over_stand_in.skip_those_that_need_a_gpu(items)
        if not config.getoption("--all-cases"):
            left_out |= over_stand_in.beyond_some_of_each(item for item in items if item not in left_out)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


#: Always the emulator, and the GPU if there is one.
DEVICES = ["cpu", *([pytest.param("cuda", marks=pytest.mark.gpu)] if status().usable else [])]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note the time."""
    session.config.stash[_START] = time.monotonic()


_START = pytest.StashKey[float]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped, where they ran, why not on a GPU if they did not, and how long it took."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else "expected to fail"
        for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"skipped {number}: {reason}")
    terminalreporter.write_line(f"devices: cpu{', cuda' * status().usable}; CUDA: {status().reason}")
    seconds = time.monotonic() - terminalreporter.config.stash[_START]
    terminalreporter.write_line(f"took {seconds:.0f} s on {os.cpu_count()} cores")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn."""
    return get_device(request.param)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator whose seed belongs to the test, is printed, and can be set by CUDML_TEST_SEED."""
    seed = int(os.environ.get("CUDML_TEST_SEED", zlib.crc32(request.node.nodeid.encode())))
    print(f"CUDML_TEST_SEED={seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Calls a function of `tests/devices/cuda/stand_in/` in the process of the stand-in for a GPU."""
    with running(tmp_path_factory.mktemp("kernel_cache")) as run:
        yield run


#: The compiler's options for CPUs with fewer vector registers than this one may have.
OLDER_CPUS = {"this CPU": "", "AVX2": "-mno-avx512f", "SSE": "-mno-avx"}


@pytest.fixture(params=OLDER_CPUS)
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for each of these CPUs in turn."""
    options = OLDER_CPUS[request.param]
    if options and platform.machine() != "x86_64":
        pytest.skip("these are x86's registers")
    monkeypatch.setenv("CUDML_CXX", f"{shlex.join(build.compiler().command)} {options}")
    monkeypatch.setattr(launches, "_loaded", {})
