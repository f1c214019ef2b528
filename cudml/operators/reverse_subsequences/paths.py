"""The paths of `REVERSE_SUBSEQUENCES`, and the choice between them."""

import math
from typing import NamedTuple

from cudml.operators.index_space import Dimension, Space
from cudml.operators.launch_shape import WORD_BYTES, run_shape
from cudml.operators.path import BY_TREE, Choice, Path, by_name, first_that_can, named_path, single_step
from cudml.operators.reverse_subsequences.boxes import boxes, boxes_touch
from cudml.operators.reverse_subsequences.columns import columns, strip_width, strips_fit
from cudml.operators.reverse_subsequences.gather import gather
from cudml.operators.reverse_subsequences.lanes import (
    BUFFERS,
    LENGTHS,
    SOURCE,
    TARGET,
    Lanes,
    any_lanes,
    lanes_of,
)
from cudml.operators.reverse_subsequences.runs import (
    lanes_are_runs,
    rows_share_lengths,
    whole_lanes,
    whole_rows,
)
from cudml.operators.reverse_subsequences.serial import lengths_differ_in_rows, serial, serial_columns
from cudml.operators.slice.paths import copy_step
from cudml.operators.tree import MOST_BYTES, Tree, read_tree
from cudml.plans import Limits, Step, ceil_div
from cudml.tensors import TensorDesc


def reversal_step(
    source: TensorDesc,
    lengths: TensorDesc,
    target: TensorDesc,
    axis: int,
    limits: Limits,
    path: str | None = None,
) -> Step:
    """The step that reverses the lanes of a tensor that is not empty.

    Raises ValueError if `path` is not a key of `PATHS`, or cannot compute this reversal.
    """
    lanes = lanes_of(source, lengths, target, axis)
    taken = choose_path(lanes, limits).path if path is None else named_path(PATHS, path, lanes, limits)
    ((step,), _) = taken.steps(lanes, limits)
    return step


def are_single(lanes: Lanes, limits: Limits) -> bool:
    """Whether a lane is one element, which a reversal leaves in place."""
    return lanes.axis.size == 1


def copied(lanes: Lanes, limits: Limits) -> Step:
    """Lanes of one element: a copy, by a path of slices."""
    dimensions = tuple(Dimension(d.size, d.strides[:LENGTHS]) for d in lanes.others.dimensions)
    space = Space(dimensions, lanes.others.offsets[:LENGTHS], lanes.item_bytes)
    return copy_step(space, BUFFERS[0], BUFFERS[2], limits)


PATHS = by_name(
    Path("copy", "lanes of one element", are_single, single_step(copied)),
    Path(
        "serial_columns",
        "lanes across rows, each of its own length, on a CPU",
        lengths_differ_in_rows,
        single_step(serial_columns),
    ),
    Path("serial", "any layout on a CPU", any_lanes, single_step(serial)),
    Path("boxes", "small boxes one after another", boxes_touch, single_step(boxes)),
    Path("lanes", "long contiguous lanes", lanes_are_runs, single_step(whole_lanes)),
    Path("rows", "lanes across long rows of one length each", rows_share_lengths, single_step(whole_rows)),
    Path("columns", "lanes across rows, each of its own length", strips_fit, single_step(columns)),
    Path("gather", "any layout", any_lanes, single_step(gather)),
)


class Features(NamedTuple):
    """The features of a reversal for the tree; members about a path are 0 if the path cannot compute it."""

    bytes_per_multiprocessor: float
    item_bytes: int
    #: The largest power of two, a word at most, that divides the steps in bytes between rows of the source.
    alignment: int
    axis_size: int
    lane_bytes: int
    lengths_differ_in_rows: bool
    # boxes
    box_bytes: int
    # lanes or rows
    run_bytes: int
    run_threads_per_multiprocessor: float
    # columns
    strip_row_bytes: int
    strips_per_multiprocessor: float


def features_of(lanes: Lanes, limits: Limits) -> Features:
    """The features of a reversal on a device."""
    others, along, item_bytes = lanes.others, lanes.axis, lanes.item_bytes
    share = min(1, MOST_BYTES * limits.num_multiprocessors / lanes.num_bytes) / limits.num_multiprocessors
    row_size = others.dimensions[0].size if others.dimensions else 1
    innermost = min((*others.dimensions, along), key=lambda d: abs(d.strides[TARGET]))
    run_bytes = run_threads = strip_row_bytes = num_strips = 0
    if rows_share_lengths(lanes, limits):
        run_bytes = row_size * item_bytes
    elif lanes_are_runs(lanes, limits):
        run_bytes = along.size * item_bytes
    if run_bytes:
        shape = run_shape(run_bytes, lanes.num_bytes, limits)
        run_threads = lanes.num_bytes // run_bytes * shape.pieces_per_run * shape.group_lanes
    width = strip_width(lanes, limits)
    if width is not None:
        strip_row_bytes = min(width, row_size) * item_bytes
        num_strips = others.num_items // row_size * ceil_div(row_size, width)
    return Features(
        bytes_per_multiprocessor=lanes.num_bytes * share,
        item_bytes=item_bytes,
        alignment=math.gcd(
            WORD_BYTES, *[d.strides[SOURCE] * item_bytes for d in (along, *others.dimensions[1:])]
        ),
        axis_size=along.size,
        lane_bytes=along.size * item_bytes,
        lengths_differ_in_rows=innermost.strides[LENGTHS] != 0,
        box_bytes=lanes.box_bytes if boxes_touch(lanes, limits) else 0,
        run_bytes=run_bytes,
        run_threads_per_multiprocessor=run_threads * share,
        strip_row_bytes=strip_row_bytes,
        strips_per_multiprocessor=num_strips * share,
    )


def choose_path(lanes: Lanes, limits: Limits, tree: Tree | None = None) -> Choice[Lanes]:
    """The path that is estimated to be the fastest, by the given tree or the operator's own."""
    if are_single(lanes, limits):
        return Choice(PATHS["copy"], "lanes of one element")
    if limits.warp_lanes == 1:
        name = "serial_columns" if lengths_differ_in_rows(lanes, limits) else "serial"
        return Choice(PATHS[name], "blocks of one thread")
    ranked = (tree or read_tree("reverse_subsequences", Features._fields)).ranked(features_of(lanes, limits))
    path = first_that_can(PATHS, ranked, lanes, limits, PATHS["gather"])
    return Choice(path, BY_TREE)
