"""Copies of arrays in pieces."""

import numpy as np
import pytest

from cudml.functions import transfer


@pytest.mark.parametrize(
    "shape", [(), (0,), (3, 0, 5), (40,), (3, 5), (5, 8), (2, 3, 4, 5), (9, 1, 7), (1, 30)]
)
@pytest.mark.parametrize("most", [1, 7, 8, 1000])
def test_pieces_make_up_the_array(
    shape: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(transfer, "_PIECE_ELEMENTS", most)
    source = rng.integers(0, 1000, shape[::-1]).T
    copy = np.empty(shape, source.dtype)
    transfer.assign(copy, source)
    np.testing.assert_array_equal(copy, source)
    transfer.assign(copy, source[..., :1] if shape else source)
    np.testing.assert_array_equal(copy, np.broadcast_to(source[..., :1] if shape else source, shape))
    counts = np.zeros(shape, np.int64)
    for piece in transfer._pieces(shape):
        assert counts[piece].size <= most
        counts[piece] += 1
    assert (counts == 1).all()
