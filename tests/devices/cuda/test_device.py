"""The CUDA device without a GPU: its own code and CuPy's launch path over a stand-in for the driver.

The stand-in (`stand_in/`) lives in a process of its own. What runs there is in `cases.py`; the tests here
look at what came back. What needs a GPU is in `test_gpu.py`.
"""

import struct
from pathlib import Path
from typing import Any

import pytest

from cudml.plans import Fill, MatMul, Workspace
from proof.sass.compiler import device_options, nvrtc_options
from tests.devices.cuda.stand_in import cases, products, streams
from tests.devices.cuda.stand_in.cases import scale_launch, scale_plan
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run

pytestmark = NEEDS_STAND_IN

#: `cudaMemcpyDefault`: the driver takes the direction from the addresses.
DEFAULT_KIND = 4

#: Values of `CUresult`, and of `CUlaunchAttributeID`.
INVALID_VALUE, INVALID_CLUSTER_SIZE = 1, 912
CLUSTER_DIMENSION = 4


def pointers(launch: Any) -> list[int]:
    return [int.from_bytes(argument, "little") for argument in launch.arguments[:3]]


def test_arguments_are_the_pointers_and_the_packed_struct(stand_in: Run) -> None:
    (launch,), addresses, _ = stand_in(cases.launch_once, scale_plan())
    assert pointers(launch) == addresses
    assert launch.arguments[3] == struct.pack("<i4xqf3I", -2, 300, 2.5, 7, 8, 9)
    assert launch.arguments[3] == scale_launch().params.pack()
    assert (launch.grid, launch.block, launch.shared_bytes, launch.cooperative) == (
        (3, 1, 1),
        (128, 1, 1),
        0,
        False,
    )


def test_buffers_are_passed_in_the_order_of_the_launch(stand_in: Run) -> None:
    plan = scale_plan(scale_launch(buffers=("out", None, "a"), grid=(5, 2, 1)))
    (launch,), addresses, _ = stand_in(cases.launch_once, plan)
    assert pointers(launch) == [addresses[2], 0, addresses[0]]
    assert launch.grid == (5, 2, 1)


def test_workspaces_are_passed_at_their_offsets(stand_in: Run) -> None:
    plan = scale_plan(
        scale_launch(buffers=("a", "second", "first")),
        scale_launch(buffers=("second", "bias", "out")),
        workspaces=(Workspace("first", 300), Workspace("second", 4)),
    )
    (first, second), (a, bias, out), base = stand_in(cases.launch_once, plan)
    assert pointers(first) == [a, base + 512, base]
    assert pointers(second) == [base + 512, bias, out]


def test_cooperative_launch_has_its_own_call_and_its_whole_grid(stand_in: Run) -> None:
    plan = scale_plan(scale_launch(grid=(264, 1, 1), cooperative=True, shared_bytes=1024))
    (launch,), _, _ = stand_in(cases.launch_once, plan)
    assert (launch.cooperative, launch.grid, launch.shared_bytes) == (True, (264, 1, 1), 1024)


def test_launch_goes_to_the_stream_that_is_named(stand_in: Run) -> None:
    for name, (handle, launched_on) in stand_in(streams.streams_of_launches).items():
        assert launched_on == handle, name


def test_memory_is_taken_in_the_order_of_the_stream_that_is_named(stand_in: Run) -> None:
    assert stand_in(streams.streams_of_allocations) == [0, 0x7030, 0x7040, 0x7050]


def test_invalid_streams_are_refused(stand_in: Run) -> None:
    expected = "None, a CuPy stream, an object with __cuda_stream__ or an integer handle"
    told = {
        "text": f"TypeError: stream is a str, must be {expected}",
        "bool": f"TypeError: stream is a bool, must be {expected}",
        "event": f"TypeError: stream is a cupy.cuda.stream.Event, must be {expected}",
        "array": f"TypeError: stream is a cupy.ndarray, must be {expected}",
        "class": f"TypeError: stream is a type, must be {expected}",
        "negative": "ValueError: stream is the handle -1, must be 0 or more",
        "no pair": "TypeError: stream is a types.SimpleNamespace whose __cuda_stream__() is 28672, "
        "must return (0, handle) from it",
        "text in pair": "TypeError: stream is a types.SimpleNamespace whose __cuda_stream__() is (0, 'x'), "
        "must return (0, handle) from it",
    }
    for kind in ("cupy's", "external", "torch's", "cuda.core's"):
        told[f"{kind} of cuda:1"] = "ValueError: stream is one of cuda:1, must be one of cuda:0"
    assert stand_in(streams.refused_streams) == {name: (message, 0) for name, message in told.items()}


def test_program_of_another_device_runs_there_and_leaves_the_current_one(stand_in: Run) -> None:
    (launch,), stream, current_after = stand_in(cases.launch_on_another_device)
    assert (launch.device, launch.stream, current_after) == (1, stream, 0)


@pytest.mark.parametrize(
    ("changes", "settings", "text"),
    [
        ({"grid": (0, 1, 1)}, {}, "an empty launch, grid (0, 1, 1)"),
        (
            {"grid": (1, 65536, 1)},
            {},
            "a grid of (1, 65536, 1) blocks, CUDA allows (2147483647, 65535, 65535)",
        ),
        ({"block": (512, 3, 1)}, {}, "a block of (512, 3, 1) threads, cuda:0 allows 1024"),
        ({"shared_bytes": 232449}, {}, "232449 bytes of shared storage, cuda:0 has 232448"),
        ({"grid": (6, 1, 1), "cluster_blocks": 4}, {}, "a grid of 6 blocks is not made of clusters of 4"),
        (
            # A kernel of its own, because the limit is read once, when a kernel is loaded.
            {"block": (256, 1, 1), "constants": (("1", 1),)},
            {"max_threads_of_kernel": 224},
            "a block of 256 threads, its registers allow 224 on cuda:0",
        ),
        (
            {"grid": (265, 1, 1), "cooperative": True},
            {"resident_blocks": 2},
            "a cooperative grid of 265 blocks, 264 fit on cuda:0 (2 of 128 threads and 0 bytes of shared "
            "storage on each of 132 multiprocessors)",
        ),
        *(
            (
                {"grid": (8, 1, 1), "cluster_blocks": 8, "shared_bytes": 1024},
                settings,
                "clusters of 8 blocks, cuda:0 has no room for one (128 threads and 1024 bytes of shared "
                "storage a block)",
            )
            for settings in ({"active_clusters": 0}, {"cluster_status": INVALID_CLUSTER_SIZE})
        ),
    ],
)
def test_launch_that_cannot_run_is_refused(
    stand_in: Run, changes: dict[str, Any], settings: dict[str, int], text: str
) -> None:
    plan = scale_plan(scale_launch(**changes))
    kind, message = stand_in(cases.refused, plan, **settings)
    may_do_with_less = "cooperative" in changes or bool({"active_clusters", "cluster_status"} & {*settings})
    assert kind == ("LaunchTooLargeError" if may_do_with_less else "ValueError")
    assert text in message
    assert "scale.cu: scale<Float32, 0>: " in message


def test_compile_error_has_the_compilers_log(stand_in: Run) -> None:
    launch = scale_launch(source=str(cases.KERNELS / "mistaken.cu"), function="mistaken", template=())
    kind, message = stand_in(cases.refused, scale_plan(launch))
    assert kind == "CompilerError"
    assert "mistaken.cu: mistaken does not compile:" in message
    assert 'mistaken.cu(4): error: identifier "never_declared" is undefined' in message


def test_warm_program_only_launches(stand_in: Run) -> None:
    plan = scale_plan(
        scale_launch(),
        scale_launch(buffers=("a", "scratch", "out"), cooperative=True),
        workspaces=(Workspace("scratch", 64),),
    )
    single = [call.split()[0] for call in stand_in(cases.calls_of_a_warm_program, scale_plan())]
    several = [call.split()[0] for call in stand_in(cases.calls_of_a_warm_program, plan)]
    assert single == ["cuLaunchKernel"]
    # CuPy asks for the occupancy of every cooperative launch.
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    assert several == ["cuLaunchKernel", occupancy, "cuLaunchCooperativeKernel"]


def test_kernel_is_loaded_once_a_device(stand_in: Run) -> None:
    plan = scale_plan(variant=1)
    calls = stand_in(cases.calls_of_loading, (0, plan), (0, plan), (1, plan), (1, plan))
    loads = [call for call in calls if call.startswith("cuModuleLoadData")]
    assert loads == ["cuModuleLoadData device 0", "cuModuleLoadData device 1"]


def test_shared_storage_is_granted_on_each_device_and_never_taken_back(stand_in: Run) -> None:
    small, large, larger = (scale_plan(variant=2, shared_bytes=size) for size in (49152, 50000, 60000))
    calls = stand_in(
        cases.calls_of_loading, (0, small), (0, larger), (0, large), (1, large), (1, larger), (1, small)
    )
    grants = [call for call in calls if call.startswith("cuFuncSetAttribute")]
    assert grants == [
        "cuFuncSetAttribute 8 60000 device 0",
        "cuFuncSetAttribute 8 50000 device 1",
        "cuFuncSetAttribute 8 60000 device 1",
    ]


def test_clusters_beyond_the_portable_size_are_asked_for(stand_in: Run) -> None:
    portable, beyond = (
        scale_plan(scale_launch(variant=3, grid=(16, 1, 1), cluster_blocks=blocks)) for blocks in (8, 16)
    )
    calls = stand_in(cases.calls_of_loading, (0, portable), (0, beyond))
    assert [c for c in calls if c.startswith("cuFuncSetAttribute")] == ["cuFuncSetAttribute 14 1 device 0"]


def test_room_for_clusters_is_asked_for_the_launch_at_every_load(stand_in: Run) -> None:
    launch = scale_launch(variant=3, grid=(16, 1, 1), block=(64, 1, 1), shared_bytes=512, cluster_blocks=8)
    plans = scale_plan(launch), scale_plan(launch._replace(grid=(24, 1, 1))), scale_plan(variant=3)
    calls = stand_in(cases.calls_of_loading, *((0, plan) for plan in plans))
    shape, size = "block 64 1 1 shared 512", "size 8 1 1"
    assert [call for call in calls if call.startswith("cuOccupancy")] == [
        f"cuOccupancyMaxActiveClusters grid {blocks} 1 1 {shape} attributes 1 id {CLUSTER_DIMENSION} {size}"
        for blocks in (16, 24)
    ]


def test_driver_that_cannot_tell_the_room_for_clusters_is_an_error(stand_in: Run) -> None:
    plan = scale_plan(scale_launch(grid=(8, 1, 1), cluster_blocks=8))
    told = stand_in(cases.refused, plan, cluster_status=INVALID_VALUE)
    assert told[1] == f"cuOccupancyMaxActiveClusters failed with status {INVALID_VALUE}"


def test_threads_that_come_first_build_once(stand_in: Run) -> None:
    calls = stand_in(cases.calls_of_loading_at_once, scale_plan(variant=4), 8)
    assert [call for call in calls if call.startswith("cuModule")] == ["cuModuleLoadData device 0"]


def test_threads_share_a_program(stand_in: Run) -> None:
    passed, arrived = stand_in(cases.arguments_from_threads, 8, 200)
    assert arrived == passed


def test_fill_sets_the_bytes_it_names(stand_in: Run) -> None:
    calls, data = stand_in(cases.filled_bytes, 0x5A, 40)
    assert calls[0] == "memsetAsync 90 40 stream 0 device 0"
    assert data[256 : 256 + 64] == b"\x5a" * 40 + b"\xee" * 24
    assert data[:256] == b"\xee" * 256


@pytest.mark.parametrize("shift", [0, 16])
@pytest.mark.parametrize("how", ["current", "named", "captured"])
@pytest.mark.parametrize(
    ("element", "cuda_type", "size", "allows_tf32"),
    [("float32", 0, 4, False), ("float32", 0, 4, True), ("float16", 2, 2, False)],
)
def test_matmul_is_one_gemm(
    stand_in: Run, element: str, cuda_type: int, size: int, allows_tf32: bool, how: str, shift: int
) -> None:
    """Every call sets the plan's workspace, where cuBLAS takes it: setting the stream discards it."""
    step = MatMul(
        "a", "b", "out", m=5, n=7, k=3, element=element, a_offset=2, b_offset=4, out_offset=6,
        workspace="room", workspace_bytes=5000, allows_tf32=allows_tf32,
    )  # fmt: skip
    seen = stand_in(products.multiply, step, how, shift)
    handle = seen["calls"][-1][1]
    a, b, out = seen["addresses"]
    compute, default_algorithm = 77 if allows_tf32 else 68, -1  # CUBLAS_COMPUTE_32F_FAST_TF32, _32F
    # Column-major: out.T (7, 5) = b (7, 3) @ a.T (3, 5), with b stored as its own transpose.
    product = (1, 0, 7, 5, 3, 1, b + 4 * size, cuda_type, 3, a + 2 * size, cuda_type, 3, 0, out + 6 * 4, 0, 7)
    (room,) = [int(call[2]) for call in seen["calls"] if call[0] == "cublasSetWorkspace_v2"]
    assert room % 256 == 0
    assert room - (seen["resource"] + 256) == (256 - shift) % 256
    assert [call for call in seen["calls"] if call[0] != "cublasCreate_v2"] == [
        ["cublasSetStream_v2", handle, str(seen["stream"])],
        ["cublasSetWorkspace_v2", handle, str(room), "5000"],
        ["cublasGemmEx", handle, *map(str, product), str(compute), str(default_algorithm)],
    ], "a handle of its own needs no mode to be set"
    assert seen["error"] == ""


def test_matmul_that_fails_is_an_error(stand_in: Run) -> None:
    step = MatMul("a", "b", "out", m=1, n=1, k=1001, element="float32")
    execution_failed = 13
    seen = stand_in(products.multiply, step, "current")
    assert seen["error"] == f"DeviceError: cublasGemmEx of cuBLAS failed with status {execution_failed}"


def test_every_thread_multiplies_with_a_handle_of_its_own(stand_in: Run) -> None:
    """Of two threads on a GPU, one has the handle that was made with the program, and the other makes one."""
    relaxed = 2
    seen = stand_in(products.handles_of_threads)
    made = seen["made"]
    assert made["load"] == [f"cublasCreate_v2 device {number} mode {relaxed}" for number in range(2)]
    for number in range(2):
        handles = seen["used"][f"device {number}"]
        assert sorted(handles.count(handle) for handle in set(handles)) == [2, 2]
        assert made[f"device {number}"] == [f"cublasCreate_v2 device {number} mode {relaxed}"]
    assert set(seen["used"]["device 0"]).isdisjoint(seen["used"]["device 1"])
    assert set(seen["used"]["later"]) < set(seen["used"]["device 0"])
    assert made["later"] == []


def test_arrays_of_the_device(stand_in: Run) -> None:
    facts = stand_in(cases.array_facts)
    assert facts["same"]
    assert (facts["current"], facts["device_of_other"], facts["current_after"]) == ("cuda:0", 1, 0)
    assert facts["owns"] == (True, False, False)
    assert len(set(facts["address"])) == 1
    assert facts["layout"] == ((4, 3), None, "int16", True, 0)
    assert facts["turned"] == ((3, 4), (2, 6), "int16", True, 0)
    assert facts["other_layout_differs"]
    assert facts["message"] == "cuda:0 takes cupy.ndarray, got ndarray"
    assert facts["empty"] == (0, 3)
    assert facts["made"] == [((2, 3), "int16", 1), ((0,), "float32", 1)]


def test_arrays_of_several_devices_are_refused(stand_in: Run) -> None:
    wrong = "reverse_subsequences: sequence_lengths is on"
    assert stand_in(cases.refused_on_several_devices) == {
        "gpu": f"ValueError: {wrong} cuda:1, must be on cuda:0, where a is",
        "cpu": f"TypeError: {wrong} cpu, must be on cuda:0, where a is",
    }


def test_an_array_between_addresses_of_its_items_is_refused_before_anything_is_done(stand_in: Run) -> None:
    address, message, calls = stand_in(cases.refused_at_an_odd_address)
    expected = "must be at multiples of 4 bytes"
    assert message == f"top_k: a is at address {address} with strides (4,), {expected}"
    assert calls == []


def test_bytes_are_copied_on_the_stream(stand_in: Run) -> None:
    calls, data = stand_in(cases.copied_bytes)
    (copy,) = [call for call in calls if call.startswith("memcpy")]
    assert copy == f"memcpyAsync 10 kind {DEFAULT_KIND} stream {0x7020} device 0"
    assert data == bytes(range(10)) + bytes(6)


@pytest.mark.parametrize("on_stream", [False, True])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("is_alone", [False, True])
def test_copy_of_a_plan(stand_in: Run, is_alone: bool, number: int, on_stream: bool) -> None:
    others = [] if is_alone else [Fill("out", 1, 9)]
    seen = stand_in(cases.copied_by_a_plan, *others, number=number, on_stream=on_stream)
    copy = f"memcpyAsync 10 kind {DEFAULT_KIND} stream {seen['stream']} device {number}"
    fills = [] if is_alone else [f"memsetAsync 9 1 stream {seen['stream']} device {number}"]
    assert seen["calls"] == [copy, *fills]
    assert seen["bytes"] == bytes([0 if is_alone else 9, 0, 0, 0, 0, *range(3, 13), 0])
    assert seen["current"] == 0


def test_lengths_of_the_host_and_boxes_of_many_dimensions(stand_in: Run) -> None:
    assert stand_in(cases.lengths_and_boxes_of_the_host) == {
        "list": ("ndarray", "int64", (3, 1)),
        "number": ("uint32", (3,)),
        "results": [("cupy", (3, 5))] * 2,
        "box": ((2,) * 9, 2),
    }


@pytest.mark.parametrize("number", [0, 1])
def test_a_launch_is_timed_between_two_events_of_its_device(number: int, stand_in: Run) -> None:
    seconds, calls, clock = stand_in(cases.timed_launch, number)
    assert (seconds, clock) == (0.0025, "CUDA events")
    about = ("eventRecord", "cuLaunchKernel", "eventSynchronize")
    ours = [call for call in calls if call in about]
    assert ours == ["eventRecord", "cuLaunchKernel", "eventRecord", "eventSynchronize"]


def test_devices_that_cannot_be_used(stand_in: Run) -> None:
    assert stand_in(cases.device_errors) == {
        "beyond": "DeviceError: cuda:9 does not exist: this process sees 2 CUDA devices",
        "old": "DeviceError: cuda:2 has compute capability 7.0, 7.5 is the least",
    }


def test_an_old_device_hides_no_other(stand_in: Run) -> None:
    name, told = stand_in(cases.device_beside_an_old_one)
    assert name == "cuda:1"
    assert told == "cuda:0 has compute capability 7.0, cuda:1 of compute capability 9.0"


def test_cache_that_cannot_be_written_is_reported_once_and_not_used(stand_in: Run) -> None:
    told, error = stand_in(cases.load_without, "cache")
    assert error == ""
    assert told == [
        "CuPy's kernel cache cannot be used, every process compiles again: [Errno 30] Read-only file system"
    ]


def test_missing_compiler_says_what_to_install(stand_in: Run) -> None:
    _, error = stand_in(cases.load_without, "compiler")
    assert error.startswith("CompilerError: ")
    assert "scale<Float32, 180> cannot be compiled (no libnvrtc): pip install 'cudml[cuda13]'" in error


def test_machine_code_is_proven_with_the_options_of_the_device(stand_in: Run) -> None:
    options, text = stand_in(cases.compiler_options)
    assert options == nvrtc_options("sm_90", device_options())
    assert text.splitlines()[1] == f'#include "{Path(cases.KERNELS) / "scale.cu"}"'
