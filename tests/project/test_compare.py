"""`python -m bench compare`: its output for known measured and predicted times."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import machine_code, results
from bench.__main__ import main as bench_command
from bench.prediction import table
from bench.prediction.scan import scan_of
from bench.results import Row

_, PREDICTED = table.read()
CHOSEN = {row.operator: row for row in reversed(PREDICTED) if not row.cupy_us}
SLICE = next(row for row in PREDICTED if row.operator == "slice")


def measured(row: table.Row, ratio: float, implementation: str = "cudml", cache: str = "cold") -> Row:
    of = row.cupy_us if implementation == "cupy" else row.time_us
    return Row(
        row.operator,
        row.case,
        implementation,
        cache,
        ratio * of,
        1,
        1,
        9,
        1.0,
        1,
        0,
        "exact",
        "",
        "NVIDIA H200",
    )


def printed(folder: Path, rows: list[Row], capsys: pytest.CaptureFixture[str]) -> str:
    path = folder / "nvidia-h200.csv"
    results.merge(path, rows)
    assert bench_command(["compare", str(path)]) == 0
    return capsys.readouterr().out


def test_measured_times_stand_beside_predictions_of_the_code_that_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = replace(SLICE, time_us=2 * SLICE.time_us)
    (tmp_path / "nvidia-h200-predicted.csv").write_text(table.table_text("13.0", [before]))
    text = printed(tmp_path, [measured(SLICE, 3.0), measured(CHOSEN["gru"], 1.25)], capsys)
    ratios = [line.split()[0] for line in text.splitlines() if " us " in line and "x " in line[:9]]
    assert ratios == ["1.50x", "1.25x"]


def test_cases_come_worst_first_and_then_the_medians(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case that is faster than predicted by a factor is as bad as one that is slower by it."""
    same = [row for row in PREDICTED if row.operator == "gru" and row.kernels == CHOSEN["gru"].kernels][:3]
    rows = [
        *(measured(row, ratio) for row, ratio in zip(same, (1.0, 1.5, 1.25), strict=True)),
        measured(same[0], 9.0, cache="warm"),
        measured(SLICE, 0.5),
        measured(SLICE, 3.0, "cupy"),
        measured(SLICE, 7.0, "torch"),
        replace(measured(SLICE, 8.0), case="of no prediction"),
    ]
    text = printed(tmp_path, rows, capsys)
    ratios = re.findall(r"^ +([\d.]+)x +[\d.]+ us", text, re.MULTILINE)
    assert ratios == ["3.00", "0.50", "1.50", "1.25", "1.00"]
    assert "no H200" not in text
    functions = " ".join(dict.fromkeys(name.partition("<")[0] for name in same[0].kernels.split()))
    assert re.search(rf"^gru +{functions} +3 +1.25x +1.00x +1.50x$", text, re.MULTILINE)
    assert re.search(rf"^bound +{SLICE.bound} .* 0.50x", text, re.MULTILINE)
    assert re.search(r"^slice +CuPy's +1 +3.00x", text, re.MULTILINE)


def test_choices_that_measured_paths_would_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan = scan_of("top_k")
    _, rows = scan.read()
    two = [row for row in rows if len(row.times) > 2][:2]
    other = next(name for name in two[0].times if name != two[0].chosen)
    changed = [replace(two[0], times={two[0].chosen: 3.0, other: 2.0}), two[1]]
    table_of_gpu = scan.measured_table("nvidia-h200", tmp_path)
    table_of_gpu.write_text(scan.table_text("Measured on NVIDIA H200", changed))
    text = printed(tmp_path, [measured(SLICE, 1.0)], capsys)
    assert "top_k: 1 of 2 points would change (Measured on NVIDIA H200)" in text
    assert f"1.50 times the time of {other}: {two[0].point}" in text
    assert "gru: no nvidia-h200-gru_scan.csv; `python -m bench plan gru --measure` makes it" in text


def test_other_machine_code_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only code of the GPU's own architecture is listed."""
    own = [row for row in machine_code.recorded().rows if row.architecture == "sm_90"]
    more = replace(own[5], max_registers=own[5].max_registers + 8)
    path = tmp_path / "machine_code.csv"
    path.write_text(machine_code.table_text(machine_code.Table("13.0", (*own[:5], more, *own[6:]))))
    text = printed(tmp_path, [measured(SLICE, 1.0)], capsys)
    assert f"1 of {len(own)} kernels differ, NVRTC {machine_code.recorded().version} -> 13.0" in text
    changed = f"max_registers {own[5].max_registers} -> {more.max_registers}"
    assert f"{own[5].source} {own[5].kernel} sm_90: {changed}" in text


def test_bad_input_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_command(["compare", str(tmp_path / "none.csv")])
    assert caught.value.code == 2
    assert "none.csv is no file" in capsys.readouterr().err
    path = tmp_path / "cpu.csv"
    results.merge(path, [measured(SLICE, 1.0, cache="warm")])
    assert bench_command(["compare", str(path)]) == 1
    assert "has no case with a cold L2 that was predicted" in capsys.readouterr().err
    path.unlink()
    results.merge(path, [replace(measured(SLICE, 1.0), device="NVIDIA H100 PCIe")])
    assert bench_command(["compare", str(path)]) == 0
    assert "the GPU is no H200" in capsys.readouterr().out


def test_one_architecture_is_not_written_over_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_command(["machine-code", "--architecture", "sm_90"])
    assert "--architecture and --only need --output or --check" in capsys.readouterr().err
