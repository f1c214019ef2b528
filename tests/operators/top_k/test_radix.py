"""Searches of digits: keys that differ in few of their bits, which digits skip."""

import numpy as np
import pytest

from cudml.devices import emulator
from tests.support.top_k_runs import Options, check_top_k, possible_paths

#: Ranges of bits, from the highest on, in which the elements of a row differ: within a digit of eleven bits,
#: across two, the lowest, the highest, and none.
DIFFERING = ((3, 6), (8, 14), (16, 32), (26, 32), (30, 32), (0, 2), (0, 0))


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("path", ["block_radix", "grid_radix"])
def test_keys_that_differ_in_few_bits(path: str, bits: int, largest: bool, rng: np.random.Generator) -> None:
    """Of one range, of two with alike bits between them, and between one lane of warps and the others."""
    device = emulator.get_device()
    for first, end in DIFFERING:
        rows = []
        for other in (0, 1 << (bits - 12) if bits > 12 else 0):
            mask = sum(1 << (bits - 1 - place * bits // 32) for place in range(first, end)) | other
            alike = int(rng.integers(0, 1 << 63)) * 2 + 1
            varying = rng.integers(0, 1 << 63, 3000, np.uint64) * np.uint64(2) & np.uint64(mask)
            rows.append(np.uint64(alike & ~mask & (1 << bits) - 1) | varying)
        of_lane = np.arange(3000) // (128 // bits) % 32
        for lanes in (of_lane == rng.integers(32), of_lane != rng.integers(32)):
            rows.append(rows[0] & ~np.uint64(mask) | lanes * np.uint64(mask & -mask))
        x = np.stack(rows).astype(f"u{bits // 8}")
        for k in (1, 40, 700):
            options = Options(k, path=path, largest=largest)
            assert path in possible_paths(x, options, device.limits)
            check_top_k(device, x, options)
