"""Trees of a choice, grown from problems with known times."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench.prediction.grow import ByTree
from bench.prediction.scan import Row, Scan, scan_of
from bench.prediction.scans.top_k import SCAN, AscendingPoint, Point, RaggedPoint
from bench.prediction.tune import Tuning
from cudml.operators.path import Choice, Path
from cudml.operators.tree import Tree
from cudml.plans import Limits
from proof.sass.plan import HOPPER

pytest.importorskip("sklearn", reason="a tree is grown by scikit-learn")

Times = Callable[[Point], dict[str, float]]


def draw(random: np.random.Generator) -> Point:
    return Point("rows", "float32", int(random.integers(1, 100)), int(random.integers(1, 1000)), 1)


def choosing(
    can_do: Callable[[str, Point, Limits], bool] = lambda name, point, limits: True,
    devices: tuple[Limits, ...] = (HOPPER.limits,),
) -> ByTree[Point]:
    def features_of(point: Point, limits: Limits) -> tuple[float, ...]:
        return point.row_length, point.num_rows, limits.max_cluster_blocks

    def path(name: str) -> Path[Point]:
        return Path(name, "", partial(can_do, name), lambda point, limits: ((), ()))

    def choose_path(point: Point, limits: Limits, tree: Tree | None) -> Choice[Point]:
        assert tree is not None
        return Choice(paths[tree.ranked(features_of(point, limits))[0]], "")

    paths = {name: path(name) for name in ("never", "short", "long")}
    return ByTree(
        numbers=Tree(("row_length", "num_rows", "cluster_blocks"), ("never",)),
        problem_of=lambda point: point,
        choose_path=choose_path,
        features_of=features_of,
        paths=paths,
        most_leaves=100,
        devices=devices,
    )


def rows_of(times_of: Times, count: int = 60) -> list[Row[Point]]:
    random = np.random.default_rng(5)
    rows = []
    for point in (draw(random) for _ in range(count)):
        times = times_of(point)
        rows.append(Row(point, next(iter(times)), times))
    return rows


def crossing(point: Point) -> dict[str, float]:
    """Either path may take less time; a third never does."""
    return {"short": point.row_length, "long": 300 + point.row_length / 10, "never": 2000}


def test_other_problems_take_the_path_of_the_least_time() -> None:
    by_tree = choosing()
    tree = by_tree.grown(rows_of(crossing), draw)
    random = np.random.default_rng(6)
    for point in (draw(random) for _ in range(500)):
        times = crossing(point)
        assert times[by_tree.choose(point, tree)] <= 1.3 * min(times.values()), point


def test_a_path_that_cannot_is_not_the_first() -> None:
    """A path that can do the problem is first there, however slow."""
    by_tree = choosing(
        lambda name, point, limits: name == "long" or (name == "short" and point.num_rows <= 50)
    )
    rows = rows_of(lambda point: {"short": 1, "long": 9} if point.num_rows <= 50 else {"long": 9})
    tree = by_tree.grown(rows, draw)
    root, *leaves = tree.nodes()
    assert [leaf[0] for leaf in leaves] == ["short", "long"]
    assert 50 <= root[1] < 51


def test_a_device_without_a_path_takes_another() -> None:
    """The first device's times alone do not tell which of the other paths takes the least time."""
    without = replace(HOPPER.limits, max_cluster_blocks=1)
    by_tree = choosing(
        lambda name, point, limits: name != "never" or limits.max_cluster_blocks > 1,
        (HOPPER.limits, without),
    )
    tree = by_tree.grown(rows_of(lambda point: {**crossing(point), "never": 1}), draw)
    assert tree.ranked((20, 1, 8))[0] == "never"
    assert tree.ranked((900, 1, 8))[0] == "never"
    assert tree.ranked((20, 1, 1))[0] == "short"
    assert tree.ranked((900, 1, 1))[0] == "long"


def test_a_path_without_a_time_is_slow() -> None:
    """A path is not predicted if it takes more than 2.5 times as long as another, which has a time."""
    tree = choosing().grown(rows_of(lambda point: {"long": 2 + point.num_rows}), draw)
    assert [node[0] for node in tree.nodes()] == ["long"]


def test_the_same_rows_grow_the_same_tree() -> None:
    first, second = (choosing().grown(rows_of(crossing), draw) for _ in range(2))
    assert first == second


def test_known_problems_count_more_than_imagined_ones() -> None:
    """A length at which the other path takes less time is kept, where estimates are the same for all."""

    def with_gap(point: Point) -> dict[str, float]:
        is_exception = point.row_length == 400
        return {"short": 9.0 if is_exception else 5.0, "long": 6.0 if is_exception else 9.0}

    points = [Point("rows", "float32", 7, length, 1) for length in (300, 330, 360, 390, 400, 420, 450)]
    rows = [Row(point, "short", with_gap(point)) for point in points]
    by_tree = choosing()
    tree = by_tree.grown(rows, draw)
    for row in rows:
        assert by_tree.choose(row.point, tree) == row.best


def test_the_least_certain_problems_are_where_times_cross() -> None:
    """Both paths take the same time for 333 elements."""
    random = np.random.default_rng(7)
    points = [draw(random) for _ in range(400)]
    found = choosing().least_certain(rows_of(crossing), points, 8)
    assert len(set(found)) == 8
    assert np.mean([abs(point.row_length - 333) for point in found]) < 100
    assert np.mean([abs(point.row_length - 333) for point in points]) > 200


TREES = ("top_k", "slice", "reverse_subsequences")


def regrets_of(scan: Scan[Any], rows: list[Row[Any]]) -> list[float]:
    """The times of the paths that the operator's tree takes, over the least times, in ascending order."""
    chosen = Tuning(rows, scan.choosing).chosen(scan.choosing.numbers)
    return sorted(row.time_us / row.times[row.best] for row in chosen)


@pytest.mark.parametrize("operator", TREES)
def test_known_problems(operator: str) -> None:
    """The table has their times; the chosen path has one, and every path is the best for some problem."""
    scan = scan_of(operator)
    text = scan.drawn_table.read_text()
    origin, rows = scan.read(scan.drawn_table)
    assert scan.table_text(origin, rows) == text
    assert len({row.point for row in rows}) == len(rows) > 3000
    assert {row.best for row in rows} == set(scan.choosing.paths)
    assert all(row.time_us > 0 for row in rows)


def test_known_problems_of_top_k() -> None:
    """Rows of equal lengths, ragged ones, and the benchmark's, which also ascend."""
    _, rows = SCAN.read(SCAN.drawn_table)
    points = {row.point for row in rows}
    assert {type(point) for point in points} == {Point, RaggedPoint, AscendingPoint}
    served = SCAN.served()
    assert {type(point) for point in served} == {Point, AscendingPoint}
    assert set(served) <= points


def test_rows_of_a_known_problem_ascend() -> None:
    operands = AscendingPoint("rows", "float16", 3, 50, 4).operands()
    others = Point("rows", "float16", 3, 50, 4).operands()
    rows, other_rows = (given["input_tensor"].view(np.float16).reshape(3, 50) for given in (operands, others))
    assert (rows[:, 1:] >= rows[:, :-1]).all()
    assert (rows != other_rows).any()
    assert (np.sort(other_rows, axis=1) == rows).all()


@pytest.mark.parametrize("operator", TREES)
def test_known_problems_take_paths_of_little_more_time(operator: str) -> None:
    """The tree was grown from them. Others are drawn by `python -m bench plan OPERATOR --random`."""
    scan = scan_of(operator)
    regrets = regrets_of(scan, scan.corrected(scan.read(scan.drawn_table)[1]))
    assert np.exp(np.mean(np.log(regrets))) < 1.01
    assert regrets[len(regrets) * 19 // 20] < 1.05


@pytest.mark.parametrize("operator", TREES)
def test_measured_points_take_paths_of_little_more_time(operator: str) -> None:
    """The tree was grown from all but every eighth point; bench/PREDICTION.md has the figures of those."""
    scan = scan_of(operator)
    regrets = regrets_of(scan, scan.measured()[1])
    assert np.exp(np.mean(np.log(regrets))) <= 1.02
    assert regrets[len(regrets) * 19 // 20] <= 1.1
    assert regrets[-1] <= 1.3
