"""Index spaces of data movement, and how to simplify them: drop, flip, sort, merge and widen dimensions.

A dimension has one size and, per operand, the distance between neighbours. Lists of dimensions run
from the innermost (fastest) to the outermost, the reverse of a tensor's order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from operator import floordiv
from typing import NamedTuple

#: The widest item a kernel moves at once, in bytes.
MAX_ITEM_BYTES = 16

#: Division by 32-bit multiplication is exact for numerators below this.
MAX_NARROW_COUNT = 2**31


@dataclass(slots=True)
class Dimension:
    """`size` steps; one step moves operand k by `strides[k]` items."""

    size: int
    strides: tuple[int, ...]


@dataclass(slots=True)
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
    return tuple(map(Dimension, sizes, zip(*strides, strict=True)))[::-1]


def without_ones(dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions of more than one step; the others move nothing."""
    return tuple([dimension for dimension in dimensions if dimension.size != 1])


def merged(dimensions: Iterable[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions with neighbours merged where, for every operand, the outer continues the inner."""
    result: list[Dimension] = []
    for outer in dimensions:
        inner = result[-1] if result else None
        if inner and outer.strides == tuple([stride * inner.size for stride in inner.strides]):
            result[-1] = Dimension(inner.size * outer.size, inner.strides)
        else:
            result.append(outer)
    return tuple(result)


def in_memory_order(dimensions: Iterable[Dimension], operand: int) -> tuple[Dimension, ...]:
    """The dimensions sorted by the distance of neighbours in one operand, nearest first, and merged."""
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
    if len(space.dimensions) <= kept or space.dimensions[0].strides[moved[0]] != 1:
        return space
    whole = tuple([1 if operand in moved else 0 for operand in range(len(space.offsets))])
    while len(space.dimensions) > kept and space.dimensions[0].strides == whole:
        inner, *outer = space.dimensions
        most = gcd(MAX_ITEM_BYTES // space.item_bytes, inner.size)
        if most == 1:
            break
        steps = [dimension.strides[operand] for dimension in outer for operand in moved]
        starts = [space.offsets[operand] for operand in moved]
        factor = gcd(most, *steps, *starts)
        if factor == 1:
            break
        factors = [factor if is_moved else 1 for is_moved in whole]
        fewer = [Dimension(inner.size // factor, inner.strides)]
        for dimension in outer:
            fewer.append(Dimension(dimension.size, (*map(floordiv, dimension.strides, factors),)))
        free = len(fewer) - kept
        offsets = (*map(floordiv, space.offsets, factors),)
        space = Space((*without_ones(fewer[:free]), *fewer[free:]), offsets, space.item_bytes * factor)
    return space


def coalesced(space: Space, target: int) -> Space:
    """The same movement in as few dimensions as possible, in the memory order of `target`."""
    ordered = sorted(without_ones(space.dimensions), key=lambda dimension: dimension.strides[target])
    if ordered and ordered[0].strides[target] < 0:
        return coalesced(flipped(space, target), target)
    return Space(merged(ordered), space.offsets, space.item_bytes)


def span_items(space: Space, operand: int) -> tuple[int, int]:
    """The items [first, past the last) that a moved operand addresses, relative to its pointer."""
    low = high = space.offsets[operand]
    for dimension in space.dimensions:
        distance = (dimension.size - 1) * dimension.strides[operand]
        if distance < 0:
            low += distance
        else:
            high += distance
    return low, high + 1


def span_bytes(space: Space, operand: int) -> tuple[int, int]:
    """The bytes [first, past the last) that a moved operand addresses, relative to its pointer."""
    low, high = span_items(space, operand)
    return low * space.item_bytes, high * space.item_bytes


def is_packed(space: Space, operand: int) -> bool:
    """Whether the operand's items follow each other in the order of the space."""
    count = 1
    for dimension in space.dimensions:
        if dimension.strides[operand] != count:
            return False
        count *= dimension.size
    return True


def magic_division(divisor: int, word_bits: int) -> tuple[int, int]:
    """The multiplier and shift that divide by multiplying, for numerators below 2**(word_bits - 1).

    `n // divisor == ((n * multiplier >> word_bits) + n) >> shift`. Source: Granlund and Montgomery,
    "Division by Invariant Integers using Multiplication", PLDI 1994, section 4.
    """
    shift = (divisor - 1).bit_length()
    multiplier = (((1 << shift) - divisor) << word_bits) // divisor + 1
    return multiplier, shift


class Divisions(NamedTuple):
    """`magic_division` by each of several sizes, and whether that takes 64-bit multiplication."""

    is_wide: bool
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]


def divisions_of(sizes: Iterable[int], count: int) -> Divisions:
    """How numbers below `count` are divided by each of the sizes."""
    is_wide = count >= MAX_NARROW_COUNT
    word_bits = 64 if is_wide else 32
    multipliers, shifts = [], []
    for size in sizes:
        multiplier, shift = magic_division(size, word_bits)
        multipliers.append(multiplier)
        shifts.append(shift)
    return Divisions(is_wide, tuple(multipliers), tuple(shifts))
