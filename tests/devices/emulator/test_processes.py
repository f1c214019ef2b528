"""Compilers as processes: their remains after Ctrl-C or a signal, and locks after a fork."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudml.devices.emulator import build

ROOT = Path(__file__).resolve().parents[3]

#: Longest time from Ctrl-C to the exception in a build, in seconds.
BAR = 0.5

KERNEL = """
#include "common/intrinsics.cuh"
struct Params { Int32 n; };
__global__ void first(Int32* out, Params params) { out[0] = params.n; }
__global__ void second(Int32* out, Params params) { out[1] = params.n + 1; }
"""

#: Two kernels of one plan, which are compiled at the same time.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from cudml.devices import emulator
from cudml.plans import KernelLaunch, Params, ParamStruct, Plan

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
folder = Path(sys.argv[1])

def step(function):
    return KernelLaunch(
        source=str(folder / "kernel.cu"), function=function, template=(), grid=(1, 1, 1), block=(1, 1, 1),
        buffers=("out",), params=Params(ParamStruct("Int32 n"), dict(n=7)),
    )

def run():
    out = np.zeros(2, np.int32)
    emulator.get_device().load(Plan("test", ("out",), (step("first"), step("second"))))([out], None)
    assert out.tolist() == [7, 8]
"""

#: Stands in for a compiler, which may take any time and starts other processes.
SLOW = """#!/bin/sh
if [ "$1" = --version ] || [ -e {folder}/quick ]; then exec {command} "$@"; fi
echo something > "$TMPDIR/temporary"
: > {folder}/begun-$$
sleep 61
"""

CTRL_C = """
import shutil
import threading

remove = shutil.rmtree

def remove_slowly(*arguments, **options):
    time.sleep(0.3)  # the call must not return meanwhile
    remove(*arguments, **options)

shutil.rmtree = remove_slowly

def interrupt():
    global sent
    while len(list(folder.glob("begun-*"))) < 2:
        time.sleep(0.01)
    sent = time.process_time(), time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    run()
except KeyboardInterrupt:
    print(time.process_time() - sent[0], time.monotonic() - sent[1])
print(len(list(folder.glob("cache/emulator/tmp*"))))
(folder / "quick").touch()
run()
"""


#: Ways to be in a build. A forked child has everything that was open in its parent.
BUILDS = {
    "main thread": "run()",
    "another thread": "import threading; threading.Thread(target=run).start(); time.sleep(60)",
    "with a forked child": """
import threading

threading.Thread(target=run).start()
while len(list(folder.glob("begun-*"))) < 2:
    time.sleep(0.01)
if os.fork() == 0:
    (folder / "begun-child").touch()
    time.sleep(8)
    os._exit(0)
time.sleep(60)
""",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process with a slow compiler and an empty cache."""
    (tmp_path / "kernel.cu").write_text(KERNEL)
    compiler = tmp_path / "slow-c++"
    compiler.write_text(SLOW.format(command=" ".join(build.compiler().command), folder=tmp_path))
    compiler.chmod(0o755)
    return {**os.environ, "CUDML_CXX": str(compiler), "CUDML_CACHE_DIR": str(tmp_path / "cache")}


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that have a folder in their environment, without those of `start`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return [command for command in found if command and PROGRAM not in command]


def leftovers(folder: Path) -> list[str]:
    """Processes, and scratch folders of the cache."""
    return [*processes_of(folder), *map(str, folder.glob("cache/emulator/tmp*"))]


def start(text: str, folder: Path, environment: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM + text, str(folder)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_ctrl_c_stops_a_build(tmp_path: Path, environment: dict[str, str]) -> None:
    with start(CTRL_C, tmp_path, environment) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    cpu_seconds, seconds, num_folders = map(float, output.split())
    print(f"the build ended {seconds:.3f} s after Ctrl-C, {cpu_seconds:.3f} s of CPU time")
    # The compiler would take a minute; other work on the machine may delay this by seconds.
    assert seconds < 10
    assert cpu_seconds < BAR
    assert num_folders == 0
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("where", ["main thread", "another thread", "with a forked child"])
def test_a_signal_that_ends_the_process_leaves_nothing(
    number: int, where: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    with start(BUILDS[where], tmp_path, environment) as process:
        begun = 3 if where == "with a forked child" else 2
        while len(list(tmp_path.glob("begun-*"))) < begun and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None
        assert len(list(tmp_path.glob("cache/emulator/tmp*"))) == 2
        process.send_signal(number)
        process.wait(60)
    deadline = time.monotonic() + 5
    while leftovers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not leftovers(tmp_path)
