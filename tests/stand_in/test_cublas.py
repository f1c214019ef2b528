"""cuBLAS of the stand-in, through CuPy's binding and through cudml: products, and what it refuses."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import cudml
from cudml.devices import cuda
from cudml.devices.cuda import cublas as own
from cudml.errors import DeviceError
from cudml.plans import MatMul, Plan, Workspace, product_workspace_size
from tests.stand_in import OVER_STAND_IN, the_stand_in

pytestmark = OVER_STAND_IN

NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 1, 7, 13, 15
N, T = 0, 1
FLOAT, HALF = 0, 2
COMPUTE_32F, DEFAULT_ALGORITHM = 68, -1
TF32_MATH = 3
M, COLUMNS, K = 5, 7, 3


@pytest.fixture(autouse=True)
def needs_cublas() -> None:
    pytest.importorskip("cupy_backends.cuda.libs.cublas", exc_type=ImportError)


@pytest.fixture
def library() -> Any:
    from cupy_backends.cuda.libs import cublas

    return cublas


@pytest.fixture
def handle(library: Any) -> Iterator[int]:
    made = library.create()
    yield made
    library.destroy(made)


@contextmanager
def refused(status: int) -> Iterator[None]:
    """The call within raises CuPy's error with a status of cuBLAS."""
    from cupy_backends.cuda.libs.cublas import CUBLASError

    with pytest.raises(CUBLASError) as caught:
        yield
    assert caught.value.status == status


def product_of(
    library: Any,
    handle: int,
    *,
    pitches: tuple[int, int, int] = (M, K, M),
    dtype: Any = np.float32,
    shift: int = 0,
    types: tuple[int, int, int] | None = None,
    value: float = 1.0,
    operations: tuple[int, int] = (N, N),
) -> tuple[np.ndarray, np.ndarray]:
    """A product of column-major matrices of whole numbers and its expected value; gaps between the columns
    are -1. The first matrix is multiplied by `value`, addresses are moved by `shift` bytes."""
    import cupy

    kind = np.dtype(dtype)
    rng = np.random.default_rng(0)
    shapes = [
        (M, K) if operations[0] == N else (K, M),
        (K, COLUMNS) if operations[1] == N else (COLUMNS, K),
        (M, COLUMNS),
    ]
    wholes = [rng.integers(-4, 5, shape) for shape in shapes]
    wholes[0] = value * wholes[0]
    places = []
    for whole, pitch, one in zip(wholes, pitches, (kind, kind, np.dtype(np.float32)), strict=True):
        memory = np.full((whole.shape[1], max(pitch, whole.shape[0])), -1, one)
        memory[:, : whole.shape[0]] = whole.T
        places.append(cupy.asarray(memory))
    given = [FLOAT if kind == np.float32 else HALF] * 2 + [FLOAT] if types is None else types
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    a, b, c = (place.data.ptr + shift for place in places)
    library.gemmEx(
        handle, *operations, M, COLUMNS, K, one.ctypes.data, a, given[0], pitches[0], b, given[1], pitches[1],
        zero.ctypes.data, c, given[2], pitches[2], COMPUTE_32F, DEFAULT_ALGORITHM,
    )  # fmt: skip
    turned = [whole.T if turn else whole for whole, turn in zip(wholes, operations, strict=False)]
    left, right = (matrix.astype(kind).astype(np.float64) for matrix in turned)
    return places[2].get(), left @ right


@pytest.mark.parametrize("operations", [(N, N), (N, T), (T, N), (T, T)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_product(library: Any, handle: int, dtype: Any, operations: tuple[int, int]) -> None:
    pitches = M if operations[0] == N else K, K if operations[1] == N else COLUMNS, M
    got, expected = product_of(library, handle, dtype=dtype, operations=operations, pitches=pitches)
    assert np.array_equal(got.T, expected)


def test_leading_dimension_beyond_the_rows(library: Any, handle: int) -> None:
    got, expected = product_of(library, handle, pitches=(M + 2, K + 1, M + 3))
    assert np.array_equal(got[:, :M].T, expected)
    assert np.array_equal(got[:, M:], np.full((COLUMNS, 3), -1))


@pytest.mark.parametrize("pitches", [(M - 1, K, M), (M, K - 1, M), (M, K, M - 1), (M, 0, M)])
def test_leading_dimension_below_the_rows(library: Any, handle: int, pitches: tuple[int, int, int]) -> None:
    with refused(INVALID_VALUE):
        product_of(library, handle, pitches=pitches)


def test_address_between_elements(library: Any, handle: int) -> None:
    with refused(EXECUTION_FAILED):
        product_of(library, handle, shift=2)


def test_types_that_are_not_known(library: Any, handle: int) -> None:
    with refused(NOT_SUPPORTED):
        product_of(library, handle, types=(FLOAT, HALF, FLOAT))


def test_matrix_that_leaves_its_memory(library: Any, handle: int) -> None:
    """The memory is too small for the pitch, in the last column alone."""
    import cupy

    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    address = cupy.cuda.runtime.malloc(4 * (M * K + 2))
    whole = cupy.zeros((COLUMNS, M), np.float32)
    for pitch, fits in ((M + 1, True), (M + 2, False)):
        given = (
            handle, N, N, M, COLUMNS, K, one.ctypes.data, address, FLOAT, pitch, whole.data.ptr, FLOAT, K,
            zero.ctypes.data, whole.data.ptr, FLOAT, M, COMPUTE_32F, DEFAULT_ALGORITHM,
        )  # fmt: skip
        if fits:
            library.gemmEx(*given)
        else:
            with refused(EXECUTION_FAILED):
                library.gemmEx(*given)
    cupy.cuda.runtime.free(address)


def test_float32_keeps_its_bits_unless_tf32_is_allowed(library: Any, handle: int) -> None:
    value = 1 + 2.0**-11
    got, expected = product_of(library, handle, value=value)
    assert np.array_equal(got.T, expected)
    library.setMathMode(handle, TF32_MATH)
    rounded, _ = product_of(library, handle, value=value)
    assert not np.array_equal(rounded, got)
    largest = 4 * value * 4 * K
    assert np.abs(rounded - got).max() <= 2.0**-11 * largest


def test_handle_that_was_destroyed(library: Any) -> None:
    made = library.create()
    product_of(library, made)
    library.destroy(made)
    with refused(NOT_INITIALIZED):
        product_of(library, made)
    with refused(NOT_INITIALIZED):
        library.setStream(made, 0)
    with refused(NOT_INITIALIZED):
        library.destroy(made)


def test_handle_of_another_gpu(library: Any, handle: int) -> None:
    import cupy

    with cupy.cuda.Device(1), refused(EXECUTION_FAILED):
        product_of(library, handle)


def _call(library: Any, name: str, *given: Any) -> None:
    """Call cuBLAS itself: CuPy's functions set the stream to the current one and refuse to be captured."""
    status = own.functions(library.__file__)[name](*given)
    if status:
        raise own.failed(name, status)


def _multiply(library: Any, handle: int, a: Any, out: Any) -> None:
    """The product of an 8 x 8 matrix with itself, on the handle's stream."""
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    _call(
        library, "cublasGemmEx", handle, N, N, 8, 8, 8,
        one.ctypes.data, a.data.ptr, FLOAT, 8, a.data.ptr, FLOAT, 8,
        zero.ctypes.data, out.data.ptr, FLOAT, 8, COMPUTE_32F, DEFAULT_ALGORITHM,
    )  # fmt: skip


def test_stream_that_was_destroyed(library: Any, handle: int) -> None:
    import cupy

    a, out = cupy.full((8, 8), 2, np.float32), cupy.zeros((8, 8), np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    library.setStream(handle, stream.ptr)
    _multiply(library, handle, a, out)
    del stream
    with pytest.raises(DeviceError, match=f"cublasGemmEx of cuBLAS failed with status {EXECUTION_FAILED}"):
        _multiply(library, handle, a, out)


def test_workspace_between_multiples_of_256(library: Any, handle: int) -> None:
    """Python raises the status; cudml calls the functions itself, and its error names the call."""
    import cupy

    room = cupy.cuda.runtime.malloc(1024)
    _call(library, "cublasSetWorkspace_v2", handle, room, 1024)
    told = f"cublasSetWorkspace_v2 of cuBLAS failed with status {INVALID_VALUE}"
    with pytest.raises(DeviceError, match=told):
        _call(library, "cublasSetWorkspace_v2", handle, room + 16, 512)
    library.setStream(handle, 0)  # no later product has the workspace
    cupy.cuda.runtime.free(room)


def _nodes_of(graph: Any) -> list[str]:
    return [node.name for node in the_stand_in().runtime.streams.graph(graph.graph).nodes]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((), ["mallocAsync", "cublasGemmEx", "freeAsync"]),
        (("workspace",), ["cublasGemmEx"]),
        (("workspace", "stream"), ["mallocAsync", "cublasGemmEx", "freeAsync"]),
    ],
)
def test_product_in_a_capture_takes_memory_unless_it_has_a_workspace(
    library: Any, handle: int, order: tuple[str, ...], expected: list[str]
) -> None:
    """The workspace is discarded when the stream is set."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    room = cupy.empty(1 << 20, np.uint8)
    a, out = (cupy.zeros((8, 8), np.float32) for _ in range(2))
    cupy.cuda.Device().synchronize()
    library.setStream(handle, stream.ptr)
    for what in order:
        if what == "workspace":
            _call(library, "cublasSetWorkspace_v2", handle, room.data.ptr, room.nbytes)
        else:
            library.setStream(handle, stream.ptr)
    stream.begin_capture()
    _multiply(library, handle, a, out)
    assert _nodes_of(stream.end_capture()) == expected


def test_captured_layer_allocates_nothing_in_its_graph() -> None:
    """Its product has the workspace of the plan."""
    import cupy

    rng = np.random.default_rng(0)
    x, w, r = (
        cupy.asarray(rng.standard_normal(shape, np.float32)) for shape in ((3, 2, 4), (1, 24, 4), (1, 24, 8))
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        expected = [array.get() for array in cudml.gru(x, w, r)]
        stream.begin_capture()
        outputs = cudml.gru(x, w, r)
        graph = stream.end_capture()
        names = _nodes_of(graph)
        assert "cublasGemmEx" in names
        assert not {"mallocAsync", "freeAsync"} & {*names}
        graph.launch(stream)
        for output, wanted in zip(outputs, expected, strict=True):
            assert np.array_equal(output.get(), wanted)


def _own_product() -> Plan:
    step = MatMul("a", "b", "out", 8, 8, 8, "float32", workspace="room", workspace_bytes=1 << 14)
    room = Workspace("room", product_workspace_size(1 << 14))
    return Plan("TEST", ("a", "b", "out"), (step,), (room,), ("out",))


def test_threads_multiply_with_a_handle_each() -> None:
    """A product is on the stream of its thread, whatever streams other threads set at the same time."""
    import cupy

    program = cuda.get_device(0).load(_own_product())
    num_threads, num_rounds = 4, 8
    barrier = threading.Barrier(num_threads)
    wrong: list[tuple[int, int]] = []

    def multiply(number: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            a, b = (cupy.full((8, 8), number + one, np.float32) for one in (1, 2))
            out = cupy.empty((8, 8), np.float32)
            for turn in range(num_rounds):
                out.fill(-1)
                barrier.wait()
                program((a, b, out), None, stream)
                # The legacy stream and those of other threads do none of this stream's work.
                if not (out.get() == 8 * (number + 1) * (number + 2)).all():
                    wrong.append((number, turn))

    threads = [threading.Thread(target=multiply, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_handle_that_threads_share_has_the_stream_that_was_set_last(library: Any, handle: int) -> None:
    """So a thread's product can be on another thread's stream: the stand-in shows this in the bytes."""
    import cupy

    if the_stand_in().settings.seed is not None:
        pytest.skip("the order is another one with a seed")
    a, out = cupy.full((8, 8), 2, np.float32), cupy.zeros((8, 8), np.float32)
    mine, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.Device().synchronize()
    library.setStream(handle, mine.ptr)
    thread = threading.Thread(target=library.setStream, args=(handle, other.ptr))
    thread.start()
    thread.join()
    _multiply(library, handle, a, out)
    with mine:
        assert (out.get() == 0).all()
    with other:
        assert (out.get() == 32).all()


#: Two products at the same time on two streams, with one workspace for both or one for each.
_PROGRAM = """
import sys
from proof import stand_in
stand_in.load(seed=int(sys.argv[1]) or None)
import cupy, numpy as np
from cudml.devices import cuda
from tests.stand_in.test_cublas import _own_product
program = cuda.get_device(0).load(_own_product())
rooms = [cupy.empty(_own_product().temporary_bytes, np.uint8) for _ in range(2)]
if sys.argv[2] == "shared":
    rooms[1] = rooms[0]
arrays = [[cupy.full((8, 8), number + 1, np.float32) for _ in range(3)] for number in range(2)]
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
cupy.cuda.Device().synchronize()
for operands, room, stream in zip(arrays, rooms, streams):
    program(operands, room, stream)
cupy.cuda.Device().synchronize()
print([sorted({float(value) for value in operands[2].get().ravel()}) for operands in arrays])
"""


def _products(seed: int, workspaces: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "CUDML_TEST_STAND_IN"}
    command = [sys.executable, "-c", _PROGRAM, str(seed), workspaces]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_own_workspaces_give_the_products_in_every_order(seed: int) -> None:
    assert _products(seed, "own") == "[[8.0], [32.0]]\n"


def test_workspace_shared_by_two_streams_is_found_by_a_seed() -> None:
    assert any(_products(seed, "shared") != "[[8.0], [32.0]]\n" for seed in range(1, 6))
