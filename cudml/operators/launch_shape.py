"""What slices and reversals share: the division of work among threads, and the description of a space."""

from dataclasses import dataclass

from cudml.checks import MAX_DIMENSIONS
from cudml.dtypes import BITS_BY_SIZE, element_info
from cudml.operators.index_space import MAX_NARROW_COUNT, Dimension, Space, magic_division
from cudml.operators.path import figure
from cudml.plans import WARP_LANES, Constants, Limits, ceil_div, round_up

WORD_BYTES = 16

#: What the kernels are compiled with.
BLOCK_THREADS = 256
RUN_WORDS_PER_LANE = 4
BLOCK_CONSTANTS: Constants = (("kThreads", BLOCK_THREADS),)
RUN_CONSTANTS: Constants = (
    *BLOCK_CONSTANTS,
    ("kWarpSize", WARP_LANES),
    ("kWordBytes", WORD_BYTES),
    ("kWordsPerLane", RUN_WORDS_PER_LANE),
)


@dataclass(frozen=True)
class Thresholds:
    """How slices and reversals are divided among blocks and threads."""

    #: Blocks per multiprocessor, above which blocks take several tiles each.
    blocks_per_multiprocessor: int = figure(32, "estimate", "a few waves")

    #: Fewest threads that own a run.
    min_owners: int = figure(4, "estimate", "with fewer, the words of neighbouring threads are too far apart")

    #: Blocks of runs that a multiprocessor holds.
    run_blocks_per_multiprocessor: int = figure(3, "machine code", "limited by their registers")

    #: Maximum number of steps of a piece of a run, as long as this many waves of blocks remain.
    max_run_steps: int = figure(4, "estimate", "enough words share the cost of a block's start")
    waves: int = figure(4, "estimate", "so that the last wave is a small part")

    #: Blocks of one thread.
    serial_blocks_per_multiprocessor: int = figure(
        4, "estimate", "enough to even out the speeds of a CPU's cores"
    )
    min_serial_block_bytes: int = figure(
        1 << 14, "estimate", "about what is copied in the time that a block takes to start"
    )


THRESHOLDS = Thresholds()

#: Members of a kernel's parameters, as `Params.of` takes them.
Members = dict[str, tuple[str, int | float | tuple[int | float, ...]]]


@dataclass(frozen=True)
class RunShape:
    """How runs are divided: pieces of a run, threads that own a piece, words that a lane loads at once."""

    pieces_per_run: int
    piece_bytes: int
    num_owners: int
    lane_words: int

    @property
    def pieces_per_block(self) -> int:
        """Pieces that a block works on at a time."""
        return BLOCK_THREADS // self.num_owners

    def members(self) -> Members:
        """The members of a kernel's parameters that describe ownership."""
        return {
            "owner_shift": ("Int32", self.num_owners.bit_length() - 1),
            "lane_words": ("Int32", self.lane_words),
        }


def run_shape(run_bytes: int, total_bytes: int, limits: Limits, most_owners: int = BLOCK_THREADS) -> RunShape:
    """The shape for runs of `run_bytes` each and `total_bytes` together.

    A run that a block can copy in one step is cut only if it needs more than `most_owners` threads, and as
    few threads as possible own a piece. Longer runs are cut into pieces for whole blocks. These load fewer
    words at once if that gives work to more blocks, and take several steps per piece if all have work.
    """
    # An unaligned target takes one word more; runs of whole words seldom have one.
    most_words = ceil_div(run_bytes, WORD_BYTES) + (run_bytes % WORD_BYTES != 0)
    if most_words <= BLOCK_THREADS * RUN_WORDS_PER_LANE:
        num_pieces = ceil_div(most_words, most_owners * RUN_WORDS_PER_LANE)
        piece_words = ceil_div(most_words, num_pieces)
        num_owners = THRESHOLDS.min_owners
        while num_owners * RUN_WORDS_PER_LANE < piece_words:
            num_owners *= 2
        piece_bytes = min(piece_words * WORD_BYTES, round_up(run_bytes, WORD_BYTES))
        return RunShape(
            ceil_div(run_bytes, piece_bytes), piece_bytes, num_owners, ceil_div(piece_words, num_owners)
        )
    resident = limits.num_multiprocessors * THRESHOLDS.run_blocks_per_multiprocessor
    lane_words, steps = RUN_WORDS_PER_LANE, 1
    while lane_words > 1 and total_bytes < resident * BLOCK_THREADS * lane_words * WORD_BYTES:
        lane_words //= 2
    step_bytes = BLOCK_THREADS * lane_words * WORD_BYTES
    while (
        steps < THRESHOLDS.max_run_steps
        and total_bytes >= THRESHOLDS.waves * resident * step_bytes * steps * 2
    ):
        steps *= 2
    return RunShape(ceil_div(run_bytes, step_bytes * steps), step_bytes * steps, BLOCK_THREADS, lane_words)


def serial_blocks(num_rows: int, row_bytes: int, limits: Limits) -> tuple[int, int]:
    """The number of one-thread blocks, and how many neighbouring rows each takes."""
    rows_per_block = max(
        ceil_div(num_rows, limits.num_multiprocessors * THRESHOLDS.serial_blocks_per_multiprocessor),
        min(num_rows, ceil_div(THRESHOLDS.min_serial_block_bytes, row_bytes)),
    )
    return ceil_div(num_rows, rows_per_block), rows_per_block


def item_type(item_bytes: int) -> str:
    """The C++ type that moves an item of this size."""
    return element_info(BITS_BY_SIZE[item_bytes]).cpp


def grid_blocks(num_tiles: int, limits: Limits) -> int:
    """The number of blocks for `num_tiles` tiles: one per tile up to a few waves, then blocks stride."""
    return min(num_tiles, limits.num_multiprocessors * THRESHOLDS.blocks_per_multiprocessor)


def index_members(space: Space, *, reach: int = 0, **units: int) -> Members:
    """The members that `common/strided_index.cuh` reads, and the strides of the operands.

    `units` names the members of the strides in the order of the operands. A stride is multiplied by its
    unit: 1 to count items, the item's size to count bytes. Kernels use 64-bit numbers if the number of items
    or `reach` needs them. A space without dimensions is described as one of size 1.
    """
    is_wide = max(space.num_items, reach) >= MAX_NARROW_COUNT
    dimensions = space.dimensions or (Dimension(1, (0,) * len(units)),)
    divisions = [magic_division(d.size, 64 if is_wide else 32) for d in dimensions]

    def row(values: list[int]) -> tuple[int, ...]:
        return tuple(values + [0] * (MAX_DIMENSIONS - len(values)))

    return {
        "sizes": ("Int64", row([d.size for d in dimensions])),
        "multipliers": ("UInt64", row([multiplier for multiplier, _ in divisions])),
        **{
            name: ("Int64", row([d.strides[k] * unit for d in dimensions]))
            for k, (name, unit) in enumerate(units.items())
        },
        "shifts": ("Int32", row([shift for _, shift in divisions])),
        "num_dimensions": ("Int32", len(dimensions)),
        "is_wide": ("Int32", int(is_wide)),
    }
