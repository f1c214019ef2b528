"""Programs of PyTorch, with `torch.topk` and `torch.nn.GRU` and with those of `cudml.torch`.

A program returns its selections and the results of a GRU.
"""

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cudml[torch]'")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

import cudml.torch  # noqa: E402
from tests.programs import assert_agree  # noqa: E402

Tensor = torch.Tensor

WORDS, INPUTS, HIDDEN = 20, 6, 8


class ExactGRU(nn.GRU):
    """A layer that computes in float64, and rounds its results."""

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
        layer = nn.GRU(**{name: getattr(self, name) for name in names}).double().eval()
        layer.load_state_dict({name: getattr(self, name) for name in self._flat_weights_names})
        output, state = layer(input.double(), None if hx is None else hx.double())
        return output.float(), state.float()


THEIRS = SimpleNamespace(topk=torch.topk, GRU=nn.GRU)
EXACT = SimpleNamespace(topk=torch.topk, GRU=ExactGRU)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class LanguageModel(nn.Module):
    def __init__(self, lib: Any, num_layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(WORDS, INPUTS)
        self.gru = lib.GRU(INPUTS, HIDDEN, num_layers=num_layers, batch_first=True, dropout=0.1)
        self.out = nn.Linear(HIDDEN, WORDS)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, state = self.gru(self.words(tokens), state)
        return self.out(output), state


TEXT = torch.arange(12).view(2, 6)


def accuracy(lib: Any) -> Any:
    output, target = numbers(1, 16, 10), torch.arange(16) % 10
    _, found = lib.topk(output, max((1, 5)), 1, True, True)
    correct = found.t().eq(target.view(1, -1).expand(5, -1))
    return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100 / 16) for k in (1, 5)], None


def beam_search(lib: Any) -> Any:
    batch, beams, words = 2, 3, 11
    scores = torch.zeros(batch, beams)
    scores[:, 1:] = -1e9
    texts = torch.zeros(batch, beams, 0, dtype=torch.long)
    for step in range(4):
        logs = torch.log_softmax(numbers(step, batch * beams, words), -1).view(batch, beams, words)
        scores, places = lib.topk((scores.unsqueeze(-1) + logs).view(batch, -1), beams, dim=1)
        beam = torch.div(places, words, rounding_mode="floor").unsqueeze(-1)
        texts = torch.cat(
            [texts.gather(1, beam.expand(-1, -1, step)), (places % words).unsqueeze(-1)], dim=-1
        )
    return (scores, texts), None


def sampling(lib: Any) -> Any:
    """Top-k sampling, and nucleus sampling by cumulative probability."""
    logits = numbers(2, 3, 50)
    values, _ = lib.topk(logits, min(5, logits.size(-1)))
    best = torch.softmax(logits.masked_fill(logits < values[:, [-1]], -torch.inf), -1)
    ranked, at = lib.topk(logits, logits.size(-1))
    likely = torch.softmax(ranked, -1)
    is_removed = likely.cumsum(-1) - likely > 0.7
    nucleus = logits.masked_fill(torch.zeros_like(is_removed).scatter(-1, at, is_removed), -torch.inf)
    return (best, nucleus), None


def routing_to_experts(lib: Any) -> Any:
    weights, experts = lib.topk(torch.softmax(numbers(3, 12, 8), -1), 2, dim=-1, sorted=False)
    weights, order = (weights / weights.sum(-1, keepdim=True)).sort(descending=True)
    experts = experts.gather(-1, order)
    return (weights, experts, nn.functional.one_hot(experts, 8).sum(1)), None


def boxes_before_suppression(lib: Any) -> Any:
    scores, boxes = torch.sigmoid(numbers(4, 2, 192)), numbers(5, 2, 192, 4)
    scores, at = lib.topk(scores, min(20, scores.shape[1]), dim=1)
    return (scores, boxes[torch.arange(2)[:, None], at]), None


def nearest_neighbours(lib: Any) -> Any:
    found = lib.topk(torch.cdist(numbers(6, 5, 8), numbers(7, 40, 8)), 4, largest=False)
    return (found.values, found.indices), None


def retrieval(lib: Any) -> Any:
    queries, stored = (
        nn.functional.normalize(numbers(seed, n, 16), dim=-1) for seed, n in ((8, 4), (9, 100))
    )
    top = lib.topk(queries @ stored.T, k=5, dim=-1)
    rows = [list(zip(scores.tolist(), at.tolist(), strict=True)) for scores, at in zip(*top, strict=True)]
    return (top[0], top[1], type(top).__name__, rows), None


def pruning_of_small_weights(lib: Any) -> Any:
    weights = numbers(10, 8, 8)
    least = lib.topk(weights.abs().flatten(), int(weights.numel() * 0.25)).values.min()
    return (least, weights * (weights.abs() >= least)), None


def any_dimension_view_and_dtype(lib: Any) -> Any:
    a = torch.randperm(240, generator=torch.Generator().manual_seed(11)).float()
    cube, square = a.view(6, 8, 5), a[:48].view(6, 8)
    views = (square.t(), square[::2], square[:, ::3], square[1:, 1:], square[None].permute(1, 0, 2))
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int16, torch.int64, torch.uint8)
    return (
        [tuple(lib.topk(cube, 2, dim)) for dim in range(-3, 3)],
        [tuple(lib.topk(view, 2, dim=0, largest=False)) for view in views if view.shape[0] > 1],
        [lib.topk(square.to(dtype), 3).values for dtype in dtypes],
        [tuple(lib.topk(one, k)) for one, k in ((a[0], 1), (a[:0].view(0, 5), 2), (square, 0))],
    ), None


def tensors_that_are_written(lib: Any) -> Any:
    values, indices = torch.empty(3, 2), torch.empty(3, 2, dtype=torch.long)
    found = lib.topk(numbers(12, 3, 5), 2, out=(values, indices))
    return (values, indices, found.values.data_ptr() == values.data_ptr()), None


def errors(lib: Any) -> Any:
    """By the classes that PyTorch raises."""
    layer, x, caught = lib.GRU(INPUTS, HIDDEN), numbers(13, 4, 2, INPUTS), []
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (RuntimeError, lambda: lib.topk(torch.ones(3), 4)),
        (RuntimeError, lambda: lib.topk(torch.ones(3), -1)),
        (IndexError, lambda: lib.topk(torch.ones(3), 1, dim=1)),
        (TypeError, lambda: lib.topk([1, 2], 1)),
        (TypeError, lambda: lib.topk(torch.ones(3), 1.5)),
        (RuntimeError, lambda: lib.topk(torch.ones(3, dtype=torch.complex64), 1)),
        (RuntimeError, lambda: layer(x[..., 1:])),
        (ValueError, lambda: layer(x[0, 0])),
        (ValueError, lambda: layer(x.double())),
        (RuntimeError, lambda: layer(x, torch.zeros(1, 3, HIDDEN))),
        (RuntimeError, lambda: layer(x, torch.zeros(1, HIDDEN))),
        (RuntimeError, lambda: layer(x[:0])),
        (ValueError, lambda: lib.GRU(INPUTS, HIDDEN, dropout=2)),
        (RuntimeError, lambda: layer.load_state_dict(lib.GRU(INPUTS, 9).state_dict())),
    ]
    for number, (error, call) in enumerate(calls):
        with pytest.raises(error):
            call()
        caught.append(number)
    return caught, None


def a_new_layer(lib: Any) -> Any:
    """Its parameters by seed, its text and its attributes."""
    torch.manual_seed(14)
    layer = lib.GRU(input_size=4, hidden_size=5, num_layers=2, bidirectional=True, device="cpu")
    names = ("hidden_size", "mode", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    own = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    return (own, repr(layer), [getattr(layer, name) for name in names], isinstance(layer, nn.RNNBase)), None


def a_language_model(lib: Any) -> Any:
    logits, state = LanguageModel(lib).eval()(TEXT)
    return lib.topk(logits[:, -1], 3).indices, (logits, state)


def text_from_a_language_model(lib: Any) -> Any:
    """Word by word, with the state of the word before."""
    model, tokens, state, text = LanguageModel(lib).eval(), TEXT[:, :1], None, []
    for _ in range(6):
        logits, state = model(tokens, state)
        tokens = lib.topk(logits[:, -1], 1).indices
        text.append(tokens)
    return torch.cat(text, 1), (state,)


def a_tagger_of_packed_sequences(lib: Any) -> Any:
    torch.manual_seed(15)
    words, gru = (
        nn.Embedding(WORDS, INPUTS, padding_idx=0),
        lib.GRU(INPUTS, HIDDEN, bidirectional=True, batch_first=True),
    )
    out = nn.Linear(2 * HIDDEN, 4)
    texts = torch.randint(1, WORDS, (3, 7))
    chosen, computed = [], []
    for lengths, is_sorted in ((torch.tensor([4, 7, 2]), False), ([7, 5, 2], True)):
        packed = pack_padded_sequence(words(texts), lengths, batch_first=True, enforce_sorted=is_sorted)
        output, state = gru(packed)
        padded, sizes = pad_packed_sequence(output, batch_first=True, total_length=7)
        chosen.append((sizes, lib.topk(out(padded), 1).indices))
        computed += [out(padded), state]
    return chosen, computed


def sequences_of_a_list(lib: Any) -> Any:
    torch.manual_seed(16)
    gru, rows = lib.GRU(INPUTS, HIDDEN), [numbers(n, n, INPUTS) for n in (5, 3, 2)]
    one, first = gru(pack_sequence(rows))
    other, last = gru(pack_sequence(rows[::-1], enforce_sorted=False), numbers(17, 1, 3, HIDDEN))
    told = (one.batch_sizes, other.sorted_indices, other.unsorted_indices, type(one).__name__)
    return told, (one.data, other.data, first, last)


def a_stream_of_frames(lib: Any) -> Any:
    torch.manual_seed(18)
    gru, state, outputs = lib.GRU(INPUTS, HIDDEN, 2).eval(), torch.zeros(2, 1, HIDDEN), []
    for frames in numbers(19, 10, 1, INPUTS).split(3):
        output, state = gru(frames, state)
        outputs.append(output)
    return None, (torch.cat(outputs), state)


def one_sequence_to_another(lib: Any) -> Any:
    torch.manual_seed(20)
    encoder, decoder = lib.GRU(INPUTS, HIDDEN, bidirectional=True), lib.GRU(HIDDEN, 2 * HIDDEN)
    words, out = nn.Embedding(12, HIDDEN), nn.Linear(2 * HIDDEN, 12)
    _, state = encoder(numbers(21, 5, 2, INPUTS))
    state, tokens, text = torch.cat([*state], -1).unsqueeze(0), torch.zeros(1, 2, dtype=torch.long), []
    for _ in range(5):
        output, state = decoder(words(tokens), state)
        tokens = lib.topk(out(output), 1).indices.squeeze(-1)
        text.append(tokens)
    return torch.cat(text), (state,)


def parameters_in_a_file(lib: Any) -> Any:
    torch.manual_seed(22)
    file, x = io.BytesIO(), numbers(23, 4, 2, INPUTS)
    torch.save(lib.GRU(INPUTS, HIDDEN, 2).state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    layer = lib.GRU(INPUTS, HIDDEN, 2)
    told = str(layer.load_state_dict(loaded))
    with torch.device("meta"):
        empty = lib.GRU(INPUTS, HIDDEN, 2)
    empty.load_state_dict(loaded, assign=True)
    return (list(loaded), told), (layer(x)[0], empty(x)[0])


def copies_of_a_model(lib: Any) -> Any:
    model, file = LanguageModel(lib).eval(), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    copies = (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    model.gru.weight_hh_l0.mul_(0.5)
    return None, [one(TEXT)[0] for one in (*copies, model)]


def weights_that_are_made_and_changed(lib: Any) -> Any:
    torch.manual_seed(24)
    layer, x = lib.GRU(INPUTS, HIDDEN), numbers(25, 4, 2, INPUTS)
    for name, parameter in layer.named_parameters():
        if "weight_hh" in name:
            nn.init.orthogonal_(parameter)
        elif "weight" in name:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
    layer.flatten_parameters()
    first, _ = layer(x)
    layer.weight_ih_l0.data.mul_(0.5)
    layer.flatten_parameters()
    second, _ = layer(x)
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, given, result: seen.append((given[0].shape, result[0].shape)))
    return (layer(x)[1].shape, seen), (first, second)


def parametrised_and_averaged_weights(lib: Any) -> Any:
    torch.manual_seed(26)
    layer, x = lib.GRU(INPUTS, HIDDEN), numbers(27, 4, 2, INPUTS)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    for _ in range(2):
        layer.weight_hh_l0.mul_(0.5)
        averaged.update_parameters(layer)
    mean, _ = averaged(x)
    prune.l1_unstructured(layer, "weight_hh_l0", 0.5)
    pruned, _ = layer.eval()(x)
    prune.remove(layer, "weight_hh_l0")
    return None, (mean, pruned, layer(x)[0])


def other_dtypes(lib: Any) -> Any:
    layer, x = lib.GRU(INPUTS, HIDDEN), numbers(28, 4, 2, INPUTS)
    return [layer.to(dtype)(x.to(dtype))[0].dtype for dtype in (torch.bfloat16, torch.float16)], None


def inference_mode(lib: Any) -> Any:
    model = LanguageModel(lib).eval()
    with torch.inference_mode():
        first, state = model(TEXT)
        second, state = model(TEXT, state)
        best = lib.topk(second, 2)
    return best.indices, (first, second, state)


PROGRAMS = [
    *(accuracy, beam_search, sampling, routing_to_experts, boxes_before_suppression, nearest_neighbours),
    *(retrieval, pruning_of_small_weights, any_dimension_view_and_dtype, tensors_that_are_written, errors),
    *(a_new_layer, a_language_model, text_from_a_language_model, a_tagger_of_packed_sequences),
    *(sequences_of_a_list, a_stream_of_frames, one_sequence_to_another, parameters_in_a_file),
    *(copies_of_a_model, weights_that_are_made_and_changed, parametrised_and_averaged_weights),
    *(other_dtypes, inference_mode),
]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def arrays(found: Any) -> Any:
    """What a program returns, with arrays in the places of tensors."""
    if isinstance(found, Tensor):
        return (found.float() if found.dtype is torch.bfloat16 else found).numpy()
    if isinstance(found, dict):
        return {name: arrays(one) for name, one in found.items()}
    return [arrays(one) for one in found] if isinstance(found, (list, tuple)) else found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_is_the_same(program: Callable[[Any], Any]) -> None:
    ours, theirs = (arrays(program(lib)) for lib in (cudml.torch, THEIRS))
    assert_agree(ours[0], theirs[0])
    if theirs[1] is None:
        assert ours[1] is None
    else:
        exact = [one.astype(np.float64) for one in arrays(program(EXACT)[1])]
        assert_agree(ours[1], theirs[1], exact)


TRANSFORMS: dict[str, Callable[[nn.Module], Any]] = {
    "convert": lambda model: model,
    "compile": lambda model: torch.compile(model, backend="aot_eager", fullgraph=True),
    "export": lambda model: torch.export.export(model, (TEXT,)).module(),
    "symbolic_trace": torch.fx.symbolic_trace,
    "jit.trace": lambda model: torch.jit.trace(model, (TEXT,)),
}


@pytest.mark.filterwarnings("ignore:.*jit.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_converted_model_that_is_transformed_is_the_same(name: str) -> None:
    """It computes the same as PyTorch's own model, which is not transformed."""
    torch._dynamo.reset()
    model = LanguageModel(THEIRS).eval().requires_grad_(False)
    transformed = TRANSFORMS[name](cudml.torch.convert(copy.deepcopy(model)))
    for text in (TEXT, TEXT.flip(0) + 3):
        ours, theirs = arrays(transformed(text)), arrays(model(text))
        exact = [one.astype(np.float64) for one in arrays(LanguageModel(EXACT).eval()(text))]
        assert_agree(ours, theirs, exact)
