"""Programs of NumPy and CuPy, with partial sorts and stable ones and with cudml's functions.

NumPy's own functions give the expected values for CuPy's arrays, too.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from tests.programs import assert_agree


class Pair(NamedTuple):
    values: Any
    indices: Any


def sorted_top_k(
    a: Any, k: int, *, axis: int = -1, mode: str = "largest", lengths: Any = None, out: Any = None
) -> Pair:
    """Top-k as NumPy's users write it: a stable sort of the valid elements, cut to k."""
    moved = np.moveaxis(np.asarray(a), axis, -1)
    keys = -moved.astype(np.float64) if mode == "largest" else moved.astype(np.float64)
    size = moved.shape[-1]
    counts = np.full((*moved.shape[:-1], 1), size) if lengths is None else np.moveaxis(lengths, axis, -1)
    order = np.argsort(np.where(np.arange(size) < counts, keys, np.inf), axis=-1, kind="stable")[..., :k]
    worst = -np.inf if mode == "largest" else np.inf
    is_there = np.arange(k) < counts
    values = np.take_along_axis(moved, order, -1)
    if lengths is not None:
        values = np.where(is_there, values, values.dtype.type(worst))
    found = [np.moveaxis(one, -1, axis) for one in (values, np.where(is_there, order, -1))]
    if out is not None:
        for target, one in zip(out, found, strict=True):
            target[...] = one
    return Pair(*(found if out is None else out))


THEIRS = SimpleNamespace(top_k=sorted_top_k, argpartition=np.argpartition, partition=np.partition)


def ours() -> Any:
    import cudml.cupy as adapter

    return SimpleNamespace(top_k=cudml.top_k, argpartition=adapter.argpartition, partition=adapter.partition)


def numbers(xp: Any, seed: int, *shape: int, ties: bool = False) -> Any:
    own = np.random.default_rng(seed)
    size = int(np.prod(shape))
    whole = own.integers(0, 9, size) if ties else own.permutation(size)
    return xp.asarray(whole.astype(np.float32).reshape(shape))


def best_scores(xp: Any, lib: Any) -> Any:
    scores = numbers(xp, 1, 6, 40, ties=True)
    values, indices = lib.top_k(scores, 5)
    return values, indices, lib.top_k(scores, 2, axis=0).indices, lib.top_k(scores, 40).values


def unpacked_results(xp: Any, lib: Any) -> Any:
    found = lib.top_k(numbers(xp, 2, 30), 3, mode="smallest")
    return found[0], found.indices, len(found)


def rows_of_given_lengths(xp: Any, lib: Any) -> Any:
    scores, lengths = numbers(xp, 3, 5, 20, ties=True), xp.asarray(np.array([[0], [2], [7], [20], [3]]))
    return lib.top_k(scores, 4, lengths=lengths), lib.top_k(scores, 4, lengths=lengths, mode="smallest")


def columns_of_given_lengths(xp: Any, lib: Any) -> Any:
    scores, lengths = numbers(xp, 4, 9, 5), xp.asarray(np.array([[0, 2, 7, 9, 3]]))
    return lib.top_k(scores, 3, axis=0, lengths=lengths)


def arrays_that_are_written_again(xp: Any, lib: Any) -> Any:
    out = xp.empty((4, 3), np.float32), xp.empty((4, 3), np.int64)
    copies = []
    for seed in range(3):
        found = lib.top_k(numbers(xp, seed, 4, 25), 3, out=out)
        copies += [found.values.copy(), out[1].copy()]
    return copies


def results_in_columns_of_a_table(xp: Any, lib: Any) -> Any:
    """Strided outputs, side by side in one array."""
    table = xp.zeros((6, 4), np.float32), xp.zeros((6, 4), np.int64)
    for column, seed in enumerate((5, 6)):
        out = tuple(one[:, 2 * column : 2 * column + 2] for one in table)
        lib.top_k(numbers(xp, seed, 6, 30), 2, out=out)
    return table


def views(xp: Any, lib: Any) -> Any:
    a = numbers(xp, 7, 6, 10, 4)
    own = (a.T, a[::2], a[:, ::-1], a[1:, 3:, ::2], a.transpose(1, 0, 2), xp.broadcast_to(a[0], (3, 10, 4)))
    return [lib.top_k(view, 2, axis=axis) for view in own for axis in (0, 1, -1)]


def fields_of_records(xp: Any, lib: Any) -> Any:
    """Fields of packed records, one at addresses that are no multiple of its size, or columns of a table."""
    table = numbers(xp, 8, 50, 3)
    records = np.zeros(50, [("id", "i2"), ("score", "f4"), ("rank", "i2")])
    records["score"], records["rank"] = host(table[:, 1]), host(table[:, 2])
    own = (records["score"], records["rank"]) if xp is np else (table[:, 1], table[:, 2].astype(np.int16))
    return [lib.top_k(one, 4) for one in own]


def other_dtypes(xp: Any, lib: Any) -> Any:
    a = numbers(xp, 9, 3, 40)
    return [lib.top_k(a.astype(dtype), 4) for dtype in ("i1", "u2", "i4", "i8", "f2", "f8", "?")]


def sampling(xp: Any, lib: Any) -> Any:
    logits = numbers(xp, 10, 3, 50)
    values, _ = lib.top_k(logits, 5)
    return logits >= values[:, -1:]


def median_and_quantiles(xp: Any, lib: Any) -> Any:
    a = numbers(xp, 11, 5, 21)
    return [lib.partition(a, kth)[..., kth] for kth in (10, 0, 20, -3)], lib.partition(a, 2, axis=0)[2]


def nearest_neighbours(xp: Any, lib: Any) -> Any:
    """The neighbours are in any order, as from `argpartition`."""
    distances = numbers(xp, 12, 7, 40)
    nearest = lib.argpartition(distances, 4, axis=1)[:, :4]
    farthest = lib.argpartition(distances, -4, axis=1)[:, -4:]
    return [np.sort(host(one)) for one in (nearest, farthest)]


def words_by_count(xp: Any, lib: Any) -> Any:
    counts = numbers(xp, 13, 100)
    at = lib.argpartition(counts, (3, 90))
    return (
        at[3],
        at[90],
        np.sort(host(at[:3])),
        np.sort(host(lib.argpartition(counts.reshape(10, 10), 5, None))),
    )


def nothing(xp: Any, lib: Any) -> Any:
    a = numbers(xp, 14, 3, 4)
    return lib.top_k(a, 0), lib.top_k(a[:0], 2), lib.top_k(a[:, :0], 0)


PROGRAMS = [
    *(best_scores, unpacked_results, rows_of_given_lengths, columns_of_given_lengths),
    *(arrays_that_are_written_again, results_in_columns_of_a_table, views, fields_of_records, other_dtypes),
    *(sampling, median_and_quantiles, nearest_neighbours, words_by_count, nothing),
]


def host(found: Any) -> Any:
    """What a program returns, in NumPy's arrays."""
    if isinstance(found, (list, tuple)):
        return [host(one) for one in found]
    if isinstance(found, np.generic):
        return np.asarray(found)
    return found.get() if hasattr(found, "get") else found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_of_numpy_is_the_same(program: Callable[[Any, Any], Any]) -> None:
    assert_agree(host(program(np, ours())), host(program(np, THEIRS)))


@pytest.mark.gpu
@pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_of_cupy_is_the_same(program: Callable[[Any, Any], Any]) -> None:
    import cupy

    assert_agree(host(program(cupy, ours())), host(program(np, THEIRS)))
