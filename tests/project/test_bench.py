"""The benchmarks: their errors, their files, and that every operator's file works."""

import gc
import importlib
import re
import subprocess
import sys
import time
import weakref
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bench import compare, report, results, runner
from bench import standing as measured_standing
from bench.__main__ import main as bench_command
from bench.cases import Peer
from bench.checks import WrongResultError, require_error_within, require_identical
from bench.micro import command
from bench.micro.clusters import PUSHES
from bench.micro.figures import Figure
from bench.prediction import native_peers, peers, standing
from bench.prediction import table as predicted
from bench.prediction.rows import GROUPS
from bench.results import Row
from bench.sources import Source
from bench.targets import get_target
from bench.timing import CudaTimer, HostTimer, Timing
from proof.sass.compiler import compile_cubin, unavailable
from tests.support.new_process import in_new_process

ROOT = Path(__file__).resolve().parents[2]
MICRO = Path(runner.__file__).parent / "micro"

#: Kernels of the micro-figures that between them instantiate everything in their files.
MICRO_INSTANCES = {
    "launches.cu": ("empty", "last_block"),
    "latency.cu": ("exchange<1, 1>", "exchange<4, 8>", "ping_pong", "spin_clocks"),
    "bandwidth.cu": (
        "read_vectors<4>",
        "copy_vectors<4>",
        "filter_vectors<Float32AsKey, 4>",
        "filter_vectors<Float32AsFloat, 4>",
        "filter_vectors<Float16AsKey, 4>",
        "filter_vectors<Float16AsPair, 4>",
        "filter_vectors<Int8AsQuad, 4>",
    ),
    "copies.cu": (
        "copy_by_threads<micro::Cached, 8>",
        "copy_by_threads<micro::Streamed, 8>",
        "copy_by_engine<4>",
    ),
    "selection.cu": (
        "histogram<KeyOfFloat32, 12>",
        "histogram<KeyOfFloat16, 11>",
        "histogram<KeyOfInt8, 8>",
        "arg_max<ReduxOnce>",
        "arg_max<ReduxTwice>",
        "arg_max<Shuffles<UInt32>>",
        "arg_max<Shuffles<UInt64>>",
    ),
    "clusters.cu": (
        "barrier_rounds<8, true>",
        "remote_load<8>",
        *(f"push_exchange<16, {push}>" for push in PUSHES),
    ),
}

CASE = importlib.import_module("bench.slice").CASES[0].name
ROW = Row("slice", CASE, "cudml", "cold", 2.0, 1.5, 3.25, 40, 5.5, 8000, 0, "exact", "", "A GPU")


class OneCallTimer:
    """Calls once and reports a microsecond."""

    caches = ("warm",)

    def measure(self, call: Any, cache: str, seconds: float, by_host: bool = False) -> Timing:
        call()
        return Timing.of([1.0])


def run_cases(operator: str, problems: list[str], names: str = "") -> list[Row]:
    options = runner.Options(quick=True, peers=True, names=re.compile(names))
    bench = runner.Runner(get_target("cpu"), OneCallTimer(), options, tell=print)
    rows = list(bench.run(operator))
    problems += bench.problems
    return rows


def test_each_layer_of_a_stack_has_a_bound_of_its_own() -> None:
    """The states of an upper layer are smaller, and so are their errors."""
    gru = importlib.import_module("bench.gru")
    (case,) = [one for one in gru.CASES if one.num_layers == 3]
    inputs = gru.make(case, Source(np, 1))
    sequence, single = gru.run(case, inputs)
    gru.check(case, inputs, (sequence, single))
    for layer in range(3):
        wrong = single.copy()
        wrong[layer] += np.float32(1e-6)
        with pytest.raises(WrongResultError, match=f"single of layer {layer}: error"):
            gru.check(case, inputs, (sequence, wrong))


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'")
@in_new_process
def test_torchs_gru_runs_where_its_global_flags_are_frozen() -> None:
    """As `torch.testing` leaves them."""
    import torch

    torch.backends.disable_global_flags()
    problems: list[str] = []
    rows = run_cases("gru", problems, "^pronunciation")
    assert problems == []
    assert "torch" in [row.implementation for row in rows]


def test_a_replay_keeps_the_weights_of_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph has addresses alone: memory that is freed after the capture may be written by others."""

    class Weights:
        pass

    monkeypatch.setitem(sys.modules, "torch", mock.MagicMock())
    weights = Weights()
    kept = weakref.ref(weights)
    replay = importlib.import_module("bench.gru")._captured(partial(lambda own: None, weights))
    del weights
    gc.collect()
    assert kept() is not None
    del replay
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("operator", runner.OPERATORS)
def test_quick_cases_run_on_the_cpu(operator: str) -> None:
    module = importlib.import_module(f"bench.{operator}")
    first = next(case.name for case in module.CASES if case.quick)
    problems: list[str] = []
    rows = run_cases(operator, problems, f"^{re.escape(first)}$")
    assert problems == []
    assert next((row.implementation, row.checked != "") for row in rows) == ("cudml", True)
    assert {row.bytes_moved > 0 for row in rows} == {True}


@pytest.mark.parametrize("operator", runner.OPERATORS)
def test_case_names_are_unique(operator: str) -> None:
    names = [case.name for case in importlib.import_module(f"bench.{operator}").CASES]
    assert sorted(set(names)) == sorted(names)


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("bench.slice")
    monkeypatch.setattr(module, "run", lambda case, inputs: np.zeros(case.sizes, case.dtype))
    problems: list[str] = []
    rows = run_cases("slice", problems, "^part of a vector")
    assert "WRONG RESULT" in problems[0]
    assert "cudml" not in {row.implementation for row in rows}


def test_a_peer_that_differs_is_timed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("bench.slice")
    peer = Peer(lambda case, inputs: lambda: np.zeros(case.sizes, case.dtype))
    less = replace(peer, contract="does less")
    peers = {"zeros": peer, "less": less, "less, checked": replace(less, is_checked=True)}
    monkeypatch.setattr(module, "PEERS", peers)
    problems: list[str] = []
    rows = run_cases("slice", problems, "^part of a vector")
    assert problems == []
    assert [(row.implementation, row.checked.partition(":")[0]) for row in rows] == [
        ("cudml", "exact"),
        ("zeros", "differs"),
        ("less", ""),
        ("less, checked", "differs"),
    ]


def test_a_peer_that_is_not_installed_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("bench.slice")
    absent = Peer(lambda case, inputs: None, needs=("no_such_library",))
    monkeypatch.setattr(module, "PEERS", {"absent": absent})
    told: list[str] = []
    options = runner.Options(quick=True, peers=True)
    bench = runner.Runner(get_target("cpu"), OneCallTimer(), options, tell=told.append)
    assert {row.implementation for row in bench.run("slice")} == {"cudml"}
    assert bench.num_cases > 1
    assert told.count("slice: absent is left out, it needs no_such_library") == 1


def test_peers_are_left_out_by_a_module_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("bench.slice")
    peer = Peer(lambda case, inputs: lambda: np.zeros(case.sizes, case.dtype), needs=("json",))
    monkeypatch.setattr(module, "PEERS", {"with": replace(peer, needs=("csv", "json")), "other": peer})
    options = runner.Options(
        quick=True, peers=True, without=frozenset({"csv"}), names=re.compile("^part of a")
    )
    bench = runner.Runner(get_target("cpu"), OneCallTimer(), options, tell=lambda text: None)
    assert {row.implementation for row in bench.run("slice")} == {"cudml", "other"}


def test_identical_means_bits() -> None:
    zero, negative_zero = np.zeros(3, np.float32), np.array([0, -0.0, 0], np.float32)
    nan = np.array([np.nan], np.float32)
    require_identical(nan, nan.copy())
    with pytest.raises(WrongResultError, match=r"1 of 3 elements differ, first at \(1,\)"):
        require_identical(negative_zero, zero)
    with pytest.raises(WrongResultError, match="float64"):
        require_identical(zero.astype(np.float64), zero)
    with pytest.raises(WrongResultError, match="error nan"):
        require_error_within(nan, np.zeros(1), 1e9)


def test_sources_give_the_same_bits_to_every_device_and_new_ones_to_every_draw() -> None:
    first, second = Source(np, 3), Source(np, 3)
    drawn = first.bits((5, 7), np.uint16)
    assert drawn.tobytes() == second.bits((5, 7), np.uint16).tobytes()
    assert drawn.tobytes() != second.bits((5, 7), np.uint16).tobytes()
    integers = first.integers((4000,), -2, 6, np.int8)
    assert sorted(set(integers.tolist())) == list(range(-2, 6))
    uniform = first.uniform((4000,))
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    assert abs(np.percentile(first.normal((100_000,)), 84.13) - 1) < 0.02


def test_a_timing_is_the_median_and_two_percentiles() -> None:
    timing = Timing.of([float(n) for n in (5, 1, 4, 2, 3, 6, 9, 8, 7, 0, 10)])
    assert (timing.median_us, timing.p20_us, timing.p80_us, timing.repeats) == (5, 2, 8, 11)
    calls: list[int] = []
    assert HostTimer().measure(lambda: calls.append(1), "warm", 0.0).repeats == len(calls) - 1 == 5


def test_results_replace_rows_of_the_same_key(tmp_path: Path) -> None:
    path = results.folder(str(tmp_path / "new/results")) / "a-gpu.csv"
    other = replace(ROW, implementation="cupy", host_us=None)
    results.merge(path, [ROW, other])
    faster = replace(ROW, median_us=1.0)
    results.merge(path, [faster])
    assert results.read(path) == [faster, other]
    assert set(asdict(ROW)) == set(path.read_text().splitlines()[0].split(","))


def test_report_fills_the_space_between_the_markers(tmp_path: Path) -> None:
    peer = replace(ROW, implementation="cupy", median_us=7.0, contract="does less")
    folder = results.folder(str(tmp_path / "results"))
    results.merge(folder / "a-gpu.csv", [ROW, peer, replace(ROW, cache="warm", median_us=1.0)])
    (folder / "a-gpu-micro.csv").write_text("group,name,value,unit\n")  # not of this report
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n")
    assert report.main(["--results", str(folder), "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n| on A GPU | cases |")
    assert "| `slice` | 1 | cupy 3.5x (1/0/0) |\n" in text
    assert "stale" not in text
    assert text.endswith(f"{report.END}\nafter\n")
    tables = (folder / "README.md").read_text()
    assert "**A GPU** (medians by CUDA events with a cold L2 cache" in tables
    assert f"| {CASE} | 2.0 us | 4 GB/s | 7.0 us (3.5x) |" in tables
    assert "cupy: does less." in tables


def test_summary_is_the_geometric_mean_of_the_cases_with_both_times() -> None:
    first, second, third = (replace(ROW, case=case, median_us=2.0) for case in ("a", "b", "c"))
    of_numpy = [
        replace(first, implementation="numpy"),
        replace(second, implementation="numpy", median_us=32.0),
    ]
    of_all = [replace(row, implementation="torch", median_us=1.0) for row in (first, second, third)]
    limit = replace(first, implementation="copy", median_us=0.1)
    told = report.summary([first, second, third, *of_numpy, *of_all, limit])
    assert told.splitlines()[2:] == ["| `slice` | 3 | numpy 4x (1/1/0); torch 0.5x (0/0/3) |"]


def test_figures_replace_those_of_their_group(tmp_path: Path) -> None:
    path = tmp_path / "a-gpu-micro.csv"
    first = [Figure("latency", "a", 1.5, "us"), Figure("launch", "b", 2.0, "us")]
    command.merge(path, first, {"commit": "1"})
    command.merge(path, [Figure("latency", "c", 3.0, "clocks")], {"commit": "2"})
    assert path.read_text().splitlines() == [
        "group,name,value,unit,commit",
        "launch,b,2,us,1",
        "latency,c,3,clocks,2",
    ]


def test_results_that_differ_are_marked_and_wrong_ones_do_not_count() -> None:
    """A state that is off by a hundredth is wrong; less is a rounding error, and its time counts."""
    own = replace(ROW, operator="gru", case="a", median_us=10.0)
    less_exact = "differs: sequence: error 1.3e-06, allowed 1.0e-07"
    wrong = "differs: sequence: error 0.02, allowed 1.0e-07"
    torch = replace(own, implementation="torch", median_us=8.0, checked=less_exact)
    graph = replace(own, implementation="torch graph", median_us=5.0, checked=wrong)
    nan = replace(graph, case="b", checked="differs: sequence: error nan, allowed 1.0e-07")
    rows = [own, torch, graph, replace(own, case="b"), nan]
    assert report.summary(rows).splitlines()[2:] == ["| `gru` | 2 | torch 0.8x (0/0/1) |"]
    text = report.device_text(rows)
    assert "| a | 10.0 us | 1 GB/s | 8.0 us (0.8x), differs | wrong |" in text
    assert "torch: cuDNN; torch graph: cuDNN, replayed as a CUDA graph." in text
    assert "torch differs in 1 of 1 cases, which count; the most, in a: sequence: error 1.3e-06" in text
    assert "torch graph is wrong in 2 of 2 cases, which do not count;" in text
    assert [line for line in text.splitlines() if line.startswith("| behind")] == [
        "| behind | `gru`, a | 10.0 us | torch 8.0 us, differs |"
    ]


@pytest.mark.parametrize(
    ("own_us", "peer_us", "verdict"),
    [
        (10, 10.3, "ahead"),
        (10, 10.2, "tie"),
        (10.2, 10, "tie"),
        (10.3, 10, "behind"),
        (4, 4.2, "tie"),
        (4, 4.3, "ahead"),
    ],
)
def test_measured_times_that_are_near_are_a_tie(own_us: float, peer_us: float, verdict: str) -> None:
    own = replace(ROW, median_us=own_us)
    peer = replace(ROW, implementation="cupy", median_us=peer_us, contract="does less")
    (one,) = measured_standing.standings([own, peer, replace(peer, implementation="copy", median_us=1.0)])
    assert one.verdict == verdict
    lines = measured_standing.not_ahead([one])
    assert [line.split()[1] for line in lines] == [verdict] * (verdict != "ahead")
    assert all("cupy 10.0 us, other contract" in line or f"{peer_us:.1f} us, other" in line for line in lines)


def predicted_when_measured() -> list[predicted.Row]:
    """The predictions of the code that was measured on an H200."""
    before = results.RESULTS.glob(f"nvidia-h200{results.MEASURED_CODE}.csv")
    return compare.of_measured_code(predicted.read()[1], before)


def test_what_is_near_is_more_than_copies_of_one_kind_differ() -> None:
    """The driver's copy is timed as cudml, as PyTorch and as the limit, in one run."""
    rows = results.read(results.RESULTS / "nvidia-h200.csv")
    copies = {row.key for row in predicted_when_measured() if row.kernels == "cudaMemcpyAsync"}
    in_one_run: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if (row.operator, row.case) in copies and row.cache == "cold" and row.implementation != "cupy":
            in_one_run.setdefault((row.operator, row.case, row.commit), []).append(row.median_us)
    times = {run: found for run, found in in_one_run.items() if len(found) > 1}
    assert len(times) >= 3
    for of_case in times.values():
        assert measured_standing.are_near(min(of_case), max(of_case))


def test_measured_times_take_the_place_of_predicted_ones(tmp_path: Path) -> None:
    """In the README, in the results, GPUs first, and in PREDICTION.md."""
    _, rows = predicted.read()
    first = next(row for row in rows if row.operator == "slice")
    own = replace(
        ROW, case=first.case, device="NVIDIA H200", median_us=2 * first.time_us, bytes_moved=1 << 30
    )
    cupy = replace(own, implementation="cupy", median_us=9 * first.time_us)
    results.merge(tmp_path / "nvidia-h200.csv", [own, cupy])
    results.merge(tmp_path / "a-cpu.csv", [replace(ROW, cache="warm", device="A CPU")])
    readme, prediction = tmp_path / "R.md", tmp_path / "P.md"
    markers = (report.BEGIN, report.END, report.PEERS_BEGIN, report.PEERS_END)
    arguments = ["--results", str(tmp_path), "--readme", str(readme), "--prediction", str(prediction)]

    def reported(predictions: list[predicted.Row]) -> tuple[str, str, str]:
        readme.write_text("\n".join(markers))
        prediction.write_text(f"{report.COMPARED_BEGIN}\n{report.COMPARED_END}\n")
        (tmp_path / predicted.TABLE.name).write_text(predicted.table_text("13.0", predictions))
        assert report.main(arguments) == 0
        return readme.read_text(), (tmp_path / "README.md").read_text(), prediction.read_text()

    slower = replace(first, time_us=10.0, cupy_us=1.0, bound="latency")
    other = replace(slower, case="not measured")
    told, tables, compared = reported([replace(slower, time_us=first.time_us), other])
    assert told.index("on NVIDIA H200") < told.index("on A CPU")
    assert "| `slice` | 1 | cupy 4.5x (1/0/0) |" in told
    assert "| `slice` | CuPy | 0 | 0 | 1 |" in told
    order = ["**NVIDIA H200** (", "**NVIDIA H200**, predicted, not measured", "**A CPU** ("]
    assert sorted(order, key=tables.index) == order
    assert re.findall(r"^\| behind .*", tables, re.MULTILINE) == [
        "| behind | `slice`, not measured | 10 us | CuPy 1 us |"
    ]
    assert "1 cases of cudml have been measured, and 1 of CuPy's kernels." in compared
    assert "| all, bound by | latency | 1 | 2.00x | 2.00x | 2.00x |" in compared
    assert (
        f"| 2.00x | {own.median_us:,.1f} us | {first.time_us:,.1f} us | `slice`, {first.case} |" in compared
    )

    told, tables, _ = reported([replace(slower, time_us=first.time_us)])
    assert "No case is left that has not been measured." in told


def test_prediction_says_how_far_predictions_are_from_measured_times() -> None:
    text = (ROOT / "bench/PREDICTION.md").read_text()
    _, _, rest = text.partition(f"{report.COMPARED_BEGIN}\n")
    told, end, _ = rest.partition(f"\n{report.COMPARED_END}")
    assert end
    rows = results.read(results.RESULTS / "nvidia-h200.csv")
    predictions = predicted_when_measured()
    assert told == compare.section(rows, predictions)
    beyond = [pair for pair in compare.pairs(rows, predictions) if not pair.is_within]
    assert beyond
    assert told.count(" not explained yet |") + told.count("64 bytes at a time") == min(len(beyond), 20)


def test_readme_and_results_say_where_cudml_is_ahead_tied_and_behind() -> None:
    _, rows = predicted.read()
    compared = {(row.operator, row.case) for row in rows if row.cupy_us}
    assert compared == {
        (operator, case.name)
        for operator in peers.OPERATORS
        for case in importlib.import_module(f"bench.{operator}").CASES
    }
    readme = (ROOT / "README.md").read_text()
    _, _, rest = readme.partition(f"{report.PEERS_BEGIN}\n")
    told, end, _ = rest.partition(f"\n{report.PEERS_END}")
    assert end
    devices = report.measured_devices(results.RESULTS)
    found = report.open_standings(devices, rows, native_peers.read())
    measured = {row.case for row in devices[0] if row.implementation == "cudml"}
    assert not measured & {one.case for one in found}
    assert told == standing.counts(found)
    assert sum(map(int, re.findall(r" (\d+) (?=\|)", told))) == len(found)
    _, _, rest = readme.partition(f"{report.BEGIN}\n")
    told, _, _ = rest.partition(f"\n{report.END}")
    assert told == "\n\n".join(map(report.summary, devices))
    assert told.startswith("| on NVIDIA H200 |")
    tables = (ROOT / "bench/results/README.md").read_text()
    assert tables == report.results_text(devices, found)
    for error in (standing.WORST_ERROR["DRAM"], standing.WORST_ERROR_ELSEWHERE):
        assert f"{100 * error:.0f} %" in readme
    near = f"within {100 * measured_standing.NEAR:.2g} % or {measured_standing.NEAR_US} us"
    assert near in " ".join(readme.split())


def test_every_measured_case_in_which_cudml_is_not_ahead_is_listed() -> None:
    """By the rows alone: no result that is right and faster than cudml's is left out."""
    rows = [row for row in results.read(results.RESULTS / "nvidia-h200.csv") if row.cache == "cold"]
    own = {(row.operator, row.case): row.median_us for row in rows if row.implementation == "cudml"}
    text = (ROOT / "bench/results/README.md").read_text()
    _, _, after = text.partition("**NVIDIA H200**, measured")
    listed, _, _ = after.partition("\n**")
    faster = [
        row
        for row in rows
        if row.implementation not in ("cudml", "copy")
        and row.median_us * 1.03 < own.get((row.operator, row.case), 0.0)
        and not re.search(r"error 0\.\d", row.checked)
    ]
    assert faster
    for row in faster:
        line = (
            rf"^\| behind \| `{row.operator}`, {re.escape(row.case)} \|.*\| {row.implementation} [\d.,]+ us"
        )
        assert re.search(line, listed, re.MULTILINE), row


@pytest.mark.parametrize(
    ("own_us", "peer_us", "verdict"),
    [(10, 13.6, "ahead"), (10, 13.4, "tie"), (13.4, 10, "tie"), (13.6, 10, "behind")],
)
def test_ahead_means_by_more_than_the_error_of_the_model(own_us: float, peer_us: float, verdict: str) -> None:
    one = standing.Standing("top_k", "a", "cub", own_us, peer_us, ("DRAM", "latency"))
    assert one.verdict == verdict


def test_the_error_of_the_model_is_what_its_proof_allows() -> None:
    """It is the streaming group's for rows that memory binds, and the largest of all groups elsewhere."""
    streams = standing.Standing("slice", "a", "CuPy", 10, 11.5, ("DRAM", "DRAM"))
    assert streams.error == GROUPS["streaming"].worst
    assert replace(streams, bounds=("DRAM", "")).error == streams.error
    elsewhere = replace(streams, bounds=("DRAM", "launch")).error
    assert elsewhere == max(group.worst for group in GROUPS.values())


def test_report_needs_its_markers_and_writes_nothing_without(tmp_path: Path) -> None:
    results.merge(tmp_path / "a-gpu.csv", [ROW])
    readme = tmp_path / "R.md"
    readme.write_text("text")
    for name, message in [("R.md", r"R\.md has no lines"), ("none.md", "2")]:
        with pytest.raises(SystemExit, match=message):
            report.main(["--results", str(tmp_path), "--readme", str(tmp_path / name)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["R.md", "a-gpu.csv"]
    assert readme.read_text() == "text"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "("], "--filter: '(' is not a regular expression (missing ), unterminated subpattern"),
        (["--seconds", "0"], "--seconds: 0 is not above 0"),
        (["--seconds", "nan"], "--seconds: nan is not above 0"),
        (["--minutes", "-1"], "--minutes: -1 is not above 0"),
        (["--results", f"{__file__}/results"], "/results cannot be made (Not a directory)"),
    ],
)
def test_wrong_options_are_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_command([*arguments, "--dry", "--device", "cpu"])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_filter_that_leaves_no_case_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_command(["--dry", "--device", "cpu", "--filter", "no such case"]) == 1
    assert capsys.readouterr().err == "no case of this device matches --filter 'no such case'\n"


@pytest.fixture
def dask_bench() -> Any:
    return pytest.importorskip("bench.dask", reason="Dask is not installed: pip install -e '.[dask]'")


def test_dask_is_compared(dask_bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_command(["dask", "--rounds", "1", "--shrink", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(dask_bench.CASES)
    assert all(re.search(r"cudml.dask +[\d.]+ ms +dask +[\d.]+ ms +[\d.]+ x +ok$", line) for line in lines)


def test_a_wrong_top_k_of_chunks_is_reported(
    dask_bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = dask_bench.cudml.dask.top_k
    smallest = partial(largest, mode="smallest")
    monkeypatch.setattr(dask_bench.cudml.dask, "top_k", smallest)
    assert bench_command(["dask", "--rounds", "1", "--shrink", "64"]) == 1
    assert capsys.readouterr().out.count("WRONG") == len(dask_bench.CASES)


@pytest.mark.parametrize("file", sorted(MICRO_INSTANCES))
def test_kernels_of_the_micro_figures_compile(file: str) -> None:
    if (missing := unavailable()) is not None:
        pytest.skip(missing)
    compiled = compile_cubin((MICRO / file).read_text(), "sm_90", MICRO_INSTANCES[file])
    assert len(compiled.mangled) == len(MICRO_INSTANCES[file])


def test_every_micro_file_is_compiled_above() -> None:
    assert {path.name for path in MICRO.glob("*.cu")} == set(MICRO_INSTANCES)


def test_overhead_is_skipped_where_nothing_is_installed() -> None:
    """Each test is skipped with what to install; none is an error."""
    code = """if True:
        import sys, pytest
        from importlib.machinery import PathFinder
        find, missing = PathFinder.find_spec, ("cupy", "torch", "onnx", "onnxruntime")
        PathFinder.find_spec = lambda name, *rest: None if name in missing else find(name, *rest)
        sys.exit(pytest.main(["bench/test_overhead.py", "-n", "0", "-rs", "-p", "no:cacheprovider"]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    for message in ("CuPy is not installed: pip install --group nvrtc", "'.[torch]'", "'.[onnx]'"):
        assert message in done.stdout
    assert re.search(r"\n\d+ skipped in ", done.stdout)
    assert done.returncode == 0


def test_threads_prints_a_row_for_each_operator_and_number_of_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench_command(["threads", "--most", "2", "--seconds", "0.01", "--rounds", "1"]) == 0
    rows = re.findall(r"^(\w+) .* (\d+) threads +(\d+) calls/s +([\d.]+) x$", capsys.readouterr().out, re.M)
    expected = [(operator, count) for operator in runner.OPERATORS for count in ("1", "2")]
    assert [(operator, count) for operator, count, _, _ in rows] == expected
    assert all(int(rate) > 0 for _, _, rate, _ in rows)
    assert [ratio for _, count, _, ratio in rows if count == "1"] == ["1.00"] * len(runner.OPERATORS)


class _Stream:
    """CuPy with nothing but the current stream's synchronisation: no event can be recorded."""

    def __init__(self) -> None:
        self.cuda = self
        self.num_synchronizations = 0

    def get_current_stream(self) -> "_Stream":
        return self

    def synchronize(self) -> None:
        self.num_synchronizations += 1


def test_calls_on_other_streams_are_timed_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, flushes = CudaTimer.__new__(CudaTimer), []
    timer._cupy = _Stream()
    monkeypatch.setattr(CudaTimer, "flush", lambda timer: flushes.append(timer))
    cold = timer.measure(lambda: time.sleep(0.002), "cold", 0.01, by_host=True)
    num_cold = len(flushes)
    warm = timer.measure(lambda: time.sleep(0.002), "warm", 0.01, by_host=True)
    assert cold.median_us >= 2000 <= warm.median_us
    assert cold.host_us is None
    # The cache is made cold before every call, and its reads have ended before the clock starts.
    assert num_cold - (len(flushes) - num_cold) == cold.repeats
    assert timer._cupy.num_synchronizations >= cold.repeats + warm.repeats


def test_jax_is_a_peer_with_a_stream_of_its_own() -> None:
    own = {name for name, peer in importlib.import_module("bench.top_k").PEERS.items() if peer.has_own_stream}
    assert own == {"jax.lax.top_k"}
