"""Defects of what all operators share: copies by a CPU, waits, forks, planned calls and the ONNX adapter."""

from tests.planted.defect import WRONG, Defect

_NODES = "cudml/onnx/nodes.py"
_LAUNCH = "cudml/devices/emulator/launch.py"
_BATCH_FIRST = "tests/test_onnx.py::test_batch_first_is_the_same_gru"
_COPIES = "tests/devices/emulator/test_serial_copy.py::test_a_run_of_every_length"


def _caught_by(test: str, file: str, old: str, new: str) -> Defect:
    return Defect(file, old, new, (), WRONG, (test,))


DEFECTS = {
    "a byte behind a run that is copied at once": _caught_by(
        _COPIES,
        "kernels/common/serial_copy.cuh",
        "b + kCopiedBytes <= num_bytes",
        "b + kCopiedBytes <= num_bytes + 1",
    ),
    "the last block of a run behind its end": _caught_by(
        _COPIES,
        "kernels/common/serial_copy.cuh",
        "for (; b + kLineBytes <= num_bytes; b += kLineBytes) stream_line",
        "for (; b + kLineBytes <= num_bytes + 1; b += kLineBytes) stream_line",
    ),
    "a suspended process gives up its wait": _caught_by(
        "tests/devices/emulator/test_patience.py::test_a_suspended_process_does_not_give_up",
        "kernels/common/wait.cuh",
        "waited += min(now - last_look, kMaxTicksPerLook);",
        "waited += now - last_look;",
    ),
    "the time before a wait counts": _caught_by(
        "tests/devices/emulator/test_patience.py::test_a_wait_ends_at_its_limit",
        "kernels/common/wait.cuh",
        "if (polls != kPollsPerLook) waited += min(now - last_look, kMaxTicksPerLook);",
        "waited += now - last_look;",
    ),
    "a fork while a kernel is loaded": _caught_by(
        "tests/devices/test_forks.py::test_a_fork_waits_until_a_kernel_is_loaded",
        _LAUNCH,
        "with locks.no_fork:",
        "if True:",
    ),
    "a library is loaded where a fork can be": _caught_by(
        "tests/devices/test_forks.py::test_libraries_are_loaded_where_no_fork_can_be",
        "cudml/devices/cuda/driver.py",
        "with locks.no_fork:",
        "if locks.no_fork:",
    ),
    "the kernels of another shape are remembered": _caught_by(
        "tests/functions/test_cpu_shape.py::test_planned_calls_follow_the_schedule",
        "cudml/devices/emulator/device.py",
        "array.flags.writeable, current_schedule().num_lanes,",
        "array.flags.writeable,",
    ),
    "a GRU node without its clip in two directions": _caught_by(
        _BATCH_FIRST,
        _NODES,
        '"clip": attributes.get("clip"),',
        '"clip": attributes.get("clip") if attributes.get("direction") != "bidirectional" else None,',
    ),
    "an initial state in the other layout": _caught_by(
        _BATCH_FIRST,
        _NODES,
        "None if h0 is None else h0.swapaxes(0, 1)",
        "None if h0 is None else h0 if h0.shape[0] == h0.shape[1] else h0.swapaxes(0, 1)",
    ),
}
