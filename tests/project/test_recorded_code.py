"""The committed table of machine code is that of the kernels, without a GPU.

A row has a hash of everything but the compiler that decides the machine code, so a row of earlier kernels is
found without a compilation. The test that compiles is skipped where CuPy, NVRTC or nvdisasm is not installed
(`pip install --group nvrtc`), or another NVRTC made the table. It runs with `--architectures some`, after the
tests of every instance (tests/machine_code/test_instances.py), which leave their facts in the cache: beside
them, both would compile everything.
"""

import pytest

from bench import machine_code
from proof.sass.architectures import ARCHITECTURES, COMPILED_BY_DEFAULT, Architecture
from proof.sass.compiler import nvrtc_version, unavailable


def _rows_of(architecture: Architecture) -> list[machine_code.Row]:
    rows = machine_code.recorded().rows
    return [row for row in rows if row.architecture == architecture.name]


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_rows_are_of_the_present_kernels(architecture: Architecture) -> None:
    """`python -m bench machine-code` compiles what changed, and writes the new table."""
    found = {row.key: (row.instances, row.text) for row in _rows_of(architecture)}
    assert found == machine_code.present(architecture)


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(
            architecture,
            id=architecture.name,
            marks=pytest.mark.architectures("some" if architecture.number in COMPILED_BY_DEFAULT else "all"),
        )
        for architecture in ARCHITECTURES
    ],
)
def test_code_is_as_recorded(architecture: Architecture) -> None:
    """A change of a kernel shows as a difference; `python -m bench machine-code` writes the new table."""
    version = machine_code.recorded().version
    if version != nvrtc_version():
        pytest.skip(f"the table is by NVRTC {version}, this is {nvrtc_version()}")
    assert machine_code.differences(_rows_of(architecture), machine_code.measured([architecture])) == []
