"""What operators compute, by NumPy: for the bytes that machine code writes."""

from collections.abc import Mapping

import numpy as np

from cudml.operators.gru import GruDesc
from cudml.operators.reverse_subsequences import ReverseSubsequencesDesc
from cudml.operators.slice import Slice1Desc
from cudml.operators.top_k import TopK1Desc
from tests.oracle import gru as gru_oracle
from tests.oracle.top_k import top_k

Arrays = Mapping[str, np.ndarray]


def expected(desc: object, inputs: Arrays) -> dict[str, np.ndarray]:
    """The outputs by member. Top-k takes unsigned integers; a GRU is computed in double precision."""
    if isinstance(desc, TopK1Desc):
        return _top_k(desc, inputs)
    if isinstance(desc, Slice1Desc):
        return {"output_tensor": _slice1(desc, inputs["input_tensor"])}
    if isinstance(desc, ReverseSubsequencesDesc):
        return {"output_tensor": _reversed(inputs, desc.axis)}
    if isinstance(desc, GruDesc):
        return gru(desc, inputs, np.float64)
    raise TypeError(f"{type(desc).__name__} has no expected result")


def _top_k(desc: TopK1Desc, inputs: Arrays) -> dict[str, np.ndarray]:
    values, indices = top_k(inputs["input_tensor"], desc.k, desc.axis)
    return {"output_value_tensor": values, "output_index_tensor": indices}


def _slice1(desc: Slice1Desc, a: np.ndarray) -> np.ndarray:
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    places = [
        (offset if step > 0 else offset + size - 1) + step * np.arange(count)
        for (offset, size, step), count in zip(windows, desc.output_tensor.sizes, strict=True)
    ]
    return a[np.ix_(*places)]


def _reversed(inputs: Arrays, axis: int) -> np.ndarray:
    a = inputs["input_tensor"]
    size = a.shape[axis]
    places = np.arange(size).reshape([-1 if d == axis else 1 for d in range(a.ndim)])
    lengths = np.minimum(inputs["sequence_lengths_tensor"].astype(np.int64), size)
    return np.take_along_axis(a, np.where(places < lengths, lengths - 1 - places, places), axis)


def gru(desc: GruDesc, inputs: Arrays, precision: type[np.floating]) -> dict[str, np.ndarray]:
    """Both outputs, computed and kept in a precision."""

    def of(name: str) -> np.ndarray | None:
        found = inputs.get(name)
        return None if found is None else found.reshape(found.shape[1:])

    x, w, r = of("input_tensor"), of("weight_tensor"), of("recurrence_tensor")
    assert x is not None
    assert w is not None
    assert r is not None
    bias, lengths = of("bias_tensor"), of("sequence_lengths_tensor")
    weights = gru_oracle.Weights(
        x,
        w,
        r,
        None if bias is None else bias[0],
        of("hidden_init_tensor"),
        None if lengths is None else lengths[0, 0],
    )
    sequence, single = gru_oracle.gru(
        weights, desc.activation_descs, desc.direction, desc.linear_before_reset, precision
    )
    found = {"output_sequence_tensor": sequence, "output_single_tensor": single[None]}
    return {name: found[name] for name in found if getattr(desc, name) is not None}
