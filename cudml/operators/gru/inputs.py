"""The steps before the recurrence of a GRU: packing, a snapshot of the lengths, the input's projection."""

from cudml.enums import DataType
from cudml.operators.gru.layer import NUM_GATES, Layer
from cudml.operators.path import Steps
from cudml.operators.slice.paths import tensor_copy_step
from cudml.plans import (
    Copy,
    KernelLaunch,
    Limits,
    MatMul,
    Params,
    ParamStruct,
    Workspace,
    ceil_div,
    product_workspace_size,
    round_up,
)
from cudml.tensors import TensorDesc, num_elements

#: Bytes of a length as the recurrence takes it, and threads of a block that converts lengths to it.
_LENGTH_BYTES, _LENGTH_THREADS = 4, 128

#: A product's workspace holds partial sums. The library never fails with this much (NVIDIA's documentation of
#: `cublasSetWorkspace`), and never takes more than `Limits.product_workspace_bytes`.
_LEAST_PRODUCT_WORKSPACE = 16 << 10

#: The workspace of a product that is not large is estimated from above: tiles have at most this many rows and
#: columns, and a partial sum for at least this many products.
_PRODUCT_TILE, _PARTIAL_PRODUCTS = 128, 64

#: The struct of kernels/gru/lengths.cu.
_LENGTHS_PARAMS = ParamStruct("Int64 num_lengths, stride, num_steps", "Int32 length_bytes, length_is_signed")


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
    room = product_workspace(m, n, layer.input_size, limits)
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
        allows_tf32=layer.takes_tf32(limits),
    )
    spaces = (Workspace("product_workspace", product_workspace_size(room)),) if room else ()
    return (*a_steps, *b_steps, product), (*a_spaces, *b_spaces, Workspace("projection", 4 * m * n), *spaces)


def product_workspace(m: int, n: int, k: int, limits: Limits) -> int:
    """Bytes of the library's workspace for a product: what the device recommends, less for a small one."""
    tiles = round_up(m, _PRODUCT_TILE) * round_up(n, _PRODUCT_TILE)
    partial_sums = 4 * tiles * ceil_div(k, _PARTIAL_PRODUCTS)
    return min(limits.product_workspace_bytes, max(partial_sums, _LEAST_PRODUCT_WORKSPACE))
