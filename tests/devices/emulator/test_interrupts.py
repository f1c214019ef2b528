"""Long calls on the CPU: Ctrl-C ends them, other signals do not, and no clock takes them for hung."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from cudml.devices.emulator import library_steps
from cudml.errors import KernelError
from cudml.plans import Copy, Fill, KernelLaunch, MatMul, Plan
from tests.devices.emulator.support import EVERY_ORDER, KERNELS, launch
from tests.support.params import params_of

#: Longest time from Ctrl-C to the exception, in seconds of the process's CPU time, which other work on the
#: machine does not lengthen: a kernel that runs on takes more, on one core at least.
BAR = 0.3


@contextlib.contextmanager
def signals(number: int, *after: float) -> Iterator[list[float]]:
    """Send a signal to this process after each of these times, but not after the block.

    Gives the CPU times when they were sent.
    """
    sent: list[float] = []
    is_over = threading.Event()

    def send() -> None:
        start = time.monotonic()
        for moment in after:
            if is_over.wait(max(0.0, start + moment - time.monotonic())):
                break
            sent.append(time.process_time())
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()


def seconds_to_stop(call: Callable[[], object], workers: int = 1) -> float:
    """How long a call runs on after Ctrl-C, on each of its workers.

    The interpreter prints exceptions of the garbage collector's callbacks and goes on, so that Ctrl-C in
    a callback has no effect. There is no collection meanwhile. Should Ctrl-C be lost in another way, a second
    Ctrl-C a minute later makes the test fail instead of running forever.
    """
    gc.disable()
    try:
        with signals(signal.SIGINT, 0.25, 60) as sent:
            with pytest.raises(KeyboardInterrupt):
                call()
            return (time.process_time() - sent[0]) / workers
    finally:
        gc.enable()


def endless(function: str, n: int, flag: int = 0, **options: int) -> None:
    """A launch that never ends; with a flag it ends at once, and leaves its kernel compiled."""
    params = params_of(n=("Int32", n))
    launch("mistakes.cu", function, {"flag": np.full(1, flag, np.uint32)}, params, **options)


@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
@pytest.mark.parametrize(
    ("function", "n", "options"),
    [
        ("spins", 1, {"block": 1}),
        ("spins", 1, {"block": 1, "grid": 8}),
        ("spins", 2, {"block": 33, "grid": 2}),
        ("endless_polling", 0, {"block": 3, "grid": 2}),
    ],
    ids=["one thread", "blocks of one thread", "after a barrier", "polling"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_a_kernel_without_end(
    order: str, seed: int, function: str, n: int, options: dict[str, int], workers: int
) -> None:
    with emulator.schedule(order, seed, workers=workers, time_limit=float("inf")):
        endless(function, n, flag=1, **options)
        assert seconds_to_stop(lambda: endless(function, n, **options), workers) < BAR
    assert cudml.top_k(np.arange(9.0), 2).indices.tolist() == [8, 7]


@pytest.mark.parametrize("function", ["spins", "endless_polling"])
def test_ctrl_c_stops_the_check_mode(function: str) -> None:
    with emulator.schedule(check=True, time_limit=float("inf")):
        endless(function, 1, flag=1, block=2)
        assert seconds_to_stop(lambda: endless(function, 1, block=2)) < BAR
        assert cudml.top_k(np.arange(9.0), 2).indices.tolist() == [8, 7]


def gru_arguments(steps: int, rng: np.random.Generator) -> list[np.ndarray]:
    hidden = 64
    shapes = [(steps, 1, 4), (1, 3 * hidden, 4), (1, 3 * hidden, hidden)]
    return [rng.standard_normal(shape, np.float32) / 8 for shape in shapes]


def test_ctrl_c_stops_a_call(rng: np.random.Generator) -> None:
    x, w, r = gru_arguments(400_000, rng)
    with emulator.schedule(warp_lanes=1, workers=1):
        expected = [result.copy() for result in cudml.gru(x[:50], w, r)]
        for out in (None, (np.empty((400_000, 1, 1, 64), np.float32), np.empty((1, 1, 64), np.float32))):
            assert seconds_to_stop(lambda out=out: cudml.gru(x, w, r, out=out)) < BAR
            for result, before in zip(cudml.gru(x[:50], w, r), expected, strict=True):
                np.testing.assert_array_equal(result, before)


def test_ctrl_c_stops_a_copy() -> None:
    """Nearly all the time is spent in a function of the C library, which knows nothing of the emulator."""
    source = np.broadcast_to(np.int8(0), (1 << 14, 1 << 16))
    out = np.empty(source.shape, np.int8)
    cudml.slice(source, (1, 0), (2, 1 << 16))

    def call() -> None:
        while True:
            cudml.slice(source, (0, 0), source.shape, out=out)

    with emulator.schedule(warp_lanes=1, workers=1):
        assert seconds_to_stop(call) < BAR


@pytest.mark.parametrize(
    "step",
    [
        Fill("out", 1 << 30),
        Copy("a", "out", 1 << 30),
        MatMul("a", "b", "out", m=1 << 14, n=1 << 14, k=1 << 13, element="float32"),
        MatMul("a", "b", "out", m=1, n=1 << 12, k=1 << 17, element="float16"),
    ],
    ids=["fill", "copy", "product", "product of half precision"],
)
def test_ctrl_c_stops_a_librarys_step(step: Fill | Copy | MatMul) -> None:
    sizes = {name: first + count for name, first, count, _ in library_steps.accesses(step)}
    memory = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    plan = Plan("test", tuple(memory), (step,) * 100)
    program = emulator.get_device().load(plan)
    assert seconds_to_stop(lambda: program(list(memory.values()), None), os.cpu_count() or 1) < BAR


def test_ctrl_c_stops_the_copy_of_an_argument() -> None:
    """The elements are not where kernels need them, so NumPy copies them first."""
    memory = np.zeros(1 << 22, np.uint8)
    unaligned = np.ndarray((1 << 9, 1 << 18), np.float64, memory, offset=1, strides=(0, 1))
    cudml.slice(unaligned[:2], (0, 0), (1, 1))

    def call() -> None:
        while True:
            cudml.slice(unaligned, (0, 0), (1, 1))

    assert seconds_to_stop(call) < BAR


@pytest.mark.parametrize("element", ["float32", "float16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 40, 7), (5, 3, 4), (9, 1, 50), (6, 33, 1), (1, 1, 1)])
def test_products_are_made_of_small_pieces(
    m: int, n: int, k: int, element: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    a, b = (rng.integers(-9, 9, shape).astype(element) for shape in ((m, k), (n, k)))
    out = np.full((m, n), np.nan, np.float32)
    for name in ("_multiply", "_add_product"):
        multiply = getattr(library_steps, name)

        def small(left: np.ndarray, right: np.ndarray, result: np.ndarray, multiply: Any = multiply) -> None:
            assert len(left) == 1 or len(left) * right.size <= 60
            assert left.nbytes <= 80
            assert right.nbytes <= 80
            multiply(left, right, result)

        monkeypatch.setattr(library_steps, name, small)
    monkeypatch.setattr(library_steps, "_PIECE_PRODUCTS", 60)
    monkeypatch.setattr(library_steps, "_WRITE_PRODUCTS", 0)
    monkeypatch.setattr(library_steps, "_PIECE_BYTES", 80)
    monkeypatch.setattr(library_steps, "_PIECE_TERMS", 8)
    step = MatMul("a", "b", "out", m=m, n=n, k=k, element=element)
    library_steps.prepare(step)({"a": a.ctypes.data, "b": b.ctypes.data, "out": out.ctypes.data})
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b.T.astype(np.float64))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_returns_lets_the_call_go_on(workers: int, rng: np.random.Generator) -> None:
    """A handler may call the function that it interrupts."""
    x, w, r = gru_arguments(150_000, rng)
    other = x[::-1].copy()
    inside: list[tuple[int, np.ndarray]] = []

    def handle(number: int, frame: object) -> None:
        for steps in (100, 20_000):
            inside.append((steps, cudml.gru(other[:steps], w, r)[1]))

    with emulator.schedule(warp_lanes=1, workers=workers):
        expected = cudml.gru(x, w, r)
        expected_inside = {steps: cudml.gru(other[:steps], w, r)[1] for steps in (100, 20_000)}
        before = signal.signal(signal.SIGUSR1, handle)
        try:
            with signals(signal.SIGUSR1, 0.05, 0.2, 0.35):
                results = cudml.gru(x, w, r)
                num_during = len(inside)
        finally:
            signal.signal(signal.SIGUSR1, before)
    for result, undisturbed in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, undisturbed)
    assert num_during >= 2
    for steps, result in inside:
        np.testing.assert_array_equal(result, expected_inside[steps])


def test_blocks_of_one_thread_have_no_time_limit() -> None:
    """They wait for nobody: a long launch is a large problem."""
    endless("spins", 1, flag=1, block=1)
    flag = np.zeros(1, np.uint32)
    timer = threading.Timer(0.7, flag.fill, (1,))
    timer.start()
    with emulator.schedule(time_limit=0.1, workers=1):
        launch("mistakes.cu", "spins", {"flag": flag}, params_of(n=("Int32", 1)), block=1)
    timer.join()


def test_a_long_gru_is_not_taken_for_hung(rng: np.random.Generator) -> None:
    x, w, r = gru_arguments(100_000, rng)
    with emulator.schedule(warp_lanes=1, time_limit=0.1, workers=1):
        sequence, single = cudml.gru(x, w, r)
    np.testing.assert_array_equal(sequence[-1], single)


def test_what_has_a_time_limit() -> None:
    assert emulator.Schedule().seconds_without_progress == float("inf")
    assert emulator.Schedule(check=True).seconds_without_progress == 20
    assert emulator.Schedule(order="random").seconds_without_progress == 20
    assert emulator.Schedule(time_limit=3).seconds_without_progress == 3
    with emulator.schedule(time_limit=0.1), pytest.raises(KernelError) as caught:
        endless("endless_polling", 0, block=3)
    named = "time_limit of cudml.devices.emulator.schedule or of CUDML_EMULATOR"
    assert named in caught.value.reports[0]
    with emulator.schedule(time_limit=0.1), pytest.raises(KernelError) as caught:
        endless("spins", 1, block=2)
    assert named in caught.value.reports[0]


STOPPED = """
import sys
import numpy as np
from cudml.devices import emulator
from tests.devices.emulator.support import launch
from tests.support.params import params_of

counter = np.memmap(sys.argv[1], np.uint32, "r+", shape=2)
with emulator.schedule(time_limit=2.0):
    launch("waits.cu", "counts", {"counter": counter}, params_of(n=("UInt32", 600_000_000)), block=2)
"""


def test_a_stopped_process_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """The time limit counts CPU time."""
    file = tmp_path / "counter"
    file.write_bytes(bytes(8))
    counter = np.memmap(file, np.uint32, "r", shape=2)
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen([sys.executable, "-c", STOPPED, str(file)], cwd=root)
    while counter[1] < 200_000_000 and process.poll() is None:  # the watchdog has seen it by then
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    assert counter[1] < 600_000_000
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    assert counter[1] == 600_000_000


def test_threads_call_one_program_at_the_same_time() -> None:
    """Each of two calls waits for the other inside the kernel."""
    step = KernelLaunch(
        source=str(KERNELS / "waits.cu"),
        function="meet",
        template=(),
        grid=(1, 1, 1),
        block=(2, 1, 1),
        buffers=("arrived",),
        params=params_of(n=("UInt32", 2)),
    )
    arrived = np.zeros(1, np.uint32)
    errors: list[BaseException] = []

    with emulator.schedule(time_limit=10):
        program = emulator.get_device().load(Plan("test", ("arrived",), (step,)))

    def call() -> None:
        with emulator.schedule(time_limit=10):
            program([arrived], None)

    threading.excepthook, before = lambda args: errors.append(args.exc_value), threading.excepthook
    try:
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    assert not errors
    assert arrived[0] == 2
