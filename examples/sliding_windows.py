"""Read a long signal in overlapping windows with `cudml.slice`: a new offset costs no new plan.

pip install cudml     # in a checkout: pip install .
python examples/sliding_windows.py
"""

import numpy as np

import cudml

WINDOW, HOP = 1000, 250


def loudest_window(signal: np.ndarray) -> tuple[int, float]:
    """Where the window with the most energy starts, and its energy, over all channels."""
    window = np.empty((signal.shape[0], WINDOW), signal.dtype)
    best = (0, -1.0)
    for start in range(0, signal.shape[1] - WINDOW + 1, HOP):
        cudml.slice(signal, (0, start), (signal.shape[0], WINDOW), (1, 1), out=window)
        energy = float(np.sum(window.astype(np.float64) ** 2))
        best = max(best, (start, energy), key=lambda item: item[1])
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    signal = 0.1 * rng.standard_normal((2, 20_000), dtype=np.float32)
    signal[:, 7_300:8_200] += 1  # the event to be found
    start, energy = loudest_window(signal)
    every_fourth = cudml.slice(signal, (0, start), (2, WINDOW // 4), (1, 4))
    print(f"the event is in the {WINDOW} samples from {start}, with energy {energy:.0f}")
    print("every fourth of them:", every_fourth.shape, f"{every_fourth.mean():.2f}")


if __name__ == "__main__":
    main()
