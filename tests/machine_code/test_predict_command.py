"""`python -m bench predict`: its errors, and the plot of its predictions."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench import report
from bench.__main__ import main as bench_command
from bench.prediction import command, table
from bench.prediction.table import Row

_, RECORDED = table.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("convolution", "invalid choice: 'convolution' (choose from"),
        ("slice --case nowhere", "no case has 'nowhere' in its name"),
        ("--case nowhere", "no case has 'nowhere' in its name"),
        ("--micro --case nowhere", "no row has 'nowhere' in its name"),
        ("slice --micro", "--micro is about rows of bench/micro: no operator"),
        ("--micro --check", "no --check with it"),
    ],
)
def test_unknown_values_are_reported(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_command(["predict", *arguments.split()])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_without_tools_nothing_is_predicted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "no nvdisasm: pip install nvidia-cuda-nvdisasm"
    monkeypatch.setattr(command, "unavailable", lambda: reason)
    for arguments in (["--micro"], ["slice", "--check"], []):
        assert command.main(arguments) == 1
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", f"{reason}\n")


def rows_to_draw() -> list[Row]:
    """Two bounds, and a row that the launch bounds."""
    told = (
        ("crop", 60.0, "alu"),
        ("rows", 90.0, "DRAM"),
        ("small", 5.0, "launch"),
        ("odd rows", 30.0, "alu"),
    )
    return [replace(RECORDED[0], case=case, time_us=time, limit_us=30, bound=b) for case, time, b in told]


def test_each_time_is_drawn_over_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot, axes, figure = mock.Mock(), mock.Mock(), mock.Mock()
    pyplot.subplots.return_value = figure, axes
    monkeypatch.setattr(report, "plotter", lambda path: pyplot)
    report.draw_predictions(rows_to_draw(), Path("plot.svg"))
    drawn: dict[str, Any] = {call.kwargs["label"]: call.args[:2] for call in axes.plot.call_args_list}
    assert drawn == {"DRAM": ([3.0], [1]), "alu": ([2.0, 1.0], [0, 2])}
    places, names = axes.set_yticks.call_args.args
    operator = RECORDED[0].operator
    assert (list(places), names) == (
        [0, 1, 2],
        [f"{operator}: {case}" for case in ("crop", "rows", "odd rows")],
    )
    assert "predicted" in axes.set_title.call_args.args[0]
    assert figure.savefig.call_args.args == (Path("plot.svg"),)


def test_the_plot_is_a_file_that_stays_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plots need matplotlib: pip install 'cudml[bench]'")
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for path in (first, second):
        report.draw_predictions(rows_to_draw(), path)
    text = first.read_text()
    assert text == second.read_text()
    assert [name in text for name in ("crop -->", "odd rows -->", "small -->")] == [True, True, False]
    assert "predicted from machine code, not measured" in text


def test_without_matplotlib_the_plot_is_left_out(tmp_path: Path) -> None:
    """In a separate process, which has not imported it."""
    text = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path; from bench import report\n"
        f"report.draw_predictions([], Path({str(tmp_path / 'plot.svg')!r}))"
    )
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert shown == "plot.svg: left out, matplotlib is not installed\n"
    assert not list(tmp_path.iterdir())
