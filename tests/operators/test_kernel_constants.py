"""Numbers that plans and kernels both know and that no compiler compares: one side alone must not change."""

import re
from importlib import import_module
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"

#: The constant of a module of cudml, by the files of kernels that have it too, and its name there.
CONSTANTS = {
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
