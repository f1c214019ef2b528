"""Every kernel that can reverse some lanes gives the same bytes, whichever the plan would choose."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cudml
from cudml.devices import Device, emulator
from cudml.devices.emulator import build
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators import index_space, launch_shape
from cudml.operators.index_space import Space
from cudml.operators.reverse_subsequences import boxes, columns, serial
from cudml.operators.reverse_subsequences.gather import in_panels
from cudml.operators.reverse_subsequences.lanes import SOURCE, TARGET, lanes_of, with_axis
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc, plan
from cudml.operators.reverse_subsequences.paths import (
    PATHS,
    Features,
    choose_path,
    features_of,
    reversal_step,
)
from cudml.plans import MEMORY_PIECE_BYTES, Copy, KernelLaunch, Limits, Plan, Step
from cudml.tensors import TensorDesc
from proof.oracle.reverse_subsequences import reverse_lanes
from proof.sass.plan import HOPPER
from tests.support import assert_identical, is_for_a_cpu, schedules
from tests.support.layouts import Layout, lay_out, run_on_bytes

OPERANDS = ("input_tensor", "sequence_lengths_tensor", "output_tensor")


@pytest.fixture(scope="module", autouse=True)
def small_blocks_of_one_thread() -> Iterator[None]:
    """Split the small arrays here over several blocks; by default, each would be one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_shape, "MIN_SERIAL_BLOCK_BYTES", 1)
        yield


def run_step(device: Device, step: Step, places: dict[str, Layout], axis: int, values: np.ndarray) -> None:
    """Compare a step with the definition, every byte between and around the outputs included."""
    rng = np.random.default_rng(1)
    raw = {name: place.fill(rng) for name, place in places.items()}
    lengths = places["sequence_lengths_tensor"].view(raw["sequence_lengths_tensor"])
    dtype = np.dtype(places["sequence_lengths_tensor"].desc.element.numpy_name)
    lengths[...] = values.astype(dtype).view(lengths.dtype)
    expected = raw["output_tensor"].copy()
    source = places["input_tensor"].view(raw["input_tensor"])
    places["output_tensor"].view(expected)[...] = reverse_lanes(
        source, np.ascontiguousarray(lengths).view(dtype), axis
    )
    reversal = Plan("reversal", OPERANDS, (step,), outputs=("output_tensor",))
    assert_identical(run_on_bytes(device, reversal, raw, places, "output_tensor"), expected)


def run_every_path(device: Device, places: dict[str, Layout], axis: int, values: np.ndarray) -> set[str]:
    """Run all kernels that can reverse these lanes, and return their names."""
    descs = [places[name].desc for name in OPERANDS]
    lanes = lanes_of(*descs, axis)
    names = {name for name, path in PATHS.items() if path.can_do(lanes, device.limits)}
    if device is not emulator.get_device():
        names = {name for name in names if not is_for_a_cpu(name)}
    for name in names:
        run_step(device, reversal_step(*descs, axis, device.limits, path=name), places, axis, values)
    return names


def run_checked(path: str, places: dict[str, Layout], axis: int, values: np.ndarray) -> None:
    """Run one kernel that can reverse these lanes, with every access observed: misaligned ones too."""
    device = emulator.get_device()
    descs = (places[operand].desc for operand in OPERANDS)
    step = reversal_step(*descs, axis, device.limits, path=path)
    with emulator.schedule("forward", check=True):
        run_step(device, step, places, axis, values)


@st.composite
def three_dimensions(draw: st.DrawFn, axis: int, shared: tuple[bool, bool, bool]) -> tuple:
    """(outer, middle, inner) with gaps, any alignment, the input perhaps mirrored; and lengths."""
    item_bytes = draw(st.sampled_from(sorted(BITS_BY_SIZE)))
    kind = BITS_BY_SIZE[item_bytes]
    sizes = (
        draw(st.integers(1, 4)),
        draw(st.integers(2, 24)),
        draw(st.integers(2, 160) | st.integers(2, 12)),
    )
    sizes = sizes if axis != 0 else (sizes[1], sizes[0], sizes[2])
    flips = (draw(st.booleans()), draw(st.booleans()), axis == 2 and draw(st.booleans()))
    gaps = st.integers(0, 5)
    source = lay_out(
        sizes, kind, pads=(0, draw(gaps), draw(gaps)), flips=flips,
        byte_offset=draw(st.integers(0, 16)) * item_bytes,
    )  # fmt: skip
    target = lay_out(
        sizes, kind, pads=(0, draw(gaps), draw(gaps)), byte_offset=draw(st.integers(0, 16)) * item_bytes
    )
    one = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    lengths = lay_out(one, DataType.UINT32, broadcast=shared)
    seed = draw(st.integers(0, 2**32 - 1))
    few = tuple(1 if share else n for n, share in zip(one, shared, strict=True))
    values = np.random.default_rng(seed).integers(0, sizes[axis] + 2, few)
    places = dict(zip(OPERANDS, (source, lengths, target), strict=True))
    return places, axis, np.broadcast_to(values, one)


@settings(deadline=None, max_examples=60)
@given(case=three_dimensions(2, (False, False, False)))
def test_lanes_along_rows(case: tuple) -> None:
    assert "lanes" in run_every_path(emulator.get_device(), *case)


@settings(deadline=None, max_examples=60)
@given(case=three_dimensions(1, (False, False, True)))
def test_lanes_across_rows_of_one_length(case: tuple) -> None:
    names = run_every_path(emulator.get_device(), *case)
    row_bytes = case[0]["input_tensor"].desc.sizes[2] * case[0]["input_tensor"].desc.element.size
    assert {"rows", "columns"} <= names or row_bytes <= 16


@settings(deadline=None, max_examples=60)
@given(case=three_dimensions(0, (False, False, False)))
def test_lanes_across_rows_of_different_lengths(case: tuple) -> None:
    assert "columns" in run_every_path(emulator.get_device(), *case)


@st.composite
def packed_boxes(draw: st.DrawFn) -> tuple:
    """(outer, axis, inner) without gaps, at any two bytes; lengths of one lane or of many."""
    item_bytes = draw(st.sampled_from(sorted(BITS_BY_SIZE)))
    sizes = (draw(st.integers(1, 300)), draw(st.integers(2, 20)), draw(st.integers(1, 9)))
    where = (draw(st.integers(0, 16)), draw(st.integers(0, 16)))
    places = layouts_of(sizes, item_bytes, 1, where, gap=0)
    shared = (draw(st.booleans()), False, draw(st.booleans()))
    one = (sizes[0], 1, sizes[2])
    places["sequence_lengths_tensor"] = lay_out(one, DataType.UINT32, broadcast=shared)
    few = tuple(1 if share else n for n, share in zip(one, shared, strict=True))
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).integers(0, sizes[1] + 2, few)
    return places, 1, np.broadcast_to(values, one)


@settings(deadline=None, max_examples=100)
@given(case=packed_boxes())
def test_boxes_one_after_another(case: tuple) -> None:
    """Tiles of whole words and tiles that share them, boxes of one lane and of several."""
    assert "boxes" in run_every_path(emulator.get_device(), *case)


def layouts_of(
    sizes: tuple[int, ...], item_bytes: int, axis: int, where: tuple[int, int], gap: int = 1
) -> dict[str, Layout]:
    """Packed rows with a gap after each, at two byte offsets."""
    kind = BITS_BY_SIZE[item_bytes]
    pads = (0,) * (len(sizes) - 1) + (gap,)
    one = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    source = lay_out(sizes, kind, pads=pads, byte_offset=where[0])
    target = lay_out(sizes, kind, pads=pads, byte_offset=where[1])
    return dict(zip(OPERANDS, (source, lay_out(one, DataType.UINT32), target), strict=True))


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("where", [(1, 0), (0, 1), (3, 2), (8, 4), (4, 4)])
def test_items_at_addresses_that_are_no_multiple_of_their_size(
    item_bytes: int, axis: int, where: tuple[int, int]
) -> None:
    sizes = (25, 50)
    places = layouts_of(sizes, item_bytes, axis, where)
    shape = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    values = np.random.default_rng(2).integers(0, sizes[axis] + 2, shape)
    names = run_every_path(emulator.get_device(), places, axis, values)
    assert ("lanes", "columns")[1 - axis] in names


#: Lengths as bits of their type: none, short, all, beyond; the largest is negative in a type with a sign.
LENGTHS_OF = {
    kind: np.array([0, 1, 2, 11, 20, 37, 38, 2**bits - 1], np.uint64)
    for bits, kinds in (
        (8, (DataType.INT8, DataType.UINT8)),
        (16, (DataType.INT16, DataType.UINT16)),
        (32, (DataType.INT32, DataType.UINT32)),
        (64, (DataType.INT64, DataType.UINT64)),
    )
    for kind in kinds
}


@pytest.mark.parametrize("name", ["columns", "serial_columns"])
@pytest.mark.parametrize("strip_bytes", [1024, 128, 16])
@pytest.mark.parametrize("width", [256, 300, 303])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_strips_of_any_width_and_alignment(
    item_bytes: int, width: int, strip_bytes: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words and cells of every width, aligned with any gaps, and lengths of every type."""
    monkeypatch.setattr(columns, "STRIP_BYTES", (strip_bytes,))
    monkeypatch.setattr(serial, "SERIAL_ROW_BYTES", (strip_bytes,))
    monkeypatch.setattr(serial, "LONG_SERIAL_ROW_BYTES", strip_bytes)
    monkeypatch.setattr(serial, "SERIAL_STREAMED_BYTES", 37 * width * item_bytes)
    monkeypatch.setattr(columns, "WIDE_STRIP_BYTES", strip_bytes)
    for number, (kind, bits) in enumerate(LENGTHS_OF.items()):
        where = (number % 4 * 4, number // 4 * 2)
        places = layouts_of((37, width), item_bytes, 0, where, gap=number % 2)
        places["sequence_lengths_tensor"] = lay_out((1, width), kind)
        values = np.random.default_rng(number).choice(bits, (1, width))
        run_checked(name, places, 0, values)


def limits_with_cache(l2_bytes: int) -> Limits:
    return replace(emulator.get_device().limits, l2_bytes=l2_bytes)


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("lanes_in_cache", [64, 97, 4096])
@pytest.mark.parametrize("width", [128, 192, 255, 257])
@pytest.mark.parametrize("outer", [1, 3])
def test_panels_of_any_width(item_bytes: int, lanes_in_cache: int, width: int, outer: int) -> None:
    """Rows in panels of whole warps or of an odd width, and a row of prime width, which is not cut."""
    sizes = (outer, 37, width)
    places = layouts_of(sizes, item_bytes, 1, (4, 2))
    values = np.random.default_rng(3).integers(0, 39, (outer, 1, width))
    descs = [places[operand].desc for operand in OPERANDS]
    limits = limits_with_cache(4 * 37 * item_bytes * lanes_in_cache)
    step = reversal_step(*descs, 1, limits, path="gather")
    with emulator.schedule("forward", check=True):
        run_step(emulator.get_device(), step, places, 1, values)


@pytest.mark.parametrize(
    ("item_bytes", "sizes", "axis", "expected"),
    [
        (4, (1000, 4096), 0, ([128, 1000, 32], 1)),
        # The widest panel is a tile of the gather.
        (1, (10, 65536), 0, ([1024, 10, 64], 1)),
        # Whole warps go before a greater width.
        (4, (1000, 480), 0, ([96, 1000, 5], 1)),
        (8, (2000, 200), 0, ([25, 2000, 8], 1)),
        (2, (1000, 65535), 0, ([257, 1000, 255], 1)),
        # A prime.
        (4, (1000, 4099), 0, ([4099, 1000], 1)),
        # Lanes so long that fewer of them fit than a warp has threads, or than a piece has items.
        (4, (6000, 100), 0, ([20, 6000, 5], 1)),
        (4, (20_000, 100), 0, ([100, 20_000], 1)),
        # One row fits a panel, but not together with the rows around it.
        (4, (1000, 50, 40), 0, ([40, 1000, 50], 1)),
        # Everything fits.
        (4, (1000, 100), 0, ([100, 1000], 1)),
        # Lanes along rows.
        (4, (1000, 4096), 1, ([4096, 1000], 0)),
    ],
)
def test_panels_fit_the_cache(
    item_bytes: int, sizes: tuple[int, ...], axis: int, expected: tuple[list[int], int]
) -> None:
    """Panels fill at most a fourth of a cache of 2 MiB. There is a gap after each row."""
    places = layouts_of(sizes, item_bytes, axis, (0, 0))
    lanes = lanes_of(*(places[operand].desc for operand in OPERANDS), axis)
    space, position = in_panels(*with_axis(lanes), limits_with_cache(2 << 20))
    assert ([d.size for d in space.dimensions], position) == expected


def test_no_panels_of_rows_of_one_length_or_of_eight_dimensions() -> None:
    limits = limits_with_cache(1 << 17)
    for sizes, is_shared in (((100, 256), True), ((50, *(2,) * 6, 256), False)):
        tensor = lay_out(sizes, DataType.UINT32, pads=(1,) * len(sizes)).desc
        of_rows = (False,) * (len(sizes) - 1)
        lengths = lay_out((1, *sizes[1:]), DataType.UINT32, broadcast=(*of_rows, is_shared)).desc
        space, axis = with_axis(lanes_of(tensor, lengths, tensor, 0))
        assert in_panels(space, axis, limits) == (space, axis)
        assert len(space.dimensions) == len(sizes)


def memory_reads(space: Space, axis: int, lengths: np.ndarray, l2_bytes: int) -> int:
    """Source pieces read from memory in the order of a space, with a cache of the last used pieces."""
    coordinates = np.unravel_index(np.arange(space.num_items), [d.size for d in space.dimensions], order="F")
    strides = np.array([d.strides for d in space.dimensions])
    source, target, lanes = np.array(coordinates).T.dot(strides).T
    place, length = coordinates[axis], lengths[lanes]
    source += np.where(place < length, length - 1 - place, place) * strides[axis, TARGET]
    kept: dict[tuple[bool, int], None] = {}
    num_reads = 0
    for pieces in (np.array((source, target)).T * space.item_bytes // MEMORY_PIECE_BYTES).tolist():
        for piece in enumerate(pieces):
            num_reads += piece not in kept and piece[0] == SOURCE
            kept.pop(piece, None)
            kept[piece] = None
            if len(kept) > l2_bytes // MEMORY_PIECE_BYTES:
                del kept[next(iter(kept))]
    return num_reads


def test_panels_read_each_piece_of_the_memory_once() -> None:
    """Lanes with their own lengths, in an array eight times as large as the cache."""
    sizes, l2_bytes = (256, 512), 1 << 16
    places = layouts_of(sizes, 4, 0, (0, 0), gap=0)
    ordered = with_axis(lanes_of(*(places[operand].desc for operand in OPERANDS), 0))
    lengths = np.random.default_rng(4).integers(0, sizes[0] + 1, sizes[1])
    num_pieces = 4 * math.prod(sizes) // MEMORY_PIECE_BYTES
    assert memory_reads(*ordered, lengths, l2_bytes) > 5 * num_pieces
    assert memory_reads(*in_panels(*ordered, limits_with_cache(l2_bytes)), lengths, l2_bytes) == num_pieces


@pytest.mark.parametrize("where", [(0, 0), (15, 1), (2, 4), (8, 14)])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("box", [(3, 1), (7, 5), (16, 2)])
def test_full_tiles_of_boxes(
    box: tuple[int, int], item_bytes: int, where: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles as large as shared storage takes, which begin and end anywhere in a word."""
    largest = boxes.BOX_TILE_BYTES
    monkeypatch.setattr(boxes, "MIN_BOX_TILE_BYTES", largest)
    count = 2 * largest // (box[0] * box[1] * item_bytes) + 3
    places = layouts_of((count, *box), item_bytes, 1, where, gap=0)
    values = np.random.default_rng(1).integers(0, box[0] + 2, (count, 1, box[1]))
    run_checked("boxes", places, 1, values)


@pytest.mark.parametrize("length", [0, 1, 2, 4095, 20_001, 35_999, 36_000, 2**31])
@pytest.mark.parametrize("where", [(0, 0), (5, 0), (0, 3), (7, 7)])
@pytest.mark.parametrize("resident_blocks", [3, 0])
def test_lanes_of_several_pieces(
    device: Device, length: int, where: tuple[int, int], resident_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths at, before and after the ends of pieces, which take one step or several."""
    monkeypatch.setattr(launch_shape, "RUN_BLOCKS_PER_MULTIPROCESSOR", resident_blocks)
    places = layouts_of((2, 36_000), 1, 1, where)
    values = np.array([[length], [length // 2]])
    assert "lanes" in run_every_path(device, places, 1, values)


@pytest.mark.parametrize("length", [1023, 1024, 1025])
@pytest.mark.parametrize("backwards", [False, True])
def test_pieces_that_would_cut_items(length: int, backwards: bool) -> None:
    """Items of 4 bytes at byte 5, in pieces of 4096 bytes: the straight and the mirrored part of a lane
    are cut at different places."""
    flips = (False, backwards)
    source = lay_out((2, 6000), DataType.UINT32, flips=flips)
    target = lay_out((2, 6000), DataType.UINT32, byte_offset=5)
    places = dict(zip(OPERANDS, (source, lay_out((2, 1), DataType.UINT32), target), strict=True))
    values = np.full((2, 1), length)
    assert "lanes" in run_every_path(emulator.get_device(), places, 1, values)


@pytest.mark.parametrize("backwards", [False, True])
def test_items_that_words_would_cut_in_a_block_that_is_not_full(backwards: bool) -> None:
    source = lay_out((3, 40), DataType.UINT16, flips=(False, backwards))
    target = lay_out((3, 40), DataType.UINT16, byte_offset=1)
    places = dict(zip(OPERANDS, (source, lay_out((3, 1), DataType.UINT32), target), strict=True))
    values = np.array([[17], [40], [0]])
    assert "lanes" in run_every_path(emulator.get_device(), places, 1, values)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_indices_of_64_bits(device: Device, axis: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for 2**31 items or more, on few items."""
    monkeypatch.setattr(index_space, "MAX_NARROW_COUNT", 1)
    sizes = (5, 9, 35)
    places = layouts_of(sizes, 4, axis, (0, 4))
    shape = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    values = np.random.default_rng(4).integers(0, sizes[axis] + 2, shape)
    if shared:
        places["sequence_lengths_tensor"] = lay_out(shape, DataType.UINT32, broadcast=(False, False, True))
        values = np.broadcast_to(values[..., :1], shape)
    run_every_path(device, places, axis, values)


#: The path expected on an H200, where it is predicted to be the fastest, the path expected on a CPU, and the
#: layout: item bytes, sizes, axis, shared lengths, and perhaps the gap after each row.
CHOSEN = {
    "long lanes": ("lanes", "serial", 4, (300, 5000), 1, (False, False)),
    "long lanes of bytes": ("lanes", "serial", 1, (30, 20_000), 1, (False, False)),
    "short lanes": ("boxes", "serial", 4, (300, 8), 1, (False, False)),
    "a few short lanes": ("gather", "serial", 4, (20, 5), 1, (False, False)),
    "short lanes of bytes": ("boxes", "serial", 1, (300, 100), 1, (False, False)),
    "short lanes between gaps": ("gather", "serial", 4, (30, 8), 1, (False, False), 3),
    "one length a row": ("rows", "serial", 4, (60, 50, 200), 1, (False, False, True)),
    "one length a short row": ("columns", "serial", 1, (5000, 64, 21), 1, (False, False, True), 2),
    "one length a row of a small box": ("boxes", "serial", 1, (2400, 50, 28), 1, (False, False, True)),
    "one length a lane": ("columns", "serial_columns", 4, (6, 50, 101), 1, (False, False, False)),
    "one length a lane of a small box": (
        "boxes",
        "serial_columns",
        4,
        (6000, 50, 9),
        1,
        (False, False, False),
    ),
    "long lanes of their own lengths": ("columns", "serial_columns", 4, (2000, 1000), 0, (False, False)),
    "longer lanes of their own lengths": ("gather", "serial", 4, (20_000, 100), 0, (False, False)),
    "short lanes across long rows": ("columns", "serial_columns", 8, (40, 5000), 0, (False, False)),
    "long lanes across narrow rows": ("gather", "serial_columns", 1, (20_000, 3), 0, (False, False), 2),
    "rows of a few bytes between gaps": ("columns", "serial_columns", 1, (100, 500, 5), 1, (False,) * 3, 2),
}


def test_outputs_in_many_waves_are_like_smaller_ones() -> None:
    """Every path takes longer by the same factor."""

    def seen(num_rows: int, shared: bool) -> Features:
        tensor = TensorDesc(DataType.UINT32, (num_rows, 30, 50))
        lengths = TensorDesc(DataType.UINT32, (num_rows, 1, 50), (50, 50, 0 if shared else 1))
        return features_of(lanes_of(tensor, lengths, tensor, 1), HOPPER.limits)

    for shared in (False, True):
        assert seen(100_000, shared) == seen(300_000, shared)
        assert seen(100_000, shared) != seen(10_000, shared)
    assert seen(100_000, False) != seen(100_000, True)


@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN.keys())
def test_choice_of_the_plan(case: tuple) -> None:
    name, cpu_name, item_bytes, sizes, axis, shared, *gap = case
    pads = (0,) * (len(sizes) - 1) + tuple(gap) if gap else None
    kind = BITS_BY_SIZE[item_bytes]
    one = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    tensor = lay_out(sizes, kind, pads=pads).desc
    descs = [tensor, lay_out(one, DataType.UINT32, broadcast=shared).desc, tensor]
    expected = reversal_step(*descs, axis, HOPPER.limits, path=name)
    assert reversal_step(*descs, axis, HOPPER.limits) == expected
    told = repr(choose_path(lanes_of(*descs, axis), HOPPER.limits))
    assert told == f"{name}: estimated to be the fastest"
    assert expected.source == f"reverse_subsequences/{name}.cu"
    single = reversal_step(*descs, axis, replace(emulator.get_device().limits, warp_lanes=1))
    assert (single.source, single.block) == (f"reverse_subsequences/{cpu_name}.cu", (1, 1, 1))


@pytest.mark.parametrize(
    ("path", "item_bytes", "sizes", "axis", "shared", "gap"),
    [
        ("columns", 8, (746, 748), 0, False, 0),
        ("gather", 1, (375, 112), 0, False, 2),
        ("gather", 16, (25_000, 8, 2), 1, False, 1),
        ("rows", 1, (1086, 11), 0, True, 8),
        ("rows", 1, (506, 2, 5871), 1, True, 0),
        ("columns", 1, (3, 69, 23), 0, False, 0),
        ("gather", 16, (10, 7982, 39), 1, False, 7),
        ("columns", 16, (27, 78_639), 0, False, 0),
    ],
    ids=[
        "wide",
        "few and tall",
        "many and small",
        "rows of one length",
        "long rows",
        "small boxes",
        "halves of sectors",
        "whole sectors",
    ],
)
def test_strips_are_taken_where_they_pay(
    path: str, item_bytes: int, sizes: tuple[int, ...], axis: int, shared: bool, gap: int
) -> None:
    """On an H200, for which times are predicted."""
    pads = (0,) * (len(sizes) - 1) + (gap,)
    tensor = lay_out(sizes, BITS_BY_SIZE[item_bytes], pads=pads).desc
    one = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    broadcast = (*(False for _ in sizes[1:]), shared)
    lengths = lay_out(one, DataType.UINT32, broadcast=broadcast).desc
    chosen = choose_path(lanes_of(tensor, lengths, tensor, axis), HOPPER.limits)
    assert chosen.path.name == path, chosen


def test_more_strips_than_a_grid_has_blocks_are_gathered() -> None:
    limits = emulator.get_device().limits
    for num_rows, source in ((2**31 - 1, "columns"), (2**31, "gather")):
        tensor = TensorDesc(DataType.UINT32, (num_rows, 512, 8), (5120, 10, 1))
        lengths = TensorDesc(DataType.UINT32, (num_rows, 1, 8))
        step = reversal_step(tensor, lengths, tensor, 1, limits)
        assert step.source == f"reverse_subsequences/{source}.cu"
        assert step.grid[0] < 2**31


@pytest.mark.parametrize(
    ("num_lanes", "axis_size", "width"),
    [
        (100, 64, 64),
        (1 << 16, 64, 256),
        (1 << 16, 1024, 128),
        (100, 2048, 64),
        (100, 4096, 32),
        (100, 65400, 4),
        (100, 65600, None),
    ],
)
def test_strips_of_one_thread_are_as_wide_as_its_storage_allows(
    num_lanes: int, axis_size: int, width: int | None
) -> None:
    """Strips have 1024 bytes of a long row, otherwise 256; long lanes narrow them, down to 16 bytes."""
    limits = replace(emulator.get_device().limits, warp_lanes=1, shared_bytes_per_block=1 << 20)
    tensor = TensorDesc(DataType.UINT32, (axis_size, num_lanes))
    lengths = TensorDesc(DataType.INT64, (1, num_lanes))
    step = reversal_step(tensor, lengths, tensor, 0, limits)
    assert step.function == ("reverse_serial" if width is None else "reverse_serial_columns")
    if width is not None:
        members = {field.name: field.values[0] for field in step.params.fields}
        assert members["strip_items"] == width
        assert width * 4 * axis_size < step.shared_bytes <= limits.shared_bytes_per_block


@pytest.mark.parametrize("axis_size", [15, 32, 33, 64, 100, 257])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_strips_of_one_thread_with_lanes_of_any_length(item_bytes: int, axis_size: int) -> None:
    """Every length of a lane, so that the reversed part ends at every place of a tile."""
    num_lanes = 2 * axis_size + 1
    places = layouts_of((axis_size, num_lanes), item_bytes, 0, (3, 5))
    values = np.minimum(np.arange(num_lanes)[None], axis_size)
    values[0, ::7] = axis_size // 2
    run_checked("serial_columns", places, 0, values)


@pytest.mark.parametrize("gaps", [(0, 0), (0, 2), (2, 0), (2, 2), (0, 200)])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_strips_of_one_thread_of_narrow_rows(item_bytes: int, gaps: tuple[int, int]) -> None:
    """Rows without gaps move together, dense ones are reversed in the target, others in a buffer."""
    sizes, kind = (5, 21, 3), BITS_BY_SIZE[item_bytes]
    source, target = (lay_out(sizes, kind, pads=(0, 0, gap), byte_offset=item_bytes) for gap in gaps)
    lengths = lay_out((5, 1, 3), DataType.UINT32)
    places = dict(zip(OPERANDS, (source, lengths, target), strict=True))
    run_checked("serial_columns", places, 1, np.arange(15).reshape(5, 1, 3) * 3 // 2)


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_strips_of_one_thread_in_registers_of_any_cpu(item_bytes: int, rng: np.random.Generator) -> None:
    """Lanes along rows, lanes through tiles, and short lanes, with every length and with one for all."""
    a = rng.integers(0, 256, (100, 203, item_bytes), np.uint8)
    a = a.view(np.dtype((np.void, item_bytes)))[..., 0]
    with emulator.schedule(warp_lanes=1):
        for size in (20, 33, 64, 100):
            for lengths in (np.arange(203)[None] % (size + 2), np.full((1, 203), 19)):
                expected = reverse_lanes(a[:size], lengths, 0)
                assert_identical(cudml.reverse_subsequences(a[:size], lengths, 0), expected)
        assert_identical(cudml.reverse_subsequences(a, lengths.T[:100]), reverse_lanes(a, lengths.T[:100], 1))


@pytest.mark.usefixtures("registers")
def test_no_vector_of_one_thread_is_wider_than_a_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler splits wider vectors, in the worst case into bytes, and warns only if asked."""
    if "g++" not in build.compiler().command[0]:
        pytest.skip("a warning of GCC")
    warning = "vector-operation-performance"
    flags = [flag for flag in build._COMMON_FLAGS if flag != "-w"]
    monkeypatch.setattr(build, "_COMMON_FLAGS", (*flags, f"-W{warning}", f"-Werror={warning}"))
    tensor, lengths = TensorDesc(DataType.UINT8, (64, 100)), TensorDesc(DataType.UINT32, (1, 100))
    limits = replace(emulator.get_device().limits, warp_lanes=1)
    step = reversal_step(tensor, lengths, tensor, 0, limits, path="serial_columns")
    assert isinstance(step, KernelLaunch)
    build.module(step)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
def test_strips_of_one_thread_with_lengths_of_any_type(dtype: str, rng: np.random.Generator) -> None:
    """Lengths of 64 bits are loaded several at once; some are negative, some the type's largest."""
    a = rng.integers(0, 1 << 32, (45, 77), np.uint32)
    lengths = rng.integers(-3 if np.iinfo(dtype).min else 0, 50, (1, 77)).astype(dtype)
    lengths[0, 3::17] = np.iinfo(dtype).max
    lengths[0, 5::19] = np.iinfo(dtype).min
    expected = reverse_lanes(a, lengths, 0)
    with emulator.schedule(warp_lanes=1):
        assert_identical(cudml.reverse_subsequences(a, lengths, 0), expected)


@pytest.mark.parametrize("num_bytes", [3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65])
def test_rows_of_one_thread_of_any_width(num_bytes: int) -> None:
    """Rows whose items share a length, one for each sequence; no byte around them is touched."""
    rng = np.random.default_rng(num_bytes)
    steps, sequences = 7, 12
    a = rng.integers(0, 256, (steps, sequences, num_bytes + 1), np.uint8)[..., :-1]
    lengths = rng.permutation(np.arange(-2, sequences - 2)).reshape(1, -1, 1)
    written = rng.integers(0, 256, (steps, sequences, num_bytes + 3), np.uint8)
    expected = written.copy()
    expected[..., 1:-2] = reverse_lanes(a, np.broadcast_to(lengths, (1, *a.shape[1:])), 0)
    with emulator.schedule(check=True, warp_lanes=1):
        cudml.reverse_subsequences(a, lengths, 0, out=written[..., 1:-2])
    assert_identical(written, expected)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "complex128"])
def test_streamed_strips_at_any_place_in_a_line(
    dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strips begin at lines, and their width divides the row: a row that begins in a line has one more."""
    monkeypatch.setattr(serial, "SERIAL_STREAMED_BYTES", 1)
    a = rng.integers(0, 256, (83, 256)).astype(dtype)
    lengths = rng.integers(0, 84, (1, 256))
    expected = reverse_lanes(a, lengths, 0)
    line_items = serial.LINE_BYTES // a.itemsize
    with emulator.schedule(warp_lanes=1):
        for first in range(line_items):
            out = np.zeros(a.size + 2 * line_items, dtype)
            inside = out[first : first + a.size].reshape(a.shape)
            assert_identical(cudml.reverse_subsequences(a, lengths, 0, out=inside), expected)
            assert not out[:first].any()
            assert not out[first + a.size :].any()


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_columns_that_fit_no_strip_go_one_by_one(item_bytes: int) -> None:
    """The one-thread kernel of whole lanes, across rows with gaps."""
    places = layouts_of((3, 40, 130), item_bytes, 1, (1, 5))
    values = np.random.default_rng(6).integers(0, 42, (3, 1, 130))
    device = emulator.get_device()
    limits = replace(device.limits, warp_lanes=1, shared_bytes_per_block=40 * 16 - 1)
    step = reversal_step(*(places[operand].desc for operand in OPERANDS), 1, limits)
    assert step.function == "reverse_serial"
    run_step(device, step, places, 1, values)


def test_lanes_of_one_element_are_copied() -> None:
    descs = [lay_out((7, 1), DataType.FLOAT32).desc] * 3
    assert reversal_step(*descs, 1, emulator.get_device().limits).source.startswith("slice/")
    descs = [TensorDesc(DataType.FLOAT32, (1 << 24, 1))] * 3
    assert reversal_step(*descs, 1, emulator.get_device().limits) == Copy(OPERANDS[0], OPERANDS[2], 64 << 20)


def test_a_path_that_is_not_there_or_cannot_reverse_this() -> None:
    tensor = TensorDesc(DataType.UINT32, (5, 40))
    desc = ReverseSubsequencesDesc(tensor, TensorDesc(DataType.UINT32, (1, 40)), tensor, 0)
    limits = emulator.get_device().limits
    with pytest.raises(ValueError, match=r"path is 'quick', must be copy, .* or gather"):
        plan(desc, limits, path="quick")
    with pytest.raises(
        ValueError, match="path 'lanes' cannot compute a reversal of 40 lanes of 5 items of 4 bytes"
    ):
        plan(desc, limits, path="lanes")
    assert plan(desc, limits, path="gather").steps[0].source == "reverse_subsequences/gather.cu"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
def test_lanes_of_one_element_by_every_path(axis: int, item_bytes: int) -> None:
    """A path that is forced reverses these as well."""
    sizes = tuple(1 if d == axis else n for d, n in enumerate((20, 30, 70)))
    places = layouts_of(sizes, item_bytes, axis, (0, 0), gap=0)
    values = np.random.default_rng(7).integers(0, 3, sizes)
    names = run_every_path(emulator.get_device(), places, axis, values)
    assert {"copy", "serial", "gather"} < names


@pytest.mark.parametrize("name", [name for name in PATHS if name != "copy"])
def test_same_bits_under_every_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block takes several tiles in turn, except on the paths with one tile for each block."""
    monkeypatch.setattr(launch_shape, "BLOCKS_PER_MULTIPROCESSOR", 1)
    monkeypatch.setattr(launch_shape, "SERIAL_BLOCKS_PER_MULTIPROCESSOR", 1)
    axis = {"rows": 0, "columns": 0, "serial_columns": 0}.get(name, 1)
    sizes = {"lanes": (70, 50), "rows": (60, 50), "columns": (11, 150), "boxes": (150, 50)}.get(
        name, (30, 50)
    )
    places = layouts_of(sizes, 2, axis, (2, 6), gap=0 if name == "boxes" else 1)
    shape = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    values = np.random.default_rng(3).integers(0, sizes[axis] + 2, shape)
    if name == "rows":
        places["sequence_lengths_tensor"] = lay_out(shape, DataType.UINT32, broadcast=(False, True))
        values = np.broadcast_to(values[:, :1], shape)
    device = emulator.get_device()
    limits = replace(device.limits, num_multiprocessors=1)
    launch = reversal_step(*(places[operand].desc for operand in OPERANDS), axis, limits, path=name)
    assert launch.grid == ({"columns": 3, "boxes": 4}.get(name, 1), 1, 1)
    for schedule in schedules():
        with schedule:
            run_step(device, launch, places, axis, values)
