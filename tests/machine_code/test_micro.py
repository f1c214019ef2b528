"""Rows measured on an H200 against the model: each row has a place, and held-out rows are predicted.

Predictions are skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from bench.micro import bandwidth, clusters, latency, launches, selection
from bench.micro.figures import Kernel
from bench.prediction import command, micro, waits
from bench.prediction.model import (
    COLD_US,
    LAUNCH_US,
    Prediction,
    SecondLevel,
    blocks_to_run,
    in_order,
    predict,
)
from bench.prediction.rows import CONSTANTS, GROUPS, NOT_MODELLED, held_out, measured, reason
from proof.sass.compiler import unavailable
from proof.sass.encoding import Rates
from proof.sass.launch import Buffer, Launch, zeros
from proof.sass.rates import L2_BYTES, h200

needs_compiler = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Some held-out rows of each group, which take seconds. `python -m bench predict --micro` predicts all.
SAMPLE = [
    name
    for name in held_out()
    if any(
        part in name
        for part in (
            *("arg-max", "histogram of int8", "float16 normal", "AsPair, 32 MiB", ", 16 MiB"),
            *("exchange of 512", "exchange of 1024", "words between 8 blocks", "words between 32 blocks"),
            *("word from", "acquire", "hand-off", "two empty", "cooperative", "cluster of", "__syncthreads"),
            *("load from", "load of a warp"),
        )
    )
]


def test_every_row_has_one_place() -> None:
    """Every constant, reason and prediction belongs to a measured row, and no row is left over."""
    names = set(measured())
    assert set(CONSTANTS) <= names
    assert not [name for name in CONSTANTS if reason(name)]
    assert {pattern for pattern in NOT_MODELLED if not any(reason(name) for name in names)} == set()
    for name in held_out():
        assert [group for group, one in GROUPS.items() if re.fullmatch(one.pattern, name)], name
    assert len(names) == len(CONSTANTS) + len(held_out()) + sum(reason(name) is not None for name in names)


@pytest.mark.parametrize(
    ("size", "num_clusters", "waves"),
    [(2, 66, 1), (2, 67, 2), (4, 30, 1), (4, 31, 2), (4, 64, 3), (8, 16, 2)],
)
def test_clusters_take_the_waves_that_were_measured(size: int, num_clusters: int, waves: int) -> None:
    """The multiprocessors of one cluster run all clusters that follow each other on them."""
    launch = Launch(
        Mock(), b"", [], (size * num_clusters, 1, 1), (256, 1, 1), cluster_blocks=size, joint_blocks=size
    )
    num_multiprocessors, (blocks,) = blocks_to_run(launch)
    assert (num_multiprocessors, len(blocks)) == (size, size * waves)


@needs_compiler
def test_held_out_rows() -> None:
    """A sample of each group is within the group's bars."""
    rows = list(micro.compared(SAMPLE))
    assert sorted(row.name for row in rows) == sorted(SAMPLE)
    assert {row.group for row in rows} == set(GROUPS)
    for row in rows:
        print(f"{row.group} {row.name} {row.error:+.3f}")
    assert micro.failures(rows) == []


@needs_compiler
@pytest.mark.predictions
def test_all_held_out_rows() -> None:
    """All rows are within the bars, and the mean of all errors, with their signs, is small."""
    rows = list(micro.compared())
    assert sorted(row.name for row in rows) == sorted(held_out())
    assert micro.failures(rows) == []


def without(*names: str) -> Callable[..., Rates]:
    """The rates of an H200 but for some, which cost nothing."""

    def changed(*given: Any) -> Rates:
        rates = h200(*given)
        for name in names:
            setattr(rates, name, 0)
        return rates

    return changed


@needs_compiler
@pytest.mark.parametrize(
    ("names", "part"),
    [
        (("line_clocks_per_sector", "line_clocks_per_store", "l2_far_latency"), "exchange of 512"),
        (("remote_latency",), "load from block 1, cluster of 16"),
        (("fence_latency",), "release and acquire, cluster of 16"),
        (("pipe_clocks_per_line_more", "clocks_per_line_more"), "32 bytes a lane"),
        (("memory_latency",), "load from memory, one of 2 MiB"),
    ],
    ids=["contention", "distance in a cluster", "fence", "lines apart", "memory"],
)
def test_a_model_that_forgets_is_caught(
    names: tuple[str, ...], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert micro.failures(list(micro.compared(part))) == []
    monkeypatch.setattr(waits, "h200", without(*names))
    failures = micro.failures(list(micro.compared(part)))
    assert failures
    assert all(part in failure and ": -" in failure for failure in failures)


@needs_compiler
def test_a_sector_on_its_way_is_waited_for() -> None:
    """Two blocks that follow one chain through memory are no faster than one."""
    alone, both = (waits.load_of_chain("memory", 2, num_blocks) for num_blocks in (1, 2))
    assert both >= 0.99 * alone


@needs_compiler
def test_updates_of_a_word_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """1056 blocks add to one word: their time grows with the clocks of each update."""
    times = []
    for clocks in (0.0, 4.0, 8.0):

        def changed(*given: Any, clocks: float = clocks) -> Rates:
            rates = h200(*given)
            rates.word_clocks_per_update = clocks
            return rates

        monkeypatch.setattr(waits, "h200", changed)
        times.append(waits.hand_off(1056))
    assert times[2] - times[0] > 1056 * 4 / 1980
    assert times[1] < times[2] - 1056 * 2 / 1980


def test_errors_above_the_bars_are_named() -> None:
    """A row's error counts whenever the row is there, a group's median and the mean only if all rows are."""

    def rows(names: list[str], value: float) -> list[micro.Comparison]:
        return [micro.Comparison(name, "us", 1.0, value, None) for name in names]

    few = [name for name in held_out() if "hand-off" in name]
    assert micro.failures(rows(few[:1], 1.4)) == [f"{few[0]}: +40.0%, allowed is 35.0% on either side"]
    assert micro.failures(rows(few[:1], 1.2)) == []
    assert micro.failures(rows(few, 1.2)) == ["hand-off: median 20.0%, allowed is 15.0%"]
    assert micro.failures(rows(held_out(), 1.06))[-1] == "mean error +6.0%, allowed is 5.0% on either side"


class Gpu:
    """Enough of a GPU for bench/micro to name its rows."""

    has_clusters = True
    num_multiprocessors = 132

    def __init__(self) -> None:
        stream = SimpleNamespace(synchronize=lambda: None)
        self.xp = SimpleNamespace(
            zeros=lambda size, dtype: np.zeros(1, dtype),
            maximum=np.maximum,
            asarray=np.asarray,
            cuda=SimpleNamespace(
                get_current_stream=lambda: stream,
                driver=SimpleNamespace(funcSetAttribute=lambda *given: None),
            ),
        )
        self.source = SimpleNamespace(normal=self.numbers, uniform=self.numbers)

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(1, np.float32)

    def kernel(self, *given: Any, **named: Any) -> Kernel:
        return Kernel(SimpleNamespace(kernel=SimpleNamespace(ptr=0)), 0)

    def int64(self, count: int = 1) -> np.ndarray:
        return np.ones(count, np.int64)

    def uint32(self, count: int = 1) -> np.ndarray:
        return np.zeros(1, np.uint32)

    def flush(self) -> None:
        pass

    def cold_us(self, call: Any) -> float:
        return 1.0

    warm_us = cold_us


def test_rows_are_named_as_the_code_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recorded row is one that bench/micro would measure again."""
    monkeypatch.setattr(Kernel, "__call__", lambda *given: None)
    monkeypatch.setattr(clusters, "_active_clusters", lambda *given: 1)
    monkeypatch.setattr(launches, "_graph_us", lambda *given: 1.0)
    monkeypatch.setattr(latency, "_clock_hz", lambda gpu: 1.98e9)
    named = {
        figure.name
        for module in (launches, latency, clusters, bandwidth, selection)
        for figure in module.measure(Gpu())  # type: ignore[arg-type]
    }
    assert set(measured()) <= named


def test_the_second_level_keeps_what_fits() -> None:
    """Buffers of all launches stay while they fit together, then those of the last launch, if they fit."""
    small, large, huge = (Buffer(zeros(size)) for size in (1 << 10, L2_BYTES - 4096, L2_BYTES + 1))
    level = SecondLevel()
    level.touch([small])
    level.touch([large])
    assert level._left == [small, large]
    other = Buffer(zeros(8192))
    level.touch([other])
    assert level._left == [other]
    level.touch([huge])
    assert level._left == []


@needs_compiler
def test_a_launch_finds_what_an_earlier_one_left() -> None:
    launch = micro.bandwidth_launch("read", 4)
    level = SecondLevel()
    first = level.before(launch)
    second = level.before(launch)
    assert [*first.in_l2] == []
    assert [*second.in_l2] == [*launch.buffers]
    cold, warm = predict(first), predict(second)
    assert (cold.counts["memory_sectors"], warm.counts["memory_sectors"]) == ((4 << 20) / 32, 0)
    assert warm.clocks < cold.clocks


def test_a_kernel_is_cold_once() -> None:
    part = Prediction(1, LAUNCH_US + COLD_US, 8, 100.0, {}, {})
    twice, differing = (in_order([("a", part), (name, part)]) for name in "ab")
    assert differing.time_us - twice.time_us == pytest.approx(COLD_US)


@needs_compiler
def test_command_says_why_a_row_is_not_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--micro", "--case", "cluster of 2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("barrier, relaxed, cluster of 2" in line and "gives the barrier" in line for line in lines)
    assert any("pushed exchange" in line and "not modelled: asynchronous" in line for line in lines)
