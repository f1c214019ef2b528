"""Every barrier, fence, release and acquire of the kernels, removed one at a time."""

import re
from collections.abc import Iterator

from tests.planted.defect import DIVERGENT, RACE, ROOT, UNWRITTEN, WRONG, Defect

_KERNELS = ROOT / "kernels"

_BARRIER = re.compile(
    r"\b(?:__syncthreads|__syncwarp|__threadfence|cluster_barrier|named_barrier)\([^()]*\);"
)

#: An operation that orders memory -> the same operation without the order.
RELAXED = {
    "__syncthreads_or(": "static_cast<int>(",
    "add_release(": "atomicAdd(",
    "add_acquire_release(": "atomicAdd(",
    "store_release(": "store_relaxed(",
    "load_acquire(": "load_relaxed(",
    "store_release_system(": "store_relaxed(",
}

#: Tests of releases that no case observes, because the host is no thread of a kernel.
_TESTS = {
    "common/wait.cuh": (
        "tests/machine_code/test_instances.py::test_kernel_instances[sm_90-top_k_grid_radix<UInt16>]",
    ),
}
_NOT_RELEASED = "without a release to the host"

#: Cases that use a file's barriers; the cases that need most of them come first.
_CASES = {
    "common/block_scan.cuh": ("block radix", "grid radix", "block radix, many results"),
    "gru/block.cu": (
        "gru in a block, both directions",
        "gru in a block, weights in memory",
        "gru in a block",
        "gru in a block, fixed items, reset first",
        "gru in a block, several sequences",
    ),
    "gru/exchanged_grid.cuh": (
        "gru on a grid, fixed items",
        "gru on a grid, fixed items, reset first",
        "gru, a wave of two layers",
    ),
    "gru/matrix_grid.cu": ("gru by matrix instructions",),
    "gru/products.cu": ("gru by products", "gru by products, reset first"),
    "gru/round_grid.cuh": (
        "gru on a grid, several rounds",
        "gru on a grid, several rounds, reset first",
        "gru on a grid, weights in memory",
        "gru on a grid",
    ),
    "gru/step.cu": (
        "gru, a single step of several sequences, reset first",
        "gru, a single step, reset first",
        "gru, a single step of several sequences",
    ),
    "gru/matrix_step.cuh": (
        "gru by split products",
        "gru by split products, reset first",
        "gru by split products, wide blocks",
    ),
    "reverse_subsequences/boxes.cu": ("short lanes", "more short lanes than blocks have"),
    "reverse_subsequences/columns.cu": ("columns",),
    "slice/planes.cu": ("bytes of pixels", "halves of planes", "more lines of planes than lanes"),
    "slice/transpose.cu": ("transposed halves in words", "more transposed tiles than blocks"),
    "top_k/arg_max.cu": (
        "first of rows by blocks",
        "first of two rows by several blocks",
        "first of a row by several blocks",
    ),
    "top_k/block_filter.cu": (
        "rows filtered by several blocks",
        "rows filtered by groups of blocks",
        "filtered rows, every element a result",
        "filtered rows in ascending order, a block each",
        "rows filtered again by one of their blocks",
        "filtered rows shorter than a load",
        "ragged rows with few elements, filtered",
    ),
    "top_k/block_choose.cu": (
        "chosen elements of rows in four parts",
        "chosen elements that tie",
        "chosen elements of ragged rows",
    ),
    "top_k/block_keep.cu": (
        "kept rows",
        "kept rows in ascending order",
        "kept rows of many ties",
        "kept rows of few keys",
        "kept rows of any numbers",
        "kept rows, every element a result",
    ),
    "top_k/block_sort.cu": (
        "rows sorted in two parts",
        "rows sorted in four parts",
        "ragged rows, sorted in parts",
    ),
    "top_k/block_radix.cu": ("block radix", "block radix, many results", "block radix through memory"),
    "top_k/cluster.cu": (
        "rows by clusters",
        "rows by clusters of four",
        "rows by clusters of two",
        "rows by a block each",
        "rows by a block each, equal elements",
        "rows by a block each, few keys",
        "rows by clusters, few keys",
        "rows by clusters, few keys but one",
        "rows by clusters, few results",
        "rows of bytes by clusters, few results",
        "rows by a block each, few results",
        "rows by clusters, equal elements",
        "rows by clusters, close keys",
        "ragged rows by clusters",
        "rows by clusters, ascending",
        "rows by clusters, many results that tie",
        "rows by clusters, many results",
        "rows by clusters, every element a result",
    ),
    "top_k/cluster_share.cuh": ("rows by clusters, few results", "rows by clusters, few results, ascending"),
    "top_k/columns.cu": (
        "columns by a block",
        "columns in ascending order",
        "columns of many ties",
        "columns for a larger k",
        "short columns by a block",
        "ragged columns",
    ),
    "top_k/filter.cuh": (
        "filtered rows in ascending order",
        "filtered rows",
        "different values filtered by several blocks",
    ),
    "top_k/list_rank.cuh": (
        "grid radix, an exchange of few",
        "groups, ascending",
        "groups, many results that tie",
        "groups of ragged rows",
        "ragged rows with few elements, by groups of neighbours",
        "groups of neighbours",
    ),
    "top_k/exchange.cuh": (
        "grid radix, an exchange of few",
        "grid radix, an exchange of many",
        "grid radix, an exchange of wide keys",
        "grid radix, a guess in ascending order",
    ),
    "top_k/gather.cuh": (
        "block radix",
        "block radix of bytes",
        "block radix, many results",
        "grid radix",
        "grid radix, many ties",
        "ever larger ties filtered by several blocks",
        "ragged rows, block radix",
    ),
    "top_k/grid_radix.cu": (
        "grid radix",
        "grid radix, many results",
        "grid radix, many ties",
        "grid radix, a guess",
        "grid radix, a guess and more results",
        "grid radix, an exchange of many",
        "grid radix, lists of several tiles",
        "ragged rows, grid radix",
    ),
    "top_k/groups.cu": (
        "groups of neighbours",
        "groups, many results that tie",
        "groups, ascending",
        "groups, few results, ascending",
        "groups, every element a result",
        "groups of ragged rows",
        "ragged rows with few elements, by groups of neighbours",
    ),
    "top_k/last_block.cuh": (
        "first of two rows by several blocks",
        "groups of neighbours",
        "rows filtered by several blocks",
    ),
    "top_k/load_rows.cuh": (
        "ragged rows, sorted in parts",
        "chosen elements of ragged rows",
        "short rows by columns",
        "short rows by warps",
        "sorted short rows",
        "ragged short rows by columns",
    ),
    "top_k/network_rank.cuh": ("filtered rows, many results", "filtered rows of some ties"),
    "top_k/list_sort.cuh": ("block radix", "block radix of bytes", "block radix, many results"),
    "top_k/tile_sort.cuh": ("grid radix, many results", "grid radix, lists of several tiles"),
    "top_k/warp_select.cu": (
        "short rows by warps",
        "longer rows by warps",
        "short rows of NaNs",
        "short rows by columns",
    ),
    "top_k/row_sort.cuh": (
        "chosen elements of short rows, sorted",
        "sorted short rows",
        "chosen elements of longer rows, sorted",
    ),
    "top_k/warp_sort.cu": (
        "chosen elements of short rows, sorted",
        "sorted short rows",
        "chosen elements of longer rows, sorted",
    ),
    "top_k/threshold.cuh": ("block radix", "filtered rows in ascending order", "grid radix"),
}


def _planted() -> Iterator[tuple[str, Defect]]:
    for path in sorted(_KERNELS.glob("*/*.cu*")):
        name = path.relative_to(_KERNELS).as_posix()
        if name in ("common/intrinsics.cuh", "common/matrix_intrinsics.cuh"):
            continue
        text = path.read_text()
        places = [(found.start(), found[0], ";") for found in _BARRIER.finditer(text)]
        for strong, weak in RELAXED.items():
            places += [(found.start(), strong, weak) for found in re.finditer(re.escape(strong), text)]
        for start, old, new in sorted(places):
            line = text.count("\n", 0, start)
            defect = Defect(
                f"kernels/{name}",
                old,
                new,
                _CASES.get(name, ()),
                f"{RACE}|{UNWRITTEN}|{WRONG}|{DIVERGENT}|{_NOT_RELEASED}",
                _TESTS.get(name, ()),
                start,
            )
            yield f"{name}:{line + 1} {old.rstrip('(')}", defect


#: By file, line and function.
BARRIERS = dict(_planted())
