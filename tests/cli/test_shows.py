"""The last part of `cudml demo`: its claims are true, and a wrong result is noticed."""

import re
from typing import Any

import numpy as np
import pytest

from cudml.cli import main as cli
from cudml.cli import shows
from cudml.devices import Device, get_device


@pytest.mark.parametrize("show", shows.SHOWS)
def test_every_output_is_as_expected(show: Any, device: Device) -> None:
    shown = show(device)
    assert all(check.is_good for check in shown.checks)
    assert shown.checks
    assert ": ok" in shown.lines[-1]


def test_ties_keep_their_places() -> None:
    """NumPy's sort promises nothing about ties, so the test asserts nothing about it."""
    shown = shows.ties(get_device("cpu"))
    assert shown.lines[1] == "cudml.top_k: one more article, of one star, changes 0 of the ten places"
    assert np.array_equal(shown.checks[0].got, np.sort(shown.checks[0].got))  # all of the ten have five stars


def test_short_rows_are_filled() -> None:
    shown = shows.ragged(get_device("cpu"))
    assert [line.count("-1") for line in shown.lines[:3]] == [0, 2, 4]


def test_the_noise_goes_and_the_tone_stays() -> None:
    shown = shows.denoiser(get_device("cpu"))
    noise, noise_left, tone, tone_left = (
        int(level) for line in shown.lines[:2] for level in re.findall(r"(-\d+) dB", line)
    )
    assert noise_left < noise - 20
    assert tone_left > tone - 2


@pytest.mark.parametrize(("name", "show"), [("top_k", 0), ("top_k", 1), ("gru", 2)])
def test_a_wrong_result_is_noticed(
    name: str, show: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = getattr(shows, name)

    def wrong(*arguments: Any, **options: Any) -> Any:
        result = right(*arguments, **options)
        result[1][...] += 1
        return result

    monkeypatch.setattr(shows, name, wrong)
    shown = shows.SHOWS[show](get_device("cpu"))
    assert [check.is_good for check in shown.checks] == [False]
    assert shown.lines[-1].endswith(": DIFFERS")
    monkeypatch.setattr(shows, "SHOWS", shows.SHOWS[show : show + 1])
    assert cli.main(["demo", "--device", "cpu"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 19 outputs differ"


def test_times_are_of_both(device: Device) -> None:
    heading, *rows = shows.times(device)
    assert heading == ("time of a call", "cudml", "NumPy")
    assert len(rows) == 3
    assert all(float(time.removesuffix(" ms")) > 0 for _, *both in rows for time in both)
