"""Decide whether strided boxes of memory share a byte, from addresses, shapes and strides.

A box is the set of bytes that an array addresses: `address + sum(i[d] * strides[d]) + b` for every index i
within the shape and every byte b of an element. Two boxes share a byte if a bounded linear equation has an
integer solution. That is hard in general, but easy for views of one array, whose strides nest.
"""

from collections.abc import Iterator, Sequence
from math import gcd
from typing import NamedTuple

#: Maximum number of steps of the search for a common byte. Views of one array take a few per dimension.
MAX_STEPS = 20_000


class Box(NamedTuple):
    """The bytes that an array addresses.

    `start` is the lowest byte and `stop` the byte past the highest. `steps` has (stride, size) of every
    dimension with several indices and a stride other than 0, as positive strides, and (1, item size) for the
    bytes of an element. An empty array has no steps.
    """

    start: int
    stop: int
    steps: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Bytes from the first to the last, inclusive; 0 if the array is empty."""
        return self.stop - self.start

    def at(self, address: int) -> "Box":
        """The same box moved by an address."""
        return Box(self.start + address, self.stop + address, self.steps)


def box_of(address: int, shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> Box:
    """The box of an array. Strides are in bytes, of either sign, and ignored in dimensions of size 1."""
    if 0 in shape:
        return Box(address, address, ())
    steps = []
    start = stop = address
    for size, stride in zip(shape, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        if stride < 0:
            start += (size - 1) * stride
        else:
            stop += (size - 1) * stride
        steps.append((abs(stride), size))
    if item_bytes > 1:
        steps.append((1, item_bytes))
    return Box(start, stop + item_bytes, tuple(steps))


def overlaps(
    boxes: Sequence[Box], addresses: Sequence[int], is_written: Sequence[bool]
) -> Iterator[tuple[int, int]]:
    """Pairs of boxes that share a byte and are not both read: their indices, the smaller one first.

    Each box is moved by its address.
    """
    for later in range(len(boxes)):
        first, last = boxes[later].start + addresses[later], boxes[later].stop + addresses[later]
        for earlier in range(later):
            if (
                (is_written[earlier] or is_written[later])
                and first < boxes[earlier].stop + addresses[earlier]
                and boxes[earlier].start + addresses[earlier] < last
                and share_a_byte(boxes[earlier].at(addresses[earlier]), boxes[later].at(addresses[later]))
            ):
                yield earlier, later


def share_a_byte(one: Box, other: Box) -> bool:
    """Whether two boxes have a byte in common.

    The answer is exact, unless the search takes more than `MAX_STEPS` (about 20 ms): then it is True.
    """
    if one.start >= other.stop or other.start >= one.stop or not (one.size and other.size):
        return False
    # A byte of either box is start + sum(x * stride) with 0 <= x < size. If the other box's x count from its
    # end, every term of the difference is positive: sum(term * x) == target.
    bounds: dict[int, int] = {}
    target = other.start - one.start
    for stride, size in one.steps:
        bounds[stride] = bounds.get(stride, 0) + size - 1
    for stride, size in other.steps:
        bounds[stride] = bounds.get(stride, 0) + size - 1
        target += stride * (size - 1)
    terms = sorted(bounds.items(), reverse=True)
    return _is_sum(terms, target)


def _is_sum(terms: Sequence[tuple[int, int]], target: int) -> bool:
    """Whether `target` is a sum of strides, each used at most `bound` times; strides are in descending order.

    A depth-first search, largest stride first. The reach of the smaller strides and their greatest common
    divisor leave few counts to try; if they reach every multiple of the divisor, the answer is known.
    """
    reach, divisor, is_dense = [0], [0], [True]  # for each suffix of the terms, shortest first
    for stride, bound in reversed(terms):
        common = gcd(divisor[-1], stride)
        # The smaller strides reach every multiple of the divisor between two multiples of this stride.
        is_filled = divisor[-1] in (0, common) and reach[-1] + common >= stride
        is_dense.append(is_dense[-1] and is_filled)
        reach.append(reach[-1] + stride * bound)
        divisor.append(common)
    for facts in (reach, divisor, is_dense):
        facts.reverse()
    if not 0 <= target <= reach[0]:
        return False
    steps_left = MAX_STEPS
    pending = [(0, target)]
    seen = set(pending)
    while pending:
        level, rest = pending.pop()
        if rest == 0:
            return True
        if rest % divisor[level]:
            continue
        if is_dense[level]:
            return True
        stride, bound = terms[level]
        lowest = max(0, -(-(rest - reach[level + 1]) // stride))
        highest = min(bound, rest // stride)
        steps_left -= highest - lowest + 1
        if steps_left < 0:
            return True
        places = {(level + 1, rest - count * stride) for count in range(lowest, highest + 1)} - seen
        seen |= places
        pending += places
    return False
