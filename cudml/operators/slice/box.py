"""A box of items that is copied from one place to another."""

from dataclasses import dataclass

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import index_members

#: Operands of a copy's index space.
SOURCE, TARGET = 0, 1

#: `BoxSpace` of kernels/slice/box_space.cuh.
BOX_MEMBERS = index_members("source_strides", "target_strides")


@dataclass(slots=True)
class BoxCopy:
    """A coalesced space whose operands are the source and the target, and the buffers of both."""

    space: Space
    source: str
    target: str

    @property
    def num_bytes(self) -> int:
        """Number of bytes to move."""
        return self.space.num_items * self.space.item_bytes

    @property
    def row(self) -> Dimension:
        """The innermost dimension; a single item if there is none."""
        return self.space.dimensions[0] if self.space.dimensions else Dimension(1, (1, 1))

    def __str__(self) -> str:
        sizes = " x ".join(str(d.size) for d in reversed(self.space.dimensions)) or "1"
        strides = [d.strides for d in reversed(self.space.dimensions)]
        return f"a copy of {sizes} items of {self.space.item_bytes} bytes with strides {strides}"
