"""Defects that running the machine code shows."""

from tests.planted.defect import Defect

#: The report of a case that became slower.
_PREDICTED = "tests/machine_code/test_predictions.py::test_case_takes_the_recorded_time"
_SLOWER = r"slower, [\d.]+ -> [\d.]+ us"

DEFECTS = {
    "tiles that are copied twice": Defect(
        "kernels/slice/gather.cu",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile) {",
        "tile_begin += static_cast<Int64>(gridDim.x) * kItemsPerTile / 2) {",
        (),
        "stores to each byte",
        tests=("tests/machine_code/test_runs.py::test_cases[scattered halves]",),
    ),
    "half the loads under way": Defect(
        "kernels/reverse_subsequences/columns.cu",
        "constexpr int kLoads = sizeof(Word) >= 8 ? 8 : (sizeof(Word) == 4 ? 16 : 32);",
        "constexpr int kLoads = sizeof(Word) >= 8 ? 4 : (sizeof(Word) == 4 ? 8 : 16);",
        (),
        r"min_flight_bytes \d+ -> \d+",
        tests=(
            "tests/machine_code/test_instances.py::test_kernel_instances[sm_90-reverse_columns<Bits128>]",
        ),
    ),
    "a division in a loop": Defect(
        "kernels/reverse_subsequences/boxes.cu",
        "const Item item = items[low];",
        "const Item item = items[low / p.row_lanes];",
        (),
        _SLOWER,
        tests=(f"{_PREDICTED}[reverse_subsequences-short rows 16777216 x 12 axis 1 uint8]",),
    ),
    "accesses of a line that do not wait for each other": Defect(
        "proof/sass/machine/schedule.cpp",
        "return line.begin(at, clocks);",
        "return line.begin(at, 0);",
        (),
        r"exchange of 512 words between \d+ blocks, polls of \d+ bytes: -\d",
        tests=("tests/machine_code/test_micro.py::test_a_model_that_forgets_is_caught[contention]",),
    ),
}
