"""Input that changes while it is read: any result, but no access out of bounds and no endless loop.

Another stream may write the input of a kernel that reads it twice. Here the whole input is rewritten again
and again while the kernel runs, and the length of a ragged row at every read; check mode reports every bad
access. Every result was written if every index is one of the row or that of a ragged row's missing result.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.enums import DataType
from cudml.plans import KernelLaunch, Plan
from tests.support.kernel_cases import CPU, GPU, MISSING, Case, operands_of, top_k

BYTE, HALF, WORD, LONG = DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64
NARROW = replace(GPU, shared_bytes_per_block=16384)
ONE = replace(GPU, num_multiprocessors=1)

KERNELS = Path(__file__).parent / "kernels"

#: Ways in which the input changes, chosen by the length of its rows: see changing_input.cuh.
NUM_CHANGES = 4

#: The approximate row length, and the case for an exact row length.
CASES = {
    "first of rows": (9000, lambda n: Case(top_k((2, n), 1, BYTE), "arg_max", ONE)),
    "first of a row by several blocks": (
        270_000,
        lambda n: Case(top_k((1, n), 1, HALF), "arg_max", content="any"),
    ),
    "block radix": (5000, lambda n: Case(top_k((3, n), 100), "block_radix", ONE)),
    "block radix, any bits": (5000, lambda n: Case(top_k((3, n), 100), "block_radix", ONE, "any")),
    "block radix of bytes": (9000, lambda n: Case(top_k((2, n), 100, BYTE), "block_radix", ONE)),
    "block radix through memory": (5000, lambda n: Case(top_k((3, n), 100), "block_radix", NARROW)),
    "block radix, many results": (5000, lambda n: Case(top_k((2, n), 1000, LONG), "block_radix")),
    "block radix, many results through memory": (
        5000,
        lambda n: Case(top_k((2, n), 3000), "block_radix", NARROW, "any"),
    ),
    "filtered rows": (9000, lambda n: Case(top_k((2, n), 50), "block_filter", ONE, "any")),
    "filtered rows in ascending order": (
        80_000,
        lambda n: Case(top_k((1, n), 20), "block_filter", ONE, "ascending"),
    ),
    "rows filtered by several blocks": (
        400_000,
        lambda n: Case(top_k((1, n), 200, HALF), "block_filter", content="ascending"),
    ),
    "columns": (5000, lambda n: Case(top_k((n, 3), 20, HALF, axis=0), "columns", content="any")),
    "rows on a CPU": (1000, lambda n: Case(top_k((9, n), 20, HALF), limits=CPU, content="any")),
    "ragged rows on a CPU": (1000, lambda n: Case(top_k((9, n), 20, HALF, length_type=WORD), limits=CPU)),
    "first of ragged rows by several blocks": (
        270_000,
        lambda n: Case(top_k((1, n), 1, HALF, length_type=WORD), "arg_max", content="any"),
    ),
    "block radix, ragged": (5000, lambda n: Case(top_k((3, n), 100, length_type=WORD), "block_radix", ONE)),
    "groups": (9000, lambda n: Case(top_k((2, n), 50), "groups", content="any")),
    "groups, many results": (5000, lambda n: Case(top_k((1, n), 700, LONG), "groups")),
    "groups of ragged rows": (
        9000,
        lambda n: Case(top_k((2, n), 200, HALF, length_type=WORD), "groups", content="any"),
    ),
    "clusters": (9000, lambda n: Case(top_k((2, n), 50), "cluster", content="any")),
    "clusters, many results": (20_000, lambda n: Case(top_k((1, n), 1700, LONG), "cluster")),
    "clusters of ragged rows": (
        9000,
        lambda n: Case(top_k((2, n), 200, HALF, length_type=WORD), "cluster", content="any"),
    ),
    "kept rows": (9000, lambda n: Case(top_k((2, n), 700), "block_keep", content="any")),
    "kept rows, many results": (5000, lambda n: Case(top_k((1, n), 3000, LONG), "block_keep")),
    "filtered ragged rows": (9000, lambda n: Case(top_k((2, n), 50, length_type=WORD), "block_filter", ONE)),
    "ragged rows filtered by several blocks": (
        30_000,
        lambda n: Case(top_k((2, n), 200, HALF, length_type=WORD), "block_filter"),
    ),
    "ragged columns": (
        5000,
        lambda n: Case(top_k((n, 3), 20, HALF, axis=0, length_type=WORD), "columns", content="any"),
    ),
    "grid radix, ragged": (5000, lambda n: Case(top_k((2, n), 50, length_type=WORD), "grid_radix")),
    "grid radix, ragged, many results": (
        5000,
        lambda n: Case(top_k((1, n), 4000, BYTE, length_type=WORD), "grid_radix"),
    ),
    "grid radix": (5000, lambda n: Case(top_k((2, n), 50), "grid_radix")),
    "grid radix, any bits": (9000, lambda n: Case(top_k((1, n), 200), "grid_radix", content="any")),
    "grid radix, many results": (5000, lambda n: Case(top_k((1, n), 700, LONG), "grid_radix")),
    "grid radix, most of the row": (5000, lambda n: Case(top_k((1, n), 4000, BYTE), "grid_radix")),
}


def planted(plan: Plan) -> Plan:
    """The plan with kernels whose input changes."""
    steps = (
        step._replace(source=str(KERNELS / Path(step.source).name))
        if isinstance(step, KernelLaunch)
        else step
        for step in plan.steps
    )
    return plan._replace(steps=tuple(steps))


@pytest.mark.parametrize("name", CASES)
def test_input_that_changes(name: str, rng: np.random.Generator) -> None:
    about, make = CASES[name]
    for change in range(NUM_CHANGES):
        row_length = about // NUM_CHANGES * NUM_CHANGES + change
        case = make(row_length)
        plan = planted(case.plan())
        operands = operands_of(case, rng)
        workspace = np.full(plan.temporary_bytes, 0xFF, np.uint8) if plan.temporary_bytes else None
        with emulator.schedule("random", 1, check=True):
            emulator.get_device().load(plan)([operands[member] for member in plan.operands], workspace)
        indices = operands["output_index_tensor"].view(np.uint32)
        if "sequence_lengths_tensor" in plan.operands:
            # Missing results have their own index and value; other values need not fit their indices.
            is_missing = indices == 0xFFFFFFFF
            values = operands["output_value_tensor"]
            assert (values.view(f"u{values.itemsize}")[is_missing] == MISSING).all()
            indices = indices[~is_missing]
        assert (indices < row_length).all()
