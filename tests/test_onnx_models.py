"""`cudml.onnx` runs published models beside ONNX Runtime."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cudml.onnx as adapter
from cudml.onnx import session as session_module
from tests.operators.test_real_models import MODELS, folder_of
from tests.support.hebrew_model import hebrew_model
from tests.support.onnx_adapter import call_of_node, gru_by_its_formulas
from tests.support.onnx_suite import PROVIDERS, by_onnxruntime

#: Hebrew with the marks that the diacritizer adds, in Unicode's order; of different lengths.
DIACRITIZED = [
    "שָׁלוֹם עוֹלָם, מָה שְׁלוֹמֵךְ הַיּוֹם?",
    "הַיֶּלֶד הָלַךְ לְבֵית הַסֵּפֶר בַּבּוֹקֶר.",
    "לֶחֶם וְחָלָב.",
]


def with_exact_layers(path: Path) -> adapter.Session:
    """The session of a model whose GRU layers are computed by the formulas in float64."""

    def exactly(node: onnx.NodeProto, *_: Any) -> Callable[..., list[np.ndarray]]:
        def run(inputs: Sequence[Any], stream: Any) -> list[np.ndarray]:
            call = call_of_node(node, 21, [array for array in inputs if array is not None])
            results = gru_by_its_formulas(replace(call, wanted=(True, True)))
            return [result.astype(np.float32) for result in results]

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "runner_of", exactly)
        return adapter.Session(path, ops=("GRU",), providers=PROVIDERS)


@pytest.mark.parametrize("name", MODELS)
def test_real_models(name: str) -> None:
    """The error is at most twice ONNX Runtime's, both against the model with layers in float64."""
    package, file, make_inputs, num_layers = MODELS[name]
    if folder_of(package) is None:
        pytest.skip(f"{package} is not installed")
    path = folder_of(package) / file
    feeds = make_inputs(path)
    session = adapter.Session(path, providers=PROVIDERS)
    assert [row.runs_on for row in session.placed if row.op == "GRU"] == ["cudml"] * num_layers
    ours, exact = session.run_named(feeds), with_exact_layers(path).run_named(feeds)
    for name, theirs in zip(session.outputs, by_onnxruntime(path, feeds), strict=True):
        assert ours[name].dtype == theirs.dtype
        found, usual = (np.abs(r.astype(np.float64) - exact[name]).max() for r in (ours[name], theirs))
        assert found <= 2 * usual


def test_slices_of_a_real_model(rng: np.random.Generator) -> None:
    """A voice detector; slices are exact, so that only ONNX Runtime's fusions may differ."""
    package = "silero_vad"
    if folder_of(package) is None:
        pytest.skip(f"{package} is not installed")
    path = folder_of(package) / "data" / "silero_vad_16k_sequence.onnx"
    state = np.zeros((1, 1, 128), np.float32)
    feeds = {"input": rng.uniform(-1, 1, (20, 576)).astype(np.float32), "h": state, "c": state}
    session = adapter.Session(path, ops=("Slice",), providers=PROVIDERS)
    assert [row.runs_on for row in session.placed] == ["cudml"] * 5
    for ours, theirs in zip(session.run_named(feeds).values(), by_onnxruntime(path, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_reversals_of_a_real_model() -> None:
    """A diacritizer of Hebrew: the error is at most twice ONNX Runtime's, and the marks are right."""
    for package in ("nakdimon", "h5py"):
        if folder_of(package) is None:
            pytest.skip(f"{package} is not installed")
    from nakdimon import dataset, hebrew

    plain = (hebrew.iterate_dotted_text(hebrew.remove_niqqud(text)) for text in DIACRITIZED)
    rows = [dataset.Data.from_text(items, maxlen=48) for items in plain]
    numbers = np.concatenate([row.normalized for row in rows]).astype(np.float32)
    # The longest text has no padding, so that every step of a reversal counts.
    feeds = {"letters": numbers[:, numbers.any(axis=0)]}
    path = folder_of("nakdimon") / "Nakdimon.h5"
    model = hebrew_model(path)
    session = adapter.Session(model, providers=PROVIDERS)
    assert [(row.op, row.runs_on) for row in session.placed] == [("ReverseSequence", "cudml")] * 5
    ours = session.run_named(feeds)
    exact = by_onnxruntime(hebrew_model(path, np.float64), feeds)
    for result, theirs, true in zip(ours.values(), by_onnxruntime(model, feeds), exact, strict=True):
        assert result.dtype == theirs.dtype
        found, usual = (np.abs(r - true).max() for r in (result, theirs))
        assert found <= 2 * usual
    letters = np.concatenate([row.text for row in rows])
    marks = [result.argmax(axis=-1) for result in ours.values()]
    texts = dataset.merge(letters, feeds["letters"], *marks)
    assert [unicodedata.normalize("NFD", text) for text in texts] == DIACRITIZED
