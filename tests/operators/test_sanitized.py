"""Every kernel in check mode, under five thread orders: no race, no bad access, no uninitialised read.

And the right results: those of the oracle.
"""

import re

import numpy as np
import pytest

from cudml.devices import emulator
from cudml.devices.sources import kernel_root
from cudml.enums import DataType
from cudml.errors import KernelError
from cudml.operators.slice.operator import SliceDesc, plan
from cudml.tensors import TensorDesc
from proof.instances import operators, planned_launches
from tests.support.kernel_cases import CPU, GPU, Case
from tests.support.observed_cases import CASES, check


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_is_reported_and_the_bits_are_the_same(case: Case, rng: np.random.Generator) -> None:
    check(case, rng)


def test_every_kernel_is_among_the_cases() -> None:
    written = {
        name
        for path in kernel_root().glob("*/*.cu")
        for name in re.findall(r"(?s)__global__ void\s+(?:__\w+__\([^;{]*?\)\s+)*(\w+)\(", path.read_text())
    }
    assert {launch.function for case in CASES.values() for launch in case.launches()} == written


@pytest.mark.parametrize("operator", operators())
def test_every_kernel_is_among_the_cases_in_the_shape_of_a_cpu(operator: str) -> None:
    def kernels(launches: object) -> set[str]:
        return {launch.function for launch in launches if launch.block == (1, 1, 1)}

    folder = f"{operator}/"
    planned = [launch for launch in planned_launches(CPU) if launch.source.startswith(folder)]
    checked = [launch for case in CASES.values() for launch in case.launches()]
    assert kernels(checked) >= kernels(planned)


def test_report_names_the_file_as_the_checkout_does() -> None:
    wide = TensorDesc(DataType.FLOAT32, (8, 64))
    desc = SliceDesc(wide, TensorDesc(DataType.FLOAT32, (8, 32)), (0, 0), (8, 32), (1, 2))
    device = emulator.get_device()
    program = device.load(plan(desc, GPU))
    operands = [np.zeros((4, 64), np.float32), np.zeros((8, 32), np.float32)]
    with emulator.schedule("forward", check=True), pytest.raises(KernelError) as caught:
        program(operands, None)
    assert re.search(
        r"^kernels/common/\w+\.cuh:\d+ in .* <- kernels/slice/\w+\.cu:\d+ in ", caught.value.reports[0]
    )
    assert "of input_tensor, which has 1024 bytes" in caught.value.reports[0]
