"""`cudml.torch` on CUDA tensors: results, streams, graphs, and which calls are found.

Over the stand-in for CUDA the tensors only say that they are on a GPU (`tests/support/gpu_tensors.py`).
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest

import cudml
from cudml.devices import cuda, dlpack
from proof import stand_in
from tests.support import assert_identical

if TYPE_CHECKING:
    from tests.support.gpu_tensors import Tensors

HAS_TORCH = importlib.util.find_spec("torch") is not None


def _missing() -> str:
    """Why CUDA tensors cannot be had here; "" if they can."""
    if not cuda.status().usable:
        return f"no GPU: {cuda.status().reason}"
    if not HAS_TORCH:
        return "PyTorch is not installed: pip install 'cudml[torch]'"
    import torch

    has_tensors = torch.cuda.is_available() or stand_in.loaded() is not None
    return "" if has_tensors else "this build of PyTorch has no CUDA"


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(_missing()), reason=_missing())]


@pytest.fixture
def tensors() -> Iterator["Tensors"]:
    from tests.support import gpu_tensors

    with gpu_tensors.tensors() as made:
        yield made


def _layer(rng: np.random.Generator, num_directions: int) -> list[np.ndarray]:
    """x, w, r, b and h0 of a layer."""
    steps, batch, inputs, hidden, directions = 5, 3, 6, 4, num_directions
    shapes = (
        (steps, batch, inputs),
        (directions, 3 * hidden, inputs),
        (directions, 3 * hidden, hidden),
        (directions, 6 * hidden),
        (directions, batch, hidden),
    )
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    import torch

    with torch.no_grad():
        yield


@pytest.mark.parametrize("on_stream", [False, True])
@pytest.mark.parametrize(("shape", "k", "dim"), [((4, 300), 5, -1), ((40, 6), 3, 0), ((2, 0, 3), 0, 1)])
def test_topk(
    tensors: "Tensors",
    shape: tuple[int, ...],
    k: int,
    dim: int,
    on_stream: bool,
    rng: np.random.Generator,
) -> None:
    """The first call plans, the second finds the plan, and the third has a tensor at another address."""
    import cudml.torch

    for largest in (True, False):
        arrays = [rng.integers(-9, 9, shape).astype(np.float32) for _ in range(2)]
        given = [tensors.on_gpu(array) for array in arrays]
        for number in (0, 0, 1):
            if on_stream:
                with tensors.stream():
                    found = cudml.torch.topk(given[number], k, dim, largest)
            else:
                found = cudml.torch.topk(given[number], k, dim, largest)
            mode: Any = "largest" if largest else "smallest"
            wanted = cudml.top_k(arrays[number], k, axis=dim, mode=mode, nan="greatest")
            for got, right in zip(found, wanted, strict=True):
                assert_identical(tensors.numpy(got), right)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("num_directions", [1, 2])
def test_gru(tensors: "Tensors", num_directions: int, dtype: str, rng: np.random.Generator) -> None:
    """The results are the array function's, planned and found, with and without optional tensors."""
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    import cupy
    import ml_dtypes
    import torch

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    is_bfloat16 = dtype == "bfloat16"  # PyTorch neither takes nor gives bfloat16 arrays

    def on_gpu(array: np.ndarray) -> torch.Tensor:
        if is_bfloat16 and array.dtype == kind:
            return tensors.on_gpu(array.view(np.uint16)).view(torch.bfloat16)
        return tensors.on_gpu(array)

    def on_host(tensor: torch.Tensor) -> np.ndarray:
        return tensors.numpy(tensor.view(torch.uint16)).view(kind) if is_bfloat16 else tensors.numpy(tensor)

    arrays = [one.astype(kind) for one in _layer(rng, num_directions)]
    lengths = np.array([5, 0, 2], np.int32)
    direction: Any = "bidirectional" if num_directions == 2 else "forward"
    for absent in (0, 2):
        given = [None if n >= 5 - absent else one for n, one in enumerate(arrays)]
        given += [None if absent else lengths]
        shared = [None if one is None else on_gpu(one) for one in given]
        states, last = cudml.gru(
            *(None if one is None else cupy.asarray(one) for one in given),
            direction=direction,
            linear_before_reset=True,
        )
        for _ in range(2):
            sequence, single = _operator("gru")(*shared)
            assert sequence.dtype is single.dtype is getattr(torch, dtype)
            wanted = np.moveaxis(states.get(), 1, 2).reshape(tuple(sequence.shape))
            assert_identical(on_host(sequence), wanted)
            assert_identical(on_host(single), last.get())


def _stack(rng: np.random.Generator, num_steps: int, num_directions: int = 1) -> dict[str, Any]:
    """The arguments of two layers, which run in one launch if they have one direction and several steps."""
    batch, inputs, hidden, directions = 3, 6, 16, num_directions
    states = hidden * directions

    def of(*shape: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, shape).astype(np.float32)

    return {
        "x": of(num_steps, batch, inputs),
        "w": [of(directions, 3 * hidden, inputs), of(directions, 3 * hidden, states)],
        "r": [of(directions, 3 * hidden, hidden) for _ in range(2)],
        "b": [of(directions, 6 * hidden) for _ in range(2)],
        "h0": of(2 * directions, batch, hidden),
        "lengths": np.array([num_steps, 0, 2], np.int32),
    }


@pytest.mark.parametrize("has_optional", [True, False])
@pytest.mark.parametrize(("num_steps", "num_directions"), [(5, 1), (5, 2), (1, 1)])
def test_gru_of_layers(
    tensors: "Tensors",
    num_steps: int,
    num_directions: int,
    has_optional: bool,
    rng: np.random.Generator,
) -> None:
    """The results are the array function's, in one launch for all layers or in one for each."""
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)
    import cupy

    import cudml.torch

    given = _stack(rng, num_steps, num_directions)
    if not has_optional:
        given |= {"b": [], "h0": None, "lengths": None}
    biases = given["b"] or [None, None]
    layers = zip(given["w"], given["r"], biases, strict=True)
    states, last = cudml.gru_stack(
        cupy.asarray(given["x"]),
        [[None if one is None else cupy.asarray(one) for one in layer] for layer in layers],
        *(None if one is None else cupy.asarray(one) for one in (given["h0"], given["lengths"])),
        direction="bidirectional" if num_directions == 2 else "forward",
        linear_before_reset=True,
    )
    shared = [_on_gpu(tensors, one) for one in given.values()]
    planned_calls = cudml.torch.calls.planned_calls
    planned_calls.clear()
    for _ in range(2):
        sequence, single = _operator("gru_stack")(*shared)
        wanted = np.moveaxis(states.get(), 1, 2).reshape(tuple(sequence.shape))
        assert_identical(tensors.numpy(sequence), wanted)
        assert_identical(tensors.numpy(single), last.get())
        is_one_launch = num_steps > 1 and num_directions == 1
        assert len(planned_calls) == (1 if is_one_launch else 3)


def _on_gpu(tensors: "Tensors", given: Any) -> Any:
    """An array, the arrays of a list, or None."""
    if isinstance(given, list):
        return [tensors.on_gpu(one) for one in given]
    return None if given is None else tensors.on_gpu(given)


def _operator(name: str) -> Any:
    """An operator of PyTorch; the module around `gru` computes with PyTorch's own kernels."""
    import torch

    import cudml.torch  # noqa: F401

    return getattr(torch.ops.cudml, name).default


def _calls(tensors: "Tensors", rng: np.random.Generator) -> dict[str, tuple[Callable[[], Any], Any]]:
    """The calls that `CALLS` names, each with the tensor that is its first argument."""
    import cudml.torch

    short, long = (
        tensors.on_gpu(rng.standard_normal(shape, np.float32)) for shape in ((4, 300), (1, 1 << 17))
    )
    layer = [tensors.on_gpu(one) for one in _layer(rng, 1)]
    stack, step = ([_on_gpu(tensors, one) for one in _stack(rng, steps).values()] for steps in (4, 1))
    cudml.torch.calls.planned_calls.clear()
    return {
        "topk": (lambda: cudml.torch.topk(short, 5), short),
        "topk with scratch": (lambda: cudml.torch.topk(long, 5), long),
        "gru": (lambda: _operator("gru")(*layer, None), layer[0]),
        "layers at once": (lambda: _operator("gru_stack")(*stack), stack[0]),
        "layers in turn": (lambda: _operator("gru_stack")(*step), step[0]),
    }


CALLS = ["topk", "topk with scratch", "gru", "layers at once", "layers in turn"]


@pytest.mark.parametrize("name", CALLS)
def test_a_warm_call_normalises_nothing(tensors: "Tensors", name: str, rng: np.random.Generator) -> None:
    """On the default stream and on another one."""
    call = _calls(tensors, rng)[name][0]
    first = [tensors.numpy(one) for one in call()]
    failing = AssertionError("normalised again")
    with (
        patch("cudml.functions.calls.all_on_device", side_effect=failing),
        patch.object(dlpack, "read_versioned", side_effect=failing),
    ):
        again = call()
        with tensors.stream():
            on_stream = call()
    for found in (again, on_stream):
        for got, right in zip(found, first, strict=True):
            assert_identical(tensors.numpy(got), right)


@pytest.mark.parametrize("name", CALLS)
def test_work_is_in_the_order_of_pytorchs_stream(
    tensors: "Tensors", name: str, rng: np.random.Generator
) -> None:
    """The call sees earlier writes and no later ones, whether it is planned or found."""
    call, given = _calls(tensors, rng)[name]
    before, after = (tensors.on_gpu(rng.standard_normal(tuple(given.shape), np.float32)) for _ in range(2))
    for _ in range(2):
        with tensors.stream():
            tensors.fill(given, before)
            found = call()
            tensors.fill(given, after)
            values = tensors.numpy(found[0])
        tensors.fill(given, before)
        assert_identical(values, tensors.numpy(call()[0]))


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_a_graph_of_pytorch_computes_again(
    tensors: "Tensors", name: str, is_warm: bool, rng: np.random.Generator
) -> None:
    """A replay gives the bits of a call, and calls in between neither disturb it nor are disturbed by it."""
    import cudml.torch

    call, given = _calls(tensors, rng)[name]
    values = [tensors.on_gpu(rng.standard_normal(tuple(given.shape), np.float32)) for _ in range(3)]
    expected = []
    for one in values:
        tensors.fill(given, one)
        expected.append(tensors.numpy(call()[0]))
    if not is_warm:
        cudml.torch.calls.planned_calls.clear()
    found, replay = tensors.captured(call)
    for one, right in zip(values, expected, strict=True):
        tensors.fill(given, one)
        replay()
        other = call()
        assert_identical(tensors.numpy(found[0]), right)
        assert_identical(tensors.numpy(other[0]), right)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "length"), [(4, 300), (1, 1 << 17)])
def test_a_graph_of_rows_of_given_lengths_into_given_tensors(
    tensors: "Tensors", rows: int, length: int, index_type: Any, rng: np.random.Generator
) -> None:
    """A call and each replay read the lengths anew and write the same tensors; long rows need scratch."""
    import cudml.torch

    arrays = [rng.integers(-99, 99, (rows, length)).astype(np.float32) for _ in range(3)]
    counts = [rng.integers(0, length, (rows, 1)).astype(np.int32) for _ in range(3)]
    counts[1][0] = 3
    expected = [cudml.top_k(a, 5, nan="greatest", lengths=n) for a, n in zip(arrays, counts, strict=True)]
    given, lengths = tensors.on_gpu(arrays[0]), tensors.on_gpu(counts[0])
    out = tensors.on_gpu(np.zeros((rows, 5), np.float32)), tensors.on_gpu(np.zeros((rows, 5), index_type))

    def check(found: Any, number: int) -> None:
        assert_identical(tensors.numpy(found[0]), expected[number].values)
        assert_identical(tensors.numpy(found[1]), expected[number].indices.astype(found_type(found)))

    def found_type(found: Any) -> Any:
        return index_type if found[1] is out[1] else np.int64

    def call() -> Any:
        return cudml.torch.topk(given, 5, lengths=lengths, out=out)

    check(call(), 0)
    check(cudml.torch.topk(given, 5, lengths=lengths), 0)
    found, replay = tensors.captured(call)
    assert found[0] is out[0]
    assert found[1] is out[1]
    for number in (1, 2, 0):
        tensors.fill(given, tensors.on_gpu(arrays[number]))
        tensors.fill(lengths, tensors.on_gpu(counts[number]))
        replay()
        check(out, number)


#: Offsets of five rows of a tensor of 40 elements. Some rows are empty, shorter than k or cut; an offset may
#: lie behind the end, or descend.
_ROWS = [[0, 7, 7, 9, 30, 40], [3, 3, 20, 21, 39, 40], [0, 40, 40, 40, 41, 45], [9, 4, 12, 13, 14, 33]]


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_a_graph_of_rows_that_lie_one_behind_another(
    tensors: "Tensors", dtype: Any, index_type: Any, into: bool, rng: np.random.Generator
) -> None:
    """Each replay reads values and offsets anew; the results are those of a CPU."""
    import torch

    import cudml.torch

    arrays = [rng.integers(0, 9, 40).astype(dtype) for _ in _ROWS]
    bounds = [np.array(rows, index_type) for rows in _ROWS]
    expected = [
        cudml.torch.topk(torch.from_numpy(a), 4, offsets=torch.from_numpy(n), max_length=15)
        for a, n in zip(arrays, bounds, strict=True)
    ]
    given, offsets = tensors.on_gpu(arrays[0]), tensors.on_gpu(bounds[0])
    indices = tensors.on_gpu(np.zeros((5, 4), index_type))
    out = (tensors.on_gpu(np.zeros((5, 4), dtype)), indices) if into else None

    def call() -> Any:
        return cudml.torch.topk(given, 4, offsets=offsets, max_length=15, out=out)

    def check(found: Any, number: int) -> None:
        values, places = map(tensors.numpy, found)
        assert_identical(values, expected[number].values.numpy())
        assert_identical(places.astype(np.int64), expected[number].indices.numpy())

    check(call(), 0)
    found, replay = tensors.captured(call)
    for number in (1, 2, 3, 0):
        tensors.fill(given, tensors.on_gpu(arrays[number]))
        tensors.fill(offsets, tensors.on_gpu(bounds[number]))
        replay()
        check(found, number)
        check(call(), number)


def test_a_graph_of_rows_that_lie_one_behind_another_takes_their_longest_length(tensors: "Tensors") -> None:
    """The host would have to wait for the length; the call is refused at once, and the capture goes on."""
    import cudml.torch

    given = tensors.on_gpu(np.array([3, 1, 4, 1, 5], np.float32))
    offsets = tensors.on_gpu(np.array([0, 2, 5]))
    cudml.torch.topk(given, 2, offsets=offsets, max_length=3)

    def call() -> Any:
        with pytest.raises(RuntimeError, match=r"max_length is None, must be a number .* in a graph"):
            cudml.torch.topk(given, 2, offsets=offsets)
        return cudml.torch.topk(given, 2, offsets=offsets, max_length=3)

    found, replay = tensors.captured(call)
    replay()
    assert tensors.numpy(found[1]).tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize("is_warm", [True, False])
def test_errors_are_those_of_the_first_call(tensors: "Tensors", is_warm: bool) -> None:
    import torch

    import cudml.torch

    given = tensors.on_gpu(np.zeros((4, 30), np.float32))
    cudml.torch.calls.planned_calls.clear()
    if is_warm:
        cudml.torch.topk(given, 5)
    for k, dim, error, text in (
        (31, -1, RuntimeError, "topk: k is 31, must be from 0 to 30, the size of dim -1"),
        (-1, -1, RuntimeError, "topk: k is -1, must be from 0 to 30, the size of dim -1"),
        (5, 2, IndexError, "topk: dim is 2, must be from -2 to 1"),
    ):
        with pytest.raises(error, match=text):
            cudml.torch.topk(given, k, dim)
    given.requires_grad_()
    with torch.enable_grad(), pytest.raises(RuntimeError, match="input requires one"):
        cudml.torch.topk(given, 5)
    assert tensors.numpy(cudml.torch.topk(given, 5)[1].detach()).tolist() == [[0, 1, 2, 3, 4]] * 4
