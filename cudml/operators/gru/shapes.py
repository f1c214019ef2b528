"""How the kernels of a GRU divide a layer."""

from collections.abc import Iterable, Iterator

from cudml.operators.gru.clocks import (
    CLOCKS,
    Clocks,
    grid_clocks,
    matrix_clocks,
    rounded_clocks,
    split_clocks,
)
from cudml.operators.gru.layer import (
    BIASES_BYTES,
    BLOCK_EARLY_REGISTER_CHUNKS,
    BLOCK_MAX_WARPS,
    BLOCK_REGISTER_CHUNKS,
    BLOCK_UNITS,
    COLUMNS_PER_WARP,
    FIXED_INPUT_BYTES,
    GRID_BATCH,
    GRID_REGISTER_CHUNKS,
    GRID_UNITS,
    GRID_WARPS,
    GROUPS_PER_WARP,
    MATRIX_CHUNK_COLUMNS,
    MATRIX_LOADED_CHUNKS,
    MATRIX_ONE_TILE_CAPABILITY,
    MATRIX_PIECE_BYTES,
    MATRIX_REGISTER_TILES,
    MATRIX_ROUND_BATCH,
    MATRIX_TILE_ROWS,
    MATRIX_TILES,
    NUM_GATES,
    PRODUCTS_THREADS,
    QUAD,
    ROUNDED_CHUNK,
    ROUNDED_CHUNK_BYTES,
    ROWS_BATCH,
    SPLIT_BATCH,
    SPLIT_CHUNKS,
    SPLIT_THREADS,
    STEP_BATCH,
    STEP_THREADS,
    STEP_UNITS,
    Layer,
    Shape,
    is_early,
)
from cudml.plans import MAX_GRID_BLOCKS, WARP_LANES, Limits, ceil_div

# Fewest sequences of a CPU's thread: with fewer, several threads are no faster than one.
_SERIAL_MIN_BATCH = 16

# Offsets of weights have 32 bits.
_MOST_SPLIT_WEIGHTS = 1 << 32

# Sequences of a round of the grid kernel. A warp multiplies GRID_BATCH at once.
_ROUND_BATCHES = (1, 2, 4, 8, 16)


def _stored(shape: Shape, limits: Limits) -> Shape:
    """The shape with as many chunks in shared storage as fit."""
    fitting = (limits.shared_bytes_per_block - shape.shared_bytes) // shape.chunk_bytes
    return shape._replace(num_stored_chunks=min(shape.num_spilled_chunks, fitting))


def _filled(shape: Shape, limits: Limits, round_batch: int) -> Shape:
    """The shape with weights in shared storage, and fixed items if a thread has at most one.

    Fixed items take one pass, and no more sequences than the block's threads finish at once.
    """
    if shape.num_passes == 1 and shape.group_batch <= round_batch:
        fixed = shape._replace(is_fixed=True, fixed_bytes=shape.fixed_bytes + FIXED_INPUT_BYTES)
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
    # With one sequence, items can be fixed. Several blocks of one sequence on a multiprocessor, or one after
    # the other, take less time than one block with all of these sequences.
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
    return min(BLOCK_EARLY_REGISTER_CHUNKS, num_chunks) if is_early(limits) else num_chunks


def grid_shape(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Shape | None:
    """The fastest shape of the kernel whose blocks exchange states; None if it cannot run."""
    shapes = grid_shapes(layer, limits)
    return min(shapes, key=lambda shape: grid_clocks(shape, layer, t), default=None)


def grid_shapes(layer: Layer, limits: Limits) -> list[Shape]:
    """The shapes that the kernel can have."""
    return [
        shape
        for num_groups in _possible_groups(layer, limits)
        for shape in _grid_shapes_of(layer, limits, num_groups)
    ]


def _possible_groups(layer: Layer, limits: Limits) -> list[int]:
    """The numbers of groups that leave at least one block to each group and direction.

    Of the numbers that give groups of equally many sequences, only the least.
    """
    most = min(layer.batch_size, limits.resident_blocks // layer.num_directions)
    batches = dict.fromkeys(ceil_div(layer.batch_size, number) for number in range(1, most + 1))
    return [ceil_div(layer.batch_size, group_batch) for group_batch in batches]


def _grid_shapes_of(layer: Layer, limits: Limits, num_groups: int) -> Iterator[Shape]:
    """A shape with fixed items, if a thread has at most one, and shapes with rounds of 1 to 16 sequences."""
    group_batch = ceil_div(layer.batch_size, num_groups)
    most_shards = limits.resident_blocks // (layer.num_directions * num_groups)
    pass_units = GRID_UNITS * GROUPS_PER_WARP
    num_tiles = ceil_div(layer.hidden_size, pass_units)
    num_passes = ceil_div(num_tiles, most_shards)
    num_chunks = ceil_div(layer.hidden_size, COLUMNS_PER_WARP * GRID_WARPS)
    # A state, and its partial sums of a pass.
    state_bytes = 4 * num_chunks * COLUMNS_PER_WARP * GRID_WARPS
    state_bytes += 4 * GRID_WARPS * NUM_GATES * pass_units
    # A thread finishes one hidden unit of one sequence.
    most = GRID_WARPS * WARP_LANES // pass_units
    shape = Shape(
        num_warps=GRID_WARPS,
        thread_units=GRID_UNITS,
        num_groups=num_groups,
        group_batch=group_batch,
        num_shards=ceil_div(num_tiles, num_passes),
        num_passes=num_passes,
        round_batch=group_batch,
        state_bytes=state_bytes,
        num_chunks=num_chunks,
        piece_bytes=QUAD * layer.element_bytes,
        num_register_chunks=min(GRID_REGISTER_CHUNKS, num_chunks),
        product_batch=GRID_BATCH,
    )
    if num_passes == 1 and group_batch <= most:
        fixed = shape._replace(is_fixed=True, fixed_bytes=FIXED_INPUT_BYTES)
        if fixed.shared_bytes <= limits.shared_bytes_per_block:
            yield _stored(fixed, limits)
    # Shared storage holds two rounds at a time, and the sums of two passes.
    bias_bytes = BIASES_BYTES * num_passes * pass_units
    shape = shape._replace(state_bytes=2 * state_bytes, fixed_bytes=bias_bytes)
    for round_batch in _ROUND_BATCHES:
        if round_batch < 2 * group_batch:
            rounds = shape._replace(round_batch=round_batch)
            if rounds.shared_bytes <= limits.shared_bytes_per_block:
                yield _stored(rounds, limits)


def matrix_shape(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Shape | None:
    """The fastest shape of the kernel with matrix instructions; None if it cannot run."""
    if not layer.has_matrices(limits):
        return None
    shapes = [
        shape
        for num_groups in _possible_groups(layer, limits)
        for tiles in MATRIX_TILES
        if (shape := _matrix_shape_of(layer, limits, num_groups, tiles)) is not None
    ]
    return min(shapes, key=lambda shape: matrix_clocks(shape, layer, t), default=None)


def _matrix_shape_of(layer: Layer, limits: Limits, num_groups: int, tiles: int) -> Shape | None:
    group_batch = ceil_div(layer.batch_size, num_groups)
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
    # If the states of chunks are loaded together, their weights are in one place; the first chunks' are on
    # the chip.
    shape = _stored(shape, limits)
    if shape.num_overflow_chunks == 0:
        return shape
    in_place = shape.num_register_chunks + shape.num_stored_chunks
    in_place -= in_place % MATRIX_LOADED_CHUNKS
    if in_place == 0:
        return None
    return shape._replace(num_stored_chunks=in_place - shape.num_register_chunks)


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


def split_shape(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Shape | None:
    """The fastest shape of the kernel with operands in two parts; None if it cannot run."""
    shapes = [
        _matrix_step_shape(layer, units, columns, stages, 4 * columns)
        for units, (columns, stages) in SPLIT_CHUNKS.items()
    ]
    fitting = _fitting(shapes, layer, limits)
    return min(fitting, key=lambda shape: split_clocks(shape, layer, limits, t), default=None)


def rounded_shape(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Shape | None:
    """The fastest shape of the kernel with operands rounded to TF32; None if it cannot run."""
    if not layer.takes_tf32(limits):
        return None
    shapes = [_matrix_step_shape(layer, units, *ROUNDED_CHUNK, ROUNDED_CHUNK_BYTES) for units in SPLIT_CHUNKS]
    fitting = _fitting(shapes, layer, limits)
    return min(fitting, key=lambda shape: rounded_clocks(shape, layer, limits, t), default=None)


def _fitting(shapes: Iterable[Shape], layer: Layer, limits: Limits) -> list[Shape]:
    """The shapes of kernels with matrices of TF32 that can run."""
    num_weights = layer.num_directions * NUM_GATES * layer.hidden_size**2
    if not layer.has_split_products(limits) or num_weights >= _MOST_SPLIT_WEIGHTS:
        return []
    return [
        shape
        for shape in shapes
        if shape.shared_bytes <= limits.shared_bytes_per_block and shape.num_blocks(layer) <= MAX_GRID_BLOCKS
    ]


def _matrix_step_shape(layer: Layer, units: int, columns: int, stages: int, chunk_bytes: int) -> Shape:
    """A block has `units` hidden units: those of the weights' rows of the most gates of a launch."""
    rows = SPLIT_BATCH + (NUM_GATES if layer.linear_before_reset else 2) * units
    return Shape(
        num_warps=SPLIT_THREADS // WARP_LANES,
        thread_units=units,
        num_groups=ceil_div(layer.batch_size, SPLIT_BATCH),
        group_batch=SPLIT_BATCH,
        num_shards=ceil_div(layer.hidden_size, units),
        num_passes=1,
        round_batch=SPLIT_BATCH,
        state_bytes=0,
        num_chunks=ceil_div(layer.hidden_size, columns),
        piece_bytes=0,
        num_register_chunks=0,
        fixed_bytes=stages * rows * chunk_bytes,
    )


def panel_products(layer: Layer, limits: Limits) -> int:
    """The number of times that a thread multiplies the weights of the recurrence with a batch of states."""
    return layer.num_steps * ceil_div(serial_shape(layer, limits).group_batch, ROWS_BATCH)


def serial_shape(layer: Layer, limits: Limits) -> Shape:
    """The shape of the kernel of single threads: sequences are divided among the multiprocessors."""
    blocks_per_direction = max(1, limits.num_multiprocessors // layer.num_directions)
    least = min(layer.batch_size, _SERIAL_MIN_BATCH)
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
