"""The end of `cudml demo`: three uses, each compared with NumPy, and times beside NumPy's."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.cli.demo import GRU_ERROR_FACTOR, Check, gru_by_formulas
from cudml.devices import Device
from cudml.functions.gru import gru
from cudml.functions.reverse_subsequences import reverse_subsequences
from cudml.functions.top_k import top_k
from cudml.functions.transfer import download, upload

RATE, WINDOW, HOP = 16_000, 320, 160

#: Frequencies of a frame, one hidden unit each.
_BANDS = WINDOW // 2 + 1

#: The noise floor of `floor_tracker`: how fast it falls, how slowly it rises, and how far above it sound is
#: kept.
_FOLLOW, _SLOWNESS, _MARGIN, _STEEPNESS = 20.0, 3.0, 0.2, 80.0


@dataclass(frozen=True)
class Show:
    """A use of cudml: its title, the lines to print, and the outputs that were compared."""

    title: str
    lines: tuple[str, ...]
    checks: tuple[Check, ...]


def ties(device: Device) -> Show:
    """A ranking with many ties, before and after an article that does not concern the best ten."""
    stars = (np.random.default_rng(0).integers(10, 51, 500) / 10).astype(np.float32)
    more = np.append(stars, np.float32(1))

    def by_top_k(scores: np.ndarray) -> np.ndarray:
        return download(top_k(upload(device, scores), 10).indices)

    def by_sorting(scores: np.ndarray) -> np.ndarray:
        return np.argsort(-scores)[:10]

    lines = []
    for name, best in (("numpy.argsort", by_sorting), ("cudml.top_k", by_top_k)):
        changed = np.count_nonzero(best(stars) != best(more))
        lines.append(f"{name}: one more article, of one star, changes {changed} of the ten places")
    expected = np.argsort(-stars, kind="stable")[:10].astype(np.int64)
    check = Check("ties", "indices", expected, by_top_k(stars))
    lines.append(f"a stable sort: {_verdict(check)}")
    return Show("Ties: the best ten of 500 articles by stars, from 1.0 to 5.0", tuple(lines), (check,))


def ragged(device: Device) -> Show:
    """Rows of different lengths in one call, as a batch of requests has them."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(64, 4096)).astype(np.float32)
    lengths = rng.integers(0, 4097, (64, 1))
    lengths[:3, 0] = 4096, 2, 0
    k = 4
    indices = np.full((64, k), -1, np.int64)
    for row, length in enumerate(lengths[:, 0]):
        order = np.argsort(-scores[row, :length], kind="stable")[:k]
        indices[row, : len(order)] = order
    got = download(top_k(upload(device, scores), k, lengths=upload(device, lengths)).indices)
    check = Check("a ragged batch", "indices", indices, got)
    rows = [f"length {lengths[row, 0]:>4}: {got[row].tolist()}" for row in range(3)]
    return Show(
        "A ragged batch: the best 4 of each of 64 rows, in one call",
        (*rows, f"a stable sort of each row: {_verdict(check)}"),
        (check,),
    )


def denoiser(device: Device) -> Show:
    """Two seconds of sound, frame by frame: a GRU keeps the noise floor of each frequency in its state."""
    sound = _noisy_tone()
    levels, spectra = _frames(sound)
    w, r, b = floor_tracker()
    on_device = {"w": upload(device, w), "r": upload(device, r), "b": upload(device, b)}
    x = device.empty((1, 1, _BANDS), np.dtype(np.float32))
    first = np.full((1, 1, _BANDS), 0.75, np.float32)
    states = [upload(device, first) for _ in range(2)]
    sequence = device.empty((1, 1, 1, _BANDS), np.dtype(np.float32))
    floors = []
    for level in levels:
        _write(x, level[None, None])
        before, after = states
        gru(x, **on_device, h0=before, linear_before_reset=True, out=(sequence, after))
        states.reverse()
        floors.append(np.array(download(after)[0, 0]))  # on a CPU, the next call but one overwrites it
    floor = np.stack(floors)
    exact, rounded = (
        gru_by_formulas(
            levels[:, None],
            w,
            r,
            b,
            first,
            precision=precision,
            direction="forward",
            linear_before_reset=True,
        )[:, 0, 0]
        for precision in (np.float64, np.float32)
    )
    allowed = GRU_ERROR_FACTOR * float(np.sqrt(np.mean(np.square(rounded - exact))))
    check = Check("a denoiser", "state", exact.astype(np.float32), floor, allowed)
    gain = 1 / (1 + np.exp(-_STEEPNESS * (np.tanh(levels) - floor - _MARGIN)))
    clean = np.zeros_like(sound)
    for number, frame in enumerate(np.fft.irfft(spectra * gain) * _window()):
        clean[number * HOP : number * HOP + WINDOW] += frame
    lines = [
        f"{name}: {_decibels(sound[part]):.0f} dB before, {_decibels(clean[part]):.0f} dB after"
        for name, part in (
            ("noise alone", np.s_[RATE // 2 : RATE]),
            ("a tone in noise", np.s_[3 * RATE // 2 : 2 * RATE - WINDOW]),
        )
    ]
    lines.append(f"all frames at once, in NumPy: {_verdict(check)}")
    return Show(f"A denoiser: {len(levels)} frames, one a call, its state kept", tuple(lines), (check,))


SHOWS: tuple[Callable[[Device], Show], ...] = (ties, ragged, denoiser)


def floor_tracker() -> tuple[np.ndarray, ...]:
    """The weights of a GRU whose state is a noise floor: it falls fast with its input, and rises slowly.

    The update gate grows with the input minus the state, and the candidate is the input; the reset gate has
    no use. No training is needed, nor any file.
    """
    one, zero = np.eye(_BANDS, dtype=np.float32), np.zeros((_BANDS, _BANDS), np.float32)
    w = np.concatenate([_FOLLOW * one, zero, one])[None]
    r = np.concatenate([-_FOLLOW * one, zero, zero])[None]
    b = np.zeros((1, 6 * _BANDS), np.float32)
    b[0, :_BANDS] = _SLOWNESS
    return w, r, b


def times(device: Device) -> list[tuple[str, str, str]]:
    """A table of the times of a call of cudml and of NumPy on the CPU, each the best of several."""
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(8, 50257)).astype(np.float32)
    words = rng.normal(size=(32, 128, 64)).astype(np.float32)
    lengths = rng.integers(1, 129, (32, 1, 1))
    x = rng.normal(size=(100, 1, 64)).astype(np.float32)
    w, r, b = (rng.normal(0, 0.1, size).astype(np.float32) for size in ((1, 192, 64), (1, 192, 64), (1, 384)))

    def partitioned() -> None:
        chosen = np.argpartition(-logits, 49, axis=-1)[:, :50]
        order = np.argsort(np.take_along_axis(-logits, chosen, -1), axis=-1)
        np.take_along_axis(logits, np.take_along_axis(chosen, order, -1), -1)

    def gathered() -> None:
        step = np.arange(128)[None, :, None]
        np.take_along_axis(words, np.where(step < lengths, lengths - 1 - step, step), 1)

    def stepped() -> None:
        gru_by_formulas(x, w, r, b, precision=np.float32, direction="forward", linear_before_reset=True)

    on_device = {
        name: upload(device, array) for name, array in locals().items() if isinstance(array, np.ndarray)
    }
    cases: tuple[tuple[str, Callable[[], Any], Callable[[], None]], ...] = (
        ("top_k of (8, 50257), k 50", lambda: top_k(on_device["logits"], 50), partitioned),
        (
            "reverse_subsequences of (32, 128, 64)",
            lambda: reverse_subsequences(on_device["words"], on_device["lengths"], 1),
            gathered,
        ),
        (
            "gru of (100, 1, 64), hidden 64",
            lambda: gru(*(on_device[name] for name in "xwrb"), linear_before_reset=True),
            stepped,
        ),
    )
    table = [("time of a call", "cudml", "NumPy")]
    for name, call, by_numpy in cases:
        table.append((name, _milliseconds(call, device), _milliseconds(by_numpy, device)))
    return table


def _milliseconds(call: Callable[[], Any], device: Device) -> str:
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        call()
        device.raise_reported()  # waits for a GPU
        best = min(best, time.perf_counter() - start)
    return f"{1000 * best:.3f} ms"


def _verdict(check: Check) -> str:
    if not check.is_good:
        return "DIFFERS"
    return f"ok, off by {check.error:.1e} of {check.tolerance:.1e} allowed" if check.tolerance else "ok"


def _write(array: Any, values: np.ndarray) -> None:
    """Replace the values of a device's array."""
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        array.set(values)


def _noisy_tone() -> np.ndarray:
    """Two seconds of noise, with a voice-like tone in the second one."""
    seconds = np.arange(2 * RATE) / RATE
    tone = sum(np.sin(2 * np.pi * 180 * h * seconds + np.sin(5 * seconds)) / h for h in range(1, 9))
    noise = 0.02 * np.random.default_rng(0).standard_normal(len(seconds))
    return np.asarray(0.1 * tone * (seconds >= 1) + noise)


def _window() -> np.ndarray:
    return np.sqrt(np.hanning(WINDOW + 1)[:-1])


def _frames(sound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half-overlapping frames: the logarithm of each frequency's power, about 0, and the spectra."""
    windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    spectra = np.fft.rfft(windows * _window())
    return (np.log10(np.abs(spectra) ** 2 + 0.01) / 8).astype(np.float32), spectra


def _decibels(sound: np.ndarray) -> float:
    """The root of the mean square, in decibels."""
    return float(20 * np.log10(np.sqrt(np.mean(sound**2)) + 1e-9))
