"""Top-k: shapes of language models, experts, search and vision, compared with other libraries."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import cudml
from bench.cases import Case, Inputs, Peer, WrongResultError
from bench.checks import require_identical, sample_rows
from bench.native import top_k as native
from bench.sources import Source
from bench.targets import library_of, to_numpy, to_torch


@dataclass(frozen=True, kw_only=True)
class TopKCase(Case):
    """`k` of every lane of `row_length` elements, `inner` apart; if `inner` is 1, the axis is the last."""

    num_rows: int
    row_length: int
    k: int
    dtype: str = "float32"
    mode: Literal["largest", "smallest"] = "largest"
    pattern: str = "normal"
    inner: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (
            (self.num_rows, self.row_length, self.inner)
            if self.inner > 1
            else (self.num_rows, self.row_length)
        )


def _infinite(part: float) -> Callable[[Source, tuple[int, ...], str], Any]:
    """This share of the elements is -inf, as after masking."""

    def pattern(source: Source, shape: tuple[int, ...], dtype: str) -> Any:
        kept = source.uniform(shape) < 1 - part
        return source.xp.where(kept, source.normal(shape, dtype), source.xp.asarray(-np.inf, dtype))

    return pattern


def _few_above_one(source: Source, shape: tuple[int, ...], dtype: str) -> Any:
    """All 1, except for eight 2s at the end of every row."""
    a = source.xp.ones(shape, dtype)
    a[:, -8:] = 2
    return a


#: Distributions of the values, without NaN; names as in FlashInfer's and CUB's benchmarks.
PATTERNS: dict[str, Callable[[Source, tuple[int, ...], str], Any]] = {
    "normal": lambda source, shape, dtype: source.normal(shape, dtype),
    "uniform": lambda source, shape, dtype: source.uniform(shape, dtype),
    "quantized": lambda source, shape, dtype: source.xp.round(source.normal(shape) * 32).astype(dtype),
    "relu": lambda source, shape, dtype: source.xp.maximum(source.normal(shape, dtype), 0),
    "tie heavy": lambda source, shape, dtype: source.integers(shape, 0, 64, dtype),
    "pivot tie": _few_above_one,
    "all equal": lambda source, shape, dtype: source.xp.ones(shape, dtype),
    "same leading bits": lambda source, shape, dtype: (1 + source.uniform(shape) * np.float32(3e-5)).astype(
        dtype
    ),
    "masked": _infinite(0.999),
    "masked 90 %": _infinite(0.9),
    "ascending": lambda source, shape, dtype: source.xp.sort(source.normal(shape, dtype), axis=1),
    "descending": lambda source, shape, dtype: -source.xp.sort(source.normal(shape, dtype), axis=1),
    "bits": lambda source, shape, dtype: source.bits(shape, dtype),
}


def _case(
    use: str,
    num_rows: int,
    row_length: int,
    k: int,
    dtype: str = "float32",
    mode: Literal["largest", "smallest"] = "largest",
    pattern: str = "normal",
    inner: int = 1,
    quick: bool = False,
) -> TopKCase:
    """A case, named by its parameters."""
    shape = f"{num_rows} x {row_length}" + (f" x {inner} axis 1" if inner > 1 else "")
    told = [use, shape, f"k {k}", dtype, *([pattern] if pattern != "normal" else [])]
    return TopKCase(
        name=" ".join(told),
        quick=quick,
        num_rows=num_rows,
        row_length=row_length,
        k=k,
        dtype=dtype,
        mode=mode,
        pattern=pattern,
        inner=inner,
    )


CASES: tuple[TopKCase, ...] = (
    _case("language model", 1, 128256, 50, quick=True),
    _case("serving", 64, 128256, 50),
    _case("experts", 16384, 256, 8),
    _case("indexer", 256, 131072, 2048),
    _case("indexer", 1, 131072, 2048),
    _case("segments", 1 << 22, 64, 8),
    _case("neighbours", 100, 100000, 100, mode="smallest"),
    _case("quantised scores", 256, 1 << 20, 128, "int8", pattern="bits"),
    _case("language model", 8, 248320, 16, "float16"),
    _case("serving", 256, 151936, 50, "float16"),
    _case("serving", 256, 262144, 256),
    _case("experts", 128, 256, 8, quick=True),
    _case("experts", 65536, 512, 10, "float16"),
    _case("experts", 65536, 64, 6),
    _case("segmentation", 16, 135, 3, inner=172 * 172),
    _case("columns", 1, 4000, 10, inner=4096),
    _case("database", 1, 1 << 28, 1000, "int64", pattern="bits"),
    _case("neighbours", 1, 10**9, 64, mode="smallest"),
    _case("neighbours", 20000, 500, 10, mode="smallest"),
    _case("neighbours", 100000, 1000, 100, mode="smallest"),
    _case("neighbours", 1000, 10000, 64, mode="smallest"),
    _case("neighbours", 10, 10**6, 256, mode="smallest"),
    _case("neighbours", 1, 10**7, 100, mode="smallest"),
    _case("sparse gradient", 1, 25 * 10**6, 25000),
    _case("greedy", 64, 128256, 1, "float16"),
    _case("greedy", 1, 128256, 1),
    _case("percentile", 1, 1 << 24, (1 << 24) // 10),
    _case("indexer", 8, 131072, 2048),
    _case("indexer", 64, 65536, 2048, "float16"),
    _case("indexer", 2048, 16384, 2048),
    _case("indexer", 64, 1 << 20, 512),
    _case("segments", 1 << 18, 1024, 16),
    _case("language model", 1, 32000, 50, "float16"),
    _case("language model", 1, 151936, 50, "float16"),
    _case("beam search", 4, 201028, 8),
    _case("beam search", 32, 257024, 16, "float16"),
    _case("experts", 16384, 384, 8, "float16"),
    _case("detection", 8, 201600, 1000),
    _case("detection", 60, 201600, 2000, "float16"),
    _case("detection", 16, 672000, 300),
    _case("accuracy", 4096, 1000, 5),
    _case("latency", 1, 1000, 5, quick=True),
    _case("experts", 4096, 16, 2, quick=True),
    _case("experts", 512, 64, 6, quick=True),
    _case("sampling", 64, 4096, 64, quick=True),
    _case("accuracy", 100, 1000, 5, quick=True),
    _case("neighbours", 100, 1000, 100, quick=True),
    _case("indexer", 4, 65536, 2048, quick=True),
    _case("columns", 8, 300, 10, inner=512, quick=True),
    _case("whole rows", 16, 2000, 2000, quick=True),
    _case("adversary", 1, 1 << 20, 100, pattern="ascending", quick=True),
    # Shapes for which others' published times are ahead of cudml's predicted ones.
    _case("published", 64, 32768, 2048),
    _case("published", 64, 131072, 2048),
    _case("published", 8, 8192, 2048),
    _case("published", 64, 8192, 512),
    _case("published", 1, 4096, 256),
    *(_case("patterns", 64, 131072, 64, pattern=pattern) for pattern in PATTERNS if pattern != "bits"),
    *(_case("patterns", 256, 65536, 2048, pattern=pattern) for pattern in ("relu", "all equal", "ascending")),
)


def make(case: TopKCase, source: Source) -> Inputs:
    return {"a": PATTERNS[case.pattern](source, case.shape, case.dtype)}


def run(case: TopKCase, inputs: Inputs) -> Any:
    return cudml.top_k(inputs["a"], case.k, axis=1, mode=case.mode)


def check(case: TopKCase, inputs: Inputs, got: Any) -> str:
    """A sample of lanes, each against a stable sort of the elements no worse than the last chosen one.

    If that element were too good, fewer than k would be left to sort; if it were too bad, it would not be the
    k-th of them. So the comparison is exact although the lane as a whole is not sorted.
    """
    a, values, indices = (_as_lanes(array) for array in (inputs["a"], *got))
    lanes = sample_rows(case.num_rows * case.inner, 64)
    for number in lanes:
        row, inner = divmod(number, case.inner)
        lane, own_values, own_indices = (array[row, :, inner] for array in (a, values, indices))
        last = own_values[-1]
        chosen = to_numpy((lane >= last if case.mode == "largest" else lane <= last).nonzero()[0])
        candidates = to_numpy(lane[chosen])
        order = _stable_order(candidates, case)
        # Indices may have any type: those of some peers have 32 bits.
        own_numbers = to_numpy(own_indices).astype(chosen.dtype)
        require_identical(own_numbers, chosen[order], f"indices of lane {number}")
        require_identical(to_numpy(own_values), candidates[order], f"values of lane {number}")
    return f"{len(lanes)} lanes exact"


def check_chosen(case: TopKCase, inputs: Inputs, got: Any) -> str:
    """A sample of lanes, as `check`, in any order, with any of the elements that tie.

    Different elements are the best k if none of the others is better than the worst of them.
    """
    xp, lanes = library_of(inputs["a"]), sample_rows(case.num_rows * case.inner, 64)
    rows, inner = xp.divmod(xp.asarray(lanes), case.inner)
    a, values, indices = (_as_lanes(array)[rows, :, inner] for array in (inputs["a"], *got))
    numbers = np.sort(to_numpy(indices).astype(np.int64), axis=1)
    is_inside = (numbers >= 0).all() and (numbers < case.row_length).all()
    if numbers.shape[1] != case.k or not is_inside or (numbers[:, 1:] == numbers[:, :-1]).any():
        raise WrongResultError(f"indices are not {case.k} different ones of a lane")
    require_identical(values, xp.take_along_axis(a, indices.astype(np.int64), axis=1), "values")
    if xp.isnan(a).any():
        raise WrongResultError("lanes with NaN have no order")
    better, worst = (xp.greater, xp.min) if case.mode == "largest" else (xp.less, xp.max)
    limit = worst(values, axis=1, keepdims=True)
    if (better(a, limit).sum(axis=1) != better(values, limit).sum(axis=1)).any():
        raise WrongResultError(f"values are not the {case.k} {case.mode}")
    return f"{len(lanes)} lanes exact, apart from order and ties"


def check_sorted(case: TopKCase, inputs: Inputs, got: Any) -> str:
    """As `check`, with any of the elements that tie."""
    checked = check_chosen(case, inputs, got)
    values = got[0]
    best, other = (slice(None, -1), slice(1, None))[:: 1 if case.mode == "largest" else -1]
    if not (values[:, best] >= values[:, other]).all():
        raise WrongResultError("values are not sorted")
    return checked.replace("order and ", "")


def check_best(case: TopKCase, inputs: Inputs, got: Any) -> str:
    """As `check`, of indices alone."""
    values = library_of(got).take_along_axis(inputs["a"], got, axis=1)
    return check(case, inputs, (values, got))


def bytes_moved(case: TopKCase) -> int:
    """Bytes of the input, the values and the 64-bit indices, each moved once."""
    itemsize = np.dtype(case.dtype).itemsize
    return case.num_rows * case.inner * (case.row_length * itemsize + case.k * (itemsize + 8))


def _as_lanes(array: Any) -> Any:
    """Lanes along axis 1 of three."""
    return array if array.ndim == 3 else array[:, :, None]


def _stable_order(candidates: np.ndarray, case: TopKCase) -> np.ndarray:
    """Positions of the k best, ties by lower position."""
    if case.mode == "largest":
        backwards = np.argsort(candidates[::-1], kind="stable")[::-1]
        return candidates.size - 1 - backwards[: case.k]
    return np.argsort(candidates, kind="stable")[: case.k]


def _torch_topk(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    import torch

    a, largest = to_torch(inputs["a"]), case.mode == "largest"
    return lambda: torch.topk(a, case.k, dim=1, largest=largest)


def _torch_argmax(case: TopKCase, inputs: Inputs) -> Callable[[], Any] | None:
    if case.k > 1:
        return None
    import torch

    a, function = to_torch(inputs["a"]), torch.argmax if case.mode == "largest" else torch.argmin
    return lambda: function(a, dim=1, keepdim=True)


def _torch_sort(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    import torch

    a, descending = to_torch(inputs["a"]), case.mode == "largest"

    def call() -> Any:
        values, indices = torch.sort(a, dim=1, descending=descending, stable=True)
        return values[:, : case.k].contiguous(), indices[:, : case.k].contiguous()

    return call


def _argpartition(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    """Select, then sort the selected elements, as a user of NumPy or CuPy would."""
    a = inputs["a"]
    xp = library_of(a)
    k, from_top = case.k, case.row_length - case.k

    def call() -> Any:
        if case.mode == "largest":
            chosen = xp.argpartition(a, from_top, axis=1)[:, from_top:]
            order = xp.argsort(xp.take_along_axis(a, chosen, axis=1), axis=1)[:, ::-1]
        else:
            chosen = xp.argpartition(a, k - 1, axis=1)[:, :k]
            order = xp.argsort(xp.take_along_axis(a, chosen, axis=1), axis=1)
        indices = xp.take_along_axis(chosen, order, axis=1)
        return xp.take_along_axis(a, indices, axis=1), indices

    return call


def _cupy_argsort(case: TopKCase, inputs: Inputs) -> Callable[[], Any]:
    """Sort whole rows, as a user does to whom the order of ties matters."""
    a = inputs["a"]
    xp = library_of(a)

    def call() -> Any:
        order = xp.argsort(a, axis=1)
        chosen = order[:, ::-1][:, : case.k] if case.mode == "largest" else order[:, : case.k]
        return xp.take_along_axis(a, chosen, axis=1), chosen

    return call


def _jax_top_k(case: TopKCase, inputs: Inputs) -> Callable[[], Any] | None:
    """`jax.lax.top_k`, compiled: along the last axis, and the largest; 64-bit types are off in JAX."""
    if case.mode == "smallest" or np.dtype(case.dtype).itemsize == 8:
        return None
    # JAX would take most of the GPU's memory when it starts, and leave too little for large cases.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    @jax.jit
    def select(a: Any) -> Any:
        values, indices = jax.lax.top_k(jax.numpy.moveaxis(a, 1, -1), case.k)
        return jax.numpy.moveaxis(values, -1, 1), jax.numpy.moveaxis(indices, -1, 1)

    a = jax.dlpack.from_dlpack(inputs["a"])
    jax.block_until_ready(select(a))  # compiled before it is timed
    return lambda: jax.block_until_ready(select(a))


def _flashinfer(case: TopKCase, inputs: Inputs, **options: Any) -> Callable[[], Any] | None:
    """`flashinfer.top_k`: rows of floats of at most 32 bits, and the largest."""
    is_float = case.dtype in ("float32", "float16")
    if case.mode == "smallest" or case.inner > 1 or not is_float:
        return None
    import flashinfer

    a = to_torch(inputs["a"])
    return lambda: flashinfer.top_k(a, case.k, **options)


#: FlashInfer's order of ties by index needs its filtered kernel, which has this limit.
_FLASHINFER_MAX_K = 2048


def _flashinfer_sorted(case: TopKCase, inputs: Inputs) -> Callable[[], Any] | None:
    if case.k > _FLASHINFER_MAX_K:
        return None
    return _flashinfer(case, inputs, sorted=True, deterministic=True, tie_break=1)


def _contract(order: str, ties: str, nan: str, repeats: str) -> str:
    """What a peer promises; cudml's is sorted, ties by lower index, NaN last, the same on every device."""
    return f"{order}, {ties}, {nan}, {repeats}"


_ANY_TIES = "any of those that tie, in any order"
_LOWER = "ties by lower index"
_GREATEST, _BY_BITS = "NaN greatest", "NaN by its bits"
_REPEATS, _VARIES = "the same every time", "may differ from run to run"

#: Peers and what they promise.
PEERS = {
    "torch.topk": Peer(
        _torch_topk,
        contract=_contract("sorted", _ANY_TIES, _GREATEST, _VARIES),
        needs=("torch",),
        check=check_sorted,
    ),
    "torch.argmax": Peer(
        _torch_argmax,
        contract=_contract("indices alone", _LOWER, _GREATEST, _REPEATS),
        needs=("torch",),
        check=check_best,
    ),
    "torch.sort": Peer(
        _torch_sort,
        contract=_contract("sorted", _LOWER, _GREATEST, _REPEATS),
        needs=("torch",),
        is_checked=True,
    ),
    "cupy.argpartition": Peer(
        _argpartition,
        contract=_contract("sorted", _ANY_TIES, "NaN not ordered", _REPEATS),
        needs=("cupy",),
        devices=("cuda",),
    ),
    "cupy.argsort": Peer(
        _cupy_argsort,
        contract=_contract("sorted", "ties by higher index", _GREATEST, _REPEATS),
        needs=("cupy",),
        devices=("cuda",),
    ),
    "numpy.argpartition": Peer(
        _argpartition,
        contract=_contract("sorted", _ANY_TIES, _GREATEST, _REPEATS),
        devices=("cpu",),
    ),
    "jax.lax.top_k": Peer(
        _jax_top_k,
        contract=_contract("sorted", "ties by lower index, +0 above -0", _GREATEST, _REPEATS),
        needs=("jax",),
        is_checked=True,
        has_own_stream=True,
    ),
    "raft.select_k": Peer(
        native.raft_select_k,
        contract=_contract("sorted", _ANY_TIES, _BY_BITS, _VARIES),
        needs=("cupy",),
        devices=("cuda",),
        check=check_sorted,
    ),
    "cub.DeviceTopK": Peer(
        native.cub_device_top_k,
        contract=_contract("unsorted", _ANY_TIES, _BY_BITS, _VARIES),
        needs=("cupy",),
        devices=("cuda",),
        check=check_chosen,
    ),
    "flashinfer": Peer(
        _flashinfer,
        contract=_contract("unsorted", _ANY_TIES, _BY_BITS, _VARIES),
        needs=("flashinfer", "torch"),
        devices=("cuda",),
        check=check_chosen,
    ),
    "flashinfer, sorted": Peer(
        _flashinfer_sorted,
        contract=_contract("sorted", _LOWER, _BY_BITS, _REPEATS),
        needs=("flashinfer", "torch"),
        devices=("cuda",),
        is_checked=True,
    ),
}
