"""How the kernels of a GRU divide a layer, and the estimated cost.

The kernels have the constants, too, and `CONSTANTS` has the compilers compare them. `THRESHOLDS` and the
estimates made from it only choose between paths; every path is correct.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cudml.checks import camel
from cudml.dtypes import ElementInfo, ExtendedType
from cudml.enums import OperatorType, RecurrentNetworkDirection
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.operators.path import figure
from cudml.plans import WARP_LANES, Constants, Limits, ceil_div, round_up
from cudml.tensors import TensorDesc

NUM_GATES = 3

# kernels/gru/product.cuh: groups of lanes with different units, columns of a warp's chunk, weights that a
# thread loads at once.
GROUPS_PER_WARP = 4
COLUMNS_PER_WARP = 32
QUAD = 4

# kernels/gru/fixed_item.cuh: bytes of a step's inputs in shared storage, for blocks of up to 256 threads.
FIXED_INPUT_BYTES = 4 * NUM_GATES * 256

# Registers of a thread at most: the kernels of whole recurrences have nearly as many.
MOST_REGISTERS = 256

# kernels/gru/block.cu: hidden units of a thread, warps of a block at most; chunks of weights in registers in
# several passes. In one pass these are all, below a compute capability three: CUDA 12.0's compiler spills a
# fourth.
BLOCK_UNITS = 4
BLOCK_MAX_WARPS = 8
BLOCK_REGISTER_CHUNKS = 2
BLOCK_EARLY_REGISTER_CHUNKS = 3
BLOCK_EARLY_CAPABILITY = 80
# Registers of a thread in one pass, besides its weights, and for those of a chunk.
BLOCK_REGISTERS = 64
BLOCK_CHUNK_REGISTERS = NUM_GATES * BLOCK_UNITS * QUAD

# kernels/gru/exchanged_grid.cuh
GRID_WARPS = 8

# kernels/gru/grid.cu
GRID_UNITS = 2
GRID_BATCH = 4
GRID_REGISTER_CHUNKS = 4

# kernels/gru/step.cu: hidden units and sequences of a task, rows of floats that its halves keep.
STEP_UNITS = 4
STEP_BATCH = 4
STEP_CARRIED_ROWS = 3
STEP_COUNTS_BYTES = 12
STEP_THREADS = (2 * STEP_UNITS + 1) * WARP_LANES

# kernels/gru/products.cu: hidden units of a block, and what a launch does.
PRODUCTS_THREADS = 256
PRODUCTS_START, PRODUCTS_HALF, PRODUCTS_FINISH = 0, 1, 2

# kernels/gru/wave.cu: layers of a grid at most, sequences of a product, chunks in registers, sums of an item.
WAVE_MAX_LAYERS = 4
WAVE_BATCH = 2
WAVE_REGISTER_CHUNKS = 2
WAVE_SUMS = NUM_GATES + 1

# kernels/gru/matrix_grid.cu: rows of a tile of each gate, tiles of a gate in a block, columns of a chunk,
# tiles of weights in registers, sequences of a round.
MATRIX_TILE_ROWS = 16
MATRIX_TILES = (1, 2)
# From this compute capability on, two tiles and several rounds take more registers than a thread has.
MATRIX_ONE_TILE_CAPABILITY = 120
MATRIX_CHUNK_COLUMNS = 16 * GRID_WARPS
MATRIX_REGISTER_TILES = 24
MATRIX_LOADED_CHUNKS = 8
MATRIX_ROUND_BATCH = 8
MATRIX_PIECE_BYTES = 16

# kernels/gru/panels.cuh: hidden units of a tile on the CPU with the widest registers; columns of a sum;
# sequences that are multiplied together with weights read in place, on that CPU.
TILE_MAX_UNITS = 32
SUM_COLUMNS = 256
ROWS_BATCH = 6

# kernels/gru/serial.cu: rows of hidden units for each sequence, and rows of biases for each block.
SERIAL_ROWS = 3
SERIAL_BIAS_ROWS = 4

# kernels/common/exchange.cuh: bytes of a state with the number of its exchange; states that a row is filled
# up to, those of one load or of a tile.
EXCHANGED_BYTES = 8
EXCHANGED_STATES = 2
MATRIX_EXCHANGED_BYTES = 4
MATRIX_EXCHANGED_STATES = 16

# kernels/gru/exchanged_grid.cuh: bytes of the update gate and state of an item between two half steps.
CARRIED_BYTES = 8

_LAYER_CONSTANTS: Constants = (
    ("kNumGates", NUM_GATES),
    ("kBackward", int(RecurrentNetworkDirection.BACKWARD)),
    ("kBidirectional", int(RecurrentNetworkDirection.BIDIRECTIONAL)),
    *((f"k{camel(kind.name.removeprefix('ACTIVATION_').lower())}", int(kind)) for kind in ACTIVATIONS),
)
_PRODUCT_CONSTANTS: Constants = (
    ("kWarpSize", WARP_LANES),
    ("kGroupsPerWarp", GROUPS_PER_WARP),
    ("kLanesPerRow * kQuad", COLUMNS_PER_WARP),
    ("kQuad", QUAD),
)
_GRID_CONSTANTS: Constants = (
    ("kGridThreads", GRID_WARPS * WARP_LANES),
    ("sizeof(Carried)", CARRIED_BYTES),
    ("4 * kNumGates * kGridThreads", FIXED_INPUT_BYTES),
    ("kWaitForStates", 1),
)
_PANEL_CONSTANTS: Constants = ((f"{TILE_MAX_UNITS} % kTileUnits", 0), ("kSumColumns", SUM_COLUMNS))

#: What plans assume of each kernel of a layer.
CONSTANTS: dict[str, Constants] = {
    "block": (
        *_LAYER_CONSTANTS,
        *_PRODUCT_CONSTANTS,
        ("kBlockThreads", BLOCK_MAX_WARPS * WARP_LANES),
        ("kBlockUnits", BLOCK_UNITS),
        ("4 * kNumGates * kBlockThreads", FIXED_INPUT_BYTES),
    ),
    "grid": (
        *_LAYER_CONSTANTS,
        *_PRODUCT_CONSTANTS,
        *_GRID_CONSTANTS,
        ("kGridUnits", GRID_UNITS),
        ("kGridBatch", GRID_BATCH),
        ("kGridRegisterChunks", GRID_REGISTER_CHUNKS),
        ("sizeof(TaggedFloats::Word)", EXCHANGED_BYTES),
        ("TaggedFloats::kNumWords", EXCHANGED_STATES),
    ),
    "wave": (
        *_LAYER_CONSTANTS,
        *_PRODUCT_CONSTANTS,
        *_GRID_CONSTANTS,
        ("kGridUnits", GRID_UNITS),
        ("kMaxLayers", WAVE_MAX_LAYERS),
        ("kWaveBatch", WAVE_BATCH),
        ("kWaveRegisterChunks", WAVE_REGISTER_CHUNKS),
        ("kWaitForLayers", 2),
        ("sizeof(TaggedFloats::Word)", EXCHANGED_BYTES),
        ("TaggedFloats::kNumWords", EXCHANGED_STATES),
    ),
    "step": (
        *_LAYER_CONSTANTS,
        ("kStepUnits", STEP_UNITS),
        ("kStepThreads", STEP_THREADS),
        ("kWaitForResets", 1),
        ("sizeof(StepCounts)", STEP_COUNTS_BYTES),
        ("sizeof(CarriedRows) / sizeof(float*)", STEP_CARRIED_ROWS),
    ),
    "products": (
        *_LAYER_CONSTANTS,
        ("kProductsThreads", PRODUCTS_THREADS),
        ("kStart", PRODUCTS_START),
        ("kHalf", PRODUCTS_HALF),
        ("kFinish", PRODUCTS_FINISH),
    ),
    "matrix_grid": (
        *_LAYER_CONSTANTS,
        *_GRID_CONSTANTS,
        ("kTileRows", MATRIX_TILE_ROWS),
        ("kChunkColumns", MATRIX_CHUNK_COLUMNS),
        ("kRegisterTiles", MATRIX_REGISTER_TILES),
        ("kLoadedChunks", MATRIX_LOADED_CHUNKS),
        ("kRoundBatch", MATRIX_ROUND_BATCH),
        ("kSumStride", MATRIX_ROUND_BATCH + 1),
        ("sizeof(MatrixRows)", MATRIX_PIECE_BYTES),
        ("sizeof(TaggedHalves::Word)", MATRIX_EXCHANGED_BYTES),
        ("kTileColumns", MATRIX_EXCHANGED_STATES),
    ),
    "serial": (
        *_LAYER_CONSTANTS,
        *_PANEL_CONSTANTS,
        ("kNumStateRows", SERIAL_ROWS),
        ("kNumBiasRows", SERIAL_BIAS_ROWS),
    ),
    "panels": (("kNumGates", NUM_GATES), *_PANEL_CONSTANTS),
    "serial_prepare": (("kNumGates", NUM_GATES), *_PANEL_CONSTANTS),
}


@dataclass(frozen=True)
class Thresholds:
    """The numbers that decide between the paths of a GRU: clocks of a multiprocessor, limits for a CPU."""

    #: Clocks of a step in one block with fixed items: of gates and barriers, of a chunk of the products, and
    #: of reading its weights, unless they are in registers. All are as much too high as those of grids below;
    block_fixed_clocks: int = figure(
        700, "machine code", "predicted 510 a step of 8 units; 1590 of 128 on a grid, which is told as 2820"
    )
    block_product_clocks: int = figure(230, "machine code", "predicted 570 a step of 64 units, 920 of 128")
    block_stored_clocks: int = figure(
        600, "machine code", "predicted 1500 and 2320 a step for one and two such chunks of float32"
    )
    #: of the second half, unless it is linear before reset;
    block_half_clocks: int = figure(300, "machine code", "predicted 690 a step of 32 units instead of 510")
    #: for each further block on the same multiprocessor;
    block_sharing_clocks: int = figure(
        200, "machine code", "predicted 870 a step of 32 units for 4 blocks, 770 of 8 units"
    )
    #: with other items: of gates and barriers, and of a chunk of the products of one sequence.
    block_step_clocks: int = figure(1100, "machine code", "predicted 5000 a step for 10 chunks, 8500 for two")
    block_chunk_clocks: int = figure(
        500, "machine code", "loads wait for each other, products for loads; 550 is right in as many cases"
    )

    #: Clocks of a step on a grid: of an exchange through the L2 cache,
    exchange_clocks: int = figure(
        1500, "machine code", "predicted 2800 to 3100 a step for one sequence, 17600 for 37; within 15 %"
    )
    #: of a round of states in a pass, from the first product to the last gate, and of one of its sequences;
    round_clocks: int = figure(990, "machine code", "predicted 6900 a step for 3 passes of one sequence")
    sequence_clocks: int = figure(130, "machine code", "its share of adding up partial sums, and of gates")
    #: of a task of a single step, apart from reading its weights, and of its second half;
    task_clocks: int = figure(1500, "estimate", "a read of memory, a product, the gates")
    #: of a further launch of the same call;
    launch_clocks: int = figure(2900, "micro-figure", "two empty kernels, 1.47 us more than one")
    #: of a further layer of a stack, its product and its recurrence, apart from its steps;
    further_layer_clocks: int = figure(
        14000, "machine code", "predicted 10.2 us for 6 steps of 17 units, 2.5 of them for the steps"
    )
    #: of the gates after a product, with what the estimates of small layers on the chip are too high;
    product_gates_clocks: int = figure(
        3400,
        "machine code",
        "predicted 2.6 us a step in one block for 128 sequences of 136 float32 units, 4.4 by products; "
        "4.5 and 4.9 for 256 of 136, 15.5 on a grid and 10.3 for 32 of 1024",
    )
    #: for each of its blocks on a multiprocessor;
    product_block_clocks: int = figure(
        300,
        "machine code",
        "predicted 14000 a step for 2048 sequences of 64 float32 units, 17900 for 4096 of 32",
    )
    #: of the host, for a product and the launch after it, while it is not ahead of the GPU; with more steps
    #: than the second, a graph repeats them;
    product_host_clocks: int = figure(
        20000, "estimate", "10 us: four calls of the driver and cuBLAS by Python"
    )
    product_host_steps: int = figure(
        32, "estimate", "fewer take as long to record: cudml/devices/cuda/graphs.py"
    )
    #: of a step of a single round by matrix instructions, at least;
    matrix_alone_clocks: int = figure(
        2750, "machine code", "predicted 247 us by matrices, 339 on a grid, for 32 sequences of 136 units"
    )
    #: of one of several rounds, at least, and what each tile of a gate adds.
    matrix_round_clocks: int = figure(
        2000, "machine code", "predicted 2200 to 2400 for 16 units of 128 to 512 and 2 to 8 rounds"
    )
    matrix_tile_clocks: int = figure(300, "machine code", "predicted 2600 to 2900 for 32 units")
    #: Of waiting for states that are under way for less than a round; of what else a round does, if half of
    #: the warps multiply while the others finish.
    matrix_wait_clocks: int = figure(
        800, "machine code", "predicted 2900 and 4500 a round for two of 1024 units, 16 and 32 a block"
    )
    matrix_finish_clocks: int = figure(
        2400,
        "machine code",
        "predicted us, rounds and products: 2660 and 2041 for 189 sequences of 984 units, 1903 and 1650 for "
        "200 of 700, 1547 and 1786 for 128 of 1024, 1205 and 1347 for 250 of 421",
    )

    #: Warp instructions that a multiprocessor issues per clock.
    schedulers: int = figure(4, "documentation", "CUDA C++ Programming Guide, compute capabilities")

    #: Bytes that a multiprocessor reads from its shared storage per clock.
    shared_bytes_per_clock: int = figure(
        128, "documentation", "CUDA C++ Programming Guide: 32 banks of 4 bytes a clock"
    )

    #: Bytes that it reads from the L2 cache per clock, while all multiprocessors read.
    l2_bytes_per_clock: int = figure(21, "estimate", "a multiprocessor's share of the cache's bandwidth")

    #: Accesses to shared storage that take as long as a warp's adding up of partial sums.
    reduction_clocks_per_warp: int = figure(9, "estimate", "three shuffles of three sums")

    #: Products of float32 that a multiprocessor adds up per clock,
    products_per_clock: int = figure(128, "documentation", "CUDA C++ Programming Guide, throughput of FFMA")
    #: rows of the least tile of the library, which takes as long for fewer,
    product_rows: int = figure(64, "estimate", "grids of fewer sequences are predicted to be faster")
    #: and those of a matrix instruction.
    matrix_instruction_products: int = figure(2048, "documentation", "PTX: mma.m16n8k16")

    #: Clocks of a multiprocessor per matrix instruction.
    clocks_per_matrix_instruction: int = figure(3, "estimate", "four tensor cores side by side")

    #: Products of all weights with a batch of states from which copying the weights into panels pays on a
    #: CPU.
    panel_min_products: int = figure(
        8, "measured", "Zen 4: up to 7 products are faster without a copy, for 64 to 512 hidden units"
    )

    #: Minimum number of sequences per thread.
    serial_min_batch: int = figure(16, "estimate", "with fewer, several threads are no faster than one")

    #: Blocks for each thread that prepares a layer.
    serial_prepare_blocks: int = figure(4, "estimate", "so that no thread waits long for the last block")


THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class Layer:
    """A GRU as the paths see it: the tensors that are present, by member, and the attributes."""

    tensors: Mapping[str, TensorDesc]
    activations: tuple[Activation, ...]
    direction: RecurrentNetworkDirection
    linear_before_reset: bool
    clip: float
    #: Whether W and R are in panels, as `prepare` of gru.py makes them.
    has_panels: bool = False

    @property
    def num_directions(self) -> int:
        return 2 if self.direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1

    @property
    def num_steps(self) -> int:
        return self.tensors["input_tensor"].sizes[1]

    @property
    def batch_size(self) -> int:
        return self.tensors["input_tensor"].sizes[2]

    @property
    def input_size(self) -> int:
        return self.tensors["input_tensor"].sizes[3]

    @property
    def hidden_size(self) -> int:
        return self.tensors["recurrence_tensor"].sizes[3]

    @property
    def element(self) -> ElementInfo:
        """The type of the tensors."""
        return self.tensors["input_tensor"].element

    @property
    def element_bytes(self) -> int:
        return self.element.size

    def has_matrices(self, limits: Limits) -> bool:
        """Whether matrix instructions of the device take the tensors' type; the emulator's do."""
        if self.element.element_type is ExtendedType.BFLOAT16:
            return limits.compute_capability == 0 or limits.compute_capability >= 80
        return self.element_bytes == 2

    @property
    def is_standard(self) -> bool:
        """Whether the activations are the sigmoid and the hyperbolic tangent, of unbounded inputs."""
        standard = (OperatorType.ACTIVATION_SIGMOID, OperatorType.ACTIVATION_TANH)
        of_standard = all(a.operator_type == standard[i % 2] for i, a in enumerate(self.activations))
        return of_standard and self.clip == math.inf

    def __str__(self) -> str:
        return (
            f"a GRU of {self.element.numpy_name} with D {self.num_directions}, T {self.num_steps}, "
            f"N {self.batch_size}, I {self.input_size} and H {self.hidden_size}"
        )


@dataclass(frozen=True)
class Shape:
    """How a kernel divides a layer.

    A thread has `thread_units` hidden units (with matrix instructions: tiles of rows of each gate). Each
    direction has `num_groups` groups of `group_batch` sequences. `num_shards` blocks share the hidden units
    of a group, and each takes new hidden units `num_passes` times. The states of `round_batch` sequences,
    `state_bytes` each, are in shared storage at a time, next to `fixed_bytes` of other data. A pass has
    `num_chunks` chunks of weights, in pieces of `piece_bytes` that a thread loads at once.
    `num_register_chunks` of the first pass are in registers and `num_stored_chunks` of the others in shared
    storage. Weights that are not in registers are read once for `product_batch` sequences. Whether items are
    fixed says if a thread has the same hidden unit and sequence in every step.
    """

    num_warps: int
    thread_units: int
    num_groups: int
    group_batch: int
    num_shards: int
    num_passes: int
    round_batch: int
    state_bytes: int
    num_chunks: int
    piece_bytes: int
    num_register_chunks: int
    num_stored_chunks: int = 0
    fixed_bytes: int = 0
    product_batch: int = 1
    is_fixed: bool = False

    @property
    def num_threads(self) -> int:
        return self.num_warps * WARP_LANES

    @property
    def chunk_pieces(self) -> int:
        """Pieces of weights of a chunk, for the whole block."""
        return NUM_GATES * self.thread_units * self.num_threads

    @property
    def chunk_bytes(self) -> int:
        return self.chunk_pieces * self.piece_bytes

    @property
    def num_spilled_chunks(self) -> int:
        """Chunks of a block's weights that are not in registers."""
        return self.num_passes * self.num_chunks - self.num_register_chunks

    @property
    def num_overflow_chunks(self) -> int:
        """Chunks of a block's weights that are not on the chip."""
        return self.num_spilled_chunks - self.num_stored_chunks

    @property
    def shared_bytes(self) -> int:
        """Bytes of states, sums and weights in shared storage."""
        return (
            self.fixed_bytes + self.round_batch * self.state_bytes + self.num_stored_chunks * self.chunk_bytes
        )

    def resident_blocks(self, limits: Limits) -> int:
        """Blocks that a multiprocessor runs at once: small blocks take fewer registers for their weights."""
        reserved = max(0, limits.shared_bytes_per_multiprocessor - limits.shared_bytes_per_block)
        by_storage = limits.shared_bytes_per_multiprocessor // (self.shared_bytes + reserved)
        registers = MOST_REGISTERS
        if self.is_fixed:
            registers = min(registers, BLOCK_REGISTERS + BLOCK_CHUNK_REGISTERS * self.num_register_chunks)
        by_registers = limits.registers_per_multiprocessor // (registers * self.num_threads)
        return max(1, min(by_storage, by_registers))

    def load_clocks(self) -> int:
        """Clocks that a block takes to load its weights."""
        return self.num_passes * self.num_chunks * self.chunk_bytes // THRESHOLDS.l2_bytes_per_clock

    def product_clocks(self) -> int:
        """Clocks that the products of one step's states take."""
        sequences = self.group_batch
        warps = self.num_passes * self.num_warps
        fma = (
            sequences
            * warps
            * self.num_chunks
            * NUM_GATES
            * self.thread_units
            * QUAD
            // THRESHOLDS.schedulers
        )
        # Eight lanes read different quads of a state, in four accesses per warp, and then multiply them.
        state_turns = sequences * warps * (4 * self.num_chunks + THRESHOLDS.reduction_clocks_per_warp)
        reads = ceil_div(sequences, self.product_batch)
        stored = reads * self.num_stored_chunks * self.chunk_bytes // THRESHOLDS.shared_bytes_per_clock
        return max(fma + state_turns, stored) + self.overflow_clocks()

    def overflow_clocks(self) -> int:
        """Clocks of a step in which weights that are not on the chip are read."""
        reads = ceil_div(self.group_batch, self.product_batch)
        return reads * self.num_overflow_chunks * self.chunk_bytes // THRESHOLDS.l2_bytes_per_clock


def _stored(shape: Shape, limits: Limits) -> Shape:
    """The shape with as many chunks in shared storage as fit."""
    fitting = (limits.shared_bytes_per_block - shape.shared_bytes) // shape.chunk_bytes
    return replace(shape, num_stored_chunks=min(shape.num_spilled_chunks, fitting))


def _filled(shape: Shape, limits: Limits, round_batch: int) -> Shape:
    """The shape with weights in shared storage, and fixed items if a thread has at most one.

    That takes one pass, and no more sequences than the block's threads finish at once.
    """
    if shape.num_passes == 1 and shape.group_batch <= round_batch:
        fixed = replace(shape, is_fixed=True, fixed_bytes=shape.fixed_bytes + FIXED_INPUT_BYTES)
        if fixed.shared_bytes <= limits.shared_bytes_per_block:
            return _stored(fixed, limits)
    return _stored(shape, limits)


def block_shape(layer: Layer, limits: Limits) -> Shape | None:
    """The shape of the kernel with all hidden units in one block; None if the states do not fit."""
    num_tiles = ceil_div(layer.hidden_size, BLOCK_UNITS * GROUPS_PER_WARP)
    num_passes = ceil_div(num_tiles, BLOCK_MAX_WARPS)
    num_chunks = ceil_div(layer.hidden_size, COLUMNS_PER_WARP)
    num_buffers = 2 if layer.linear_before_reset else 3
    state_bytes = num_buffers * num_chunks * COLUMNS_PER_WARP * 4
    most = limits.shared_bytes_per_block // state_bytes
    if most == 0:
        return None
    # With one sequence, items can be fixed. Several such blocks on a multiprocessor, or one after the other,
    # take less time than one block with as many sequences.
    group_batch = 1
    if num_passes > 1:
        blocks_per_direction = max(1, limits.num_multiprocessors // layer.num_directions)
        # Half of the storage is left for weights if possible.
        group_batch = min(max(1, most // 2), ceil_div(layer.batch_size, blocks_per_direction))
    shape = Shape(
        num_warps=ceil_div(num_tiles, num_passes),
        thread_units=BLOCK_UNITS,
        num_groups=ceil_div(layer.batch_size, group_batch),
        group_batch=group_batch,
        num_shards=1,
        num_passes=num_passes,
        round_batch=group_batch,
        state_bytes=state_bytes,
        num_chunks=num_chunks,
        piece_bytes=QUAD * layer.element_bytes,
        num_register_chunks=_block_register_chunks(num_chunks, num_passes, limits),
    )
    return _filled(shape, limits, 1)


def _block_register_chunks(num_chunks: int, num_passes: int, limits: Limits) -> int:
    """The chunks of the first pass that are in registers."""
    if num_passes > 1:
        return min(BLOCK_REGISTER_CHUNKS, num_chunks)
    is_early = 0 < limits.compute_capability < BLOCK_EARLY_CAPABILITY
    return min(BLOCK_EARLY_REGISTER_CHUNKS, num_chunks) if is_early else num_chunks


def block_clocks(shape: Shape, layer: Layer, limits: Limits) -> int:
    """Clocks that the block kernel is estimated to take."""
    num_blocks = shape.num_groups * layer.num_directions
    waves = ceil_div(num_blocks, limits.num_multiprocessors * shape.resident_blocks(limits))
    # Blocks on the busiest multiprocessor.
    sharing = ceil_div(num_blocks, waves * limits.num_multiprocessors)
    if shape.is_fixed:
        step = THRESHOLDS.block_fixed_clocks + shape.num_chunks * THRESHOLDS.block_product_clocks
        step += shape.num_spilled_chunks * THRESHOLDS.block_stored_clocks
        step += 0 if layer.linear_before_reset else THRESHOLDS.block_half_clocks
    else:
        num_chunks = shape.group_batch * shape.num_passes * shape.num_chunks
        step = THRESHOLDS.block_step_clocks + num_chunks * THRESHOLDS.block_chunk_clocks
    step += shape.overflow_clocks() + (sharing - 1) * THRESHOLDS.block_sharing_clocks
    return waves * (shape.load_clocks() + layer.num_steps * step)


def grid_shape(layer: Layer, limits: Limits) -> Shape | None:
    """The fastest shape of the kernel whose blocks exchange states; None if it cannot run."""
    shapes = [
        shape
        for num_groups in _possible_groups(layer, limits)
        if (shape := _grid_shape_of(layer, limits, num_groups)) is not None
    ]
    return min(shapes, key=lambda shape: grid_clocks(shape, layer), default=None)


def _possible_groups(layer: Layer, limits: Limits) -> range:
    """The numbers of groups that leave at least one block to each group and direction."""
    return range(1, min(layer.batch_size, limits.resident_blocks // layer.num_directions) + 1)


def _grid_shape_of(layer: Layer, limits: Limits, num_groups: int) -> Shape | None:
    group_batch = ceil_div(layer.batch_size, num_groups)
    num_groups = ceil_div(layer.batch_size, group_batch)
    most_shards = limits.resident_blocks // (layer.num_directions * num_groups)
    pass_units = GRID_UNITS * GROUPS_PER_WARP
    num_tiles = ceil_div(layer.hidden_size, pass_units)
    num_passes = ceil_div(num_tiles, most_shards)
    num_chunks = ceil_div(layer.hidden_size, COLUMNS_PER_WARP * GRID_WARPS)
    # Next to a state, its partial sums, which two passes keep in turn.
    sum_bytes = min(num_passes, 2) * GRID_WARPS * NUM_GATES * pass_units * 4
    state_bytes = num_chunks * COLUMNS_PER_WARP * GRID_WARPS * 4 + sum_bytes
    most = limits.shared_bytes_per_block // state_bytes
    if most == 0:
        return None
    shape = Shape(
        num_warps=GRID_WARPS,
        thread_units=GRID_UNITS,
        num_groups=num_groups,
        group_batch=group_batch,
        num_shards=ceil_div(num_tiles, num_passes),
        num_passes=num_passes,
        # A thread finishes one hidden unit of one sequence.
        round_batch=min(group_batch, max(1, most // 2), GRID_WARPS * WARP_LANES // pass_units),
        state_bytes=state_bytes,
        num_chunks=num_chunks,
        piece_bytes=QUAD * layer.element_bytes,
        num_register_chunks=min(GRID_REGISTER_CHUNKS, num_chunks),
        product_batch=GRID_BATCH,
    )
    return _filled(shape, limits, shape.round_batch)


def grid_clocks(shape: Shape, layer: Layer) -> int:
    """Clocks that the grid kernel is estimated to take."""
    gathered = shape.group_batch * layer.hidden_size * EXCHANGED_BYTES // THRESHOLDS.l2_bytes_per_clock
    num_exchanges = 1 if layer.linear_before_reset else 2
    num_rounds = ceil_div(shape.group_batch, shape.round_batch)
    of_pass = num_rounds * THRESHOLDS.round_clocks + shape.group_batch * THRESHOLDS.sequence_clocks
    step = num_exchanges * (THRESHOLDS.exchange_clocks + gathered)
    step += shape.num_passes * of_pass + shape.product_clocks()
    return shape.load_clocks() + layer.num_steps * step


def matrix_shape(layer: Layer, limits: Limits) -> Shape | None:
    """The fastest shape of the kernel with matrix instructions; None if it cannot run."""
    if not layer.has_matrices(limits):
        return None
    shapes = [
        shape
        for num_groups in _possible_groups(layer, limits)
        for tiles in MATRIX_TILES
        if (shape := _matrix_shape_of(layer, limits, num_groups, tiles)) is not None
    ]
    return min(shapes, key=lambda shape: matrix_clocks(shape, layer), default=None)


def _matrix_shape_of(layer: Layer, limits: Limits, num_groups: int, tiles: int) -> Shape | None:
    group_batch = ceil_div(layer.batch_size, num_groups)
    num_groups = ceil_div(layer.batch_size, group_batch)
    num_shards = ceil_div(layer.hidden_size, tiles * MATRIX_TILE_ROWS)
    if layer.num_directions * num_groups * num_shards > limits.resident_blocks:
        return None
    num_chunks = ceil_div(layer.hidden_size, MATRIX_CHUNK_COLUMNS)
    num_rounds = ceil_div(group_batch, MATRIX_ROUND_BATCH)
    if tiles > 1 and num_rounds > 1 and limits.compute_capability >= MATRIX_ONE_TILE_CAPABILITY:
        return None
    sums = GRID_WARPS * NUM_GATES * tiles * MATRIX_TILE_ROWS * (MATRIX_ROUND_BATCH + 1)
    item_rows = num_rounds * (1 if layer.linear_before_reset else 2)
    shape = Shape(
        num_warps=GRID_WARPS,
        thread_units=tiles,
        num_groups=num_groups,
        group_batch=group_batch,
        num_shards=num_shards,
        num_passes=1,
        is_fixed=num_rounds == 1,
        round_batch=MATRIX_ROUND_BATCH,
        state_bytes=0,
        num_chunks=num_chunks,
        piece_bytes=MATRIX_PIECE_BYTES,
        num_register_chunks=min(MATRIX_REGISTER_TILES // (NUM_GATES * tiles), num_chunks),
        fixed_bytes=4 * (2 * sums + (NUM_GATES + item_rows) * GRID_WARPS * WARP_LANES),
    )
    if shape.shared_bytes > limits.shared_bytes_per_block:
        return None
    # Chunks whose states are loaded together have weights in one place, the first on the chip.
    shape = _stored(shape, limits)
    if shape.num_overflow_chunks == 0:
        return shape
    in_place = shape.num_register_chunks + shape.num_stored_chunks
    in_place -= in_place % MATRIX_LOADED_CHUNKS
    if in_place == 0:
        return None
    return replace(shape, num_stored_chunks=in_place - shape.num_register_chunks)


def matrix_clocks(shape: Shape, layer: Layer) -> int:
    """Clocks that the kernel with matrix instructions is estimated to take."""
    num_rounds = ceil_div(shape.group_batch, MATRIX_ROUND_BATCH)
    num_exchanges = 1 if layer.linear_before_reset else 2
    sequences = min(shape.group_batch, MATRIX_ROUND_BATCH)
    gathered = sequences * layer.hidden_size * MATRIX_EXCHANGED_BYTES // THRESHOLDS.l2_bytes_per_clock
    instructions = shape.num_chunks * shape.chunk_pieces // WARP_LANES
    product = instructions * THRESHOLDS.clocks_per_matrix_instruction
    product += shape.num_stored_chunks * shape.chunk_bytes // THRESHOLDS.shared_bytes_per_clock
    product += shape.num_overflow_chunks * shape.chunk_bytes // THRESHOLDS.l2_bytes_per_clock
    product //= num_exchanges
    of_tiles = shape.thread_units * THRESHOLDS.matrix_tile_clocks
    least = THRESHOLDS.matrix_round_clocks + of_tiles
    if num_rounds == 1:
        least = THRESHOLDS.matrix_alone_clocks + of_tiles
        step = max(least, THRESHOLDS.exchange_clocks + gathered + product)
    elif num_rounds == 2:
        step = 2 * max(least, THRESHOLDS.matrix_wait_clocks + gathered + product)
    else:
        step = num_rounds * max(least, THRESHOLDS.matrix_finish_clocks + max(gathered, product))
    return shape.load_clocks() + layer.num_steps * num_exchanges * step


def step_shape(layer: Layer) -> Shape:
    """The shape of the kernel of a single step: a block for each task."""
    group_batch = 1 if layer.batch_size == 1 else STEP_BATCH
    sums = 2 * STEP_UNITS * NUM_GATES * group_batch
    return Shape(
        num_warps=STEP_THREADS // WARP_LANES,
        thread_units=0,
        num_groups=ceil_div(layer.batch_size, group_batch),
        group_batch=group_batch,
        num_shards=ceil_div(layer.hidden_size, STEP_UNITS),
        num_passes=1,
        round_batch=group_batch,
        state_bytes=0,
        num_chunks=0,
        piece_bytes=0,
        num_register_chunks=0,
        fixed_bytes=4 * (sums + 1),
    )


def step_clocks(shape: Shape, layer: Layer, limits: Limits) -> int:
    """Clocks that the kernel of a single step is estimated to take."""
    tasks = layer.num_directions * shape.num_groups * shape.num_shards
    row_bytes = (layer.input_size + layer.hidden_size) * layer.element_bytes
    of_task = STEP_UNITS * NUM_GATES * row_bytes // THRESHOLDS.l2_bytes_per_clock
    halves = 1 if layer.linear_before_reset else 2
    return ceil_div(tasks, limits.num_multiprocessors) * (halves * THRESHOLDS.task_clocks + of_task)


def products_shape(layer: Layer) -> Shape:
    """The shape of the kernel of gates after products: blocks of units of one sequence."""
    return Shape(
        num_warps=PRODUCTS_THREADS // WARP_LANES,
        thread_units=0,
        num_groups=layer.batch_size,
        group_batch=1,
        num_shards=ceil_div(layer.hidden_size, PRODUCTS_THREADS),
        num_passes=1,
        round_batch=1,
        state_bytes=0,
        num_chunks=0,
        piece_bytes=0,
        num_register_chunks=0,
    )


def products_blocks(layer: Layer) -> int:
    """The number of blocks of that kernel."""
    shape = products_shape(layer)
    return layer.num_directions * shape.num_groups * shape.num_shards


def products_clocks(layer: Layer, limits: Limits) -> int:
    """Clocks that a product and a launch for each step, or two of each, are estimated to take.

    Reading the operands and the arithmetic are counted one after the other, because no library reaches both
    limits at once. The launches of a few steps are made one by one, so the host may take longer than the GPU;
    a graph repeats those of more.
    """
    hidden, halves = layer.hidden_size, 1 if layer.linear_before_reset else 2
    weights = layer.num_directions * NUM_GATES * hidden * hidden
    rows = layer.num_directions * layer.batch_size * hidden
    num_bytes = layer.element_bytes * weights + 8 * (NUM_GATES + 1) * rows
    per_clock = THRESHOLDS.products_per_clock
    if layer.has_matrices(limits):
        per_clock = THRESHOLDS.matrix_instruction_products // THRESHOLDS.clocks_per_matrix_instruction
    multiplied = round_up(layer.batch_size, THRESHOLDS.product_rows)
    products = weights * multiplied // (limits.num_multiprocessors * per_clock)
    read = num_bytes // (limits.num_multiprocessors * THRESHOLDS.l2_bytes_per_clock)
    launches = halves * (layer.num_directions + 1) * THRESHOLDS.launch_clocks
    blocks = products_blocks(layer) * THRESHOLDS.product_block_clocks // limits.num_multiprocessors
    launches += halves * (THRESHOLDS.product_gates_clocks + blocks)
    is_recorded = layer.num_steps > THRESHOLDS.product_host_steps
    host = 0 if is_recorded else halves * THRESHOLDS.product_host_clocks
    return THRESHOLDS.launch_clocks + layer.num_steps * max(launches + products + read, host)


def projection_clocks(layer: Layer, limits: Limits) -> int:
    """Clocks of the launches before a recurrence that does not multiply the input itself."""
    rows = layer.num_directions * NUM_GATES * layer.hidden_size
    num_bytes = rows * layer.input_size * layer.element_bytes
    read = num_bytes // (limits.num_multiprocessors * THRESHOLDS.l2_bytes_per_clock)
    return THRESHOLDS.launch_clocks + read


def panel_products(layer: Layer, limits: Limits) -> int:
    """The number of times that a thread multiplies the weights of the recurrence with a batch of states."""
    return layer.num_steps * ceil_div(serial_shape(layer, limits).group_batch, ROWS_BATCH)


def serial_shape(layer: Layer, limits: Limits) -> Shape:
    """The shape of the kernel of single threads: sequences are divided among the multiprocessors."""
    blocks_per_direction = max(1, limits.num_multiprocessors // layer.num_directions)
    least = min(layer.batch_size, THRESHOLDS.serial_min_batch)
    group_batch = max(least, ceil_div(layer.batch_size, blocks_per_direction))
    return Shape(
        num_warps=0,
        thread_units=0,
        num_groups=ceil_div(layer.batch_size, group_batch),
        group_batch=group_batch,
        num_shards=1,
        num_passes=1,
        round_batch=group_batch,
        state_bytes=0,
        num_chunks=0,
        piece_bytes=0,
        num_register_chunks=0,
    )
