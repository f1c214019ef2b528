"""Measured scans: the tables of a GPU, and paths that have to agree; by the emulator and a false clock."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.checks import WrongResultError
from bench.paths import PathTimer, measured_rows, origin_of
from bench.prediction.scan import Point, scan_of
from bench.prediction.scans import gru, reverse_subsequences, slice, top_k
from bench.targets import Target
from cudml.devices import get_device
from tests.support.counting_timer import CountingTimer

GPU = Target("cuda", "NVIDIA H100 PCIe", np, 0, {"nvrtc": "13.0", "driver": "580", "commit": "abc"})

SMALL = {
    "top_k": top_k.Point("rows", "float32", 3, 100, 5),
    "slice": slice.Point(2, (40, 3, 5), (15, 1, 3)),
    "reverse_subsequences": reverse_subsequences.Point(4, (30, 7), 1, 2),
    "gru": gru.Point("float32", 1, 64),
}


def path_timer() -> PathTimer:
    return PathTimer(GPU, CountingTimer(), get_device("cpu"), 0.01)


@pytest.fixture
def short_gru(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gru, "NUM_STEPS", 4)


@pytest.mark.usefixtures("short_gru")
@pytest.mark.parametrize("operator", SMALL)
def test_every_path_that_can_do_a_point_is_timed(operator: str) -> None:
    scan, point = scan_of(operator), SMALL[operator]
    row = path_timer().row_of(scan, point)
    assert list(row.times) == list(scan.plans(point, get_device("cpu").limits))
    assert list(row.times.values()) == [10.0 * n for n in range(1, len(row.times) + 1)]
    assert len(row.times) >= (1 if operator == "gru" else 2)
    assert row.chosen in row.times


@pytest.mark.usefixtures("short_gru")
@pytest.mark.parametrize("operator", SMALL)
def test_a_path_with_another_result_is_not_timed(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result's last byte, which is a part of a number's exponent, is changed."""
    scan, point = scan_of(operator), SMALL[operator]
    device = get_device("cpu")
    load = type(device).load
    loaded = []

    def load_wrong(self: Any, plan: Any) -> Any:
        program = load(self, plan)
        loaded.append(plan)
        if operator != "gru" and len(loaded) == 1:
            return program

        def run(operands: Any, workspace: Any) -> None:
            program(operands, workspace)
            operands[plan.operands.index(plan.outputs[0])][-1] ^= 0x40

        return run

    monkeypatch.setattr(type(device), "load", load_wrong)
    with pytest.raises(WrongResultError):
        path_timer().row_of(scan, point)


def test_a_table_goes_on_where_it_ended(tmp_path: Path) -> None:
    """It needs the same GPU, driver, compiler and commit; with any other it starts anew."""
    scan, origin = scan_of("slice"), origin_of(GPU)
    points = [SMALL["slice"], slice.Point(2, (40, 3, 7), (21, 1, 3))]
    table = scan.measured_table(GPU.slug, tmp_path)
    assert table.name == "nvidia-h100-pcie-slice_scan.csv"
    assert origin == "Measured on NVIDIA H100 PCIe, driver 580, NVRTC 13.0, commit abc, L2 cold"

    def measured(which: list[Point], origin: str = origin, resumes: bool = True) -> list[Point]:
        return [row.point for row in measured_rows(scan, which, path_timer(), table, origin, resumes)]

    assert measured(points[:1]) == points[:1]
    first = table.read_text()
    assert measured(points) == points[1:]
    assert table.read_text().startswith(first)
    assert scan.read(table)[0] == origin
    assert [row.point for row in scan.read(table)[1]] == points
    assert measured(points) == []
    assert measured(points[:1], resumes=False) == points[:1]
    assert measured(points[:1], origin="Measured elsewhere") == points[:1]
    assert scan.read(table)[0] == "Measured elsewhere"
    assert len(scan.read(table)[1]) == 1
