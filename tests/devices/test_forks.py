"""Forks while other threads hold locks: the child can use everything."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import emulator, locks
from cudml.devices.emulator import build, cache_files, processes
from tests.support.new_process import in_new_process, run_limited

ROOT = Path(__file__).resolve().parents[2]

BUSY = """
import itertools, os, signal, sys, threading, time, warnings
from pathlib import Path
import numpy as np
import cudml
from cudml.devices import emulator
from cudml.plans import KernelLaunch, Params, ParamStruct, Plan

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
        block=(1, 1, 1), buffers=("out",), params=Params(ParamStruct("Int32 n"), dict(n=7)),
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
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        failed.append((number, status))
is_over = True
for thread in threads:
    thread.join()
assert not failed, failed
print(next(numbers))
"""


def test_children_forked_under_load(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "emulator"
    cache.mkdir(parents=True, mode=0o700)
    cache.parent.chmod(0o700)
    for is_checked in (False, True):
        shutil.copy(build.runtime(is_checked=is_checked), cache)
    environment = {**os.environ, "CUDML_CACHE_DIR": str(cache.parent), "CUDML_EMULATOR": "workers=2"}
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    result = run_limited(command, 300, env=environment)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 1
    assert not list(cache.glob("tmp*"))


#: Stays in `dl_iterate_phdr`, once `stay` is set, until `stay` is 0 again. That function holds the lock which
#: `dlopen` needs too, and which the C library leaves as it is in a forked child.
SLOW_LOADER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

volatile int stay, is_inside;
static int (*visit)(struct dl_phdr_info*, size_t, void*);

static int visit_and_stay(struct dl_phdr_info* info, size_t size, void* data) {
  if (stay) is_inside = 1;
  while (stay) usleep(1000);
  return visit(info, size, data);
}

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info*, size_t, void*), void* data) {
  int (*iterate)(int (*)(struct dl_phdr_info*, size_t, void*), void*) = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  visit = callback;
  return iterate(visit_and_stay, data);
}
"""

FORKS_BESIDE_A_CALL = """
import ctypes, os, signal, sys, threading, warnings
import numpy as np
import cudml
from cudml.devices import emulator

warnings.simplefilter("ignore", DeprecationWarning)
slow, library = ctypes.CDLL(sys.argv[1]), sys.argv[2]
stay, is_inside = (ctypes.c_int.in_dll(slow, name) for name in ("stay", "is_inside"))
done = threading.Event()


def call():
    with emulator.schedule(check=sys.argv[3] == "True"):
        cudml.slice(np.arange(9.0), (1,), (4,))
    done.set()


call()
done.clear()
stay.value = 1
thread = threading.Thread(target=call)
thread.start()
while not (is_inside.value or done.wait(0.01)):
    pass
child = os.fork()
if child == 0:
    signal.alarm(10)
    ctypes.CDLL(library)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
stay.value = 0
thread.join()
assert status == 0, f"the child ended by signal {-status}"
"""


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_child_forked_beside_a_call_can_load_libraries(is_checked: bool, tmp_path: Path) -> None:
    source, slow, library = (tmp_path / name for name in ("slow.c", "slow.so", "library.so"))
    source.write_text(SLOW_LOADER)
    subprocess.run(
        [*build.compiler().command, "-xc", "-shared", "-fPIC", str(source), "-o", str(slow), "-ldl"],
        check=True,
    )
    shutil.copy(slow, library)  # another library for the loader
    cudml.slice(np.arange(9.0), (1,), (4,))  # compiles, without the slow library
    with emulator.schedule(check=is_checked):
        cudml.slice(np.arange(9.0), (1,), (4,))
    command = [sys.executable, "-c", FORKS_BESIDE_A_CALL, str(slow), str(library), str(is_checked)]
    result = run_limited(command, 120, env={**os.environ, "LD_PRELOAD": str(slow)})
    assert result.returncode == 0, result.stderr


def test_the_runtime_calls_nothing_of_the_dynamic_loader() -> None:
    """Its locks are not free in a child that is forked during such a call."""
    for is_checked in (False, True):
        names = build.runtime(is_checked=is_checked).read_bytes().split(b"\0")
        assert b"pthread_atfork" in names or b"__register_atfork" in names
        for name in (b"dlopen", b"dlclose", b"dlsym", b"dladdr", b"dl_iterate_phdr"):
            assert name not in names


@in_new_process
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


@in_new_process
def test_a_child_forked_under_a_lock_releases_its_own() -> None:
    lock = locks.Lock()
    with lock.held():
        child = os.fork()
        if child == 0:
            signal.alarm(60)
    with lock.held():
        pass
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_exception_while_a_lock_is_taken_leaves_it_free() -> None:
    """Even while its traceback is kept, which a shell does. Any call or return may be where Ctrl-C comes."""
    lock, kept = locks.Lock(), []
    for moment in range(100):
        events = itertools.count()

        def interrupt(*_: object, moment: int = moment, events: Iterator[int] = events) -> None:
            if next(events) == moment:
                raise KeyboardInterrupt

        is_inside = False
        try:
            sys.setprofile(interrupt)
            with lock.held():
                sys.setprofile(None)
                is_inside = True
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.setprofile(None)
        assert lock._lock.acquire(blocking=False), f"held after an exception at event {moment}"
        lock._lock.release()
        if is_inside:
            break
    assert is_inside
    assert kept


def slowed(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> threading.Event:
    """Let a function take half a second longer; gives the event that one has begun."""
    function, begun = getattr(owner, name), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, slow)
    return begun


@in_new_process
def test_a_build_does_not_wait_for_a_child_forked_meanwhile() -> None:
    """It reads what the compiler prints until nobody has the other end of the pipe."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        processes.scratch(Path(folder)) as scratch,
    ):
        begun = slowed(monkeypatch, subprocess.Popen, "_execute_child")
        thread = threading.Thread(target=scratch.run, args=(["true"],))
        thread.start()
        assert begun.wait(60)
        child = os.fork()
        if child == 0:
            time.sleep(120)
            os._exit(0)
        thread.join(30)
        is_waiting = thread.is_alive()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        thread.join()
    assert not is_waiting


@pytest.mark.parametrize("user", ["a new temporary folder", "the test of the compiler"])
@in_new_process
def test_a_child_can_use_the_temporary_folder(user: str) -> None:
    """Python's `tempfile` has a lock of its own while it looks for the folder."""
    compiler, folder, monkeypatch = build.compiler(), cache_files.Folder(), pytest.MonkeyPatch()
    monkeypatch.setattr(tempfile, "tempdir", None)
    begun = slowed(monkeypatch, tempfile, "_get_default_tempdir")

    def use() -> None:
        if user == "the test of the compiler":
            build._require_sanitizer(compiler)
        else:
            folder.fall_back(OSError("full"))

    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        tempfile.gettempdir()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()


def test_every_lock_of_the_package_is_one_of_these() -> None:
    """`cached_property` has one before Python 3.12."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cudml").rglob("*.py")
        if re.search(r"threading\.\w*(Lock|Condition|Semaphore)\(|cached_property", path.read_text())
    }
    assert found == {"cudml/devices/locks.py"}
