"""Top-k of k = 1, the index of the largest or smallest element of every row: the shapes of its kernels."""

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import VECTOR_BYTES, Selection, are_vectors, fine_params, lie_together
from cudml.plans import SECTOR_BYTES, WARP_LANES, KernelLaunch, Limits, Workspace, ceil_div, round_up

# kernels/top_k/arg_max.cu
_FEW_LANES = 4
_LOADS_AHEAD = 4
_BATCH_BYTES = _LOADS_AHEAD * VECTOR_BYTES
_THREADS = 256
_BLOCK_THREADS = 512


#: Few lanes own a row if the lanes of all rows are at least this part of the threads that the device holds,
#: or the part by the next number if that is less. Predicted 12.4 us by 4 lanes, 13.6 by 32, for 8000 columns
#: of 250 bytes; 12.4 and 9.0 for 4000 (machine code).
_LANES_MIN_PART = 1 / 10

#: The part per batch of loads; the first is free if elements lie side by side. Predicted 5.5 us by 4 lanes,
#: 6.4 by 32, for 3000 rows of 66 words, and 7.2 and 7.4 for 6000 of 256; 5.6 and 5.7 for 3000 columns of 20
#: (machine code).
_LANES_MIN_PART_PER_BATCH = 0.03

#: Longest row of few lanes whose elements lie side by side, in bytes per lane; the second number is for words
#: and wider elements in whole vectors. Predicted 12.0 us by 4 lanes, 12.2 by 32, for 13000 rows of 401 words;
#: 11.6 and 10.6 for 400 (machine code).
_MAX_LANE_BYTES = (512, 256)

#: Longest row of a warp, in bytes per lane. Eight batches of loads share the cost of a row's end (estimate).
_MAX_WARP_LANE_BYTES = 512

#: Shortest row, in bytes, that several blocks share; an element of a column counts as a sector. Predicted 8.6
#: us by several, 11.5 by one, for 128256 elements of 4 bytes; 8.1 and 22.4 for 7 columns of 78618 (machine
#: code).
_SHARED_MIN_ROW_BYTES = 3 << 17

#: Largest number of rows that several blocks share, as a part of the number of multiprocessors. More keep the
#: memory busy: predicted 12.9 us by one, 16.3 by several, for 64 (machine code).
_SHARED_MAX_PART = 1 / 3

#: Shortest stretch of a shared row, in bytes, that one block reads: a batch of loads for half of the threads.
#: With half of it, predicted no faster (machine code).
_MIN_STRETCH_BYTES = 1 << 14

#: Blocks that a multiprocessor runs at once. Limited by its registers (machine code).
_BLOCKS_PER_MULTIPROCESSOR = 2


def can_arg_max(selection: Selection, limits: Limits) -> bool:
    """Whether k is 1."""
    return limits.warp_lanes == WARP_LANES and selection.k == 1


def arg_max(selection: Selection, limits: Limits) -> Steps:
    """The steps: groups of lanes own rows that are short or many; else one or several blocks own a row."""
    lanes = _lanes_of_row(selection, limits)
    return _by_blocks(selection, limits) if lanes is None else _by_lanes(selection, lanes, limits)


def _lanes_of_row(selection: Selection, limits: Limits) -> int | None:
    """Lanes per row; None for whole blocks."""
    row_bytes = selection.row_length * selection.element.size
    if _few_lanes_pay(selection, row_bytes, limits):
        return _FEW_LANES
    # If there are more rows than blocks that run at once, warps have them all under way.
    outnumber = selection.num_rows > _resident_blocks(limits)
    lane_bytes = _MAX_WARP_LANE_BYTES if outnumber else _BATCH_BYTES
    return WARP_LANES if row_bytes <= WARP_LANES * lane_bytes else None


def _few_lanes_pay(selection: Selection, row_bytes: int, limits: Limits) -> bool:
    """Whether few lanes take less time for a row than a warp, whose lanes have fewer loads to wait for.

    Lanes side by side read the same sectors of neighbouring columns, however long the columns are.
    """
    part = selection.num_rows * _FEW_LANES / limits.resident_threads
    if lie_together(selection):
        # One batch takes few lanes no longer than many.
        batches = ceil_div(row_bytes, _FEW_LANES * _BATCH_BYTES) - 1
        is_quick_for_warps = selection.element.size >= 4 and are_vectors(selection)
        is_long = row_bytes > _FEW_LANES * _MAX_LANE_BYTES[is_quick_for_warps]
    else:
        batches, is_long = ceil_div(selection.row_length, _FEW_LANES * _LOADS_AHEAD), False
    min_part = min(_LANES_MIN_PART, batches * _LANES_MIN_PART_PER_BATCH)
    return part >= min_part and not is_long


def _resident_blocks(limits: Limits) -> int:
    return limits.num_multiprocessors * _BLOCKS_PER_MULTIPROCESSOR


def _by_lanes(selection: Selection, lanes: int, limits: Limits) -> Steps:
    num_blocks = ceil_div(selection.num_rows, _THREADS // lanes)
    resident = limits.num_multiprocessors * max(1, limits.max_threads_per_multiprocessor // _THREADS)
    launch = KernelLaunch(
        source="top_k/arg_max.cu",
        function="top_k_arg_max",
        template=(selection.word, lanes, *selection.raggedness),
        grid=(min(num_blocks, resident), 1, 1),
        block=(_THREADS, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
        constants=(("kThreads", _THREADS),),
    )
    return (launch,), ()


def _by_blocks(selection: Selection, limits: Limits) -> Steps:
    # If the elements of a row do not lie together, each of them takes a sector.
    item_bytes = selection.element.size if lie_together(selection) else SECTOR_BYTES
    row_bytes = selection.row_length * item_bytes
    resident = _resident_blocks(limits)
    parts = 1
    leaves_idle = selection.num_rows <= _SHARED_MAX_PART * limits.num_multiprocessors
    if leaves_idle and row_bytes >= _SHARED_MIN_ROW_BYTES:
        parts = max(1, min(resident // selection.num_rows, row_bytes // _MIN_STRETCH_BYTES))
    key_bytes = max(selection.element.size, 4)
    found_bytes = round_up(key_bytes + 4, key_bytes)
    num_warps = _BLOCK_THREADS // WARP_LANES
    storage_bytes = round_up(num_warps * (key_bytes + 4) + 4, key_bytes)
    workspaces: tuple[Workspace, ...] = ()
    if parts > 1:
        workspaces = (
            Workspace("num_done", 4 * selection.num_rows, is_left_zero=True),
            Workspace("found", selection.num_rows * parts * found_bytes),
        )
    launch = KernelLaunch(
        source="top_k/arg_max.cu",
        function="top_k_arg_max_block",
        template=(selection.word, *selection.raggedness),
        grid=(parts, min(selection.num_rows, max(1, resident // parts)), 1),
        block=(_BLOCK_THREADS, 1, 1),
        buffers=(*selection.operands, "num_done" if parts > 1 else None, "found" if parts > 1 else None),
        params=fine_params(selection, blocks_per_row=parts),
        shared_bytes=storage_bytes,
        constants=(
            ("kBlockThreads", _BLOCK_THREADS),
            (f"sizeof(BlockStorage<{selection.word}>)", storage_bytes),
            (f"sizeof(PartFirst<{selection.word}>)", found_bytes),
        ),
    )
    return (launch,), workspaces
