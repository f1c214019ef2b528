"""Calls on the CPU: the addresses of arrays, the schedule of each call, and the state of launches."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from cudml.devices.shortcuts import address_of
from cudml.errors import KernelError
from cudml.plans import KernelLaunch, Plan
from tests.devices.emulator.support import EVERY_ORDER, KERNELS, launch
from tests.support.new_process import in_new_process
from tests.support.params import params_of

MIXED_BLOCKS = """
#include "common/intrinsics.cuh"
struct Params { Int32 n; };
struct Storage { Int32 values[64]; };

// Every n-th block waits at a barrier; the others never do.
__global__ void mixed_blocks(Int32* out, Params params) {
  SHARED_STORAGE(Storage, shared);
  const Int32 t = threadIdx.x;
  shared.values[t] = t;
  if (blockIdx.x % params.n == 1) {
    __syncthreads();  // all values are written
    out[blockIdx.x * 64 + t] = shared.values[63 - t];
  } else {
    out[blockIdx.x * 64 + t] = shared.values[t];
  }
}
"""


def block_order() -> tuple[Plan, dict[str, np.ndarray]]:
    """A plan that records the order of its blocks, and its buffers."""
    step = KernelLaunch(
        source=str(KERNELS / "mistakes.cu"),
        function="block_order",
        template=(),
        grid=(64, 1, 1),
        block=(1, 1, 1),
        buffers=("counter", "order"),
        params=params_of(n=("Int32", 0)),
    )
    buffers = {"counter": np.zeros(1, np.uint32), "order": np.zeros(64, np.uint32)}
    return Plan("test", ("counter", "order"), (step,)), buffers


def spin(time_limit: float) -> None:
    """A launch that the watchdog must stop."""
    params = params_of(n=("Int32", 1))
    with (
        emulator.schedule(time_limit=time_limit),
        pytest.raises(KernelError, match=r"a thread ran for .* without ending"),
    ):
        launch("mistakes.cu", "spins", {"flag": np.zeros(1, np.uint32)}, params, block=2)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4)),
        np.zeros((3, 4))[::-1, 1::2],
        np.zeros(()),
        np.zeros((0, 3)),
        np.ma.zeros(3),
        np.frombuffer(b"read only", np.uint8),
        np.broadcast_to(np.int8(1), (5, 5)),
    ],
    ids=["packed", "strided", "0-d", "empty", "subclass", "read-only", "broadcast"],
)
def test_addresses(array: np.ndarray) -> None:
    assert address_of(array) == array.__array_interface__["data"][0]
    assert emulator.get_device().address(array) == array.__array_interface__["data"][0]


def test_each_call_follows_its_own_schedule() -> None:
    plan, buffers = block_order()
    program = emulator.get_device().load(plan)
    ascending = list(range(64))
    expected = {"forward": ascending, "reverse": ascending[::-1]}
    for order in ("forward", "reverse", "forward"):
        buffers["counter"][:] = 0
        with emulator.schedule(order):
            program(list(buffers.values()), None)
        assert buffers["order"].tolist() == expected[order]


def test_the_environment_may_change_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (None, "order=reverse", "check", "", "warp_lanes=32"):
        if options is None:
            monkeypatch.delenv("CUDML_EMULATOR", raising=False)
        else:
            monkeypatch.setenv("CUDML_EMULATOR", options)
        schedule = emulator.current_schedule()
        assert (schedule.order, schedule.check, schedule.num_lanes) == {
            None: ("fast", False, 1),
            "": ("fast", False, 1),
            "order=reverse": ("reverse", False, 32),
            "check": ("fast", True, 32),
            "warp_lanes=32": ("fast", False, 32),
        }[options]


@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("period", [2, 3, 50])
def test_blocks_that_wait_among_blocks_that_do_not(
    order: str, seed: int, workers: int, period: int, tmp_path: Path
) -> None:
    source = tmp_path / "mixed.cu"
    source.write_text(MIXED_BLOCKS)
    out = np.full((200, 64), -1, np.int32)
    with emulator.schedule(order, seed, poison=0, guard=True, workers=workers):
        options = {"grid": 200, "block": 64, "shared_bytes": 256}
        launch(source, "mixed_blocks", {"out": out}, params_of(n=("Int32", period)), **options)  # type: ignore[arg-type]
    ascending = np.arange(64)
    for block, row in enumerate(out):
        np.testing.assert_array_equal(row, ascending[::-1] if block % period == 1 else ascending)


def test_the_watchdog_wakes_up_again() -> None:
    """It sleeps a second after the last launch."""
    spin(0.1)
    time.sleep(1.5)
    spin(0.1)


def test_the_watchdog_looks_after_every_thread() -> None:
    """It forgets threads that have ended, and no others."""
    for _ in range(3):
        threads = [threading.Thread(target=spin, args=(0.1,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    spin(0.1)


@in_new_process
def test_the_watchdog_of_a_forked_process() -> None:
    spin(0.1)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            spin(0.1)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    spin(0.1)


def test_nothing_interrupts_a_process_between_its_launches() -> None:
    """A signal would cut short the process's own sleep."""
    libc = ctypes.CDLL(None, use_errno=True)
    cudml.slice(np.arange(8.0), (1,), (3,))
    for _ in range(20):
        cudml.slice(np.arange(8.0), (1,), (3,))
        assert libc.usleep(ctypes.c_uint(20_000)) == 0


def test_threads_launch_side_by_side() -> None:
    """A launch that waits for another thread's launch does not keep the other from running."""
    flag = np.zeros(1, np.uint32)
    params = params_of(n=("Int32", 1))
    waiting = threading.Thread(target=lambda: launch("mistakes.cu", "spins", {"flag": flag}, params, block=1))
    waiting.start()
    try:
        for n in range(3, 40):
            assert cudml.slice(np.arange(40.0), (0,), (n,)).tolist() == list(range(n))
        assert waiting.is_alive()
    finally:
        flag[0] = 1
        waiting.join()


MANY_SHAPES = """
import sys
import numpy as np
import cudml

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

x, w, r = np.zeros((3000, 40), "f4"), np.zeros((1, 6, 3), "f4"), np.zeros((1, 6, 2), "f4")
call = {
    "top_k": lambda i: cudml.top_k(x[: 2 + i], 1 + i % 3),
    "slice": lambda i: cudml.slice(x, (0, 0), (2 + i, 3 + i % 30)),
    "reverse_subsequences": lambda i: cudml.reverse_subsequences(x[: 2 + i], np.array(3)),
    "gru": lambda i: cudml.gru(np.zeros((1 + i % 50, 1 + i // 50, 3), "f4"), w, r),
}[sys.argv[1]]
call(0), call(1)
before = resident_bytes()
for i in range(2000):
    call(i)
print(resident_bytes() - before)
"""


@pytest.mark.parametrize("function", ["top_k", "slice", "reverse_subsequences", "gru"])
def test_planned_calls_take_little_memory(function: str) -> None:
    environment = {**os.environ, "CUDML_EMULATOR": "workers=1"}
    command = [sys.executable, "-c", MANY_SHAPES, function]
    root = Path(__file__).resolve().parents[3]
    result = subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert int(result.stdout) < 40 << 20
