"""The check mode finds every planted bug at its line, and reports nothing on its correct twin."""

import re
import shlex
import shutil
import sys
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

from cudml.devices import Program, emulator
from cudml.devices.emulator import build, checked
from cudml.errors import CompilerError, KernelError
from cudml.plans import Copy, Fill, KernelLaunch, LibraryStep, MatMul, Plan, Workspace
from tests.devices.emulator.support import EVERY_ORDER, KERNELS, launch, line_of
from tests.support.params import params_of

NUM_THREADS = 96

every_order = pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)

#: Planted bug: blocks, its first report, options of the launch.
BUGS: dict[str, tuple[int, str, dict[str, object]]] = {
    "missing_barrier": (1, "race: |never written", {}),
    "scan_without_second_barrier": (1, "race: ", {}),
    "missing_syncwarp": (1, "race: |never written", {}),
    "shuffle_alone": (1, "race: |never written", {}),
    "vote_alone": (1, "race: |never written", {}),
    "match_alone": (1, "race: |never written", {}),
    "reduction_alone": (1, "race: |never written", {}),
    "stale_exchange": (1, "race: ", {}),
    "named_barrier_of_others": (1, "race: |never written", {}),
    "counter_never_cleared": (1, "never written; byte offset 768 of shared storage", {}),
    "tail_not_written": (1, "never written; byte offset 380 of shared storage", {}),
    "divergent_barrier": (1, "divergent barrier: ", {}),
    "mask_of_lanes_that_left": (1, "of it have ended|wait in|with mask 0xffffffff", {}),
    "shared_index_past_the_end": (
        1,
        r"index out of bounds: 96 in an array of type '(int|Int32) ?\[96\]'",
        {},
    ),
    "shared_array_past_the_end": (1, "index out of bounds: 96 in an array of 96", {}),
    "shared_storage_past_the_end": (
        1,
        "out-of-bounds write of 4 bytes at byte offset 772 of shared storage, which has 772 bytes",
        {},
    ),
    "read_past_the_end": (
        2,
        "out-of-bounds read of 4 bytes at byte offset 768 of in, which has 768 bytes",
        {},
    ),
    "write_before_the_start": (
        2,
        "out-of-bounds write of 4 bytes at byte offset -4 of out, which has 768 bytes",
        {},
    ),
    "accumulates_into_the_output": (2, "never written; byte offset \\d+ of out", {}),
    "scratch_not_written": (2, "never written; byte offset 28 of scratch", {}),
    "writes_its_input": (2, "a write to an input; byte offset \\d+ of in", {}),
    "misaligned_helper": (2, "misaligned access: the address must be a multiple of 16", {}),
    "misaligned_vector": (2, "misaligned access: the address 0x[0-9a-f]+[4c] must be a multiple of 8", {}),
    "null_pointer": (2, "out-of-bounds read of 4 bytes at a null pointer", {}),
    "plain_sum_of_blocks": (2, "race: this (read|write) and an earlier (read|write) by block", {}),
    "flag_without_release": (
        2,
        "race: this read and an earlier write by block \\(0,0,0\\)",
        {"cooperative": True},
    ),
    "last_block_without_barrier": (3, "race: this read and an earlier write|never written", {}),
    "last_block_without_fence": (3, "race: this read and an earlier write by block", {}),
    "acquired_by_another_block": (
        3,
        "race: this read and an earlier write by block \\(0,0,0\\) thread \\(0,0,0\\)",
        {"cooperative": True},
    ),
    "fence_before_the_write": (
        2,
        "race: this read and an earlier write by block \\(0,0,0\\) thread \\(5,0,0\\)",
        {"cooperative": True},
    ),
    "store_over_a_release": (
        3,
        "race: this read and an earlier write by block \\(0,0,0\\) thread \\(0,0,0\\)",
        {"cooperative": True},
    ),
    "cluster_reads_too_late": (2, "race: ", {"cluster_blocks": 2}),
    "cluster_reads_after_the_end": (
        2,
        "race: this access and the end of block [01], whose shared",
        {"cluster_blocks": 2},
    ),
}

#: Correct kernels that an inexact checker would report.
EASILY_MISTAKEN: dict[str, tuple[int, dict[str, object]]] = {
    "warp_then_release": (2, {"cooperative": True}),
    "relaxed_poll_then_fence": (2, {"cooperative": True}),
    "store_after_its_own_release": (2, {"cooperative": True}),
    "place_by_shuffle": (1, {}),
    "reads_constants": (2, {}),
    "cleared_and_copied_in_one_go": (1, {}),
}

#: Compilers that the other tests do not use; a test is skipped if its compiler is not installed.
OTHER_COMPILERS = [
    pytest.param(
        "clang++", marks=pytest.mark.skipif(not shutil.which("clang++"), reason="clang++ is not installed")
    ),
    pytest.param(
        shlex.join([sys.executable, "-m", "ziglang", "c++"]),
        marks=pytest.mark.skipif(not find_spec("ziglang"), reason="ziglang is not installed"),
        id="ziglang",
    ),
]


@cache
def program(
    name: str, has_bug: bool, num_blocks: int, num_threads: int = NUM_THREADS, is_alone: bool = False
) -> Program:
    """A planted kernel; `is_alone` launches its blocks one by one, independent of the table."""
    options = BUGS[name][2] if name in BUGS else EASILY_MISTAKEN.get(name, (0, {}))[1]
    options = {} if is_alone else options
    step = KernelLaunch(
        source=str(KERNELS / "planted.cu"),
        function=name,
        template=(has_bug,),
        grid=(num_blocks, 1, 1),
        block=(num_threads, 1, 1),
        buffers=("in", "out", "flags", "scratch"),
        params=params_of(n=("Int32", num_blocks * num_threads)),
        shared_bytes=772,
        **options,  # type: ignore[arg-type]
    )
    spaces = (Workspace("flags", 16), Workspace("scratch", 4 * num_blocks * num_threads))
    plan = Plan("planted", ("in", "out"), (Fill("flags", 16), step), spaces, outputs=("out",))
    return emulator.get_device().load(plan)


def run(
    name: str, has_bug: bool, num_blocks: int, num_threads: int = NUM_THREADS, is_alone: bool = False
) -> np.ndarray:
    loaded = program(name, has_bug, num_blocks, num_threads, is_alone)
    values = np.arange(1, num_blocks * num_threads + 1, dtype=np.int32)
    out = np.full(num_blocks * num_threads, -1, np.int32)
    try:
        loaded((values, out), None)
    finally:
        assert (values == np.arange(1, len(values) + 1)).all()
    return out


def marked_lines(name: str) -> set[int]:
    lines = KERNELS.joinpath("planted.cu").read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if re.search(rf"// bug:.*\b{name}\b", line)}
    assert marked
    return marked


def check_reports(reports: list[str], name: str) -> None:
    """Compare the reports with the table's entry of a planted bug."""
    assert re.search(BUGS[name][1], reports[0]), reports[0]
    for report in reports:
        place = re.match(r"\S*planted\.cu:(\d+)", report)
        assert place, report
        assert int(place[1]) in marked_lines(name), report
        assert re.search(r"block \(\d+,0,0\) thread \(\d+,0,0\)\]$", report), report


@every_order
@pytest.mark.parametrize("name", BUGS)
def test_every_planted_bug_is_found_at_its_line(name: str, order: str, seed: int) -> None:
    with emulator.schedule(order, seed, check=True), pytest.raises(KernelError) as caught:
        run(name, True, BUGS[name][0])
    check_reports(caught.value.reports, name)


@pytest.mark.parametrize("compiler", OTHER_COMPILERS)
def test_other_compilers_find_the_same(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where compilers differ: bounds of arrays, alignment, null pointers, cleared memory."""
    monkeypatch.setenv("CUDML_CXX", compiler)
    # `program` is cached under arguments that do not name the compiler.
    monkeypatch.setattr(sys.modules[__name__], "program", program.__wrapped__)
    with emulator.schedule(check=True):
        for name in ("shared_index_past_the_end", "misaligned_vector", "null_pointer", "tail_not_written"):
            with pytest.raises(KernelError) as caught:
                run(name, True, BUGS[name][0])
            check_reports(caught.value.reports, name)
        name = "cleared_and_copied_in_one_go"
        assert (run(name, False, 1) == np.arange(NUM_THREADS, 0, -1)).all()


@every_order
@pytest.mark.parametrize("name", [*BUGS, *EASILY_MISTAKEN])
def test_no_report_on_what_is_right(name: str, order: str, seed: int) -> None:
    num_blocks = BUGS[name][0] if name in BUGS else EASILY_MISTAKEN[name][0]
    expected = run(name, False, num_blocks)
    with emulator.schedule(order, seed, check=True):
        np.testing.assert_array_equal(run(name, False, num_blocks), expected)


@every_order
def test_a_thread_that_ends_completes_what_others_wait_in(order: str, seed: int) -> None:
    expected = run("completed_by_an_exit", False, 1)
    with emulator.schedule(order, seed, check=True, strict=False):
        np.testing.assert_array_equal(run("completed_by_an_exit", False, 1), expected)
    with emulator.schedule(order, seed, check=True), pytest.raises(KernelError, match="ended"):
        run("completed_by_an_exit", False, 1)


def test_a_race_names_both_places() -> None:
    with emulator.schedule("forward", check=True), pytest.raises(KernelError) as caught:
        run("stale_exchange", True, 1)
    read = line_of("planted.cu", "(kHasBug ? next : now)")
    write = line_of("planted.cu", "next[t] = value;")
    assert re.fullmatch(
        rf"\S*{write} in stale_exchange<true>[^:]*: race: this write and an earlier read by block \(0,0,0\) "
        rf"thread \(\d+,0,0\) at \S*{read} in stale_exchange<true>.* are not ordered; "
        r"byte offset \d+ of shared storage \[block \(0,0,0\) thread \(\d+,0,0\)\]",
        caught.value.reports[0],
    ), caught.value.reports[0]


@pytest.mark.parametrize("order", ["fast", "forward"])
def test_a_block_does_not_inherit_what_the_one_before_has_acquired(order: str) -> None:
    """Blocks that run one after the other use the same memory in the checker."""
    with emulator.schedule(order, check=True):
        run("acquired_by_another_block", False, 3, is_alone=True)
        with pytest.raises(KernelError, match=r"race: .* \[block \(2,0,0\)"):
            run("acquired_by_another_block", True, 3, is_alone=True)


def test_more_blocks_than_any_table_has() -> None:
    with emulator.schedule(check=True):
        out = run("many_blocks", False, 4500, 1)
    assert (out == 0).all()


def test_the_process_goes_on_and_the_next_launch_is_right() -> None:
    with emulator.schedule("random", 1, check=True):
        for _ in range(3):
            with pytest.raises(KernelError):
                run("missing_barrier", True, 1)
            assert (run("missing_barrier", False, 1) == np.arange(96, 0, -1)).all()
    assert (run("missing_barrier", False, 1) == np.arange(96, 0, -1)).all()


def test_outputs_stay_untouched_when_something_is_found() -> None:
    values, out = np.arange(192, dtype=np.int32), np.full(192, -1, np.int32)
    loaded = program("read_past_the_end", True, 2)
    with emulator.schedule(check=True), pytest.raises(KernelError):
        loaded((values, out), None)
    assert (out == -1).all()


@pytest.mark.parametrize(
    ("kernel", "loop"),
    [
        ("runs_for_ever", "while (*flag == 0) {"),
        ("computes_for_ever", 'for (;;) asm volatile("" : "+r"(value));'),
    ],
)
def test_a_loop_that_never_waits_is_stopped(kernel: str, loop: str) -> None:
    """The two runtimes take turns: both are loaded, and each has to watch its own launches."""
    message = r"ran for 0\.1 s without ending or waiting"
    for _ in range(2):
        with emulator.schedule(time_limit=0.1), pytest.raises(KernelError, match=message):
            run(kernel, True, 1)
        with (
            emulator.schedule(check=True, time_limit=0.1),
            pytest.raises(KernelError, match=message) as caught,
        ):
            run(kernel, True, 1)
        assert line_of("planted.cu", loop) in caught.value.reports[0]
    with emulator.schedule(check=True, time_limit=0.1):
        run(kernel, False, 1)


def test_the_same_array_twice_is_one_buffer() -> None:
    """With a private copy each, writes through the other name would be lost."""
    memory = np.full(40, -1, np.int32)
    with emulator.schedule("forward", check=True):
        buffers = {"a": memory[:32], "b": memory[:32]}
        launch("mistakes.cu", "two_names", buffers, params_of(n=("Int32", 5)))
    np.testing.assert_array_equal(memory, [*range(5, 37), *[-1] * 8])


def test_strided_outputs_keep_their_gaps() -> None:
    memory = np.full((4, 8), 7, np.uint32)
    with emulator.schedule(check=True):
        buffers = {"x": np.arange(16, dtype=np.uint32).reshape(4, 4), "out": memory[:1, :4]}
        launch("atomics.cu", "vectors", buffers, params_of(operation=("Int32", 0)), block=1, outputs=("out",))
    assert (memory[0, :4] == [2, 3, 3, 32]).all()
    assert (memory[0, 4:] == 7).all()
    assert (memory[1:] == 7).all()


def test_library_steps_are_checked() -> None:
    product = MatMul("a", "scratch", "out", 2, 3, 4, "float32")
    operands = [np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)]

    def reports(*steps: LibraryStep) -> list[str]:
        plan = Plan("test", ("a", "out"), steps, (Workspace("scratch", 48),), outputs=("out",))
        with emulator.schedule(check=True), pytest.raises(KernelError) as caught:
            emulator.get_device().load(plan)(operands, np.zeros(256, np.uint8))
        return caught.value.reports

    assert "read of memory that was never written; byte offset 0 of scratch" in reports(product)[0]
    assert "byte offset 40 of scratch" in reports(Fill("scratch", 40), product)[0]
    assert "64 bytes at offset 0 of scratch, which has 48" in reports(Fill("scratch", 64))[0]
    copy = Copy("scratch", "out", 8, source_offset=32, target_offset=20)
    assert "byte offset 36 of scratch" in reports(Fill("scratch", 36), copy)[0]
    assert "8 bytes at offset 20 of out, which has 24" in reports(Fill("scratch", 48), copy)[0]
    # Copied memory counts as written.
    copies = Fill("scratch", 40), Copy("scratch", "scratch", 4, target_offset=40), product
    assert "byte offset 44 of scratch" in reports(*copies)[0]


def test_memory_that_is_left_zero_is_looked_at() -> None:
    """It is zero and counts as written at first, and must be zero in the end."""
    spaces = (Workspace("state", 32, is_left_zero=True), Workspace("scratch", 8))
    taken = Copy("state", "out", 8, source_offset=24)
    good = Copy("state", "scratch", 8), Fill("state", 8, 1), Copy("scratch", "state", 8)
    for steps, is_good in (((taken, *good), True), ((taken, *good, Fill("state", 12, 7)), False)):
        plan = Plan("test", ("a", "out"), steps, spaces, outputs=("out",))
        out = np.full(8, 9, np.uint8)
        with emulator.schedule(check=True):
            if is_good:
                emulator.get_device().load(plan)((np.zeros(4), out), np.ones(256, np.uint8))
                assert not out.any()
            else:
                with pytest.raises(KernelError) as caught:
                    emulator.get_device().load(plan)((np.zeros(4), out), np.ones(256, np.uint8))
                told = "state is not left zero: 12 bytes of 32, the first at byte offset 0"
                assert caught.value.reports == [told]
                assert (out == 9).all()


def test_memory_that_is_left_zero_is_the_same_for_the_next_call() -> None:
    """In the fast mode, which does not check that memory, a call sees what the last one left."""
    spaces = (Workspace("first", 8), Workspace("state", 8, is_left_zero=True))
    plan = Plan(
        "test", ("a", "out"), (Copy("state", "out", 8), Fill("state", 4, 1)), spaces, outputs=("out",)
    )
    program = emulator.get_device().load(plan)
    out = np.full(8, 9, np.uint8)
    for expected in ([0] * 8, [1] * 4 + [0] * 4):
        program((np.zeros(4), out), np.ones(plan.temporary_bytes, np.uint8))
        assert out.tolist() == expected


def test_arrays_too_large_for_the_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "_available_bytes", lambda: 1 << 20)
    values = np.zeros(1 << 20, np.float32)
    plan = Plan("copy", ("a",), (Fill("a", 4),))
    message = r"check mode needs up to 0\.07 GiB for copy, 0\.00 GiB are available"
    with emulator.schedule(check=True), pytest.raises(MemoryError, match=message):
        emulator.get_device().load(plan)((values,), None)


def test_a_compiler_that_cannot_instrument(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    wrapper = tmp_path / "plain-c++"  # type: ignore[operator]
    command = " ".join(build.compiler().command)
    wrapper.write_text(
        '#!/bin/sh\nfor a in "$@"; do\n'
        'case $a in -fsanitize*) echo "unknown option $a" >&2; exit 1;; esac\ndone\n'
        f'exec {command} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CUDML_CXX", str(wrapper))
    message = r"plain-c\+\+ cannot instrument .*\n?.*unknown option .*\n.*g\+\+ 8"
    with emulator.schedule(check=True), pytest.raises(CompilerError, match=message):
        launch("mistakes.cu", "trap", {"out": np.zeros(1, np.int32)}, params_of(n=("Int32", 1)), block=1)


def test_places_without_a_symbol_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator.symbols.shutil, "which", lambda name: None)
    with (
        emulator.schedule(check=True),
        pytest.raises(KernelError, match=r"\.so\+0x[0-9a-f]+ \(install binutils"),
    ):
        run("read_past_the_end", True, 2)


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDML_EMULATOR", "check")
    with pytest.raises(KernelError, match="out-of-bounds read"):
        run("read_past_the_end", True, 2)
