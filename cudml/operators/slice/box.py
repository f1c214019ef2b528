"""A box of items that is copied from one place to another."""

from dataclasses import dataclass, field
from typing import NamedTuple

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import index_members

#: Operands of a copy's index space.
SOURCE, TARGET = 0, 1

#: `BoxSpace` of kernels/slice/box_space.cuh.
BOX_MEMBERS = index_members("source_strides", "target_strides")

#: What `slice/planes.cu` is compiled with.
PLANES_MAX_PIXEL_ITEMS = 4
PLANES_MAX_ITEM_BYTES = 2


class Pixels(NamedTuple):
    """Pixels of a few narrow items on one side of a copy, and planes on the other.

    `line` is the dimension along which pixels are adjacent on one side and items on the other, `outer` the
    rest. Offsets and strides are in items. The planes may be fewer than a pixel has items.
    """

    splits: bool
    pixel_items: int
    num_planes: int
    plane_stride: int
    line: Dimension
    outer: tuple[Dimension, ...]
    offsets: tuple[int, int]


@dataclass(slots=True)
class BoxCopy:
    """A coalesced space whose operands are the source and the target, and the buffers of both.

    The members that the choice and several paths need are computed once. `row` is the innermost dimension, a
    single item if there is none. `least_step` is the number of items between the nearest neighbours in the
    source. `crossing` is the index of the dimension that is contiguous in the source, if it is not the
    target's contiguous one, else 0. `pixels` are those in the source (which the copy splits) or in the
    target.
    """

    space: Space
    source: str
    target: str
    row: Dimension = field(init=False)
    least_step: int = field(init=False)
    crossing: int = field(init=False)
    pixels: Pixels | None = field(init=False)

    def __post_init__(self) -> None:
        dimensions = self.space.dimensions
        self.row = row = dimensions[0] if dimensions else Dimension(1, (1, 1))
        steps = [abs(dimension.strides[SOURCE]) for dimension in dimensions]
        self.least_step = min(steps) if steps else 1
        outer_steps = steps[1:]
        self.crossing = 1 + outer_steps.index(1) if row.strides[TARGET] == 1 and 1 in outer_steps else 0
        self.pixels = _pixels(self.space, self.crossing)

    @property
    def num_bytes(self) -> int:
        """Number of bytes to move."""
        return self.space.num_items * self.space.item_bytes

    def __str__(self) -> str:
        sizes = " x ".join(str(d.size) for d in reversed(self.space.dimensions)) or "1"
        strides = [d.strides for d in reversed(self.space.dimensions)]
        return f"a copy of {sizes} items of {self.space.item_bytes} bytes with strides {strides}"


def _pixels(space: Space, crossing: int) -> Pixels | None:
    if space.item_bytes > PLANES_MAX_ITEM_BYTES or not space.dimensions:
        return None
    first, *others = space.dimensions
    offsets = (space.offsets[SOURCE], space.offsets[TARGET])
    pixel_items, target_step = first.strides
    if target_step != 1:
        return None
    if 2 <= pixel_items <= PLANES_MAX_PIXEL_ITEMS:
        if not crossing:
            return Pixels(True, pixel_items, 1, 0, first, tuple(others), offsets)
        planes = space.dimensions[crossing]
        if planes.size > pixel_items:
            return None
        source_step, stride = planes.strides
        if source_step < 0:  # the last plane has the pixel's first item
            last = planes.size - 1
            offsets, stride = (offsets[SOURCE] - last, offsets[TARGET] + last * stride), -stride
        del others[crossing - 1]
        return Pixels(True, pixel_items, planes.size, stride, first, tuple(others), offsets)
    pixel_items = first.size
    if not others or not 2 <= pixel_items <= PLANES_MAX_PIXEL_ITEMS:
        return None
    line, *outer = others
    if line.strides != (1, pixel_items):
        return None
    return Pixels(False, pixel_items, pixel_items, first.strides[SOURCE], line, tuple(outer), offsets)
