"""TOP_K1 and TOP_K: the page's examples, and the order of every type's hardest values."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudml.devices import Device, emulator
from cudml.dtypes import ELEMENTS
from cudml.enums import AxisDirection, DataType, FeatureLevel
from cudml.operators.top_k.operator import TopK1Desc, TopKDesc, check, plan
from cudml.operators.top_k.rows import fine_order
from cudml.tensors import TensorDesc
from proof.oracle.top_k import top_k
from tests.support import assert_identical, run_plan, to_device
from tests.support.layouts import lay_out, layouts
from tests.support.random_arrays import edge_values
from tests.support.top_k_runs import (
    DTYPES,
    Options,
    check_in_layouts,
    check_top_k,
    element_type,
    output_sizes,
    paths_for,
    possible_paths,
    selection_in,
)

A = [[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]
B = [[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]]
LARGEST, SMALLEST = AxisDirection.DECREASING, AxisDirection.INCREASING

#: The examples of the TOP_K1 page: input, axis, k, direction, values, indices.
EXAMPLES = {
    "TOPK-1 basic": (A, 3, 2, LARGEST, [[11, 10], [9, 8], [7, 6]], [[3, 2], [2, 3], [3, 2]]),
    "TOPK-2 another axis": (A, 2, 2, LARGEST, [[4, 5, 10, 11], [3, 2, 9, 8]], [[2, 2, 0, 0], [1, 1, 1, 1]]),
    "TOPK-3 ties": (B, 3, 3, LARGEST, [[3, 2, 2], [5, 5, 4], [6, 6, 6]], [[3, 1, 2], [2, 3, 1], [0, 1, 2]]),
    "TOPK-4 increasing": (
        B, 3, 3, SMALLEST, [[1, 2, 2], [3, 4, 5], [6, 6, 6]], [[0, 1, 2], [0, 1, 2], [0, 1, 2]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_examples_of_the_page(device: Device, example: tuple) -> None:
    rows, axis, k, direction, expected_values, expected_indices = example
    a = np.array(rows, np.float32)[None, None]
    values = np.array(expected_values, np.float32)[None, None]
    indices = np.array(expected_indices, np.uint32)[None, None]
    tensors = TensorDesc.of(a), TensorDesc.of(values), TensorDesc.of(indices)
    descs = [TopK1Desc(*tensors, axis, k, direction)]
    if direction == LARGEST:
        descs.append(TopKDesc(*tensors, axis, k))
    for desc in descs:
        check(desc, FeatureLevel.LEVEL_2_1)
        outputs = {
            "output_value_tensor": device.empty(values.shape, np.float32),
            "output_index_tensor": device.empty(indices.shape, np.uint32),
        }
        run_plan(device, plan(desc, device.limits), {"input_tensor": to_device(device, a), **outputs})
        assert_identical(outputs["output_value_tensor"], values)
        assert_identical(outputs["output_index_tensor"], indices)
    got = top_k(a, k, axis, largest=direction == LARGEST)
    assert_identical(got[0], values)
    assert_identical(got[1].astype(np.uint32), indices)


def before(first: float, second: float, largest: bool, nan_last: bool) -> bool:
    """Whether an element ranks strictly before another, by comparisons alone."""
    if math.isnan(first) or math.isnan(second):
        nan_first = largest and not nan_last
        return math.isnan(first if nan_first else second) and not (math.isnan(first) and math.isnan(second))
    return first > second if largest else first < second


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("nan_last", [True, False])
def test_oracle_against_the_definition(
    dtype: np.dtype, largest: bool, nan_last: bool, rng: np.random.Generator
) -> None:
    x = rng.choice(edge_values(dtype), 24)
    numbers = [x[i].item() for i in range(len(x))]
    ranks = [
        sum(
            before(other, number, largest, nan_last)
            or (j < i and not before(number, other, largest, nan_last))
            for j, other in enumerate(numbers)
        )
        for i, number in enumerate(numbers)
    ]
    _, indices = top_k(x, len(x), largest=largest, nan_last=nan_last)
    assert indices.tolist() == np.argsort(ranks).tolist()


def hard_values(dtype: np.dtype, size: int, rng: np.random.Generator) -> np.ndarray:
    """NaNs of both signs and several payloads, the least too, zeros of both signs, subnormals, extremes."""
    edges = edge_values(dtype)
    if dtype.kind not in "iu":
        bits = edges.view(f"u{dtype.itemsize}")
        nans, infinities = (bits[is_one(edges.astype(np.float64))] for is_one in (np.isnan, np.isinf))
        sign = np.array(1 << (8 * dtype.itemsize - 1), bits.dtype)
        others = [nans | sign, nans + 1, (nans | sign) + 3, infinities + 1, bits ^ sign]
        edges = np.concatenate([bits, *others]).view(dtype)
    return rng.choice(edges, size)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [40, 2500])
def test_hardest_values_in_both_orders(
    device: Device, dtype: np.dtype, size: int, rng: np.random.Generator
) -> None:
    x = hard_values(dtype, 2 * size, rng).reshape(2, size)
    for largest in (True, False):
        for nan_last in (True, False):
            options = Options(size // 2, largest=largest, nan_last=nan_last)
            for path in possible_paths(x, options, device.limits):
                check_top_k(device, x, Options(size // 2, -1, largest, nan_last, path))


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.kind not in "iu"], ids=str)
@pytest.mark.parametrize("k", [1, 2, 4, 9, 33])
def test_every_path_keeps_the_bits_of_zeros_and_nans(
    device: Device, dtype: np.dtype, k: int, rng: np.random.Generator
) -> None:
    """Elements of one key keep their own bits, in rows with few results and in rows of results alone."""
    bits = hard_values(dtype, 60, rng).view(f"u{dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * dtype.itemsize - 1))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = bits.view(dtype).astype(np.float64)
    zeros, nans = np.array([0, sign], bits.dtype), bits[np.isnan(numbers)]
    for kinds in (zeros, nans, np.concatenate([zeros, nans, bits[numbers == 1]])):
        # Few long rows: the interpreter of a GPU's code takes longest for several blocks a row.
        for num_rows, row_length in ((7, k), (7, k + 2), (2, 15 * k), (3, 30 * k)):
            x = rng.choice(kinds, (num_rows, row_length)).view(dtype)
            for axis, source in ((1, x), (0, np.ascontiguousarray(x.T))):
                options = Options(k, axis, bool(rng.integers(2)), bool(rng.integers(2)))
                for path in possible_paths(source, options, device.limits):
                    check_top_k(device, source, replace(options, path=path))


def nearly_equal(dtype: np.dtype, size: int) -> np.ndarray:
    """Distinct elements that differ in their low bits alone."""
    word = np.dtype(f"u{dtype.itemsize}")
    high = {1: 0x40, 2: 0x3C00, 4: 0x3F800000, 8: 0x3FF0000000000000}[dtype.itemsize]
    return (np.arange(size).astype(word) % word.type(32) + word.type(high)).view(dtype)


PATTERNS: dict[str, Callable[[np.dtype, int, np.random.Generator], np.ndarray]] = {
    "all equal": lambda dtype, size, rng: np.ones(size).astype(dtype),
    "a few above many ties": lambda dtype, size, rng: (1 + (np.arange(size) >= size - 3)).astype(dtype),
    "64 values": lambda dtype, size, rng: rng.integers(0, 64, size).astype(dtype),
    "half zeros": lambda dtype, size, rng: np.maximum(rng.integers(-99, 99, size), 0).astype(dtype),
    "same leading bits": lambda dtype, size, rng: nearly_equal(dtype, size),
    "ascending": lambda dtype, size, rng: (np.arange(size) * 120 // size).astype(dtype),
    "descending": lambda dtype, size, rng: (np.arange(size)[::-1] * 120 // size).astype(dtype),
    "any bits": lambda dtype, size, rng: np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).copy(),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_on_every_path(
    device: Device, dtype: np.dtype, pattern: str, rng: np.random.Generator
) -> None:
    """Every path gives the oracle's bits, so all paths give the same."""
    for size, ks in ((600, (1, 2, 33, 599, 600)), (6000, (1, 40, 700, 6000))):
        x = PATTERNS[pattern](dtype, size, rng)[None]
        for k in ks:
            for path in possible_paths(x, Options(k), device.limits):
                check_top_k(device, x, Options(k, path=path, largest=bool(rng.integers(2))))


@st.composite
def selections(draw: st.DrawFn) -> tuple:
    """A dtype, options and three layouts: 1 to 8 dimensions, any axis, any strides."""
    dtype = draw(st.sampled_from(DTYPES))
    rank = draw(st.integers(1, 8))
    sizes = [draw(st.integers(1, (70, 12, 6, 4, 3, 3, 2, 2)[rank - 1])) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    sizes[axis] = draw(st.integers(1, 70 if rank < 5 else 12))
    options = Options(
        k=draw(st.integers(1, sizes[axis])),
        axis=axis,
        largest=draw(st.booleans()),
        nan_last=draw(st.booleans()),
        index_type=draw(st.sampled_from((DataType.UINT32, DataType.UINT64, DataType.INT64))),
    )
    kind = element_type(np.empty(0, dtype))
    out = output_sizes(tuple(sizes), options)
    places = (
        draw(layouts(sizes, kind)),
        draw(layouts(out, kind, broadcast=False)),
        draw(layouts(out, options.index_type, broadcast=False)),
    )
    selection = selection_in(*(place.desc for place in places), options)
    path = draw(st.sampled_from(paths_for(selection, emulator.get_device().limits)))
    return dtype, replace(options, path=path), places


@settings(deadline=None, max_examples=120)
@given(selection=selections(), seed=st.integers(0, 2**32 - 1))
def test_any_layout(selection: tuple, seed: int) -> None:
    dtype, options, places = selection
    rng = np.random.default_rng(seed)
    raw = places[0].fill(rng)
    if rng.integers(2):  # few values: ties
        raw = raw & np.uint8(0xC1)
    check_in_layouts(emulator.get_device(), raw, *places, options, dtype)


@pytest.mark.parametrize("axis", range(4))
def test_every_axis_of_a_packed_tensor(device: Device, axis: int, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (3, 5, 4, 6)).astype(np.float32)
    check_top_k(device, x, Options(2, axis))


@pytest.mark.parametrize("byte_offset", [1, 3, 8, 15])
def test_rows_at_every_alignment(device: Device, byte_offset: int, rng: np.random.Generator) -> None:
    """A row pitch that is not a multiple of 16 bytes starts every row at another byte."""
    x = lay_out((4, 3001), DataType.INT8, pads=(0, 6), byte_offset=byte_offset)
    out = (4, 70)
    for path in possible_paths(np.empty((4, 3001), np.int8), Options(70), device.limits):
        places = x, lay_out(out, DataType.INT8, pads=(0, 1)), lay_out(out, DataType.UINT32, pads=(1, 2))
        check_in_layouts(device, x.fill(rng), *places, Options(70, path=path), np.dtype(np.int8))


def test_more_rows_than_a_grid_dimension_holds(device: Device, rng: np.random.Generator) -> None:
    x = rng.integers(0, 255, (70_000, 3)).astype(np.uint8)
    check_top_k(device, x, Options(2))


def test_row_alone_and_in_a_batch(device: Device, rng: np.random.Generator) -> None:
    """A row's result does not depend on the rows beside it."""
    x = rng.integers(0, 9, (9, 2100)).astype(np.float16)
    for k in (5, 900):
        check_top_k(device, x, Options(k))
        check_top_k(device, x[4:5], Options(k))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("nan_last", [True, False])
def test_fine_keys_are_in_the_order_of_rank(
    dtype: np.dtype, largest: bool, nan_last: bool, rng: np.random.Generator
) -> None:
    """The arithmetic of kernels/top_k/fine_key.cuh, on elements of every kind, and on all of 16 bits."""
    word = np.dtype(f"u{dtype.itemsize}")
    bits = 8 * dtype.itemsize
    every = np.arange(1 << bits, dtype=word) if bits <= 16 else hard_values(dtype, 4000, rng).view(word)
    x = rng.permutation(every).view(dtype)
    info = ELEMENTS[element_type(x)]
    order = fine_order(info, is_largest=largest, nan_last=nan_last)
    key_bits = max(bits, 32)
    mask = (1 << key_bits) - 1

    def coarse(element: int) -> tuple[int, int]:
        upper = element << (key_bits - bits)
        magnitude = order["magnitude"] if upper >> (key_bits - 1) else 0
        fine = ((upper ^ magnitude) * order["factor"] + order["offset"] & mask) >> (key_bits - bits)
        zero, other_zero, end_nan, first_nan = (
            order[name] >> (key_bits - bits) for name in ("zero", "other_zero", "end_nan", "first_nan")
        )
        key = other_zero if fine == zero else fine
        return fine, min(0 if key < end_nan else key, first_nan)

    fine, keys = np.array([coarse(int(element)) for element in x.view(word)], np.uint64).T
    assert len({*fine.tolist()}) == len({*x.view(word).tolist()})
    expected = top_k(x, len(x), largest=largest, nan_last=nan_last)[1]
    np.testing.assert_array_equal(np.lexsort((np.arange(len(x)), ~keys)), expected)
    padding = order["padding"]
    assert padding == sum((padding & ((1 << bits) - 1)) << shift for shift in range(0, 64, bits))
    assert coarse(padding & ((1 << bits) - 1))[0] == 0
