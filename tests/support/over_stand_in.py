"""The GPU's tests that run over the stand-in for CUDA: some cases of every test that needs no real GPU.

`CUDML_TEST_STAND_IN` puts the stand-in under CuPy; its value is the seed for the order of work, and 0 runs
all work as late as possible. Machine code is interpreted there, so the number and the size of cases decide
the time.
"""

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest

from cudml.devices import Device
from proof import stand_in

#: Largest number of instructions that a kernel's warps may execute: some seconds.
MAX_INSTRUCTIONS = 10_000_000

#: Cases of a test that run without `--all-cases`.
MAX_CASES = 8


def load() -> None:
    """Put the stand-in under CuPy if the environment asks for it."""
    seed = os.environ.get("CUDML_TEST_STAND_IN")
    if seed and stand_in.loaded() is None:
        stand_in.load(seed=int(seed) or None, max_instructions=MAX_INSTRUCTIONS)


def is_interpreted(device: Device) -> bool:
    """Whether a device's kernels run as machine code over the stand-in, where large cases take long."""
    return stand_in.loaded() is not None and device.name != "cpu"


def skip_those_that_need_a_gpu(items: Iterable[pytest.Item]) -> None:
    """Skip the GPU's tests that have the mark `real_gpu`, with its reason."""
    for item in items:
        mark = item.get_closest_marker("real_gpu")
        if mark is not None and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {mark.args[0]}"))


def beyond_some_of_each(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The GPU's tests beyond `MAX_CASES` evenly spaced cases of each function, from the first to the last."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("gpu") and not item.get_closest_marker("real_gpu"):
            cases[item.nodeid.split("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for of_test in cases.values():
        if len(of_test) > MAX_CASES:
            last = len(of_test) - 1
            taken = {round(number * last / (MAX_CASES - 1)) for number in range(MAX_CASES)}
            left_out |= {item for number, item in enumerate(of_test) if number not in taken}
    return left_out
