"""The numbers that estimate the clocks of each path of a reversal.

`choices/reverse_subsequences.json` has their values. Clocks are those of a multiprocessor beyond the launch;
bytes per clock are its share of the memory, of the output alone. "By width" means items of 1, 2, 4, 8 and 16
bytes, as wide as neighbours with one length allow.
"""

from dataclasses import dataclass

from cudml.operators.choice import numbers_of

IntByWidth = tuple[int, int, int, int, int]
FloatByWidth = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Thresholds:
    """What `choose_path` estimates the clocks of a reversal by."""

    # gather

    #: Clocks of each further item of a thread, if one block moves all.
    gather_item_clocks: int
    #: Items of a large output that are moved per clock.
    gather_items_per_clock: float

    # lanes and rows, which are runs

    #: Clocks of small lanes, by width.
    lanes_clocks: IntByWidth
    #: The same of lanes up to a word.
    word_lanes_clocks: int
    #: Clocks of small rows.
    rows_clocks: int
    #: Clocks of a thread of lanes beside one for each of its words, by width.
    thread_clocks: FloatByWidth
    #: Factor of these for rows.
    rows_part_of_thread: float

    # boxes

    #: Clocks of a small tile.
    boxes_clocks: int
    #: Clocks of each item.
    box_item_clocks: float
    #: Clocks of each lane.
    box_lane_clocks: float

    # columns

    #: Clocks of a small strip, by width.
    strip_clocks: IntByWidth
    #: Bytes of a strip that are moved per clock, by the width of a load.
    strip_bytes_per_clock: FloatByWidth

    # the memory

    #: Bytes per clock.
    bytes_per_clock: float
    #: The same of the gather across rows, if lanes have lengths of their own.
    scattered_bytes_per_clock: float


THRESHOLDS = numbers_of("reverse_subsequences", Thresholds)
