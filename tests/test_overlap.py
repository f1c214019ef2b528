"""Whether boxes of memory share a byte, compared with NumPy's answer and with a count of every byte."""

import time

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from cudml import overlap
from cudml.overlap import box_of, share_a_byte


def bytes_of(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> set[int]:
    """Every byte of a box at address 0, counted."""
    places = np.zeros(1, np.int64)
    for size, stride in [*zip(shape, strides, strict=True), (item_bytes, 1)]:
        places = (places[:, None] + stride * np.arange(size)).reshape(-1)
    return set(places.tolist())


def random_box(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    ndim = int(rng.integers(0, 4))
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5], ndim, p=[0.05, 0.2, 0.3, 0.25, 0.2]))
    strides = tuple(int(s) for s in rng.integers(-40, 41, ndim))
    return shape, strides, int(rng.choice([1, 2, 4, 8]))


def test_the_answer_is_that_of_counting_bytes(rng: np.random.Generator) -> None:
    num_shared = 0
    for _ in range(4000):
        one, other = random_box(rng), random_box(rng)
        first, second = int(rng.integers(0, 120)), int(rng.integers(0, 120))
        mine = {first + byte for byte in bytes_of(*one)}
        theirs = {second + byte for byte in bytes_of(*other)}
        expected = bool(mine & theirs)
        boxes = box_of(first, *one), box_of(second, *other)
        assert share_a_byte(*boxes) == expected, (boxes, one, other)
        assert share_a_byte(*boxes[::-1]) == expected, (boxes, one, other)
        num_shared += expected
    assert 500 < num_shared < 3500, "both answers must be common"


def test_the_answer_is_numpys_for_views_of_one_array(rng: np.random.Generator) -> None:
    memory = np.zeros((7, 6, 5), np.int32)
    num_shared = 0
    for _ in range(3000):
        views = []
        for _ in range(2):
            places = []
            for size in memory.shape:
                first, count = int(rng.integers(0, size // 2 + 1)), int(rng.integers(1, size + 1))
                places.append(slice(first, first + count, int(rng.integers(1, 3))))
            views.append(memory.transpose(rng.permutation(3))[tuple(places)][:: int(rng.choice([-1, 1]))])
        expected = np.shares_memory(*views)
        boxes = [box_of(v.ctypes.data, v.shape, v.strides, v.itemsize) for v in views]
        assert share_a_byte(*boxes) == expected, views
        num_shared += expected
    assert 300 < num_shared < 2700, "both answers must be common"


def test_large_views_are_decided_exactly_and_at_once() -> None:
    """2**40 elements, at no address that is ever read."""
    n = 1 << 20
    start = time.perf_counter()
    for width in (1, n // 2, n - 1):
        left = box_of(4096, (n, width), (4 * n, 4), 4)
        right = box_of(4096 + 4 * width, (n, n - width), (4 * n, 4), 4)
        right_and_one = box_of(4096 + 4 * width - 4, (n, n - width + 1), (4 * n, 4), 4)
        assert not share_a_byte(left, right)
        assert share_a_byte(left, right_and_one)
    even, odd = (box_of(first, (n, n // 2), (n, 2), 1) for first in (0, 1))
    assert not share_a_byte(even, odd)
    real, imaginary = (box_of(first, (n, n), (8 * n, 8), 4) for first in (0, 4))
    assert not share_a_byte(real, imaginary)
    assert share_a_byte(real, box_of(3, (n, n), (8 * n, 8), 4))
    assert time.perf_counter() - start < 1


def test_what_is_too_dear_counts_as_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of unrelated strides, which a search of some hundred thousand steps finds to be apart."""
    one = box_of(0, (30, 30, 30), (10007, 10009, 10037), 1)
    other = box_of(3, (30, 30, 30), (10039, 10061, 10067), 1)
    assert share_a_byte(one, other)
    far = box_of(10**7, (30,), (10007,), 1)
    assert not share_a_byte(one, far), "apart as a whole needs no search"
    monkeypatch.setattr(overlap, "MAX_STEPS", 10**9)
    assert not share_a_byte(one, other)


@pytest.mark.parametrize("stride", [1, 7, -3, 2**40 + 1])
def test_strides_of_sizes_of_one_do_not_matter(stride: int) -> None:
    memory = np.zeros(8, np.int32)
    odd = as_strided(memory, (1, 4), (stride, 4))
    assert box_of(0, odd.shape, odd.strides, 4) == box_of(0, (4,), (4,), 4)
