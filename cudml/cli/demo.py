"""`cudml demo`: run and check DirectML's worked examples and a realistic case per operator."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudml.compiled import compile_operator
from cudml.devices import Device
from cudml.devices.emulator.library_steps import as_tf32
from cudml.enums import AxisDirection
from cudml.functions.gru import gru
from cudml.functions.reverse_subsequences import reverse_subsequences
from cudml.functions.slice import slice
from cudml.functions.top_k import top_k
from cudml.functions.transfer import download, upload
from cudml.operators.reverse_subsequences.operator import ReverseSubsequencesDesc
from cudml.operators.slice.operator import SliceDesc
from cudml.operators.top_k.operator import TopK1Desc
from cudml.tensors import TensorDesc

#: Maximum error of a GRU against float64, relative to the error of NumPy in float32.
GRU_ERROR_FACTOR = 2.0

_A = np.array([[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]], np.float32)
_B = np.array([[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]], np.float32)
_SLICED = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
_REVERSED = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


@dataclass(frozen=True)
class Check:
    """One output of a case: the expected and the actual array, and the allowed difference.

    A `tolerance` of 0 requires the same bits. Any other is a maximum for the root of the mean squared
    difference, which tells a wrong element from rounding and, unlike the largest difference, hardly depends
    on chance.
    """

    case: str
    output: str
    expected: np.ndarray
    got: np.ndarray
    tolerance: float = 0.0

    @property
    def error(self) -> float:
        """The root of the mean squared difference."""
        difference = self.got.astype(np.float64) - self.expected.astype(np.float64)
        return float(np.sqrt(np.mean(np.square(difference))))

    @property
    def is_good(self) -> bool:
        """Whether the difference is within the tolerance."""
        if self.got.shape != self.expected.shape or self.got.dtype != self.expected.dtype:
            return False
        if self.tolerance:
            return self.error <= self.tolerance
        return self.got.tobytes() == self.expected.tobytes()


@dataclass(frozen=True)
class Case:
    """Something to run on a device."""

    name: str
    run: Callable[[Device], Sequence[Check]]


@dataclass(frozen=True)
class Outcome:
    """The checks of a case, and its seconds with and without compilation."""

    case: str
    checks: tuple[Check, ...]
    first_seconds: float
    seconds: float


#: Names of the descriptors' outputs in the table.
_OUTPUT_NAMES = {
    "output_value_tensor": "values", "output_index_tensor": "indices", "output_tensor": ""
}  # fmt: skip


def _tensor(array: np.ndarray, *leading: int) -> TensorDesc:
    """The descriptor of a matrix with two leading dimensions of size 1, as in DirectML's documentation."""
    described = TensorDesc.of(array)
    return TensorDesc(described.data_type, (*leading, *array.shape))


def _dispatched(
    name: str, make_desc: Callable[..., Any], inputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> Case:
    """A worked example, run through its descriptor."""

    def run(device: Device) -> list[Check]:
        tensors = {member: _tensor(array, 1, 1) for member, array in (inputs | expected).items()}
        operator = compile_operator(make_desc(**tensors), device=device)
        outputs = {m: upload(device, np.zeros_like(array)) for m, array in expected.items()}
        bound = {m: upload(device, array) for m, array in inputs.items()}
        operator.dispatch(**bound, **outputs)
        return [
            Check(name, _OUTPUT_NAMES[member], array, download(outputs[member]))
            for member, array in expected.items()
        ]

    return Case(name, run)


def _top_k_example(
    number: int, a: np.ndarray, axis: int, k: int, direction: AxisDirection, values: Any, indices: Any
) -> Case:
    return _dispatched(
        f"TOP_K1 example {number}",
        lambda **tensors: TopK1Desc(**tensors, axis=axis, k=k, axis_direction=direction),
        {"input_tensor": a},
        {
            "output_value_tensor": np.array(values, np.float32),
            "output_index_tensor": np.array(indices, np.uint32),
        },
    )


def _slice_example(
    number: int,
    offsets: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    expected: Any,
) -> Case:
    return _dispatched(
        f"SLICE example {number}",
        lambda **tensors: SliceDesc(**tensors, offsets=offsets, sizes=sizes, strides=strides),
        {"input_tensor": _SLICED},
        {"output_tensor": np.array(expected, np.float32)},
    )


def _reverse_example(number: int, axis: int, lengths: Any, expected: Any) -> Case:
    return _dispatched(
        f"REVERSE_SUBSEQUENCES example {number}",
        lambda **tensors: ReverseSubsequencesDesc(**tensors, axis=axis),
        {"input_tensor": _REVERSED, "sequence_lengths_tensor": np.array(lengths, np.uint32)},
        {"output_tensor": np.array(expected, np.float32)},
    )


def _decreasing(*rest: Any) -> tuple[Any, ...]:
    return (AxisDirection.DECREASING, *rest)


#: The worked examples of DirectML's documentation of TOP_K1, SLICE and REVERSE_SUBSEQUENCES; GRU has none.
EXAMPLES = (
    _top_k_example(
        1, _A, 3, 2, *_decreasing([[11, 10], [9, 8], [7, 6]], [[3, 2], [2, 3], [3, 2]])
    ),
    _top_k_example(
        2, _A, 2, 2, *_decreasing([[4, 5, 10, 11], [3, 2, 9, 8]], [[2, 2, 0, 0], [1, 1, 1, 1]])
    ),
    _top_k_example(
        3, _B, 3, 3, *_decreasing([[3, 2, 2], [5, 5, 4], [6, 6, 6]], [[3, 1, 2], [2, 3, 1], [0, 1, 2]])
    ),
    _top_k_example(
        4, _B, 3, 3, AxisDirection.INCREASING,
        [[1, 2, 2], [3, 4, 5], [6, 6, 6]], [[0, 1, 2], [0, 1, 2], [0, 1, 2]],
    ),
    _slice_example(1, (0, 0, 1, 2), (1, 1, 3, 2), (1, 1, 1, 1), [[7, 8], [11, 12], [15, 16]]),
    _slice_example(2, (0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3), [[5, 8], [13, 16]]),
    _reverse_example(1, 3, [[2], [4], [3]], [[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]]),
    _reverse_example(2, 2, [[2, 3, 1, 0]], [[5, 10, 3, 4], [1, 6, 7, 8], [9, 2, 11, 12]]),
)  # fmt: skip


def _top_k_of_logits(device: Device) -> list[Check]:
    """The 50 most likely of 50,257 tokens for 8 sequences, with many ties."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(8, 50257)).astype(np.float16).astype(np.float32)
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :50]
    values, indices = top_k(upload(device, logits), 50)
    name = "top_k of (8, 50257), k 50"
    return [
        Check(name, "values", np.take_along_axis(logits, order, -1), download(values)),
        Check(name, "indices", order.astype(np.int64), download(indices)),
    ]


def _slice_of_images(device: Device) -> list[Check]:
    """Every second pixel of a crop of 4 images, mirrored."""
    images = np.random.default_rng(2).integers(0, 256, (4, 3, 224, 224), np.uint8)
    got = slice(upload(device, images), (0, 0, 16, 207), (4, 3, 96, 96), (1, 1, 2, -2))
    expected = images[:, :, 16:208:2, 207:15:-2]
    return [Check("slice of (4, 3, 224, 224) uint8", "", np.ascontiguousarray(expected), download(got))]


def _reverse_of_sentences(device: Device) -> list[Check]:
    """32 sentences of 1 to 128 words with 64 features, each reversed."""
    rng = np.random.default_rng(3)
    words = rng.normal(size=(32, 128, 64)).astype(np.float32)
    lengths = rng.integers(1, 129, (32, 1, 1), np.int32)
    step = np.arange(128)[None, :, None]
    order = np.where(step < lengths, lengths - 1 - step, step)
    got = reverse_subsequences(upload(device, words), upload(device, lengths), 1)
    expected = np.take_along_axis(words, order, 1)
    return [Check("reverse_subsequences of (32, 128, 64)", "", expected, download(got))]


def gru_by_formulas(
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    h0: Any = None,
    *,
    precision: Any,
    direction: str,
    linear_before_reset: bool = False,
    rounds_state: bool = False,
    rounds_operands: bool = False,
) -> Any:
    """The sequence of a GRU layer by its formulas, computed in one precision, as (T, D, N, H).

    The arrays are NumPy's or CuPy's, in the shapes of `cudml.gru`. `rounds_state` rounds the state to float16
    after every step, `rounds_operands` those of products to TF32. The benchmarks use this function too; it is
    vectorised as one would write it by hand.
    """
    factor: Callable[[Any], Any] = as_tf32 if rounds_operands else lambda values: values
    x, w, r, b = (array.astype(precision) for array in (x, w, r, b))
    x, w, r = map(factor, (x, w, r))
    (num_steps, batch, _), (num_directions, _, h) = x.shape, r.shape
    sequence = np.empty_like(x, shape=(num_steps, num_directions, batch, h))
    for d in range(num_directions):
        is_backward = d == 1 or direction == "reverse"
        projected = x @ w[d].T + b[d, : 3 * h]
        bias = b[d, 3 * h :]
        state = np.zeros_like(x, shape=(batch, h)) if h0 is None else h0[d].astype(precision)
        for t in reversed(range(num_steps)) if is_backward else range(num_steps):
            before = factor(state)
            gates = projected[t, :, : 2 * h] + before @ r[d, : 2 * h].T + bias[: 2 * h]
            gates = 1 / (1 + np.exp(-gates))
            update, reset = gates[:, :h], gates[:, h:]
            if linear_before_reset:
                hidden = reset * (before @ r[d, 2 * h :].T + bias[2 * h :])
            else:
                hidden = factor(reset * state) @ r[d, 2 * h :].T + bias[2 * h :]
            candidate = np.tanh(projected[t, :, 2 * h :] + hidden)
            state = (1 - update) * candidate + update * state
            if rounds_state:
                state = state.astype(np.float16).astype(precision)
            sequence[t, d] = state
    return sequence


def _bidirectional_gru(
    precision: Any, x: Any, w: Any, r: Any, b: Any, h0: Any, lengths: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Both outputs of a bidirectional GRU, one sequence at a time because each has its own length."""
    num_steps, batch, _ = x.shape
    sequence = np.zeros((num_steps, 2, batch, r.shape[2]), precision)
    for n, length in enumerate(lengths):
        lane = np.s_[n : n + 1]
        sequence[:length, :, lane] = gru_by_formulas(
            x[:length, lane], w, r, b, h0[:, lane], precision=precision, direction="bidirectional"
        )
    forward = sequence[lengths - 1, 0, np.arange(batch)]
    return sequence, np.stack([forward, sequence[0, 1]])


def _gru_of_speech(device: Device) -> list[Check]:
    """A bidirectional layer of 128 hidden units over 60 frames of 80 features, 4 utterances."""
    rng = np.random.default_rng(4)
    shapes = {"x": (60, 4, 80), "w": (2, 384, 80), "r": (2, 384, 128), "b": (2, 768), "h0": (2, 4, 128)}
    arrays = {
        name: rng.normal(0, 1 if name == "x" else 0.1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    arrays["sequence_lengths"] = np.array([60, 41, 17, 58], np.int32)
    outputs = gru(**{name: upload(device, a) for name, a in arrays.items()}, direction="bidirectional")
    wide = _bidirectional_gru(np.float64, *arrays.values())
    narrow = _bidirectional_gru(np.float32, *arrays.values())
    return [
        Check(
            "gru of (60, 4, 80), hidden 128, bidirectional",
            output,
            exact.astype(np.float32),
            download(got),
            GRU_ERROR_FACTOR * float(np.sqrt(np.mean(np.square(rounded - exact)))),
        )
        for output, exact, rounded, got in zip(("sequence", "single"), wide, narrow, outputs, strict=True)
    ]


REAL_CASES = (
    Case("top_k of real size", _top_k_of_logits),
    Case("slice of real size", _slice_of_images),
    Case("reverse_subsequences of real size", _reverse_of_sentences),
    Case("gru of real size", _gru_of_speech),
)

CASES = EXAMPLES + REAL_CASES


def run_case(case: Case, device: Device) -> Outcome:
    """Run a case twice, so that the second run shows the time without compilation."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        checks = tuple(case.run(device))
        device.raise_reported()
        times.append(time.perf_counter() - start)
    return Outcome(case.name, checks, *times)


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The rows of the table, heading first: case, output, expected, got, verdict."""
    table: list[tuple[str, ...]] = [("case", "output", "expected", "got", "")]
    for outcome in outcomes:
        for check in outcome.checks:
            verdict = "ok" if check.is_good else "DIFFERS"
            if check.tolerance:
                verdict += f", off by {check.error:.1e} of {check.tolerance:.1e} allowed"
            table.append((check.case, check.output, shown(check.expected), shown(check.got), verdict))
    return table


def shown(array: np.ndarray) -> str:
    """Format a small matrix as rows in brackets, a large array as its first and last elements."""
    if array.size <= 16 and array.ndim == 2:
        return " ".join(f"[{' '.join(f'{value:g}' for value in row)}]" for row in array)
    flat = array.reshape(-1)
    ends = [f"{float(value):.6g}" for value in (*flat[:2], flat[-1])]
    return f"{ends[0]} {ends[1]} ... {ends[2]}"
