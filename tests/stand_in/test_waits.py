"""Waits that kernels give up because blocks of their grid come late: Python raises, later calls compute."""

import re

import pytest

from tests.stand_in import OVER_STAND_IN
from tests.stand_in.process import alone

pytestmark = OVER_STAND_IN

#: In seconds of the stand-in's machine, which take a second here; read when a kernel is loaded.
LIMIT = "0.0003"

_HEAD = """
import cudml
rng = np.random.default_rng(0)
given = [rng.standard_normal(shape, np.float32) for shape in ((2, 1, 4), (1, 384, 4), (1, 384, 128))]
row = rng.permutation(32_768).astype(np.float32)[None]

def bytes_of(arrays):
    return [array.get().tobytes() for array in arrays]

def told(call):
    try:
        call()
    except cudml.KernelError as error:
        print("raised:", error, flush=True)
        return
    print("nothing", flush=True)

def other():
    cudml.slice(cupy.zeros((8, 8), np.float32), (0, 0), (4, 4))
"""

#: The errors of a wait that was given up; the braces stand for `_WAITED` and `_GAVE_UP`.
_GRU = r"gru/grid\.cu gru_grid<Float32, true, false, true>: {} the states that other blocks send {}"
_ROW = r"top_k/grid_radix\.cu top_k_grid_radix<UInt32>: {} the other blocks of the row {}"
_WAITED = rf"block \d+ of 16 waited {LIMIT} s \(CUDML_WAIT_LIMIT\) for"
_GAVE_UP = "and gave up; what the call computed is not valid"


def are(lines: list[str], *expected: str) -> bool:
    """Whether a program's lines are these; one with braces tells of a wait that was given up."""
    texts = [f"raised: {one.format(_WAITED, _GAVE_UP)}" if "{}" in one else one for one in expected]
    return len(lines) == len(texts) and all(map(re.fullmatch, texts, lines))


@pytest.mark.parametrize(
    ("call", "expected"),
    [("cudml.gru(*arrays[:3])", _GRU), ("cudml.top_k(arrays[3], 5000)", _ROW)],
    ids=["gru", "top_k"],
)
def test_call_after_a_wait_that_was_given_up(call: str, expected: str) -> None:
    """Once the kernel has ended, any next call on the GPU raises. Later calls run, and so does the kernel."""
    told = alone(
        _HEAD
        + f"""
arrays = [cupy.asarray(array) for array in (*given, row)]
first = {call}  # kept, or the next result may be in its memory, and right though nobody wrote it
expected = bytes_of(first)
made.settings.num_late_blocks = 1
result = {call}
told(other)
cupy.cuda.Device().synchronize()
made.settings.num_late_blocks = 0
print(bytes_of(result) == expected)
told(other)
told(other)
print(bytes_of({call}) == expected)
""",
        CUDML_WAIT_LIMIT=LIMIT,
    )
    lines = told.stdout.splitlines()
    assert are(lines, "nothing", "False", expected, "nothing", "True"), (lines, told.stderr)


def test_replay_whose_blocks_come_late() -> None:
    """The graph stays good: its next replay is as the first."""
    told = alone(
        _HEAD
        + """
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    arrays = [cupy.asarray(array) for array in given]
    expected = bytes_of(cudml.gru(*arrays))
    stream.begin_capture()
    result = cudml.gru(*arrays)
    graph = stream.end_capture()
    for late in (0, 1, 0):
        made.settings.num_late_blocks = late
        graph.launch(stream)
        stream.synchronize()
        print(bytes_of(result) == expected)
        told(other)
""",
        CUDML_WAIT_LIMIT=LIMIT,
    )
    lines = told.stdout.splitlines()
    assert are(lines, "True", "nothing", "False", _GRU, "True", "nothing"), (lines, told.stderr)


def test_a_wait_is_reported_by_its_gpu_alone() -> None:
    told = alone(
        _HEAD
        + """
arrays = []
for number in range(2):
    with cupy.cuda.Device(number):
        arrays.append([cupy.asarray(array) for array in given])
        cudml.gru(*arrays[number])
        cupy.cuda.Device().synchronize()
made.settings.num_late_blocks = 1
cudml.gru(*arrays[1])
with cupy.cuda.Device(1):
    cupy.cuda.Device().synchronize()
made.settings.num_late_blocks = 0
for number in (0, 1, 1, 0):
    with cupy.cuda.Device(number):
        told(other)
""",
        CUDML_WAIT_LIMIT=LIMIT,
    )
    lines = told.stdout.splitlines()
    assert are(lines, "nothing", _GRU, "nothing", "nothing"), (lines, told.stderr)
