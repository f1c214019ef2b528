"""The launch of a recurrence of a GRU: its pointers, its struct, and the weights that overflow."""

from collections.abc import Callable, Mapping

from cudml.operators.gru.layer import CONSTANTS, Layer, Shape
from cudml.plans import KernelLaunch, Limits, Params, ParamStruct, Value, Workspace

#: The buffers that are read instead of bound tensors, by member.
Places = Mapping[str, str]

#: The maximum number of activations of a layer.
_MAX_ACTIVATIONS = 4

#: `GruParams` of kernels/gru/layer.cuh.
_GRU_PARAMS = ParamStruct(
    "Int64 bias_strides[2], initial_strides[3], sequence_strides[4], single_strides[3]",
    "Int64 batch_size, group_batch, overflow_pieces",
    "UInt32 num_steps",
    "Int32 hidden_size, num_directions, direction, num_groups, num_shards, num_passes, round_batch",
    f"Int32 num_stored_chunks, activation_codes[{_MAX_ACTIVATIONS}]",
    f"Float32 activation_firsts[{_MAX_ACTIVATIONS}], activation_seconds[{_MAX_ACTIVATIONS}], clip",
    "Int32 input_size",
)


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


def tensors_of(layer: Layer, places: Places) -> tuple[str | None, ...]:
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


def names_of(spaces: tuple[Workspace, ...]) -> tuple[str | None, ...]:
    """The pointers to workspaces; a null pointer if there are none."""
    return tuple(space.name for space in spaces) or (None,)


def overflow_of(layer: Layer, shape: Shape) -> tuple[Workspace, ...]:
    """The workspace for weights that do not fit on the chip, if there are any."""
    num_bytes = shape.num_blocks(layer) * shape.num_overflow_chunks * shape.chunk_bytes
    return (Workspace("overflow", num_bytes),) if num_bytes else ()


def fitting(shape_of: Callable[[Layer, Limits], Shape | None], layer: Layer, limits: Limits) -> Shape:
    """The shape for a layer that fits the device."""
    shape = shape_of(layer, limits)
    if shape is None:
        raise ValueError(too_large(layer, limits))
    return shape


def too_large(layer: Layer, limits: Limits) -> str:
    """The error about a layer that no path can take."""
    return (
        f"GRU: a state of hidden size {layer.hidden_size} does not fit the "
        f"{limits.shared_bytes_per_block} bytes of shared storage that a block of this device has"
    )
