"""Top-k of rows that lie side by side, along a strided axis: the shapes of its kernels."""

from bisect import bisect_left

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import Selection, fine_params
from cudml.plans import WARP_LANES, KernelLaunch, Limits, Workspace, ceil_div, round_up

# kernels/top_k/columns.cu
_THREADS = 512
COLUMNS = 16
# Blocks that the registers of a multiprocessor hold at once.
_BLOCKS = 2
_SAFE_LENGTH = 256

#: The largest k of each instance of the kernel.
_MAX_KS = (16, 32, 64, 128)
_MERGE_THREADS = 128


#: Shortest stretch of a row, in elements, that one block reads. A list is cut twice, and a second launch
#: merges the parts (estimate).
_MIN_STRETCH = 1 << 10


def can_filter_columns(selection: Selection, limits: Limits) -> bool:
    """Whether the registers of a warp hold the results of a row, and shared storage the lists."""
    # Elements of 8 bytes leave room for a single block of longer lists.
    most = _MAX_KS[-1 if selection.element.size < 8 else 1]
    is_small = limits.warp_lanes == WARP_LANES and selection.k <= most
    return is_small and _storage_bytes(selection) <= limits.shared_bytes_per_block


def _pair_bytes(selection: Selection) -> int:
    """`sizeof(ColumnPair<Word>)`."""
    return 16 if selection.element.size == 8 else 8


def _max_k(selection: Selection) -> int:
    """`kMaxK`: the largest k of the kernel's instance."""
    return _MAX_KS[bisect_left(_MAX_KS, selection.k)]


def _storage_bytes(selection: Selection) -> int:
    """`sizeof(ColumnStorage<Word, kMaxK>)`."""
    pair_bytes, key_bytes, max_k = _pair_bytes(selection), max(selection.element.size, 4), _max_k(selection)
    capacity = _SAFE_LENGTH + max_k * (2 if max_k < 64 else 4)
    return round_up(COLUMNS * ((capacity + 1) * pair_bytes + key_bytes + 4 + 4) + 4, 8)


def filter_columns(selection: Selection, limits: Limits) -> Steps:
    """The steps: blocks filter neighbouring rows; where several share one, a kernel merges results."""
    groups = ceil_div(selection.num_rows, COLUMNS)
    resident = limits.num_multiprocessors * _BLOCKS
    parts = max(1, min(resident // groups, selection.row_length // _MIN_STRETCH))
    kept = "kept" if parts > 1 else None
    template: tuple[str | int | bool, ...] = (selection.word, _max_k(selection), *selection.raggedness)
    params = fine_params(selection, blocks_per_row=parts)
    filtering = KernelLaunch(
        source="top_k/columns.cu",
        function="top_k_columns",
        template=template,
        grid=(min(groups, resident), parts, 1),
        block=(_THREADS, 1, 1),
        buffers=(*selection.operands, kept),
        params=params,
        shared_bytes=_storage_bytes(selection),
        constants=(
            ("kThreads", _THREADS),
            ("kColumns", COLUMNS),
            ("kSafeLength", _SAFE_LENGTH),
            (f"sizeof(ColumnStorage<{selection.word}, {_max_k(selection)}>)", _storage_bytes(selection)),
        ),
    )
    if parts == 1:
        return (filtering,), ()
    merging = KernelLaunch(
        source="top_k/columns.cu",
        function="top_k_columns_merge",
        template=template,
        grid=(ceil_div(selection.num_rows, _MERGE_THREADS // WARP_LANES), 1, 1),
        block=(_MERGE_THREADS, 1, 1),
        buffers=(*selection.operands, kept),
        params=params,
        constants=(("kMergeThreads", _MERGE_THREADS),),
    )
    kept_bytes = selection.num_rows * parts * selection.k * _pair_bytes(selection)
    return (filtering, merging), (Workspace("kept", kept_bytes),)
