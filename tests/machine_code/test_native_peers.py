"""CUB's top-k, its host code over the stand-in for the CUDA runtime: exact results, and times as recorded.

Skipped where NVRTC, nvdisasm, nvcc or CCCL is not installed: `pip install --group nvrtc --group peers`.
"""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import gru, native, reverse_subsequences, slice, top_k
from bench.cases import WrongResultError
from bench.checks import sample_rows
from bench.prediction import command, micro, native_peers, torch_cells
from bench.prediction.cases import fewer_rows
from bench.prediction.model import COLD_US, FLOPS, LAUNCH_US, NEXT_LAUNCH_US, Prediction
from bench.prediction.recorder import Row
from cudml.plans import Fill
from proof.runtime import library as stand_in
from proof.runtime.fat_binary import cubins
from proof.sass.compiler import unavailable
from proof.sass.rates import CLOCK_HZ, L2_BYTES, MEMORY_RATE
from tests.support.fat_binaries import fat_binary

WHY = unavailable() or stand_in.unavailable() or native.unavailable(native.LIBRARIES["cub"])
needs_cub = pytest.mark.skipif(WHY is not None, reason=str(WHY))

CUB = "cub.DeviceTopK"
OF_NAME = {case.name: case for case in top_k.CASES}
SMALL = OF_NAME["latency 1 x 1000 k 5 float32"]
RECORDED = native_peers.read()


@needs_cub
@pytest.mark.parametrize("name", [SMALL.name, "language model 1 x 32000 k 50 float16"])
def test_results_are_exact_and_times_as_recorded(name: str) -> None:
    row = native_peers.predicted(OF_NAME[name], CUB)
    assert row is not None
    assert row.launches > 1
    assert native_peers.differences(RECORDED, [row]) == []


@needs_cub
def test_a_kernel_is_cold_once_and_the_l2_keeps_its_buffers() -> None:
    recorder = native_peers.Recorder()
    launch = micro.bandwidth_launch("read", 1)
    recorder._launch("read", launch)
    alone = recorder.total()
    recorder._launch("read", launch)
    both = recorder.total()
    assert both.overhead_us == pytest.approx(alone.overhead_us + NEXT_LAUNCH_US)
    assert both.counts["memory_sectors"] == alone.counts["memory_sectors"] > 0
    recorder.begin()
    recorder._transfer(Fill("", 1 << 20), [launch.buffers[0]])
    recorder._launch("read", launch)
    filled = recorder.total()
    assert filled.counts["memory_sectors"] < 1.1 * alone.counts["memory_sectors"]
    assert filled.overhead_us == pytest.approx(both.overhead_us + COLD_US)


def planted(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setitem(top_k.PEERS, CUB, replace(top_k.PEERS[CUB], **changes))


@needs_cub
def test_a_wrong_result_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = top_k.PEERS[CUB].prepare

    def prepare(case: Any, inputs: Any) -> Any:
        call = real(case, inputs)
        assert call is not None

        def spoiled() -> Any:
            values, indices = call()
            indices[0, 1] = indices[0, 0]
            return values, indices

        return spoiled

    planted(monkeypatch, prepare=prepare)
    row = native_peers.predicted(SMALL, CUB)
    assert row is not None
    assert (row.time_us, row.launches) == (0, 0)
    assert row.note == "wrong result: indices are not 5 different ones of a lane"


@needs_cub
def test_an_error_of_a_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that is not in the device's memory."""
    monkeypatch.setattr(stand_in.Runtime, "array", lambda runtime, data: data)
    row = native_peers.predicted(SMALL, CUB)
    assert row is not None
    assert row.time_us == 0
    assert row.note.startswith("not executed: load of 4 bytes at 0x")
    assert "is outside every buffer: " in row.note


@needs_cub
def test_an_error_that_the_program_ignores_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = stand_in.Runtime._launch

    def launch(runtime: stand_in.Runtime, *given: Any) -> None:
        real(runtime, *given)
        runtime._error = ValueError("late")

    monkeypatch.setattr(stand_in.Runtime, "_launch", launch)
    row = native_peers.predicted(SMALL, CUB)
    assert row is not None
    assert (row.time_us, row.note) == (0, "not executed: late")


@pytest.mark.skipif(stand_in.unavailable() is not None, reason=str(stand_in.unavailable()))
def test_an_error_of_one_device_is_not_the_next_ones() -> None:
    first, library = stand_in.Runtime(lambda name, launch: None), ctypes.CDLL(str(stand_in.build()))
    assert library.cudaFree(0x10) == library.cudaPeekAtLastError() != 0
    assert isinstance(first.error(), KeyError)
    second = stand_in.Runtime(lambda name, launch: None)
    assert (library.cudaPeekAtLastError(), second.error()) == (0, None)


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "nvcc", lambda: None)
    row = native_peers.predicted(SMALL, CUB)
    assert row is not None
    assert row.note == "not executed: there is no nvcc: pip install --group peers (pip 25.1 or later)"
    recorded = [replace(row, note="", time_us=5.0)]
    assert native_peers.differences(recorded, [row]) == [f"{SMALL.name}, {CUB}: {row.note}, recorded: a time"]


def test_large_cases_are_named_and_others_left_out() -> None:
    row = native_peers.predicted(OF_NAME["neighbours 1 x 1000000000 k 64 float32"], CUB)
    assert row is not None
    assert row.note == "not executed: more than 268435456 elements"
    assert native_peers.predicted(OF_NAME["serving 64 x 128256 k 50 float32"], CUB) is None


def test_many_rows_are_told_by_two_numbers_of_fewer() -> None:
    """The time is on the line through both; the larger number is not executed if the smaller has no time."""
    case, row = OF_NAME["segments 4194304 x 64 k 8 float32"], Row("", "", "", 0.0, 0, "", "")
    less, more, factor = sizes = fewer_rows(case, (1 << 23) - 1)
    assert (less.num_rows, more.num_rows, factor) == (1 << 15, 1 << 16, 126)

    def taking(size: top_k.TopKCase) -> Prediction:
        return Prediction(1, 2.0, 0, 1e6 + 50 * size.num_rows, {"issue": 0.0}, {})

    assert row.of_sizes(*sizes, taking) == row.taking(taking(case)) != row.taking(taking(more))
    tried = []

    def failing(size: top_k.TopKCase) -> str:
        tried.append(size)
        return "no time"

    assert row.of_sizes(*sizes, failing).note == "no time"
    assert tried == [less]
    few = OF_NAME["indexer 64 x 1048576 k 512 float32"]
    assert fewer_rows(few, (1 << 23) - 1) == (few, few, 0)


def test_differences() -> None:
    row = native_peers.Row(SMALL.name, CUB, "1.2", 10.0, 3, "launch", "")
    where = f"{SMALL.name}, {CUB}"
    for changed, told in (
        (replace(row, time_us=10.4), []),
        (replace(row, time_us=10.6), [f"{where}: 10.6 us, recorded: 10.0 us"]),
        (replace(row, time_us=9.4), [f"{where}: 9.4 us, recorded: 10.0 us"]),
        (replace(row, version="1.3"), [f"{where}: version 1.3, recorded: 1.2"]),
        (
            replace(row, peer="x"),
            [f"{SMALL.name}, x: not in predicted-peers.csv; run `python -m bench predict --peers`"],
        ),
    ):
        assert native_peers.differences([row], [changed]) == told


def test_every_peer_of_a_case_is_in_the_table() -> None:
    expected = [
        ("top_k", case.name, peer)
        for case in top_k.CASES
        for peer in ("cub.DeviceTopK", "raft.select_k", "torch.topk", "torch.argmax")
        if (
            native_peers.can(case, peer)
            if peer in native_peers.PEERS
            else peer == "torch.topk" or case.k == 1
        )
    ]
    expected += [("gru", case.name, native_peers.TORCH) for case in gru.CASES if case.linear_before_reset]
    expected += [("slice", case.name, "torch") for case in slice.CASES]
    expected += [("reverse_subsequences", case.name, "torch.gather") for case in reverse_subsequences.CASES]
    assert [row.key for row in RECORDED] == expected
    assert all(bool(row.time_us) != bool(row.note) for row in RECORDED)


def test_cells_of_pytorch_are_as_recorded() -> None:
    rows = list(native_peers.rows_of("gru"))
    assert {row.operator for row in rows} == {"gru"}
    assert native_peers.differences(RECORDED, rows) == []


@pytest.mark.parametrize("case", gru.CASES, ids=lambda case: case.name)
def test_cells_of_pytorch_are_no_slower_than_they_can_be(case: gru.GruCase) -> None:
    """A layer's launches form a graph, its weights are read once, and its products run at the full rate."""
    found = torch_cells.predicted(case)
    assert (found is None) == (not case.linear_before_reset)
    if found is None:
        return
    directions, hidden = case.num_directions, case.hidden_size
    steps = case.steps * directions * case.num_layers
    assert found.launches == case.num_layers * (directions + 1) + 2 * steps
    columns = case.input_size + hidden + (case.num_layers - 1) * (directions + 1) * hidden
    products = 6.0 * hidden * columns * case.batch * case.steps * directions
    weights = 3 * case.hidden_size * case.hidden_size * np.dtype(case.dtype).itemsize
    rereads = max(0, weights - L2_BYTES) * steps / MEMORY_RATE
    least = max(products / FLOPS[case.dtype], rereads) * 1e6
    launches = LAUNCH_US + (found.launches - 1) * torch_cells.GRAPH_LAUNCH_US
    assert found.overhead_us == pytest.approx(launches + 4 * COLD_US)
    assert least < found.time_us - found.overhead_us
    assert found.limits["tensor"] / CLOCK_HZ == pytest.approx(products / FLOPS[case.dtype])


def test_the_table_is_read_as_it_was_written() -> None:
    assert native_peers.TABLE.read_text() == native_peers.table_text(RECORDED)


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (["--peers", "--micro"], "--peers is about cases: no --micro with it"),
        (["--peer", "torch"], "--peer chooses one of --peers"),
        (
            ["--peers", "--peer", "x"],
            "there is no peer 'x', but cub.DeviceTopK, raft.select_k, torch, GRU cells",
        ),
    ):
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values, indices: indices.__setitem__((0, 0), 999), "are not 3 different ones of a lane"),
        (lambda values, indices: indices.__setitem__((0, 0), 7), "values: 1 of 3 elements differ"),
        (
            lambda values, indices: (indices.__setitem__((0, 0), 7), values.__setitem__((0, 0), 7)),
            "values are not the 3 largest",
        ),
        (
            lambda values, indices: (values[...].sort(), indices[...].sort()),
            "values are not sorted",
        ),
    ],
)
def test_checks_of_peers_find_faults(change: Any, message: str) -> None:
    case = top_k.TopKCase(name="", num_rows=1, row_length=20, k=3)
    a = np.arange(20, dtype=np.float32)[None]
    values, indices = a[:, :16:-1].copy(), np.arange(19, 16, -1)[None].copy()
    assert top_k.check_sorted(case, {"a": a}, (values, indices)) == "1 lanes exact, apart from ties"
    change(values, indices)
    with pytest.raises(WrongResultError, match=message):
        top_k.check_sorted(case, {"a": a}, (values, indices))
    a[0, 3] = np.nan
    with pytest.raises(WrongResultError):
        top_k.check_sorted(case, {"a": a}, (values, indices))


def test_checks_of_peers_along_an_axis() -> None:
    """Lanes that are columns of the last two axes; a tie may be resolved either way."""
    case = top_k.TopKCase(name="", num_rows=2, row_length=5, k=2, inner=3, mode="smallest")
    a = np.random.default_rng(0).permutation(30).reshape(2, 5, 3).astype(np.float32)
    a[1, :, 2] = (4, 1, 3, 3, 9)
    indices = np.argsort(a, axis=1)[:, :2]
    values = np.take_along_axis(a, indices, axis=1)
    assert top_k.check_sorted(case, {"a": a}, (values, indices)) == "6 lanes exact, apart from ties"
    assert indices[1, 1, 2] == 2
    indices[1, 1, 2] = 3
    top_k.check_sorted(case, {"a": a}, (values, indices))
    indices[1, 1, 2] = 0
    values[1, 1, 2] = 4
    with pytest.raises(WrongResultError, match="values are not the 2 smallest"):
        top_k.check_sorted(case, {"a": a}, (values, indices))


def test_fat_binaries() -> None:
    ptx, other, own = (1, 90, 0, b".version"), (2, 80, 0, b"\x7fELF80"), (2, 90, 0, b"\x7fELF90")
    readable = fat_binary(ptx, other, own)
    assert cubins(ctypes.addressof(readable), 90) == [b"\x7fELF90end"]
    unknown = fat_binary(ptx, (2, 90, 0x2000, b"of LZ4"))
    with pytest.raises(ValueError, match="whose compression is not known: nvcc --compress-mode=none"):
        cubins(ctypes.addressof(unknown), 90)
    nothing = ctypes.create_string_buffer(16)
    with pytest.raises(ValueError, match="a fat binary begins with 0xba55ed50, this with 0x0"):
        cubins(ctypes.addressof(nothing), 90)


def test_rows_are_sampled_from_the_first_to_the_last() -> None:
    for num_rows, count in ((1, 64), (3, 64), (64, 64), (65, 64), (1000, 64), (7, 2), (5, 1)):
        rows = sample_rows(num_rows, count)
        assert len({*rows}) == min(num_rows, count)
        assert (rows[0], rows[-1]) == (0, num_rows - 1 if count > 1 else 0)
