"""Defects of slices and reversals: kernels and plans."""

from tests.planted.defect import BOUNDS, MISALIGNED, RACE, UNWRITTEN, WRONG, Defect

_RUNS = "cudml/operators/slice/runs.py"
_CROSSING = "cudml/operators/slice/crossings.py"
_BOX = "cudml/operators/slice/box.py"
_REVERSAL = "cudml/operators/reverse_subsequences/lanes.py"

_NARROW_STRIPS = (
    "tests/operators/reverse_subsequences/test_paths.py::test_strips_of_one_thread_of_narrow_rows"
)
_NARROW_ROWS = "tests/operators/reverse_subsequences/test_paths.py::test_rows_of_one_thread_of_any_width"

DEFECTS = {
    "a strip of too few items": Defect(
        "kernels/slice/gather.cu",
        "if (first + k * kThreads < num_items) {\n        items[k]",
        "if (first + k * kThreads + 1 < num_items) {\n        items[k]",
        ("scattered halves",),
        WRONG,
    ),
    "one item too many is stored": Defect(
        "kernels/slice/gather.cu",
        "if (first + k * kThreads < num_items) {\n          store_item<Item>(place",
        "if (first + k * kThreads <= num_items) {\n          store_item<Item>(place",
        ("scattered halves", "scattered wide items"),
        BOUNDS,
    ),
    "a tile's rows one past its end": Defect(
        "kernels/slice/transpose.cu",
        "const int num_steps = w.num_steps(tile.num_t / kPieceItems, tile.num_s);",
        "const int num_steps = w.num_steps(tile.num_t / kPieceItems, tile.num_s + 1);",
        ("transposed bytes", "transposed wide items", "transposed words between gaps"),
        f"{BOUNDS}|{RACE}|{WRONG}|{UNWRITTEN}",
    ),
    "lines of the other side": Defect(
        _CROSSING,
        '"target_line_stride": line.strides[SOURCE]',
        '"target_line_stride": other.strides[TARGET]',
        ("transposed words between gaps",),
        f"{BOUNDS}|{WRONG}",
    ),
    "squares without mirroring": Defect(
        "kernels/slice/transpose.cu",
        "const int mirror = p.source_step < 0 ? kSide - 1 : 0;",
        "const int mirror = 0;",
        ("mirrored halves, transposed in words",),
        WRONG,
    ),
    "a word of pixels past the tensor": Defect(
        "kernels/slice/planes.cu",
        "aligned + kBytes + kRegisterBytes <= extent.end",
        "aligned + kBytes <= extent.end",
        ("bytes of pixels up to the end",),
        BOUNDS,
    ),
    "whole words of planes that end before": Defect(
        "kernels/slice/planes.cu",
        "const int num_words = (num_bytes - head) / kWordBytes;",
        "const int num_words = (num_bytes - head + kWordBytes - 1) / kWordBytes;",
        ("bytes of pixels", "halves of planes"),
        f"{BOUNDS}|{RACE}|{WRONG}|{UNWRITTEN}",
    ),
    "planes in the order of the pixels": Defect(
        _BOX,
        "offsets[TARGET] + last * stride), -stride",
        "offsets[TARGET]), stride",
        ("bytes of pixels",),
        WRONG,
    ),
    "the target's offset for the source's": Defect(
        _RUNS,
        '"source_offset": lowest * space.item_bytes',
        '"source_offset": space.offsets[TARGET] * space.item_bytes',
        ("rows of bytes", "adjacent bytes"),
        f"{BOUNDS}|{WRONG}",
    ),
    "a word of a run past the tensor": Defect(
        "kernels/common/run_copy.cuh",
        "if (ends_out && num_words > 0) --num_words;",
        "",
        ("rows of bytes", "adjacent bytes", "mirrored rows"),
        BOUNDS,
    ),
    "a whole word where a run's last is partial": Defect(
        "kernels/common/run_copy.cuh",
        "int num_words = (run.num_bytes - head) / kWordBytes;",
        "int num_words = (run.num_bytes - head + kWordBytes - 1) / kWordBytes;",
        ("rows of bytes by several blocks",),
        f"{BOUNDS}|{RACE}",
    ),
    "a word without its neighbour": Defect(
        "kernels/common/run_copy.cuh",
        "const uint4 given = group.lane == 0 ? words[k + 1] : words[k];",
        "const uint4 given = words[k];",
        ("rows of bytes", "adjacent bytes"),
        WRONG,
    ),
    "pieces of another row": Defect(
        "kernels/slice/serial.cu",
        "to += p.target_strides[0] * kItemBytes;",
        "to += p.source_strides[0] * kItemBytes;",
        ("long strided rows on a CPU", "scattered halves on a CPU"),
        f"{BOUNDS}|{WRONG}",
    ),
    "lengths one too long": Defect(
        "kernels/reverse_subsequences/columns.cu",
        "last[i] = (static_cast<int>(length) - 1) * (1 << row_shift);",
        "last[i] = static_cast<int>(length) * (1 << row_shift);",
        ("columns",),
        f"{WRONG}|{UNWRITTEN}|{BOUNDS}",
    ),
    "words across the border of two tiles": Defect(
        "kernels/reverse_subsequences/boxes.cu",
        "min(static_cast<int>(-address_of(to)) & (kWordBytes - 1), num_bytes);",
        "0;",
        ("short lanes of bytes at odd places",),
        f"{MISALIGNED}|{WRONG}",
    ),
    "the item after a tile's last": Defect(
        "kernels/reverse_subsequences/boxes.cu",
        "if (edge < 2 * kWordBytes && byte < num_bytes) {",
        "if (edge < 2 * kWordBytes && byte <= num_bytes) {",
        ("short lanes by several blocks",),
        f"{RACE}|{BOUNDS}|{UNWRITTEN}",
    ),
    "words past the last tile": Defect(
        "kernels/reverse_subsequences/boxes.cu",
        "first_word + num_words * kWordBytes > all_end ? num_words - 1 : num_words;",
        "num_words;",
        ("short lanes by several blocks", "short lanes", "small boxes"),
        BOUNDS,
    ),
    "lanes of the target by the source's strides": Defect(
        "kernels/reverse_subsequences/lane_space.cuh",
        "position.target += coordinate * p.target_strides[d];",
        "position.target += coordinate * p.source_strides[d];",
        ("lanes between different gaps", "lanes on a CPU between different gaps"),
        f"{BOUNDS}|{WRONG}",
    ),
    "the axis from the wrong end": Defect(
        "kernels/reverse_subsequences/lane_space.cuh",
        "return place < length ? length - 1 - place : place;",
        "return place < length ? length - place : place;",
        ("rows of one length",),
        f"{WRONG}|{UNWRITTEN}|{BOUNDS}",
    ),
    "a narrow row's last byte on a CPU": Defect(
        "kernels/reverse_subsequences/serial.cu",
        "second(num_bytes - kBytes)",
        "second(num_bytes - kBytes - 1)",
        (),
        f"{BOUNDS}|{WRONG}",
        (_NARROW_ROWS,),
    ),
    "items past a sequence's own on a CPU": Defect(
        "kernels/reverse_subsequences/serial.cu",
        "mirrored + ((place - mirrored) & mirrored >> 63)",
        "mirrored < 0 ? 0 : mirrored",
        (),
        WRONG,
        (_NARROW_ROWS,),
    ),
    "narrow rows together with their gaps on a CPU": Defect(
        "kernels/reverse_subsequences/serial_columns.cu",
        "source_pitch == num_lanes * kItemBytes && pitch == source_pitch",
        "pitch == source_pitch",
        (),
        f"{BOUNDS}|{UNWRITTEN}|{WRONG}",
        (_NARROW_STRIPS,),
    ),
    "the offset of lengths for the target's": Defect(
        _REVERSAL,
        '"target_offset": offsets[TARGET] * unit',
        '"target_offset": offsets[TARGET] * unit + 1',
        ("lanes",),
        f"{BOUNDS}|{WRONG}|{MISALIGNED}",
    ),
}
