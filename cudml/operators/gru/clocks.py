"""Estimated clocks of a GRU's paths on a GPU, by the numbers of `choices/gru.json`.

The estimates only choose between paths, and between the shapes of a path; every path is correct.
"""

from dataclasses import dataclass

from cudml.operators.choice import numbers_of
from cudml.operators.gru.layer import (
    COUNTED_BYTES,
    EXCHANGED_BYTES,
    MATRIX_ROUND_BATCH,
    NUM_GATES,
    PAIRED_BYTES,
    QUAD,
    SPLIT_PANEL_COLUMNS,
    STEP_UNITS,
    Layer,
    Shape,
)
from cudml.plans import WARP_LANES, Limits, ceil_div, round_up

# CUDA C++ Programming Guide: warp instructions of a clock, and bytes of shared storage (32 banks of 4 bytes).
_INSTRUCTIONS_PER_CLOCK = 4
_SHARED_BYTES_PER_CLOCK = 128
# PTX: products of mma.m16n8k16.
_MATRIX_PRODUCTS = 2048

# How many times as many bytes a multiprocessor reads from the L2 cache alone as while all of them read.
_MOST_OF_L2 = 4

# Rows, and columns, of a tile of a library's product: fewer rows or columns take as long.
_PRODUCT_ROWS = 64

# cudml/devices/cuda/graphs.py records only more steps than this as a graph.
_UNRECORDED_STEPS = 32


@dataclass(frozen=True)
class Clocks:
    """Clocks of a multiprocessor, which add up to the estimates; `choices/gru.json` has their values."""

    # block: one block has all hidden units

    #: A step with fixed items: gates and barriers.
    block_fixed: int
    #: The products of a chunk.
    block_product: int
    #: Reading a chunk's weights, unless they are in registers.
    block_stored: int
    #: The second half of a step that is not linear before reset.
    block_half: int
    #: Each further block on the same multiprocessor.
    block_sharing: int
    #: A step without fixed items: gates and barriers.
    block_step: int
    #: A chunk's products with one sequence, in a step without fixed items.
    block_chunk: int

    # grid and wave: blocks exchange states through the L2 cache

    #: From the gates of a state until the other blocks have copies of it.
    exchange: int
    #: Bytes of float32 states that a multiprocessor reads in a clock, while all of them read.
    exchanged_bytes: int
    #: A step with fixed items, besides the exchange and the products.
    grid_fixed: int
    #: A round of states, besides the products of its first pass.
    round: int
    #: A further pass of a round.
    round_pass: int
    #: Adding up partial sums in a warp, counted as accesses to shared storage.
    reduction: int
    #: A further layer of a stack: its product and its launch.
    further_layer: int
    #: A step of layers at once, besides the states, products and stored weights of a layer and the one below.
    wave_fixed: int

    # step: a single step

    #: A task, without reading its weights; counted twice unless the layer is linear before reset.
    task: int
    #: A further launch of the same call.
    launch: int

    # products: a product and a launch for each step

    #: A term of a tile's sums, in float32.
    product_term: int
    #: The gates after a product.
    product_gates: int
    #: Each block of the launch for the gates, on a multiprocessor.
    product_block: int
    #: The host's time for a product and the launch after it, while the host is not ahead of the GPU.
    product_host: int

    #: A product by TF32 and the launch after it, besides the longer of reading and arithmetic: the rest of
    #: the measured time of cuDNN with TF32, until cuBLAS has been measured.
    product_tf32: int

    # split_products: a launch for each step

    #: A row of weights in the products of a panel, with all sequences of a block.
    split_row: int
    #: A block's start, gates and end, and 3000 more until the kernel has been measured.
    split_fixed: int

    # rounded_products: the same with operands rounded to TF32

    #: A row of weights in the products of a panel, with all sequences of a block.
    rounded_row: int
    #: A block's start, gates and end, and 3000 more until the kernel has been measured.
    rounded_fixed: int

    # matrix_grid: matrix instructions

    #: Minimum of a step with a single round, without its tiles.
    matrix_alone: int
    #: Minimum of a round if there are several, without its tiles.
    matrix_round: int
    #: A tile of a gate, added to both minimums.
    matrix_tile: int
    #: Waiting for states that are under way for less than a round.
    matrix_wait: int
    #: The rest of a round in which half of the warps multiply while the others finish.
    matrix_finish: int
    #: A matrix instruction, on a multiprocessor's tensor cores side by side.
    matrix_instruction: int

    # all

    #: Bytes that a multiprocessor reads from the L2 cache in a clock, while all of them read.
    l2_bytes: int


CLOCKS = numbers_of("gru", Clocks)


def load_clocks(shape: Shape, t: Clocks) -> int:
    """Clocks that a block takes to load its weights."""
    return shape.num_passes * shape.num_chunks * shape.chunk_bytes // t.l2_bytes


def overflow_clocks(shape: Shape, t: Clocks) -> int:
    """Clocks that a step takes to read the weights that are not on the chip."""
    reads = ceil_div(shape.group_batch, shape.product_batch)
    return reads * shape.num_overflow_chunks * shape.chunk_bytes // t.l2_bytes


def product_clocks(shape: Shape, t: Clocks) -> int:
    """Clocks that the products of one step's states take."""
    sequences, warps = shape.group_batch, shape.num_passes * shape.num_warps
    products = sequences * warps * shape.num_chunks * NUM_GATES * shape.thread_units * QUAD
    # Eight lanes read different quads of a state, in four accesses per warp, and then multiply them.
    state_turns = sequences * warps * (4 * shape.num_chunks + t.reduction)
    weights = stored_clocks(shape, shape.num_stored_chunks) + overflow_clocks(shape, t)
    return max(products // _INSTRUCTIONS_PER_CLOCK + state_turns, weights)


def stored_clocks(shape: Shape, num_chunks: int) -> int:
    """Clocks that a step takes to read chunks of weights from shared storage."""
    reads = ceil_div(shape.group_batch, shape.product_batch)
    return reads * num_chunks * shape.chunk_bytes // _SHARED_BYTES_PER_CLOCK


def block_clocks(shape: Shape, layer: Layer, limits: Limits, t: Clocks) -> int:
    """Clocks that the block kernel is estimated to take."""
    num_blocks = shape.num_blocks(layer)
    waves = ceil_div(num_blocks, limits.num_multiprocessors * shape.resident_blocks(limits))
    # Blocks on the busiest multiprocessor.
    sharing = ceil_div(num_blocks, waves * limits.num_multiprocessors)
    if shape.is_fixed:
        step = t.block_fixed + shape.num_chunks * t.block_product + shape.num_spilled_chunks * t.block_stored
        step += 0 if layer.linear_before_reset else t.block_half
    else:
        step = t.block_step + shape.group_batch * shape.num_passes * shape.num_chunks * t.block_chunk
    step += (sharing - 1) * t.block_sharing
    # The fewer multiprocessors read, the faster each reads, up to the speed of one alone.
    overflow = overflow_clocks(shape, t)
    busy = min(num_blocks, limits.num_multiprocessors)
    step += max(overflow * busy // limits.num_multiprocessors, overflow // _MOST_OF_L2)
    return waves * (load_clocks(shape, t) + layer.num_steps * step)


def gather_clocks(shape: Shape, layer: Layer, state_bytes: int, t: Clocks) -> int:
    """Clocks that a block takes to read the states of its group."""
    return shape.group_batch * layer.hidden_size * state_bytes // t.exchanged_bytes


def grid_clocks(shape: Shape, layer: Layer, t: Clocks) -> int:
    """Clocks that the grid kernel is estimated to take."""
    num_exchanges = 1 if layer.linear_before_reset else 2
    if shape.is_fixed:
        exchange = max(t.exchange, gather_clocks(shape, layer, EXCHANGED_BYTES, t))
        step = num_exchanges * exchange + t.grid_fixed
    else:
        num_rounds = ceil_div(shape.group_batch, shape.round_batch)
        of_round = t.round + (shape.num_passes - 1) * t.round_pass
        # A round is copied while another one is multiplied; if rounds are few, a part of the copying is
        # waited for.
        copies = gather_clocks(shape, layer, COUNTED_BYTES, t) // num_rounds**2
        step = num_exchanges * (num_rounds * of_round + copies)
    return load_clocks(shape, t) + layer.num_steps * (step + product_clocks(shape, t))


def matrix_clocks(shape: Shape, layer: Layer, t: Clocks) -> int:
    """Clocks that the kernel with matrix instructions is estimated to take."""
    num_rounds = ceil_div(shape.group_batch, MATRIX_ROUND_BATCH)
    num_exchanges = 1 if layer.linear_before_reset else 2
    sequences = min(shape.group_batch, MATRIX_ROUND_BATCH)
    gathered = sequences * layer.hidden_size * PAIRED_BYTES // t.l2_bytes
    product = shape.num_chunks * shape.chunk_pieces // WARP_LANES * t.matrix_instruction
    product += shape.num_stored_chunks * shape.chunk_bytes // _SHARED_BYTES_PER_CLOCK
    product += shape.num_overflow_chunks * shape.chunk_bytes // t.l2_bytes
    product //= num_exchanges
    of_tiles = shape.thread_units * t.matrix_tile
    least = t.matrix_round + of_tiles
    if num_rounds == 1:
        step = max(t.matrix_alone + of_tiles, t.exchange + gathered + product)
    elif num_rounds == 2:
        step = 2 * max(least, t.matrix_wait + gathered + product)
    else:
        step = num_rounds * max(least, t.matrix_finish + max(gathered, product))
    return load_clocks(shape, t) + layer.num_steps * num_exchanges * step


def step_clocks(shape: Shape, layer: Layer, limits: Limits, t: Clocks) -> int:
    """Clocks that the kernel of a single step is estimated to take."""
    row_bytes = (layer.input_size + layer.hidden_size) * layer.element_bytes
    of_task = STEP_UNITS * NUM_GATES * row_bytes // t.l2_bytes
    halves = 1 if layer.linear_before_reset else 2
    waves = ceil_div(shape.num_blocks(layer), limits.num_multiprocessors)
    return waves * (halves * t.task + of_task)


def products_clocks(shape: Shape, layer: Layer, limits: Limits, t: Clocks) -> int:
    """Clocks that a product and a launch for each step, or two of each, are estimated to take.

    Reading the operands and the arithmetic are counted one after the other, because no library reaches both
    limits at once. The launches of a few steps are made one by one, so the host may take longer than the GPU;
    a graph repeats the launches of more steps.
    """
    hidden, halves = layer.hidden_size, 1 if layer.linear_before_reset else 2
    weights = layer.num_directions * NUM_GATES * hidden * hidden
    rows = layer.num_directions * layer.batch_size * hidden
    num_bytes = layer.element_bytes * weights + 8 * (NUM_GATES + 1) * rows
    if layer.has_matrices(limits):
        per_clock = limits.num_multiprocessors * _MATRIX_PRODUCTS // t.matrix_instruction
        products = weights * round_up(layer.batch_size, _PRODUCT_ROWS) // per_clock
    else:
        tiles = ceil_div(layer.num_directions * NUM_GATES * hidden, _PRODUCT_ROWS)
        tiles *= ceil_div(layer.batch_size, _PRODUCT_ROWS)
        products = ceil_div(tiles, limits.num_multiprocessors) * hidden * t.product_term
    read = num_bytes // (limits.num_multiprocessors * t.l2_bytes)
    if layer.takes_tf32(limits):
        per_clock = limits.num_multiprocessors * _MATRIX_PRODUCTS // (2 * t.matrix_instruction)
        products = weights * round_up(layer.batch_size, _PRODUCT_ROWS) // per_clock
        launches = (layer.num_directions - 1) * t.launch + t.product_tf32
        return t.launch + layer.num_steps * (halves * launches + max(products, read))
    blocks = shape.num_blocks(layer) * t.product_block // limits.num_multiprocessors
    launches = halves * ((layer.num_directions + 1) * t.launch + t.product_gates + blocks)
    host = halves * t.product_host if layer.num_steps <= _UNRECORDED_STEPS else 0
    return t.launch + layer.num_steps * max(launches + products + read, host)


def split_clocks(shape: Shape, layer: Layer, limits: Limits, t: Clocks) -> int:
    """Clocks that a launch for each step, or two, by operands in two parts are estimated to take.

    Copies are under way while earlier ones are multiplied.
    """
    return _matrix_step_clocks(shape, layer, limits, t, t.split_row, 4, t.split_fixed)


def rounded_clocks(shape: Shape, layer: Layer, limits: Limits, t: Clocks) -> int:
    """The same by rounded operands of three bytes, which the first launch makes of the weights."""
    weights = layer.num_directions * NUM_GATES * layer.hidden_size**2
    rounding = (4 + 3) * weights // (limits.num_multiprocessors * t.l2_bytes)
    return rounding + _matrix_step_clocks(shape, layer, limits, t, t.rounded_row, 3, t.rounded_fixed)


def _matrix_step_clocks(
    shape: Shape, layer: Layer, limits: Limits, t: Clocks, row: int, element_bytes: int, fixed: int
) -> int:
    """Clocks of the launches of a kernel of matrix_step.cuh: `row` for a row of weights in a panel."""
    waves = ceil_div(shape.num_blocks(layer), limits.num_multiprocessors)
    step = 0
    for num_gates in (NUM_GATES,) if layer.linear_before_reset else (2, 1):
        weight_rows = num_gates * shape.thread_units
        products = ceil_div(layer.hidden_size, SPLIT_PANEL_COLUMNS) * weight_rows * row
        copies = element_bytes * (weight_rows + shape.group_batch) * layer.hidden_size // t.l2_bytes
        step += t.launch + waves * (max(products, copies) + fixed)
    return t.launch + layer.num_steps * step


def projection_clocks(layer: Layer, limits: Limits, t: Clocks) -> int:
    """Clocks of the launches before a recurrence that does not multiply the input itself."""
    rows = layer.num_directions * NUM_GATES * layer.hidden_size
    num_bytes = rows * layer.input_size * layer.element_bytes
    return t.launch + num_bytes // (limits.num_multiprocessors * t.l2_bytes)
