"""Layers on top of each other in one launch: kernels/gru/wave.cu.

Each layer has blocks of its own, and takes the states of the layer below together with its own, which are on
their way at the same time. So a stack takes little longer than one layer, if all of them fit on the chip.
"""

from dataclasses import dataclass, replace

from cudml.operators.gru.clocks import CLOCKS, gather_clocks, load_clocks, product_clocks, stored_clocks
from cudml.operators.gru.grids import WAITS
from cudml.operators.gru.inputs import packed, project, snapshot_of_lengths
from cudml.operators.gru.layer import (
    COLUMNS_PER_WARP,
    EXCHANGED_BYTES,
    EXCHANGED_STATES,
    FIXED_INPUT_BYTES,
    GRID_WARPS,
    GROUPS_PER_WARP,
    NUM_GATES,
    QUAD,
    WAVE_BATCH,
    WAVE_EARLY_UNITS,
    WAVE_MAX_LAYERS,
    WAVE_REGISTER_CHUNKS,
    WAVE_SUMS,
    Layer,
    Shape,
    is_early,
)
from cudml.operators.gru.paths import estimated_clocks
from cudml.operators.gru.recurrence import recurrence_launch
from cudml.operators.path import Path, Steps, by_name
from cudml.plans import WAIT_REPORT, WARP_LANES, Fill, Limits, Workspace, ceil_div, round_up
from cudml.tensors import TensorDesc


def member_of(layer: int, member: str) -> str:
    """The name of a layer's own tensor among those of a stack."""
    return member if layer == 0 else f"layers[{layer}].{member}"


@dataclass(frozen=True)
class Stack:
    """Layers as the path sees them, each with the tensors of a layer that runs by itself.

    `whole` has the tensors of the first layer, except that the states are those of all layers, and the output
    sequence is the last layer's.
    """

    layers: tuple[Layer, ...]
    whole: Layer

    def __str__(self) -> str:
        return f"{len(self.layers)} layers, the first {self.layers[0]}"


def wave_shape(stack: Stack, limits: Limits) -> Shape | None:
    """The fastest shape of the kernel for all layers at once; None if it cannot run.

    Each layer has `num_groups * num_shards` blocks. `num_stored_chunks` counts the chunks of R in shared
    storage; W has the same number, in `fixed_bytes`.
    """
    if not 2 <= len(stack.layers) <= WAVE_MAX_LAYERS or stack.whole.num_directions > 1:
        return None
    # A group has a block of each layer at least.
    most_groups = min(stack.whole.batch_size, limits.resident_blocks // len(stack.layers))
    shapes = [
        shape
        for units in WAVE_REGISTER_CHUNKS
        if units <= WAVE_EARLY_UNITS or not is_early(limits)
        for num_groups in range(1, most_groups + 1)
        if (shape := _shape_of(stack, limits, num_groups, units)) is not None
    ]
    return min(shapes, key=lambda shape: wave_clocks(shape, stack), default=None)


def _shape_of(stack: Stack, limits: Limits, num_groups: int, thread_units: int) -> Shape | None:
    hidden = stack.whole.hidden_size
    units = thread_units * GROUPS_PER_WARP
    group_batch = ceil_div(stack.whole.batch_size, num_groups)
    num_groups = ceil_div(stack.whole.batch_size, group_batch)
    num_shards = ceil_div(hidden, units)
    # A thread finishes one hidden unit of one sequence.
    if group_batch > GRID_WARPS * WARP_LANES // units:
        return None
    if len(stack.layers) * num_groups * num_shards > limits.resident_blocks:
        return None
    num_chunks = ceil_div(hidden, COLUMNS_PER_WARP * GRID_WARPS)
    num_in_registers = min(WAVE_REGISTER_CHUNKS[thread_units], num_chunks)
    num_stored = num_chunks - num_in_registers
    shape = Shape(
        num_warps=GRID_WARPS,
        thread_units=thread_units,
        num_groups=num_groups,
        group_batch=group_batch,
        num_shards=num_shards,
        num_passes=1,
        round_batch=group_batch,
        # A state of the block's layer, one of the layer below, and the partial sums of either in turn.
        state_bytes=4 * (2 * num_chunks * COLUMNS_PER_WARP * GRID_WARPS + GRID_WARPS * WAVE_SUMS * units),
        num_chunks=num_chunks,
        piece_bytes=QUAD * stack.whole.element_bytes,
        num_register_chunks=num_in_registers,
        num_stored_chunks=num_stored,
        product_batch=WAVE_BATCH,
        is_fixed=True,
    )
    shape = shape._replace(fixed_bytes=FIXED_INPUT_BYTES + num_stored * shape.chunk_bytes)
    return shape if shape.shared_bytes <= limits.shared_bytes_per_block else None


def wave_clocks(shape: Shape, stack: Stack) -> int:
    """Clocks that the layers are estimated to take after the first one's input is projected.

    A step reads the states of two layers, and multiplies them with weights in registers and shared storage.
    """
    layer = stack.whole
    num_chunks = 2 * shape.num_chunks
    both = shape._replace(num_chunks=num_chunks, num_register_chunks=num_chunks, num_stored_chunks=0)
    busy = gather_clocks(shape, layer, EXCHANGED_BYTES, CLOCKS) + product_clocks(both, CLOCKS)
    step = CLOCKS.wave_fixed + 5 * busy // 4 + stored_clocks(shape, 2 * shape.num_stored_chunks)
    step += 0 if layer.linear_before_reset else CLOCKS.exchange
    return load_clocks(shape, CLOCKS) + (layer.num_steps + len(stack.layers) - 1) * step


def chain_clocks(stack: Stack, limits: Limits) -> int:
    """Clocks that layers are estimated to take one after the other, after the first one's projection."""
    recurrences = sum(min(estimated_clocks(layer, limits).values()) for layer in stack.layers)
    # The estimate of a single step includes its product and its launch.
    is_whole = stack.whole.num_steps == 1
    further = 0 if is_whole else CLOCKS.further_layer
    return recurrences + (len(stack.layers) - 1) * further


def takes_wave(stack: Stack, limits: Limits) -> bool:
    """Whether one launch for all layers is estimated to take a twentieth less than one layer after the other.

    Stacks were measured to take up to a tenth longer than predicted, and the estimates have that tenth. Of 48
    shapes on an H200, 46 are estimated within 10 % of that time, the others within 16.
    """
    if limits.warp_lanes == 1 or (shape := wave_shape(stack, limits)) is None:
        return False
    return 20 * wave_clocks(shape, stack) < 19 * chain_clocks(stack, limits)


def _wave_steps(stack: Stack, limits: Limits) -> Steps:
    shape = wave_shape(stack, limits)
    if shape is None:
        raise ValueError(f"GRU: {stack} do not fit the device at once")
    whole, num_layers = stack.whole, len(stack.layers)
    lengths = snapshot_of_lengths(whole, limits)
    parts = [project(stack.layers[0], limits), lengths]
    absent = (None,) * (WAVE_MAX_LAYERS - num_layers)

    def of_layers(member: str, first: int) -> tuple[str | None, ...]:
        """The buffers of a tensor of each layer from `first` on, packed."""
        names: list[str | None] = []
        for number, layer in enumerate(stack.layers[first:], first):
            tensor = layer.tensors.get(member)
            if tensor is None:
                names.append(None)
                continue
            name, part = packed(tensor, member_of(number, member), limits)
            names.append(name)
            parts.append(part)
        return *names, *absent

    weights = (
        *of_layers("recurrence_tensor", 0),
        *of_layers("weight_tensor", 1),
        *of_layers("bias_tensor", 0),
    )
    row_bytes = whole.batch_size * EXCHANGED_BYTES * round_up(whole.hidden_size, EXCHANGED_STATES)
    # Two buffers for each layer's own states, and one for each step of the states passed to the layer above.
    num_rows = 2 * num_layers + (num_layers - 1) * whole.num_steps
    exchange = Workspace("exchange", num_rows * row_bytes)
    buffers = (
        "projection",
        *weights,
        "hidden_init_tensor" if "hidden_init_tensor" in whole.tensors else None,
        lengths[1][0].name if lengths[1] else None,
        "output_sequence_tensor",
        "output_single_tensor",
        exchange.name,
        WAIT_REPORT,
    )
    bias = TensorDesc(whole.tensors["input_tensor"].data_type, (1, 1, 1, 2 * NUM_GATES * whole.hidden_size))
    launched = replace(whole, tensors={**whole.tensors, "bias_tensor": bias})
    launch = recurrence_launch(launched, shape, "wave", buffers, shape.thread_units)
    launch = launch._replace(grid=(num_layers * launch.grid[0], 1, 1), cooperative=True, waits=WAITS)
    # Exchanges are numbered from 1, so 0 marks a word that has not been sent.
    parts.append(((Fill(exchange.name, exchange.num_bytes), launch), (exchange,)))
    return tuple(step for part in parts for step in part[0]), tuple(
        space for part in parts for space in part[1]
    )


#: The ways to compute several layers at once.
PATHS = by_name(
    Path(
        "wave",
        "two to four layers of one direction that fit on the chip together",
        lambda stack, limits: wave_shape(stack, limits) is not None,
        _wave_steps,
    )
)
