"""How a GRU layer is computed: the input's projection, the paths of the recurrence, and the choice.

Most paths multiply all inputs by their weights at once, with the matrix product of the device's library or in
a kernel for the CPU, and then run all steps in one launch that keeps the weights of the recurrence on the
chip. A single step is one launch that does both. Where the chip cannot hold the weights, every step is a
product of the library and a launch for the gates, or in float32 one launch for both. The choice follows the
estimates of clocks.py.
"""

from collections.abc import Callable
from functools import partial

from cudml.enums import DataType
from cudml.operators.gru.clocks import (
    CLOCKS,
    Clocks,
    block_clocks,
    grid_clocks,
    matrix_clocks,
    products_clocks,
    projection_clocks,
    rounded_clocks,
    split_clocks,
    step_clocks,
)
from cudml.operators.gru.grids import block_steps, grid_steps, matrix_steps
from cudml.operators.gru.inputs import packed, project, snapshot_of_lengths
from cudml.operators.gru.layer import Layer, Shape
from cudml.operators.gru.recurrence import Places, too_large
from cudml.operators.gru.serial import PANEL_MIN_PRODUCTS, panel_steps, serial_steps
from cudml.operators.gru.shapes import (
    block_shape,
    grid_shape,
    matrix_shape,
    panel_products,
    products_shape,
    rounded_shape,
    split_shape,
    step_shape,
)
from cudml.operators.gru.steps import products_steps, rounded_products_steps, split_products_steps, step_steps
from cudml.operators.path import Choice, Path, Steps, by_name
from cudml.plans import MAX_GRID_BLOCKS, Limits

#: The steps of a recurrence, whose tensors are packed and whose input may have been projected.
_Recurrence = Callable[[Layer, Places, Limits], Steps]


def _complete(
    recurrence: _Recurrence, *, multiplies: bool = False, reads_lengths: bool = False
) -> Callable[[Layer, Limits], Steps]:
    """`Path.steps`: pack the tensors, project the input, run the recurrence.

    `multiplies` says that the recurrence's own kernels project the input. `reads_lengths` says that they read
    packed UINT32 lengths where they are bound, without a snapshot: a block reads only the lengths of its own
    items.
    """

    def steps(layer: Layer, limits: Limits) -> Steps:
        members = ("recurrence_tensor", *(("input_tensor", "weight_tensor") if multiplies else ()))
        parts = [] if multiplies else [project(layer, limits)]
        places = {}
        for member in members:
            places[member], part = packed(layer.tensors[member], member, limits)
            parts.append(part)
        lengths = layer.tensors.get("sequence_lengths_tensor")
        is_ready = lengths is not None and lengths.data_type == DataType.UINT32 and lengths.is_packed
        snapshot: Steps = ((), ()) if reads_lengths and is_ready else snapshot_of_lengths(layer, limits)
        if snapshot[1]:
            places["sequence_lengths_tensor"] = snapshot[1][0].name
        parts += [snapshot, recurrence(layer, places, limits)]
        return tuple(step for part in parts for step in part[0]), tuple(
            space for part in parts for space in part[1]
        )

    return steps


def steps_of_grid(layer: Layer, limits: Limits, shape: Shape) -> Steps:
    """The steps of the path "grid" in one of its shapes, for a benchmark."""
    return _complete(partial(grid_steps, shape=shape))(layer, limits)


def _is_one_step(layer: Layer, limits: Limits) -> bool:
    return layer.num_steps == 1


def _any_layer(layer: Layer, limits: Limits) -> bool:
    return True


PATHS = by_name(
    Path(
        "block",
        "layers whose states fit one block",
        lambda layer, limits: block_shape(layer, limits) is not None,
        _complete(block_steps),
    ),
    Path(
        "grid",
        "many hidden units: several blocks exchange states",
        lambda layer, limits: grid_shape(layer, limits) is not None,
        _complete(grid_steps),
    ),
    Path(
        "matrix_grid",
        "a 16-bit type and many hidden units: the same by matrix instructions",
        lambda layer, limits: matrix_shape(layer, limits) is not None,
        _complete(matrix_steps),
    ),
    Path(
        "step",
        "one step of few sequences",
        _is_one_step,
        _complete(step_steps, multiplies=True, reads_lengths=True),
    ),
    Path(
        "products",
        "weights that do not fit on the chip, and many sequences: a product for each step",
        lambda layer, limits: products_shape(layer).num_blocks(layer) <= MAX_GRID_BLOCKS,
        _complete(products_steps),
    ),
    Path(
        "split_products",
        "the same in float32, by matrix instructions that take TF32: a launch for each step",
        lambda layer, limits: split_shape(layer, limits) is not None,
        _complete(split_products_steps),
    ),
    Path(
        "rounded_products",
        "the same where TF32 is allowed, by operands rounded to it",
        lambda layer, limits: rounded_shape(layer, limits) is not None,
        _complete(rounded_products_steps),
    ),
    Path("panels", "more steps on a CPU", _any_layer, _complete(panel_steps, multiplies=True)),
    Path("serial", "a few steps on a CPU", _any_layer, _complete(serial_steps, multiplies=True)),
)


def estimated_clocks(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> dict[str, int]:
    """Clocks that a layer is estimated to take on a GPU, by path.

    Raises ValueError if the hidden size is too large for the device.
    """
    clocks: dict[str, int] = {}
    if (block := block_shape(layer, limits)) is not None:
        clocks["block"] = block_clocks(block, layer, limits, t)
    # A grid of one shard would exchange states with itself.
    if (grid := grid_shape(layer, limits, t)) is not None and grid.num_shards > 1:
        clocks["grid"] = grid_clocks(grid, layer, t)
    if (matrix := matrix_shape(layer, limits, t)) is not None:
        clocks["matrix_grid"] = matrix_clocks(matrix, layer, t)
    if PATHS["products"].can_do(layer, limits):
        clocks["products"] = products_clocks(products_shape(layer), layer, limits, t)
    if (split := split_shape(layer, limits, t)) is not None:
        clocks["split_products"] = split_clocks(split, layer, limits, t)
    if (rounded := rounded_shape(layer, limits, t)) is not None:
        clocks["rounded_products"] = rounded_clocks(rounded, layer, limits, t)
    if layer.num_steps == 1:
        more = projection_clocks(layer, limits, t)
        clocks = {name: count + more for name, count in clocks.items()}
        clocks["step"] = step_clocks(step_shape(layer), layer, limits, t)
    if not clocks:
        raise ValueError(too_large(layer, limits))
    return clocks


def choose_path(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Choice[Layer]:
    """The path that is estimated to be the fastest, and why.

    Raises ValueError if the hidden size is too large for the device.
    """
    if layer.has_panels:
        return Choice(PATHS["panels"], "the weights are in panels")
    if limits.warp_lanes == 1:
        products, least = panel_products(layer, limits), PANEL_MIN_PRODUCTS
        if products >= least:
            return Choice(PATHS["panels"], f"{products} products of a batch, {least} or more")
        return Choice(PATHS["serial"], f"{products} products of a batch, fewer than {least}")
    clocks = estimated_clocks(layer, limits, t)
    taken = min(clocks, key=clocks.__getitem__)
    estimates = ", ".join(f"{name} {count}" for name, count in clocks.items())
    return Choice(PATHS[taken], f"estimated clocks: {estimates}")
