"""Each instruction that kernels use, by itself: compiled from CUDA C++ or PTX, run, compared with NumPy.

Skipped where CuPy, NVRTC or nvdisasm is not installed: `pip install --group nvrtc`.
"""

import functools

import numpy as np
import pytest

from proof.instances import batches
from proof.sass import machine
from proof.sass.compiler import unavailable
from proof.sass.facts import facts_of
from proof.sass.plan import HOPPER, Kernel
from tests.machine_code.instructions import floating, integer, memory, warps, written
from tests.machine_code.instructions.snippet import kernels
from tests.machine_code.instructions.written import FormRunner

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
#: The table's entry for opcodes that it does not have.
UNKNOWN = "UNKNOWN"


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
    assert set(machine.table().entries) - {UNKNOWN} == opcodes


def forms_of_kernels() -> set[str]:
    """The forms of all instructions of all kernel instances."""
    return {
        form
        for batch in batches(HOPPER.limits)
        for facts in facts_of(batch, HOPPER).values()
        for form in facts.forms
    }


def test_every_form_uses_its_operands() -> None:
    """The machine refuses an instruction that leaves an operand, or the sign of one, without a meaning."""
    runs = FormRunner()
    # A load that the compiler puts before asynchronous copies; no lane runs it, and its address is invalid:
    # below shared storage.
    never_runs = {"LDS RZ, [RZ]"}
    forms = sorted(forms_of_kernels() - never_runs)
    refused = {form: reason for form in forms if (reason := runs.refusal(form))}
    assert not refused, "\n".join(f"{form}: {reason}" for form, reason in refused.items())


@pytest.mark.parametrize(
    "form", ["EXIT R8", "IMAD.MOV.U32 R8, RZ, R16, R24", "STG.E desc[UR2][R2.64+0x10], R16, P1", "NOP R8"]
)
def test_a_form_with_one_operand_more_is_refused(form: str) -> None:
    assert "not known in this form" in FormRunner().refusal(form)
