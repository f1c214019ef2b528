"""SLICE and SLICE1: the pages' examples, and any box of any layout against the formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudml.devices import Device, emulator
from cudml.dtypes import BITS_BY_SIZE, ExtendedType
from cudml.enums import DataType, FeatureLevel
from cudml.operators.slice.operator import Slice1Desc, SliceDesc, check, plan
from cudml.tensors import TensorDesc
from proof.oracle.slice import slice1_elements, slice_elements
from tests.support import assert_identical, run_plan, schedules, to_device
from tests.support.layouts import Layout, lay_out, layouts, run_on_bytes

PAGE = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)

#: The examples of the SLICE page, and the same windows as SLICE1.
EXAMPLES = {
    "SLICE-1 contiguous": ((0, 0, 1, 2), (1, 1, 3, 2), (1, 1, 1, 1), [[7, 8], [11, 12], [15, 16]]),
    "SLICE-2 strided": ((0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3), [[5, 8], [13, 16]]),
}

#: SLICE1's own: windows, steps of both signs, outputs smaller than the window gives.
EXAMPLES1 = {
    "copy of a box": ((0, 0, 1, 2), (1, 1, 3, 2), (1, 1, 1, 1), [[7, 8], [11, 12], [15, 16]]),
    "window ends at the last element read": ((0, 0, 1, 0), (1, 1, 3, 4), (1, 1, 2, 3), [[5, 8], [13, 16]]),
    "backwards from the window's end": ((0, 0, 0, 0), (1, 1, 4, 4), (1, 1, -2, -3), [[16, 13], [8, 5]]),
    "backwards inside": ((0, 0, 1, 1), (1, 1, 2, 3), (1, 1, 1, -1), [[8, 7, 6], [12, 11, 10]]),
    "a smaller output": ((0, 0, 0, 0), (1, 1, 4, 4), (1, 1, 1, -1), [[4, 3], [8, 7]]),
}


def tensor(array: np.ndarray) -> TensorDesc:
    return TensorDesc.of(array)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_examples_of_the_page(device: Device, example: tuple) -> None:
    offsets, sizes, strides, rows = example
    expected = np.array(rows, np.float32).reshape(sizes)
    desc = SliceDesc(tensor(PAGE), tensor(expected), offsets, sizes, strides)
    check(desc, FeatureLevel.LEVEL_1_0)
    out = device.empty(sizes, np.float32)
    run_plan(
        device, plan(desc, device.limits), {"input_tensor": to_device(device, PAGE), "output_tensor": out}
    )
    assert_identical(out, expected)
    assert_identical(slice_elements(PAGE, offsets, sizes, strides), expected)


@pytest.mark.parametrize("example", EXAMPLES1.values(), ids=EXAMPLES1.keys())
def test_windows_of_slice1(device: Device, example: tuple) -> None:
    offsets, windows, strides, rows = example
    expected = np.array(rows, np.float32)[None, None]
    desc = Slice1Desc(tensor(PAGE), tensor(expected), offsets, windows, strides)
    check(desc, FeatureLevel.LEVEL_2_1)
    out = device.empty(expected.shape, np.float32)
    run_plan(
        device, plan(desc, device.limits), {"input_tensor": to_device(device, PAGE), "output_tensor": out}
    )
    assert_identical(out, expected)
    assert_identical(slice1_elements(PAGE, offsets, windows, strides, expected.shape), expected)


def run_slice1(
    device: Device, source: Layout, target: Layout, offsets: tuple, windows: tuple, strides: tuple, seed: int
) -> None:
    """Compare a SLICE1 with the formula, every byte between and around the outputs included."""
    rng = np.random.default_rng(seed)
    raw = {"input_tensor": source.fill(rng), "output_tensor": target.fill(rng)}
    desc = Slice1Desc(source.desc, target.desc, offsets, windows, strides)
    expected = raw["output_tensor"].copy()
    sizes = target.desc.sizes
    target.view(expected)[...] = slice1_elements(
        source.view(raw["input_tensor"]), offsets, windows, strides, sizes
    )
    places = {"input_tensor": source, "output_tensor": target}
    got = run_on_bytes(device, plan(desc, device.limits), raw, places, "output_tensor")
    assert_identical(got, expected)


@st.composite
def boxes(draw: st.DrawFn) -> tuple:
    """A source, a target and a window: 1 to 8 dimensions, any strides, any item."""
    kind = BITS_BY_SIZE[draw(st.sampled_from(sorted(BITS_BY_SIZE)))]
    rank = draw(st.integers(1, 8))
    most = (300, 24, 9, 6, 4, 3, 3, 2)[rank - 1]
    offsets, windows, strides, in_sizes, out_sizes = [], [], [], [], []
    for _ in range(rank):
        in_size = draw(st.integers(1, most))
        window = draw(st.integers(1, in_size))
        stride = draw(st.integers(1, 9)) * draw(st.sampled_from((1, -1)))
        in_sizes.append(in_size)
        windows.append(window)
        strides.append(stride)
        offsets.append(draw(st.integers(0, in_size - window)))
        largest = 1 + (window - 1) // abs(stride)
        out_sizes.append(draw(st.just(largest) | st.integers(1, largest)))
    source = draw(layouts(in_sizes, kind))
    target = draw(layouts(out_sizes, kind, broadcast=False))
    return source, target, tuple(offsets), tuple(windows), tuple(strides)


@settings(deadline=None, max_examples=150)
@given(box=boxes(), seed=st.integers(0, 2**32 - 1))
def test_any_box(box: tuple, seed: int) -> None:
    run_slice1(emulator.get_device(), *box, seed)


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("where", [(0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (5, 7), (3, 12)])
def test_every_alignment(device: Device, item_bytes: int, where: tuple[int, int]) -> None:
    """Buffers that start any number of items past a multiple of 64 bytes."""
    kind = BITS_BY_SIZE[item_bytes]
    source = lay_out((5, 67), kind, byte_offset=where[0] * item_bytes)
    target = lay_out((5, 64), kind, byte_offset=where[1] * item_bytes)
    run_slice1(device, source, target, (0, 2), (5, 64), (1, 1), 1)


@pytest.mark.parametrize("byte_offset", [1, 2, 4, 8])
def test_items_at_addresses_that_are_no_multiple_of_their_size(device: Device, byte_offset: int) -> None:
    source = lay_out((9, 40), ExtendedType.BITS128, byte_offset=byte_offset)
    target = lay_out((9, 20), ExtendedType.BITS128, byte_offset=8)
    run_slice1(device, source, target, (0, 1), (9, 39), (1, 2), 2)


def test_more_rows_than_a_grid_dimension_holds(device: Device) -> None:
    source = lay_out((70_000, 3), DataType.UINT8)
    target = lay_out((70_000, 2), DataType.UINT8)
    rng = np.random.default_rng(3)
    raw = {"input_tensor": source.fill(rng), "output_tensor": target.fill(rng)}
    desc = SliceDesc(source.desc, target.desc, (0, 1), (70_000, 2), (1, 1))
    places = {"input_tensor": source, "output_tensor": target}
    got = run_on_bytes(device, plan(desc, device.limits), raw, places, "output_tensor")
    assert_identical(got.reshape(70_000, 2), raw["input_tensor"].reshape(70_000, 3)[:, 1:].copy())


def test_a_row_read_by_every_row_of_the_output(device: Device) -> None:
    source = lay_out((6, 33), DataType.UINT16, broadcast=(True, False))
    run_slice1(device, source, lay_out((6, 33), DataType.UINT16), (0, 0), (6, 33), (1, 1), 4)


def test_same_bits_under_every_schedule() -> None:
    source = lay_out((7, 130), DataType.UINT16, byte_offset=2)
    target = lay_out((7, 40), DataType.UINT16, pads=(1, 3))
    for schedule in schedules():
        with schedule:
            run_slice1(emulator.get_device(), source, target, (0, 3), (7, 127), (-1, -3), 5)


def test_nothing_is_launched_for_an_empty_output() -> None:
    a, out = TensorDesc(DataType.FLOAT32, (3, 0)), TensorDesc(DataType.FLOAT32, (3, 0))
    assert plan(SliceDesc(a, out, (0, 0), (3, 0), (1, 1)), emulator.get_device().limits).steps == ()


def test_offsets_beyond_32_bits_reach_the_kernel() -> None:
    """A plan is pure: no memory is needed to see that nothing wraps."""
    limits = emulator.get_device().limits
    size = 2**33
    # Every 17th of a row too long for 32-bit indices.
    a, out = TensorDesc(DataType.UINT8, (size * 6,)), TensorDesc(DataType.UINT8, (size // 3,))
    step = plan(SliceDesc(a, out, (7,), (size // 3,), (17,)), limits).steps[0]
    members = {field.name: field.values for field in step.params.fields}
    assert step.source == "slice/gather.cu"
    assert members["source_offset"] == (7,)
    assert members["source_strides"][0] == 17
    assert members["num_items"] == (size // 3,)
    assert members["is_wide"] == (1,)
    # Rows of that length: few items, far apart.
    a = TensorDesc(DataType.UINT8, (3, size))
    out = TensorDesc(DataType.UINT8, (2, 2))
    step = plan(SliceDesc(a, out, (1, size - 4), (2, 2), (1, 3)), limits).steps[0]
    members = {field.name: field.values for field in step.params.fields}
    assert members["source_offset"] == (2 * size - 4,)
    assert members["source_strides"][:2] == (3, size)
    assert members["is_wide"] == (1,)
    # One run of that length, mirrored and not.
    for stride in (1, -1):
        a = TensorDesc(DataType.UINT16, (size,))
        out = TensorDesc(DataType.UINT16, (size - 1,))
        step = plan(Slice1Desc(a, out, (1,), (size - 1,), (stride,)), limits).steps[0]
        members = {field.name: field.values for field in step.params.fields}
        assert step.source == "slice/runs.cu"
        assert members["run_bytes"] == (2 * size - 2,)
        assert members["source_offset"] == (2,)
        assert (members["source_begin"], members["source_end"]) == ((2,), (2 * size,))


@pytest.mark.parametrize(("size", "is_wide"), [(1, 0), (2**31 - 1, 0), (2**31, 1)])
def test_indices_are_narrow_as_long_as_they_fit(size: int, is_wide: int) -> None:
    one, out = TensorDesc(DataType.UINT64, (size,), (0,)), TensorDesc(DataType.UINT64, (size,))
    (step,) = plan(SliceDesc(one, out, (0,), (size,), (1,)), emulator.get_device().limits).steps
    assert step.source == "slice/gather.cu"
    assert {field.name: field.values for field in step.params.fields}["is_wide"] == (is_wide,)


@pytest.mark.parametrize("distance", [2**31 - 2, 2**31 - 1, 2**31 + 5, 2**32 - 1, 2**32 + 9])
@pytest.mark.parametrize(
    ("columns", "step", "path"),
    [
        (5, 1, "gather"),
        (300, 1, "runs"),
        (300, -1, "runs"),
        (4000, 2, "planes"),
        (4000, -2, "gather"),
        (300, -9, "gather"),
    ],
)
def test_rows_farther_apart_than_32_bits_count(
    distance: int, columns: int, step: int, path: str, rng: np.random.Generator
) -> None:
    """The memory between the rows is never touched, so that it costs nothing."""
    raw = np.zeros(distance + 4096, np.uint8)
    raw[:4096] = rng.integers(256, size=4096)
    raw[-4096:] = rng.integers(256, size=4096)
    rows = np.lib.stride_tricks.as_strided(raw, (2, 4096), (distance, 1))
    expected = np.stack([row[7 : 7 + columns][::step] for row in (raw[:4096], raw[-4096:])])
    device, out = emulator.get_device(), np.zeros_like(expected)
    desc = Slice1Desc(TensorDesc.of(rows), TensorDesc.of(out), (0, 7), (2, columns), (1, step))
    launches = plan(desc, device.limits, path=path)
    with emulator.schedule(check=False):  # even with --sanitize, which would track every byte of memory
        run_plan(device, launches, {"input_tensor": rows, "output_tensor": out})
    assert_identical(out, expected)
