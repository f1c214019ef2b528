"""`cudml.cupy` on a GPU's arrays."""

from typing import Any

import numpy as np
import pytest

import cudml
import cudml.cupy as adapter
from cudml.devices import cuda
from tests.test_cupy import assert_partitioned

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.status().usable, reason=f"no GPU: {cuda.status().reason}"),
]


@pytest.mark.parametrize("kth", [1, 7, [2, -2]])
def test_partitions_of_a_gpu_s_arrays(kth: Any, rng: np.random.Generator) -> None:
    import cupy

    a = rng.integers(0, 6, (3, 10)).astype(np.float32)
    places = kth if isinstance(kth, list) else [kth]
    for axis in (0, 1):
        within = [place for place in places if -a.shape[axis] <= place < a.shape[axis]]
        if within:
            indices = adapter.argpartition(cupy.asarray(a), within, axis)
            assert isinstance(indices, cupy.ndarray)
            assert_partitioned(a, indices.get(), within, axis)
            values = adapter.partition(cupy.asarray(a), within, axis).get()
            assert np.array_equal(values, np.take_along_axis(a, indices.get(), axis))
    undo = cudml.install_cupy()
    try:
        assert_partitioned(a, np.argpartition(cupy.asarray(a), kth).get(), places, 1)
    finally:
        undo()
    assert adapter.top_k(cupy.asarray(a), 2).indices.get().tolist() == cudml.top_k(a, 2).indices.tolist()
