"""The memory that a captured call takes from CuPy's pool, over the stand-in; results are returned by value.

A stream is captured where the stand-in says so: nothing is recorded, but cudml and CuPy go their ways as they
do while a graph is captured.
"""

import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.devices.cuda.stand_in.cases import the_stand_in
from tests.devices.cuda.stand_in.products import cublas

STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 4, 8
NINE = (2,) * 9

#: Index of the word with the result's address in a recorded product.
PRODUCT_ADDRESS = 15


def fate_of_memory(call: str, captured: bool) -> dict[str, int]:
    """The fate of the memory that a call allocates: the number of pieces, how many of them CuPy's pool reuses
    while a view of every output lives, and how many bytes stay allocated afterwards."""
    import cupy

    pool = cupy.get_default_memory_pool()
    stream = cupy.cuda.Stream(non_blocking=True)
    taken: list[tuple[int, int]] = []

    class Noted(cupy.cuda.memory_hook.MemoryHook):
        """Notes what is allocated."""

        name = "Noted"

        def malloc_postprocess(self, **of: Any) -> None:
            taken.append((of["mem_ptr"], of["mem_size"]))

    with cublas(), stream:
        run = CALLS[call]()
        run()
        before = pool.used_bytes()
        the_stand_in().set(captured_stream=stream.ptr if captured else 0)
        try:
            with Noted():
                outputs = [array[:1] for array in run()]
        finally:
            the_stand_in().set(captured_stream=0)
        others = [cupy.cuda.alloc(size) for _, size in taken]
        given = {other.ptr for other in others} & {address for address, _ in taken}
        del outputs, others
        return {"taken": len(taken), "given": len(given), "stays": pool.used_bytes() - before}


def calls_of_warm_functions() -> dict[str, list[str]]:
    """The calls of the driver and the runtime by warm calls without and with scratch, on a separate stream
    and on the default one."""
    import cupy

    import cudml

    x, out = cupy.ndarray((8, 64), np.float32), cupy.ndarray((8, 32), np.float32)
    with_scratch = _gru_out()
    found = {}
    stand_in = the_stand_in()
    with cublas():
        for name, stream in (
            ("own", cupy.cuda.Stream(non_blocking=True)),
            ("default", cupy.cuda.Stream.null),
        ):
            with stream:
                for which, run in (
                    ("without", lambda: cudml.slice(x, (0, 1), (8, 32), out=out)),
                    ("with", with_scratch),
                ):
                    run()
                    stand_in.record()
                    run()
                    found[f"{name} {which}"] = [call.split()[0] for call in stand_in.calls()]
    return found


def scratch_of_two_calls(captured: bool) -> list[int]:
    """The result addresses of the products of two successive calls."""
    import cupy

    calls = [_gru_out(), _gru_out()]
    stream = cupy.cuda.Stream(non_blocking=True)
    with cublas(), stream:
        calls[0]()
        the_stand_in().set(captured_stream=stream.ptr if captured else 0)
        the_stand_in().record()
        for run in calls:
            run()
        the_stand_in().set(captured_stream=0)
    products = [line.split() for line in the_stand_in().calls() if line.startswith("cublasGemmEx")]
    return [int(words[PRODUCT_ADDRESS]) for words in products]


def scratch_of_captures_again() -> dict[str, Any]:
    """The memory of successive captures of calls into the same outputs, with more and fewer steps: the number
    of pieces, the addresses of the products, and whether anything stays when the outputs are gone."""
    import cupy

    import cudml

    pool = cupy.get_default_memory_pool()
    stream = cupy.cuda.Stream(non_blocking=True)
    stand_in = the_stand_in()
    taken: list[int] = []

    class Noted(cupy.cuda.memory_hook.MemoryHook):
        """Notes what is allocated."""

        name = "Noted"

        def malloc_postprocess(self, **of: Any) -> None:
            taken.append(of["mem_size"])

    operands = {
        steps: [cupy.ndarray((steps, BATCH, INPUTS), np.float32), *_operands()[1:]] for steps in (2, 3, 40)
    }
    pieces, places = [], []
    with cublas(), stream:
        memory = cupy.ndarray((40, 1, BATCH, HIDDEN), np.float32)
        single = cupy.ndarray((1, BATCH, HIDDEN), np.float32)
        for steps in operands:
            cudml.gru(*operands[steps], out=(memory[:steps], single))
        before = pool.used_bytes()
        stand_in.set(captured_stream=stream.ptr)
        try:
            for steps in (3, 3, 3, 2, 40, 3, 40):
                taken.clear()
                stand_in.record()
                with Noted():
                    cudml.gru(*operands[steps], out=(memory[:steps], single))
                pieces.append(len(taken))
                (product,) = [line.split() for line in stand_in.calls() if line.startswith("cublasGemmEx")]
                places.append(int(product[PRODUCT_ADDRESS]))
        finally:
            stand_in.set(captured_stream=0)
        del memory, single
        return {"pieces": pieces, "places": places, "stays": pool.used_bytes() > before}


class Lent:
    """Memory of another library's allocator."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def data_ptr(self) -> int:
        return int(self._memory.ptr)


def scratch_of_another_allocator() -> dict[str, int]:
    """A captured call with another library's allocator and outputs: the number of pieces allocated there, how
    many of them live on after the call, and how many bytes of CuPy's pool are taken."""
    import cupy

    from cudml.devices import cuda

    pool, other = cupy.get_default_memory_pool(), cupy.cuda.MemoryPool()
    lent: list[weakref.ref[Lent]] = []

    def allocate(num_bytes: int) -> Lent:
        made = Lent(other.malloc(num_bytes))
        lent.append(weakref.ref(made))
        return made

    stream = cupy.cuda.Stream(non_blocking=True)
    with cublas(), stream:
        run = _gru_into_foreign(_gru_results())
        run()
        before = pool.used_bytes()
        the_stand_in().set(captured_stream=stream.ptr)
        try:
            with cuda.get_device().allocating(allocate):
                run()
        finally:
            the_stand_in().set(captured_stream=0)
        alive = sum(one() is not None for one in lent)
        return {"lent": len(lent), "alive": alive, "own": pool.used_bytes() - before}


def conversions_of_captures_again() -> dict[str, list[int]]:
    """For calls that convert arguments: the bytes kept after each of seven captures into the same outputs,
    and after the outputs are gone."""
    import cupy

    import cudml

    pool = cupy.get_default_memory_pool()
    stream = cupy.cuda.Stream(non_blocking=True)
    nine = cupy.ndarray(NINE, np.float32)
    lane_lengths, lengths = cupy.ndarray((1, *NINE[:-1]), np.uint32).T, cupy.ndarray((BATCH,), np.int64)
    layer = _operands()
    without_inputs = [
        cupy.ndarray((STEPS, BATCH, 0), np.float32),
        cupy.ndarray((1, 3 * HIDDEN, 0), np.float32),
    ]

    def top_k_results() -> tuple[Any, ...]:
        return tuple(cupy.ndarray(NINE, dtype).T for dtype in (np.float32, np.int64))

    calls: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "top_k of 9 dimensions": (top_k_results, lambda out: cudml.top_k(nine.T, 2, out=out)),
        "ragged top_k of 9 dimensions": (
            top_k_results,
            lambda out: cudml.top_k(nine.T, 2, lengths=lane_lengths, out=out),
        ),
        "reverse_subsequences of 9 dimensions": (
            lambda: cupy.ndarray(NINE, np.float32).T,
            lambda out: cudml.reverse_subsequences(nine.T, lane_lengths, out=out),
        ),
        "gru with a number of lengths": (
            lambda: tuple(_gru_results()),
            lambda out: cudml.gru(*layer, sequence_lengths=2, out=out),
        ),
        "gru with int64 lengths": (
            lambda: tuple(_gru_results()),
            lambda out: cudml.gru(*layer, sequence_lengths=lengths, out=out),
        ),
        "gru without inputs": (
            lambda: tuple(_gru_results()),
            lambda out: cudml.gru(*without_inputs, layer[2], out=out),
        ),
    }
    found = {}
    with cublas(), stream:
        for name, (make_outputs, run) in calls.items():
            run(make_outputs())
            before = pool.used_bytes()
            out = make_outputs()
            own = pool.used_bytes() - before
            held = []
            the_stand_in().set(captured_stream=stream.ptr)
            try:
                for _ in range(7):
                    run(out)
                    held.append(pool.used_bytes() - before - own)
            finally:
                the_stand_in().set(captured_stream=0)
            del out
            found[name] = [*held, pool.used_bytes() - before]
    return found


def _operands() -> list[Any]:
    import cupy

    return [
        cupy.ndarray(shape, np.float32)
        for shape in ((STEPS, BATCH, INPUTS), (1, 3 * HIDDEN, INPUTS), (1, 3 * HIDDEN, HIDDEN))
    ]


def _gru_results() -> list[Any]:
    import cupy

    return [cupy.ndarray(shape, np.float32) for shape in ((STEPS, 1, BATCH, HIDDEN), (1, BATCH, HIDDEN))]


def _gru() -> Callable[[], Any]:
    import cudml

    operands = _operands()
    return lambda: cudml.gru(*operands)


def _gru_with_lengths() -> Callable[[], Any]:
    import cupy

    import cudml

    operands, lengths = _operands(), cupy.ndarray((BATCH,), np.int64)
    return lambda: cudml.gru(*operands, sequence_lengths=lengths)


def _gru_out() -> Callable[[], Any]:
    import cudml

    operands, out = _operands(), tuple(_gru_results())
    return lambda: cudml.gru(*operands, out=out)


def _gru_into_new() -> Callable[[], Any]:
    import cudml

    operands = _operands()

    def run() -> Any:
        out = tuple(_gru_results())
        return cudml.gru(*operands, out=out)

    return run


def _gru_into_foreign(given: list[Any] | None = None) -> Callable[[], Any]:
    import cudml

    operands = _operands()

    def run() -> Any:
        arrays = given or _gru_results()
        foreign = tuple(
            types.SimpleNamespace(__dlpack__=a.__dlpack__, __dlpack_device__=a.__dlpack_device__)
            for a in arrays
        )
        cudml.gru(*operands, out=foreign)
        return arrays

    return run


def _dispatch() -> Callable[[], Any]:
    import cudml

    operands = _operands()
    four = [cudml.TensorDesc.of(a.reshape((1,) * (4 - a.ndim) + a.shape)) for a in operands]
    results = [
        cudml.TensorDesc(cudml.DataType.FLOAT32, (STEPS, 1, BATCH, HIDDEN)),
        cudml.TensorDesc(cudml.DataType.FLOAT32, (1, 1, BATCH, HIDDEN)),
    ]
    desc = cudml.GruDesc(
        *four,
        None,
        None,
        None,
        output_sequence_tensor=results[0],
        output_single_tensor=results[1],
        activation_descs=(cudml.Activation.sigmoid(), cudml.Activation.tanh()),
        direction=cudml.RecurrentNetworkDirection.FORWARD,
        linear_before_reset=False,
    )
    operator = cudml.compile_operator(desc, device="cuda")
    names = ("input_tensor", "weight_tensor", "recurrence_tensor")

    def run() -> Any:
        sequence, single = _gru_results()
        operator.dispatch(
            **dict(zip(names, operands, strict=True)),
            output_sequence_tensor=sequence,
            output_single_tensor=single,
        )
        return sequence, single

    return run


def _top_k_of_many_dimensions() -> Callable[[], Any]:
    import cupy

    import cudml

    array = cupy.ndarray(NINE, np.float32).T
    return lambda: cudml.top_k(array, 1)


def _ragged_top_k_of_many_dimensions() -> Callable[[], Any]:
    import cupy

    import cudml

    array, lengths = cupy.ndarray(NINE, np.float32).T, cupy.ndarray((*NINE[:-1], 1), np.int64)
    return lambda: cudml.top_k(array, 1, lengths=lengths)


def _reversal_of_many_dimensions() -> Callable[[], Any]:
    import cupy

    import cudml

    array, lengths = cupy.ndarray(NINE, np.float32).T, cupy.ndarray((*NINE[:-1], 1), np.uint32)

    def run() -> Any:
        out = cupy.ndarray(NINE, np.float32)
        return (cudml.reverse_subsequences(array, lengths, out=out),)

    return run


CALLS: dict[str, Callable[[], Callable[[], Any]]] = {
    "gru": _gru,
    "gru with int64 lengths": _gru_with_lengths,
    "gru into new arrays": _gru_into_new,
    "gru into another library's": _gru_into_foreign,
    "dispatch": _dispatch,
    "top_k of 9 dimensions": _top_k_of_many_dimensions,
    "ragged top_k of 9 dimensions": _ragged_top_k_of_many_dimensions,
    "reverse_subsequences of 9 dimensions": _reversal_of_many_dimensions,
}
