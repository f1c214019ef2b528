"""Beam search with `cudml.top_k`: the best sequences of a small language model, ties in a fixed order.

Each step scores every continuation of every beam and keeps the best of all of them: one top-k over
(beams x vocabulary). Because ties go to the lower index, the result is the same on every device and run.

    pip install cudml     # in a checkout: pip install .
    python examples/beam_search.py
"""

from itertools import pairwise

import numpy as np

import cudml

TEXT = "the cat sat on the mat and the dog sat on the log and the cat saw the dog "
BEAMS, LENGTH = 4, 16


def log_probabilities() -> tuple[list[str], np.ndarray]:
    """The letters of a text, and the logarithms of the probabilities of each letter's successors."""
    letters = sorted(set(TEXT))
    counts = np.full((len(letters), len(letters)), 0.01, np.float32)
    for first, second in pairwise(TEXT):
        counts[letters.index(first), letters.index(second)] += 1
    return letters, np.log(counts / counts.sum(axis=1, keepdims=True))


def search(start: str) -> list[tuple[float, str]]:
    """The best continuations of a letter, best first, each with its logarithmic probability."""
    letters, steps = log_probabilities()
    beams, scores = np.array([[letters.index(start)]]), np.zeros(1, np.float32)
    for _ in range(LENGTH):
        continued = scores[:, None] + steps[beams[:, -1]]
        scores, places = cudml.top_k(continued.reshape(-1), min(BEAMS, continued.size))
        parents, added = np.divmod(places, len(letters))
        beams = np.hstack([beams[parents], added[:, None]])
    return [
        (float(score), "".join(letters[letter] for letter in beam))
        for score, beam in zip(scores, beams, strict=True)
    ]


def main() -> None:
    for score, text in search("t"):
        print(f"{score:7.3f}  {text}")


if __name__ == "__main__":
    main()
