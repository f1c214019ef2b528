"""Disjoint views of one array, and strides that are never used, as arguments of every function."""

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import cudml
from cudml import TensorDesc
from tests.support import assert_identical
from tests.support.function_arrays import layer, values


@pytest.mark.parametrize("stacked", [-1, 0], ids=["columns", "rows"])
@pytest.mark.parametrize("step", [1, 2], ids=["halves", "alternating"])
def test_results_may_lie_beside_the_arguments(stacked: int, step: int, rng: np.random.Generator) -> None:
    """Halves of a buffer, or alternating elements, whose spans overlap while no element is shared."""

    def beside(array: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        """The arrays as views of one buffer, which has the first array's type."""
        count = len(others) + 1
        wide = list(array.shape)
        wide[stacked] *= count
        buffer = np.zeros(wide, array.dtype)
        where = [slice(None)] * array.ndim
        views = []
        for number, each in enumerate((array, *others)):
            first = number if step == 2 else number * array.shape[stacked]
            last = None if step == 2 else first + array.shape[stacked]
            where[stacked] = slice(first, last, count if step == 2 else None)
            views.append(buffer[tuple(where)])
            views[-1][...] = each
        return views

    a = values(rng, (6, 8), np.float32)
    lengths = np.array([[3], [0], [8], [1], [5], [9]])
    indices = np.zeros((6, 8), np.int64)
    calls: list[Any] = [
        lambda x, out=None: cudml.slice(x, (0, 0), (6, 8), out=out),
        lambda x, out=None: cudml.slice(x, (5, 7), (6, 8), (-1, -1), out=out),
        lambda x, out=None: cudml.reverse_subsequences(x, lengths, out=out),
        lambda x, out=None: cudml.top_k(x, 8, out=None if out is None else (out, indices))[0],
    ]
    for call in calls:
        source, target = beside(a, np.zeros_like(a))
        for _ in range(2):  # planned, then found
            target[...] = 77
            call(source, target)
            assert_identical(target, call(a))
            assert_identical(source, a)


def test_a_layer_writes_beside_its_inputs(rng: np.random.Generator) -> None:
    arrays = layer(rng, "forward")
    expected = cudml.gru(**arrays)
    buffer = np.zeros((5, 1, 3, 10), np.float32)
    inputs, sequence = buffer[:, 0, :, :4], buffer[..., 4:]
    inputs[...] = arrays["x"]
    single = np.zeros((1, 3, 6), np.float32)
    cudml.gru(**(arrays | {"x": inputs}), out=(sequence, single))
    assert_identical(sequence, expected.sequence)
    assert_identical(single, expected.single)
    assert_identical(inputs, arrays["x"])


@pytest.mark.parametrize("stride", [1, 3, -5, 2**40 + 1, 2**62])
def test_strides_of_sizes_of_one_may_be_anything(stride: int, rng: np.random.Generator) -> None:
    memory = values(rng, (8,), np.float32)
    a = as_strided(memory, (1, 8, 1), (stride, 4, stride))
    plain = memory.reshape(1, 8, 1)
    lengths = as_strided(np.array([5]), (1, 1, 1), (stride,) * 3)
    assert_identical(cudml.top_k(a, 3, axis=1).values, cudml.top_k(plain, 3, axis=1).values)
    assert_identical(cudml.top_k(a, 1).values, plain)
    assert_identical(cudml.slice(a, (0, 7, 0), (1, 4, 1), (1, -2, 1)), plain[:, ::-2])
    assert_identical(cudml.reverse_subsequences(a, lengths, 1), cudml.reverse_subsequences(plain, lengths, 1))
    out = as_strided(np.zeros(8, np.float32), (1, 8, 1), (stride, 4, stride))
    assert cudml.slice(a, (0, 0, 0), (1, 8, 1), out=out) is out
    assert_identical(np.ascontiguousarray(out), plain)
    assert TensorDesc.of(a).is_packed


def test_empty_arrays_overlap_nothing() -> None:
    memory = np.arange(12, dtype=np.float32)
    empty = memory[5:5]
    assert cudml.slice(memory, (2,), (0,), out=empty) is empty
    assert cudml.slice(memory[6:6], (0,), (0,), out=empty) is empty
    layer_ = {"x": empty.reshape(0, 1, 3), "w": memory[:9].reshape(1, 3, 3), "r": np.ones((1, 3, 1), "f4")}
    sequence, single = empty.reshape(0, 1, 1, 1), np.ones((1, 1, 1), np.float32)
    cudml.gru(**layer_, out=(sequence, single))
    assert single.tolist() == [[[0]]]
