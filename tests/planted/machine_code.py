"""Defects that running the machine code shows."""

from tests.planted.defect import Defect

DEFECTS = {
    "tiles that are copied twice": Defect(
        "kernels/slice/gather.cu",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile) {",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile / 2) {",
        (),
        "stores to each byte",
        tests=("tests/machine_code/test_runs.py::test_cases",),
    ),
}
