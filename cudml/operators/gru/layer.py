"""A GRU layer as its paths see it, how a kernel divides one, and the constants of the kernels.

The kernels define the same constants, and compilers check those in `CONSTANTS`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cudml.checks import camel
from cudml.dtypes import ElementInfo, ExtendedType
from cudml.enums import DataType, OperatorType, RecurrentNetworkDirection
from cudml.operators.gru.activations import ACTIVATIONS, Activation
from cudml.plans import WARP_LANES, Constants, Limits
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

#: Below this compute capability, CUDA 12.0's compiler spills: a block's fourth chunk, wide threads of a wave.
EARLY_CAPABILITY = 80

# kernels/gru/block.cu: hidden units of a thread, warps of a block at most; chunks of weights in registers if
# there are several passes. In one pass, all chunks are in registers, but only three of early GPUs.
BLOCK_UNITS = 4
BLOCK_MAX_WARPS = 8
BLOCK_REGISTER_CHUNKS = 2
BLOCK_EARLY_REGISTER_CHUNKS = 3
# Registers of a thread in one pass, without its weights, and registers for the weights of a chunk.
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

# kernels/gru/phases.cuh: the kinds of launches of a recurrence step by step.
PHASE_START, PHASE_HALF, PHASE_FINISH = 0, 1, 2

# kernels/gru/products.cu: hidden units of a block.
PRODUCTS_THREADS = 256

# kernels/gru/matrix_step.cuh: threads and sequences of a block; columns that a warp multiplies at once; by
# the hidden units of a block, columns of a chunk and chunks in shared storage; the same of rounded rows, and
# the bytes of a row's part of a chunk. GPUs of other compute capabilities have no matrices of TF32, or are
# assumed to be too slow at them to gain.
SPLIT_THREADS = 256
SPLIT_BATCH = 64
SPLIT_PANEL_COLUMNS = 16
SPLIT_CHUNKS = {16: (64, 3), 32: (32, 4)}
ROUNDED_CHUNK = 64, 4
ROUNDED_CHUNK_BYTES = 3 * 64 + 32
SPLIT_CAPABILITIES = (80, 90, 100, 103)

#: The first compute capability with matrices of TF32.
TF32_CAPABILITY = 80

# kernels/gru/wave.cu: layers of a grid at most, sequences of a product; chunks in registers by the hidden
# units of a thread; the most units of early GPUs; sums of an item.
WAVE_MAX_LAYERS = 4
WAVE_BATCH = 2
WAVE_REGISTER_CHUNKS = {2: 2, 4: 1}
WAVE_EARLY_UNITS = 2
WAVE_SUMS = NUM_GATES + 1

# kernels/gru/matrix_grid.cu: rows of a tile of each gate, tiles of a gate in a block, columns of a chunk,
# tiles of weights in registers, sequences of a round.
MATRIX_TILE_ROWS = 16
MATRIX_TILES = (1, 2)
# From this compute capability on, two tiles and several rounds take more registers than a thread has.
MATRIX_ONE_TILE_CAPABILITY = 120
MATRIX_TILE_COLUMNS = 16
MATRIX_CHUNK_COLUMNS = MATRIX_TILE_COLUMNS * GRID_WARPS
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

# kernels/common/exchange.cuh: bytes of a state with the number of its exchange, alone and in a pair; states
# of a load; rows are padded to whole loads.
EXCHANGED_BYTES = 8
PAIRED_BYTES = 2
EXCHANGED_STATES = 2

# kernels/gru/round_grid.cuh: bytes of a state and of a count, both in whole quads; of a hidden unit's biases;
# of the update gate and state of an item between two half steps.
COUNTED_BYTES = 4
BIASES_BYTES = 16
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
    ("4 * kNumGates * kGridThreads", FIXED_INPUT_BYTES),
    ("kWaitForStates", 1),
)
_PHASE_CONSTANTS: Constants = (("kStart", PHASE_START), ("kHalf", PHASE_HALF), ("kFinish", PHASE_FINISH))
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
        ("sizeof(Carried)", CARRIED_BYTES),
        ("sizeof(Float32)", COUNTED_BYTES),
        ("sizeof(GateBiases)", BIASES_BYTES),
        ("sizeof(TaggedFloats::Word)", EXCHANGED_BYTES),
        ("TaggedFloats::kNumWords", EXCHANGED_STATES),
    ),
    "wave": (
        *_LAYER_CONSTANTS,
        *_PRODUCT_CONSTANTS,
        *_GRID_CONSTANTS,
        ("kMaxLayers", WAVE_MAX_LAYERS),
        ("kWaveBatch", WAVE_BATCH),
        *((f"kWaveRegisterChunks<{units}>", chunks) for units, chunks in WAVE_REGISTER_CHUNKS.items()),
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
        *_PHASE_CONSTANTS,
    ),
    "split_products": (
        *_LAYER_CONSTANTS,
        ("kSplitThreads", SPLIT_THREADS),
        ("kSplitBatch", SPLIT_BATCH),
        ("kPanelColumns", SPLIT_PANEL_COLUMNS),
        *((f"SplitChunks<{units}>::kColumns", columns) for units, (columns, _) in SPLIT_CHUNKS.items()),
        *((f"SplitChunks<{units}>::kStages", stages) for units, (_, stages) in SPLIT_CHUNKS.items()),
        *_PHASE_CONSTANTS,
    ),
    "rounded_products": (
        *_LAYER_CONSTANTS,
        ("kSplitThreads", SPLIT_THREADS),
        ("kSplitBatch", SPLIT_BATCH),
        ("kPanelColumns", SPLIT_PANEL_COLUMNS),
        ("RoundedChunks::kColumns", ROUNDED_CHUNK[0]),
        ("RoundedChunks::kStages", ROUNDED_CHUNK[1]),
        ("4 * (rounded_words(RoundedChunks::kColumns) + kRoundedGap)", ROUNDED_CHUNK_BYTES),
        *_PHASE_CONSTANTS,
    ),
    "matrix_grid": (
        *_LAYER_CONSTANTS,
        *_GRID_CONSTANTS,
        ("kTileRows", MATRIX_TILE_ROWS),
        ("kTileColumns", MATRIX_TILE_COLUMNS),
        ("kChunkColumns", MATRIX_CHUNK_COLUMNS),
        ("kRegisterTiles", MATRIX_REGISTER_TILES),
        ("kLoadedChunks", MATRIX_LOADED_CHUNKS),
        ("kRoundBatch", MATRIX_ROUND_BATCH),
        ("kSumStride", MATRIX_ROUND_BATCH + 1),
        ("sizeof(MatrixRows)", MATRIX_PIECE_BYTES),
        ("sizeof(TaggedFloats::Word)", EXCHANGED_BYTES),
        ("sizeof(TaggedPairs::Word) / TaggedPairs::kNumValues", PAIRED_BYTES),
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


def is_early(limits: Limits) -> bool:
    """Whether the device is a GPU below `EARLY_CAPABILITY`."""
    return 0 < limits.compute_capability < EARLY_CAPABILITY


@dataclass(frozen=True)
class Layer:
    """A GRU as the paths see it: the tensors that are present, by member, and the attributes."""

    tensors: Mapping[str, TensorDesc]
    activations: tuple[Activation, ...]
    direction: RecurrentNetworkDirection
    linear_before_reset: bool
    clip: float
    #: Whether W and R are in panels, as `panels` of operator.py makes them.
    has_panels: bool = False
    #: Whether products of float32 may round their operands to TF32.
    allows_tf32: bool = False

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
        """Whether the device's matrix instructions take the type; the emulator's take both 16-bit types."""
        if self.element.element_type is ExtendedType.BFLOAT16:
            return limits.compute_capability == 0 or limits.compute_capability >= 80
        return self.element_bytes == 2

    def has_split_products(self, limits: Limits) -> bool:
        """Whether matrices of TF32 are fast and the layer is of float32; the emulator has them."""
        has_tf32 = limits.compute_capability in (0, *SPLIT_CAPABILITIES)
        return has_tf32 and self.element.element_type is DataType.FLOAT32

    def takes_tf32(self, limits: Limits) -> bool:
        """Whether products may round to TF32 and the device's library can; the emulator's can."""
        can = limits.compute_capability == 0 or limits.compute_capability >= TF32_CAPABILITY
        return self.allows_tf32 and can and self.element.element_type is DataType.FLOAT32

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


class Shape(NamedTuple):
    """How a kernel divides a layer.

    A thread has `thread_units` hidden units (with matrix instructions: tiles of rows of each gate). Each
    direction has `num_groups` groups of `group_batch` sequences. `num_shards` blocks share the hidden units
    of a group, and each takes new hidden units `num_passes` times. The states of `round_batch` sequences,
    `state_bytes` each, are in shared storage at a time, next to `fixed_bytes` of other data. A pass has
    `num_chunks` chunks of weights, in pieces of `piece_bytes` that a thread loads at once.
    `num_register_chunks` of the first pass are in registers and `num_stored_chunks` of the others in shared
    storage. Weights that are not in registers are read once for `product_batch` sequences. Items are fixed if
    a thread has the same hidden unit and sequence in every step.
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

    def num_blocks(self, layer: Layer) -> int:
        """Blocks of a launch: those of each direction's groups."""
        return layer.num_directions * self.num_groups * self.num_shards

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
