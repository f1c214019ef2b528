"""`install_cupy`: NumPy's `top_k` of a CuPy array, by the protocol through which NumPy 2.6 calls CuPy."""

import sys
from typing import Any

import numpy as np
import pytest

import cudml

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


def top_k(a: Any, k: int, /, **options: Any) -> Any:
    """What NumPy 2.6 calls `top_k`, as far as CuPy sees it."""


top_k.__module__ = "numpy"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that arrive, because arrays of CuPy take a GPU."""
    calls: list[Any] = []
    monkeypatch.setattr("cudml.cupy.top_k", lambda *given, **options: calls.append((given, options)))
    return calls


def reach(**options: Any) -> Any:
    """Call `numpy.top_k` of a CuPy array, as NumPy does."""
    memory = cupy.cuda.UnownedMemory(64, 0, None, 0)  # an array that takes no GPU to be made
    array = cupy.ndarray((0,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    return array.__array_function__(top_k, (cupy.ndarray,), ("array", 3), options)


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
