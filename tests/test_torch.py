"""`cudml.torch` beside PyTorch: `topk` against a stable sort, `GRU` against `torch.nn.GRU` in float64."""

import copy
import io
import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cudml[torch]'")

import torch._inductor.config as inductor  # noqa: E402

import cudml.torch as adapter  # noqa: E402

Tensor = torch.Tensor

#: What torch.sort knows.
SORTED_TYPES = sorted(adapter._TOPK_TYPES - {torch.uint16, torch.uint32, torch.uint64}, key=str)

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
        (RuntimeError, "k is 5, must be at most 4", (torch.zeros(4), 5)),
        (RuntimeError, "k is -1, must not be negative", (torch.zeros(4), -1)),
        (IndexError, "dim is 1, must be from -1 to 0", (torch.zeros(4), 1, 1)),
        (TypeError, r"input is of torch\.complex64, must be", (torch.zeros(4, dtype=torch.complex64), 1)),
        (TypeError, r"input is of torch\.float32, torch\.sparse_coo and on cpu, must", (SPARSE, 1)),
        (TypeError, "input is a list, must be a torch.Tensor", ([1.0], 1)),
    ],
)
def test_topk_names_what_is_wrong(error: type[Exception], message: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=message):
        adapter.topk(*given)


def test_gradients_are_refused() -> None:
    leaf = torch.zeros(4, requires_grad=True)
    layer = adapter.GRU(INPUTS, HIDDEN)
    x = torch.zeros(STEPS, BATCH, INPUTS)
    with torch.enable_grad():
        with pytest.raises(RuntimeError, match="computes no gradients, and input requires one"):
            adapter.topk(leaf, 2)
        with pytest.raises(
            RuntimeError, match="weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 require one"
        ):
            layer(x)
        layer.requires_grad_(False)(x)
        with pytest.raises(RuntimeError, match="input requires one"):
            layer(x.requires_grad_())
    layer(x)
    assert adapter.topk(leaf, 2).values.tolist() == [0, 0]


def test_operators_keep_the_rules_of_torch_library() -> None:
    """Schema, fake tensors and traces agree with what the operators do."""
    torch.library.opcheck(torch.ops.cudml.topk.default, (torch.randn(3, 9), 2, 1, True))
    w, r, b = torch.randn(2, 72, INPUTS), torch.randn(2, 72, HIDDEN), torch.randn(2, 144)
    x, h0 = torch.randn(STEPS, BATCH, INPUTS), torch.randn(2, BATCH, HIDDEN)
    lengths = torch.arange(BATCH).to(torch.uint32)
    torch.library.opcheck(torch.ops.cudml.gru.default, (x, w, r, b, h0, lengths))


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
    for scale in (0.5, 0.25, 2.0, 1.5):  # each where those before were freed, and as often written
        given = {name: weight * scale for name, weight in theirs.state_dict().items()}
        expected = torch.func.functional_call(theirs, given, (x,))
        torch.testing.assert_close(torch.func.functional_call(ours, given, (x,)), expected)
        del given


def test_another_parameter_of_the_same_memory_is_seen() -> None:
    """Its version is counted from the start again, so that it may be that of the one before."""
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
    with pytest.raises(ValueError, match="proj_size is for LSTM"):
        adapter.GRU(INPUTS, HIDDEN, proj_size=2)


def test_gru_names_the_tensor_of_another_type() -> None:
    layer = adapter.GRU(INPUTS, HIDDEN)
    x, state = torch.zeros(STEPS, BATCH, INPUTS), torch.zeros(1, BATCH, HIDDEN)
    with pytest.raises(TypeError, match=r"hx is torch\.float16 on cpu, must be torch\.float32 on cpu"):
        layer(x, state.half())
    with pytest.raises(TypeError, match=r"input is of torch\.float64, must be one of torch\.float16, torch"):
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
    assert [type(m).__module__ for m in (model.gru, model.steps[0])] == ["cudml.torch"] * 2
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


@pytest.mark.parametrize("is_captured", [True, False])
def test_scratch_of_a_captured_graph_comes_from_pytorch(
    monkeypatch: pytest.MonkeyPatch, is_captured: bool
) -> None:
    """With a tensor and a device that only pretend to be CUDA's."""
    lent: list[torch.Tensor] = []
    device = SimpleNamespace(allocating=lambda allocate: nullcontext(lent.append(allocate(24))))
    monkeypatch.setattr(adapter.cuda, "get_device", lambda number: device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    with adapter._graph_memory(SimpleNamespace(is_cuda=True, device=torch.device("cpu"))):
        pass
    assert [(made.nbytes, made.dtype) for made in lent] == [(24, torch.uint8)] * is_captured
