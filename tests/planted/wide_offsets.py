"""Offsets and strides cut to 32 bits."""

from tests.planted.defect import BOUNDS, WRONG, Defect

_TESTS = "tests/operators/test_wide_offsets.py::"


def _cut(file: str, old: str, new: str, test: str) -> Defect:
    return Defect(file, old, new, (), f"{WRONG}|{BOUNDS}", (_TESTS + test,))


DEFECTS = {
    "a copied row's place in 32 bits": _cut(
        "kernels/slice/serial.cu",
        "+ source_item * kItemBytes;",
        "+ static_cast<int>(source_item) * kItemBytes;",
        "test_copies",
    ),
    "a selected row's place in 32 bits": _cut(
        "kernels/top_k/rows.cuh",
        "start.input += coordinate * params.input_strides[d];",
        "start.input += static_cast<int>(coordinate * params.input_strides[d]);",
        "test_selections",
    ),
    "a selected element's place in 32 bits": _cut(
        "kernels/top_k/rows.cuh",
        "static_cast<Int64>(index) * params.input_axis_stride];",
        "static_cast<int>(index * params.input_axis_stride)];",
        "test_selections",
    ),
    "a block's part of a row in 32 bits": _cut(
        "kernels/top_k/block_filter.cu",
        "begin * params.input_axis_stride",
        "static_cast<int>(begin * params.input_axis_stride)",
        "test_parts_of_a_column",
    ),
    "a listed element's place in 32 bits": _cut(
        "kernels/top_k/row_reader.cuh",
        "elements[(static_cast<Int64>(begin) + i) * stride]",
        "elements[static_cast<int>((static_cast<Int64>(begin) + i) * stride)]",
        "test_many_of_a_column",
    ),
    "a reversed lane's place in 32 bits": _cut(
        "kernels/reverse_subsequences/lane_space.cuh",
        "position.source += coordinate * p.source_strides[d];",
        "position.source += static_cast<int>(coordinate * p.source_strides[d]);",
        "test_reversals",
    ),
    "a step's place in 32 bits": _cut(
        "kernels/gru/layer.cuh",
        "sequence + time * strides[0] +",
        "sequence + static_cast<int>(time * strides[0]) +",
        "test_layers",
    ),
}
