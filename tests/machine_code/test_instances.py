"""The machine code of every kernel instance, without a GPU.

By default, one batch in 12 is compiled for sm_90; the record of all instances must match the present kernels
(tests/project/test_recorded_code.py). `--architectures some` compiles all for sm_90 and one batch in 12 for
each other architecture, `--architectures all` compiles all. Skipped where CuPy, NVRTC or nvdisasm is not
installed: `pip install --group nvrtc`.
"""

import itertools

import numpy as np
import pytest

from bench import machine_code
from cudml.operators import OPERATORS
from cudml.plans import KernelLaunch
from proof.instances import batches, instances, operators, random_launches
from proof.sass import nvrtc
from proof.sass.architectures import ARCHITECTURES, COMPILED_BY_DEFAULT, Architecture
from proof.sass.compiler import nvrtc_version, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Random descriptors that each architecture plans in the search for instances that are not listed.
RANDOM_LAUNCHES = 300

#: If not all batches are compiled for an architecture, one in this number is; the next architecture takes
#: the batches after those.
ONE_IN = 12


def _marks(place: int, number: int) -> tuple[pytest.MarkDecorator, ...]:
    """The mark of a batch by its number and the place of its architecture."""
    least, most = ("few", "some") if ARCHITECTURES[place].number in COMPILED_BY_DEFAULT else ("some", "all")
    return (pytest.mark.architectures(least if number % ONE_IN == place else most),)


_BATCHES = [
    pytest.param(
        architecture,
        batch,
        id=f"{architecture.name}-{batch[0].name_expression}",
        marks=_marks(place, number),
    )
    for place, architecture in enumerate(ARCHITECTURES)
    for number, batch in enumerate(batches(architecture.limits))
]


@pytest.mark.parametrize(("architecture", "batch"), _BATCHES)
def test_kernel_instances(architecture: Architecture, batch: list[KernelLaunch]) -> None:
    """The instances have no problem, and stay within the committed table if this compiler made it.

    tests/project/test_recorded_code.py compares the table with all instances together.
    """
    if architecture.number not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc_version()} does not know {architecture.name}")
    rows = machine_code.rows_of(batch, architecture)  # ValueError with all problems, if there are any
    recorded = machine_code.recorded()
    if recorded.version == nvrtc_version():
        assert machine_code.beyond(recorded.rows, rows) == []


def test_every_operator_has_its_instances() -> None:
    assert set(operators()) == {row.room for row in OPERATORS.values()}


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
@pytest.mark.parametrize("operator", operators())
def test_random_plans_choose_listed_instances(
    operator: str, architecture: Architecture, rng: np.random.Generator
) -> None:
    listed = {(launch.source, launch.name_expression) for launch in instances(architecture.limits)}
    found = itertools.islice(random_launches(operator, architecture.limits, rng), RANDOM_LAUNCHES)
    unlisted = {(launch.source, launch.name_expression) for launch in found} - listed
    assert not unlisted, sorted(unlisted)
