"""The numbers that decide between the paths of a reversal.

`choices/reverse_subsequences.json` has their values.
"By width" means items of 1, 2, 4, 8 and 16 bytes, as wide as neighbours with one length allow. Clocks are
those of a multiprocessor, without the launch, and beyond what the smallest strips take.
"""

from dataclasses import dataclass

from cudml.operators.choice import numbers_of

IntByWidth = tuple[int, int, int, int, int]
FloatByWidth = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Thresholds:
    """What `choose_path` compares a reversal with."""

    # boxes

    #: Smallest outputs, in bytes, if lanes cross rows and strips of columns fit.
    min_crossing_boxes_bytes: int
    #: The same if lanes are contiguous and items have up to 4 bytes.
    min_contiguous_boxes_bytes: int
    #: Shortest rows of one length, in bytes, that are moved as runs instead.
    min_row_beside_boxes_bytes: int

    # rows

    #: Shortest rows of one length, in bytes, by width.
    min_row_bytes: IntByWidth
    #: The same, in items, where strips do not pay.
    min_row_items: int
    #: Largest output, in bytes, whose rows may have any length there.
    max_short_bytes: int

    # lanes

    #: Shortest lanes, in bytes, by width.
    min_run_bytes: IntByWidth
    #: The same for outputs of up to `max_short_bytes`.
    min_short_run_bytes: int

    # columns, whose estimated clocks are compared with those of the gather and of rows

    #: Narrowest rows between gaps, in bytes.
    min_strip_row_bytes: int
    #: Clocks of a strip, at least, by width.
    strip_clocks: IntByWidth
    #: Bytes of a strip that are moved per clock, by width.
    strip_bytes_per_clock: FloatByWidth
    #: Factor of these where rows begin with whole words, by width.
    strip_factor_of_words: FloatByWidth
    #: Clocks of a small gather.
    gather_clocks: int
    #: Items that a gather moves per clock.
    gather_items_per_clock: float
    #: Bytes that a multiprocessor moves per clock at most.
    memory_bytes_per_clock: float
    #: The same of strips narrower than a sector.
    narrow_strip_bytes_per_clock: float
    #: Clocks of small rows of one length.
    row_clocks: int


THRESHOLDS = numbers_of("reverse_subsequences", Thresholds)
