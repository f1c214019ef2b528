"""C++ peers of the benchmarks: built where nvcc and their headers are, and clear about what is missing."""

import ctypes
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import native
from bench import top_k as bench_top_k
from bench.native import top_k
from proof.runtime import library as stand_in
from tests.support.new_process import run_limited

CUB = native.LIBRARIES["cub"]
#: Loads CUB over the CUDA runtime and asks it for a size, then CUB over the stand-in.
BOTH_RUNTIMES = """
import ctypes, pathlib, sys
from bench import native
from bench.prediction import native_peers
from proof.runtime import library as stand_in

def size_by(library):
    num_bytes = ctypes.c_size_t(0)
    error = library.cub_top_k_float32(None, ctypes.byref(num_bytes), *[None] * 3, 1000, 10, 1, None)
    return error, num_bytes.value

size_by(native.load("cub", pathlib.Path(sys.argv[1])))
library, runtime = native_peers.loaded("cub"), stand_in.Runtime(lambda name, launch: None)
error, num_bytes = size_by(library)
print(error, num_bytes > 0)
"""


@pytest.fixture
def no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda name: None)


@pytest.mark.skipif(native.unavailable(CUB) is not None, reason=str(native.unavailable(CUB)))
def test_cub_is_built_and_called(tmp_path: Path) -> None:
    """Each function computes the size of its workspace, or says that there is no GPU."""
    native.build(CUB, "sm_90", tmp_path)
    library = native.load("cub", tmp_path)
    assert library is not None
    for dtype in top_k._DTYPES:
        num_bytes = ctypes.c_size_t(0)
        error = library[f"cub_top_k_{dtype}"](None, ctypes.byref(num_bytes), *[None] * 3, 1000, 10, 1, None)
        assert (error == 0) == (num_bytes.value > 0), error
    if stand_in.unavailable() is None:  # CUB does not give one runtime's kept answers to the other
        done = run_limited([sys.executable, "-c", BOTH_RUNTIMES, str(tmp_path)], 300)
        assert (done.stdout, done.stderr) == ("0 True\n", "")


@pytest.mark.skipif(native.unavailable(CUB) is not None, reason=str(native.unavailable(CUB)))
def test_error_of_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)cub_top_k: nvcc exits with \d+\n.*--no-such-option"):
        native.build(replace(CUB, options=("--no-such-option",)), "sm_90", tmp_path)


def test_missing_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(native, "_installed", lambda package, path: None)
    assert native.main(["cub"]) == 1
    expected = "cub_top_k: there is no nvcc: pip install --group peers (pip 25.1 or later)\n"
    assert capsys.readouterr().err == expected


def test_missing_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "nvcc", lambda: "nvcc")
    library = replace(CUB, includes=(("no_such_package", "include"), ("numpy", "no_such_folder")))
    assert native.unavailable(library) == (
        "no_such_package/include, numpy/no_such_folder is not installed: "
        "pip install --group peers (pip 25.1 or later)"
    )


def test_a_library_with_a_runtime_of_its_own_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAFT's librmm.so is linked, but over another runtime rmm.cpp is compiled in its place."""
    commands: list[list[str]] = []

    def run(command: list[str], **named: object) -> subprocess.CompletedProcess[str]:
        commands.append([Path(word).name for word in command])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(native, "unavailable", lambda library: None)
    monkeypatch.setattr(native, "_installed", lambda package, path: tmp_path / path)
    monkeypatch.setattr(native.shutil, "copy", lambda path, folder: folder / path.name)
    monkeypatch.setattr(native.subprocess, "run", run)
    for runtime in (None, tmp_path / "libcudart.so.13"):
        native.build(native.LIBRARIES["raft"], "sm_90", tmp_path, runtime)
    names = {"librmm.so", "librapids_logger.so", "rmm.cpp", "raft_select_k.cu", "libcudart.so.13"}
    alone, over = (names & set(command) for command in commands)
    assert alone == {"librmm.so", "librapids_logger.so", "raft_select_k.cu"}
    assert over == {"rmm.cpp", "librapids_logger.so", "raft_select_k.cu", "libcudart.so.13"}


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        native.main(["thrust"])
    assert "unknown thrust; there are cub, raft" in capsys.readouterr().err


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("prepare", [top_k.raft_select_k, top_k.cub_device_top_k])
def test_library_that_is_not_built_is_left_out(prepare: object) -> None:
    case = next(case for case in bench_top_k.CASES if case.num_rows == 1)
    assert callable(prepare)
    assert prepare(case, {"a": np.zeros(case.shape, case.dtype)}) is None
