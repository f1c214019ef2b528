"""How a GRU layer is computed: the input's projection, the paths of the recurrence, and the choice.

Most paths multiply all inputs by their weights at once, with the matrix product of the device's library or in
a kernel for the CPU, and then run all steps in one launch that keeps the weights of the recurrence on the
chip. A single step is one launch that does both. Where the chip cannot hold the weights, every step is a
product of the library and a launch for the gates. The choice follows the estimates of clocks.py.
"""

from collections.abc import Callable, Mapping
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
    step_clocks,
)
from cudml.operators.gru.layer import (
    CARRIED_BYTES,
    CONSTANTS,
    COUNTED_BYTES,
    EXCHANGED_BYTES,
    EXCHANGED_STATES,
    MATRIX_EXCHANGED_BYTES,
    MATRIX_EXCHANGED_STATES,
    NUM_GATES,
    PRODUCTS_FINISH,
    PRODUCTS_HALF,
    PRODUCTS_START,
    QUAD,
    SERIAL_BIAS_ROWS,
    SERIAL_ROWS,
    STEP_CARRIED_ROWS,
    STEP_COUNTS_BYTES,
    SUM_COLUMNS,
    TILE_MAX_UNITS,
    Layer,
    Shape,
)
from cudml.operators.gru.shapes import (
    block_shape,
    grid_shape,
    matrix_shape,
    panel_products,
    products_shape,
    serial_shape,
    step_shape,
)
from cudml.operators.path import Choice, Path, Steps, by_name
from cudml.operators.slice.paths import tensor_copy_step
from cudml.plans import (
    MAX_GRID_BLOCKS,
    WAIT_REPORT,
    Copy,
    Fill,
    KernelLaunch,
    Limits,
    MatMul,
    Params,
    ParamStruct,
    Step,
    Value,
    Workspace,
    ceil_div,
    product_workspace_size,
    round_up,
)
from cudml.tensors import TensorDesc, num_elements

#: The buffers of the tensors that are not read where they are bound, by member.
Places = Mapping[str, str]

#: The steps of a recurrence, whose tensors are packed and whose input may have been projected.
_Recurrence = Callable[[Layer, Places, Limits], Steps]

#: What the blocks of a grid wait for, by number: kernels/gru/exchanged_grid.cuh.
WAITS = ("the states that other blocks send", "the states of a layer and of the one below")
#: The same of kernels/gru/step.cu.
_STEP_WAITS = ("the reset states of other blocks",)

#: Bytes of a length as the recurrence takes it, and threads of a block that converts others.
_LENGTH_BYTES, _LENGTH_THREADS = 4, 128

#: A product's workspace holds partial sums. The library never fails with this much (NVIDIA's documentation of
#: `cublasSetWorkspace`), and takes more than `Limits.product_workspace_bytes` for no size.
_LEAST_PRODUCT_WORKSPACE = 16 << 10

#: For less than a large product, an estimate from above: tiles of at most this many rows and columns, and a
#: partial sum of each for at least this many products.
_PRODUCT_TILE, _PARTIAL_PRODUCTS = 128, 64

# On a CPU: the products of all weights with a batch of states from which copying the weights into panels pays
# (Zen 4: up to 7 are faster without, for 64 to 512 hidden units), and blocks for each thread that prepares a
# layer, so that none waits long for the last one.
_PANEL_MIN_PRODUCTS = 8
_PREPARE_BLOCKS = 4

#: The maximum number of activations of a layer.
_MAX_ACTIVATIONS = 4

#: The structs of kernels/gru/lengths.cu, panels.cu and serial_prepare.cu, and `GruParams` of layer.cuh.
_LENGTHS_PARAMS = ParamStruct("Int64 num_lengths, stride, num_steps", "Int32 length_bytes, length_is_signed")
_PANEL_PARAMS = ParamStruct("Int32 num_columns, hidden_size, num_blocks")
_PREPARE_PARAMS = ParamStruct("Int64 num_rows", "Int32 num_inputs, hidden_size, num_directions, num_blocks")
_GRU_PARAMS = ParamStruct(
    "Int64 bias_strides[2], initial_strides[3], sequence_strides[4], single_strides[3]",
    "Int64 batch_size, group_batch, overflow_pieces",
    "UInt32 num_steps",
    "Int32 hidden_size, num_directions, direction, num_groups, num_shards, num_passes, round_batch",
    f"Int32 num_stored_chunks, activation_codes[{_MAX_ACTIVATIONS}]",
    f"Float32 activation_firsts[{_MAX_ACTIVATIONS}], activation_seconds[{_MAX_ACTIVATIONS}], clip",
    "Int32 input_size",
)


def packed(tensor: TensorDesc, member: str, limits: Limits) -> tuple[str, Steps]:
    """The buffer with the packed tensor, and the steps that copy it there if it is not packed already."""
    if tensor.is_packed:
        return member, ((), ())
    name = f"packed_{member}"
    target = TensorDesc(tensor.data_type, tensor.sizes)
    num_bytes = num_elements(tensor.sizes) * tensor.element.size
    step = tensor_copy_step(tensor, member, target, name, limits)
    return name, ((step,), (Workspace(name, num_bytes),))


def snapshot_of_lengths(layer: Layer, limits: Limits) -> Steps:
    """The steps that copy the lengths, if there are any, to the workspace "lengths".

    All blocks of a grid must see the same lengths, even if another stream changes them in the meantime.
    """
    tensor = layer.tensors.get("sequence_lengths_tensor")
    if tensor is None:
        return (), ()
    space = Workspace("lengths", _LENGTH_BYTES * layer.batch_size)
    if tensor.data_type != DataType.UINT32 or limits.warp_lanes == 1:
        return (_converted_lengths(layer, tensor, space.name, limits),), (space,)
    if tensor.is_packed:
        return (Copy("sequence_lengths_tensor", space.name, space.num_bytes),), (space,)
    target = TensorDesc(tensor.data_type, tensor.sizes)
    return (tensor_copy_step(tensor, "sequence_lengths_tensor", target, space.name, limits),), (space,)


def _converted_lengths(layer: Layer, tensor: TensorDesc, target: str, limits: Limits) -> KernelLaunch:
    """The launch of kernels/gru/lengths.cu."""
    num_threads = _LENGTH_THREADS if limits.warp_lanes > 1 else 1
    num_blocks = min(-(-layer.batch_size // num_threads), limits.num_multiprocessors)
    return KernelLaunch(
        source="gru/lengths.cu",
        function="gru_lengths",
        template=(),
        grid=(num_blocks, 1, 1),
        block=(num_threads, 1, 1),
        buffers=("sequence_lengths_tensor", target),
        params=Params(
            _LENGTHS_PARAMS,
            {
                "num_lengths": layer.batch_size,
                "stride": tensor.element_strides[-1],
                "num_steps": layer.num_steps,
                "length_bytes": tensor.element.size,
                "length_is_signed": int(tensor.element.kind == "i"),
            },
        ),
    )


def project(layer: Layer, limits: Limits) -> Steps:
    """X W^T for all steps and directions, in the workspace "projection": (T, N, D, 3H) of float32."""
    a, (a_steps, a_spaces) = packed(layer.tensors["input_tensor"], "input_tensor", limits)
    b, (b_steps, b_spaces) = packed(layer.tensors["weight_tensor"], "weight_tensor", limits)
    m = layer.num_steps * layer.batch_size
    n = layer.num_directions * NUM_GATES * layer.hidden_size
    room = _product_workspace(m, n, layer.input_size, limits)
    product = MatMul(
        a=a,
        b=b,
        out="projection",
        m=m,
        n=n,
        k=layer.input_size,
        element=layer.element.numpy_name,
        workspace="product_workspace" if room else None,
        workspace_bytes=room,
    )
    spaces = (Workspace("product_workspace", product_workspace_size(room)),) if room else ()
    return (*a_steps, *b_steps, product), (*a_spaces, *b_spaces, Workspace("projection", 4 * m * n), *spaces)


def _product_workspace(m: int, n: int, k: int, limits: Limits) -> int:
    """Bytes of the library's workspace for a product: what the device recommends, less for a small one."""
    tiles = round_up(m, _PRODUCT_TILE) * round_up(n, _PRODUCT_TILE)
    partial_sums = 4 * tiles * ceil_div(k, _PARTIAL_PRODUCTS)
    return min(limits.product_workspace_bytes, max(partial_sums, _LEAST_PRODUCT_WORKSPACE))


def _block_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    shape = _fitting(block_shape, layer, limits)
    overflow = _overflow(layer, shape)
    buffers = (*_tensors(layer, places), *_names(overflow))
    fixed_chunks = shape.num_chunks if shape.is_fixed else 0
    launch = recurrence_launch(layer, shape, "block", buffers, fixed_chunks, shape.num_register_chunks)
    return (launch,), overflow


def _grid_steps(layer: Layer, places: Places, limits: Limits, shape: Shape | None = None) -> Steps:
    shape = shape or _fitting(grid_shape, layer, limits)
    exchange: tuple[Workspace, ...] = ()
    carried: tuple[Workspace, ...] = ()
    if not shape.is_fixed:
        exchange = (_counted_exchange(layer, shape),)
    elif layer.num_steps > 1 or not layer.linear_before_reset:
        exchange = (_exchange(layer, EXCHANGED_BYTES, EXCHANGED_STATES),)
    if not (layer.linear_before_reset or shape.is_fixed):
        items = layer.num_directions * layer.batch_size * layer.hidden_size
        carried = (Workspace("carried", CARRIED_BYTES * items),)
    overflow = _overflow(layer, shape)
    names = (*_names(exchange), *_names(carried), *_names(overflow))
    launch = recurrence_launch(layer, shape, "grid", (*_tensors(layer, places), *names), shape.is_fixed)
    return _exchanging(launch, exchange, (*carried, *overflow))


def _matrix_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    shape = _fitting(matrix_shape, layer, limits)
    exchange = (_exchange(layer, MATRIX_EXCHANGED_BYTES, MATRIX_EXCHANGED_STATES),)
    overflow = _overflow(layer, shape)
    buffers = (*_tensors(layer, places), *_names(exchange), *_names(overflow))
    launch = recurrence_launch(layer, shape, "matrix_grid", buffers, shape.thread_units, shape.is_fixed)
    return _exchanging(launch, exchange, overflow)


def _exchange(layer: Layer, state_bytes: int, load_states: int) -> Workspace:
    """Two buffers of states that take turns; a row has whole loads of `load_states`."""
    rows = layer.num_directions * layer.batch_size
    return Workspace("exchange", 2 * rows * state_bytes * round_up(layer.hidden_size, load_states))


def _counted_exchange(layer: Layer, shape: Shape) -> Workspace:
    """The counts of the rounds of all groups by shard, then two buffers of states in whole quads."""
    num_rounds = ceil_div(shape.group_batch, shape.round_batch)
    num_counts = round_up(shape.num_blocks(layer) * num_rounds, QUAD)
    states = _exchange(layer, COUNTED_BYTES, QUAD).num_bytes
    return Workspace("exchange", COUNTED_BYTES * num_counts + states)


def _exchanging(
    launch: KernelLaunch, exchange: tuple[Workspace, ...], others: tuple[Workspace, ...]
) -> Steps:
    """The steps of a kernel whose blocks exchange states."""
    launch = launch._replace(buffers=(*launch.buffers, WAIT_REPORT), cooperative=True, waits=WAITS[:1])
    # Exchanges are numbered from 1, so 0 marks a word that has not been sent, and a round that nobody counts.
    fills = tuple(Fill(space.name, space.num_bytes) for space in exchange)
    return (*fills, launch), (*exchange, *others)


def _step_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """A single launch; unless linear before reset, its blocks wait for those that run."""
    shape = step_shape(layer)
    items = layer.num_directions * layer.batch_size * layer.hidden_size
    spaces: tuple[Workspace, ...] = ()
    if not layer.linear_before_reset:
        carried = Workspace("carried", 4 * STEP_CARRIED_ROWS * items)
        spaces = carried, Workspace("counts", STEP_COUNTS_BYTES, is_left_zero=True)
    names = tuple(space.name for space in spaces) or (None, None)
    read = (places.get(name, name) for name in ("input_tensor", "weight_tensor"))
    waits = bool(spaces)
    buffers = (*read, *_tensors(layer, places)[1:], *names, WAIT_REPORT if waits else None)
    launch = recurrence_launch(layer, shape, "step", buffers, shape.group_batch)
    if waits:
        return (launch._replace(waits=_STEP_WAITS),), spaces
    return (launch._replace(grid=(shape.num_shards, shape.num_groups, layer.num_directions)),), spaces


def _products_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """For each step the products with the states, and a launch for the gates after each.

    The steps of the plan are the same objects for every step of the sequence: blocks count in memory.
    """
    hidden, batch, directions = layer.hidden_size, layer.batch_size, layer.num_directions
    shape = products_shape(layer)
    rows = directions * batch
    items = rows * hidden
    # Products without the candidate, whose product follows the reset gate, and the candidate's.
    firsts = ((0, NUM_GATES),) if layer.linear_before_reset else ((0, 2), (2, 1))
    room = _product_workspace(batch, NUM_GATES * hidden, hidden, limits)
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
    projection, _, *others = _tensors(layer, places)
    updates = None if layer.linear_before_reset else "updates"
    buffers = (projection, "sums", *others, "states", "operands", updates, "counts")

    def launch(phase: int) -> KernelLaunch:
        return recurrence_launch(layer, shape, "products", buffers, phase)

    def products(first: int, count: int) -> list[Step]:
        """Of some gates' rows of the weights, in each direction."""
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
            )
            for direction in range(directions)
        ]

    step: list[Step] = []
    for number, (first, count) in enumerate(firsts, 1):
        is_last = number == len(firsts)
        step += [*products(first, count), launch(PRODUCTS_FINISH if is_last else PRODUCTS_HALF)]
    return (launch(PRODUCTS_START), *step * layer.num_steps), tuple(spaces)


def _serial_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
    """The input's projection, then the recurrence; both read the weights in place."""
    return _single_threads(layer, places, limits, panels=False)


def _panel_steps(layer: Layer, places: Places, limits: Limits) -> Steps:
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
    first, in_place, *others = _tensors(layer, places)
    read = (None, *others, states.name, recurrence) if panels else (in_place, *others, states.name, None)
    launch = recurrence_launch(layer, shape, "serial", (first, *read), panels)._replace(block=(1, 1, 1))
    return (*copy, prepare, launch), (projection, *copies, states)


def padded_units(hidden: int) -> int:
    """Hidden units of whole tiles.

    A tile's width depends on the CPU's registers, which a plan does not know; this is the maximum.
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

    `is_split` gives the candidate's rows a panel of their own, as recurrences need that multiply them later.
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


def _complete(
    recurrence: _Recurrence, *, multiplies: bool = False, reads_lengths: bool = False
) -> Callable[[Layer, Limits], Steps]:
    """`Path.steps`: pack the tensors, project the input, run the recurrence.

    `multiplies` says that the recurrence's own kernels project the input, `reads_lengths` that they take
    lengths from where they are bound if they can: blocks look at those of their own items alone.
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
    """Those of the path "grid" in one of its shapes, for a benchmark."""
    return _complete(partial(_grid_steps, shape=shape))(layer, limits)


def _is_one_step(layer: Layer, limits: Limits) -> bool:
    return layer.num_steps == 1


def _any_layer(layer: Layer, limits: Limits) -> bool:
    return True


PATHS = by_name(
    Path(
        "block",
        "layers whose states fit one block",
        lambda layer, limits: block_shape(layer, limits) is not None,
        _complete(_block_steps),
    ),
    Path(
        "grid",
        "many hidden units: several blocks exchange states",
        lambda layer, limits: grid_shape(layer, limits) is not None,
        _complete(_grid_steps),
    ),
    Path(
        "matrix_grid",
        "a 16-bit type and many hidden units: the same by matrix instructions",
        lambda layer, limits: matrix_shape(layer, limits) is not None,
        _complete(_matrix_steps),
    ),
    Path(
        "step",
        "one step of few sequences",
        _is_one_step,
        _complete(_step_steps, multiplies=True, reads_lengths=True),
    ),
    Path(
        "products",
        "weights that do not fit on the chip, and many sequences: a product for each step",
        lambda layer, limits: products_shape(layer).num_blocks(layer) <= MAX_GRID_BLOCKS,
        _complete(_products_steps),
    ),
    Path("panels", "more steps on a CPU", _any_layer, _complete(_panel_steps, multiplies=True)),
    Path("serial", "a few steps on a CPU", _any_layer, _complete(_serial_steps, multiplies=True)),
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
    if layer.num_steps == 1:
        more = projection_clocks(layer, limits, t)
        clocks = {name: count + more for name, count in clocks.items()}
        clocks["step"] = step_clocks(step_shape(layer), layer, limits, t)
    if not clocks:
        raise ValueError(_too_large(layer, limits))
    return clocks


def choose_path(layer: Layer, limits: Limits, t: Clocks = CLOCKS) -> Choice[Layer]:
    """The path that is estimated to be the fastest, and why.

    Raises ValueError if the hidden size is too large for the device.
    """
    if layer.has_panels:
        return Choice(PATHS["panels"], "the weights are in panels")
    if limits.warp_lanes == 1:
        products, least = panel_products(layer, limits), _PANEL_MIN_PRODUCTS
        if products >= least:
            return Choice(PATHS["panels"], f"{products} products of a batch, {least} or more")
        return Choice(PATHS["serial"], f"{products} products of a batch, fewer than {least}")
    clocks = estimated_clocks(layer, limits, t)
    taken = min(clocks, key=clocks.__getitem__)
    estimates = ", ".join(f"{name} {count}" for name, count in clocks.items())
    return Choice(PATHS[taken], f"estimated clocks: {estimates}")


def _fitting(shape_of: Callable[[Layer, Limits], Shape | None], layer: Layer, limits: Limits) -> Shape:
    """The shape for a layer that fits the device."""
    shape = shape_of(layer, limits)
    if shape is None:
        raise ValueError(_too_large(layer, limits))
    return shape


def _tensors(layer: Layer, places: Places) -> tuple[str | None, ...]:
    """The kernels' first pointers."""
    optional = (
        "bias_tensor",
        "hidden_init_tensor",
        "sequence_lengths_tensor",
        "output_sequence_tensor",
        "output_single_tensor",
    )
    bound = (member if member in layer.tensors else None for member in ("recurrence_tensor", *optional))
    return "projection", *(None if member is None else places.get(member, member) for member in bound)


def _names(spaces: tuple[Workspace, ...]) -> tuple[str | None, ...]:
    return tuple(space.name for space in spaces) or (None,)


def _overflow(layer: Layer, shape: Shape) -> tuple[Workspace, ...]:
    """The workspace for weights that do not fit on the chip, if there are any."""
    num_bytes = shape.num_blocks(layer) * shape.num_overflow_chunks * shape.chunk_bytes
    return (Workspace("overflow", num_bytes),) if num_bytes else ()


def recurrence_launch(
    layer: Layer, shape: Shape, name: str, buffers: tuple[str | None, ...], *variant: bool | int
) -> KernelLaunch:
    """The launch of a recurrence; `variant` has the kernel's last template arguments."""
    return KernelLaunch(
        source=f"gru/{name}.cu",
        function=f"gru_{name}",
        template=(layer.element.cpp, layer.is_standard, layer.linear_before_reset, *variant),
        grid=(shape.num_blocks(layer), 1, 1),
        block=(shape.num_threads, 1, 1),
        buffers=buffers,
        params=_params(layer, shape),
        shared_bytes=shape.shared_bytes,
        constants=CONSTANTS[name],
    )


def _params(layer: Layer, shape: Shape) -> Params:
    """The values of `_GRU_PARAMS`."""

    def strides(member: str, first: int) -> tuple[int, ...]:
        """The strides from dimension `first` on; 0 for an absent tensor."""
        tensor = layer.tensors.get(member)
        return (0,) * (4 - first) if tensor is None else tensor.element_strides[first:]

    parameters = [(*a.parameters, 0.0, 0.0) for a in layer.activations]
    missing = _MAX_ACTIVATIONS - len(parameters)
    values: dict[str, Value] = {
        "bias_strides": strides("bias_tensor", 2),
        "initial_strides": strides("hidden_init_tensor", 1),
        "sequence_strides": strides("output_sequence_tensor", 0),
        "single_strides": strides("output_single_tensor", 1),
        "batch_size": layer.batch_size,
        "group_batch": shape.group_batch,
        "overflow_pieces": shape.num_overflow_chunks * shape.chunk_pieces,
        "num_steps": layer.num_steps,
        "hidden_size": layer.hidden_size,
        "num_directions": layer.num_directions,
        "direction": int(layer.direction),
        "num_groups": shape.num_groups,
        "num_shards": shape.num_shards,
        "num_passes": shape.num_passes,
        "round_batch": shape.round_batch,
        "num_stored_chunks": shape.num_stored_chunks,
        "activation_codes": (*(int(a.operator_type) for a in layer.activations), *[0] * missing),
        "activation_firsts": (*(p[0] for p in parameters), *[0.0] * missing),
        "activation_seconds": (*(p[1] for p in parameters), *[0.0] * missing),
        "clip": layer.clip,
        "input_size": layer.input_size,
    }
    return Params(_GRU_PARAMS, values)


def _too_large(layer: Layer, limits: Limits) -> str:
    return (
        f"GRU: a state of hidden size {layer.hidden_size} does not fit the "
        f"{limits.shared_bytes_per_block} bytes of shared storage that a block of this device has"
    )
