"""`python -m bench predict`: its errors."""

import pytest

from bench.__main__ import main as bench_command
from bench.prediction import command


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
