"""Bytes that the data-movement kernels read and write, over the fewest there can be.

The fewest to read are, row by row, the 32-byte sectors that hold what is needed, since memory gives no
less; the fewest to write are the bytes of the output.
"""

import numpy as np
import pytest

from cudml.devices.emulator import emulator_report, get_device
from cudml.devices.emulator.meter import LaunchTraffic
from cudml.dtypes import BITS_BY_SIZE
from cudml.enums import DataType
from cudml.operators import launch_shape
from cudml.operators.index_space import Space, dimensions_of
from cudml.operators.reverse_subsequences.paths import reversal_step
from cudml.operators.slice.crossings import TRANSPOSED_TILE_BYTES
from cudml.operators.slice.paths import copy_step
from cudml.plans import KernelLaunch, Plan
from tests.operators.slice.test_paths import strided_layout
from tests.support.layouts import Layout, lay_out, run_on_bytes

MOST = 1.02


def sector_bytes(layout: Layout) -> int:
    """Bytes of the sectors that the rows of a matrix touch, in a buffer that starts at one."""
    (num_rows, row), (outer, inner) = layout.desc.sizes, layout.desc.element_strides
    item = layout.desc.element.size
    sectors = 0
    for i in range(num_rows):
        places = layout.first + (i * outer + inner * np.arange(row)) * item
        sectors += len(np.unique((places[:, None] + np.arange(item)) // 32))
    return 32 * sectors


def traffic_of(launch: KernelLaunch, places: dict[str, Layout]) -> LaunchTraffic:
    """The traffic of a launch on random bytes."""
    rng = np.random.default_rng(1)
    plan = Plan("movement", tuple(places), (launch,), outputs=(list(places)[-1],))
    raw = {name: place.fill(rng) for name, place in places.items()}
    with emulator_report() as counted:
        run_on_bytes(get_device(), plan, raw, places, list(places)[-1])
    return counted.launches[0]


def copying(path: str, source: Layout, target: Layout) -> KernelLaunch:
    """The launch of a copy by a path."""
    dimensions = dimensions_of(target.desc.sizes, source.desc.element_strides, target.desc.element_strides)
    space = Space(dimensions, (0, 0), target.desc.element.size)
    step = copy_step(space, "source", "target", get_device().limits, path)
    assert isinstance(step, KernelLaunch)
    return step


@pytest.mark.parametrize("path", ["runs", "gather"])
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 16])
@pytest.mark.parametrize("inner", [1, -1])
@pytest.mark.parametrize("row_bytes", [32, 48, 80, 256, 1008, 40016])
@pytest.mark.parametrize("items_off", [(0, 0), (1, 3)])
def test_rows_are_read_and_written_once(
    path: str,
    item_bytes: int,
    inner: int,
    row_bytes: int,
    items_off: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch_shape, "RUN_BLOCKS_PER_MULTIPROCESSOR", 0)  # pieces of several steps
    row, num_rows = row_bytes // item_bytes, max(2, 5000 // row_bytes)
    kind = BITS_BY_SIZE[item_bytes]
    source = strided_layout((num_rows, row), kind, (row + 3, inner), items_off[0] * item_bytes)
    target = strided_layout((num_rows, row), kind, (row + 1, 1), items_off[1] * item_bytes)
    traffic = traffic_of(copying(path, source, target), {"source": source, "target": target})
    assert traffic.buffers["source"].bytes_read <= MOST * sector_bytes(source)
    assert traffic.buffers["target"].bytes_written == num_rows * row_bytes


@pytest.mark.parametrize("item_bytes", [1, 2])
@pytest.mark.parametrize("sizes", [(3, 4096), (4096, 3)], ids=["split", "joined"])
def test_pixels_and_planes_are_moved_once(item_bytes: int, sizes: tuple[int, int]) -> None:
    """They move in whole sectors, though the pixels of a lane are 48 bytes."""
    kind = BITS_BY_SIZE[item_bytes]
    source, target = lay_out(sizes, kind, order=(1, 0)), lay_out(sizes, kind)
    traffic = traffic_of(copying("planes", source, target), {"source": source, "target": target})
    num_bytes = 3 * 4096 * item_bytes
    read, written = traffic.buffers["source"], traffic.buffers["target"]
    assert read.bytes_read == written.bytes_written == num_bytes
    assert written.sectors_written == num_bytes // 32


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("flip", [False, True])
def test_a_transposition_reads_and_writes_whole_words_once(item_bytes: int, flip: bool) -> None:
    kind = BITS_BY_SIZE[item_bytes]
    source = lay_out((128, 256), kind, order=(1, 0), flips=(flip, False))
    target = lay_out((128, 256), kind)
    traffic = traffic_of(copying("transpose", source, target), {"source": source, "target": target})
    num_bytes = 128 * 256 * item_bytes
    read, written = traffic.buffers["source"], traffic.buffers["target"]
    assert (read.bytes_read, read.sectors_read) == (num_bytes, num_bytes // 32)
    assert (written.bytes_written, written.sectors_written) == (num_bytes, num_bytes // 32)
    # 32 lanes each move a word of 4 bytes, or an item that is wider.
    assert read.requests_read == written.requests_written == num_bytes // (32 * max(item_bytes, 4))
    assert traffic.shared.bank_conflicts == 0


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("line_share", [0, 1, 2, 3, 5, 8, 10])
def test_tiles_of_every_shape(item_bytes: int, line_share: int) -> None:
    """One full tile each: inside its storage, in at most twice the passes that its bytes need."""
    least = max(2, 4 // item_bytes)
    line = min(least << line_share, TRANSPOSED_TILE_BYTES // item_bytes // least)
    other = TRANSPOSED_TILE_BYTES // item_bytes // line
    source = lay_out((other, line), BITS_BY_SIZE[item_bytes], order=(1, 0))
    target = lay_out((other, line), BITS_BY_SIZE[item_bytes])
    traffic = traffic_of(copying("transpose", source, target), {"source": source, "target": target})
    assert traffic.launch.grid == (1, 1, 1)
    shared, tile_bytes = traffic.shared, TRANSPOSED_TILE_BYTES
    assert shared.bytes_read == shared.bytes_written == tile_bytes
    assert shared.bank_conflicts <= 2 * tile_bytes // 128


@pytest.mark.parametrize("item_bytes", sorted(BITS_BY_SIZE))
@pytest.mark.parametrize("sizes", [(3, 6001), (6001, 3), (131, 261)])
@pytest.mark.parametrize("items_off", [(0, 0), (1, 3)])
def test_a_transposition_of_odd_lines_moves_every_byte_once(
    item_bytes: int, sizes: tuple[int, int], items_off: tuple[int, int]
) -> None:
    """Lines begin at every place in a word, wherever the first line begins."""
    kind = BITS_BY_SIZE[item_bytes]
    source = lay_out(sizes, kind, order=(1, 0), byte_offset=items_off[0] * item_bytes)
    target = lay_out(sizes, kind, byte_offset=items_off[1] * item_bytes)
    traffic = traffic_of(copying("transpose", source, target), {"source": source, "target": target})
    num_bytes = sizes[0] * sizes[1] * item_bytes
    assert traffic.buffers["source"].bytes_read == traffic.buffers["target"].bytes_written == num_bytes


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("row", [64, 1001])
def test_lanes_are_read_and_written_once(axis: int, shared: bool, row: int) -> None:
    sizes = (20, row)
    source, target = lay_out(sizes, DataType.FLOAT32), lay_out(sizes, DataType.FLOAT32)
    one = tuple(1 if i == axis else n for i, n in enumerate(sizes))
    lengths = lay_out(one, DataType.UINT8, broadcast=(shared, shared))
    launch = reversal_step(source.desc, lengths.desc, target.desc, axis, get_device().limits)
    places = dict(zip(launch.buffers, (source, lengths, target), strict=True))
    traffic = traffic_of(launch, places)
    assert traffic.buffers["input_tensor"].bytes_read <= MOST * 20 * row * 4
    assert traffic.buffers["output_tensor"].bytes_written == 20 * row * 4
