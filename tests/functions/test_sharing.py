"""Tensors of other libraries in a CPU's memory, as arguments and outputs of every function."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudml
from cudml.devices import dlpack, take
from tests.support import assert_identical
from tests.support.capsules import taken_for_bfloat16
from tests.support.function_arrays import layer, values


class Tensor:
    """A tensor of a library that has only DLPack, over a NumPy array."""

    def __init__(self, array: np.ndarray, *, is_old: bool = False, is_bfloat16: bool = False) -> None:
        self.array, self.is_old, self.is_bfloat16 = array, is_old, is_bfloat16

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.is_old:
            if "max_version" in options:
                raise TypeError("unexpected argument max_version")
            return self.array.__dlpack__()
        if not self.is_bfloat16:
            return self.array.__dlpack__(**options)
        return taken_for_bfloat16(self.array.view(np.uint16).__dlpack__(**options))


def calls(
    rng: np.random.Generator,
) -> dict[str, tuple[Callable[..., Any], list[np.ndarray], list[np.ndarray]]]:
    """For every function: a call with arrays and `out`, the arrays, and the results."""
    a, lengths = values(rng, (5, 7), np.float32), np.array([[7], [0], [3], [9], [1]], np.int32)
    names = ("x", "w", "r", "b", "h0", "sequence_lengths")
    arrays = layer(rng, "bidirectional")
    functions: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
        "top_k": (lambda x, out=None: cudml.top_k(x, 3, out=out), [a]),
        "ragged top_k": (lambda x, n, out=None: cudml.top_k(x, 3, lengths=n, out=out), [a, lengths]),
        "slice": (lambda x, out=None: cudml.slice(x, (4, 1), (3, 2), (-2, 4), out=out and out[0]), [a]),
        "reverse_subsequences": (
            lambda x, n, out=None: cudml.reverse_subsequences(x, n, out=out and out[0]),
            [a, lengths],
        ),
        "gru": (
            lambda *given, out=None: cudml.gru(
                **dict(zip(names, given, strict=True)), direction="bidirectional", out=out
            ),
            [arrays[name] for name in names],
        ),
    }
    found = {}
    for name, (function, given) in functions.items():
        results = function(*given)
        found[name] = function, given, list(results) if isinstance(results, tuple) else [results]
    return found


FUNCTIONS = ["top_k", "ragged top_k", "slice", "reverse_subsequences", "gru"]


@pytest.mark.parametrize("is_old", [False, True], ids=["versioned", "old"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors_give_what_arrays_give(name: str, is_old: bool, rng: np.random.Generator) -> None:
    function, given, expected = calls(rng)[name]
    results = function(*[Tensor(array, is_old=is_old) for array in given])
    results = list(results) if isinstance(results, tuple) else [results]
    for result, want in zip(results, expected, strict=True):
        assert type(result) is np.ndarray
        assert_identical(result, want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_put_into_tensors(name: str, rng: np.random.Generator) -> None:
    function, given, expected = calls(rng)[name]
    outs = [Tensor(np.zeros((2, *want.shape[::-1]), want.dtype)[1].T) for want in expected]
    for _ in range(2):
        results = function(*[Tensor(array) for array in given], out=tuple(outs))
        results = list(results) if isinstance(results, tuple) else [results]
        for result, out, want in zip(results, outs, expected, strict=True):
            assert result is out
            assert_identical(np.ascontiguousarray(out.array), want)
            out.array[...] = 0


def test_bfloat16_is_taken(rng: np.random.Generator) -> None:
    a = values(rng, (4, 9), ml_dtypes.bfloat16)
    out = np.zeros((4, 9), ml_dtypes.bfloat16)
    got = cudml.top_k(Tensor(a, is_bfloat16=True), 4)
    expected = cudml.top_k(a, 4)
    assert_identical(got.values, expected.values)
    assert_identical(got.indices, expected.indices)
    given = Tensor(out, is_bfloat16=True)
    assert cudml.slice(Tensor(a, is_bfloat16=True), (3, 8), (4, 9), (-1, -1), out=given) is given
    assert_identical(out, a[::-1, ::-1])


def test_bfloat16_without_ml_dtypes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlpack, "_ml_dtypes", None)
    with pytest.raises(
        TypeError, match=r"top_k: a is a .*Tensor of bfloat16, which takes ml_dtypes: pip install"
    ):
        cudml.top_k(Tensor(np.zeros(3, ml_dtypes.bfloat16), is_bfloat16=True), 1)


@pytest.mark.parametrize("is_old", [False, True], ids=["read-only", "old"])
def test_tensors_that_may_only_be_read_are_no_outputs(is_old: bool) -> None:
    """A capsule without a version does not say whether it may be written."""
    a, memory = np.arange(6, dtype=np.float32), np.full(6, 7, np.float32)
    memory.flags.writeable = is_old
    if is_old:
        assert cudml.slice(Tensor(memory, is_old=True), (5,), (6,), (-1,)).tolist() == [7] * 6
    else:
        assert cudml.slice(Tensor(memory), (5,), (6,), (-1,)).tolist() == [7] * 6
    with pytest.raises(ValueError, match=r"^slice: out is read-only, must be writable$"):
        cudml.slice(a, (5,), (6,), (-1,), out=Tensor(memory, is_old=is_old))
    assert memory.tolist() == [7] * 6


@pytest.mark.parametrize("how", ["packed", "backwards", "turned", "gaps", "broadcast", "one", "empty"])
def test_every_layout_is_shared(how: str, rng: np.random.Generator) -> None:
    array = {
        "packed": lambda a: a,
        "backwards": lambda a: a[::-1, ::-2],
        "turned": lambda a: a.T,
        "gaps": lambda a: a[:, 1::3],
        "broadcast": lambda a: np.broadcast_to(a[0], (3, 6)),
        "one": lambda a: a[2, 3],
        "empty": lambda a: a[:0],
    }[how](values(rng, (4, 6), np.float64).view())
    array = np.asarray(array)
    found = take(Tensor(array))
    assert found is not None
    shared = found[0].array
    assert_identical(np.ascontiguousarray(shared), np.ascontiguousarray(array))
    if array.size:
        assert shared.ctypes.data == array.ctypes.data
        assert shared.strides == array.strides
        assert shared.flags.writeable == array.flags.writeable


def test_memory_is_given_back_when_nobody_uses_it() -> None:
    class Owner(np.ndarray):
        """An array that may be watched."""

    memory = np.arange(6, dtype=np.float32).view(Owner)
    alive = weakref.ref(memory)
    found = take(Tensor(memory))
    assert found is not None
    shared = found[0].array[2:]
    del found, memory
    gc.collect()
    assert alive() is not None
    assert shared.tolist() == [2, 3, 4, 5]
    del shared
    gc.collect()
    assert alive() is None


class Raising:
    """A tensor that its library does not share."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it requires grad")


def on(answer: Any) -> Any:
    """An object with this `__dlpack_device__`."""
    return type("Elsewhere", (), {"__dlpack_device__": lambda self: answer, "__module__": "other"})()


WRONG: dict[str, tuple[Any, str]] = {
    "none": (on(None), "an other.Elsewhere whose __dlpack_device__() is None"),
    "number": (on(1), "an other.Elsewhere whose __dlpack_device__() is 1"),
    "words": (on(("cpu", 0)), "an other.Elsewhere whose __dlpack_device__() is ('cpu', 0)"),
    "metal": (on((8, 0)), "an other.Elsewhere"),
    "no __dlpack__": (
        on((1, 0)),
        "an other.Elsewhere whose __dlpack__() raises AttributeError: "
        "'Elsewhere' object has no attribute '__dlpack__'",
    ),
    "raising": (
        Raising(),
        "a tests.functions.test_sharing.Raising whose __dlpack__() raises BufferError: it requires grad",
    ),
}


@pytest.mark.parametrize(("given", "problem"), WRONG.values(), ids=WRONG)
def test_objects_that_share_nothing_are_refused(given: Any, problem: str) -> None:
    expected = (
        "must be a NumPy array, a CuPy array or an object that shares memory of a CPU or a GPU as they do"
    )
    with pytest.raises(TypeError) as caught:
        cudml.top_k(given, 1)
    assert str(caught.value) == f"top_k: a is {problem}, {expected}"
    with pytest.raises(TypeError) as caught:
        cudml.slice(np.zeros(3), (0,), (1,), out=given)
    assert str(caught.value) == f"slice: out is {problem}, {expected}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_cpu_has_no_streams(name: str, rng: np.random.Generator) -> None:
    function = {
        "top_k": lambda s: cudml.top_k(np.arange(3), 1, stream=s),
        "ragged top_k": lambda s: cudml.top_k(np.arange(3), 1, lengths=2, stream=s),
        "slice": lambda s: cudml.slice(Tensor(np.arange(3)), (0,), (1,), stream=s),
        "reverse_subsequences": lambda s: cudml.reverse_subsequences(np.arange(3), np.array(2), stream=s),
        "gru": lambda s: cudml.gru(**layer(rng, "forward"), stream=s),
    }[name]
    function(None)
    name = name.removeprefix("ragged ")
    for stream in (0, object()):
        with pytest.raises(
            TypeError,
            match=rf"^{name}: stream is an? .*, must be None on cpu, which has no str",
        ):
            function(stream)
    with pytest.raises(TypeError, match=r"^top_k: a is a list, must be a NumPy array"):
        cudml.top_k([1], 1, stream=0)


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor's elements; NumPy does not import bfloat16."""
    found = take(tensor)
    assert found is not None
    return found[0].array.copy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_torch_tensors(dtype: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = torch.from_numpy(rng.integers(-3, 4, (5, 8))).to(getattr(torch, dtype))
    array = as_numpy(a)
    assert str(array.dtype) == dtype
    out = torch.zeros((3, 5), dtype=a.dtype).T, torch.zeros((5, 3), dtype=torch.int64)
    got = cudml.top_k(a, 3, out=out)
    assert got.values is out[0]
    expected = cudml.top_k(array, 3)
    assert_identical(as_numpy(out[0]), expected.values)
    assert_identical(as_numpy(out[1]), expected.indices)
    assert_identical(cudml.slice(a[1:, ::3], (3, 0), (4, 3), (-1, 1)), array[:0:-1, ::3])


def test_torch_tensors_that_are_not_shared() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(
        TypeError, match=r"top_k: a is a torch.Tensor whose __dlpack__\(\) raises .* gradient"
    ):
        cudml.top_k(torch.ones(3, requires_grad=True), 1)
    with pytest.raises(
        TypeError, match=r"top_k: a is a torch.Tensor whose __dlpack_device__\(\) raises .*meta"
    ):
        cudml.top_k(torch.ones(3, device="meta"), 1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool"])
def test_jax_arrays(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    a = jnp.arange(40).reshape(5, 8).astype(dtype) * jnp.ones((), dtype)
    array = np.asarray(a)
    assert_identical(cudml.slice(a, (4, 7), (5, 8), (-1, -1)), array[::-1, ::-1])
    expected = cudml.top_k(array, 3)
    got = cudml.top_k(a, 3)
    assert_identical(got.values, expected.values)
    assert_identical(got.indices, expected.indices)
    with pytest.raises(ValueError, match=r"^slice: out is read-only, must be writable$"):
        cudml.slice(array.copy(), (0, 0), (5, 8), out=a)
    assert_identical(np.asarray(a), array)
