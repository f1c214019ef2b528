"""Descriptors whose plans reach every instance of the kernels of GRU."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cudml.dtypes import ElementType, ExtendedType
from cudml.enums import DataType, ExecutionFlags, RecurrentNetworkDirection
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.operator import LAYER_MEMBERS, GruDesc, StackDesc, layer_of, plan, stack_of
from cudml.operators.gru.paths import estimated_clocks
from cudml.operators.gru.wave import member_of, wave_shape
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc
from proof.instances import Promise, random_size

#: (T, N, I, H): what one block does, with one to four chunks of weights in registers; what a grid does on
#: small and large GPUs, without and with matrix instructions, with fixed items and others, of one round and
#: of several; products for each step; single steps of one sequence and of several; two layers at once.
_SIZES = (
    (16, 4, 24, 40),
    (16, 600, 24, 24),
    (16, 600, 24, 40),
    (16, 1, 24, 24),
    (16, 4, 24, 96),
    (16, 4, 24, 128),
    (16, 1, 32, 256),
    (16, 1, 32, 512),
    (16, 4, 32, 256),
    (16, 16, 32, 256),
    (16, 1, 32, 1024),
    (16, 2, 32, 1024),
    (16, 16, 32, 1024),
    (16, 64, 32, 1024),
    (16, 128, 32, 256),
    (16, 16, 32, 2048),
    (16, 1, 32, 2048),
    (16, 128, 32, 1728),
    (16, 128, 32, 2048),
    (16, 400, 32, 136),
    (16, 128, 32, 160),
    (16, 96, 32, 160),
    (16, 32, 32, 136),
    (16, 200, 32, 40),
    (16, 128, 32, 200),
    (16, 16, 32, 1536),
    (16, 12, 32, 384),
    (128, 129, 32, 129),
    (256, 92, 32, 154),
    (16, 2, 32, 4352),
    (16, 2, 32, 4800),
    (16, 70, 32, 136),
    (128, 252, 32, 133),
    (512, 16, 32, 150),
    (16, 32, 32, 569),
    (16, 20, 32, 2048),
    (1, 1, 32, 64),
    (1, 4, 32, 64),
    (16, 2, 40, 40),
)

#: The same for bidirectional layers.
_BOTH_WAYS = ((33, 5, 32, 169),)

#: T, N and I of the layers that are also stacked.
_STACKED = (16, 2, 40)

_TYPES: tuple[ElementType, ...] = (DataType.FLOAT32, DataType.FLOAT16, ExtendedType.BFLOAT16)

#: Multiprocessors of a GPU that has room for two of those layers only if threads have more hidden units.
_FEW = 6

_ALLOWS_TF32 = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION

PROMISES = {"gru_matrix_grid": Promise(matrix=True)}


def descriptors() -> Iterator[GruDesc | StackDesc]:
    """Every size with every template argument: data type, standard activations or not, both orders; lengths
    of another type than descriptors have, as the array function takes them; and two layers at once."""
    lengths = TensorDesc(DataType.INT64, (1, 1, 1, _SIZES[0][1]))
    for number, descriptor in enumerate(_layers()):
        if number == 0:
            yield replace(descriptor, sequence_lengths_tensor=lengths)
        yield descriptor
        if descriptor.input_tensor.sizes[1:] == _STACKED:
            yield _stack(descriptor)


def plans(descriptor: GruDesc | StackDesc, limits: Limits) -> list[Plan]:
    """The plan; layers at once have none on a CPU, which runs them one after the other.

    On a GPU, layers at once are planned for one with few multiprocessors, too.
    Where split products are chosen, the best of the other paths is planned as well, which other layers take,
    and products of operands rounded to TF32, as where that is allowed.
    """
    if isinstance(descriptor, StackDesc):
        if limits.warp_lanes == 1:
            return []
        few = replace(limits, num_multiprocessors=_FEW)
        stack = stack_of(descriptor)
        return [plan(descriptor, one) for one in (limits, few) if wave_shape(stack, one) is not None]
    found = [plan(descriptor, limits)]
    if limits.warp_lanes > 1:
        clocks = estimated_clocks(layer_of(descriptor), limits)
        best, other = sorted(clocks, key=clocks.__getitem__)[:2]
        if best == "split_products":
            found.append(plan(descriptor, limits, path=other))
            found.append(plan(descriptor, limits, flags=_ALLOWS_TF32, path="rounded_products"))
    return found


def _stack(layer: GruDesc) -> StackDesc:
    """Two copies of a layer, one on the other."""
    tensors = {name: one for name, one in vars(layer).items() if isinstance(one, TensorDesc)}
    for name in ("hidden_init_tensor", "output_single_tensor"):
        _, _, *sizes = tensors[name].sizes
        tensors[name] = TensorDesc(layer.input_tensor.data_type, (1, 2, *sizes))
    tensors |= {member_of(1, name): tensors[name] for name in LAYER_MEMBERS}
    return StackDesc.of_plain({**vars(layer), **tensors})


def _layers() -> Iterator[GruDesc]:
    both_ways = RecurrentNetworkDirection.BIDIRECTIONAL
    layers = [*((sizes, RecurrentNetworkDirection.FORWARD) for sizes in _SIZES)]
    layers += ((sizes, both_ways) for sizes in _BOTH_WAYS)
    for (num_steps, batch, num_inputs, hidden), direction in layers:
        count = 2 if direction is both_ways else 1
        for data_type in _TYPES:
            for f in (Activation.sigmoid(), Activation.hard_sigmoid(0.2, 0.5)):
                for linear_before_reset in (True, False):
                    yield GruDesc(
                        TensorDesc(data_type, (1, num_steps, batch, num_inputs)),
                        TensorDesc(data_type, (1, count, 3 * hidden, num_inputs)),
                        TensorDesc(data_type, (1, count, 3 * hidden, hidden)),
                        TensorDesc(data_type, (1, 1, count, 6 * hidden)),
                        TensorDesc(data_type, (1, count, batch, hidden)),
                        TensorDesc(DataType.UINT32, (1, 1, 1, batch)),
                        TensorDesc(data_type, (num_steps, count, batch, hidden)),
                        TensorDesc(data_type, (1, count, batch, hidden)),
                        (f, Activation.tanh()) * count,
                        direction,
                        linear_before_reset,
                    )


def any_descriptor(rng: np.random.Generator) -> GruDesc:
    """Any sizes, directions, activations and choice of optional tensors."""
    num_steps, batch = random_size(rng, 512), random_size(rng, 256)
    num_inputs, hidden = random_size(rng, 2048), random_size(rng, 2048)
    direction = RecurrentNetworkDirection(int(rng.integers(3)))
    count = 2 if direction is RecurrentNetworkDirection.BIDIRECTIONAL else 1
    data_type = _TYPES[rng.integers(len(_TYPES))]
    activations = (Activation.sigmoid(), Activation.tanh(), Activation.hard_sigmoid(0.2, 0.5))
    chosen = (0, 1) * count if rng.integers(2) else rng.integers(3, size=2 * count)

    def optional(data_type: ElementType, *sizes: int) -> TensorDesc | None:
        return TensorDesc(data_type, sizes) if rng.integers(2) else None

    return GruDesc(
        TensorDesc(data_type, (1, num_steps, batch, num_inputs)),
        TensorDesc(data_type, (1, count, 3 * hidden, num_inputs)),
        TensorDesc(data_type, (1, count, 3 * hidden, hidden)),
        optional(data_type, 1, 1, count, 6 * hidden),
        optional(data_type, 1, count, batch, hidden),
        optional(DataType.INT64 if rng.integers(2) else DataType.UINT32, 1, 1, 1, batch),
        TensorDesc(data_type, (num_steps, count, batch, hidden)),
        optional(data_type, 1, count, batch, hidden),
        tuple(activations[i] for i in chosen),
        direction,
        bool(rng.integers(2)),
    )
