"""Every kernel that can do a copy gives the same bytes, whichever the plan would choose."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudml.devices import Device, emulator
from cudml.dtypes import BITS_BY_SIZE
from cudml.operators import index_space, launch_shape
from cudml.operators.index_space import Space, coalesced, dimensions_of, widened
from cudml.operators.launch_shape import run_shape
from cudml.operators.slice import serial
from cudml.operators.slice.box import SOURCE, TARGET, BoxCopy
from cudml.operators.slice.gather import GATHER_ITEMS_PER_THREAD
from cudml.operators.slice.operator import Slice1Desc, plan
from cudml.operators.slice.paths import PATHS, Features, box_copy, choose_path, copy_step, features_of
from cudml.plans import Copy, Limits, Plan, Step
from cudml.tensors import TensorDesc
from proof.sass.plan import HOPPER
from tests.support import assert_identical, is_for_a_cpu, schedules
from tests.support.layouts import Layout, lay_out, run_on_bytes

#: The paths that are kernels of ours: not the driver's own copy.
KERNELS = [name for name in PATHS if name != "driver"]


@pytest.fixture(scope="module", autouse=True)
def small_blocks_of_one_thread() -> Iterator[None]:
    """Split the small arrays here over several blocks; by default, each would be one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_shape, "MIN_SERIAL_BLOCK_BYTES", 1)
        yield


def space_of(source: Layout, target: Layout) -> Space:
    """The copy of one layout to another of the same sizes, as the plan coalesces it."""
    dimensions = dimensions_of(target.desc.sizes, source.desc.element_strides, target.desc.element_strides)
    space = Space(dimensions, (0, 0), target.desc.element.size)
    return widened(coalesced(space, TARGET), (SOURCE, TARGET))


def run_step(device: Device, step: Step, source: Layout, target: Layout, seed: int) -> None:
    """Compare a step with NumPy's assignment, every byte between and around the outputs included."""
    rng = np.random.default_rng(seed)
    raw = {"source": source.fill(rng), "target": target.fill(rng)}
    expected = raw["target"].copy()
    target.view(expected)[...] = source.view(raw["source"])
    plan = Plan("copy", ("source", "target"), (step,), outputs=("target",))
    got = run_on_bytes(device, plan, raw, {"source": source, "target": target}, "target")
    assert_identical(got, expected)


def run_every_path(device: Device, source: Layout, target: Layout, seed: int) -> set[str]:
    """Run all kernels that can do the copy, and return their names."""
    space = space_of(source, target)
    copy = BoxCopy(space, "source", "target")
    names = {name for name, path in PATHS.items() if path.can_do(copy, device.limits)}
    if device is not emulator.get_device():
        names = {name for name in names if not is_for_a_cpu(name)}
    for name in names:
        step = copy_step(space, "source", "target", device.limits, path=name)
        run_step(device, step, source, target, seed)
    return names


def strided_layout(
    sizes: tuple[int, ...], kind: object, strides: tuple[int, ...], byte_offset: int
) -> Layout:
    """A layout by its strides in elements."""
    dense = lay_out(sizes, kind)
    item = dense.desc.element.size
    low = sum(min((n - 1) * s, 0) for n, s in zip(sizes, strides, strict=True))
    high = sum(max((n - 1) * s, 0) for n, s in zip(sizes, strides, strict=True))
    desc = type(dense.desc)(kind, sizes, strides)
    return Layout(desc, byte_offset - low * item, byte_offset + (high - low + 1) * item)


@st.composite
def copies(draw: st.DrawFn, inner_strides: st.SearchStrategy[int]) -> tuple[Layout, Layout]:
    """Rows of a given inner stride, upwards or downwards, gaps on both sides and any alignment of either."""
    item_bytes = draw(st.sampled_from(sorted(BITS_BY_SIZE)))
    kind = BITS_BY_SIZE[item_bytes]
    row = draw(st.integers(2, 40) | st.integers(2, 3000 // item_bytes + 2))
    num_rows = draw(st.integers(1, 9))
    inner = draw(inner_strides)
    row_span = abs(inner) * (row - 1) + 1
    outer = (row_span + draw(st.integers(0, 9))) * draw(st.sampled_from((1, -1)))
    target_row = (row + draw(st.integers(0, 5))) * draw(st.sampled_from((1, -1)))
    source = strided_layout((num_rows, row), kind, (outer, inner), draw(st.integers(0, 16)) * item_bytes)
    target = strided_layout((num_rows, row), kind, (target_row, 1), draw(st.integers(0, 16)) * item_bytes)
    return source, target


@settings(deadline=None, max_examples=60)
@given(copy=copies(st.just(1)), seed=st.integers(0, 2**32 - 1))
def test_contiguous_rows(copy: tuple[Layout, Layout], seed: int) -> None:
    names = run_every_path(emulator.get_device(), *copy, seed)
    fits_one_item = copy[0].desc.sizes[1] * copy[0].desc.element.size <= 16
    assert "runs" in names or fits_one_item


@settings(deadline=None, max_examples=60)
@given(copy=copies(st.just(-1)), seed=st.integers(0, 2**32 - 1))
def test_mirrored_rows(copy: tuple[Layout, Layout], seed: int) -> None:
    assert "runs" in run_every_path(emulator.get_device(), *copy, seed)


@settings(deadline=None, max_examples=60)
@given(copy=copies(st.integers(2, 8) | st.integers(-8, -2)), seed=st.integers(0, 2**32 - 1))
def test_rows_of_every_sth_item(copy: tuple[Layout, Layout], seed: int) -> None:
    assert "gather" in run_every_path(emulator.get_device(), *copy, seed)


def across(
    item_bytes: int,
    sizes: tuple[int, int, int],
    flip: bool,
    pads: tuple[int, int],
    offsets: tuple[int, int],
    outer_pads: tuple[int, int] = (0, 0),
    downwards: bool = False,
) -> tuple[Layout, Layout]:
    """Matrices (count, source line, target line) whose columns are the rows of the source.

    If `downwards`, the target's matrices lie in reverse order. Pads lengthen the lines of source and target,
    outer pads lengthen their matrices; pads and offsets count items.
    """
    kind = BITS_BY_SIZE[item_bytes]
    source = lay_out(
        sizes, kind, order=(0, 2, 1), pads=(0, pads[0], outer_pads[0]), flips=(False, flip, False),
        byte_offset=offsets[0] * item_bytes,
    )  # fmt: skip
    target = lay_out(
        sizes, kind, pads=(0, outer_pads[1], pads[1]), flips=(downwards, False, False),
        byte_offset=offsets[1] * item_bytes,
    )  # fmt: skip
    return source, target


@st.composite
def sides_in_items(draw: st.DrawFn, line: int) -> tuple[int, int]:
    """The pad of one side's lines, and its offset; in half of the cases both keep to whole words."""
    if draw(st.booleans()):
        return -line % 4 + 4 * draw(st.integers(0, 1)), 4 * draw(st.integers(0, 4))
    return draw(st.integers(0, 3)), draw(st.integers(0, 16))


@settings(deadline=None, max_examples=100)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_lines_across_the_source(data: st.DataObject, seed: int) -> None:
    item_bytes = data.draw(st.sampled_from(sorted(BITS_BY_SIZE)), "item bytes")
    sides = st.integers(2, 9) | st.integers(2, 40).map(lambda n: 4 * n) | st.integers(2, 300)
    sizes = (data.draw(st.integers(1, 3)), data.draw(sides, "source line"), data.draw(sides, "target line"))
    source_side = data.draw(sides_in_items(sizes[1]), "source pad and offset")
    target_side = data.draw(sides_in_items(sizes[2]), "target pad and offset")
    source, target = across(
        item_bytes, sizes, data.draw(st.booleans(), "mirrored"),
        *zip(source_side, target_side, strict=True),
        data.draw(st.tuples(st.integers(0, 1), st.integers(0, 1)), "outer pads"),
        data.draw(st.booleans(), "downwards"),
    )  # fmt: skip
    names = run_every_path(emulator.get_device(), source, target, seed)
    assert "transpose" in names


@settings(deadline=None, max_examples=150)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_pixels_and_planes(data: st.DataObject, seed: int) -> None:
    """Lines from less than a word to more than a warp's words; planes may be mirrored or incomplete."""
    item_bytes = data.draw(st.sampled_from((1, 2)), "item bytes")
    pixel_items = data.draw(st.integers(2, 4), "items of a pixel")
    line = data.draw(st.integers(2, 70) | st.integers(1, 70).map(lambda n: 16 * n), "line")
    num_lines, num_planes = data.draw(st.integers(1, 3), "lines"), pixel_items
    pads, offsets = (data.draw(st.tuples(*[st.sampled_from((0, 16, 1, 6))] * 2), name) for name in "po")
    step = data.draw(st.sampled_from((1, -1)), "direction of the planes")
    pixels = (line * pixel_items + pads[0], step, pixel_items)
    planes = (num_planes * (line + pads[1]) + 1, line + pads[1], 1)
    kind = BITS_BY_SIZE[item_bytes]
    if data.draw(st.booleans(), "splits"):
        num_planes = data.draw(st.integers(1, pixel_items), "planes")
        layouts = (pixels, planes)
    else:
        layouts = (planes, pixels)
    source, target = (
        strided_layout((num_lines, num_planes, line), kind, strides, offset * item_bytes)
        for strides, offset in zip(layouts, offsets, strict=True)
    )
    assert "planes" in run_every_path(emulator.get_device(), source, target, seed)


@pytest.mark.parametrize("item_bytes", [1, 2])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("tails", [(0, 0), (1, 0), (0, 1), (2, 3)])
@pytest.mark.parametrize("offsets", [(0, 0), (4, 3), (2, 8), (1, 1)])
def test_narrow_items_across_in_words_and_one_by_one(
    device: Device, item_bytes: int, flip: bool, tails: tuple[int, int], offsets: tuple[int, int]
) -> None:
    """Several tiles in each direction; the last one ends with a word or inside one."""
    sizes = (2, 264 - tails[0], 136 - tails[1])
    source, target = across(item_bytes, sizes, flip, (tails[0] + 4, tails[1]), offsets)
    assert "transpose" in run_every_path(device, source, target, 5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("byte_offsets", [(1, 0), (0, 1), (3, 2), (8, 4), (4, 4)])
def test_items_at_addresses_that_are_no_multiple_of_their_size(
    name: str, item_bytes: int, byte_offsets: tuple[int, int]
) -> None:
    strides = {"runs": (90, -1), "planes": (190, 3), "transpose": (1, 8)}
    kind = BITS_BY_SIZE[item_bytes]
    source = strided_layout((7, 50), kind, strides.get(name, (200, 5)), byte_offsets[0])
    target = strided_layout((7, 50), kind, (53, 1), byte_offsets[1])
    names = run_every_path(emulator.get_device(), source, target, 1)
    assert name in names or item_bytes > (2 if name == "planes" else 4)


@pytest.mark.parametrize("inner", [1, -1])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_rows_of_one_thread_of_every_length(item_bytes: int, inner: int) -> None:
    """Lengths around every block that one thread moves at once, and lengths left to the C library."""
    device, kind = emulator.get_device(), BITS_BY_SIZE[item_bytes]
    around = {edge + step for edge in (4, 16, 64, 128, 512) for step in (-1, 0, 1)}
    for row in sorted({max(2, -(-num_bytes // item_bytes)) for num_bytes in around}):
        source = strided_layout((3, row), kind, (row + 1, inner), 3)
        target = strided_layout((3, row), kind, (row + 2, 1), 1)
        run_step(
            device,
            copy_step(space_of(source, target), "source", "target", device.limits, path="serial"),
            source,
            target,
            row,
        )


@pytest.mark.parametrize("inner", [1, -1, 2])
def test_pieces_of_rows_of_one_thread(inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces a row, the last one shorter, in blocks that end inside a row."""
    monkeypatch.setattr(serial, "MAX_SERIAL_PIECE_BYTES", 64)
    device = emulator.get_device()
    source = strided_layout((3, 50, 333), BITS_BY_SIZE[2], (34_000, 680, inner), 0)
    target = lay_out((3, 50, 333), BITS_BY_SIZE[2], pads=(0, 1, 2))
    run_step(
        device,
        copy_step(space_of(source, target), "source", "target", device.limits, path="serial"),
        source,
        target,
        1,
    )


@pytest.mark.parametrize("inner", [1, -1])
@pytest.mark.parametrize("source_byte", [0, 5])
@pytest.mark.parametrize("target_byte", [0, 3])
@pytest.mark.parametrize("resident_blocks", [3, 0])
def test_runs_of_several_pieces(
    device: Device,
    inner: int,
    source_byte: int,
    target_byte: int,
    resident_blocks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many pieces of one short step, and one of several long steps."""
    monkeypatch.setattr(launch_shape, "RUN_BLOCKS_PER_MULTIPROCESSOR", resident_blocks)
    kind = BITS_BY_SIZE[1]
    source = strided_layout((2, 40_000), kind, (40_001, inner), source_byte)
    target = strided_layout((2, 40_000), kind, (40_003, 1), target_byte)
    assert "runs" in run_every_path(device, source, target, 2)


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("num_rows", [1, 511, 512, 513, 1600])
def test_items_each_of_which_is_a_read_of_its_own(item_bytes: int, is_packed: bool, num_rows: int) -> None:
    """A column of wide rows: a thread has fewer items than in rows whose neighbours share a read."""
    kind, step = BITS_BY_SIZE[item_bytes], 64 // item_bytes
    target = lay_out((num_rows, 2), kind, pads=(0, 0 if is_packed else 1))
    for near in (0, 1):
        source = strided_layout((num_rows, 2), kind, (2 * step, step - near), 3 * item_bytes)
        launch = copy_step(
            space_of(source, target), "source", "target", emulator.get_device().limits, path="gather"
        )
        is_far = next(field for field in launch.params.fields if field.name == "source_is_far")
        assert is_far.values == (1 - near,)
        items_each = GATHER_ITEMS_PER_THREAD[item_bytes] if near else 2
        assert launch.grid[0] == math.ceil(2 * num_rows / (256 * items_each))
        with emulator.schedule("forward", check=True):
            run_step(emulator.get_device(), launch, source, target, 7)


@pytest.mark.parametrize("name", KERNELS)
def test_indices_of_64_bits(device: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for 2**31 items or more, on few items."""
    monkeypatch.setattr(index_space, "MAX_NARROW_COUNT", 1)
    strides = {"runs": (7000, 90, 1), "transpose": (9000, 1, 80)}
    strides["planes"] = (9000, 200, 3)
    sizes, kind = (3, 7, 41), BITS_BY_SIZE[2 if name == "planes" else 4]
    source = strided_layout(sizes, kind, strides.get(name, (9000, 200, 5)), 4)
    target = lay_out(sizes, kind, pads=(0, 1, 2))
    launch = copy_step(space_of(source, target), "source", "target", device.limits, path=name)
    assert next(field for field in launch.params.fields if field.name == "is_wide").values == (1,)
    run_step(device, launch, source, target, 4)


#: Copies that the plan is expected to give to each kernel: item bytes, sizes, source strides.
CHOSEN = {
    "contiguous rows": ("gather", 4, (10_000, 1000), (2000, 1)),
    "contiguous rows of 16 MiB": ("gather", 4, (4096, 1024), (2048, 1)),
    "mirrored rows": ("runs", 2, (40_000, 1000), (2000, -1)),
    "odd rows of bytes": ("runs", 1, (100_000, 99), (150, 1)),
    "few odd rows of bytes": ("gather", 1, (1000, 99), (150, 1)),
    "short rows of bytes": ("gather", 1, (100_000, 33), (50, 1)),
    "every third item": ("gather", 4, (10, 16384), (50_000, 3)),
    "backwards by two": ("gather", 1, (10, 2000), (4000, -2)),
    "columns as rows": ("transpose", 4, (500, 400), (1, 500)),
    "columns as short rows": ("transpose", 4, (5000, 256), (1, 5000)),
    "columns as rows beyond a tile of sectors": ("transpose", 4, (5000, 257), (1, 5000)),
    "halves that fill three quarters of their tiles": ("transpose", 2, (1351, 512, 97), (49_664, 1, 512)),
    "halves that fill half of their tiles": ("transpose", 2, (2016, 512, 65), (33_280, 1, 512)),
    "short lines of bytes between others": ("gather", 1, (400_000, 24, 2), (1, 400_009, 9_600_216)),
    "short lines of bytes that touch": ("transpose", 1, (1000, 3001, 8), (24_008, 1, 3001)),
    "columns of bytes as short rows": ("transpose", 1, (50_000, 60), (1, 50_000)),
    "few columns as rows": ("transpose", 4, (250, 400), (1, 250)),
    "short rows": ("gather", 4, (500, 3), (5, 1)),
    "wide stride": ("gather", 4, (50, 300), (9000, 17)),
    "wide items with a stride": ("gather", 8, (50, 300), (9000, 2)),
    "a few columns": ("gather", 4, (500_000, 4), (1, 500_000)),
    "pixels as planes": ("planes", 1, (3, 1_000_000), (1, 3)),
    "few pixels as planes": ("gather", 1, (3, 10_000), (1, 3)),
    "three bytes of four as planes": ("planes", 1, (9000, 3, 81), (400, -1, 4)),
    "planes as pixels": ("planes", 2, (5000, 501, 3), (1503, 1, 501)),
    "short lines of halves as pixels": ("gather", 2, (50_000, 17, 3), (51, 1, 17)),
    "short lines of whole words as pixels": ("gather", 2, (10_000, 24, 3), (72, 1, 24)),
    "pixels of five items": ("gather", 1, (5, 500_000), (1, 5)),
    "wide pixels": ("transpose", 4, (3, 100_000), (1, 3)),
    "every third byte": ("gather", 1, (20_000, 96), (300, 3)),
    "every other byte": ("planes", 1, (2000, 1025), (2060, 2)),
    "every other byte of whole words": ("planes", 1, (20_000, 96), (200, 2)),
    "matrices that fill a third of their tiles": ("gather", 4, (1000, 9, 300), (2700, 1, 9)),
    "one column many times": ("gather", 4, (500, 400), (1, 0)),
    "many tiny matrices": ("gather", 4, (491_693, 2, 2), (14, 1, 2)),
    "images": ("planes", 1, (64, 3, 1024, 1024), (3 << 20, 1, 3072, 3)),
}


def test_outputs_in_many_waves_are_like_smaller_ones() -> None:
    """Every path takes longer by the same factor."""

    def seen(num_rows: int) -> Features:
        matrices = Space(dimensions_of((num_rows, 30, 50), (1500, 1, 30), (1500, 50, 1)), (0, 0), 4)
        return features_of(box_copy(matrices, "source", "target"), HOPPER.limits)

    assert seen(100_000) == seen(1_000_000)
    assert seen(100_000) != seen(10_000)


@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN.keys())
def test_choice_of_the_plan(case: tuple) -> None:
    name, item_bytes, sizes, strides = case
    source = strided_layout(sizes, BITS_BY_SIZE[item_bytes], strides, 0)
    target = lay_out(sizes, BITS_BY_SIZE[item_bytes])
    space = space_of(source, target)
    limits = HOPPER.limits
    expected = copy_step(space, "source", "target", limits, path=name)
    assert copy_step(space, "source", "target", limits) == expected
    told = repr(choose_path(box_copy(space, "source", "target"), limits))
    assert told == f"{name}: estimated to be the fastest"
    assert expected.source == f"slice/{name}.cu"
    single = copy_step(space, "source", "target", replace(limits, warp_lanes=1))
    assert (single.source, single.block) == ("slice/serial.cu", (1, 1, 1))


@pytest.mark.parametrize(
    ("num_rows", "row_bytes", "blocks"), [(16, 64, 1), (3, 1 << 20, 3), (256, 128, 2), (1000, 1 << 16, 16)]
)
def test_blocks_of_one_thread_are_worth_their_start(
    num_rows: int, row_bytes: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_shape, "MIN_SERIAL_BLOCK_BYTES", 1 << 14)
    limits = emulator.get_device().limits
    num_blocks, rows_per_block = launch_shape.serial_blocks(num_rows, row_bytes, limits)
    assert num_blocks == blocks
    assert (num_blocks - 1) * rows_per_block < num_rows <= num_blocks * rows_per_block


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("stride", [1, 3])
def test_blocks_of_one_thread_share_a_long_row(item_bytes: int, stride: int) -> None:
    sizes, kind = ((16 << 20) // item_bytes,), BITS_BY_SIZE[item_bytes]
    limits = replace(emulator.get_device().limits, warp_lanes=1)
    step = copy_step(
        space_of(strided_layout(sizes, kind, (stride,), 0), lay_out(sizes, kind)), "a", "b", limits
    )
    assert step.grid[0] >= limits.num_multiprocessors


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_runs_are_shaped_by_all_the_bytes_that_are_moved(item_bytes: int) -> None:
    sizes, kind = (64, (1 << 20) // item_bytes), BITS_BY_SIZE[item_bytes]
    space = space_of(strided_layout(sizes, kind, (sizes[1] + 1, 1), 0), lay_out(sizes, kind))
    limits = replace(emulator.get_device().limits, num_multiprocessors=132)
    step = copy_step(space, "a", "b", limits, path="runs")
    shape = run_shape(1 << 20, 64 << 20, limits)
    members = {field.name: field.values[0] for field in step.params.fields}
    assert (members["run_bytes"], members["piece_bytes"]) == (1 << 20, shape.piece_bytes)
    assert members["num_pieces"] == 64 * shape.pieces_per_run
    assert shape not in (run_shape(1 << 20, total << 20, limits) for total in (1, 4))


MIB = 1 << 20

#: Slices of float32 that are one stretch or nearly so: sizes, window offsets, window sizes, window strides,
#: and where the driver's copy starts, in bytes; None if a kernel copies.
STRETCHES = {
    "whole": ((16 * MIB,), (0,), (16 * MIB,), (1,), 0),
    "rows": ((20_000, 1024), (3, 0), (16_384, 1024), (1, 1), 12_288),
    "rows of a single column block": ((2, 1, 16 * MIB), (1, 0, 0), (1, 1, 16 * MIB), (1, 1, 1), 64 * MIB),
    "a word": ((12,), (4,), (4,), (1,), 16),
    "three items": ((12,), (4,), (3,), (1,), None),
    "an item more": ((16 * MIB + 1,), (0,), (16 * MIB + 1,), (1,), None),
    "an item on": ((16 * MIB + 4,), (1,), (16 * MIB,), (1,), None),
    "mirrored": ((16 * MIB,), (0,), (16 * MIB,), (-1,), None),
    "rows with gaps": ((16_384, 1028), (0, 0), (16_384, 1024), (1, 1), None),
    "every other word": ((8 * MIB, 4), (0, 0), (8 * MIB, 4), (2, 1), None),
    "every other row": ((32_768, 1024), (0, 0), (32_768, 1024), (2, 1), None),
}


@pytest.mark.parametrize("case", STRETCHES.values(), ids=STRETCHES.keys())
def test_stretches_of_words_are_left_to_the_driver(case: tuple) -> None:
    sizes, offsets, windows, steps, start = case
    out_sizes = tuple(1 + (w - 1) // abs(step) for w, step in zip(windows, steps, strict=True))
    tensors = (TensorDesc(BITS_BY_SIZE[4], shape) for shape in (sizes, out_sizes))
    desc = Slice1Desc(*tensors, offsets, windows, steps)

    def step(limits: Limits) -> Step:
        return plan(desc, limits).steps[0]

    limits = emulator.get_device().limits
    got = step(limits)
    if start is None:
        assert got.source.startswith("slice/")
    else:
        num_bytes = 4 * math.prod(out_sizes)
        assert got == Copy("input_tensor", "output_tensor", num_bytes, source_offset=start)
        assert str(got) == f"copy {num_bytes} bytes of input_tensor from {start} to output_tensor at 0"
    assert step(replace(limits, warp_lanes=1)).source == "slice/serial.cu"


def test_a_path_that_is_not_there_or_cannot_copy_this() -> None:
    tensor = TensorDesc(BITS_BY_SIZE[4], (9, 30), (61, 2))
    desc = Slice1Desc(tensor, TensorDesc(BITS_BY_SIZE[4], (9, 30)), (0, 0), (9, 30), (1, 1))
    limits = emulator.get_device().limits
    with pytest.raises(ValueError, match=r"path is 'quick', must be driver, serial, .* or gather"):
        plan(desc, limits, path="quick")
    refused = (
        r"path 'runs' cannot compute a copy of 9 x 30 items of 4 bytes with strides \[\(61, 30\), \(2, 1\)\]"
    )
    with pytest.raises(ValueError, match=refused):
        plan(desc, limits, path="runs")
    assert plan(desc, limits, path="gather").steps[0].source == "slice/gather.cu"


@pytest.mark.parametrize("source_byte", [0, 16, 7])
@pytest.mark.parametrize("target_byte", [0, 3])
@pytest.mark.parametrize("num_bytes", [16, 4080, 70_000])
def test_stretches(device: Device, source_byte: int, target_byte: int, num_bytes: int) -> None:
    """The driver's copy at any address, dimensions of both sides running backwards."""
    sizes, strides = (num_bytes // 16, 16), (-16, 1)
    source, target = (
        strided_layout(sizes, BITS_BY_SIZE[1], strides, at) for at in (source_byte, target_byte)
    )
    step = copy_step(space_of(source, target), "source", "target", device.limits)
    assert step == Copy("source", "target", num_bytes, 16 - num_bytes, 16 - num_bytes)
    run_step(device, step, source, target, 5)


@pytest.mark.parametrize("name", KERNELS)
def test_same_bits_under_every_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block, so that it takes several tiles one after another."""
    monkeypatch.setattr(launch_shape, "BLOCKS_PER_MULTIPROCESSOR", 1)
    monkeypatch.setattr(launch_shape, "SERIAL_BLOCKS_PER_MULTIPROCESSOR", 1)
    strides = {"runs": (90, -1), "transpose": (1, 70), "planes": (1, 4)}.get(name, (500, 5))
    sizes = {"transpose": (70, 70), "planes": (3, 5000)}.get(name, (70, 60))
    kind = BITS_BY_SIZE[2]
    source = strided_layout(sizes, kind, strides, 2)
    target = strided_layout(sizes, kind, (sizes[1] + 1, 1), 6)
    device = emulator.get_device()
    limits = replace(device.limits, num_multiprocessors=1)
    launch = copy_step(space_of(source, target), "source", "target", limits, path=name)
    assert launch.grid == (1, 1, 1)
    for schedule in schedules():
        with schedule:
            run_step(device, launch, source, target, 3)
