"""Peers that several operators share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.cases import Inputs, Peer


def device_copy(bytes_moved: Callable[[Any], int]) -> Peer:
    """A plain copy in device memory that reads and writes the same number of bytes: the limit."""

    def prepare(case: Any, inputs: Inputs) -> Callable[[], Any]:
        size = bytes_moved(case) // 2
        some_input = next(iter(inputs.values()))
        source = np.zeros_like(some_input, shape=(size,), dtype=np.uint8)
        target = np.zeros_like(source)
        if isinstance(source, np.ndarray):
            return lambda: np.copyto(target, source)
        return lambda: target.data.copy_from_device_async(source.data, size)

    return Peer(prepare, contract="copies as many bytes, in order")
