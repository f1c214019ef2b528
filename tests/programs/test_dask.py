"""Programs of Dask, with `dask.array.topk` and `argtopk` and with `cudml.dask.top_k`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'cudml[dask]'")

import dask.array as da  # noqa: E402

import cudml  # noqa: E402
import cudml.dask  # noqa: E402
from tests.programs import assert_agree  # noqa: E402


def dasks_top_k(a: Any, k: int, *, axis: int = -1, mode: str = "largest", split_every: Any = None) -> Any:
    """Both of Dask's functions, which take a negative number for the smallest."""
    number = k if mode == "largest" else -k
    values, indices = (function(a, number, axis, split_every) for function in (da.topk, da.argtopk))
    return SimpleNamespace(values=values, indices=indices)


#: Different values: Dask leaves ties open.
A = np.random.default_rng(0).permutation(1200).astype(np.float32).reshape(12, 10, 10)
IMAGES = da.from_array(A, chunks=(5, 3, 4))
ROWS = da.from_array(A.reshape(12, 100), chunks=(5, 7))


def chunks_in_both_axes(top_k: Any) -> Any:
    found = [top_k(ROWS, 3, axis=axis) for axis in (0, 1, -1)]
    return [dask.compute(one.values, one.indices) for one in found]


def brightest_pixels_of_images(top_k: Any) -> Any:
    values, at = dask.compute(*vars_of(top_k(IMAGES.reshape(12, 100), k=5)))
    return values, at // 10, at % 10


def brightest_image_of_each_pixel(top_k: Any) -> Any:
    return vars_of(top_k(IMAGES, 1, axis=0))


def smallest_of_a_flat_array(top_k: Any) -> Any:
    return vars_of(top_k(IMAGES.ravel(), 7, mode="smallest"))


def lazy_work_before_and_after(top_k: Any) -> Any:
    scores = (ROWS * 2 + 1)[::2, ::3]
    values = top_k(scores, 2).values
    return values.mean(axis=1), da.stack([values, -values]).sum(axis=0).rechunk((6, 2))


def chunks_of_files(top_k: Any) -> Any:
    parts = [dask.delayed(lambda at=at: A[at : at + 4])() for at in (0, 4, 8)]
    whole = da.concatenate([da.from_delayed(part, (4, 10, 10), A.dtype) for part in parts])
    return vars_of(top_k(whole, 2, axis=1))


def results_that_persist(top_k: Any) -> Any:
    return dask.persist(*vars_of(top_k(ROWS, 4)))


def results_that_are_stored(top_k: Any) -> Any:
    targets = [np.empty((12, 2), np.float32), np.empty((12, 2), np.int64)]
    da.store([*vars_of(top_k(ROWS, 2))], targets)
    return targets


def rows_of_a_table_by_rank(top_k: Any) -> Any:
    table, best = da.from_array(np.arange(100) * 10, chunks=30), top_k(ROWS, 3).indices
    return best.map_blocks(lambda at, table: table[at], table.compute(), dtype=np.int64)


def merges_of_two_chunks(top_k: Any) -> Any:
    return vars_of(top_k(ROWS, 9, split_every=2))


def other_schedulers_and_dtypes(top_k: Any) -> Any:
    found = []
    for dtype, scheduler in (("i8", "threads"), ("f8", "synchronous"), ("u2", "threads")):
        values, at = vars_of(top_k(ROWS.astype(dtype), 3))
        found.append(dask.compute(values, at, scheduler=scheduler))
    return found


def a_histogram_of_the_best(top_k: Any) -> Any:
    counts, edges = da.histogram(top_k(IMAGES, 3, axis=2).values, bins=5, range=(0, 1200))
    return counts, edges


PROGRAMS = [
    *(chunks_in_both_axes, brightest_pixels_of_images, brightest_image_of_each_pixel),
    *(smallest_of_a_flat_array, lazy_work_before_and_after, chunks_of_files, results_that_persist),
    *(results_that_are_stored, rows_of_a_table_by_rank, merges_of_two_chunks, other_schedulers_and_dtypes),
    a_histogram_of_the_best,
]


def vars_of(found: Any) -> tuple[Any, Any]:
    return found.values, found.indices


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_is_the_same(program: Callable[[Any], Any]) -> None:
    ours, theirs = (dask.compute(program(top_k))[0] for top_k in (cudml.dask.top_k, dasks_top_k))
    assert_agree(ours, theirs)


def test_images_of_other_sizes() -> None:
    """Rows end where `lengths` says, as for the whole array; Dask's functions have no lengths."""
    lengths = np.arange(12)[:, None] * 9
    found = cudml.dask.top_k(IMAGES.reshape(12, 100), 5, lengths=da.from_array(lengths, chunks=5))
    assert_agree(dask.compute(*found), tuple(cudml.top_k(A.reshape(12, 100), 5, lengths=lengths)))
