"""REVERSE_SUBSEQUENCES by its definition, lane by lane."""

import numpy as np


def reverse_lanes(a: np.ndarray, lengths: np.ndarray, axis: int) -> np.ndarray:
    """Each lane along `axis` with its first `length` elements reversed; `lengths` has size 1 there."""
    result = a.copy()
    lanes, lane_lengths = np.moveaxis(result, axis, -1), np.moveaxis(lengths, axis, -1)
    for lane in np.ndindex(*lanes.shape[:-1]):
        length = min(max(int(lane_lengths[lane][0]), 0), lanes.shape[-1])
        lanes[lane][:length] = lanes[lane][:length][::-1].copy()
    return result
