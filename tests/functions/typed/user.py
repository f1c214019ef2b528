"""A user's program for type checkers; it is checked, not run, and does not use CuPy."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import cudml
from cudml import DataType, TensorDesc


def of_numpy(a: NDArray[np.float32], lengths: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    values, indices = cudml.top_k(a, 3)
    assert_type(values, NDArray[np.float32])
    assert_type(indices, NDArray[np.int64])
    result = cudml.top_k(a, np.int64(3), axis=0, mode="smallest", out=(out, indices))
    assert_type(result.values, NDArray[np.float32])
    narrow = cudml.top_k(a, 3, nan="greatest", out=(out, np.zeros(3, np.uint32)))
    assert_type(narrow.indices, NDArray[np.uint32])
    assert_type(cudml.top_k(a, 3, lengths=lengths).values, NDArray[np.float32])
    assert_type(cudml.top_k(a, 3, lengths=[[1], [2]], out=(out, indices)).indices, NDArray[np.int64])
    assert_type(cudml.slice(a, (0, 1), [2, 2]), NDArray[np.float32])
    assert_type(cudml.slice(a, lengths, a.shape, (np.int8(1), 2), out=out), NDArray[np.float32])
    assert_type(cudml.reverse_subsequences(a, lengths, out=out), NDArray[np.float32])
    assert_type(cudml.reverse_subsequences(a, [[1], [2]]), NDArray[np.float32])
    assert_type(cudml.reverse_subsequences(a, 2, axis=0), NDArray[np.float32])
    sequence, single = cudml.gru(a, a, a, h0=out, sequence_lengths=[1, 2], direction="backward")
    assert_type(sequence, NDArray[np.float32])
    assert_type(single, NDArray[np.float32])
    layer = cudml.gru(a, a, a, direction="bidirectional", activations=["Relu", cudml.Activation("tanh")] * 2)
    assert_type(layer.single, NDArray[np.float32])


class OnGpu:
    """An array of a library for GPUs."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise NotImplementedError


class Exported:
    """An array of a library that exports it."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError


def of_others(a: OnGpu, b: Exported) -> None:
    assert_type(cudml.top_k(a, 3).values, Any)
    assert_type(cudml.top_k(b, 3).indices, Any)
    assert_type(cudml.top_k(b, 3, lengths=a).indices, Any)
    assert_type(cudml.slice(a, (0,), (1,)), Any)
    assert_type(cudml.reverse_subsequences(b, a), Any)
    assert_type(cudml.gru(a, a, b, sequence_lengths=[1]).sequence, Any)


def of_descriptors(model: dict[str, Any]) -> None:
    tensor = TensorDesc(DataType.FLOAT32, [1, 4], strides=[4, 1])
    assert_type(tensor.sizes, tuple[int, ...])
    assert_type(tensor.strides, tuple[int, ...] | None)
    desc = cudml.SliceDesc(tensor, tensor, [0, 0], np.zeros((1, 4)).shape, (np.int64(1), 1))
    assert_type(desc.offsets, tuple[int, ...])
    assert_type(cudml.Activation("LeakyRelu", [0.1]).parameters, tuple[float, ...])
    found = cudml.from_dict(model)
    if isinstance(found, cudml.GruDesc):
        assert_type(found.activation_descs, tuple[cudml.Activation, ...])
    assert_type(cudml.to_dict(found), dict[str, Any])
    assert_type(cudml.compile_operator(found), cudml.CompiledOperator)


def is_refused(a: NDArray[np.float32]) -> None:
    """Each line is a type error; if it were not, its unused `type: ignore` would be an error."""
    cudml.top_k([1, 2], 1)  # type: ignore[call-overload]
    cudml.top_k(a, "1")  # type: ignore[call-overload]
    cudml.top_k(a, 1, mode="best")  # type: ignore[call-overload]
    cudml.top_k(a, 1, nan="first")  # type: ignore[call-overload]
    cudml.slice(a, {0, 1}, (1, 1))  # type: ignore[call-overload]
    cudml.gru(a, a, a, direction="up")  # type: ignore[call-overload]
    cudml.top_k(a, 1).value  # type: ignore[attr-defined]  # noqa: B018
    TensorDesc(DataType.FLOAT32, 4)  # type: ignore[arg-type]
    cudml.compile_operator(model={})  # type: ignore[call-arg]
    cudml.from_dict([])  # type: ignore[arg-type]
