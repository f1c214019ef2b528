"""PyTorch's own kernels, its host code over the stand-in for CUDA: exact results, and times as recorded.

What needs PyTorch for CUDA is skipped where the installed one is for a CPU, unless CUDML_BENCH_TORCH names
the folder of another: `pip install --no-deps --target FOLDER torch===2.13.0`.
"""

import ctypes
import importlib
import json
import subprocess
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import reverse_subsequences, slice, top_k
from bench.cases import WrongResultError
from bench.prediction import native_peers, torch_peers
from bench.sources import Source
from cudml.devices.emulator.build import compiler
from proof.runtime import absent, fat_binary
from proof.sass.compiler import unavailable
from tests.support import fat_binaries

WHY = unavailable() or torch_peers.unavailable()
needs_torch = pytest.mark.skipif(WHY is not None, reason=str(WHY))

RECORDED = native_peers.read()


def cases(operator: str, *names: str) -> list[Any]:
    found = [c for c in importlib.import_module(f"bench.{operator}").CASES if c.name in names]
    assert len(found) == len(names)
    return found


@needs_torch
@pytest.mark.parametrize(
    ("operator", "names"),
    [
        # A kernel of one block, and an arg-max.
        ("top_k", ("latency 1 x 1000 k 5 float32", "greedy 1 x 128256 k 1 float32")),
        ("slice", ("part of rows 4096 x 100 float32",)),
        ("reverse_subsequences", ("rows 64 x 256 axis 1 float32",)),
    ],
)
def test_results_are_exact_and_times_as_recorded(operator: str, names: tuple[str, ...]) -> None:
    rows = list(torch_peers.rows_of(operator, cases(operator, *names), torch_peers.PEERS[operator]))
    assert {row.case for row in rows} == {*names}
    assert [row.note for row in rows] == [""] * len(rows)
    assert native_peers.differences(RECORDED, rows) == []


def test_a_process_that_dies_keeps_its_rows_and_names_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen = cases("top_k", "latency 1 x 1000 k 5 float32", "greedy 1 x 128256 k 1 float32")
    first = replace(torch_peers._row("top_k", chosen[0], "torch.topk"), time_us=5.0, launches=1)
    process = tmp_path / "python"
    process.write_text(f"#!/bin/sh\necho '{json.dumps(asdict(first))}'\nkill -SEGV $$\n")
    process.chmod(0o755)
    monkeypatch.setattr(torch_peers, "unavailable", lambda: None)
    monkeypatch.setattr(torch_peers.sys, "executable", str(process))
    rows = [*torch_peers.rows_of("top_k", chosen, ["torch.topk"])]
    assert rows[0] == first
    assert [row.note for row in rows[1:]] == ["not executed: PyTorch's process ended with -11"]


def test_without_pytorch_for_cuda_its_rows_say_so_and_keep_recorded_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDML_BENCH_TORCH", str(tmp_path))
    name = "part of rows 4096 x 100 float32"
    (row,) = torch_peers.rows_of("slice", cases("slice", name), ["torch"])
    assert row.note.startswith(
        f"not executed: CUDML_BENCH_TORCH={tmp_path} has no PyTorch for CUDA: pip install"
    )
    assert (row.time_us, row.version) == (0, "")
    assert native_peers.differences(RECORDED, [row]) == [f"{name}, torch: {row.note}, recorded: a time"]
    table = tmp_path / "peers.csv"
    table.write_text(native_peers.TABLE.read_text())
    monkeypatch.setattr(native_peers, "TABLE", table)
    monkeypatch.setattr(native_peers, "read", lambda: RECORDED)
    assert native_peers.main("slice", name, check=False, peer="torch") == 0
    assert table.read_text() == native_peers.table_text(RECORDED)
    monkeypatch.setattr(native_peers, "read", list)
    assert native_peers.main("slice", name, check=False, peer="torch") == 0
    assert table.read_text() == native_peers.table_text([row])


def test_a_pytorch_that_is_for_a_cpu_is_none_for_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDML_BENCH_TORCH", raising=False)
    (tmp_path / "torch").mkdir()
    spec = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(torch_peers, "find_spec", lambda name: spec)
    assert torch_peers.folder() is None
    assert str(torch_peers.unavailable()).startswith("PyTorch for CUDA is not installed: pip install")
    (tmp_path / "torch" / "lib").mkdir()
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    (tmp_path / "torch-1.2.3.dist-info").mkdir()
    assert torch_peers.folder() == tmp_path
    assert torch_peers.version() == "1.2.3"


def spoiled(prepare: Any) -> Any:
    def prepared(case: Any, inputs: Any) -> Any:
        call = prepare(case, inputs)

        def of_wrong_indices() -> Any:
            values, indices = call()
            return values, indices.flip(1)

        return of_wrong_indices

    return prepared


def failing(prepare: Any) -> Any:
    def call() -> Any:
        raise RuntimeError("CUDA error:\n  told in lines")

    return lambda case, inputs: call


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'")
@pytest.mark.parametrize(
    ("change", "error", "called", "told"),
    [
        (lambda prepare: prepare, None, "", ""),
        (spoiled, None, "", "wrong result: values: 4 of 5 elements differ, first at (0, 0): "),
        (failing, None, "", "not executed: CUDA error: told in lines"),
        (failing, ValueError("a load\nout of bounds"), "", "not executed: a load out of bounds"),
        (lambda prepare: prepare, ValueError("late"), "", "not executed: late"),
        (
            lambda prepare: prepare,
            None,
            "cublasGo",
            "not executed: it calls cublasGo, which the stand-in does",
        ),
    ],
    ids=["right", "wrong", "raised", "of the stand-in", "not noticed", "absent"],
)
def test_what_goes_wrong_takes_the_place_of_a_time(
    change: Any, error: Any, called: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch computes on a CPU here."""
    import torch

    peer = top_k.PEERS["torch.topk"]
    monkeypatch.setitem(top_k.PEERS, "torch.topk", replace(peer, prepare=change(peer.prepare)))
    runtime = SimpleNamespace(error=lambda: error)
    took = SimpleNamespace(time_us=7.25, launches=3, bound="launch")
    made = object.__new__(torch_peers.Library)
    made.recorder = SimpleNamespace(
        runtime=runtime, begin=lambda samples: None, total=lambda: took, is_sampled=False
    )
    made._torch = SimpleNamespace(
        from_numpy=lambda array: SimpleNamespace(cuda=lambda: torch.from_numpy(array))
    )
    made._called = lambda: called
    row = made.predicted("top_k", cases("top_k", "latency 1 x 1000 k 5 float32")[0], "torch.topk")
    assert row.note.startswith(told)
    assert bool(row.note) == bool(told)
    assert (row.time_us, row.launches, row.bound) == ((0, 0, "") if told else (7.25, 3, "launch"))


def library(written: np.ndarray) -> Any:
    """The library after a call that stored to each byte of its result as often as `written` says."""
    made = object.__new__(torch_peers.Library)
    made.recorder = SimpleNamespace(runtime=SimpleNamespace(written=lambda address, count: written[:count]))
    return made


def test_a_sample_is_compared_where_it_is_written() -> None:
    case = replace(
        cases("slice", "part of rows 4096 x 100 float32")[0], shape=(4, 9), sizes=(4, 5), offsets=(0, 2)
    )
    inputs = slice.make(case, Source(np, 3))
    expected = inputs["x"][:, 2:7]
    got, written = expected.copy(), np.zeros(expected.nbytes, np.uint8)
    result = SimpleNamespace(data_ptr=lambda: 0)
    with pytest.raises(WrongResultError, match="nothing of the result is written"):
        library(written)._check_sample(slice, case, inputs, result, got)
    written[8:40] = 1
    got.view(np.uint8).reshape(-1)[40:] ^= 1
    library(written)._check_sample(slice, case, inputs, result, got)
    got.view(np.uint8).reshape(-1)[39] ^= 1
    with pytest.raises(
        WrongResultError, match="the bytes that are written: 1 of 32 elements differ, first at"
    ):
        library(written)._check_sample(slice, case, inputs, result, got)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'")
@pytest.mark.parametrize(
    "strides", [(1, 1), (2, 3), (1, -1), (-1, 1), (-2, -3), (2, -3)], ids=lambda strides: f"by {strides}"
)
def test_pytorch_copies_from_the_end_by_flip(strides: tuple[int, int]) -> None:
    offsets = tuple(1 if stride > 0 else 18 for stride in strides)
    case = replace(slice.CASES[0], shape=(20, 20), offsets=offsets, sizes=(5, 6), strides=strides)
    inputs = slice.make(case, Source(np, 3))
    found = slice.PEERS["torch"].prepare(case, inputs)
    assert found is not None
    result = found()
    assert result.is_contiguous()
    assert slice.check(case, inputs, result.numpy()) == "exact"


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'")
@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_an_arg_max_is_checked_by_its_indices(mode: Any) -> None:
    case = top_k.TopKCase(name="", num_rows=3, row_length=40, k=1, mode=mode, pattern="tie heavy")
    inputs = top_k.make(case, Source(np, 3))
    peer = top_k.PEERS["torch.argmax"]
    assert peer.check is not None
    assert peer.prepare(replace(case, k=2), inputs) is None
    call = peer.prepare(case, inputs)
    assert call is not None
    found = call().numpy()
    assert peer.check(case, inputs, found) == "3 lanes exact"
    found[1, 0] = (found[1, 0] + 1) % 40
    with pytest.raises(WrongResultError, match="indices of lane 1"):
        peer.check(case, inputs, found)


@pytest.mark.skipif(fat_binary.unavailable() is not None, reason=str(fat_binary.unavailable()))
def test_kernels_that_are_compressed_are_read() -> None:
    payload = b"\x7fELF" + bytes(100)
    compressed = importlib.import_module(fat_binary.DECOMPRESSOR).compress(payload)
    assert len(compressed) < len(payload)
    made = fat_binaries.fat_binary((2, 90, 0x8011, compressed))
    assert fat_binary.cubins(ctypes.addressof(made), 90) == [payload]


def test_peers_of_the_table_are_those_of_bench() -> None:
    modules = {"top_k": top_k, "slice": slice, "reverse_subsequences": reverse_subsequences}
    assert torch_peers.PEERS.keys() == modules.keys()
    for operator, peers in torch_peers.PEERS.items():
        assert {*peers} <= modules[operator].PEERS.keys()


def build(folder: Path, name: str, text: str, *options: str) -> Path:
    source = folder / f"{name}.cpp"
    source.write_text(text)
    command = [*compiler().command, "-shared", "-fPIC", f"-Wl,-soname,{name}", source, "-o", folder / name]
    subprocess.run([*command, *options], check=True)
    return folder / name


def test_absent_libraries_are_named_when_they_are_called(tmp_path: Path) -> None:
    """A program that needs another library of its own, one that is present, and one that is not there."""
    present = build(tmp_path, "libcudart.so.98", 'extern "C" int cudaHere() { return 5; }')
    gone = build(
        tmp_path,
        "libcugone.so.7",
        'extern "C" int cuGone() { return 6; } extern "C" int nvGone() { return 7; }',
    )
    other = build(tmp_path, "libother.so", 'extern "C" int cuOther() { return 8; }')
    declared = "".join(f'extern "C" int {name}();' for name in ("cudaHere", "cuGone", "nvGone", "cuOther"))
    defined = "".join(
        f'extern "C" int call_{name}() {{ return {name}(); }}'
        for name in ("cudaHere", "cuGone", "nvGone", "cuOther")
    )
    program = build(tmp_path, "libprogram.so", declared + defined, str(present), str(gone), str(other))
    gone.unlink()
    ctypes.CDLL(str(present), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(other), ctypes.RTLD_GLOBAL)
    called = absent.load([program, other], present)
    loaded = ctypes.CDLL(str(program))
    assert [loaded.call_cudaHere(), loaded.call_cuOther(), called()] == [5, 8, ""]
    assert [loaded.call_nvGone(), loaded.call_cuGone(), called(), called()] == [999, 999, "nvGone", ""]
