"""Index spaces of data movement, and how to simplify them: drop, flip, sort, merge and widen dimensions.

A dimension has one size and, per operand, the distance between neighbours. Lists of dimensions run
from the innermost (fastest) to the outermost, the reverse of a tensor's order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: The widest item a kernel moves at once, in bytes.
MAX_ITEM_BYTES = 16

#: Division by 32-bit multiplication is exact for numerators below this.
MAX_NARROW_COUNT = 2**31


class Dimension(NamedTuple):
    """`size` steps; one step moves operand k by `strides[k]` items."""

    size: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """The index space of one data movement: dimensions, and where each operand starts.

    `offsets` and strides count items of `item_bytes` bytes from the operand's pointer. An operand that is
    not moved (lengths) counts its own items.
    """

    dimensions: tuple[Dimension, ...]
    offsets: tuple[int, ...]
    item_bytes: int

    @property
    def num_items(self) -> int:
        """Number of items to move."""
        count = 1
        for dimension in self.dimensions:
            count *= dimension.size
        return count


def dimensions_of(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Dimension, ...]:
    """A tensor's sizes and the strides of each operand over them, innermost first."""
    rows = reversed([*zip(sizes, *strides, strict=True)])
    return tuple([Dimension(size, tuple(steps)) for size, *steps in rows])


def without_ones(dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions of more than one step; the others move nothing."""
    return tuple([dimension for dimension in dimensions if dimension.size != 1])


def merged(dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions with neighbours merged where, for every operand, the outer continues the inner."""
    result: list[Dimension] = []
    for outer in dimensions:
        inner = result[-1] if result else None
        if inner and all(o == inner.size * i for o, i in zip(outer.strides, inner.strides, strict=True)):
            result[-1] = Dimension(inner.size * outer.size, inner.strides)
        else:
            result.append(outer)
    return tuple(result)


def in_memory_order(dimensions: Iterable[Dimension], operand: int) -> tuple[Dimension, ...]:
    """The dimensions by the distance of neighbours in one operand, the nearest first, merged."""
    return merged(sorted(without_ones(dimensions), key=lambda dimension: abs(dimension.strides[operand])))


def flipped(space: Space, operand: int) -> Space:
    """The same movement without negative strides of one operand: their dimensions are reversed."""
    offsets = list(space.offsets)
    dimensions = []
    for dimension in space.dimensions:
        if dimension.strides[operand] < 0:
            for k, stride in enumerate(dimension.strides):
                offsets[k] += (dimension.size - 1) * stride
            dimension = Dimension(dimension.size, tuple(-stride for stride in dimension.strides))
        dimensions.append(dimension)
    return Space(tuple(dimensions), tuple(offsets), space.item_bytes)


def widened(space: Space, moved: Sequence[int], kept: int = 0) -> Space:
    """The same movement in the widest items that sizes, strides and offsets of `moved` allow.

    The `kept` outermost dimensions keep their sizes. Pointers may still be unaligned to the wider item; the
    kernels check that.
    """
    while space.item_bytes < MAX_ITEM_BYTES and len(space.dimensions) > kept:
        inner, *outer = space.dimensions
        in_halves = (
            inner.size % 2 == 0
            and all(stride == (1 if k in moved else 0) for k, stride in enumerate(inner.strides))
            and all(dimension.strides[k] % 2 == 0 for dimension in outer for k in moved)
            and all(space.offsets[k] % 2 == 0 for k in moved)
        )
        if not in_halves:
            break
        halved = [Dimension(inner.size // 2, inner.strides)]
        for dimension in outer:
            strides = (s // 2 if k in moved else s for k, s in enumerate(dimension.strides))
            halved.append(Dimension(dimension.size, tuple(strides)))
        offsets = tuple(o // 2 if k in moved else o for k, o in enumerate(space.offsets))
        free = len(halved) - kept
        space = Space((*without_ones(halved[:free]), *halved[free:]), offsets, space.item_bytes * 2)
    return space


def coalesced(space: Space, target: int, moved: Sequence[int]) -> Space:
    """The same movement in as few and as wide steps as possible, in the memory order of `target`."""
    space = flipped(space, target)
    ordered = sorted(without_ones(space.dimensions), key=lambda dimension: dimension.strides[target])
    return widened(Space(merged(ordered), space.offsets, space.item_bytes), moved)


def span_bytes(space: Space, operand: int) -> tuple[int, int]:
    """The bytes [first, past the last) that a moved operand addresses, relative to its pointer."""
    low = high = space.offsets[operand]
    for dimension in space.dimensions:
        distance = (dimension.size - 1) * dimension.strides[operand]
        low += min(distance, 0)
        high += max(distance, 0)
    return low * space.item_bytes, (high + 1) * space.item_bytes


def reach_items(space: Space, operand: int) -> int:
    """Number of items from a moved operand's pointer to the end of the farthest item it addresses."""
    return max(map(abs, span_bytes(space, operand))) // space.item_bytes


def is_packed(space: Space, operand: int) -> bool:
    """Whether the operand's items follow each other in the order of the space."""
    return tuple(d.strides[operand] for d in space.dimensions) == tuple(
        math.prod(d.size for d in space.dimensions[:position]) for position in range(len(space.dimensions))
    )


def magic_division(divisor: int, word_bits: int) -> tuple[int, int]:
    """The multiplier and shift that divide by multiplying, for numerators below 2**(word_bits - 1).

    `n // divisor == ((n * multiplier >> word_bits) + n) >> shift`. Source: Granlund and Montgomery,
    "Division by Invariant Integers using Multiplication", PLDI 1994, section 4.
    """
    shift = (divisor - 1).bit_length()
    multiplier = ((1 << word_bits) * ((1 << shift) - divisor)) // divisor + 1
    return multiplier, shift
