"""`python -m bench predict`: its errors, and the problems that stand for larger ones."""

from collections.abc import Sequence

import pytest

from bench.__main__ import main as bench_command
from bench.prediction import cases, command
from bench.prediction.model import at_limits
from bench.top_k import TopKCase
from cudml.operators.path import Choice
from cudml.operators.top_k.paths import PATHS
from cudml.operators.top_k.rows import Selection
from cudml.plans import KernelLaunch, Limits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("convolution", "invalid choice: 'convolution' (choose from"),
        ("slice --case nowhere", "no case has 'nowhere' in its name"),
        ("--case nowhere", "no case has 'nowhere' in its name"),
        ("--micro --case nowhere", "no row has 'nowhere' in its name"),
        ("slice --micro", "--micro is about rows of bench/micro: no operator"),
        ("--micro --check", "no --check with it"),
    ],
)
def test_unknown_values_are_reported(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_command(["predict", *arguments.split()])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_without_tools_nothing_is_predicted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "no nvdisasm: pip install nvidia-cuda-nvdisasm"
    monkeypatch.setattr(command, "unavailable", lambda: reason)
    for arguments in (["--micro"], ["slice", "--check"], []):
        assert command.main(arguments) == 1
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", f"{reason}\n")


def test_smaller_problems_take_the_path_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their times are of other kernels where the choice depends on the length."""

    def by_length(selection: Selection, limits: Limits) -> Choice[Selection]:
        return Choice(PATHS["block_filter" if selection.row_length >= 1 << 16 else "grid_radix"], "")

    def times_of(calls: Sequence[cases.Planned], num_steps: int = 0) -> cases.Times:
        kernels = [step for call in calls for step in call.plan.steps if isinstance(step, KernelLaunch)]
        ran.append((calls[0].operands["input_tensor"].nbytes, [kernel.function for kernel in kernels]))
        return [(kernel.name_expression, at_limits(0, 0)) for kernel in kernels]

    ran: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(cases, "choose_path", by_length)
    monkeypatch.setattr(cases, "_MAX_ELEMENTS", 1 << 16)
    monkeypatch.setattr(cases, "_of_kernels", times_of)
    case = TopKCase(name="long", num_rows=1, row_length=1 << 20, k=8, dtype="float32")
    cases.predicted("top_k", case)
    assert sorted(ran) == [(4 << 15, ["top_k_block_filter"]), (4 << 16, ["top_k_block_filter"])]
