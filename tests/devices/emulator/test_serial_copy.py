"""Copies by a single thread: every length, from every place in a line, and no byte beside the run."""

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.plans import Params, ParamStruct
from tests.devices.emulator.support import launch

GAP = 0xA5
LINE_BYTES = 64
#: Longer runs are copied by the C library.
MAX_BYTES = 1200
STARTS = (0, 1, 15, 16, 33, 48, 63)

#: (item type, copy) -> bytes of an item; `Copy` of kernels/serial_copies.cu.
COPIES = {
    ("UInt8", "kRun"): 1,
    ("UInt8", "kStream"): 1,
    ("UInt8", "kMirrored"): 1,
    ("UInt16", "kMirrored"): 2,
    ("UInt32", "kMirrored"): 4,
    ("UInt64", "kMirrored"): 8,
    ("Bits128", "kMirrored"): 16,
}


@pytest.mark.parametrize(("item", "copy"), COPIES)
def test_a_run_of_every_length(item: str, copy: str, rng: np.random.Generator) -> None:
    item_bytes = COPIES[item, copy]
    lengths, starts = (
        np.array(pairs)
        for pairs in zip(
            *((n, start) for n in range(MAX_BYTES // item_bytes + 1) for start in STARTS), strict=True
        )
    )
    row_bytes = MAX_BYTES + 2 * LINE_BYTES
    source = rng.integers(0, 256, MAX_BYTES, np.uint8)
    target = np.full((len(lengths), row_bytes), GAP, np.uint8)
    expected = target.copy()
    for row, length, start in zip(expected, lengths, starts, strict=True):
        items = source[: length * item_bytes].reshape(length, item_bytes)
        row[start : start + items.size] = (items[::-1] if copy == "kMirrored" else items).reshape(-1)
    with emulator.schedule(warp_lanes=1):
        launch(
            "serial_copies.cu",
            "serial_copies",
            {"source": source, "lengths": lengths, "starts": starts, "target": target},
            Params(
                ParamStruct("Int64 num_runs, row_bytes"), {"num_runs": len(lengths), "row_bytes": row_bytes}
            ),
            template=(item, copy),
            block=1,
            outputs=("target",),
        )
    wrong = np.flatnonzero((target != expected).any(1))
    assert [(int(lengths[i]), int(starts[i])) for i in wrong[:5]] == []
