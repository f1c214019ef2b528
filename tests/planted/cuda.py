"""Defects of the CUDA device: streams, events, launches and memory, seen in the results over the stand-in."""

from tests.planted.defect import WRONG, Defect

_CUBLAS = "cudml/devices/cuda/cublas.py"
_DEVICE = "cudml/devices/cuda/device.py"
_KERNEL = "cudml/devices/cuda/kernel.py"
_PROGRAM = "cudml/devices/cuda/program.py"
_SHARING = "cudml/devices/cuda/sharing.py"
_WAIT_REPORTS = "cudml/devices/cuda/wait_reports.py"
_ZEROS = "cudml/devices/cuda/zeros.py"

_ON_A_GPU = "tests/devices/cuda/test_gpu.py::"
_ORDERING = "tests/devices/cuda/test_ordering.py::"
_PRODUCTS = "tests/stand_in/test_cublas.py::"
_REPLAYS = "tests/devices/cuda/test_graph_capture.py::"

#: The driver's refusal of a launch.
_REFUSED = r"CUDA(Driver|Runtime)Error"


def _caught_by(test: str, file: str, old: str, new: str, report: str = WRONG) -> Defect:
    return Defect(file, old, new, (), report, (test,), over_stand_in=True)


DEFECTS = {
    "work does not wait for an event of the library's stream": _caught_by(
        _ORDERING + "test_work_waits_for_the_stream_that_an_interface_names",
        _SHARING,
        "cupy.cuda.runtime.streamWaitEvent(stream, event.ptr)",
        "pass",
    ),
    "the library's stream does not wait for an event of the work": _caught_by(
        _ORDERING + "test_the_stream_that_an_interface_names_waits_for_the_work",
        _SHARING,
        "cupy.cuda.runtime.streamWaitEvent(other, event.ptr)",
        "pass",
    ),
    "a tensor is asked for without an order": _caught_by(
        _ORDERING + "test_work_is_ordered_with_the_library_of_a_dlpack_tensor",
        _SHARING,
        "_NO_ORDER if is_captured else _protocol_handle(stream.ptr)",
        "_NO_ORDER",
    ),
    "more shared storage without the attribute": _caught_by(
        _ON_A_GPU + "test_more_shared_storage_than_the_default",
        _KERNEL,
        "self._raw.max_dynamic_shared_size_bytes = self._shared_bytes",
        "pass",
        _REFUSED,
    ),
    "a struct of eight bytes": _caught_by(
        _ON_A_GPU + "test_null_pointer_and_offset_into_the_workspace",
        _PROGRAM,
        "(by_value(params),) if params",
        "(by_value(params[:8]),) if params",
        rf"{WRONG}|{_REFUSED}",
    ),
    "scratch is free before a replay": _caught_by(
        _REPLAYS + "test_replay_gives_the_bits_of_a_call_whatever_else_took_memory",
        _DEVICE,
        "capture.keep_scratch(made, outputs, part)",
        "pass",
        rf"{WRONG}|{_REFUSED}",
    ),
    "an array function's stream is ignored": _caught_by(
        _ORDERING + "test_a_stream_that_is_given_orders_the_call",
        _DEVICE,
        "with stream: yield",
        "yield",
    ),
    "a kernel's stream is ignored": _caught_by(
        _ON_A_GPU + "test_work_is_ordered_on_the_stream",
        _PROGRAM,
        "pick((*buffers, *fixed)), shared_bytes, stream, cooperative",
        "pick((*buffers, *fixed)), shared_bytes, None, cooperative",
    ),
    "two streams share counters": _caught_by(
        _ORDERING + "test_streams_share_no_counters",
        _ZEROS,
        "key = stream_id(handle)",
        "key = _LEGACY",
    ),
    "a replay shares counters with its stream": _caught_by(
        _ORDERING + "test_a_replay_shares_no_counters_with_the_stream_that_was_captured",
        _ZEROS,
        "return self._of_graph(num_bytes, outputs, stream)",
        "key = stream_id(handle)",
    ),
    "a product leaves its workspace to cuBLAS": _caught_by(
        _PRODUCTS + "test_captured_layer_allocates_nothing_in_its_graph",
        _CUBLAS,
        "if num_bytes and (",
        "if not num_bytes and (",
    ),
    "threads share a handle of cuBLAS": _caught_by(
        _PRODUCTS + "test_threads_multiply_with_a_handle_each",
        _CUBLAS,
        "self.handle = free.pop()",
        "self.handle = free[0]",
    ),
    "nobody asks whether there is room for a cluster": _caught_by(
        "tests/stand_in/test_room.py::test_another_plan_computes_what_there_is_no_room_for",
        _KERNEL,
        "if launch.cluster_blocks > 1:",
        "if launch.cluster_blocks < 1:",
        _REFUSED,
    ),
    "a wait that was given up is not raised": _caught_by(
        "tests/stand_in/test_waits.py::test_call_after_a_wait_that_was_given_up",
        _WAIT_REPORTS,
        "waits.raise_reported(list(self._reports.values()))",
        "pass",
    ),
    "a kernel runs on the GPU that is current": _caught_by(
        "tests/stand_in/test_peers.py::test_each_gpu_computes_on_its_own_memory",
        _PROGRAM,
        "if current_device() == number: function(",
        "if number >= 0: function(",
        _REFUSED,
    ),
}
