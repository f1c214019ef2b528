"""Bytes that kernels move through global memory, exactly: a kernel that reads its input twice fails.

A table by operator compares them with the fewest possible bytes. The bytes that an operator needs follow from
each descriptor; a comment beside a number says what a kernel reads besides.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from cudml.enums import DataType
from tests.support.kernel_cases import Case, copy, gru, operands_of, reversal, run, top_k
from tests.support.observed_cases import ONE

BYTE, HALF, WORD = DataType.UINT8, DataType.UINT16, DataType.UINT32

#: The most bytes, over the fewest, of a copy or reversal whose contiguous runs have 32 bytes or more.
MOST_OF_RUNS = 1.02


@dataclass(frozen=True)
class Traffic:
    """A case's traffic: bytes read of each needed buffer, bytes written of each output, and the ratio of
    their sum to the fewest bytes, to three decimals.

    The fewest are one read of every needed element and one write of every result.
    """

    case: Case
    moved: dict[str, int]
    ratio: float


def moving(case: Case, read: int, written: int, ratio: float, **lengths: int) -> Traffic:
    """The row of a copy or a reversal."""
    return Traffic(case, {"input_tensor": read, **lengths, "output_tensor": written}, ratio)


def selecting(case: Case, read: int, ratio: float) -> Traffic:
    """The row of a top-k, which writes each result once."""
    results = math.prod(case.descriptor.output_value_tensor.sizes)
    written = {"output_value_tensor": 4 * results, "output_index_tensor": 4 * results}
    return Traffic(case, {"input_tensor": read, **written}, ratio)


def recurring(case: Case, ratio: float, *, sets: int, shards: int, biases: int) -> Traffic:
    """The row of a GRU in float32 of 4 steps, 2 sequences and 40 units.

    Each of `sets` of blocks reads the weights once, and each of the `shards` of a set gathers the first
    state; each item reads its own first state once more. The biases of a unit are read `biases` times.
    """
    states = 4 * 2 * 40
    moved = {
        "projection": 4 * 3 * states,
        "recurrence_tensor": sets * 4 * 3 * 40 * 40,
        "bias_tensor": biases * 4 * 6 * 40,
        "hidden_init_tensor": (shards + 1) * states,
        "output_sequence_tensor": 4 * states,
        "output_single_tensor": states,
    }
    return Traffic(case, moved, ratio)


TABLE = {
    "adjacent words": moving(Case(copy((4096,), WORD, (1,)), "runs"), 16384, 16384, 1.0),
    # Each of two pieces needs a word more than it writes.
    "adjacent bytes from an odd place on": moving(
        Case(copy((1027,), BYTE, (1,), offsets=(3,)), "runs"), 1024 + 2 * 16, 1024, 1.016
    ),
    "rows": moving(Case(copy((32, 300), WORD, (1, 1), offsets=(0, 44)), "runs"), 32768, 32768, 1.0),
    # Rows need a word more than they write, except where both sides are misaligned alike.
    "rows of bytes at odd places": moving(
        Case(copy((32, 301), BYTE, (1, 1), offsets=(0, 44)), "runs"), 32 * 257 + 24 * 16, 32 * 257, 1.023
    ),
    "mirrored words": moving(Case(copy((4096,), WORD, (-1,)), "runs"), 16384, 16384, 1.0),
    "every sixteenth word": moving(Case(copy((16384,), WORD, (16,))), 4096, 4096, 1.0),
    "transposed": moving(
        Case(copy((128, 96), WORD, (1, 1), strides=(1, 128)), "transpose"), 49152, 49152, 1.0
    ),
    # The length of a lane is read by each of the 128 threads that own a piece of it.
    "lanes": moving(
        Case(reversal((16, 1000), WORD, 1), "lanes", length=600),
        64000, 64000, 1.063, sequence_lengths_tensor=16 * 4 * 128,
    ),
    # Each of two pieces of a lane needs a word more than it writes; 64 threads read its length.
    "lanes of bytes at odd places": moving(
        Case(reversal((16, 1001), BYTE, 1), "lanes", length=1001),
        16016 + 32 * 16, 16016, 1.142, sequence_lengths_tensor=16 * 4 * 64,
    ),
    # Every row of a sequence has 16 threads, and each reads the length.
    "rows of one length": moving(
        Case(reversal((4, 16, 256), WORD, 1, one_length_a_row=True), "rows"),
        65536, 65536, 1.031, sequence_lengths_tensor=64 * 4 * 16,
    ),
    # Every thread reads the length of its column, eight threads a column.
    "columns": moving(
        Case(reversal((64, 256), WORD, 0), "columns"), 65536, 65536, 1.054, sequence_lengths_tensor=8 * 1024
    ),
    # A block of 256 threads has 64 or 63 columns, so four threads read the length of each column.
    "columns of halves at odd places": moving(
        Case(reversal((64, 255), HALF, 0), "columns"), 32640, 32640, 1.046, sequence_lengths_tensor=4 * 1020
    ),
    "short lanes": moving(
        Case(reversal((500, 8), WORD, 1), "boxes"), 16000, 16000, 1.0, sequence_lengths_tensor=2000
    ),
    "short lanes of bytes": moving(
        Case(reversal((800, 7), BYTE, 1), "boxes"), 5600, 5600, 1.0, sequence_lengths_tensor=3200
    ),
    "small boxes": moving(
        Case(reversal((100, 5, 7), BYTE, 1), "boxes"), 3500, 3500, 1.0, sequence_lengths_tensor=2800
    ),
    # A thread makes the results of short columns from their keys.
    "top-k of columns by threads": selecting(
        Case(top_k((64, 256), 4, axis=0), "thread_list"), 4 * 256 * 64, 1.0
    ),
    # A top-k of rows that fit no warp reads again the elements that it returns.
    "top-k of longer columns": selecting(
        Case(top_k((4000, 64), 10, axis=0), "columns", content="any"), 4 * 64 * (4000 + 10), 1.002
    ),
    # The lane finds the element's place in the loads that it holds, and reads it again as a result.
    "the first of short rows": selecting(
        Case(top_k((16, 60), 1), "arg_max"), 4 * 16 * (60 + 1), 1.016
    ),
    # A lane of a block has several batches of loads, and loads the batch with the first element again.
    "the first of long rows": selecting(
        Case(top_k((2, 32768), 1), "arg_max", content="any"), 4 * 2 * (32768 + 16 + 1), 1.001
    ),
    "top-k of short rows": selecting(Case(top_k((16, 60), 7), "warp_select"), 4 * 16 * 60, 1.0),
    "top-k of sorted rows": selecting(
        Case(top_k((16, 1000), 100), "warp_sort"), 4 * 16 * 1000, 1.0
    ),
    "top-k of filtered rows": selecting(
        Case(top_k((2, 8192), 50), "block_filter", ONE, "any"), 4 * 2 * (8192 + 50), 1.006
    ),
    # A row's four blocks first read the same sample of 192 loads each; the L2 cache has it after the first.
    "top-k of rows filtered by several blocks": selecting(
        Case(top_k((2, 8192), 50), "block_filter", content="any"),
        4 * 2 * (8192 + 50) + 2 * 4 * 192 * 16, 1.377,
    ),
    # One digit tells random words apart; the second read lists them, and results are made from keys.
    "top-k by radix": selecting(
        Case(top_k((2, 8192), 50), "block_radix", content="any"), 4 * 2 * 2 * 8192, 1.988
    ),
    "many results by radix": selecting(
        Case(top_k((2, 8192), 1000), "block_radix", content="any"), 4 * 2 * 2 * 8192, 1.804
    ),
    # Two blocks a row, with 1040 and 1008 loads of 16 bytes: each of 512 threads issues four loads at a time
    # for the digit and two for the list, and loads past the end repeat the last one.
    "top-k by radix on a grid": selecting(
        Case(top_k((2, 8192), 50), "grid_radix", content="any"),
        16 * 2 * (2048 + 1024 + 32 + 2048 + 1024) + 4 * 2 * 50, 2.997,
    ),
    "gru in blocks": recurring(
        Case(gru(4, 2, 3, 40, has_lengths=False), "block"), 1.79, sets=2, shards=1, biases=2
    ),
    "gru on a grid": recurring(
        Case(gru(4, 2, 3, 40, has_lengths=False), "grid"), 1.037, sets=1, shards=3, biases=1
    ),
}  # fmt: skip


def traffic_of(case: Case) -> cudml.devices.emulator.Report:
    """The traffic of the case's kernels, on the same data every time."""
    operands = operands_of(case, np.random.default_rng(1))
    with emulator.schedule("forward"), cudml.emulator_report() as report:
        run(case, operands)
    return report


def fewest_bytes(case: Case, buffer: str) -> int:
    """Bytes of a buffer that the operator needs, or writes."""
    descriptor = case.descriptor
    if buffer == "projection":
        return math.prod(descriptor.output_sequence_tensor.sizes) * 3 * 4
    tensor = getattr(descriptor, buffer)
    if case.operator == "slice":
        return math.prod(descriptor.output_tensor.sizes) * tensor.element.size
    return tensor.span_bytes


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_bytes_are_those_of_the_table(row: Traffic) -> None:
    report = traffic_of(row.case)
    outputs = row.case.plan().outputs
    moved = {}
    for buffer in row.moved:
        traffic = report.total(buffer)
        moved[buffer] = traffic.bytes_written if buffer in outputs else traffic.bytes_read
        assert traffic.bytes_read + traffic.bytes_written == moved[buffer]
    assert moved == row.moved
    fewest = sum(fewest_bytes(row.case, buffer) for buffer in row.moved)
    assert round(sum(moved.values()) / fewest, 3) == row.ratio


def rows_of_runs(case: Case) -> np.ndarray | None:
    """The first byte and the length in bytes of every contiguous run of the input; None if runs are short."""
    descriptor = case.descriptor
    tensor, item = descriptor.input_tensor, descriptor.input_tensor.element.size
    sizes, steps, offsets = tensor.sizes, (1,) * len(tensor.sizes), (0,) * len(tensor.sizes)
    if case.operator == "slice":
        sizes, steps = descriptor.output_tensor.sizes, descriptor.input_window_strides
        offsets = descriptor.input_window_offsets
    strides = tensor.element_strides
    if abs(steps[-1]) != 1 or strides[-1] != 1 or sizes[-1] * item < 32:
        return None
    num_runs = math.prod(sizes[:-1])
    grid = np.indices(sizes[:-1]).reshape(len(sizes) - 1, num_runs)
    first = sum(
        (offset + index * step) * stride
        for offset, index, step, stride in zip(offsets, grid, steps, strides, strict=False)
    )
    starts = (first + offsets[-1]) * item + np.zeros(num_runs, int)
    return np.stack([starts, np.full_like(starts, sizes[-1] * item)])


RUNS = {
    name: row.case
    for name, row in TABLE.items()
    if row.case.operator in ("slice", "reverse_subsequences") and rows_of_runs(row.case) is not None
}


@pytest.mark.parametrize("case", RUNS.values(), ids=RUNS)
def test_runs_are_read_and_written_once(case: Case) -> None:
    """Memory gives whole sectors of 32 bytes. Lengths do not count: warps share them in a cache."""
    report = traffic_of(case)
    runs = rows_of_runs(case)
    assert runs is not None
    starts, sizes = runs
    sectors = ((starts + sizes - 1) // 32 - starts // 32 + 1).sum()
    moved = report.total("input_tensor").bytes_read + report.total("output_tensor").bytes_written
    assert moved <= MOST_OF_RUNS * (32 * sectors + fewest_bytes(case, "output_tensor"))
