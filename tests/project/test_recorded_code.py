"""The committed table of machine code is that of the kernels, without a GPU.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`. The tests of every
instance (tests/machine_code/test_instances.py) run before, and leave their facts in the cache. A row has a
hash of all that decides the machine code but the compiler, so a row of earlier kernels is found without a
compilation.
"""

import pytest

from bench import machine_code
from proof.sass.architectures import ARCHITECTURES, COMPILED_BY_DEFAULT, Architecture
from proof.sass.compiler import nvrtc_version, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


@pytest.fixture
def recorded() -> machine_code.Table:
    """The committed table, if this compiler made it."""
    table = machine_code.recorded()
    if table.version != nvrtc_version():
        pytest.skip(f"the table is by NVRTC {table.version}, this is {nvrtc_version()}")
    return table


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_rows_are_of_the_present_kernels(architecture: Architecture, recorded: machine_code.Table) -> None:
    """`python -m bench machine-code` compiles what changed, and writes the new table."""
    of_architecture = [row for row in recorded.rows if row.architecture == architecture.name]
    found = {row.key: (row.instances, row.text) for row in of_architecture}
    assert found == machine_code.present(architecture)


@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(
            architecture,
            id=architecture.name,
            marks=() if architecture.number in COMPILED_BY_DEFAULT else pytest.mark.architectures("all"),
        )
        for architecture in ARCHITECTURES
    ],
)
def test_code_is_as_recorded(architecture: Architecture, recorded: machine_code.Table) -> None:
    """A change of a kernel shows as a difference; `python -m bench machine-code` writes the new table."""
    of_architecture = [row for row in recorded.rows if row.architecture == architecture.name]
    assert machine_code.differences(of_architecture, machine_code.measured([architecture])) == []
