"""The site's plots: what they show is in the tables, and a person can read it."""

import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench import plots, results
from bench.gru import GruCase
from bench.plots import Plot, Question
from bench.prediction import native_peers, table

ROOT = Path(__file__).resolve().parents[2]
PLOTS = [*plots.of_measurements(), *plots.of_questions()]
MEASURED = plots.measured_times()


def test_a_plot_is_of_few_rows_each_with_times() -> None:
    for plot in PLOTS:
        assert 4 <= len(plot.rows) <= plots.MAX_ROWS
        assert all(value > 0 for series in plot.rows.values() for value in series.values())


def test_every_case_is_in_a_plot_measured_or_predicted() -> None:
    """A new case may need a question or another pattern: no case that is behind may be left out."""
    _, rows = table.read()
    answers = zip(plots.QUESTIONS, PLOTS[-len(plots.QUESTIONS) :], strict=True)
    shown = {(question.operator, case) for question, plot in answers for case in plot.rows}
    marked = {row.key: "" if row.key in MEASURED else plots.PREDICTED for row in rows}
    assert {(operator, case + mark) for (operator, case), mark in marked.items()} == shown
    assert "" in marked.values()


def test_a_row_has_the_measured_times_and_the_limit() -> None:
    """Wrong results have no mark."""
    own = {row.case: row for row in table.read()[1] if row.operator == "gru"}
    (plot,) = (plot for plot in PLOTS if plot.name == "gru-models")
    rows = [row for row in results.read(results.RESULTS / "nvidia-h200.csv") if row.cache == "cold"]
    for case in plot.rows.keys() & {row.case for row in rows}:
        right = {
            row.implementation: row.median_us
            for row in rows
            if row.case == case and not re.search(r"error 0\.\d", row.checked)
        }
        bound = plots.gru_bound_us(plots.CASES_BY_NAME[case], own[case].limit_us)
        assert plot.rows[case] == {**right, plots.BOUND: bound}
    assert "NSNet2 16 kHz T 1000 N 1 I 400 H 400 float32" in plot.rows
    assert "measured" in plot.axis


def test_a_row_that_was_not_measured_has_the_predicted_times(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rows = table.read()
    by_case = {row.case + plots.PREDICTED: row for row in rows}
    peers = native_peers.read()
    monkeypatch.setattr(plots, "measured_times", dict)
    drawn = plots.of_questions()
    (plot,) = (plot for plot in drawn if plot.name == "slice-vectors")
    assert plot.axis == "microseconds on an H200, predicted from machine code, not measured"
    for case, series in plot.rows.items():
        row = by_case[case]
        of_row = [one for one in peers if (one.operator, one.case) == row.key]
        of_peers = {one.peer: one.time_us for one in of_row if one.time_us}
        assert series == {
            "cudml": row.time_us,
            "CuPy": row.cupy_us,
            **of_peers,
            plots.LIMIT: plots.LAUNCH_US + row.limit_us,
        }
    (plot,) = (plot for plot in drawn if plot.name == "gru-streaming")
    assert all(series[plots.BOUND] < series["cudml"] for series in plot.rows.values())


def test_more_cases_than_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "QUESTIONS", (Question("all", "slice", "All", ""),))
    (plot,) = plots.of_questions()
    total = sum(row.operator == "slice" for row in table.read()[1])
    assert (len(plot.rows), plot.question) == (12, f"All (12 of {total} cases)")


def test_times_of_peers_are_over_those_of_cudml() -> None:
    (plot,) = (plot for plot in PLOTS if plot.name == "amd-epyc-gru")
    (row,) = (row for name, row in plot.rows.items() if name.startswith("pronunciation"))
    _, _, text = (ROOT / "bench/results/README.md").read_text().partition("**AMD EPYC**")
    (told,) = re.findall(r"^\| pronunciation .*$", text, re.MULTILINE)
    assert [f"({ratio:.2g}x)" for ratio in row.values()] == re.findall(r"\(\S+x\)", told)


@pytest.mark.parametrize(
    ("hidden", "before", "limit_us", "expected"),
    [
        # 3 * 64 * 64 float32 are 48 KiB: a barrier of 16.91 clocks at 1980 MHz in each step after the first.
        (64, True, 0.1, plots.LAUNCH_US + 100 * 16.91 / 1980),
        # 3 MiB lie in several multiprocessors: 0.228 us for a word to reach another, twice in a step.
        (512, True, 0.1, plots.LAUNCH_US + 100 * 0.228),
        (512, False, 0.1, plots.LAUNCH_US + 200 * 0.228),
        (64, True, 50.0, plots.LAUNCH_US + 50),
    ],
)
def test_the_bound_of_a_gru(hidden: int, before: bool, limit_us: float, expected: float) -> None:
    case = GruCase(name="", steps=101, batch=1, input_size=1, hidden_size=hidden, linear_before_reset=before)
    assert plots.gru_bound_us(case, limit_us) == pytest.approx(expected, rel=1e-6)


def test_the_bound_of_a_large_gru_is_its_arithmetic() -> None:
    case = GruCase(name="", steps=10, batch=1000, input_size=1000, hidden_size=1000)
    assert plots.gru_bound_us(case, 1.0) == pytest.approx(plots.LAUNCH_US + 10 * 12e9 / 67e12 * 1e6)


def test_marks_are_where_the_numbers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the plots need matplotlib: pip install --group bench")
    pyplot, axes, figure = mock.Mock(), mock.Mock(), mock.Mock()
    pyplot.subplots.return_value = figure, axes
    monkeypatch.setattr(plots, "_pyplot", lambda: pyplot)
    rows = {"a": {"cudml": 2.0, "CuPy": 3.0}, "b": {"cudml": 5.0, plots.LIMIT: 4.0}}
    plots.draw(Plot("name", "Why?", "microseconds", rows), Path("plot.svg"))
    drawn: dict[str, Any] = {call.kwargs["label"]: call.args for call in axes.plot.call_args_list}
    assert drawn == {"cudml": ([2.0, 5.0], [0, 1]), "CuPy": ([3.0], [0]), plots.LIMIT: ([4.0], [1])}
    assert list(axes.set_yticks.call_args.args[1]) == ["a", "b"]
    assert figure.savefig.call_args.args == (Path("plot.svg"),)


def test_a_plot_is_a_file_that_stays_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plots need matplotlib: pip install --group bench")
    for name in ("first.svg", "second.svg"):
        plots.draw(PLOTS[-1], tmp_path / name)
    first, second = ((tmp_path / name).read_text() for name in ("first.svg", "second.svg"))
    assert first == second
    assert "microseconds on an H200, " in first
