"""`cudml.dask` beside the array functions: the same bits, however the arrays are cut into chunks."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'cudml[dask]'")
distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'cudml[dask]'")

import dask.array as da  # noqa: E402
from dask.callbacks import Callback  # noqa: E402
from dask.diagnostics import ProgressBar  # noqa: E402

import cudml  # noqa: E402
import cudml.dask as adapter  # noqa: E402
from tests.support import assert_identical  # noqa: E402


def chunked(rng: np.random.Generator, a: np.ndarray) -> Any:
    """The array in chunks of random, usually different sizes."""
    chunks = []
    for size in a.shape:
        cuts = np.sort(rng.integers(0, size + 1, rng.integers(0, 4)))
        chunks.append(tuple(np.diff([0, *cuts, size]).tolist()))
    return da.from_array(a, chunks=tuple(chunks))


@pytest.mark.parametrize("number", range(40))
def test_top_k_is_that_of_the_whole_array(number: int, rng: np.random.Generator) -> None:
    """Few values, so that ties cross chunks; some chunks are empty, and many are shorter than k."""
    shape = tuple(rng.integers(1, 14, rng.integers(1, 4)).tolist())
    a = rng.integers(0, 4, shape).astype(rng.choice(["f4", "i8", "u1", "f2"]))
    if a.dtype.kind == "f":
        a[rng.random(shape) < 0.1] = np.nan
    axis = int(rng.integers(-a.ndim, a.ndim))
    options: Any = {"axis": axis, "mode": str(rng.choice(["largest", "smallest"]))}
    options["nan"] = str(rng.choice(["last", "greatest"]))
    k = int(rng.integers(0, shape[axis] + 1))
    result = adapter.top_k(chunked(rng, a), k, **options, split_every=int(rng.integers(2, 5)))
    expected = cudml.top_k(a, k, **options)
    assert [(r.shape, r.dtype) for r in result] == [(e.shape, e.dtype) for e in expected]
    for got, right in zip(dask.compute(*result, scheduler="synchronous"), expected, strict=True):
        assert_identical(got, right)


@pytest.mark.parametrize("number", range(40))
def test_rows_of_a_chunked_array_may_end_anywhere(number: int, rng: np.random.Generator) -> None:
    """In any chunk or behind the axis, with NaNs and the worst value among the valid elements."""
    shape = tuple(rng.integers(1, 14, rng.integers(1, 4)).tolist())
    a = rng.integers(0, 4, shape).astype(rng.choice(["f4", "i8", "u1", "f2"]))
    if a.dtype.kind == "f":
        a[rng.random(shape) < 0.2] = np.nan
        a[rng.random(shape) < 0.2] = rng.choice([-np.inf, np.inf])
    axis = int(rng.integers(0, a.ndim))
    options: Any = {"axis": axis, "mode": str(rng.choice(["largest", "smallest"]))}
    options["nan"] = str(rng.choice(["last", "greatest"]))
    k = int(rng.integers(0, shape[axis] + 1))
    sizes = [1 if place == axis or rng.random() < 0.3 else size for place, size in enumerate(shape)]
    lengths: Any = rng.integers(-2, shape[axis] + 3, sizes).astype(rng.choice(["i1", "i8"]))
    if rng.random() < 0.3:
        lengths = lengths.astype("i8").astype("u8")  # a negative length becomes one behind every axis
    expected = cudml.top_k(a, k, **options, lengths=lengths)
    # NumPy makes float64 of a list that mixes numbers that only uint64 holds with others.
    plain = lengths if lengths.dtype == np.uint64 else lengths.tolist()
    for given in (lengths, chunked(rng, lengths), plain):
        result = adapter.top_k(chunked(rng, a), k, **options, lengths=given, split_every=2)
        assert [(r.shape, r.dtype) for r in result] == [(e.shape, e.dtype) for e in expected]
        for got, right in zip(dask.compute(*result, scheduler="synchronous"), expected, strict=True):
            assert_identical(got, right)


def test_what_is_missing_never_comes_before_nan() -> None:
    """Not even after two merges, where the first has more than k valid elements."""
    a = da.from_array(np.full(12, np.nan), chunks=3)
    values, indices = dask.compute(*adapter.top_k(a, 2, lengths=7, split_every=2))
    assert np.isnan(values).all()
    assert indices.tolist() == [0, 1]


def test_lengths_of_a_narrow_type_end_rows_of_a_long_axis() -> None:
    a = np.arange(1000.0)
    values, indices = dask.compute(
        *adapter.top_k(da.from_array(a, chunks=300), 2, lengths=np.array([100], "i1"))
    )
    assert [values.tolist(), indices.tolist()] == [[99, 98], [99, 98]]


def test_progress_is_told_by_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    """By names that a dashboard shows, and by Dask's own bar."""
    done: list[str] = []
    counting = Callback(posttask=lambda key, *_: done.append(key[0].rpartition("-")[0]))
    with counting, ProgressBar(dt=0.01):
        dask.compute(*adapter.top_k(da.ones(20, chunks=4), 2), scheduler="synchronous", optimize_graph=False)
        x = da.ones((2, 6, 2), chunks=(2, 2, 2), dtype="f4")
        weights = np.ones((1, 6, 2), "f4")
        dask.compute(*adapter.gru(x, weights, weights), scheduler="synchronous", optimize_graph=False)
    assert [done.count(name) for name in ("top_k-chunk", "gru-chunk")] == [5, 3]
    assert {"top_k-merge", "top_k-values", "top_k-indices", "gru-sequence"} <= {*done}
    assert "100% Completed" in capsys.readouterr().out


def test_chunks_are_merged_as_dask_s_reductions_merge(rng: np.random.Generator) -> None:
    """By a number, or by the axis's number in a dictionary, where Dask takes other axes too."""
    a = rng.integers(0, 50, (3, 64))
    chunked = da.from_array(a, chunks=(3, 4))
    found = {}
    for split_every in (2, {1: 2}, 16, {1: 16}, {1: 4, 0: 2}):
        result = adapter.top_k(chunked, 5, split_every=split_every)
        assert_identical(result.values.compute(), cudml.top_k(a, 5).values)
        found[str(split_every)] = len(dict(result.values.__dask_graph__()))
    assert found["2"] == found["{1: 2}"] > found["{1: 4, 0: 2}"] > found["16"] == found["{1: 16}"]


def test_top_k_computes_each_chunk_once() -> None:
    seen = []

    def block(block_id: tuple[int, ...] = ()) -> np.ndarray:
        seen.append(block_id)
        return np.arange(4.0)

    a = da.map_blocks(block, chunks=((4,) * 5,), dtype=float, meta=np.empty(0))
    dask.compute(*adapter.top_k(a, 2), scheduler="synchronous")
    assert sorted(seen) == [(number,) for number in range(5)]


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_is_that_of_the_whole_batch(direction: Any, rng: np.random.Generator) -> None:
    num_directions, steps, batch, inputs, hidden = 1 + (direction == "bidirectional"), 6, 10, 3, 4
    shapes = {
        "x": (steps, batch, inputs),
        "w": (num_directions, 3 * hidden, inputs),
        "r": (num_directions, 3 * hidden, hidden),
        "b": (num_directions, 6 * hidden),
        "h0": (num_directions, batch, hidden),
    }
    arrays: Any = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    arrays["sequence_lengths"] = rng.integers(0, steps + 1, batch)
    expected = cudml.gru(**arrays, direction=direction, clip=0.3)
    given = arrays | {"x": chunked(rng, arrays["x"]), "h0": da.from_array(arrays["h0"], chunks=3)}
    result = adapter.gru(**given, direction=direction, clip=0.3)
    assert [r.shape for r in result] == [e.shape for e in expected]
    for got, right in zip(dask.compute(*result, scheduler="synchronous"), expected, strict=True):
        assert_identical(got, right)


def test_gru_takes_one_length_for_all_sequences(rng: np.random.Generator) -> None:
    x, w, r = (rng.standard_normal(s, dtype=np.float32) for s in ((5, 4, 3), (1, 6, 3), (1, 6, 2)))
    for length in (2, 9, -1):
        got = dask.compute(*adapter.gru(da.from_array(x, chunks=(5, 2, 3)), w, r, sequence_lengths=length))
        for ours, right in zip(got, cudml.gru(x, w, r, sequence_lengths=length), strict=True):
            assert_identical(ours, right)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "a is a numpy.ndarray, must be a Dask array", lambda: adapter.top_k(np.ones(3), 2)),  # type: ignore[arg-type]
        (TypeError, "top_k: a is an int, .*: the array comes before", lambda: adapter.top_k(2, da.ones(3))),  # type: ignore[arg-type]
        (TypeError, "dim is no argument, must be axis=", lambda: adapter.top_k(da.ones(3), 1, dim=0)),  # type: ignore[call-arg]
        (TypeError, "argument 3 is 0, must be given by its", lambda: adapter.top_k(da.ones(3), 1, 0)),  # type: ignore[misc]
        (ValueError, "mode='smallest' selects the small", lambda: adapter.top_k(da.ones(3), -1)),
        (ValueError, "k is 4, must be from 0 to the size", lambda: adapter.top_k(da.ones(3), 4)),
        (ValueError, "mode is 'x', must be", lambda: adapter.top_k(da.ones(3), 1, mode="x")),  # type: ignore[arg-type]
        (ValueError, "split_every is 'x', must be N", lambda: adapter.top_k(da.ones(3), 1, split_every="x")),  # type: ignore[arg-type]
        (ValueError, "split_every is 0, must be None", lambda: adapter.top_k(da.ones(3), 1, split_every=0)),
        (
            ValueError,
            "split_every is {0: 1}, must b",
            lambda: adapter.top_k(da.ones(3), 1, split_every={0: 1}),
        ),
        (ValueError, "split_every is 1, must be None", lambda: adapter.top_k(da.ones(3), 1, split_every=1)),
        (ValueError, "nan is 'x', must be", lambda: adapter.top_k(da.ones(3), 1, nan="x")),  # type: ignore[arg-type]
        (TypeError, "lengths is of dtype float64", lambda: adapter.top_k(da.ones(3), 1, lengths=[1.5])),
        (
            ValueError,
            r"lengths is of shape \(2,\), must be of a shape that broadcasts to \(1,\)",
            lambda: adapter.top_k(da.ones(3), 1, lengths=[1, 2]),
        ),
        (
            ValueError,
            r"lengths has shape \(nan,\), must have known sizes: call lengths\.compute_chunk_sizes",
            lambda: adapter.top_k(da.ones(3), 1, lengths=da.ones(3, dtype=int)[da.ones(3) > 0]),
        ),
        (np.exceptions.AxisError, "axis must be from -1 to 0", lambda: adapter.top_k(da.ones(3), 1, axis=1)),
        (
            ValueError,
            r"chunks of unknown sizes, must have known sizes: call a\.compute_chunk_sizes\(\) first",
            lambda: adapter.top_k(da.ones(3)[da.ones(3) > 0], 1),
        ),
        (
            TypeError,
            "w is None, must be an array",
            lambda: adapter.gru(da.ones((2, 2, 2), dtype="f4"), None, np.ones((1, 6, 3), "f4")),
        ),
        (
            ValueError,
            "gru: b is a list, must be an array: ",
            lambda: adapter.gru(da.ones((2, 2, 2), dtype="f4"), [0], [0], [[1, [2]]]),
        ),
        (
            ValueError,
            r"w is of shape \(1, 6, 2\), must be",
            lambda: adapter.gru(
                da.ones((2, 2, 2), dtype="f4"), np.ones((1, 6, 2), "f4"), np.ones((1, 6, 3), "f4")
            ),
        ),
        (
            ValueError,
            "clip is 0, must be a number above 0",
            lambda: adapter.gru(
                da.ones((2, 2, 2), dtype="f4"), np.ones((1, 6, 2), "f4"), np.ones((1, 6, 2), "f4"), clip=0
            ),
        ),
    ],
)
def test_errors_come_before_anything_is_computed(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


def _wait_for_files(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < deadline, f"fewer than {count} workers have begun"
        time.sleep(0.01)


def _slow(chunk: np.ndarray, folder: str) -> np.ndarray:
    """The chunk, after a while in which its worker can be killed; the worker leaves its process number.

    No call ends before both workers have begun, so that the faster one does not compute everything.
    """
    Path(folder, str(os.getpid())).touch()
    _wait_for_files(Path(folder), 2)
    time.sleep(0.1)
    return chunk


def test_a_killed_worker_changes_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    """One of two processes is killed while it computes."""
    a = rng.integers(0, 50, (8, 4000)).astype(np.float32)
    slow = da.from_array(a, chunks=(8, 200)).map_blocks(_slow, str(tmp_path), dtype=a.dtype, meta=a[:0, :0])
    config = {"distributed.worker.daemon": True, "distributed.scheduler.allowed-failures": 5}
    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        futures = client.compute(list(adapter.top_k(slow, 30)))
        _wait_for_files(tmp_path, 2)
        os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)
        result = [future.result(timeout=120) for future in futures]
        assert len(list(tmp_path.iterdir())) >= 2
    for got, right in zip(result, cudml.top_k(a, 30), strict=True):
        assert_identical(got, right)
