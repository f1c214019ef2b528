"""`cudml.cupy`: partitions beside NumPy's, and how NumPy's functions of a CuPy array reach cudml."""

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import cudml
import cudml.cupy as adapter

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


def top_k(a: Any, k: int, /, **options: Any) -> Any:
    """What NumPy 2.6 calls `top_k`, as far as CuPy sees it."""


top_k.__module__ = "numpy"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that arrive; they are not run, because arrays of CuPy need a GPU."""
    calls: list[Any] = []
    monkeypatch.setattr(
        "cudml.functions.top_k.top_k", lambda *given, **options: calls.append((given, options))
    )
    return calls


def empty_array(dtype: Any = np.float32) -> Any:
    """An array that is made without a GPU."""
    memory = cupy.cuda.UnownedMemory(64, 0, None, 0)
    return cupy.ndarray((0,), dtype, cupy.cuda.MemoryPointer(memory, 0))


def reach(**options: Any) -> Any:
    """Call `numpy.top_k` of a CuPy array, as NumPy does."""
    return empty_array().__array_function__(top_k, (cupy.ndarray,), ("array", 3), options)


def test_numpy_reaches_cudml_until_it_is_undone(called: list[Any]) -> None:
    assert reach() is NotImplemented
    undo = cudml.install_cupy()
    reach(axis=0, mode="smallest")
    assert called == [(("array", 3), {"axis": 0, "mode": "smallest"})]
    undo()
    assert not hasattr(cupy, "top_k")
    assert reach() is NotImplemented
    undo()


def test_cupy_s_own_function_is_put_back(called: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy, "top_k", "its own", raising=False)
    undo = cudml.install_cupy()
    assert cupy.top_k != "its own"
    undo()
    assert cupy.top_k == "its own"


@pytest.mark.parametrize("name", ["argpartition", "partition"])
def test_numpy_s_partitions_reach_cudml_until_it_is_undone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions of complex arrays still reach CuPy."""
    calls: list[Any] = []
    theirs = getattr(cupy, name)
    monkeypatch.setattr(adapter, name, lambda *given: calls.append(("cudml", *given)))
    monkeypatch.setattr(cupy, name, lambda *given: calls.append(("cupy", *given)))
    undo = cudml.install_cupy()
    real, complex_array = empty_array(), empty_array(np.complex64)
    getattr(np, name)(real, 3)
    getattr(np, name)(complex_array, 3, axis=None)
    assert [(call[0], call[1] is real, *call[2:]) for call in calls] == [
        ("cudml", True, 3, -1),
        ("cupy", False, 3, None),
    ]
    undo()
    getattr(np, name)(real, 3)
    assert calls[2][0] == "cupy"
    monkeypatch.undo()
    assert getattr(cupy, name) is theirs


def test_undoing_leaves_what_came_later() -> None:
    undo = cudml.install_cupy()
    theirs, cupy.argpartition = cupy.argpartition, "another's"
    undo()
    assert cupy.argpartition == "another's"
    cupy.argpartition = theirs
    cudml.install_cupy()()
    assert cupy.argpartition is theirs


def assert_partitioned(a: np.ndarray, indices: np.ndarray, kth: list[int], axis: int) -> None:
    """The indices are a permutation, the places are right, and no element is on the wrong side of them."""
    assert indices.dtype == np.int64
    every = np.broadcast_to(np.arange(a.shape[axis]), np.moveaxis(a, axis, -1).shape)
    assert np.array_equal(np.sort(np.moveaxis(indices, axis, -1), axis=-1), every)
    values = np.moveaxis(np.take_along_axis(a, indices, axis), axis, -1)
    ordered = np.sort(np.moveaxis(a, axis, -1), axis=-1)
    for place in kth:
        assert np.array_equal(values[..., place], ordered[..., place], equal_nan=a.dtype.kind == "f")
        cut = place % a.shape[axis]
        front = np.sort(values[..., :cut], axis=-1)
        assert np.array_equal(front, ordered[..., :cut], equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize("number", range(40))
def test_partitions_are_what_numpy_says(number: int, rng: np.random.Generator) -> None:
    """Any places along any axis, with ties and NaNs."""
    shape = tuple(rng.integers(1, 12, rng.integers(1, 4)).tolist())
    a = rng.integers(-3, 4, shape).astype(rng.choice(["f4", "i8", "u1", "f2", "?"]))
    if a.dtype.kind == "f":
        a[rng.random(shape) < 0.2] = np.nan
    axis = int(rng.integers(-a.ndim, a.ndim))
    size = a.shape[axis]
    kth = rng.integers(-size, size, rng.integers(1, 4)).tolist()
    given: Any = kth[0] if len(kth) == 1 else kth
    before = a.copy()
    indices = adapter.argpartition(a, given, axis)
    assert_partitioned(a, indices, kth, axis)
    values = adapter.partition(a, given, axis)
    assert np.array_equal(values, np.take_along_axis(a, indices, axis), equal_nan=a.dtype.kind == "f")
    assert values.dtype == a.dtype
    assert np.array_equal(a, before, equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize(
    ("kth", "k", "mode"),
    [(0, 1, "smallest"), (99, 1, "largest"), ([3, 60], 61, "smallest"), ([60, 98], 40, "largest")],
)
def test_no_more_is_sorted_than_has_to_be(
    kth: Any, k: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The elements up to the last place or from the first one on, whichever are fewer."""
    calls, select = [], cudml.top_k

    def spy(a: Any, k: int, **options: Any) -> Any:
        calls.append((k, options.get("mode", "largest")))
        return select(a, k, **options)

    monkeypatch.setattr("cudml.functions.top_k.top_k", spy)
    adapter.argpartition(np.arange(100.0), kth)
    assert calls == [(k, mode)]


def test_partitions_of_flat_and_of_empty_arrays() -> None:
    a = np.array([[3, 1], [2, 0]])
    assert_partitioned(a.ravel(), adapter.argpartition(a, 2, axis=None), [2], 0)
    assert adapter.partition(a, 0, axis=None)[0] == 0
    for shape, axis in (((0,), 0), ((3, 0), 1), ((0, 3), 1)):
        assert adapter.argpartition(np.zeros(shape), 0, axis).shape == shape
        assert adapter.partition(np.zeros(shape), 0, axis).shape == shape


def test_the_signatures_are_the_array_api_s_and_cupy_s() -> None:
    parameters = inspect.signature(adapter.top_k).parameters.values()
    assert [(p.name, p.kind.name, p.default) for p in parameters] == [
        ("x", "POSITIONAL_ONLY", inspect.Parameter.empty),
        ("k", "POSITIONAL_ONLY", inspect.Parameter.empty),
        ("axis", "KEYWORD_ONLY", -1),
        ("mode", "KEYWORD_ONLY", "largest"),
    ]
    for name in ("argpartition", "partition"):
        ours, theirs = (inspect.signature(getattr(m, name)).parameters.values() for m in (adapter, cupy))
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]
    values, indices = adapter.top_k(np.array([[1, 5], [2, 5]]), 1, axis=0, mode="smallest")
    assert [values.tolist(), indices.tolist()] == [[[1, 5]], [[0, 0]]]


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "top_k: x is a list, must be a CuPy or NumPy array", lambda a: adapter.top_k([1], 1)),
        (TypeError, "argpartition: a is a list, must be a CuPy or", lambda a: adapter.argpartition([1], 0)),
        (ValueError, "kth is 3, must be from -3 to 2, for the 3 elem", lambda a: adapter.argpartition(a, 3)),
        (ValueError, r"kth is \[0, -4\], must be from -3 to 2", lambda a: adapter.partition(a, [0, -4])),
        (ValueError, r"kth is \[\], must be from -3 to 2", lambda a: adapter.partition(a, [])),
        (TypeError, "kth is 1.5, must be an integer or a seq", lambda a: adapter.argpartition(a, 1.5)),
        (TypeError, "axis is 'x', must be an integer or None", lambda a: adapter.argpartition(a, 0, "x")),
        (np.exceptions.AxisError, "axis 1 is out of bounds", lambda a: adapter.partition(a, 0, 1)),
        (np.exceptions.AxisError, "a is 0-D, must have an axis", lambda a: adapter.partition(a[0, ...], 0)),
        (TypeError, "top_k: x is of dtype complex64", lambda a: adapter.top_k(a.astype("c8"), 0)),
        (TypeError, "^partition: a is of dtype compl", lambda a: adapter.partition(a.astype("c8"), 0)),
        (TypeError, "^argpartition: a is of dtype dat", lambda a: adapter.argpartition(a.astype("M8[s]"), 0)),
        (ValueError, "^partition: kth is 3, must be", lambda a: adapter.partition(a, 3)),
        (TypeError, "top_k: x is an int, .*: the array comes before numbers", lambda a: adapter.top_k(2, a)),
        (TypeError, "nan is no argument, must be .* cudml.top_k", lambda a: adapter.top_k(a, 1, nan="last")),
        (TypeError, "largest is no argument, must be mode=", lambda a: adapter.top_k(a, 1, largest=True)),
        (TypeError, "kind is no argument, must be left", lambda a: adapter.partition(a, 0, kind="heap")),
    ],
)
def test_refusals(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call(np.arange(3.0))


def test_it_takes_numpy_s_arguments() -> None:
    undo = cudml.install_cupy()
    try:
        assert cupy.top_k is cudml.top_k
        result = cupy.top_k(np.array([1.0, np.nan, 3.0]), 2, axis=-1, mode="largest", sorted=True)
        assert result.indices.tolist() == [2, 0]
    finally:
        undo()


def test_without_cupy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(cudml.DeviceError, match=r"CuPy is not installed: pip install 'cudml\[cuda13\]'"):
        cudml.install_cupy()
