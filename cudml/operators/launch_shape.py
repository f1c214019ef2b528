"""What slices and reversals share: the division of work among threads, and the description of a space."""

from math import prod
from typing import NamedTuple

from cudml.checks import MAX_DIMENSIONS
from cudml.dtypes import BITS_BY_SIZE, ELEMENTS
from cudml.operators.index_space import Dimension, Space, divisions_of
from cudml.plans import WARP_LANES, Constants, KernelLaunch, Limits, Params, Value, ceil_div

WORD_BYTES = 16

#: The C++ type that moves an item, by its size.
ITEM_TYPES = {item_bytes: ELEMENTS[kind].cpp for item_bytes, kind in BITS_BY_SIZE.items()}

#: What the kernels are compiled with.
BLOCK_THREADS = 256
BLOCK_CONSTANTS: Constants = (("kThreads", BLOCK_THREADS),)
RUN_CONSTANTS: Constants = (
    *BLOCK_CONSTANTS,
    ("kWarpSize", WARP_LANES),
    ("kWordBytes", WORD_BYTES),
)


#: Blocks per multiprocessor, above which blocks take several tiles each. A few waves (estimate).
BLOCKS_PER_MULTIPROCESSOR = 32

#: Fewest lanes that own a piece of a run. With fewer, the words of neighbouring lanes are too far apart
#: (estimate).
MIN_GROUP_LANES = 4

#: Most words of a piece that a lane copies, as long as the blocks fill the device. Enough words share the
#: cost of a piece's start (estimate).
MAX_LANE_WORDS = 8

#: Blocks of runs per multiprocessor, below which each lane copies fewer words. With 3, starting takes longer
#: than copying: predicted 9.3 us, not 7.4, for 4 MiB (machine code).
RUN_BLOCKS_PER_MULTIPROCESSOR = 1

#: One-thread blocks per multiprocessor. Enough to even out the speeds of a CPU's cores (estimate).
SERIAL_BLOCKS_PER_MULTIPROCESSOR = 4

#: Fewest bytes of a one-thread block. With 128, 256, 512 KiB and 1 MiB, a slice of 128 rows of 8 KiB takes
#: 15.1, 14.8, 14.7 and 14.7 us on one core; one of 512 rows 58, 57, 62 and 66 on two (measured).
MIN_SERIAL_BLOCK_BYTES = 1 << 18


class RunShape(NamedTuple):
    """How runs are divided: pieces of a run, and lanes that own a piece."""

    pieces_per_run: int
    piece_bytes: int
    group_lanes: int

    @property
    def pieces_per_block(self) -> int:
        """Pieces that a block works on at a time."""
        return BLOCK_THREADS // self.group_lanes

    @property
    def group_shift(self) -> int:
        """The binary logarithm of the lanes, as the kernels take it."""
        return self.group_lanes.bit_length() - 1


def run_shape(run_bytes: int, total_bytes: int, limits: Limits) -> RunShape:
    """The shape for runs of `run_bytes` each and `total_bytes` together.

    A run that a warp can copy is one piece, and as few lanes as possible own it. Longer runs are cut into
    pieces for whole warps. Each lane copies fewer words if that gives work to more of them.
    """
    num_threads = limits.num_multiprocessors * RUN_BLOCKS_PER_MULTIPROCESSOR * BLOCK_THREADS
    most_words = min(total_bytes // max(num_threads * WORD_BYTES, 1), MAX_LANE_WORDS)
    # Both are powers of two, the first rounded down and the second rounded up.
    lane_words = 1 << max(most_words, 1).bit_length() - 1
    run_words = -(-run_bytes // WORD_BYTES)
    num_pieces = -(-run_words // (WARP_LANES * lane_words))
    piece_words = -(-run_words // num_pieces)
    group_lanes = max(1 << (ceil_div(piece_words, lane_words) - 1).bit_length(), MIN_GROUP_LANES)
    return RunShape(num_pieces, piece_words * WORD_BYTES, group_lanes)


def most_serial_blocks(limits: Limits) -> int:
    """The number of one-thread blocks of a large launch."""
    return limits.num_multiprocessors * SERIAL_BLOCKS_PER_MULTIPROCESSOR


def serial_blocks(num_rows: int, row_bytes: int, limits: Limits) -> tuple[int, int]:
    """The number of one-thread blocks, and how many neighbouring rows each takes."""
    rows_per_block = max(
        ceil_div(num_rows, most_serial_blocks(limits)),
        min(num_rows, ceil_div(MIN_SERIAL_BLOCK_BYTES, row_bytes)),
    )
    return ceil_div(num_rows, rows_per_block), rows_per_block


def grid_blocks(num_tiles: int, limits: Limits) -> int:
    """The number of blocks for `num_tiles` tiles: one per tile up to a few waves, then a few tiles each."""
    tiles_each = ceil_div(num_tiles, limits.num_multiprocessors * BLOCKS_PER_MULTIPROCESSOR)
    return ceil_div(num_tiles, tiles_each)


def launch_of(
    source: str,
    function: str,
    template: tuple[str | int | bool, ...],
    num_blocks: int,
    buffers: tuple[str, ...],
    params: Params,
    *,
    shared_bytes: int = 0,
    block_threads: int = BLOCK_THREADS,
    constants: Constants = BLOCK_CONSTANTS,
) -> KernelLaunch:
    """A launch of blocks in one dimension."""
    return KernelLaunch(
        source,
        function,
        template,
        (num_blocks, 1, 1),
        (block_threads, 1, 1),
        buffers,
        params,
        shared_bytes,
        constants=constants,
    )


def index_members(*strides: str) -> tuple[str, ...]:
    """The declarations of the members that `common/strided_index.cuh` reads, and of the operands' strides."""
    count = f"[{MAX_DIMENSIONS}]"
    return (
        f"Int64 sizes{count}",
        f"UInt64 multipliers{count}",
        *[f"Int64 {name}{count}" for name in strides],
        f"Int32 shifts{count}, num_dimensions, is_wide",
    )


def index_values(space: Space, *, reach: int = 0, **units: int) -> dict[str, Value]:
    """The values of `index_members`.

    `units` names the members of the strides in the order of the operands. A stride is multiplied by its
    unit: 1 to count items, the item's size to count bytes. Kernels use 64-bit numbers if the number of items
    or `reach` needs them. A space without dimensions is described as one of size 1.
    """
    dimensions = space.dimensions or (Dimension(1, (0,) * len(units)),)
    sizes = tuple([dimension.size for dimension in dimensions])
    divisions = divisions_of(sizes, max(prod(sizes), reach))
    values: dict[str, Value] = {"sizes": sizes, "multipliers": divisions.multipliers}
    for operand, (name, unit) in enumerate(units.items()):
        values[name] = tuple([dimension.strides[operand] * unit for dimension in dimensions])
    values["shifts"] = divisions.shifts
    values["num_dimensions"] = len(sizes)
    values["is_wide"] = int(divisions.is_wide)
    return values
