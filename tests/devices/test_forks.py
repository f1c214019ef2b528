"""Forks while other threads hold locks: the child can use everything."""

import ast
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
from cudml import locks
from cudml.devices import emulator
from cudml.devices.emulator import build, cache_files, launch, processes
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


#: Threads make their first, second and hundredth call while children are forked that make the same calls.
FIRST_CALLS = """
import os, random, signal, sys, threading, time, warnings

import cudml

warnings.simplefilter("ignore", DeprecationWarning)  # threads are what this is about
num_children, seed = map(int, sys.argv[1:])
generator = random.Random(seed)
sys.setswitchinterval(1e-4)


def top_k():
    function = cudml.top_k  # imports NumPy, too
    import numpy as np

    for _ in range(100):
        assert function(np.arange(64.0), 3).indices.tolist() == [63, 62, 61]


def move():
    function, other = cudml.slice, cudml.reverse_subsequences
    import numpy as np

    for _ in range(100):
        assert function(np.arange(64.0), (5,), (2,)).tolist() == [5, 6]
        assert other(np.arange(4.0), 3).tolist() == [2, 1, 0, 3]


def compile_and_refuse():
    function, refused = cudml.compile_operator, cudml.DescriptorError
    desc = {"InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 1, 8]}, "Axis": 3, "K": 3}
    desc["OutputValueTensor"] = {"DataType": "FLOAT32", "Sizes": [1, 1, 1, 3]}
    desc["OutputIndexTensor"] = {"DataType": "UINT32", "Sizes": [1, 1, 1, 3]}
    for _ in range(100):
        function(cudml.from_dict({"Type": "TOP_K", "Desc": desc}), device="cpu")
        try:
            function(cudml.from_dict({"Type": "TOP_K", "Desc": {**desc, "K": 9}}), device="cpu")
        except refused:
            pass
        else:
            raise AssertionError("K is larger than the axis")


uses = (top_k, move, compile_and_refuse)
threads = [threading.Thread(target=use) for use in uses]
for thread in threads:
    thread.start()
children = []
for number in range(num_children):
    time.sleep(generator.random() * 0.05)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for use in uses:
            use()
        os._exit(0)
    children.append(child)
for thread in threads:
    thread.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert not any(codes), codes
"""


@pytest.mark.parametrize("are_built", [True, False])
def test_children_forked_during_first_calls(are_built: bool, tmp_path: Path) -> None:
    environment = dict(os.environ)
    if not are_built:
        environment["CUDML_CACHE_DIR"] = str(tmp_path)
    for seed in range(1 if not are_built else 3):
        command = [sys.executable, "-c", FIRST_CALLS, "8", str(seed)]
        result = run_limited(command, 300, env=environment)
        assert result.returncode == 0, f"seed {seed}: {result.stderr}"


#: Prints the modules that calls import, except in imports whose end a fork waits for.
CALLS_BESIDE_IMPORTS = """
import sys, warnings

import ml_dtypes
import torch

import cudml
from cudml import locks
from cudml.devices import emulator

for name in cudml.__all__:
    getattr(cudml, name)
sys.modules["tempfile"].tempdir = None  # as in a new process
np = sys.modules["numpy"]
found = []


class Observer:
    def find_spec(self, name, path, target=None):
        if not locks.no_fork._is_owned() and name != "ziglang":  # looked for, but not imported
            found.append(name)
        return None


sys.meta_path.insert(0, Observer())


def refused(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error)
    raise AssertionError(f"{function} took {arguments}")


x = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
for array in (x, x.astype(ml_dtypes.bfloat16), torch.from_numpy(x).to(torch.bfloat16), x[:, ::-2], x[:0]):
    cudml.top_k(array, 2)
    cudml.slice(array, (0, 1), (0, 2))
    cudml.reverse_subsequences(array, 1)
cudml.top_k(x, 2, lengths=[[1]] * 8, out=(np.empty((8, 2), np.float32), np.empty((8, 2), np.uint32)))
w = np.ones((1, 12, 4), np.float32)
cudml.gru(np.ones((3, 2, 4), np.float32), w, w, activations=["HardSigmoid", "Tanh"])
with emulator.schedule(check=True):
    cudml.slice(x, (0, 0), (1, 1))
with cudml.emulator_report() as report:
    cudml.slice(x, (0, 0), (1, 1))
str(report)
tensor, output = (cudml.TensorDesc(cudml.DataType.FLOAT32, sizes) for sizes in ((1, 1, 8, 8), (1, 1, 8, 3)))
desc = cudml.SliceDesc(tensor, output, (0, 0, 0, 0), (1, 1, 8, 3), (1, 1, 1, 1))
cudml.from_dict(cudml.to_dict(desc))
operator = cudml.compile_operator(desc)
operator.dispatch(input_tensor=x.reshape(1, 1, 8, 8), output_tensor=np.empty((1, 1, 8, 3), np.float32))
refused(cudml.compile_operator, desc, device="cuda")
refused(operator.dispatch, input_tensor=x)
refused(cudml.top_k, x, 9)
refused(cudml.top_k, x, "two")
refused(cudml.top_k, np.ma.array(x), 1)
refused(cudml.slice, [["a"]], (0,), (1,))
refused(cudml.gru, x, x, x)
refused(cudml.from_dict, {"Type": "TOPK"})
print(*found)
"""


@pytest.mark.parametrize("folder", ["new", "a file"])
def test_calls_import_nothing(folder: str, tmp_path: Path) -> None:
    """A child could wait forever for a module that another thread of its parent was importing."""
    pytest.importorskip("torch")
    cache = tmp_path / "cache"
    if folder == "a file":
        cache.touch()
    environment = {**os.environ, "CUDML_CACHE_DIR": str(cache), "CUDML_KEEP_SOURCE": "1"}
    result = run_limited([sys.executable, "-c", CALLS_BESIDE_IMPORTS], 300, env=environment)
    assert result.returncode == 0, result.stderr
    assert ("cache folder" in result.stderr) == (folder == "a file")
    assert result.stdout.split() == []


#: Stays in `dl_iterate_phdr`, once `stay` is set, until `stay` is 0 again. That function holds a lock that
#: `dlopen` also needs, and that the C library leaves held in a forked child.
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
    """The loader's locks are not free in a child that is forked during a call of it."""
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
    """Even while the traceback is kept, as a shell does. Ctrl-C may come at any call or return."""
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
    """Let a function take half a second longer; gives an event that is set when a call has begun."""
    function, begun = getattr(owner, name), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, slow)
    return begun


@in_new_process
def test_a_build_does_not_wait_for_a_child_forked_meanwhile() -> None:
    """A build reads the compiler's output until nobody holds the other end of the pipe."""
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


@in_new_process
def test_a_fork_waits_until_a_kernel_is_loaded() -> None:
    """The loader's lock is not free in a child that is forked while another thread has it."""
    path, monkeypatch = build.runtime(), pytest.MonkeyPatch()
    begun = slowed(monkeypatch, launch.ctypes, "CDLL")
    is_loaded = threading.Event()

    def load() -> None:
        launch._load.__wrapped__(path)
        is_loaded.set()

    thread = threading.Thread(target=load)
    thread.start()
    assert begun.wait(60)
    moment = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(0)
    waited = time.monotonic() - moment
    os.waitpid(child, 0)
    thread.join()
    assert is_loaded.is_set()
    assert waited > 0.2


def test_libraries_are_loaded_where_no_fork_can_be() -> None:
    """Every call of the dynamic loader in the package is in a `with locks.no_fork`."""
    loads, guarded = 0, 0
    for path in (ROOT / "cudml").rglob("*.py"):
        tree = ast.parse(path.read_text())
        loads += sum(map(is_load, ast.walk(tree)))
        guarded += len(
            {
                (node.lineno, node.col_offset)
                for block in ast.walk(tree)
                if isinstance(block, ast.With)
                and any(ast.unparse(item.context_expr) == "locks.no_fork" for item in block.items)
                for node in ast.walk(block)
                if is_load(node)
            }
        )
    assert guarded == loads >= 3


def is_load(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "CDLL"


@pytest.mark.parametrize("user", ["a new temporary folder", "the test of the compiler"])
@in_new_process
def test_a_child_can_use_the_temporary_folder(user: str) -> None:
    """Python's `tempfile` holds a lock of its own while it looks for the folder."""
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
    """`cached_property` has a lock before Python 3.12."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cudml").rglob("*.py")
        if re.search(
            r"(threading\.\w*(Lock|Condition|Semaphore)|RLock|allocate_lock)\(|cached_property",
            path.read_text(),
        )
    }
    assert found == {"cudml/locks.py"}
