"""Numbers that plans and kernels both know: one that changes on one side only is found here, on no device."""

import re
from importlib import import_module
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"

#: The constant of a module of cudml, by the files of kernels that have it too, and its name there.
CONSTANTS = {
    "plans.WARP_LANES": {"common/types.cuh": "kWarpSize"},
    "checks.MAX_DIMENSIONS": {"common/types.cuh": "kMaxDimensions"},
    "operators.launch_shape.WORD_BYTES": {"common/run_copy.cuh": "kWordBytes"},
    "operators.launch_shape.RUN_WORDS_PER_LANE": {"common/run_copy.cuh": "kWordsPerLane"},
    "operators.launch_shape.BLOCK_THREADS": {
        "slice/runs.cu": "kThreads",
        "slice/gather.cu": "kThreads",
        "slice/transpose.cu": "kThreads",
        "reverse_subsequences/gather.cu": "kThreads",
        "reverse_subsequences/boxes.cu": "kThreads",
        "reverse_subsequences/lanes.cu": "kThreads",
        "reverse_subsequences/rows.cu": "kThreads",
    },
    "operators.slice_paths.STRIDED_THREADS": {"slice/strided.cu": "kThreads"},
    "operators.slice_paths.STRIDED_MAX_STRIDE": {"slice/strided.cu": "kMaxStride"},
    "operators.slice_paths.TRANSPOSED_TILE_BYTES": {"slice/transpose.cu": "kTileBytes"},
    "operators.reverse_subsequences_paths.GATHER_ITEMS_PER_THREAD": {
        "reverse_subsequences/gather.cu": "kItemsPerThread"
    },
    "operators.reverse_subsequences_paths.BOX_TILE_WORDS": {"reverse_subsequences/boxes.cu": "kTileWords"},
    "operators.gru_shapes.NUM_GATES": {"gru/gates.cuh": "kNumGates"},
    "operators.gru_shapes.BLOCK_UNITS": {"gru/block.cu": "kBlockUnits"},
    "operators.gru_shapes.BLOCK_REGISTER_CHUNKS": {"gru/block.cu": "kBlockRegisterChunks"},
    "operators.gru_shapes.GRID_UNITS": {"gru/grid.cu": "kGridUnits"},
    "operators.gru_shapes.GRID_BATCH": {"gru/grid.cu": "kGridBatch"},
    "operators.gru_shapes.GRID_REGISTER_CHUNKS": {"gru/grid.cu": "kGridRegisterChunks"},
    "operators.gru_shapes.MATRIX_TILES": {"gru/matrix_grid.cu": "kTilesPerGate"},
    "operators.gru_shapes.MATRIX_REGISTER_CHUNKS": {"gru/matrix_grid.cu": "kRegisterChunks"},
    "operators.gru_shapes.MATRIX_ROUND_BATCH": {"gru/matrix_grid.cu": "kRoundBatch"},
    "operators.gru_shapes.MATRIX_ROW_PADDING": {"gru/matrix_grid.cu": "kRowPadding"},
    "operators.gru_shapes.SUM_COLUMNS": {"gru/panels.cuh": "kSumColumns"},
    "operators.top_k_paths._WARP_THREADS": {
        "top_k/warp_select.cu": "kThreads",
        "top_k/warp_sort.cu": "kThreads",
    },
    "operators.top_k_paths._THREAD_LIST_THREADS": {"top_k/thread_list.cu": "kThreads"},
    "operators.top_k_paths._FILTER_THREADS": {"top_k/block_filter.cu": "kThreads"},
    "operators.top_k_paths._BLOCK_THREADS": {"top_k/block_radix.cu": "kThreads"},
    "operators.top_k_paths._GRID_THREADS": {"top_k/grid_radix.cu": "kThreads"},
    "operators.top_k_paths._DIGIT_BITS": {"top_k/threshold.cuh": "kDigitBits"},
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_plans_and_kernels_agree(name: str) -> None:
    module, _, constant = name.rpartition(".")
    value = getattr(import_module(f"cudml.{module}"), constant)
    for file, spelled in CONSTANTS[name].items():
        found = re.findall(rf"constexpr \w+ {spelled} = (\w+);", (KERNELS / file).read_text())
        assert found == [str(value)], f"{name} and {spelled} of kernels/{file}"
