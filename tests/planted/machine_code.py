"""Defects that running the machine code shows."""

from tests.planted.defect import Defect

#: What says that a case got slower.
_PREDICTED = "tests/machine_code/test_predictions.py::test_case_is_as_dear_as_recorded"
_DEARER = r"dearer, [\d.]+ -> [\d.]+ us"

DEFECTS = {
    "tiles that are copied twice": Defect(
        "kernels/slice/gather.cu",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile) {",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile / 2) {",
        (),
        "stores to each byte",
        tests=("tests/machine_code/test_runs.py::test_cases",),
    ),
    "half the loads under way": Defect(
        "kernels/slice/gather.cu",
        "constexpr int kItemsPerThread = sizeof(Item) <= 4 ? 8 : 4;",
        "constexpr int kItemsPerThread = sizeof(Item) <= 4 ? 4 : 2;",
        (),
        _DEARER,
        tests=(f"{_PREDICTED}[slice-part of rows 4194304 x 16 float32]",),
    ),
    "a division in a loop": Defect(
        "kernels/reverse_subsequences/boxes.cu",
        "static_cast<int>(divide(static_cast<UInt32>(index), p.box_multiplier, p.box_shift));",
        "index / p.box_items;",
        (),
        _DEARER,
        tests=(f"{_PREDICTED}[reverse_subsequences-small boxes 262144 x 12 x 20 axis 1 float16]",),
    ),
}
