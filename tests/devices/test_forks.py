"""Forks while other threads are busy: whatever they hold, the child can use everything."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cudml.devices import locks
from cudml.devices.emulator import build

ROOT = Path(__file__).resolve().parents[2]

BUSY = """
import itertools, os, signal, sys, threading, time, warnings
from pathlib import Path
import numpy as np
import cudml
from cudml.devices import emulator
from cudml.plans import KernelLaunch, Params, Plan

warnings.simplefilter("ignore", DeprecationWarning)  # threads are what this is about
folder = Path(sys.argv[1])
KERNEL = '''
#include "common/intrinsics.cuh"
struct Params { Int32 n; };
template <int N>
__global__ void gives(Int32* out, Params params) { out[0] = N + params.n; }
'''
(folder / "kernel.cu").write_text(KERNEL)
device = emulator.get_device()
numbers = itertools.count()
is_over = False


def run_new_kernel(number):
    out = np.zeros(1, np.int32)
    step = KernelLaunch(
        source=str(folder / "kernel.cu"), function="gives", template=(number,), grid=(1, 1, 1),
        block=(1, 1, 1), buffers=("out",), params=Params.of(n=("Int32", 7)),
    )
    device.load(Plan("test", ("out",), (step,)))([out], None)
    assert out[0] == number + 7


x = np.random.default_rng(0).standard_normal((1 << 16, 32), np.float32)
expected = cudml.top_k(x, 2)


def calls():
    while not is_over:
        cudml.top_k(x, 2)


def plans():
    for n in itertools.count(3):
        if is_over:
            break
        cudml.slice(x, (0, 0), (2 + n % 5000, 1 + n % 30))


def compiles():
    while not is_over:
        run_new_kernel(next(numbers))


def checks():
    with emulator.schedule(check=True):
        while not is_over:
            cudml.slice(np.arange(9.0), (1,), (4,))


cudml.slice(x, (0, 0), (1, 1))
threads = [threading.Thread(target=target) for target in (calls, calls, plans, compiles, checks)]
for thread in threads:
    thread.start()
failed = []
for number in range(20):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            for got, wanted in zip(cudml.top_k(x, 2), expected):
                np.testing.assert_array_equal(got, wanted)
            assert cudml.slice(np.arange(50.0), (number,), (2,)).tolist() == [number, number + 1]
            if number % 10 == 0:
                run_new_kernel(10_000 + number)
                with emulator.schedule(check=True):
                    assert cudml.slice(np.arange(9.0), (1,), (4,)).tolist() == [1, 2, 3, 4]
            if number % 2:
                sys.exit(0)  # as any process ends: what belongs to the parent must stay
            os._exit(0)
        finally:
            sys.stdout.flush()
            os._exit(1 if sys.exc_info()[0] is not SystemExit else 0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        failed.append((number, status))
is_over = True
for thread in threads:
    thread.join()
assert not failed, failed
print(next(numbers))
"""


@pytest.mark.skipif(
    "CUDML_TEST_FORKS" not in os.environ,
    reason="a child still hangs at times, cause unknown; CUDML_TEST_FORKS=1 runs it",
)
def test_children_forked_under_load(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "emulator"
    cache.mkdir(parents=True, mode=0o700)
    cache.parent.chmod(0o700)
    for is_checked in (False, True):
        shutil.copy(build.runtime(is_checked=is_checked), cache)
    environment = {**os.environ, "CUDML_CACHE_DIR": str(cache.parent), "CUDML_EMULATOR": "workers=2"}
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    result = subprocess.run(
        command, env=environment, cwd=ROOT, timeout=300, stdout=subprocess.PIPE, text=True, check=True
    )
    assert int(result.stdout) > 1
    assert not list(cache.glob("tmp*"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_held_by_another_thread_is_free_in_a_child() -> None:
    lock = locks.Lock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.held():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        with lock.held():
            os._exit(0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_under_a_lock_releases_its_own() -> None:
    lock = locks.Lock()
    with lock.held():
        child = os.fork()
    with lock.held():
        pass
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_every_lock_of_the_package_is_one_of_these() -> None:
    """Or is there on purpose: the loader's is held by the thread that forks."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cudml").rglob("*.py")
        if "threading.Lock(" in (text := path.read_text()) or "threading.RLock(" in text
    }
    assert found == {"cudml/devices/locks.py", "cudml/devices/emulator/launch.py"}
