"""Each instruction that kernels use, by itself: compiled from CUDA C++ or PTX, run, compared with NumPy.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install 'cudml[nvrtc]'`.
"""

import functools

import numpy as np
import pytest

from tests.machine_code.compiler import unavailable
from tests.machine_code.facts import facts_of
from tests.machine_code.instructions import floating, integer, memory, warps, written
from tests.machine_code.instructions.snippet import kernels
from tests.machine_code.plan import HOPPER, Kernel
from tests.machine_code.sass import machine
from tests.support.instances import batches

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

GROUPS = {
    "integer": integer.SNIPPETS,
    "floating": floating.SNIPPETS,
    "memory": memory.SNIPPETS,
    "warps": warps.SNIPPETS,
    "written": written.SNIPPETS,
}

#: Instructions of kernels that no snippet executes, and why.
WITHOUT_A_SNIPPET = {
    "NOP": "means nothing",
    "YIELD": "a hint which warp goes on",
}


@functools.cache
def compiled(group: str) -> dict[str, Kernel]:
    """The kernels of a group's snippets."""
    if group == "written":
        return {name: snippet.kernel() for name, snippet in written.SNIPPETS.items()}
    return kernels(GROUPS[group])


@pytest.mark.parametrize("group", GROUPS)
def test_snippets(group: str, rng: np.random.Generator) -> None:
    for name, snippet in GROUPS[group].items():
        print(name)
        snippet.check(compiled(group)[name], rng)


def test_every_form_has_a_snippet(rng: np.random.Generator) -> None:
    """Each opcode with its suffixes that a kernel instance has, and each opcode of the machine's table."""
    executed = {
        form
        for group, snippets in GROUPS.items()
        for name, snippet in snippets.items()
        for form in snippet.executed(compiled(group)[name], rng)
    }
    of_kernels = {
        form
        for batch in batches(HOPPER.limits)
        for facts in facts_of(batch, HOPPER).values()
        for form in facts.opcodes
    }
    assert of_kernels - executed == set(WITHOUT_A_SNIPPET)
    opcodes = {form.split(".")[0] for form in executed | set(WITHOUT_A_SNIPPET)}
    assert set(machine.table().entries) == opcodes
