"""Top-k on a CPU, by blocks of one thread."""

from cudml.operators.path import Steps
from cudml.operators.top_k.rows import Selection, fine_params, params_of
from cudml.plans import KernelLaunch, Limits, Workspace, ceil_div, round_up

# kernels/top_k/serial.cu
_GROUP = 32
_STORAGE_BYTES = 4 * 256


#: Elements that the list of one thread holds beyond k before it is cut, as a multiple of k. Cuts are then
#: rare, and the list stays in a near cache (estimate).
_SLACK = 2

#: Fewest elements beyond k: two groups (estimate).
_MIN_SLACK = 64

#: Smallest number of elements for a block of one thread. Starting a block takes as long as some hundred
#: (estimate).
_MIN_ELEMENTS = 1 << 13

#: Largest number of lists in memory, one for each block that runs at once. Few CPUs have more cores
#: (estimate).
_MAX_LISTS = 64


def can_serial(selection: Selection, limits: Limits) -> bool:
    """Whether blocks of one thread are the fastest."""
    return limits.warp_lanes == 1


def can_serial_arg_max(selection: Selection, limits: Limits) -> bool:
    """Whether blocks of one thread are the fastest, and k is 1."""
    return limits.warp_lanes == 1 and selection.k == 1


def serial(selection: Selection, limits: Limits) -> Steps:
    """One launch; a thread lists the elements that can be among the first k of its rows."""
    # The list is cut when the slack is full.
    slack = max(_SLACK * selection.k, _MIN_SLACK)
    capacity = min(round_up(selection.k + slack, _GROUP), selection.row_length)
    key_bytes = max(selection.element.size, 4)
    list_bytes = round_up(capacity, _GROUP) * (2 * key_bytes + 8)
    in_shared = _STORAGE_BYTES + list_bytes <= limits.shared_bytes_per_block
    rows_per_block = ceil_div(_MIN_ELEMENTS, selection.row_length)
    blocks = min(ceil_div(selection.num_rows, rows_per_block), limits.resident_threads)
    if not in_shared:
        blocks = min(blocks, _MAX_LISTS)
    launch = KernelLaunch(
        source="top_k/serial.cu",
        function="top_k_serial",
        template=(selection.word, *selection.raggedness),
        grid=(blocks, 1, 1),
        block=(1, 1, 1),
        buffers=(*selection.operands, None if in_shared else "lists"),
        params=params_of(selection, list_capacity=capacity),
        shared_bytes=_STORAGE_BYTES + (list_bytes if in_shared else 0),
        constants=(
            ("kGroup", _GROUP),
            ("sizeof(SerialStorage)", _STORAGE_BYTES),
        ),
    )
    num_bytes = blocks * list_bytes
    return (launch,), () if in_shared else (Workspace("lists", num_bytes),)


def serial_arg_max(selection: Selection, limits: Limits) -> Steps:
    """One launch; a thread reads its rows once."""
    rows_per_block = ceil_div(_MIN_ELEMENTS, selection.row_length)
    launch = KernelLaunch(
        source="top_k/serial_arg_max.cu",
        function="top_k_serial_arg_max",
        template=(selection.word, selection.element.kind == "f", *selection.raggedness),
        grid=(min(ceil_div(selection.num_rows, rows_per_block), limits.resident_threads), 1, 1),
        block=(1, 1, 1),
        buffers=selection.operands,
        params=fine_params(selection),
    )
    return (launch,), ()
