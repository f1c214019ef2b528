"""The lanes that `REVERSE_SUBSEQUENCES` reverses, as an index space with the axis apart.

Operands of the index space are the source, the target and the lengths; the dimension that the lanes run
along is kept apart, because only its source coordinate depends on the data.
"""

from dataclasses import dataclass

from cudml.operators.index_space import Dimension, Space, coalesced, dimensions_of, span_bytes, widened
from cudml.operators.launch_shape import BLOCK_THREADS, index_members, index_values
from cudml.plans import WARP_LANES, ParamStruct, Value, ceil_div
from cudml.tensors import TensorDesc

SOURCE, TARGET, LENGTHS = 0, 1, 2

#: The banks of shared storage, and one of them.
BANKS_BYTES, BANK_BYTES = 128, 4

#: `LaneSpace` of kernels/reverse_subsequences/lane_space.cuh.
_LANE_SPACE = (
    "Int64 axis_size, source_offset, target_offset, length_offset",
    *index_members("source_strides", "target_strides", "length_strides"),
    "Int32 length_bytes, length_is_signed",
)

#: The structs of the kernels, by name.
PARAMS = {
    "gather": ParamStruct(*_LANE_SPACE, "Int64 num_items, num_tiles, axis_stride", "Int32 axis"),
    "serial": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_rows, rows_per_block, row_items, row_source_stride, row_target_stride, axis_stride",
        "Int32 axis",
    ),
    "serial_columns": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_strips, strips_per_block, row_items, strip_items, lane_items",
        "Int64 row_source_stride, row_target_stride, row_length_stride",
        "Int64 axis_source_stride, axis_target_stride",
        "Int32 is_large",
    ),
    "boxes": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_lanes",
        "UInt32 row_multiplier",
        "Int32 row_shift, box_items, row_lanes, tile_lanes, group_shift",
    ),
    "lanes": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_pieces, piece_bytes, source_begin, source_end",
        "Int32 item_bytes, is_backwards, group_shift",
    ),
    "rows": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_pieces, run_bytes, piece_bytes, source_begin, source_end, axis_stride",
        "Int32 axis, item_bytes, group_shift",
    ),
    "columns": ParamStruct(
        *_LANE_SPACE,
        "Int64 num_columns, axis_source_stride, axis_target_stride, column_length_stride",
        "Int32 column_shift",
    ),
}


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
        """The values of `_LANE_SPACE`, for the kernel's own index space.

        `unit` is what source and target count: 1 for items, the item's size for bytes. The members of the
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
    """The lanes in as few steps as possible, with items as wide as neighbours with one length allow."""
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


def box_group_shift(lanes: Lanes, tile_lanes: int) -> int:
    """The binary logarithm of the threads that reverse a lane of a box together: the cheapest.

    Beginning a lane costs about as much as two pairs. The lanes of a warp wait for the longest of them,
    and for each other where they lie in the same banks of shared storage; neighbours across rows do not.
    """
    pairs, lane_bytes = lanes.axis.size / 2, lanes.axis.size * lanes.item_bytes
    has_rows = lanes.axis.strides[TARGET] > 1

    def cost(shift: int) -> float:
        together = WARP_LANES >> shift or 1
        longest = pairs * together / (together + 1) / (1 << shift)
        if together > 1 and not has_rows:
            span = max(BANK_BYTES, min(lanes.item_bytes << shift, BANKS_BYTES))
            banks = [lane * lane_bytes % BANKS_BYTES // span for lane in range(together)]
            longest *= max(1, max(map(banks.count, set(banks))) / 2)
        return ceil_div(tile_lanes << shift, BLOCK_THREADS) * (2 + longest)

    # As long as the block has threads left, more for each lane cost less.
    least, most = (BLOCK_THREADS // tile_lanes).bit_length() - 1, BLOCK_THREADS.bit_length() - 1
    return most if least == most else min(range(max(0, least), most + 1), key=cost)
