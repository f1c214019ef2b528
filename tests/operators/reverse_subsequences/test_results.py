"""REVERSE_SUBSEQUENCES: the page's examples, and lanes of any layout against the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudml.devices import Device, emulator
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType, FeatureLevel
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc, check, plan
from cudml.tensors import TensorDesc
from proof.oracle.reverse_subsequences import reverse_lanes
from tests.support import assert_identical, run_plan, schedules, to_device
from tests.support.layouts import Layout, lay_out, layouts, run_on_bytes

PAGE = np.arange(1, 13, dtype=np.float32).reshape(1, 1, 3, 4)

EXAMPLES = {
    "REV-1": (3, [[2], [4], [3]], [[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]]),
    "REV-2": (2, [[2, 3, 1, 0]], [[5, 10, 3, 4], [1, 6, 7, 8], [9, 2, 11, 12]]),
    "all lengths beyond the axis": (
        3,
        [[4], [5], [2**32 - 1]],
        [[4, 3, 2, 1], [8, 7, 6, 5], [12, 11, 10, 9]],
    ),
    "nothing to reverse": (3, [[0], [1], [0]], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]),
}

LENGTH_TYPES = (
    DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64,
    DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64,
)  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_examples_of_the_page(device: Device, example: tuple) -> None:
    axis, lengths, rows = example
    lengths = np.array(lengths, np.uint32)[None, None]
    expected = np.array(rows, np.float32)[None, None]
    desc = ReverseSubsequencesDesc(TensorDesc.of(PAGE), TensorDesc.of(lengths), TensorDesc.of(PAGE), axis)
    check(desc, FeatureLevel.LEVEL_2_1)
    out = device.empty(PAGE.shape, np.float32)
    operands = {
        "input_tensor": to_device(device, PAGE),
        "sequence_lengths_tensor": to_device(device, lengths),
        "output_tensor": out,
    }
    run_plan(device, plan(desc, device.limits), operands)
    assert_identical(out, expected)
    assert_identical(reverse_lanes(PAGE, lengths, axis), expected)


def run_reversal(
    device: Device, source: Layout, lengths: Layout, target: Layout, axis: int, values: np.ndarray, seed: int
) -> None:
    """Compare with the definition, every byte between and around the outputs included."""
    rng = np.random.default_rng(seed)
    raw = {
        "input_tensor": source.fill(rng),
        "sequence_lengths_tensor": lengths.fill(rng),
        "output_tensor": target.fill(rng),
    }
    placed = lengths.view(raw["sequence_lengths_tensor"])
    dtype = np.dtype(lengths.desc.element.numpy_name)
    placed[...] = values.astype(dtype).view(placed.dtype)
    expected = raw["output_tensor"].copy()
    read = np.ascontiguousarray(placed).view(dtype)
    target.view(expected)[...] = reverse_lanes(source.view(raw["input_tensor"]), read, axis)
    places = {"input_tensor": source, "sequence_lengths_tensor": lengths, "output_tensor": target}
    desc = ReverseSubsequencesDesc(source.desc, lengths.desc, target.desc, axis)
    got = run_on_bytes(device, plan(desc, device.limits), raw, places, "output_tensor")
    assert_identical(got, expected)


def length_values(sizes: tuple[int, ...], axis: int, kind: DataType, seed: int) -> np.ndarray:
    """Lengths of every kind: 0, 1, inside, the axis' size, beyond it, and both ends of the type."""
    size = sizes[axis]
    ends = np.iinfo(TensorDesc(kind, (1,)).element.numpy_name)
    special = [ends.min, 0, 1, size - 1, size, size + 1, ends.max]
    rng = np.random.default_rng(seed)
    shape = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    inside = rng.integers(0, min(size, ends.max), shape, endpoint=True).astype(object)
    chosen = np.array([max(min(v, ends.max), ends.min) for v in special], object)[rng.integers(0, 7, shape)]
    return np.where(rng.random(shape) < 0.5, inside, chosen)


@st.composite
def reversals(draw: st.DrawFn) -> tuple:
    """A source, lengths, a target and an axis: 1 to 8 dimensions, any strides, any item, any length type."""
    moved = BITS_BY_SIZE[draw(st.sampled_from(sorted(BITS_BY_SIZE)))]
    kind = draw(st.sampled_from(LENGTH_TYPES))
    rank = draw(st.integers(1, 8))
    most = (300, 24, 9, 6, 4, 3, 3, 2)[rank - 1]
    sizes = tuple(draw(st.integers(1, most)) for _ in range(rank))
    axis = draw(st.integers(0, rank - 1))
    length_sizes = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    source = draw(layouts(sizes, moved))
    target = draw(layouts(sizes, moved, broadcast=False))
    lengths = draw(layouts(length_sizes, kind, broadcast=False))
    values = length_values(sizes, axis, kind, draw(st.integers(0, 2**32 - 1)))
    return source, lengths, target, axis, values


@settings(deadline=None, max_examples=150)
@given(reversal=reversals(), seed=st.integers(0, 2**32 - 1))
def test_any_lanes(reversal: tuple, seed: int) -> None:
    run_reversal(emulator.get_device(), *reversal, seed)


@pytest.mark.parametrize("kind", LENGTH_TYPES)
def test_every_type_of_lengths(device: Device, kind: DataType) -> None:
    sizes = (40, 9)
    lay = lay_out(sizes, DataType.UINT32)
    lengths = lay_out((40, 1), kind)
    run_reversal(device, lay, lengths, lay, 1, length_values(sizes, 1, kind, 1), 2)


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("where", [(0, 0), (1, 0), (0, 1), (3, 5)])
def test_every_axis_and_alignment(device: Device, item_bytes: int, axis: int, where: tuple[int, int]) -> None:
    sizes = (4, 21, 35)
    kind = BITS_BY_SIZE[item_bytes]
    source = lay_out(sizes, kind, byte_offset=where[0] * item_bytes)
    target = lay_out(sizes, kind, byte_offset=where[1] * item_bytes)
    lengths = lay_out(tuple(1 if i == axis else n for i, n in enumerate(sizes)), DataType.UINT32)
    run_reversal(device, source, lengths, target, axis, length_values(sizes, axis, DataType.UINT32, 3), 4)


@pytest.mark.parametrize("shared", [(True, False, False), (False, False, True), (True, False, True)])
def test_lengths_shared_by_stride_0(device: Device, shared: tuple[bool, ...]) -> None:
    """As callers give one length a batch entry: the other dimensions of the lengths have stride 0."""
    sizes = (5, 17, 24)
    lay = lay_out(sizes, DataType.UINT16)
    lengths = lay_out((5, 1, 24), DataType.UINT64, broadcast=shared)
    few = tuple(1 if share else n for n, share in zip((5, 1, 24), shared, strict=True))
    values = np.random.default_rng(5).integers(0, 19, few)
    run_reversal(device, lay, lengths, lay, 1, np.broadcast_to(values, (5, 1, 24)), 6)


def test_more_lanes_than_a_grid_dimension_holds(device: Device) -> None:
    lay = lay_out((70_000, 3), DataType.UINT8)
    lengths = lay_out((70_000, 1), DataType.UINT32)
    values = np.random.default_rng(7).integers(0, 4, (70_000, 1))
    run_reversal(device, lay, lengths, lay, 1, values, 8)


@pytest.mark.parametrize("axis", [1, 2])
def test_same_bits_under_every_schedule(axis: int) -> None:
    sizes = (3, 19, 20)
    lay = lay_out(sizes, DataType.UINT16, byte_offset=2)
    lengths = lay_out(tuple(1 if i == axis else n for i, n in enumerate(sizes)), DataType.UINT32)
    values = length_values(sizes, axis, DataType.UINT32, 9)
    for schedule in schedules():
        with schedule:
            run_reversal(emulator.get_device(), lay, lengths, lay, axis, values, 10)


def test_nothing_is_launched_for_an_empty_output() -> None:
    a, lengths = TensorDesc(DataType.FLOAT32, (3, 0)), TensorDesc(DataType.UINT32, (3, 1))
    assert plan(ReverseSubsequencesDesc(a, lengths, a, 1), emulator.get_device().limits).steps == ()


def test_offsets_beyond_32_bits_reach_the_kernel() -> None:
    """A plan is pure: no memory is needed to see that nothing wraps."""
    size = 2**31 + 10
    a = TensorDesc(DataType.UINT8, (3, size), (size * 3, 3))
    lengths = TensorDesc(DataType.UINT64, (3, 1))
    step = plan(ReverseSubsequencesDesc(a, lengths, a, 1), emulator.get_device().limits).steps[0]
    members = {field.name: field.values for field in step.params.fields}
    assert members["num_items"] == (3 * size,)
    assert members["axis_size"] == (size,)
    assert members["axis_stride"] == (3,)
    assert members["target_strides"][:2] == (3, 3 * size)
    assert members["is_wide"] == (1,)
