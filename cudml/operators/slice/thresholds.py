"""The numbers that decide between the paths of a copy; `choices/slice.json` has their values.

"By width" means items of 1, 2, 4, 8 and 16 bytes; those of planes have 1 or 2 bytes. An infinite least
number excludes the path.
"""

from dataclasses import dataclass

from cudml.operators.choice import numbers_of

IntByWidth = tuple[int, int, int, int, int]
FloatByWidth = tuple[float, float, float, float, float]
#: By width, and for pixels of 2, 3 and 4 items.
IntByPixel = tuple[tuple[int, int, int], tuple[int, int, int]]


@dataclass(frozen=True)
class Thresholds:
    """What `choose_path` compares a copy with."""

    # runs

    #: Shortest runs, in bytes, by width.
    min_run_bytes: IntByWidth
    #: Largest outputs of runs, in bytes, that are gathered, by width.
    max_gathered_run_bytes: IntByWidth

    # transpose and planes

    #: Largest outputs of either, in bytes, that are gathered, by width.
    max_gathered_matrix_bytes: IntByWidth
    #: Least part of its tiles that a matrix fills, by width.
    min_tile_fill: FloatByWidth
    #: The same where a block of the gather reads whole sectors.
    min_tile_fill_beside_sectors: FloatByWidth
    #: Shortest lines of planes, in bytes, into which pixels are split.
    min_split_plane_bytes: IntByPixel
    #: The same for planes that are joined.
    min_joined_plane_bytes: IntByPixel
    #: The same for a single plane, of every other byte.
    min_single_plane_bytes: int
    #: The same for lines of whole words, aligned in the target, by width.
    min_whole_plane_bytes: tuple[int, int]


THRESHOLDS = numbers_of("slice", Thresholds)
