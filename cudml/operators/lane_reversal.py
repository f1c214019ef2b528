"""The launches of `REVERSE_SUBSEQUENCES`: which kernel reverses lanes of a given layout.

Operands of an index space here are the source, the target and the lengths; the dimension that the
lanes run along is kept apart, since only its source coordinate depends on the data.
"""

from dataclasses import dataclass

from cudml.operators.coalesce import Dimension, Space, coalesced, dimensions_of, widened
from cudml.operators.strided_copy import (
    BLOCK_THREADS,
    GATHER_ITEMS_PER_THREAD,
    copy_launch,
    grid_blocks,
    index_members,
    item_type,
)
from cudml.plans import KernelLaunch, Limits, Params, ceil_div
from cudml.tensors import TensorDesc

SOURCE, TARGET, LENGTHS = 0, 1, 2

_BUFFERS = ("input_tensor", "sequence_lengths_tensor", "output_tensor")


@dataclass(frozen=True)
class Lanes:
    """The movement with the axis apart: `others` indexes the lanes, `axis` the places in one."""

    others: Space
    axis: Dimension
    lengths: TensorDesc

    def length_members(self) -> dict[str, tuple[str, int]]:
        """The members that tell a kernel the type of the lengths."""
        element = self.lengths.element
        return {
            "length_bytes": ("Int32", element.size),
            "length_is_signed": ("Int32", int(element.kind == "i")),
        }


def reversal_launch(
    source: TensorDesc, lengths: TensorDesc, target: TensorDesc, axis: int, limits: Limits
) -> KernelLaunch:
    """The launch that reverses the lanes of a tensor that is not empty."""
    dimensions = dimensions_of(
        target.sizes,
        source.element_strides,
        target.element_strides,
        tuple(0 if i == axis else stride for i, stride in enumerate(lengths.element_strides)),
    )
    position = len(dimensions) - 1 - axis
    along = dimensions[position]
    others = Space(dimensions[:position] + dimensions[position + 1 :], (0, 0, 0), target.element.size)
    if along.size == 1:
        copied = tuple(Dimension(d.size, d.strides[:LENGTHS]) for d in others.dimensions)
        return copy_launch(Space(copied, (0, 0), others.item_bytes), _BUFFERS[0], _BUFFERS[2], limits)
    return gather(coalesced_lanes(others, along, lengths), limits)


def coalesced_lanes(others: Space, along: Dimension, lengths: TensorDesc) -> Lanes:
    """The same lanes in as few steps as can be, and items as wide as the lanes that share a length."""
    others = coalesced(others, TARGET, moved=())
    if others.dimensions:
        # The axis takes part as the outermost dimension: its strides bound the width, its size never does.
        # A stride in the lengths keeps it from being halved itself once the items hold all the others.
        outermost = Dimension(along.size, (*along.strides[:LENGTHS], 1))
        whole = Space((*others.dimensions, outermost), others.offsets, others.item_bytes)
        whole = widened(whole, moved=(SOURCE, TARGET))
        others = Space(whole.dimensions[:-1], whole.offsets, whole.item_bytes)
        along = Dimension(along.size, (*whole.dimensions[-1].strides[:LENGTHS], 0))
    return Lanes(others, along, lengths)


def gather(lanes: Lanes, limits: Limits) -> KernelLaunch:
    """Any layout: a thread finds the place of each of its items and asks the lane's length."""
    others, along = lanes.others, lanes.axis
    placed = (*others.dimensions, Dimension(along.size, (0, *along.strides[1:])))
    ordered = sorted(placed, key=lambda dimension: abs(dimension.strides[TARGET]))
    space = Space(tuple(ordered), others.offsets, others.item_bytes)
    num_tiles = ceil_div(space.num_items, BLOCK_THREADS * GATHER_ITEMS_PER_THREAD)
    return KernelLaunch(
        source="reverse_subsequences/gather.cu",
        function="reverse_gather",
        template=(item_type(space.item_bytes),),
        grid=(grid_blocks(num_tiles, limits), 1, 1),
        block=(BLOCK_THREADS, 1, 1),
        buffers=_BUFFERS,
        params=Params.of(
            num_items=("Int64", space.num_items),
            num_tiles=("Int64", num_tiles),
            source_offset=("Int64", space.offsets[SOURCE]),
            target_offset=("Int64", space.offsets[TARGET]),
            length_offset=("Int64", space.offsets[LENGTHS]),
            axis_size=("Int64", along.size),
            axis_stride=("Int64", along.strides[SOURCE]),
            **index_members(space, ("source_strides", "target_strides", "length_strides")),
            axis=("Int32", next(i for i, d in enumerate(ordered) if d is placed[-1])),
            **lanes.length_members(),
        ),
    )
