"""Recurrences of a GRU on a CPU, by blocks of one thread, with weights in place or in panels."""

from cudml.operators.gru.layer import (
    CONSTANTS,
    NUM_GATES,
    SERIAL_BIAS_ROWS,
    SERIAL_ROWS,
    SUM_COLUMNS,
    TILE_MAX_UNITS,
    Layer,
)
from cudml.operators.gru.recurrence import Places, recurrence_launch, tensors_of
from cudml.operators.gru.shapes import serial_shape
from cudml.operators.path import Steps
from cudml.plans import KernelLaunch, Limits, Params, ParamStruct, Step, Workspace, round_up
from cudml.tensors import TensorDesc

#: Fewest products of all weights with a batch of states for which copying the weights into panels pays (Zen
#: 4: up to 7 are faster without, for 64 to 512 hidden units).
PANEL_MIN_PRODUCTS = 8

#: Blocks for each thread that prepares a layer, so that none waits long for the last one.
_PREPARE_BLOCKS = 4

#: The structs of kernels/gru/panels.cu and serial_prepare.cu.
_PANEL_PARAMS = ParamStruct("Int32 num_columns, hidden_size, num_blocks")
_PREPARE_PARAMS = ParamStruct("Int64 num_rows", "Int32 num_inputs, hidden_size, num_directions, num_blocks")


def serial_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """The input's projection, then the recurrence; both read the weights in place."""
    return _single_threads(layer, places, limits, panels=False)


def panel_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """The same, with the weights copied into panels first; see kernels/gru/panels.cuh."""
    return _single_threads(layer, places, limits, panels=True)


def _single_threads(layer: Layer, places: Places, limits: Limits, panels: bool) -> Steps:
    shape = serial_shape(layer, limits)
    d, hidden, inputs = layer.num_directions, layer.hidden_size, layer.input_size
    padded = padded_units(hidden)
    num_blocks = _tile_blocks(hidden, limits)
    num_rows = layer.num_steps * layer.batch_size
    state_rows = SERIAL_ROWS * shape.group_batch + SERIAL_BIAS_ROWS
    projection = Workspace("projection", 4 * num_rows * d * NUM_GATES * padded)
    states = Workspace("states", 4 * d * shape.num_groups * state_rows * padded)
    recurrence, weights = (places.get(name, name) for name in ("recurrence_tensor", "weight_tensor"))
    copies: tuple[Workspace, ...] = ()
    copy: tuple[Step, ...] = ()
    part = None
    if panels and not layer.has_panels:
        part_floats = NUM_GATES * TILE_MAX_UNITS * min(inputs, SUM_COLUMNS)
        copies = (
            Workspace("weight_parts", 4 * d * num_blocks * part_floats),
            Workspace("recurrence_panels", 4 * d * NUM_GATES * padded * hidden),
        )
        part, target = (space.name for space in copies)
        tensor = layer.tensors["recurrence_tensor"]
        copy = (panels_step(tensor, recurrence, target, limits, is_split=not layer.linear_before_reset),)
        recurrence = target
    prepare = KernelLaunch(
        source="gru/serial_prepare.cu",
        function="gru_serial_prepare",
        template=(layer.element.cpp, panels),
        grid=(d * num_blocks, 1, 1),
        block=(1, 1, 1),
        buffers=(
            places.get("input_tensor", "input_tensor"),
            *((None, weights) if layer.has_panels else (weights, None)),
            projection.name,
            part,
        ),
        params=Params(
            _PREPARE_PARAMS,
            {
                "num_rows": num_rows,
                "num_inputs": inputs,
                "hidden_size": hidden,
                "num_directions": d,
                "num_blocks": num_blocks,
            },
        ),
        constants=CONSTANTS["serial_prepare"],
    )
    first, in_place, *others = tensors_of(layer, places)
    read = (None, *others, states.name, recurrence) if panels else (in_place, *others, states.name, None)
    launch = recurrence_launch(layer, shape, "serial", (first, *read), panels)._replace(block=(1, 1, 1))
    return (*copy, prepare, launch), (projection, *copies, states)


def padded_units(hidden: int) -> int:
    """The hidden size, rounded up to whole tiles.

    A tile's width depends on the CPU's registers, which a plan does not know; the maximum is taken.
    """
    return round_up(hidden, TILE_MAX_UNITS)


def _tile_blocks(hidden: int, limits: Limits) -> int:
    """Blocks that take a direction's tiles in turn."""
    most = _PREPARE_BLOCKS * limits.num_multiprocessors
    return min(padded_units(hidden) // TILE_MAX_UNITS, most)


def panels_step(
    tensor: TensorDesc, source: str, target: str, limits: Limits, *, is_split: bool
) -> KernelLaunch:
    """The launch that copies packed weights, (1, D, 3H, columns), into panels (kernels/gru/panels.cuh).

    `is_split` gives the candidate's rows a panel of their own, for recurrences that multiply them later.
    """
    _, num_directions, num_rows, num_columns = tensor.sizes
    hidden = num_rows // NUM_GATES
    num_blocks = _tile_blocks(hidden, limits)
    return KernelLaunch(
        source="gru/panels.cu",
        function="gru_panels",
        template=(tensor.element.cpp, is_split),
        grid=(num_directions * num_blocks, 1, 1),
        block=(1, 1, 1),
        buffers=(source, target),
        params=Params(
            _PANEL_PARAMS, {"num_columns": num_columns, "hidden_size": hidden, "num_blocks": num_blocks}
        ),
        constants=CONSTANTS["panels"],
    )
