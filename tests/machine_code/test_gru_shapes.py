"""Shapes of the GRU's grid: the choice by measured times, and their measurement by the emulator."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import gru_shapes as shapes
from bench.cases import WrongResultError
from bench.prediction.draw import figures_of
from bench.prediction.scans.gru import desc_of
from bench.targets import Target
from cudml.devices import emulator
from cudml.operators.choice import path_of
from cudml.operators.gru.clocks import CLOCKS
from cudml.operators.gru.operator import layer_of
from proof.sass.plan import HOPPER
from tests.support.counting_timer import CountingTimer

#: Largest time of the shape with the least estimate, over the least time.
MOST_REGRET = 1.05

ROWS = shapes.read(shapes.table_of("nvidia-h200"))


def test_the_least_estimate_is_near_the_least_measured_time() -> None:
    found = shapes.regrets(ROWS, HOPPER.limits)
    assert sorted(found) == sorted(shapes.LAYERS)
    assert {layer: regret for layer, regret in found.items() if regret > MOST_REGRET} == {}
    source = json.loads(path_of("gru").read_text(encoding="utf-8"))["source"]
    assert source.endswith(f" regret: {figures_of(found.values())} ({len(found)} layers)")


def test_other_numbers_choose_shapes_that_take_longer() -> None:
    """The measured times tell good numbers from others."""
    for other in ({"exchanged_bytes": 2}, {"round": 20_000}, {"round": 500}, {"product_term": 7}):
        found = shapes.regrets(ROWS, HOPPER.limits, replace(CLOCKS, **other))
        assert max(found.values()) > 1.2, other


TARGET = Target("cuda", "NVIDIA H100 PCIe", np, 0, {})
GPU = replace(emulator.get_device().limits, warp_lanes=32, num_multiprocessors=5)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "NUM_STEPS", 3)


def measured(load: Any) -> list[shapes.Row]:
    device: Any = SimpleNamespace(limits=GPU, load=load)
    return [*shapes.measured(40, 3, TARGET, CountingTimer(), device, 0.01)]


@pytest.mark.usefixtures("short")
def test_every_shape_near_the_best_is_measured(tmp_path: Path) -> None:
    rows = measured(emulator.get_device().load)
    layer = layer_of(desc_of("float32", 3, 3, 40))
    assert len(rows) == len([*shapes.candidates(layer, GPU)])
    assert {row.path for row in rows} == {"products", "block", "grid"}
    of_grid = {(row.num_groups, row.round_batch) for row in rows if row.path == "grid"}
    assert of_grid == {(1, 0), (1, 4)}
    assert [row.median_us for row in rows] == [10.0 * n for n in range(1, len(rows) + 1)]
    table = shapes.table_of(TARGET.slug, tmp_path)
    shapes.write(table, "Measured elsewhere", rows)
    assert shapes.read(table) == rows
    (regret,) = shapes.regrets(rows, GPU).values()
    assert 10 * regret in [row.median_us for row in rows]


@pytest.mark.usefixtures("short")
def test_a_shape_with_other_bits_is_an_error() -> None:
    load = emulator.get_device().load
    loaded = []

    def load_wrong(plan: Any) -> Any:
        program = load(plan)
        loaded.append(plan)

        def run(operands: Any, workspace: Any) -> None:
            program(operands, workspace)
            if len(loaded) == 4:  # the second shape
                operands[plan.operands.index("output_sequence_tensor")][1, 0, 2, 7] += 1

        return run

    with pytest.raises(WrongResultError, match="1 of 360 elements"):
        measured(load_wrong)
