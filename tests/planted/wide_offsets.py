"""Offsets and strides cut to 32 bits: those listed, and every product with a stride of the parameters."""

import re
from collections.abc import Iterator

from tests.planted.defect import BOUNDS, MISALIGNED, ROOT, UNWRITTEN, WRONG, Defect

_TESTS = "tests/operators/test_wide_offsets.py::"


def _cut(file: str, old: str, new: str, test: str) -> Defect:
    return Defect(file, old, new, (), f"{WRONG}|{BOUNDS}", (_TESTS + test,))


_KERNELS = ROOT / "kernels"

#: A factor times a stride; the stride is a member of the parameters or an element of an array of strides.
_PRODUCT = re.compile(
    r"(?:[\w.]*(?:<\w+>)?\([^()]*\)|\b\w+(?:\.\w+)*)(?: / kItemBytes)?"
    r" \* (?:(?:layer\.)?(?:p|params)\.\w*(?:strides\[\w+\]|stride\b)|strides\[\d\])"
)

#: Pieces of lines whose products fit 32 bits, or are never used.
_NARROW = (
    "row_source + i * p.stride",  # a short stride: only rows of 2**31 bytes go past 32 bits
    "first + (p.axis_size - 1) * p.axis_",  # lanes of at most 255 items in rows that are near each other
    "positions[k].source +=",  # only boxes.cu asks for several positions, and reads lengths by them
    "positions[k].target +=",
)

#: Tests that go past 2**32, by the folder of the kernel.
_PAST_32_BITS = {
    "slice": ("test_copies",),
    "reverse_subsequences": ("test_reversals",),
    "top_k": (
        "test_selections",
        "test_ragged_selections",
        "test_parts_of_a_column",
        "test_many_of_a_column",
    ),
    "gru": ("test_layers", "test_layers_at_once", "test_lengths_of_another_type"),
}


def _products() -> Iterator[tuple[str, Defect]]:
    for folder, tests in _PAST_32_BITS.items():
        for path in sorted((_KERNELS / folder).glob("*.cu*")):
            name = path.relative_to(_KERNELS).as_posix()
            text = path.read_text()
            for found in _PRODUCT.finditer(text):
                before = text[: found.start()]
                line = before[before.rfind("\n") + 1 :] + text[found.start() :].partition("\n")[0]
                if any(piece in line for piece in _NARROW):
                    continue
                defect = Defect(
                    f"kernels/{name}",
                    found[0],
                    f"static_cast<int>({found[0]})",
                    (),
                    # A read at a wrong place may end the process.
                    f"{WRONG}|{BOUNDS}|{MISALIGNED}|{UNWRITTEN}|Segmentation fault",
                    tuple(_TESTS + test for test in tests),
                    found.start(),
                )
                column = found.start() - text.rfind("\n", 0, found.start())
                yield f"{name}:{before.count(chr(10)) + 1}:{column} {found[0]} in 32 bits", defect


_LISTED = {
    "a copied row's place in 32 bits": _cut(
        "kernels/slice/serial.cu",
        "+ source_item * kItemBytes;",
        "+ static_cast<int>(source_item) * kItemBytes;",
        "test_copies",
    ),
    "a selected row's place in 32 bits": _cut(
        "kernels/top_k/rows.cuh",
        "input += coordinate * params.input_strides[dimension];",
        "input += static_cast<int>(coordinate * params.input_strides[dimension]);",
        "test_selections",
    ),
    "a selected element's place in 32 bits": _cut(
        "kernels/top_k/rows.cuh",
        "static_cast<Int64>(index) * params.input_axis_stride];",
        "static_cast<int>(index * params.input_axis_stride)];",
        "test_selections",
    ),
    "a block's part of a row in 32 bits": _cut(
        "kernels/top_k/row_reader.cuh",
        "return {elements + static_cast<Int64>(begin) * stride,",
        "return {elements + static_cast<int>(static_cast<Int64>(begin) * stride),",
        "test_parts_of_a_column",
    ),
    "a listed element's place in 32 bits": _cut(
        "kernels/top_k/row_reader.cuh",
        "elements[static_cast<Int64>(begin + i) * stride]",
        "elements[static_cast<int>((begin + i) * stride)]",
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
        "return time * strides[0] +",
        "return static_cast<int>(time * strides[0]) +",
        "test_layers",
    ),
}

DEFECTS = {**_LISTED, **dict(_products())}
