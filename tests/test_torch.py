"""`cudml.torch` beside PyTorch: `topk` against a stable sort, `GRU` against `torch.nn.GRU` in float64."""

import copy
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cudml[torch]'")

import torch._inductor.config as inductor  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import BaseTorchFunctionMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import cudml.torch as adapter  # noqa: E402
from cudml.functions.gru_plan import GruPlan  # noqa: E402
from cudml.torch import calls, checks  # noqa: E402
from cudml.torch import gru_stack_operator as stacks  # noqa: E402

Tensor = torch.Tensor

#: The types that torch.sort knows.
SORTED_TYPES = sorted(checks.TOPK_TYPES - {torch.uint16, torch.uint32, torch.uint64}, key=str)

OPTIONS = ("num_layers", "bidirectional", "bias", "batch_first", "unbatched", "has_state")
CONFIGURATIONS = [
    dict(zip(OPTIONS, values, strict=True))
    for values in itertools.product((1, 2, 3), *[(False, True)] * (len(OPTIONS) - 1))
]
INPUTS, HIDDEN, STEPS, BATCH = 5, 24, 9, 6


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(20)
    with torch.no_grad():
        yield


def stable(a: Tensor, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The top k by a stable sort, in which ties keep their order."""
    values, indices = torch.sort(a, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", SORTED_TYPES, ids=str)
def test_topk_is_a_stable_sort_cut_short(dtype: torch.dtype, largest: bool) -> None:
    a = (torch.randn(4, 30, 3) * 5).to(dtype)  # many ties in every type but the wide floats
    for dim, k in itertools.product((0, 1, -1), (0, 1, 3)):
        result = adapter.topk(a, k, dim, largest)
        values, indices = stable(a, k, dim, largest)
        assert torch.equal(result.values, values)
        assert torch.equal(result.indices, indices)
        assert (result.values.dtype, result.indices.dtype) == (dtype, torch.int64)


def test_topk_ranks_nan_as_torch_does() -> None:
    a = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), float("nan"), 2.0])
    for largest in (True, False):
        assert adapter.topk(a, 6, largest=largest).indices.tolist() == stable(a, 6, 0, largest)[1].tolist()


@pytest.mark.parametrize("dtype", [dtype for dtype in SORTED_TYPES if dtype != torch.bool], ids=str)
def test_topk_of_torch_s_own_samples(dtype: torch.dtype) -> None:
    """The calls by which PyTorch tests `torch.topk`: the same values, and indices that lead to them."""
    pytest.importorskip("expecttest", reason="PyTorch's samples need expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = [info for info in op_db if info.name == "topk"]
    samples = list(info.sample_inputs("cpu", dtype))
    assert len(samples) > 5
    for sample in samples:
        values, indices = adapter.topk(sample.input, *sample.args, **sample.kwargs)
        assert torch.equal(values, torch.topk(sample.input, *sample.args, **sample.kwargs).values)
        if sample.input.ndim:
            dim = sample.args[1] if len(sample.args) > 1 else -1
            assert torch.equal(sample.input.gather(dim, indices), values)


def test_topk_returns_what_torch_returns() -> None:
    a = torch.randn(3, 8)
    result = adapter.topk(a, k=2, dim=None, largest=True, sorted=False)
    assert type(result) is type(torch.topk(a, 2))
    for k in (0, 1):
        ours, theirs = adapter.topk(torch.tensor(3.0), k), torch.topk(torch.tensor(3.0), k)
        assert (ours.values, ours.indices, ours.values.shape) == (*theirs, theirs.values.shape)
    assert adapter.topk(torch.zeros(0, 4), 2).values.shape == (0, 2)
    assert torch.equal(adapter.topk(a.t(), 2, 0).values, torch.topk(a.t(), 2, 0).values)


SPARSE = torch.zeros(4).to_sparse()


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (RuntimeError, "k is 5, must be from 0 to 4, the size of dim -1", (torch.zeros(4), 5)),
        (RuntimeError, "k is -1, must be from 0 to 4, the size of dim -1", (torch.zeros(4), -1)),
        (RuntimeError, "k is -1, must be from 0 to 1", (torch.tensor(1.0), -1)),
        (RuntimeError, "k is 1180591620717411303424, must be from 0 to 4", (torch.zeros(4), 2**70)),
        (TypeError, "k is 1.5, must be an integer", (torch.zeros(4), 1.5)),
        (TypeError, "k is None, must be an integer", (torch.tensor(1.0), None)),
        (TypeError, "dim is 0.0, must be an integer", (torch.zeros(4), 1, 0.0)),
        (IndexError, "dim is 1180591620717411303424, must be from -1 to 0", (torch.zeros(4), 1, 2**70)),
        (TypeError, "largest is None, must be True or False", (torch.zeros(4), 1, 0, None)),
        (TypeError, "largest is 'no', must be True or False", (torch.zeros(4), 1, 0, "no")),
        (IndexError, "dim is 1, must be from -1 to 0", (torch.zeros(4), 1, 1)),
        (TypeError, r"input is of torch\.complex64, must be", (torch.zeros(4, dtype=torch.complex64), 1)),
        (TypeError, r"input is of torch\.float32, torch\.sparse_coo and on cpu, must", (SPARSE, 1)),
        (TypeError, "input is a list, must be a torch.Tensor: torch.as_tensor makes one", ([1.0], 1)),
        (TypeError, "input is an int, must be a torch.Tensor: the array comes before", (1, torch.zeros(4))),
    ],
)
def test_topk_names_what_is_wrong(error: type[Exception], message: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=f"^topk: {message}"):
        adapter.topk(*given)


def test_gradients_are_refused() -> None:
    leaf = torch.zeros(4, requires_grad=True)
    layer = adapter.GRU(INPUTS, HIDDEN)
    x = torch.zeros(STEPS, BATCH, INPUTS)
    with torch.enable_grad():
        with pytest.raises(RuntimeError, match=r"^topk: cudml computes no gradients, and input requires one"):
            adapter.topk(leaf, 2)
        with pytest.raises(
            RuntimeError, match="weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 require one"
        ):
            layer(x)
        layer.requires_grad_(False)(x)
        with pytest.raises(RuntimeError, match=r"^GRU: .* input requires one"):
            layer(x.requires_grad_())
    layer(x)
    assert adapter.topk(leaf, 2).values.tolist() == [0, 0]


def test_operators_keep_the_rules_of_torch_library() -> None:
    """Schema, fake tensors and traces agree with what the operators do."""
    a = torch.randn(3, 9)
    torch.library.opcheck(torch.ops.cudml.topk.default, (a, 2, 1, True))
    counts = torch.tensor([[9], [1], [0]])
    torch.library.opcheck(torch.ops.cudml.topk_ragged.default, (a, counts, 2, 1, True))
    out = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int64)
    torch.library.opcheck(torch.ops.cudml.topk_into.default, (a, counts, 2, 1, True, *out))
    w, r, b = torch.randn(2, 72, INPUTS), torch.randn(2, 72, HIDDEN), torch.randn(2, 144)
    x, h0 = torch.randn(STEPS, BATCH, INPUTS), torch.randn(2, BATCH, HIDDEN)
    lengths = torch.arange(BATCH).to(torch.uint32)
    torch.library.opcheck(torch.ops.cudml.gru.default, (x, w, r, b, h0, lengths))
    upper, states = torch.randn(2, 72, 2 * HIDDEN), torch.randn(4, BATCH, HIDDEN)
    for given in (([b, b], states, lengths), ([], None, None)):
        torch.library.opcheck(torch.ops.cudml.gru_stack.default, (x, [w, upper], [r, r], *given))
    with pytest.raises(
        TypeError, match=r"^gru: r is of torch\.float32, torch\.sparse_coo and on cpu, must be"
    ):
        torch.ops.cudml.gru_stack.default(x, [w, upper], [r, r.to_sparse()], [], None, None)


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_topk_of_rows_of_given_lengths_into_given_tensors(
    dtype: torch.dtype, index_type: torch.dtype
) -> None:
    """Each row is a stable sort of its own elements; a second call writes the same tensors again."""
    lengths = torch.tensor([[0, 7, 3, 99, -1, 2]])
    for largest in (True, False):
        values = torch.empty(2, 4, 6, dtype=dtype).transpose(0, 1)
        indices = torch.empty(6, 2, 4, dtype=index_type).permute(2, 1, 0)
        for type_of_lengths in (torch.int32, torch.int64):
            a = (torch.randn(4, 9, 6) * 3).to(dtype)
            found = adapter.topk(a, 2, 1, largest, lengths=lengths, out=(values, indices))
            assert found.values is values
            assert found.indices is indices
            made = adapter.topk(a, 2, 1, largest, lengths=lengths.to(type_of_lengths))
            for row, lane in itertools.product(range(4), range(6)):
                count = min(max(int(lengths[0, lane]), 0), 9)
                right, places = stable(a[row, :count, lane], min(count, 2), 0, largest)
                for result in (found, made):
                    assert torch.equal(result.values[row, : len(right), lane], right)
                    expected = [*places.tolist(), *[-1] * (2 - len(places))]
                    assert result.indices[row, :, lane].tolist() == expected
    plain = adapter.topk(a, 2, 1, out=(values, indices))
    assert torch.equal(plain.indices.long(), stable(a, 2, 1, True)[1])


INTO = torch.empty(2), torch.empty(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (TypeError, r"lengths is a list, must be a torch\.Tensor of an integer type", {"lengths": [1]}),
        (TypeError, r"lengths is of torch\.float32, must be one of", {"lengths": torch.zeros(1)}),
        (TypeError, "lengths is on meta, must be on cpu", {"lengths": torch.ones(1, device="meta").int()}),
        (
            RuntimeError,
            r"lengths is of shape \(4,\), must be of a shape that broadcasts to \(1,\)",
            {"lengths": torch.ones(4).int()},
        ),
        (TypeError, "out is a torch.Tensor, must be a pair of tensors", {"out": torch.zeros(2)}),
        (TypeError, "out is a tuple, must be a pair of tensors", {"out": INTO[:1]}),
        (TypeError, r"out\[1\] is a list, must be a torch\.Tensor", {"out": (INTO[0], [])}),
        (TypeError, r"out\[0\] is of torch\.float64, must be one of", {"out": (INTO[0].double(), INTO[1])}),
        (TypeError, r"out\[1\] is of torch\.int16, must be one of", {"out": (INTO[0], INTO[1].short())}),
        (
            RuntimeError,
            r"out\[0\] is of shape \(4,\), must be \(2,\)",
            {"out": (torch.empty(4), INTO[1])},
        ),
        (TypeError, r"out\[1\] is on meta, must be on cpu", {"out": (INTO[0], INTO[1].to("meta"))}),
        (RuntimeError, "k is 5, must be from 0 to 4", {"k": 5, "out": INTO}),
        (IndexError, "dim is 1, must be from -1 to 0", {"dim": 1, "out": INTO}),
        (TypeError, "k is 1.5, must be an integer", {"k": 1.5, "lengths": torch.ones(1).int()}),
    ],
)
def test_topk_names_what_is_wrong_with_lengths_and_out(
    error: type[Exception], message: str, given: dict[str, Any]
) -> None:
    with pytest.raises(error, match=f"^topk: {message}"):
        adapter.topk(torch.zeros(4), **{"k": 2} | given)


def test_topk_writes_over_no_tensor_it_reads_and_computes_no_gradients() -> None:
    a = torch.zeros(4)
    with pytest.raises(ValueError, match=r"out\[0\] is overlapping input, must be in memory of its own"):
        adapter.topk(a, 2, out=(a[1:3], INTO[1]))
    leaf = torch.zeros(4, requires_grad=True)
    written = torch.zeros(2, requires_grad=True)
    with torch.enable_grad():
        with pytest.raises(RuntimeError, match="computes no gradients, and input requires one"):
            adapter.topk(leaf, 2, lengths=torch.ones(1).int())
        with pytest.raises(RuntimeError, match=r"computes no gradients, and out\[0\] requires one"):
            adapter.topk(a, 2, out=(written, INTO[1]))


#: The second and the fourth row are empty; the last two are a row of one element and the longest row.
OFFSETS = [2, 9, 9, 12, 12, 13, 40]


@pytest.mark.parametrize("of", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", sorted(checks.TOPK_TYPES, key=str), ids=str)
def test_topk_of_rows_that_lie_one_behind_another(dtype: torch.dtype, of: torch.dtype) -> None:
    """Each row is as in a call of its own, cut at `max_length`; `k` may be above the rows' lengths."""
    a = (torch.randn(43) * 9).abs().to(torch.int32).to(dtype)
    offsets = torch.tensor(OFFSETS, dtype=of)
    for k, longest, largest in itertools.product((0, 3, 30), (None, 27, 5, 0), (True, False)):
        values, indices = torch.empty(6, k, dtype=dtype), torch.empty(6, k, dtype=torch.int32)
        made = adapter.topk(a, k, largest=largest, offsets=offsets, max_length=longest)
        adapter.topk(a, k, 0, largest, offsets=offsets, max_length=longest, out=(values, indices))
        assert torch.equal(indices.long(), made.indices)
        for row, (start, end) in enumerate(itertools.pairwise(OFFSETS)):
            own = a[start : end if longest is None else min(end, start + longest)]
            right = adapter.topk(own, min(k, len(own)), largest=largest)
            for found in (made.values, values):
                assert torch.equal(found[row, : len(own)], right.values)
            assert made.indices[row].tolist() == [*right.indices.tolist(), *[-1] * (k - len(own))]


def test_offsets_that_are_none_of_the_tensor_read_nothing_else() -> None:
    """Rows are cut at the ends of the tensor; descending rows and rows of an empty tensor are empty."""
    a = torch.arange(5.0)
    for of, far in ((torch.int32, 2**31 - 1), (torch.int64, 2**62)):
        found = adapter.topk(a, 2, offsets=torch.tensor([-far, 2, 1, far, 3, 4], dtype=of), max_length=4)
        assert found.indices.tolist() == [[1, 0], [-1, -1], [3, 2], [-1, -1], [0, -1]]
    assert adapter.topk(a[:0], 1, offsets=torch.tensor([0, 0])).indices.tolist() == [[-1]]
    assert adapter.topk(a, 2, offsets=torch.tensor([3])).values.shape == (0, 2)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_offsets_are_compiled_whole_exported_and_mapped(backend: str) -> None:
    def step(a: Tensor, offsets: Tensor) -> Any:
        return tuple(adapter.topk(a * 2, 3, offsets=offsets, max_length=9))

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    with torch._dynamo.config.patch(error_on_recompile=True), inductor.patch(compile_threads=1):
        for offsets in ([0, 4, 15], [0, 7, 7, 30], [1, 20, 22, 25]):
            given = torch.randn(offsets[-1] + 2), torch.tensor(offsets)
            for one, other in zip(compiled(*given), step(*given), strict=True):
                assert torch.equal(one, other)
    if backend == "inductor":
        return
    a, offsets = torch.randn(2, 30), torch.tensor([[0, 7, 30], [3, 3, 9]])
    mapped = torch.vmap(step)(a, offsets)
    for number in range(2):
        assert torch.equal(mapped[1][number], step(a[number], offsets[number])[1])
    with pytest.raises(RuntimeError, match=r"topk: offsets is in a trace, .* torch\.export"):
        torch.jit.trace(step, (a[0], offsets[0]))
    with pytest.raises(RuntimeError, match=r"max_length is None, must be a number under torch\.compile"):
        torch.compile(lambda: adapter.topk(a[0], 2, offsets=offsets[0]), backend="eager", fullgraph=True)()


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (TypeError, r"offsets is a list, must be a torch\.Tensor of int32 or int64", {"offsets": [0, 4]}),
        (TypeError, r"offsets is of torch\.float32, must be one of", {"offsets": torch.zeros(2)}),
        (TypeError, "offsets is on meta, must be on cpu", {"offsets": torch.ones(2, device="meta").int()}),
        (RuntimeError, r"offsets is of shape \(1, 2\), must be of one", {"offsets": torch.ones(1, 2).int()}),
        (RuntimeError, r"offsets is of shape \(0,\), must be of one", {"offsets": torch.ones(0).int()}),
        (TypeError, "max_length is 1.5, must be an integer", {"max_length": 1.5}),
        (RuntimeError, "max_length is -1, must be 0 or more", {"max_length": -1}),
        (RuntimeError, "k is -1, must be 0 or more", {"k": -1}),
        (IndexError, "dim is 1, must be from -1 to 0", {"dim": 1}),
        (TypeError, "lengths is given with offsets", {"lengths": torch.ones(1).int()}),
        (TypeError, "max_length is given without offsets", {"offsets": None, "max_length": 3}),
        (RuntimeError, "input has 2 dimensions, must have 1", {"input": torch.zeros(2, 2)}),
        (TypeError, r"input is of torch\.complex64", {"input": torch.zeros(4, dtype=torch.complex64)}),
        (RuntimeError, r"out\[0\] is of shape \(2,\), must be \(1, 2\)", {"out": INTO}),
    ],
)
def test_topk_names_what_is_wrong_with_offsets(
    error: type[Exception], message: str, given: dict[str, Any]
) -> None:
    with pytest.raises(error, match=f"^topk: {message}"):
        adapter.topk(**{"input": torch.zeros(4), "k": 2, "offsets": torch.tensor([0, 4])} | given)


def test_topk_says_how_it_has_the_words_of_others() -> None:
    """`axis` is PyTorch's own second word for `dim`."""
    a = torch.randn(4, 5)
    assert torch.equal(adapter.topk(a, 2, axis=0).values, torch.topk(a, 2, axis=0).values)
    for given, message in (
        ({"axis": 0, "dim": 0}, "dim is 0 and axis is 0, must be one of them"),
        ({"mode": "largest"}, "mode is no argument, must be largest=True or largest=False"),
        ({"indptr": a}, "indptr is no argument, must be offsets="),
        ({"kk": 3}, "kk is no argument, must be one of input, k, dim, largest, sorted, len"),
    ):
        with pytest.raises(TypeError, match=f"^topk: {message}"):
            adapter.topk(a, 2, **given)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_lengths_and_out_are_compiled_whole(backend: str) -> None:
    """Reads before the call see the old values, and reads after it see the written ones."""

    def step(a: Tensor, lengths: Tensor, values: Tensor, indices: Tensor) -> Any:
        before = values * 2
        result = adapter.topk(a + 1, 3, lengths=lengths, out=(values, indices))
        return before, result.values + 1, adapter.topk(a, 2, lengths=lengths).indices

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    with torch._dynamo.config.patch(error_on_recompile=True), inductor.patch(compile_threads=1):
        for rows in (4, 6, 3):
            a, lengths = torch.randn(rows, 9), torch.randint(0, 10, (rows, 1))
            written = [(torch.ones(rows, 3), torch.zeros(rows, 3, dtype=torch.int32)) for _ in range(2)]
            found, right = (
                function(a, lengths, *out) for function, out in zip((compiled, step), written, strict=True)
            )
            for one, other in zip((*found, *written[0]), (*right, *written[1]), strict=True):
                assert torch.equal(one, other)


def test_vmap_of_topk_is_one_call_of_many() -> None:
    a, lengths = torch.randn(3, 4, 9, 2), torch.randint(0, 10, (3, 4, 1, 2))
    expected = adapter.topk(a, 3, 2, lengths=lengths)
    plain = stable(a, 3, 2, True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch's, about an operator without a rule
        for in_dim, dim in itertools.product((0, 1), (1, -2)):
            mapped = torch.vmap(lambda a, dim=dim: adapter.topk(a, 3, dim), in_dim, in_dim)(a)
            assert torch.equal(mapped.indices, plain)
        ragged = torch.vmap(lambda a, n: adapter.topk(a, 3, 1, lengths=n))(a, lengths)
        assert torch.equal(ragged.indices, expected.indices)
        one = torch.vmap(lambda a, n: adapter.topk(a, 3, 1, lengths=n), (0, None))(a, lengths[1])
        assert torch.equal(one.indices[1], expected.indices[1])
        values, indices = torch.empty(3, 4, 3, 2), torch.empty(3, 4, 3, 2, dtype=torch.int32)
        torch.vmap(lambda a, n, *out: adapter.topk(a, 3, 1, lengths=n, out=out) and n)(
            a, lengths, values, indices
        )
        assert torch.equal(values, expected.values)
        assert torch.equal(indices.long(), expected.indices)
        with pytest.raises(RuntimeError, match=r"^topk: out\[0\] is one for a whole batch of torch\.vmap"):
            torch.vmap(lambda a: adapter.topk(a, 3, 1, out=(values[0], indices[0])) and a)(a)
        with pytest.raises(IndexError, match="dim is 3, must be from -3 to 2"):
            torch.vmap(lambda a: adapter.topk(a, 3, 3))(a)


@pytest.mark.parametrize("has_weights", [False, True])
def test_vmap_of_gru(has_weights: bool) -> None:
    """A batch of inputs and states, and of layers, gives what single calls give."""
    layer, _, _ = layers(CONFIGURATIONS[0] | {"bidirectional": True, "num_layers": 2})
    many = [layers(CONFIGURATIONS[0] | {"bidirectional": True, "num_layers": 2})[0] for _ in range(3)]
    x, h0 = torch.randn(3, STEPS, BATCH, INPUTS), torch.randn(3, 4, BATCH, HIDDEN)
    if has_weights:
        weights, _ = torch.func.stack_module_state(many)
        run = lambda given, *a: torch.func.functional_call(layer, given, a)  # noqa: E731
        found = torch.vmap(run)(weights, x, h0)
    else:
        found = torch.vmap(layer)(x, h0)
    for number in range(3):
        wanted = (many[number] if has_weights else layer)(x[number], h0[number])
        for one, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(one[number], right)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True, "num_layers": 2}])
def test_traces_of_jit_take_other_sizes_and_changed_weights(options: dict[str, Any]) -> None:
    """Nothing is a constant of the trace, whether the layer was called before or not."""
    layer = adapter.GRU(INPUTS, HIDDEN, **options)
    if options:
        layer(torch.randn(STEPS, BATCH, INPUTS))
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(layer, (torch.randn(STEPS, BATCH, INPUTS),))
        top = torch.jit.trace(lambda a: tuple(adapter.topk(a, 2)), (torch.randn(3, 5),))
    x = torch.randn(4, 3, INPUTS)
    for _ in range(2):
        for got, right in zip(traced(x), layer(x), strict=True):
            assert torch.equal(got, right)
        layer.weight_hh_l0.mul_(0.5)
    a = torch.randn(6, 9)
    assert torch.equal(top(a)[1], adapter.topk(a, 2).indices)


def test_symbolic_traces_have_topk_as_a_call() -> None:
    class Ranked(torch.nn.Module):
        def forward(self, a: Tensor) -> Tensor:
            return adapter.topk(a * 2, 2, largest=False).values

    traced = torch.fx.symbolic_trace(Ranked())
    assert adapter.topk in {node.target for node in traced.graph.nodes}
    a = torch.randn(3, 5)
    assert torch.equal(traced(a), Ranked()(a))


class Decoder(torch.nn.Module):
    """A model with a GRU whose state is given or not."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.gru = torch.nn.Linear(INPUTS, INPUTS), torch.nn.GRU(INPUTS, HIDDEN, 2)

    def forward(self, x: Tensor, h0: Tensor | None = None) -> Any:
        output, state = self.gru(self.before(x), hx=h0)
        return output[-1], state


@pytest.mark.parametrize(
    "trace",
    [
        torch.fx.symbolic_trace,
        partial(torch.fx.symbolic_trace, concrete_args={"h0": None}),
        lambda model: torch.fx.GraphModule(model, torch.fx.Tracer().trace(model)),
    ],
)
def test_symbolic_traces_have_a_gru_as_they_have_pytorch_s(trace: Callable[[Any], Any]) -> None:
    """A call of a module, for other sizes too; converting a traced model gives the same."""
    model = Decoder().eval()
    theirs = trace(model)
    ours = trace(adapter.convert(copy.deepcopy(model)))
    calls_of = [[(node.op, str(node.target)) for node in one.graph.nodes] for one in (ours, theirs)]
    assert ("call_module", "gru") in calls_of[0]
    assert [one for one in calls_of[0] if one[0] == "call_module"] == [
        one for one in calls_of[1] if one[0] == "call_module"
    ]
    for shape in ((STEPS, BATCH, INPUTS), (3, 2, INPUTS)):
        x = torch.randn(shape)
        wanted = adapter.convert(copy.deepcopy(model))(x)
        for one, other, right in zip(ours(x), adapter.convert(copy.deepcopy(theirs))(x), wanted, strict=True):
            assert torch.equal(one, right)
            assert torch.equal(other, right)
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_symbolic_trace_of_a_layer_alone_says_what_can_be_traced() -> None:
    with pytest.raises(RuntimeError, match=r"^GRU: what torch\.fx traces is a GRU itself, must be a model"):
        torch.fx.symbolic_trace(adapter.GRU(INPUTS, HIDDEN))


@pytest.mark.parametrize("is_warm", [False, True])
def test_traces_of_make_fx_see_changed_weights(is_warm: bool) -> None:
    """As traces of PyTorch's layer do; with symbolic sizes, they take other sizes."""
    layer, x, other = adapter.GRU(INPUTS, HIDDEN), torch.randn(5, 3, INPUTS), torch.randn(7, 2, INPUTS)
    if is_warm:
        layer(x)
    traced = make_fx(layer)(x)
    symbolic = make_fx(layer, tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
    for _ in range(2):
        assert torch.equal(traced(x)[0], layer(x)[0])
        assert torch.equal(symbolic(other)[0], layer(other)[0])
        layer.weight_hh_l0.mul_(0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}], ids=str
)
def test_weights_arranged_once_give_the_bits_of_the_operator(
    dtype: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, for any batch. Calls that a mode of the dispatcher sees are the operator's."""
    made = []
    monkeypatch.setattr(stacks, "GruPlan", lambda *a, **k: made.append(GruPlan(*a, **k)) or made[-1])
    layer = adapter.GRU(INPUTS, HIDDEN, **options).to(dtype)
    for scale in (1, 0.5):
        layer.weight_hh_l0.mul_(scale)
        for steps, batch in ((5, 3), (1, 3), (5, 7), (9, 1)):
            x = torch.randn(steps, batch, INPUTS).to(dtype)
            with FlopCounterMode(display=False):
                expected = layer(x)
            for got, wanted in zip(layer(x), expected, strict=True):
                assert torch.equal(got, wanted)
                assert got.stride() == wanted.stride()
    assert len(made) == 2 * options.get("num_layers", 1)


@pytest.mark.parametrize("is_warm", [False, True])
def test_fake_tensors_leave_a_layer_as_it_is(is_warm: bool) -> None:
    layer, x = adapter.GRU(INPUTS, HIDDEN), torch.randn(5, 3, INPUTS)
    if is_warm:
        layer(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake, _ = layer(mode.from_tensor(x))
    assert fake.shape == layer(x)[0].shape
    assert type(layer(x)[0]) is Tensor


def test_a_layer_says_that_it_is_not_scripted() -> None:
    """The error is the same inside a model."""
    with pytest.raises(RuntimeError, match=r"^GRU: torch\.jit\.script cannot .*, must be torch\.jit\.trace"):
        torch.jit.script(torch.nn.Sequential(adapter.GRU(INPUTS, HIDDEN)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_rounds_input_state_and_weights(dtype: torch.dtype) -> None:
    """The results have the bits of a layer of that type; outside of autocast, the layer is as before."""
    ours, theirs, exact = layers(CONFIGURATIONS[0] | {"num_layers": 2, "bidirectional": True, "bias": True})
    x, h0 = torch.randn(STEPS, BATCH, INPUTS), torch.randn(4, BATCH, HIDDEN)
    narrow = copy.deepcopy(ours).to(dtype)
    expected = narrow(x.to(dtype), h0.to(dtype))
    packed = torch.nn.utils.rnn.pack_sequence([*x.transpose(0, 1)])
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=dtype):
        for function, given in ((ours, x), (ours, x.to(dtype)), (ours, packed), (compiled, x)):
            for got, right in zip(function(given, h0), expected, strict=True):
                got = torch.nn.utils.rnn.unpack_sequence(got) if hasattr(got, "batch_sizes") else got
                got = torch.stack(got, 1) if isinstance(got, list) else got
                assert got.dtype is dtype
                assert torch.equal(got, right)
        assert adapter.topk(x, 2).values.dtype is torch.float32 is torch.topk(x, 2).values.dtype
    with pytest.raises(TypeError, match=r"weight_ih_l0 is torch\.float32 on cpu, must be"):
        ours(x.to(dtype))
    assert ours(x)[0].dtype is torch.float32
    rounded, _ = exact.to(dtype).double()(x.to(dtype).double(), h0.to(dtype).double())
    plain, _ = theirs.to(dtype)(x.to(dtype), h0.to(dtype))
    errors = [(one - rounded).abs().max().item() for one in (expected[0], plain)]
    assert 0 < errors[0] <= errors[1]


def layers(configuration: dict[str, Any], **more: Any) -> tuple[Any, Any, Any]:
    """Our layer, PyTorch's in its precision and in float64, all of the same weights."""
    options = {name: configuration[name] for name in OPTIONS[:4]} | more
    theirs = torch.nn.GRU(INPUTS, HIDDEN, **options).eval()
    ours = adapter.GRU(INPUTS, HIDDEN, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs, copy.deepcopy(theirs).double()


def inputs(configuration: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    batch = () if configuration["unbatched"] else (BATCH,)
    shape = (*batch, STEPS) if configuration["batch_first"] else (STEPS, *batch)
    num_states = configuration["num_layers"] * (1 + configuration["bidirectional"])
    state = torch.randn(num_states, *batch, HIDDEN) if configuration["has_state"] else None
    return torch.randn(*shape, INPUTS), state


def doubled(value: Any) -> Any:
    return None if value is None else value.double()


def test_gru_in_every_configuration() -> None:
    """The worst error over all of them is at most twice that of PyTorch in float32."""
    worst = {"ours": 0.0, "theirs": 0.0}
    for configuration in CONFIGURATIONS:
        ours, theirs, exact = layers(configuration)
        x, state = inputs(configuration)
        expected = exact(x.double(), doubled(state))
        for name, layer in (("ours", ours), ("theirs", theirs)):
            results = layer(x, state)
            for result, right in zip(results, expected, strict=True):
                assert result.shape == right.shape
                assert result.dtype == torch.float32
                worst[name] = max(worst[name], (result - right).abs().max().item())
    assert 0 < worst["ours"] <= 2 * worst["theirs"], worst


def test_gru_of_torch_s_own_samples() -> None:
    """The modules and inputs by which PyTorch tests `torch.nn.GRU`."""
    pytest.importorskip("expecttest", reason="PyTorch's samples need expecttest")
    from torch.testing._internal.common_modules import module_db

    (info,) = [info for info in module_db if info.module_cls is torch.nn.GRU]
    samples = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=False)
    assert len(samples) > 5
    for sample in samples:
        given = sample.constructor_input
        theirs = torch.nn.GRU(*given.args, **given.kwargs).eval()
        ours = adapter.convert(copy.deepcopy(theirs))
        given = sample.forward_input
        torch.testing.assert_close(ours(*given.args, **given.kwargs), theirs(*given.args, **given.kwargs))


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("configuration", [c for c in CONFIGURATIONS if not c["unbatched"]][5::9], ids=str)
def test_gru_of_packed_sequences(configuration: dict[str, Any], is_sorted: bool) -> None:
    ours, theirs, exact = layers(configuration)
    lengths = torch.tensor([9, 7, 7, 4, 1, 1] if is_sorted else [4, 9, 1, 7, 1, 7])
    x, state = inputs(configuration | {"batch_first": False})

    def packed(values: Tensor) -> Any:
        return torch.nn.utils.rnn.pack_padded_sequence(values, lengths, enforce_sorted=is_sorted)

    expected, last = exact(packed(x.double()), doubled(state))
    errors = []
    for layer in (ours, theirs):
        result, single = layer(packed(x), state)
        for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            got, right = getattr(result, name), getattr(expected, name)
            assert got is right is None or torch.equal(got, right)
        errors.append(
            max((result.data - expected.data).abs().max().item(), (single - last).abs().max().item())
        )
    assert 0 < errors[0] <= 2 * errors[1]


def test_gru_in_half_precision() -> None:
    """Nearer to float64 than PyTorch's, because sums and states are float32."""
    ours, theirs, _ = layers(CONFIGURATIONS[1])
    ours, theirs = ours.half(), theirs.half()
    x, _ = inputs(CONFIGURATIONS[1])
    expected, _ = copy.deepcopy(theirs).double()(x.half().double())
    errors = [(layer(x.half())[0] - expected).abs().max().item() for layer in (ours, theirs)]
    assert 0 < errors[0] <= 2 * errors[1]


def test_dropout_is_between_layers_in_training_alone() -> None:
    """Dropping everything leaves the biases to the second layer."""
    ours, theirs, _ = layers(CONFIGURATIONS[0] | {"num_layers": 2}, dropout=1.0)
    x, _ = inputs(CONFIGURATIONS[0])
    for mode in (True, False):
        torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x))


CHANGES = {
    "in place": lambda layer: layer.weight_hh_l0.mul_(0.5),
    "state_dict": lambda layer: layer.load_state_dict({n: w + 1 for n, w in layer.state_dict().items()}),
    "new parameter": lambda layer: setattr(
        layer, "weight_ih_l0", torch.nn.Parameter(layer.weight_ih_l0.clone() + 1)
    ),
    "data replaced": lambda layer: setattr(layer.bias_ih_l0, "data", layer.bias_ih_l0.data + 1),
    "data written": lambda layer: (layer.bias_hh_l0.data.add_(1), layer.flatten_parameters()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen(change: str) -> None:
    ours, theirs, _ = layers(CONFIGURATIONS[0] | {"bias": True})
    x, _ = inputs(CONFIGURATIONS[0])
    before, _ = ours(x)
    for layer in (ours, theirs):
        CHANGES[change](layer)
    theirs._update_flat_weights()
    after, _ = ours(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, theirs(x)[0])


def test_copies_keep_their_own_weights() -> None:
    ours, _, _ = layers(CONFIGURATIONS[0])
    x, _ = inputs(CONFIGURATIONS[0])
    before, _ = ours(x)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
        other.weight_hh_l0.zero_()
        assert not torch.equal(other(x)[0], before)
    assert torch.equal(ours(x)[0], before)


def test_functional_call_uses_the_given_weights() -> None:
    ours, theirs, _ = layers(CONFIGURATIONS[0])
    x, _ = inputs(CONFIGURATIONS[0])
    for scale in (0.5, 0.25, 2.0, 1.5):  # each at the addresses of the freed ones, and as often written
        given = {name: weight * scale for name, weight in theirs.state_dict().items()}
        expected = torch.func.functional_call(theirs, given, (x,))
        torch.testing.assert_close(torch.func.functional_call(ours, given, (x,)), expected)
        del given


def test_another_parameter_of_the_same_memory_is_seen() -> None:
    """Its version is counted from the start again, so that it may equal the earlier parameter's version."""
    ours, theirs, _ = layers(CONFIGURATIONS[0])
    x, _ = inputs(CONFIGURATIONS[0])
    ours(x)
    version = ours.weight_hh_l0._version
    for layer in (ours, theirs):
        layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.data)
        while layer.weight_hh_l0._version < version:
            layer.weight_hh_l0.mul_(0.5)
    theirs._update_flat_weights()
    assert ours.weight_hh_l0._version == version > 0
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("error", "message", "x", "state"),
    [
        (RuntimeError, r"input.size\(-1\) is 4, must be input_size = 5", (9, 6, 4), None),
        (RuntimeError, r"hx has size \(2, 6, 24\), must have \(1, 6, 24\)", (9, 6, 5), (2, 6, 24)),
        (RuntimeError, "hx has 2 dimensions, must have 3, as input", (9, 6, 5), (1, 24)),
        (ValueError, "input has 4 dimensions, must have 2 or 3", (1, 9, 6, 5), None),
        (RuntimeError, "input has no steps", (0, 6, 5), None),
    ],
)
def test_gru_names_what_is_wrong(
    error: type[Exception], message: str, x: tuple[int, ...], state: tuple[int, ...] | None
) -> None:
    with pytest.raises(error, match=message):
        adapter.GRU(INPUTS, HIDDEN)(torch.zeros(x), None if state is None else torch.zeros(state))


def test_gru_names_what_no_tensor_is_checked_for() -> None:
    layer = adapter.GRU(INPUTS, HIDDEN)
    with pytest.raises(TypeError, match=r"input is a list, must be a torch\.Tensor"):
        layer([1.0])
    with pytest.raises(
        TypeError, match=r"x is of torch\.float32, torch\.sparse_coo and on cpu, must be dense"
    ):
        layer(torch.zeros(STEPS, BATCH, INPUTS).to_sparse())
    state: Any = [0.0]
    packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(STEPS, INPUTS)] * 2, enforce_sorted=False)
    for given in (torch.zeros(STEPS, BATCH, INPUTS), packed):
        with pytest.raises(TypeError, match=r"^GRU: hx is a list, must be a torch\.Tensor"):
            layer(given, state)
    with pytest.raises(RuntimeError, match=rf"^GRU: hx has size \(1, 1, {HIDDEN}\), must have \(1, 2"):
        layer(packed, torch.zeros(1, 1, HIDDEN))
    with pytest.raises(ValueError, match=r"^GRU\(4, hidden_size=0\): hidden_size must be greater than zero"):
        adapter.GRU(4, hidden_size=0)
    with pytest.raises(ValueError, match="proj_size is for LSTM"):
        adapter.GRU(INPUTS, HIDDEN, proj_size=2)


@pytest.mark.parametrize("model", [3, None, torch.nn.GRU, [torch.nn.GRU(1, 1)]])
def test_convert_names_what_is_no_module(model: Any) -> None:
    with pytest.raises(TypeError, match=r"^convert: model is an? \w+, must be a torch\.nn\.Module"):
        adapter.convert(model)


def test_gru_names_the_tensor_of_another_type() -> None:
    layer = adapter.GRU(INPUTS, HIDDEN)
    x, state = torch.zeros(STEPS, BATCH, INPUTS), torch.zeros(1, BATCH, HIDDEN)
    with pytest.raises(TypeError, match=r"hx is torch\.float16 on cpu, must be torch\.float32 on cpu"):
        layer(x, state.half())
    with pytest.raises(TypeError, match=r"input is of torch\.float64, must be one of torch\.bfloat16"):
        layer.double()(x.double())


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(INPUTS, HIDDEN, 2, bidirectional=True)
        self.again = self.gru
        self.steps = torch.nn.ModuleList([torch.nn.GRU(INPUTS, 3), torch.nn.Linear(2 * HIDDEN, 4)])

    def forward(self, x: Tensor) -> Any:
        scores = self.steps[1](self.gru(x)[0])
        return scores, self.steps[0](x)[0]


def test_convert_replaces_every_gru() -> None:
    model = Model().eval()
    x = torch.randn(STEPS, BATCH, INPUTS)
    expected = model(x)
    names, parameters = list(model.state_dict()), list(model.parameters())
    seen = []
    model.gru.register_forward_hook(lambda *_: seen.append(1))
    assert adapter.convert(model) is model
    assert [type(m).__module__ for m in (model.gru, model.steps[0])] == ["cudml.torch.layers"] * 2
    assert model.again is model.gru
    assert not model.gru.training
    assert names == list(model.state_dict())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    torch.testing.assert_close(model(x), expected)
    assert seen == [1]
    assert isinstance(adapter.convert(torch.nn.GRU(2, 3)), adapter.GRU)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_whole_with_dynamic_shapes(backend: str) -> None:
    model = adapter.convert(Model().eval()).requires_grad_(False)

    def step(x: Tensor) -> Any:
        scores, other = model(x)
        return adapter.topk(scores, 2, dim=0), other

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    # One thread compiles in this process: a pool of others would outlive the test.
    with torch._dynamo.config.patch(error_on_recompile=True), inductor.patch(compile_threads=1):
        for steps, batch in ((9, 6), (5, 3), (12, 2)):
            x = torch.randn(steps, batch, INPUTS)
            torch.testing.assert_close(compiled(x), step(x))


def test_exported() -> None:
    model = adapter.convert(Model().eval()).requires_grad_(False)
    shapes = {0: torch.export.Dim("steps", min=2), 1: torch.export.Dim("batch", min=2)}
    program = torch.export.export(model, (torch.randn(9, 6, INPUTS),), dynamic_shapes=(shapes,))
    assert "cudml.gru" in program.graph_module.code
    x = torch.randn(4, 3, INPUTS)
    torch.testing.assert_close(program.module()(x), model(x))


class Ranked(torch.nn.Module):
    """A model that also ranks its results; an input tells how many it selects."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def forward(self, x: Tensor, state: Tensor, like: Tensor) -> Any:
        scores, last = self.model.gru(x, state)
        best = adapter.topk(scores, like.shape[0], 0)
        return (
            best.values,
            best.indices,
            last,
            self.model.steps[0](x)[0],
            *adapter.topk(x > 0, 2, largest=False),
        )


def _onnx_model(model: torch.nn.Module, *given: Tensor, **options: Any) -> bytes:
    table = adapter.onnx_translations()
    program = torch.onnx.export(
        model.eval(), given, dynamo=True, verbose=False, custom_translation_table=table, **options
    )
    model_bytes: bytes = program.model_proto.SerializeToString()
    return model_bytes


def test_a_converted_model_is_one_of_onnx_for_every_runtime() -> None:
    """Layers are single nodes, of weights in their order, and take other sizes than those of the export."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    onnx, runtime = (pytest.importorskip(name) for name in ("onnx", "onnxruntime"))
    import cudml.onnx

    model = adapter.convert(Ranked()).requires_grad_(False)
    steps, batch, k = (
        torch.export.Dim("steps", min=3),
        torch.export.Dim("batch"),
        torch.export.Dim("k", max=3),
    )
    shapes: Any = ({0: steps, 1: batch}, {1: batch}, {0: k})
    like = torch.zeros(3)
    given = torch.randn(STEPS, BATCH, INPUTS), torch.randn(4, BATCH, HIDDEN), like
    exported = _onnx_model(model, *given, dynamic_shapes=shapes)
    graph = onnx.load_from_string(exported).graph
    kinds = [node.op_type for node in graph.node]
    assert (kinds.count("GRU"), kinds.count("TopK"), kinds.count("Loop")) == (3, 2, 0)
    kept = {one.name for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "GRU":
            assert kept >= {*node.input[1:4]} - {""}
    given = torch.randn(12, 4, INPUTS), torch.randn(4, 4, HIDDEN), like[:2]
    expected = model(*given)
    for session in (runtime.InferenceSession(exported), cudml.onnx.Session(exported)):
        names = [one.name for one in session.get_inputs()]
        found = session.run(None, {name: one.numpy() for name, one in zip(names, given, strict=True)})
        for got, right in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(got), right)


def test_what_onnx_lacks_is_named_when_a_model_is_exported() -> None:
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")

    class Ragged(torch.nn.Module):
        def forward(self, a: Tensor, n: Tensor) -> Tensor:
            return adapter.topk(a, 2, lengths=n).values

    with pytest.raises(torch.onnx.errors.OnnxExporterError) as found:
        _onnx_model(Ragged(), torch.randn(3, 4), torch.ones(3, 1).int())
    cause: BaseException | None = found.value
    while cause is not None and not isinstance(cause, TypeError):
        cause = cause.__cause__
    assert (
        str(cause)
        == "topk: lengths or offsets is in a model for ONNX, must be left out: its TopK has neither"
    )


def test_scratch_of_a_captured_graph_comes_from_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device that pretends to be CUDA's; the graphs are in `devices/cuda/test_torch_tensors.py`."""
    lent: list[torch.Tensor] = []
    device = SimpleNamespace(allocating=lambda allocate: nullcontext(lent.append(allocate(24))))
    monkeypatch.setattr(calls.cuda, "get_device", lambda number: device)
    with calls.graph_memory(torch.zeros(3)):
        pass
    assert [(made.nbytes, made.dtype) for made in lent] == [(24, torch.uint8)]


class Plain(torch.nn.Parameter):
    """A subclass of a tensor that changes no function."""


class Watching(Tensor):
    """A subclass of a tensor that sees every function."""


def _seen_by(transform: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Any]]) -> bool:
    """Whether an operator on a transformed function's argument would go straight to its kernel."""
    seen = []

    def function(a: Tensor) -> Tensor:
        seen.append(calls.goes_straight(a))
        return a + 1

    transform(function)(torch.zeros(3))
    return all(seen)


def test_the_dispatcher_is_passed_by_only_if_it_would_do_nothing() -> None:
    a = torch.zeros(3)
    with torch.inference_mode():
        straight = [a, a.requires_grad_(), a[1:], torch.nn.Parameter(a), Plain(a), torch.ones(2)]
        assert all(map(calls.goes_straight, straight))
    with torch.autocast("cpu"):
        assert calls.goes_straight(a)
    others = [a.as_subclass(Watching), torch._neg_view(a), a.to_sparse(), torch.zeros(3, device="meta")]
    assert not any(map(calls.goes_straight, others))
    with FakeTensorMode() as mode:
        assert not calls.goes_straight(mode.from_tensor(a))
    contexts = [
        FakeTensorMode(),
        FlopCounterMode(display=False),
        BaseTorchFunctionMode(),
        torch.profiler.profile(),
    ]
    for context in contexts:
        with context:
            assert not calls.goes_straight(a), context
    assert calls.goes_straight(a)
    transforms = {
        "none": lambda function: function,
        "vmap": torch.vmap,
        "grad": lambda function: torch.func.grad(lambda a: function(a).sum()),
        "functionalize": torch.func.functionalize,
        "trace": lambda function: lambda a: torch.jit.trace(function, (a,)),
        "make_fx": make_fx,
    }
    found = {name: _seen_by(transform) for name, transform in transforms.items()}
    assert found == dict.fromkeys(found, False) | {"none": True}
    compiled = torch.compile(lambda a: a + calls.goes_straight(a), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 0
