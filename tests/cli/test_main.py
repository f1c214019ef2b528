"""The command line: its output and exit codes."""

import dataclasses
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.cli import demo, shows
from cudml.cli import main as cli
from cudml.devices import Device, cuda, get_device
from proof.oracle import reverse_subsequences as reverse_oracle
from proof.oracle import top_k as top_k_oracle
from tests.dxdispatch.test_model import SLICE_MODEL, with_change, written

ROOT = Path(__file__).resolve().parents[2]


def test_demo_shows_every_case_and_exits_with_0(
    device: Device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shows, "SHOWS", shows.SHOWS[:1])  # they have tests of their own
    assert cli.main(["demo", "--device", device.name]) == 0
    printed = capsys.readouterr()
    assert "TOP_K1 example" not in printed.err  # progress is for terminals
    lines = printed.out.splitlines()
    assert lines[0] == f"cudml {cudml.__version__} on {device.name}"
    assert lines[1].split() == ["case", "output", "expected", "got"]
    assert lines[-1] == "all 19 outputs are as expected"
    rows = [line for line in lines[2:] if "  ok" in line]
    assert len(rows) == 18
    assert any(row.split("  ")[0] == "SLICE example 2" and row.count("[5 8] [13 16]") == 2 for row in rows)


def test_demo_has_the_eight_worked_examples_and_a_real_case_per_operator() -> None:
    assert [case.name for case in demo.EXAMPLES] == [
        *(f"TOP_K1 example {number}" for number in (1, 2, 3, 4)),
        *(f"SLICE example {number}" for number in (1, 2)),
        *(f"REVERSE_SUBSEQUENCES example {number}" for number in (1, 2)),
    ]
    assert len(demo.REAL_CASES) == 4


@pytest.mark.skipif(cuda.status().usable, reason="a GPU is there, and taken")
@pytest.mark.parametrize("command", ["demo", "dispatch"])
def test_the_cpu_taken_for_want_of_a_gpu_says_why(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "CASES", demo.EXAMPLES[4:5])
    monkeypatch.setattr(demo, "REAL_CASES", demo.CASES)
    monkeypatch.setattr(shows, "SHOWS", ())
    for reason in ("no CUDA driver, or one too old for this CuPy", "CuPy is not installed: pip install X"):
        monkeypatch.setattr(cuda, "status", lambda reason=reason: cuda.Status(False, reason))
        model = [str(written(tmp_path, SLICE_MODEL))] * (command == "dispatch")
        assert cli.main([command, *model]) == 0
        printed = capsys.readouterr()
        assert f"cpu ({reason})\n" in printed.out + printed.err
        assert cli.main([command, *model, "--device", "cpu"]) == 0
        assert reason not in capsys.readouterr().out


def test_demo_exits_with_1_where_something_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(device: Device) -> list[demo.Check]:
        (check,) = demo.EXAMPLES[4].run(device)
        wrong = check.got.copy()
        wrong[0, 0] = -wrong[0, 0]
        return [dataclasses.replace(check, got=wrong)]

    monkeypatch.setattr(demo, "CASES", (demo.EXAMPLES[5], demo.Case("broken", run)))
    monkeypatch.setattr(demo, "REAL_CASES", demo.CASES[1:])
    monkeypatch.setattr(shows, "SHOWS", ())
    assert cli.main(["demo", "--device", "cpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 of 2 outputs differ"
    assert [line.split()[-1] for line in lines[2:4]] == ["ok", "DIFFERS"]


F32 = np.float32
DIFFERENT = {
    "value": np.array([[2, 0]], F32),
    "dtype": np.array([[1, 0]], np.float64),
    "nan": np.array([[1, np.nan]], F32),
    "shape": np.array([[1, 0, 0]], F32),
}


@pytest.mark.parametrize("got", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_demo_notices_every_kind_of_difference(got: np.ndarray, tolerance: float) -> None:
    expected = np.array([[1, 0]], F32)
    assert demo.Check("", "", expected, expected.copy(), tolerance).is_good
    assert not demo.Check("", "", expected, got, tolerance).is_good


def test_demo_tells_signs_of_zero_apart_where_bits_are_due() -> None:
    expected, got = np.array([[1, 0]], F32), np.array([[1, -0.0]], F32)
    assert not demo.Check("", "", expected, got).is_good
    assert demo.Check("", "", expected, got, 1e-6).is_good


def test_demo_checks_with_numpy_as_the_oracles_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's expected results of real sizes agree with the oracles of the test suite."""
    seen: dict[str, Any] = {}

    def top_k(a: np.ndarray, k: int) -> Any:
        seen["top_k"] = (a, k)
        return cudml.top_k(a, k)

    def reverse(a: np.ndarray, lengths: np.ndarray, axis: int) -> Any:
        seen["reverse"] = (a, lengths, axis)
        return cudml.reverse_subsequences(a, lengths, axis)

    monkeypatch.setattr(demo, "top_k", top_k)
    monkeypatch.setattr(demo, "reverse_subsequences", reverse)
    outcomes = [demo.run_case(case, get_device("cpu")) for case in demo.REAL_CASES]
    a, k = seen["top_k"]
    values, indices = top_k_oracle.top_k(a, k, nan_last=True)
    assert outcomes[0].checks[0].expected.tobytes() == values.tobytes()
    assert (outcomes[0].checks[1].expected == indices).all()
    words, lengths, axis = seen["reverse"]
    lengths = np.broadcast_to(lengths, (*words.shape[:axis], 1, *words.shape[axis + 1 :]))
    expected = reverse_oracle.reverse_lanes(words, lengths, axis)
    assert outcomes[2].checks[0].expected.tobytes() == expected.tobytes()


def test_dispatch_prints_what_the_model_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dispatch", str(written(tmp_path, SLICE_MODEL)), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Resource 'output': 7, 9, 12, 14, 17, 19\n"
    assert printed.err == "Running on cpu\n"


def test_dispatch_saves_what_the_model_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(written(tmp_path, SLICE_MODEL))
    assert cli.main(["dispatch", model, "--device", "cpu", "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"Resource 'output' written to '{tmp_path}/out/output.npy'\n"
    assert np.load(tmp_path / "out/output.npy").tolist() == [7, 9, 12, 14, 17, 19]


def test_dispatch_takes_a_feature_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = json.loads(json.dumps(SLICE_MODEL).replace("FLOAT32", "INT64"))
    command = ["dispatch", str(written(tmp_path, model)), "--device", "cpu"]
    assert cli.main(command) == 0
    capsys.readouterr()
    assert cli.main([*command, "--feature-level", "4_0"]) == 2
    assert "InputTensor.DataType is INT64, must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_change("commands", value=...), "model.json: commands is missing, must be a list"),
        (
            with_change("dispatchables", "slice", "desc", "Offsets", 3, value=4),
            "cudml: dispatchables.slice: SLICE has 1 problem\n  Offsets[3]",
        ),
        (
            with_change("commands", 0, "bindings", "OutputTensor", value="input"),
            "cudml: commands[0]: SLICE has 1 problem\n  OutputTensor is overlapping InputTensor",
        ),
        (
            with_change("commands", 0, "bindings", "OutputTensor", value=...),
            "OutputTensor is missing, must be bound as output_tensor=",
        ),
    ],
)
def test_dispatch_tells_what_is_wrong_and_exits_with_2(
    model: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["dispatch", str(written(tmp_path, model)), "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_dispatch_tells_that_it_cannot_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, SLICE_MODEL)
    assert cli.main(["dispatch", str(path), "--device", "cpu", "--output", str(path)]) == 2
    told = f"cudml: {path}/output.npy: the file is not written (Not a directory), must be writable\n"
    assert capsys.readouterr().err.endswith(told)


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    model = json.loads(json.dumps(SLICE_MODEL).replace('"output"', json.dumps("größe\ud800")))
    done = run_cli("dispatch", written(tmp_path, model), "--device", "cpu", PYTHONIOENCODING="ascii")
    assert done.stdout == "Resource 'gr\\xf6\\xdfe\\ud800': 7, 9, 12, 14, 17, 19\n"
    assert done.returncode == 0


def test_ctrl_c_ends_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(case: demo.Case, device: Device) -> demo.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_case", run)
    assert cli.main(["demo", "--device", "cpu"]) == 130
    assert capsys.readouterr().err == "cudml: interrupted\n"


def test_a_defect_of_cudml_itself_is_no_difference(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would exit with 1, which says that results differ."""

    def run(case: demo.Case, device: Device) -> demo.Outcome:
        raise KeyError("case")

    monkeypatch.setattr(demo, "run_case", run)
    assert cli.main(["demo", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.endswith("KeyError: 'case'\n")


def test_unknown_devices_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["demo"], ["dispatch", str(written(tmp_path, SLICE_MODEL))]):
        assert cli.main([*command, "--device", "tpu"]) == 2
        assert "cudml: device is 'tpu', must be 'cpu', 'cuda' or 'cuda:N'" in capsys.readouterr().err


def test_info_names_versions_devices_compiler_and_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module").write_bytes(bytes(1 << 20))
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path))
    assert cli.main(["info"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["cudml"] == cudml.__version__
    assert rows["numpy"] == np.__version__
    assert rows["cache"] == f"{tmp_path}: 1 files, 1.0 MiB"
    assert rows["CUDML_CACHE_DIR"] == str(tmp_path)
    assert {"Python", "CUDA", "host compiler", "kernels"} <= rows.keys()


def test_info_counts_the_files_that_are_still_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other processes write to the cache and take their temporary files away."""
    monkeypatch.setenv("CUDML_CACHE_DIR", str(tmp_path))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/module").write_bytes(bytes(3 << 20))
    (tmp_path / "temporary").write_bytes(bytes(1 << 20))
    size_of = os.lstat

    def lstat(path: str) -> os.stat_result:
        if Path(path) == tmp_path / "temporary":
            os.unlink(path)
        return size_of(path)

    monkeypatch.setattr(cli.os, "lstat", lstat)
    assert cli.main(["info"]) == 0
    assert f"{tmp_path}: 1 files, 3.0 MiB" in capsys.readouterr().out


def test_info_says_that_a_setting_is_invalid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_EMULATOR", "order=up")
    assert cli.main(["info"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "CUDML_EMULATOR " in line]
    expected = (
        "order=up (invalid: CUDML_EMULATOR: order is 'up', must be one of fast, forward, reverse, random)"
    )
    assert line.split(maxsplit=1)[1] == expected


def test_invalid_setting_ends_the_commands_that_need_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = written(tmp_path, SLICE_MODEL)
    monkeypatch.setenv("CUDML_EMULATOR", "chekc")
    for command in (["demo"], ["dispatch", str(model)]):
        assert cli.main([*command, "--device", "cpu"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(
            "cudml: CUDML_EMULATOR has 'chekc'; it takes NAME=VALUE with NAME one of"
        )


def test_info_says_what_to_install_where_there_is_no_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDML_CXX", "no-such-compiler")
    assert cli.main(["info"]) == 0
    assert "no-such-compiler" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "required: COMMAND"),
        (["walk"], "invalid choice: 'walk'"),
        (["dispatch"], "required: MODEL.json"),
        (["run"], "required: MODEL.onnx"),
    ],
)
def test_usage_errors_exit_with_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"cudml {cudml.__version__}\n"


def run_cli(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a separate interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "cudml", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("is_unbuffered", ["", "1"])
def test_a_full_disk_is_reported_without_a_traceback(is_unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cudml", "info"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": is_unbuffered},
            check=False,
        )
    assert done.stderr == "cudml: [Errno 28] No space left on device\n"
    assert done.returncode == 2


def test_a_closed_pipe_ends_without_a_traceback(tmp_path: Path) -> None:
    many = {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 1 << 18, "value": 1}}
    model = {
        "resources": {"r": many},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "r"}] * 4,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "cudml", "dispatch", str(written(tmp_path, model)), "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b"Running on cpu\n"
    assert process.wait() == 2


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2)])
def test_closed_outputs_are_no_crash(closed: tuple[int, ...], tmp_path: Path) -> None:
    close = 'exec "$@"' + "".join(f" {descriptor}>&-" for descriptor in closed)
    command = ["dispatch", str(written(tmp_path, SLICE_MODEL)), "--device", "cpu"]
    done = subprocess.run(
        ["/bin/sh", "-c", close, "sh", sys.executable, "-m", "cudml", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == ("" if 1 in closed else "Resource 'output': 7, 9, 12, 14, 17, 19\n")
    assert done.stderr == ("" if 2 in closed else "Running on cpu\n")


def test_names_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(SLICE_MODEL).replace('"output"', json.dumps("a\x1b[2J\r\x9b\u202eb"))
    command = ["dispatch", str(written(tmp_path, json.loads(text))), "--device", "cpu"]
    assert cli.main(command) == 0
    name = "a\\x1b[2J\\r\\x9b\\u202eb"
    assert capsys.readouterr().out == f"Resource '{name}': 7, 9, 12, 14, 17, 19\n"
    assert cli.main([*command, "--output", str(tmp_path / "\x1b[2J")]) == 0
    assert "\x1b" not in capsys.readouterr().out
    written(tmp_path, {"\x1b[2J": 1})
    assert cli.main(command) == 2
    assert "\\x1b[2J is unknown" in capsys.readouterr().err


def test_progress_shows_on_a_terminal_and_goes_again(tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    command = ["dispatch", str(written(tmp_path, SLICE_MODEL)), "--device", "cpu", "--iterations", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "cudml", *command],
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
        cwd=ROOT,
        check=False,
    )
    shown = os.read(reader, 1 << 16).decode()
    os.close(writer)
    os.close(reader)
    assert done.returncode == 0
    assert "\r\x1b[Kcompiling 'slice', 1 of 1" in shown
    assert shown.endswith("\r\x1b[K")
    assert done.stdout.startswith("Dispatch 'slice': 3 iterations after 1 of warm-up, ")


def test_progress_does_not_come_with_every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((20, 9)))
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = cli._Progress()
    for step in range(1025):
        now = step / 1024
        progress(f"{step} of 1024, which is more than a line has")
    assert terminal.getvalue().count("\r") == 9
    assert terminal.getvalue().startswith("\r\x1b[K0 of 1024, which is\r\x1b[K")
    progress("")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_ctrl_c_ends_a_long_run_of_iterations(tmp_path: Path) -> None:
    command = [
        "dispatch",
        str(written(tmp_path, SLICE_MODEL)),
        "--device",
        "cpu",
        "--iterations",
        "1000000000",
    ]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "cudml", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "Running on cpu\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert told == "cudml: interrupted\n"
    assert process.returncode == 130
