"""The tests that take long and get the mark `slow`: `pytest -m "not slow"` leaves them out."""

#: What the identifiers of slow tests begin with: a folder, a file, or a test with all of its cases.
SLOW = (
    "tests/cli/test_shows.py",
    "tests/devices/cuda",
    "tests/devices/emulator/test_build.py",
    "tests/devices/emulator/test_cache.py",
    "tests/devices/emulator/test_calls.py",
    "tests/devices/emulator/test_check.py",
    "tests/devices/emulator/test_interrupts.py",
    "tests/devices/emulator/test_intrinsics.py",
    "tests/devices/emulator/test_runtime.py",
    "tests/devices/test_forks.py",
    "tests/functions/test_cpu_shape.py",
    "tests/functions/test_gru_plan.py::test_any_sizes",
    "tests/functions/test_top_k_parts.py::test_an_axis_of_more_than_2_to_the_32nd",
    "tests/functions/test_typing.py",
    "tests/machine_code",
    "tests/operators/gru",
    "tests/operators/reverse_subsequences",
    "tests/operators/test_differential.py",
    "tests/operators/test_index_space.py",
    "tests/operators/test_real_models.py",
    "tests/operators/test_sanitized.py",
    "tests/operators/test_traffic.py",
    "tests/operators/test_waits.py",
    "tests/operators/test_wide_offsets.py",
    "tests/operators/top_k",
    "tests/operators/test_workspaces.py",
    "tests/planted",
    "tests/programs/test_jax.py",
    "tests/programs/test_pytorch.py",
    "tests/project/test_day.py",
    "tests/project/test_native_peers.py::test_cub_is_built_and_called",
    "tests/project/test_readme.py::test_example_prints_what_the_page_says",
    "tests/project/test_recorded_code.py::test_code_is_as_recorded",
    "tests/test_examples.py",
    "tests/test_jax.py",
    "tests/test_onnx.py",
    "tests/test_onnx_models.py",
    "tests/test_torch.py",
)


def takes_long(nodeid: str) -> bool:
    """Whether a test is one of `SLOW`, or in one."""
    return nodeid in SLOW or nodeid.startswith(
        tuple(f"{one}{end}" for one in SLOW for end in ("/", "::", "["))
    )
