"""The host side of data movement: coalescing keeps every byte's way, and finds the fewest steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudml.operators import launch_shape
from cudml.operators.index_space import (
    Dimension,
    Space,
    coalesced,
    dimensions_of,
    is_packed,
    magic_division,
    merged,
    span_bytes,
    span_items,
    widened,
    without_ones,
)
from cudml.operators.launch_shape import RunShape, run_shape
from cudml.plans import Limits

LIMITS = Limits(132, 1024, 232448, 233472, 65536, 2048, 8, 50 << 20, 90)


def ways(space: Space) -> list[tuple[int, ...]]:
    """For every byte that moves, its offset in each operand; sorted."""
    moved = []
    for c in np.ndindex(*(d.size for d in space.dimensions)):
        items = [
            offset + sum(i * d.strides[k] for i, d in zip(c, space.dimensions, strict=True))
            for k, offset in enumerate(space.offsets)
        ]
        moved += [tuple(item * space.item_bytes + byte for item in items) for byte in range(space.item_bytes)]
    return sorted(moved)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """A space whose target has any order and gaps, and whose source has any strides."""
    rank = draw(st.integers(0, 5))
    sizes = [draw(st.sampled_from((1, 2, 3, 4, 8))) for _ in range(rank)]
    target, source, step = [0] * rank, [0] * rank, 1
    for d in draw(st.permutations(range(rank))):
        target[d] = step * draw(st.sampled_from((1, 1, -1)))
        step *= sizes[d] + draw(st.sampled_from((0, 0, 0, 1, 2)))
    follows = draw(st.booleans())
    for d in range(rank):
        source[d] = target[d] if follows else draw(st.integers(-6, 6))
    offsets = (draw(st.integers(0, 8)), draw(st.integers(0, 8)))
    return Space(dimensions_of(sizes, source, target), offsets, draw(st.sampled_from((1, 2, 4, 8, 16))))


def places(space: Space, operand: int) -> list[int]:
    """Where each item of an operand lies, in the order of the space."""
    return [
        space.offsets[operand]
        + sum(i * d.strides[operand] for i, d in zip(reversed(c), space.dimensions, strict=True))
        for c in np.ndindex(*(d.size for d in reversed(space.dimensions)))
    ]


@settings(deadline=None, max_examples=200)
@given(space=spaces(), is_coalesced=st.booleans())
def test_span_and_packing(space: Space, is_coalesced: bool) -> None:
    space = widened(coalesced(space, 1), (0, 1)) if is_coalesced else space
    for operand in (0, 1):
        taken = places(space, operand)
        assert span_items(space, operand) == (min(taken), max(taken) + 1)
        follows = taken == list(range(taken[0], taken[0] + len(taken)))
        assert is_packed(Space(without_ones(space.dimensions), space.offsets, 1), operand) == follows


@settings(deadline=None, max_examples=200)
@given(space=spaces())
def test_every_byte_keeps_its_way(space: Space) -> None:
    fewer = widened(coalesced(space, 1), (0, 1))
    assert ways(fewer) == ways(space)
    assert fewer.num_items * fewer.item_bytes == space.num_items * space.item_bytes
    targets = [d.strides[1] for d in fewer.dimensions]
    assert all(size > 1 for size in (d.size for d in fewer.dimensions))
    assert targets == sorted(targets)
    assert all(stride > 0 for stride in targets)


@settings(deadline=None, max_examples=100)
@given(space=spaces())
def test_span_holds_exactly_what_is_addressed(space: Space) -> None:
    for operand in (0, 1):
        touched = [way[operand] for way in ways(space)]
        assert span_bytes(space, operand) == (min(touched), max(touched) + 1)


#: Results of coalescing: sizes, source strides, target strides, offsets, item bytes -> the result.
CASES = {
    "a packed copy is one run of the widest items": (
        ((4, 6, 10), (60, 10, 1), (60, 10, 1), (0, 0), 4),
        Space((Dimension(60, (1, 1)),), (0, 0), 16),
    ),
    "an odd row keeps its items": (
        ((4, 5), (8, 1), (5, 1), (0, 0), 4),
        Space((Dimension(5, (1, 1)), Dimension(4, (8, 5))), (0, 0), 4),
    ),
    "an odd offset keeps its items": (
        ((4, 4), (8, 1), (4, 1), (1, 0), 4),
        Space((Dimension(4, (1, 1)), Dimension(4, (8, 4))), (1, 0), 4),
    ),
    "a row of one wide item vanishes": (
        ((7, 4), (8, 1), (4, 1), (4, 0), 4),
        Space((Dimension(7, (2, 1)),), (1, 0), 16),
    ),
    "every other row of a packed tensor": (
        ((3, 4, 6), (48, 12, 1), (24, 6, 1), (0, 0), 2),
        Space((Dimension(3, (1, 1)), Dimension(12, (6, 3))), (0, 0), 4),
    ),
    "both reversed is neither": (
        ((8,), (-1,), (-1,), (7, 7), 1),
        Space((), (0, 0), 8),
    ),
    "reversed in the target is reversed in the source": (
        ((5,), (1,), (-1,), (0, 4), 2),
        Space((Dimension(5, (-1, 1)),), (4, 0), 2),
    ),
    "a target in another order": (
        ((3, 5), (5, 1), (1, 3), (0, 0), 4),
        Space((Dimension(3, (5, 1)), Dimension(5, (1, 3))), (0, 0), 4),
    ),
    "a broadcast row": (
        ((4, 6), (0, 1), (6, 1), (0, 0), 4),
        Space((Dimension(3, (1, 1)), Dimension(4, (0, 3))), (0, 0), 8),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_coalescing_gives(case: tuple) -> None:
    (sizes, source, target, offsets, item_bytes), expected = case
    space = Space(dimensions_of(sizes, source, target), offsets, item_bytes)
    assert widened(coalesced(space, 1), (0, 1)) == expected


def test_dimensions_of_one_step_do_not_stand_between_neighbours() -> None:
    dimensions = dimensions_of((2, 1, 3), (3, 77, 1), (3, 99, 1))
    assert merged(without_ones(dimensions)) == (Dimension(6, (1, 1)),)


def test_kept_dimensions_are_not_halved() -> None:
    space = Space((Dimension(2, (1, 1)), Dimension(4, (2, 2))), (0, 0), 1)
    assert widened(space, (0, 1)) == Space((), (0, 0), 8)
    assert widened(space, (0, 1), kept=1) == Space((Dimension(4, (1, 1)),), (0, 0), 2)
    space = Space((Dimension(2, (1, 1)), Dimension(1, (2, 2))), (0, 0), 1)
    assert widened(space, (0, 1), kept=1) == Space((Dimension(1, (1, 1)),), (0, 0), 2)


@pytest.mark.parametrize("word_bits", [32, 64])
def test_division_by_multiplication(word_bits: int, rng: np.random.Generator) -> None:
    largest = 2 ** (word_bits - 1) - 1
    powers = [2**e + d for e in range(word_bits - 1) for d in (-1, 0, 1)]
    divisors = {d for d in [*powers, *range(1, 300), largest] if 1 <= d <= largest}
    for divisor in sorted(divisors):
        multiplier, shift = magic_division(divisor, word_bits)
        assert 0 < multiplier < 2**word_bits
        assert shift < word_bits
        quotient = int(rng.integers(0, largest // divisor, endpoint=True))
        near = (quotient * divisor + d for d in (-1, 0, 1, divisor - 1))
        for numerator in (0, 1, largest, largest - 1, *near):
            if 0 <= numerator <= largest:
                product = numerator * multiplier >> word_bits
                assert product + numerator < 2**word_bits
                assert (product + numerator) >> shift == numerator // divisor


@pytest.mark.parametrize(
    "run_bytes", [1, 15, 16, 17, 64, 100, 2048, 2049, 4096, 4097, 16385, 10**5, 10**9, 2**40]
)
def test_shapes_of_runs_cover_them(run_bytes: int) -> None:
    for total in (run_bytes, 2**30, 2**45):
        shape = run_shape(run_bytes, max(run_bytes, total), LIMITS)
        assert shape.piece_bytes % 16 == 0
        assert (shape.pieces_per_run - 1) * shape.piece_bytes < run_bytes
        assert run_bytes <= shape.pieces_per_run * shape.piece_bytes
        assert shape.group_lanes in (4, 8, 16, 32)
        words = shape.piece_bytes // 16
        assert words <= launch_shape.MAX_LANE_WORDS * shape.group_lanes
        # Runs are cut only for whole warps, and no more lanes own a piece than have words.
        assert shape.pieces_per_run == 1 or shape.group_lanes == 32
        assert shape.group_lanes == 4 or shape.group_lanes < 2 * words


def test_pieces_of_runs_are_even() -> None:
    assert run_shape(4096, 2**30, LIMITS) == RunShape(1, 4096, 32)
    assert run_shape(16384, 2**30, LIMITS) == RunShape(4, 4096, 32)
    assert run_shape(4100, 2**30, LIMITS) == RunShape(2, 2064, 32)
    assert run_shape(800, 2**30, LIMITS) == RunShape(1, 800, 8)
    assert run_shape(20, 2**30, LIMITS) == RunShape(1, 32, 4)


def test_short_runs_of_little_have_more_lanes() -> None:
    """A lane gets a second word only if each of 33792 threads has a first one: 528 KiB of words."""
    shapes = {kib: run_shape(1024, kib << 10, LIMITS) for kib in (256, 1024, 4096, 65536)}
    assert {kib: s.group_lanes for kib, s in shapes.items()} == {256: 32, 1024: 32, 4096: 16, 65536: 8}
    shapes = {kib: run_shape(kib << 10, kib << 10, LIMITS) for kib in (256, 1024, 4096, 65536)}
    assert {kib: s.piece_bytes for kib, s in shapes.items()} == {256: 512, 1024: 512, 4096: 2048, 65536: 4096}
