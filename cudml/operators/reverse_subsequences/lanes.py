"""The lanes that `REVERSE_SUBSEQUENCES` reverses, as an index space with the axis apart.

Operands of the index space are the source, the target and the lengths; the dimension that the lanes run
along is kept apart, because only its source coordinate depends on the data.
"""

from dataclasses import dataclass

from cudml.operators.index_space import Dimension, Space, coalesced, dimensions_of, span_bytes, widened
from cudml.operators.launch_shape import (
    BLOCK_CONSTANTS,
    BLOCK_THREADS,
    index_members,
    index_values,
    launch_of,
)
from cudml.plans import Constants, KernelLaunch, Limits, Params, ParamStruct, Value
from cudml.tensors import TensorDesc

SOURCE, TARGET, LENGTHS = 0, 1, 2

#: `LaneSpace` of kernels/reverse_subsequences/lane_space.cuh.
LANE_SPACE = (
    "Int64 axis_size, source_offset, target_offset, length_offset",
    *index_members("source_strides", "target_strides", "length_strides"),
    "Int32 length_bytes, length_is_signed",
)

#: The operands of a reversal, in the order of the kernels' pointers.
BUFFERS = ("input_tensor", "sequence_lengths_tensor", "output_tensor")


@dataclass(slots=True)
class Lanes:
    """A reversal: `others` indexes the lanes, `axis` the places in a lane."""

    others: Space
    axis: Dimension
    lengths: TensorDesc
    #: Bytes moved at once, and in total.
    item_bytes: int
    num_bytes: int
    #: Bytes of the axis and the dimensions inside it, if these have no gaps.
    box_bytes: int

    @property
    def extent(self) -> tuple[int, int]:
        """The bytes [first, past the last) of the source, relative to its pointer."""
        others = self.others
        return span_bytes(Space((*others.dimensions, self.axis), others.offsets, self.item_bytes), SOURCE)

    def __str__(self) -> str:
        others, axis = self.others, self.axis
        sizes = " x ".join(str(d.size) for d in reversed(others.dimensions)) or "1"
        strides = [*(d.strides for d in reversed(others.dimensions)), axis.strides]
        of_what = f"{axis.size} items of {self.item_bytes} bytes with strides {strides}"
        return f"a reversal of {sizes} lanes of {of_what}"

    def values(self, space: Space, unit: int = 1) -> dict[str, Value]:
        """The values of `LANE_SPACE`, for the kernel's own index space.

        `unit` is that of source and target: 1 for items, the item's size for bytes. The members of the
        lengths count lengths.
        """
        element, offsets = self.lengths.element, self.others.offsets
        return {
            "axis_size": self.axis.size,
            "source_offset": offsets[SOURCE] * unit,
            "target_offset": offsets[TARGET] * unit,
            "length_offset": offsets[LENGTHS],
            **index_values(space, source_strides=unit, target_strides=unit, length_strides=1),
            "length_bytes": element.size,
            "length_is_signed": int(element.kind == "i"),
        }


def lanes_of(source: TensorDesc, lengths: TensorDesc, target: TensorDesc, axis: int) -> Lanes:
    """The lanes in as few dimensions as possible, with items as wide as neighbours of one length allow."""
    steps = lengths.element_strides
    steps = (*steps[:axis], 0, *steps[axis + 1 :])
    dimensions = dimensions_of(target.sizes, source.element_strides, target.element_strides, steps)
    position = len(dimensions) - 1 - axis
    along = dimensions[position]
    others = Space(dimensions[:position] + dimensions[position + 1 :], (0, 0, 0), target.element.size)
    others = coalesced(others, TARGET)
    # The axis takes part as the outermost dimension: its strides limit the width, its size does not.
    narrow = Space((*others.dimensions, along), others.offsets, others.item_bytes)
    whole = widened(narrow, moved=(SOURCE, TARGET), kept=1)
    if whole is not narrow:
        *inner, along = whole.dimensions
        others = Space(tuple(inner), whole.offsets, whole.item_bytes)
    return Lanes(
        others,
        along,
        lengths,
        whole.item_bytes,
        num_bytes=whole.num_items * whole.item_bytes,
        box_bytes=along.strides[TARGET] * along.size * whole.item_bytes,
    )


def with_axis(lanes: Lanes) -> tuple[Space, int]:
    """All dimensions in the target's order, the axis without a source stride, and the axis's position."""
    others, along = lanes.others, lanes.axis
    placed = Dimension(along.size, (0, *along.strides[TARGET:]))
    ordered = sorted((*others.dimensions, placed), key=lambda dimension: abs(dimension.strides[TARGET]))
    axis = next(i for i, dimension in enumerate(ordered) if dimension is placed)
    return Space(tuple(ordered), others.offsets, others.item_bytes), axis


def any_lanes(lanes: Lanes, limits: Limits) -> bool:
    """Every layout."""
    return True


def reversal_launch(
    name: str,
    struct: ParamStruct,
    template: tuple[str | int | bool, ...],
    num_blocks: int,
    values: dict[str, Value],
    *,
    shared_bytes: int = 0,
    block_threads: int = BLOCK_THREADS,
    constants: Constants = BLOCK_CONSTANTS,
) -> KernelLaunch:
    """A launch of `reverse_subsequences/<name>.cu`."""
    return launch_of(
        f"reverse_subsequences/{name}.cu",
        f"reverse_{name}",
        template,
        num_blocks,
        BUFFERS,
        Params(struct, values),
        shared_bytes=shared_bytes,
        block_threads=block_threads,
        constants=constants,
    )
