"""The days of a GPU: limits, going on, missing tools, faults, and the notes of tests and kernel instances."""

import csv
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import main as bench_command
from bench.day import engine
from bench.day.command import source_digest
from bench.day.engine import DONE, FAILED, SKIPPED, STOPPED, Day, OtherOriginError
from bench.day.steps import DAYS, FOLDER, Step
from proof.sass.compiler import unavailable
from tests.gpu_instances import STOPPED as STOPPED_INSTANCE
from tests.gpu_instances import Journal

ROOT = Path(__file__).resolve().parents[2]
ORIGIN = {"device": "A GPU", "source": "1", "commit": "2"}


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Step]:
    """Makes a step of the text of a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def step(name: str, text: str, *arguments: str, seconds: int = 1, journal: str = "") -> Step:
        (tmp_path / f"step_{name}.py").write_text(text)
        return Step(name, seconds, (f"step_{name}", *arguments), journal=journal)

    return step


def run(folder: Path, steps: list[Step], seconds: float = 60, again: tuple[str, ...] = ()) -> Day:
    day = Day(1, folder, ORIGIN)
    day.run(steps, seconds, again, tell=print)
    return day


def states(day: Day) -> dict[str, str]:
    return {name: ended.state for name, ended in day.ended.items()}


def test_steps_end_as_they_do_and_the_next_run_goes_on(tmp_path: Path, scripted: Callable[..., Step]) -> None:
    """A step that ended is not run again, unless it is asked for."""
    count = "import sys; print('more', file=open(sys.argv[1] + '/count', 'a')); sys.exit(int(sys.argv[2]))"
    steps = [
        scripted("good", count, FOLDER, "0"),
        scripted("bad", count, FOLDER, "1"),
        Step("absent", 1, ("step_good",), needs=("no_such_module",)),
        Step("unchecked", 1, ("step_good",), checker=("no-such-checker",)),
    ]
    day = run(tmp_path, steps)
    assert states(day) == {"good": DONE, "bad": FAILED, "absent": SKIPPED, "unchecked": SKIPPED}
    assert day.ended["absent"].told == "not found: no_such_module"
    assert day.ended["unchecked"].told == "not found: no-such-checker"
    assert states(run(tmp_path, steps)) == states(day)
    assert (tmp_path / "count").read_text().count("more") == 2
    run(tmp_path, steps, again=("bad",))
    assert (tmp_path / "count").read_text().count("more") == 3


def test_a_step_is_stopped_at_its_limit_with_all_that_it_started(
    tmp_path: Path, scripted: Callable[..., Step]
) -> None:
    """It is interrupted first, so that it can say what it did, and the next step still has its time."""
    slow = """if True:
        import subprocess, sys, time
        deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); print(flush=True); time.sleep(99)"
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
        child.stdout.readline()
        print("child", child.pid, flush=True)
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    begun = time.monotonic()
    day = run(tmp_path, [scripted("slow", slow), scripted("next", "print('came')")], seconds=16)
    assert time.monotonic() - begun < 16
    assert states(day) == {"slow": STOPPED, "next": DONE}
    assert "interrupted" in day.ended["slow"].told.splitlines()
    log = (tmp_path / "day1.log").read_text()
    child = int(log.partition("child ")[2].split()[0])
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()
    assert states(run(tmp_path, [scripted("slow", "")])) == {"slow": DONE, "next": DONE}


def test_a_step_without_time_is_not_begun(tmp_path: Path, scripted: Callable[..., Step]) -> None:
    day = run(tmp_path, [scripted("late", "print('ran')")], seconds=1)
    assert states(day) == {"late": STOPPED}
    assert not (tmp_path / "day1.log").exists()


def test_time_that_is_left_over_goes_to_the_steps_after(
    tmp_path: Path, scripted: Callable[..., Step]
) -> None:
    told: list[str] = []
    steps = [scripted("quick", "", seconds=30), scripted("other", "", seconds=10)]
    Day(1, tmp_path, ORIGIN).run(steps, 40, (), told.append)
    assert [text for text in told if "at most" in text] == ["quick: at most 30 s", "other: at most 40 s"]


def test_a_step_that_a_fault_ended_goes_on_in_a_new_process(
    tmp_path: Path, scripted: Callable[..., Step]
) -> None:
    """It goes on as long as each process notes more; otherwise it has failed."""
    faulty = """if True:
        import os, pathlib, sys
        notes = pathlib.Path(sys.argv[1])
        done = len(notes.read_text()) if notes.exists() else 0
        if done == 3:
            sys.exit("three faults")
        notes.write_text("x" * (done + 1))
        os.abort()
    """
    step = scripted("faulty", faulty, f"{FOLDER}/notes", journal="notes")
    day = run(tmp_path, [step])
    assert states(day) == {"faulty": FAILED}
    assert day.ended["faulty"].told.splitlines()[-1] == "three faults"
    assert (tmp_path / "notes").read_text() == "xxx"


def test_results_of_other_sources_are_not_mixed(tmp_path: Path, scripted: Callable[..., Step]) -> None:
    run(tmp_path, [scripted("good", "")])
    with pytest.raises(OtherOriginError, match=r"has results of device A GPU, not B GPU; source 1, not 3"):
        Day(1, tmp_path, ORIGIN | {"device": "B GPU", "source": "3"})


def test_a_long_output_keeps_its_ends(
    tmp_path: Path, scripted: Callable[..., Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_LOG_BYTES", 1000)
    day = run(tmp_path, [scripted("talkative", "print('first', *range(4000), 'last')")])
    log = (tmp_path / "day1.log").read_text()
    assert 1000 < len(log) < 1100
    assert "first 0 1" in log
    assert "bytes left out" in log
    assert log.endswith("3999 last\n")
    assert day.ended["talkative"].told.endswith("3999 last")


def test_each_day_fits_ten_minutes_and_leaves_few_files(capsys: pytest.CaptureFixture[str]) -> None:
    """The files are few enough to copy by hand; the shares are the seconds that a day has by default."""
    for number, steps in DAYS.items():
        assert len({step.name for step in steps}) == len(steps)
        assert 540 <= sum(step.seconds for step in steps) <= 570, number
        assert bench_command(["day", str(number), "--list", "--results", "."]) == 0
    told = capsys.readouterr().out
    assert all(step.name in told for steps in DAYS.values() for step in steps)


def test_without_a_gpu_a_day_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "bench", "day", "1", "--results", str(tmp_path)]
    without = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=without, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no GPU: ")
    with pytest.raises(SystemExit, match="no step fly; there are build, tests, memcheck"):
        bench_command(["day", "1", "--results", str(tmp_path), "--again", "fly"])
    assert [*tmp_path.iterdir()] == []


def test_the_digest_is_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/a.cu").write_text("1")
    monkeypatch.setattr("bench.day.command.ROOT", tmp_path)
    first = source_digest()
    (tmp_path / "kernels/a.csv").write_text("measured")
    assert source_digest() == first
    (tmp_path / "kernels/a.cu").write_text("2")
    assert source_digest() != first


@pytest.mark.parametrize("number", DAYS)
def test_dry_run(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every step over the stand-in for CUDA, to its end. A second run has nothing to do."""
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    command = ["day", str(number), "--dry-run", "--results", str(tmp_path)]
    code = bench_command(command)
    told = capsys.readouterr().out
    log = (tmp_path / f"day{number}.log").read_text()
    assert code == 0, f"{told}\n{log[-4000:]}"
    assert re.search(rf"^the stand-in, day {number}: (\d+) of \1 steps done$", told, re.MULTILINE)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) <= 8
    assert bench_command(command) == 0
    assert {name for name in files if (tmp_path / name).stat().st_mtime_ns != files[name]} == set()


TESTS = """
import os, pytest, time

def test_right(): pass

def test_wrong(): assert 1 == 2, "one is not two"

@pytest.mark.skip(reason="none here")
def test_skipped(): pass

def test_crash():
    if not os.path.exists("again"): os.abort()

def test_last(): pass
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_outcomes_of_tests_are_noted_as_they_end(tmp_path: Path, processes: str) -> None:
    """Tests that ended are left out of the next run, also where workers run them; a crash counts."""
    text = TESTS if processes != "0" else TESTS.replace("os.abort()", "os._exit(3)")
    (tmp_path / "test_these.py").write_text(text)
    notes = tmp_path / "outcomes.csv"
    command = noting(notes, processes)

    def outcomes() -> dict[str, str]:
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
        with notes.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len({row["test"] for row in rows}) == len(rows)
        messages = {row["test"].partition("::")[2]: row["message"] for row in rows}
        assert messages["test_wrong"].startswith("AssertionError: one is not two")
        assert messages["test_skipped"] == "Skipped: none here"
        return {row["test"].partition("::")[2]: row["outcome"] for row in rows}

    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    expected = {"test_right": "passed", "test_wrong": "failed", "test_skipped": "skipped"}
    first = outcomes()
    if processes == "0":  # the process of all tests has ended
        assert first == expected
        (tmp_path / "again").touch()
        assert outcomes() == expected | {"test_crash": "passed", "test_last": "passed"}
    else:
        assert first == expected | {"test_crash": "failed", "test_last": "passed"}
        noted = notes.read_text()
        assert set(outcomes()) == set(first)
        assert notes.read_text() == noted


def noting(notes: Path, processes: str) -> list[str]:
    plugin = ("-p", "bench.day.outcomes", "--outcomes", str(notes))
    options = ("-p", "no:cacheprovider", "-n", processes, "-q")
    return [sys.executable, "-m", "pytest", *plugin, *options, "test_these.py"]


GPU_LOST = """
import sys, types

class CUDARuntimeError(Exception): pass

def synchronize():
    if lost: raise CUDARuntimeError
lost = []
runtime = types.SimpleNamespace(deviceSynchronize=synchronize, CUDARuntimeError=CUDARuntimeError)
sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))

def test_1(): assert not lost
def test_2():
    lost.append(1)
    assert not lost
def test_3(): assert not lost
def test_4(): assert not lost
"""


def test_a_fault_on_the_gpu_fails_one_test(tmp_path: Path) -> None:
    """The tests after it run in a new worker."""
    (tmp_path / "test_these.py").write_text(GPU_LOST)
    notes = tmp_path / "outcomes.csv"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    command = noting(notes, "1")
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    with notes.open(newline="") as file:
        outcomes = {row["test"][-1]: row["outcome"] for row in csv.DictReader(file)}
    assert outcomes == {"1": "passed", "2": "failed", "3": "passed", "4": "passed"}


def test_an_instance_that_ended_its_process_is_a_problem(tmp_path: Path) -> None:
    """One that was stopped from outside is not."""
    path = tmp_path / "journal.csv"
    journal = Journal(path)
    for name, state in {"a": "ran", "b": "begun", "c": "failed", "d": STOPPED_INSTANCE}.items():
        journal.note(name, "begun")
        journal.note(name, state)
    assert Journal(path).states == {"a": "ran", "b": "begun", "c": "failed", "d": STOPPED_INSTANCE}
    assert Journal(path).problems == ["b: begun", "c: failed"]
