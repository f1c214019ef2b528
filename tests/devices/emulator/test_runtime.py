"""The emulator's runtime: diagnosis of mistakes, thread orders, launches from several threads."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.errors import CompilerError, KernelError, SettingError
from cudml.plans import Copy, Fill, MatMul, Plan, Workspace
from tests.devices.emulator.support import EVERY_ORDER, KERNELS, launch, line_of
from tests.support.new_process import in_new_process
from tests.support.params import params_of

every_order = pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
SOURCE = "mistakes.cu"


def report_of(function: str, n: int = 0, **options: object) -> str:
    """The one report of a kernel of mistakes.cu, which must fail."""
    out = np.zeros(128, np.int32)
    with pytest.raises(KernelError) as caught:
        launch(SOURCE, function, {"out": out}, params_of(n=("Int32", n)), **options)  # type: ignore[arg-type]
    assert len(caught.value.reports) == 1
    return caught.value.reports[0]


def at(text: str) -> str:
    return re.escape(line_of(SOURCE, text))


@every_order
@pytest.mark.parametrize(
    ("function", "n", "here", "pattern"),
    [
        ("divergent_barrier", 40, "side", "divergent barrier: .* wait in __syncthreads at .*mistakes.cu:"),
        ("exit_before_barrier", 40, "after the exit", "divergent barrier: .* (have ended|ended while)"),
        ("exit_while_others_wait", 40, "some wait", "divergent barrier: .* (have ended|ended while)"),
    ],
)
def test_divergent_barriers(order: str, seed: int, function: str, n: int, here: str, pattern: str) -> None:
    """Legal on the device, so only the strict schedule refuses them."""
    with emulator.schedule(order, seed):
        launch(SOURCE, function, {"out": np.zeros(64, np.int32)}, params_of(n=("Int32", n)), block=64)
    with emulator.schedule(order, seed, strict=True):
        report = report_of(function, n, block=64)
    assert re.search(pattern, report)
    lines = KERNELS.joinpath(SOURCE).read_text().splitlines()
    assert here in lines[int(re.search(r"mistakes.cu:(\d+): ", report)[1]) - 1]  # type: ignore[index]
    assert re.search(r"\[block \(0,0,0\) thread \(\d+,0,0\)\]$", report)


def test_a_divergent_barrier_names_both_lines() -> None:
    with emulator.schedule(strict=True):
        report = report_of("divergent_barrier", 40, block=64)
    here, there = line_of(SOURCE, "second side"), line_of(SOURCE, "first side")
    expected = f"{here}: divergent barrier: this thread is at __syncthreads while 40 thread(s) of the block"
    assert f"{expected} wait in __syncthreads at " in report
    assert report.endswith(f"{there} [block (0,0,0) thread (40,0,0)]")


@every_order
def test_barriers_of_two_kinds_are_refused(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        report = report_of("mixed_barriers", 40, block=64)
    assert "__syncthreads_or" in report
    assert "divergent barrier" in report
    assert re.search(at("plain"), report)
    assert re.search(at("voting"), report)


@every_order
def test_a_mask_without_the_caller(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        report = report_of("wrong_mask", 0x0000FFFF)
    assert re.search(
        at("not my mask") + r": lane (1[6-9]|2\d|3[01]) calls __shfl_sync with mask 0x0000ffff, which", report
    )


@every_order
def test_two_collectives_of_one_mask(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        report = report_of("mixed_collectives", 20)
    assert "of the same mask 0xffffffff wait in " in report
    assert re.search(at("// shuffle"), report)
    assert re.search(at("// sync"), report)


def test_two_collectives_of_one_mask_name_lanes_and_lines() -> None:
    report = report_of("mixed_collectives", 20)
    assert f"{line_of(SOURCE, '// sync')}: lane 20 calls __syncwarp while lanes 0x000fffff" in report
    assert report.endswith(f"{line_of(SOURCE, '// shuffle')} [block (0,0,0) thread (20,0,0)]")


@every_order
def test_masks_that_wait_for_each_other(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        pair = report_of("mutual_masks")
        ring = report_of("cyclic_masks")
    assert re.search("warp collectives wait for each other", pair)
    assert re.search(at("first of a pair"), pair)
    assert re.search(at("second of a pair"), pair)
    # Whichever lane closes the ring sees the one that waits for it.
    assert "warp collectives wait for each other" in ring or "deadlock" in ring


@every_order
def test_deadlock_lists_who_waits_where(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        report = report_of("deadlock", block=64)
    assert report.startswith("deadlock: no thread of the block(s) can make progress\n")
    assert "block (0,0,0): 64 of 64 threads alive" in report
    assert re.search(r"32 threads \[0-31\] wait in named barrier 1 at .*" + at("// half of"), report)
    assert re.search(r"32 threads \[32-63\] wait in named barrier 2 at .*" + at("// the other half"), report)


@every_order
@pytest.mark.parametrize("workers", [1, 2])
def test_polling_that_never_ends_is_stopped(order: str, seed: int, workers: int) -> None:
    with emulator.schedule(order, seed, time_limit=0.1, workers=workers):
        report = report_of("endless_polling", grid=2, block=3)
    assert "endless polling: for 0.1 s nothing but waiting loops could run" in report
    assert re.search(r"3 threads \[0-2\] wait in polling at .*" + at("never set"), report)


@every_order
@pytest.mark.parametrize("n", [1, 2], ids=["plain loop", "after a barrier"])
def test_a_loop_that_never_gives_way_is_stopped(order: str, seed: int, n: int) -> None:
    with emulator.schedule(order, seed, time_limit=0.2, workers=2):
        report = report_of("spins", n, grid=2, block=33)
        assert "a thread ran for 0.2 s without ending or waiting for another one" in report
        assert re.search(r"\[block \([01],0,0\) thread \(\d+,0,0\)\]$", report)
        params = params_of(n=("Int32", 0))
        launch(SOURCE, "spins", {"flag": np.zeros(1, np.uint32)}, params, grid=2, block=33)


def test_a_long_launch_that_makes_progress_is_not_stopped() -> None:
    counter, seen = np.zeros(1, np.uint32), np.zeros(1 << 16, np.uint32)
    start = time.monotonic()
    with emulator.schedule("random", time_limit=0.15, workers=1):
        while time.monotonic() - start < 0.5:
            counter[:] = 0
            buffers = {"counter": counter, "order": seen}
            launch(SOURCE, "block_order", buffers, params_of(n=("Int32", 0)), grid=1 << 16, block=64)
    assert len(set(seen.tolist())) == 1 << 16


@every_order
def test_assertions_and_traps(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        failed = report_of("failing_assertion", 31)
        trapped = report_of("trap")
    assert "assertion failed: threadIdx.x < static_cast<UInt32>(params.n) [block" in failed
    assert re.search(at("too small") + ": .* thread \\(31,0,0\\)", failed)
    assert re.search(at("by hand") + ": __trap was called .*thread \\(5,0,0\\)", trapped)


@every_order
@pytest.mark.parametrize(("index", "offset"), [(32, 128), (-1, -4)])
def test_guards_around_shared_storage(order: str, seed: int, index: int, offset: int) -> None:
    with emulator.schedule(order, seed, guard=True):
        report = report_of("past_shared_storage", index, shared_bytes=128)
    assert f"a byte at offset {offset if offset > 0 else -1} was overwritten" in report or offset < 0
    assert "outside its 128 bytes" in report


def test_shared_storage_smaller_than_its_struct() -> None:
    report = report_of("past_shared_storage", 0, shared_bytes=124)
    assert "less shared storage than the kernel's storage struct needs" in report
    assert re.search(at("storage of 128 bytes"), report)


@pytest.mark.parametrize("poison", [0x7FC00000, 0x3F800000])
def test_poison_fills_shared_storage(poison: int) -> None:
    out = np.zeros(32, np.uint32)
    with emulator.schedule(poison=poison):
        params = params_of(n=("Int32", 0))
        launch(SOURCE, "past_shared_storage", {"out": out}, params, shared_bytes=128)
    assert out[0] == 1
    assert (out[1:] == poison).all()


@every_order
def test_stack_overflow_is_noticed_and_a_larger_stack_helps(order: str, seed: int) -> None:
    with emulator.schedule(order, seed):
        report = report_of("large_local", 1, block=1, template=(40000,))
    assert "overflowed its stack of 32 KiB; stack_kib raises it" in report
    for stack_kib, num_bytes in ((128, 40000), (64, 40000), (0, 20000)):
        out = np.zeros(64, np.int32)
        with emulator.schedule(order, seed, stack_kib=stack_kib):
            options = {"block": 64, "template": (num_bytes,)}
            launch(SOURCE, "large_local", {"out": out}, params_of(n=("Int32", 3)), **options)
        assert (out == 3).all()


def mapped_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_stacks_of_another_size_are_freed() -> None:
    def run(stack_kib: int) -> None:
        with emulator.schedule(stack_kib=stack_kib):
            params = params_of(n=("Int32", 1))
            buffers = {"out": np.zeros(64, np.int32)}
            launch(SOURCE, "large_local", buffers, params, block=64, template=(20000,))

    run(1024)
    before = mapped_bytes()
    for _ in range(20):
        run(2048)
        run(1024)
    assert mapped_bytes() - before < 512 << 20  # kept, all those stacks would be 4 GiB


@every_order
def test_the_launch_after_an_error_is_right(order: str, seed: int) -> None:
    with emulator.schedule(order, seed, strict=True):
        for _ in range(5):
            report_of("divergent_barrier", 40, block=64)
            out = np.zeros(64, np.int32)
            params = params_of(n=("Int32", 64))
            launch(SOURCE, "divergent_barrier", {"out": out}, params, block=64)
            assert (out == 1).all()


def order_of(function: str, order: str, seed: int, **options: int) -> list[int]:
    counter, seen = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    with emulator.schedule(order, seed, workers=1):
        buffers = {"counter": counter, "order": seen}
        launch(SOURCE, function, buffers, params_of(n=("Int32", 0)), **options)  # type: ignore[arg-type]
    return seen.tolist()


@pytest.mark.parametrize(
    ("function", "options"), [("block_order", {"grid": 64}), ("thread_order", {"block": 64})]
)
def test_orders_of_blocks_and_threads(function: str, options: dict[str, int]) -> None:
    ascending = list(range(64))
    assert order_of(function, "forward", 0, **options) == ascending
    assert order_of(function, "reverse", 0, **options) == ascending[::-1]
    shuffled = [order_of(function, "random", seed, **options) for seed in range(4)]
    assert len(set(map(tuple, shuffled))) == 4
    assert all(sorted(once) == ascending for once in shuffled)
    assert order_of(function, "random", 3, **options) == shuffled[3]


@pytest.mark.parametrize(
    ("grid", "block", "options", "text"),
    [
        ((0, 1, 1), (32, 1, 1), {}, "a grid of 0x1x1 blocks"),
        ((1, 1, 1), (1025, 1, 1), {}, "a block of 1025x1x1 threads"),
        ((3, 1, 1), (32, 1, 1), {"cluster_blocks": 2}, "clusters of 2 blocks in a grid of 3"),
        ((17, 1, 1), (32, 1, 1), {"cluster_blocks": 17}, "clusters of 17 blocks"),
    ],
)
def test_impossible_launches(
    grid: tuple[int, int, int], block: tuple[int, int, int], options: dict[str, int], text: str
) -> None:
    assert text in report_of("trap", grid=grid, block=block, **options)


def test_arguments_that_do_not_fit_the_kernel() -> None:
    with pytest.raises(CompilerError, match="trap: n is launched as Int64 at byte 0"):
        launch(SOURCE, "trap", {"out": np.zeros(1, np.int32)}, params_of(n=("Int64", 1)))
    with pytest.raises(CompilerError, match="trap is launched with 2 pointers"):
        launch(SOURCE, "trap", {"a": np.zeros(1), "b": np.zeros(1)}, params_of(n=("Int32", 1)))


def test_launches_from_several_threads() -> None:
    """The pool serves one launch at a time; every launch is complete and none gets another's blocks."""
    wrong = []

    def run(number: int) -> None:
        for _ in range(20):
            x = np.full(96 * 16, number, np.int32)
            out = np.zeros((4, 16, 96), np.int32)
            params = params_of(mask=("UInt32", 0), width=("Int32", 0), amount=("Int32", 0))
            with emulator.schedule(workers=2):
                options = {"grid": 16, "block": 96, "shared_bytes": 4096}
                launch("collectives.cu", "barriers", {"x": x, "out": out}, params, **options)
            if not ((out[0] == number).all() and (out[3] == 96 * (number & 1)).all()):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@in_new_process
def test_a_forked_process_can_launch() -> None:
    def blocks_seen() -> int:
        counter, seen = np.zeros(1, np.uint32), np.zeros(4096, np.uint32)
        with emulator.schedule(workers=2):
            buffers = {"counter": counter, "order": seen}
            launch(SOURCE, "block_order", buffers, params_of(n=("Int32", 0)), grid=4096, block=256)
        return len(set(seen.tolist()))

    assert blocks_seen() == 4096
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if blocks_seen() == 4096 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k(int* out, Params p) { out[0] = __activemask(); }", "__activemask"),
        (
            "__global__ void k(int* out, Params p) { __nonexistent_intrinsic(out); }",
            "__nonexistent_intrinsic",
        ),
        (
            "__global__ void k(int* out, Params p) { __shared__ int x[4]; out[0] = x[0]; }",
            "shared_variables_do_not_exist_in_this_dialect_use_SHARED_STORAGE",
        ),
        (
            "struct S { char c[12]; }; __global__ void k(int* out, Params p) { __shfl_sync(~0u, S{}, 0); }",
            "no matching function for call to",
        ),
    ],
)
def test_what_is_not_offered_does_not_compile(text: str, expected: str, tmp_path: Path) -> None:
    source = tmp_path / "unknown.cu"
    source.write_text('#include "common/intrinsics.cuh"\nstruct Params { int n; };\n' + text)
    with pytest.raises(CompilerError, match=r"unknown\.cu") as caught:
        launch(source, "k", {"out": np.zeros(4, np.int32)}, params_of(n=("Int32", 1)))
    assert expected in str(caught.value)


@pytest.mark.parametrize("element", ["float32", "float16"])
def test_matrix_products_fills_and_copies(element: str, rng: np.random.Generator) -> None:
    m, n, k = 5, 7, 11
    a = rng.integers(-8, 8, 3 + m * k).astype(element)
    b = rng.integers(-8, 8, 2 + n * k).astype(element)
    out = np.full(4 + m * n, 9, np.float32)
    steps = (
        MatMul("a", "b", "scratch", m, n, k, element, a_offset=3, b_offset=2, out_offset=1),
        MatMul("a", "b", "out", m, n, k, element, a_offset=3, b_offset=2, out_offset=4),
        Fill("out", 12, 0xFF),
        Copy("out", "out", 8, source_offset=4, target_offset=16 + 4 * (m * n - 2)),
    )
    plan = Plan(
        "test", ("a", "b", "out"), steps, (Workspace("other", 1), Workspace("scratch", 4 * (1 + m * n)))
    )
    workspace = np.zeros(plan.temporary_bytes, np.uint8)
    emulator.get_device().load(plan)((a, b, out), workspace)
    expected = a[3:].reshape(m, k).astype(np.float32) @ b[2:].reshape(n, k).astype(np.float32).T
    np.testing.assert_array_equal(out[4:-2], expected.ravel()[:-2])
    assert (out[-2:].view(np.uint32) == 0xFFFFFFFF).all()
    assert (out[:3].view(np.uint32) == 0xFFFFFFFF).all()
    assert out[3] == 9
    scratch = workspace[256:].view(np.float32)
    np.testing.assert_array_equal(scratch[1 : 1 + m * n].reshape(m, n), expected)


def test_schedules_nest_and_end() -> None:
    with emulator.schedule("random", seed=3, time_limit=5.0):
        with emulator.schedule("reverse") as inner:
            assert (inner.order, inner.seed, inner.time_limit) == ("reverse", 0, 5.0)
        assert emulator.current_schedule().order == "random"
    assert emulator.current_schedule().order == "fast"
    with pytest.raises(
        ValueError, match="order is 'sideways', must be one of fast, forward, reverse, random"
    ):
        emulator.schedule("sideways").__enter__()


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("check", {"check": True}),
        ("order=random, seed=3,poison=0x7fc00000", {"order": "random", "seed": 3, "poison": 0x7FC00000}),
        ("strict,workers=1,time_limit=2.5", {"strict": True, "workers": 1, "time_limit": 2.5}),
        ("", {"order": "fast", "check": False}),
    ],
)
def test_options_from_the_environment(
    text: str, attributes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_EMULATOR", text)
    schedule = emulator.current_schedule()
    assert {name: getattr(schedule, name) for name in attributes} == attributes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chekc", " has 'chekc'; it takes NAME=VALUE with NAME one of order, seed"),
        ("order", ": order is '', must be one of fast, forward"),
        ("order=up", ": order is 'up', must be one of fast, forward"),
        ("seed=x", ": seed is 'x', must be an integer"),
        ("time_limit=x", ": time_limit is 'x', must be a number of seconds"),
        ("strict=maybe", ": strict is 'maybe', must be 0, 1 or left out, which is 1"),
    ],
)
def test_wrong_options_in_the_environment(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_EMULATOR", text)
    with pytest.raises(SettingError, match=f"^CUDML_EMULATOR{message}"):
        emulator.current_schedule()


def test_kernels_with_a_null_pointer(tmp_path: Path) -> None:
    source = tmp_path / "null.cu"
    source.write_text(
        '#include "common/intrinsics.cuh"\nstruct Params { int n; };\n'
        "__global__ void k(const int* absent, int* out, Params p) { out[0] = absent ? 1 : p.n; }\n"
    )
    out = np.zeros(1, np.int32)
    launch(source, "k", {"absent": None, "out": out}, params_of(n=("Int32", 7)), block=1)
    assert out[0] == 7
