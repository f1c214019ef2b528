"""Both devices refuse to compile a kernel for a launch that does not fit it, by parameters or constants."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from cudml.devices import emulator, sources
from cudml.devices.emulator import build
from cudml.devices.kernel_text import assertions, kernel_text
from cudml.errors import CompilerError
from cudml.plans import KernelLaunch, Params
from proof.instances import instances, operators, planned_launches
from proof.sass.architectures import ARCHITECTURES
from proof.sass.compiler import compile_cubin, unavailable
from tests.devices.cuda.stand_in import cases
from tests.devices.cuda.stand_in.cases import scale_launch, scale_plan
from tests.devices.cuda.stand_in.process import NEEDS_STAND_IN, Run
from tests.support.params import params_of

LIMITS = ARCHITECTURES[0].limits


def params(**members: Any) -> Params:
    """The struct of `scale.cu` with some members declared otherwise."""
    right: dict[str, Any] = {
        "bias_index": ("Int32", 0),
        "num_items": ("Int64", 1),
        "factor": ("Float32", 1.0),
        "unused": ("UInt32", (0, 0, 0)),
    }
    return params_of(**{name: kind for name, kind in (right | members).items() if kind})


MISTAKES = [
    ({"buffers": ("a", "out")}, "scale<Float32, 0> is launched with 2 pointers"),
    ({"params": params_of()}, "scale<Float32, 0> is launched with no struct"),
    ({"params": params(bias_index=("Int64", 0))}, "bias_index is launched as Int64 at byte 0"),
    ({"params": params(factor=("UInt32", 0))}, "factor is launched as UInt32 at byte 16"),
    ({"params": params(num_items=("Int32", 0))}, "num_items is launched as Int32 at byte 4"),
    ({"params": params(unused=("UInt32", (0, 0)))}, "unused is launched as UInt32[2] at byte 20"),
    ({"params": params(unused=None)}, "scale<Float32, 0> is launched with a struct of 24 bytes"),
    ({"params": params(scale=("Float32", 0))}, "scale"),
    ({"constants": (("sizeof(float)", 8),)}, "scale<Float32, 0>: plans assume that sizeof(float) is 8"),
]


@pytest.mark.parametrize(("changes", "text"), MISTAKES)
def test_the_emulator_refuses_what_a_kernel_does_not_take(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(CompilerError, match="error: ") as caught:
        emulator.get_device().load(scale_plan(scale_launch(**changes)))
    assert text in str(caught.value)


class TestCuda:
    pytestmark = NEEDS_STAND_IN

    @pytest.mark.parametrize(("changes", "text"), MISTAKES)
    def test_it_refuses_what_a_kernel_does_not_take(
        self, stand_in: Run, changes: dict[str, Any], text: str
    ) -> None:
        kind, message = stand_in(cases.refused, scale_plan(scale_launch(**changes)))
        assert kind == "CompilerError"
        assert text in message


def with_two_swapped(launch: KernelLaunch) -> tuple[KernelLaunch, str] | None:
    """The launch with two adjacent parameters of one type swapped, and the message about the first."""
    fields = launch.params.fields
    for i, (first, second) in enumerate(itertools.pairwise(fields)):
        if (first.c_type, len(first.values)) == (second.c_type, len(second.values)):
            members = (*fields[:i], second, first, *fields[i + 2 :])
            swapped = params_of(**{field.name: (field.c_type, field.values) for field in members})
            message = f"{launch.name_expression}: {second.name} is launched as {first.c_type}"
            return launch._replace(params=swapped), message
    return None


def one_swapped(operator: str) -> tuple[KernelLaunch, str]:
    """A launch of an operator with two parameters of one type and length swapped."""
    launches = (launch for launch in instances(LIMITS) if launch.source.startswith(f"{operator}/"))
    return next(found for found in map(with_two_swapped, launches) if found is not None)


def with_one_changed(launch: KernelLaunch, i: int) -> tuple[KernelLaunch, str]:
    """The launch with another value of constant `i`, and the message about it."""
    expression, value = launch.constants[i]
    changed = (*launch.constants[:i], (expression, value + 1), *launch.constants[i + 1 :])
    message = f"{launch.name_expression}: plans assume that {expression} is {value + 1}"
    return launch._replace(constants=changed), message


def with_constants() -> dict[str, KernelLaunch]:
    """A launch of every kernel that shares constants with its plan, by source."""
    found = {launch.source: launch for launch in instances(LIMITS) if launch.constants}
    assert len(found) > 10
    return found


@pytest.mark.parametrize("source", with_constants())
def test_the_emulator_refuses_a_constant_that_differs(source: str) -> None:
    launch, message = with_one_changed(with_constants()[source], 0)
    with pytest.raises(CompilerError, match="error: ") as caught:
        build.module(launch)
    assert message in str(caught.value)


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("source", with_constants())
def test_nvrtc_refuses_each_constant_that_differs(source: str) -> None:
    launch = with_constants()[source]
    changed = [with_one_changed(launch, i) for i in range(len(launch.constants))]
    with pytest.raises(RuntimeError, match="error: ") as caught:
        compile_cubin(
            kernel_text([one for one, _ in changed]), ARCHITECTURES[0].name, [launch.name_expression]
        )
    assert [message for _, message in changed if message not in str(caught.value)] == []


@pytest.mark.parametrize("operator", operators())
def test_the_emulator_refuses_two_members_of_one_size_that_are_swapped(operator: str) -> None:
    launch, message = one_swapped(operator)
    with pytest.raises(CompilerError, match="error: ") as caught:
        build.module(launch)
    assert message in str(caught.value)


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("operator", operators())
def test_nvrtc_refuses_two_members_of_one_size_that_are_swapped(operator: str) -> None:
    launch, message = one_swapped(operator)
    with pytest.raises(RuntimeError, match="error: ") as caught:
        compile_cubin(kernel_text([launch]), ARCHITECTURES[0].name, [launch.name_expression])
    assert message in str(caught.value)


def test_a_source_that_was_hashed_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sources.source_hash("slice/gather.cu")
    with monkeypatch.context() as patch:  # pytest itself reads files
        for name in ("read_bytes", "read_text"):
            patch.setattr(Path, name, lambda *_, **__: pytest.fail("a source was read"))
        assert sources.source_hash("slice/gather.cu") == first


def test_an_instance_has_one_text_whatever_its_launches_pass() -> None:
    """A text for each layout or shape would compile a kernel more than once."""
    texts: dict[tuple[str, str], set[str]] = {}
    for launch in planned_launches(LIMITS):
        texts.setdefault((launch.source, launch.name_expression), set()).add(assertions(launch))
    assert len(texts) > 50
    assert {len(found) for found in texts.values()} == {1}
