"""Recurrences of a GRU by steps: one launch for a single step, or for each step its products and gates."""

from cudml.operators.gru.inputs import product_workspace
from cudml.operators.gru.layer import (
    NUM_GATES,
    PHASE_FINISH,
    PHASE_HALF,
    PHASE_START,
    ROUNDED_CHUNK,
    SPLIT_CHUNKS,
    STEP_CARRIED_ROWS,
    STEP_COUNTS_BYTES,
    Layer,
    Shape,
)
from cudml.operators.gru.recurrence import Places, fitting, recurrence_launch, tensors_of
from cudml.operators.gru.shapes import products_shape, rounded_shape, split_shape, step_shape
from cudml.operators.path import Steps
from cudml.plans import (
    WAIT_REPORT,
    KernelLaunch,
    Limits,
    MatMul,
    Step,
    Workspace,
    product_workspace_size,
    round_up,
)

#: What the blocks of kernels/gru/step.cu wait for, by number.
_STEP_WAITS = ("the reset states of other blocks",)


def step_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """A single launch; unless the layer is linear before reset, its blocks wait for running blocks."""
    shape = step_shape(layer)
    items = layer.num_directions * layer.batch_size * layer.hidden_size
    spaces: tuple[Workspace, ...] = ()
    if not layer.linear_before_reset:
        carried = Workspace("carried", 4 * STEP_CARRIED_ROWS * items)
        spaces = carried, Workspace("counts", STEP_COUNTS_BYTES, is_left_zero=True)
    names = tuple(space.name for space in spaces) or (None, None)
    read = (places.get(name, name) for name in ("input_tensor", "weight_tensor"))
    waits = bool(spaces)
    buffers = (*read, *tensors_of(layer, places)[1:], *names, WAIT_REPORT if waits else None)
    launch = recurrence_launch(layer, shape, "step", buffers, shape.group_batch)
    if waits:
        return (launch._replace(waits=_STEP_WAITS),), spaces
    return (launch._replace(grid=(shape.num_shards, shape.num_groups, layer.num_directions)),), spaces


def products_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """For each step the products with the states, and a launch for the gates after each.

    The steps of the plan are the same objects for every step of the sequence: blocks count the steps in
    memory.
    """
    hidden, batch, directions = layer.hidden_size, layer.batch_size, layer.num_directions
    shape = products_shape(layer)
    rows = directions * batch
    items = rows * hidden
    # First gate and number of gates of each product. Unless the layer is linear before reset, the candidate
    # has a product of its own, after the reset gate.
    firsts = ((0, NUM_GATES),) if layer.linear_before_reset else ((0, 2), (2, 1))
    room = product_workspace(batch, NUM_GATES * hidden, hidden, limits)
    spaces = [
        Workspace("states", 4 * items),
        Workspace("operands", layer.element_bytes * items),
        Workspace("sums", 4 * max(count for _, count in firsts) * items),
        Workspace("counts", 4 * rows * shape.num_shards),
    ]
    if not layer.linear_before_reset:
        spaces.append(Workspace("updates", 4 * items))
    if room:
        spaces.append(Workspace("step_product_workspace", product_workspace_size(room)))
    projection, _, *others = tensors_of(layer, places)
    updates = None if layer.linear_before_reset else "updates"
    buffers = (projection, "sums", *others, "states", "operands", updates, "counts")

    def launch(phase: int) -> KernelLaunch:
        return recurrence_launch(layer, shape, "products", buffers, phase)

    def products(first: int, count: int) -> list[Step]:
        """The products with the rows of `count` gates from `first` on, in each direction."""
        return [
            MatMul(
                a="operands",
                b=places["recurrence_tensor"],
                out="sums",
                m=batch,
                n=count * hidden,
                k=hidden,
                element=layer.element.numpy_name,
                a_offset=direction * batch * hidden,
                b_offset=(direction * NUM_GATES + first) * hidden * hidden,
                out_offset=direction * batch * count * hidden,
                workspace="step_product_workspace" if room else None,
                workspace_bytes=room,
                allows_tf32=layer.takes_tf32(limits),
            )
            for direction in range(directions)
        ]

    step: list[Step] = []
    for number, (first, count) in enumerate(firsts, 1):
        is_last = number == len(firsts)
        step += [*products(first, count), launch(PHASE_FINISH if is_last else PHASE_HALF)]
    return (launch(PHASE_START), *step * layer.num_steps), tuple(spaces)


def split_products_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """For each step a launch, or two unless the layer is linear before reset, after one that starts.

    As in `products_steps`, the launches of all steps are the same objects.
    """
    shape = fitting(split_shape, layer, limits)
    row_bytes = 4 * round_up(layer.hidden_size, SPLIT_CHUNKS[shape.thread_units][0])
    return _matrix_steps(layer, places, "split_products", shape, row_bytes)


def rounded_products_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """The same launches with operands of three bytes; the one that starts also rounds the weights."""
    row_bytes = 3 * round_up(layer.hidden_size, ROUNDED_CHUNK[0])
    carried = (
        Workspace("carried", 4 * layer.num_directions * layer.batch_size * layer.hidden_size),
        Workspace("weights", layer.num_directions * NUM_GATES * layer.hidden_size * row_bytes),
    )
    shape = fitting(rounded_shape, layer, limits)
    return _matrix_steps(layer, places, "rounded_products", shape, row_bytes, carried)


def _matrix_steps(
    layer: Layer,
    places: Places,
    name: str,
    shape: Shape,
    row_bytes: int,
    carried: tuple[Workspace, ...] = (),
) -> Steps:
    """The launches of a kernel of matrix_step.cuh, whose rows of states have `row_bytes`."""
    rows = layer.num_directions * layer.batch_size
    spaces = [
        Workspace("states", rows * row_bytes),
        Workspace("operands", rows * row_bytes),
        Workspace("counts", 4 * shape.num_blocks(layer)),
    ]
    if not layer.linear_before_reset:
        spaces.append(Workspace("updates", 4 * rows * layer.hidden_size))
    updates = None if layer.linear_before_reset else "updates"
    spaces += carried
    names = (space.name for space in carried)
    buffers = (*tensors_of(layer, places), "states", "operands", updates, "counts", *names)

    def launch(phase: int) -> KernelLaunch:
        return recurrence_launch(layer, shape, name, buffers, phase, shape.thread_units)

    phases = (PHASE_FINISH,) if layer.linear_before_reset else (PHASE_HALF, PHASE_FINISH)
    step = tuple(launch(phase) for phase in phases)
    return (launch(PHASE_START), *step * layer.num_steps), tuple(spaces)
