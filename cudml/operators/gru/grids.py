"""Recurrences of a GRU whose weights stay on the chip: in a block, or in a grid that exchanges states."""

from cudml.operators.gru.layer import (
    CARRIED_BYTES,
    COUNTED_BYTES,
    EXCHANGED_BYTES,
    EXCHANGED_STATES,
    MATRIX_ROUND_BATCH,
    MATRIX_TILE_COLUMNS,
    PAIRED_BYTES,
    QUAD,
    Layer,
    Shape,
)
from cudml.operators.gru.recurrence import (
    Places,
    fitting,
    names_of,
    overflow_of,
    recurrence_launch,
    tensors_of,
)
from cudml.operators.gru.shapes import block_shape, grid_shape, matrix_shape
from cudml.operators.path import Steps
from cudml.plans import WAIT_REPORT, Fill, KernelLaunch, Limits, Workspace, ceil_div, round_up

#: What the blocks of a grid wait for, by number: kernels/gru/exchanged_grid.cuh.
WAITS = ("the states that other blocks send", "the states of a layer and of the one below")


def block_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """One launch; a block has all weights of a direction."""
    shape = fitting(block_shape, layer, limits)
    overflow = overflow_of(layer, shape)
    buffers = (*tensors_of(layer, places), *names_of(overflow))
    fixed_chunks = shape.num_chunks if shape.is_fixed else 0
    launch = recurrence_launch(layer, shape, "block", buffers, fixed_chunks, shape.num_register_chunks)
    return (launch,), overflow


def grid_steps(layer: Layer, places: Places, limits: Limits, shape: Shape | None = None) -> Steps:
    """A cooperative launch; blocks have parts of the weights, and exchange states."""
    shape = shape or fitting(grid_shape, layer, limits)
    exchange: tuple[Workspace, ...] = ()
    carried: tuple[Workspace, ...] = ()
    if not shape.is_fixed:
        exchange = (_counted_exchange(layer, shape),)
    elif layer.num_steps > 1 or not layer.linear_before_reset:
        exchange = (_exchange(layer, EXCHANGED_BYTES, EXCHANGED_STATES),)
    if not (layer.linear_before_reset or shape.is_fixed):
        items = layer.num_directions * layer.batch_size * layer.hidden_size
        carried = (Workspace("carried", CARRIED_BYTES * items),)
    overflow = overflow_of(layer, shape)
    names = (*names_of(exchange), *names_of(carried), *names_of(overflow))
    launch = recurrence_launch(layer, shape, "grid", (*tensors_of(layer, places), *names), shape.is_fixed)
    return _exchanging(launch, exchange, (*carried, *overflow))


def matrix_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """A cooperative launch as in `grid_steps`, with matrix instructions."""
    shape = fitting(matrix_shape, layer, limits)
    exchange = (_matrix_exchange(layer, shape),)
    overflow = overflow_of(layer, shape)
    buffers = (*tensors_of(layer, places), *names_of(exchange), *names_of(overflow))
    launch = recurrence_launch(layer, shape, "matrix_grid", buffers, shape.thread_units, shape.is_fixed)
    return _exchanging(launch, exchange, overflow)


def _exchange(layer: Layer, state_bytes: int, load_states: int) -> Workspace:
    """Two buffers of states that take turns; rows are padded to whole loads of `load_states` states."""
    rows = layer.num_directions * layer.batch_size
    return Workspace("exchange", 2 * rows * state_bytes * round_up(layer.hidden_size, load_states))


def _matrix_exchange(layer: Layer, shape: Shape) -> Workspace:
    """Two buffers of whole rounds and tiles of states in pairs, then two of states alone."""
    num_rounds = layer.num_directions * shape.num_groups * ceil_div(shape.group_batch, MATRIX_ROUND_BATCH)
    states = num_rounds * MATRIX_ROUND_BATCH * round_up(layer.hidden_size, MATRIX_TILE_COLUMNS)
    return Workspace("exchange", 2 * states * (PAIRED_BYTES + EXCHANGED_BYTES))


def _counted_exchange(layer: Layer, shape: Shape) -> Workspace:
    """A count for each shard and round of every group, then two buffers of states in whole quads."""
    num_rounds = ceil_div(shape.group_batch, shape.round_batch)
    num_counts = round_up(shape.num_blocks(layer) * num_rounds, QUAD)
    states = _exchange(layer, COUNTED_BYTES, QUAD).num_bytes
    return Workspace("exchange", COUNTED_BYTES * num_counts + states)


def _exchanging(
    launch: KernelLaunch, exchange: tuple[Workspace, ...], others: tuple[Workspace, ...]
) -> Steps:
    """The steps of a kernel whose blocks exchange states."""
    launch = launch._replace(buffers=(*launch.buffers, WAIT_REPORT), cooperative=True, waits=WAITS[:1])
    # Exchanges are numbered from 1, so 0 marks a word that has not been sent, or a round that no shard has
    # counted.
    fills = tuple(Fill(space.name, space.num_bytes) for space in exchange)
    return (*fills, launch), (*exchange, *others)
