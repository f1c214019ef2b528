"""What the filter of long rows lets through while it reads them, against floors of both signs."""

from dataclasses import replace

import numpy as np
import pytest

from cudml.devices import emulator
from tests.support.kernel_cases import GPU
from tests.support.top_k_runs import DTYPES, Options, check_top_k

#: Elements of a tile, at most: the first tile alone makes the first floor.
TILE = 8192
#: On which one block reads a row.
LIMITS = replace(GPU, num_multiprocessors=1)

largest_or_smallest = pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("nan_last", [True, False], ids=["nan last", "nan greatest"])
@largest_or_smallest
@every_dtype
def test_every_pattern_of_16_bits(
    dtype: np.dtype, largest: bool, nan_last: bool, rng: np.random.Generator
) -> None:
    """Of an element's first bits, or its 8: NaNs of both signs and all payloads, zeros, infinities."""
    bits = 8 * dtype.itemsize
    word = np.dtype(f"u{dtype.itemsize}").type
    patterns = np.arange(1 << 16).astype(word) << word(max(bits - 16, 0))
    rows = []
    for sign in (0, 1 << (bits - 1)):
        middle = patterns[TILE : 2 * TILE] & word((1 << (bits - 1)) - 1) | word(sign)
        # Negative NaNs meet the floor that the first tile made, of either sign.
        rows.append(np.concatenate([rng.permutation(middle), patterns[::-1]]))
    x = np.stack(rows).view(dtype)
    options = Options(3000, -1, largest, nan_last, "block_filter")
    check_top_k(emulator.get_device(), x, options, LIMITS)


@largest_or_smallest
@every_dtype
def test_the_first_number_above_a_floor(dtype: np.dtype, largest: bool, rng: np.random.Generator) -> None:
    """After a tile of lesser elements, equal ones fill the list, so that the floor becomes exactly theirs."""
    bits = 8 * dtype.itemsize
    x = np.full((2, 8 * TILE), 1 << (bits - 2), f"u{dtype.itemsize}")
    x[1] |= 1 << (bits - 1)
    for row, step in zip(x, (1, 1 if dtype.kind in "iu" else -1), strict=True):
        above = np.array(step if largest else -step).astype(x.dtype)
        row[:TILE] -= 2 * above
        row[rng.choice(row.size, 100, replace=False)] += above
    options = Options(3000, largest=largest, path="block_filter")
    check_top_k(emulator.get_device(), x.view(dtype), options, LIMITS)
