"""Recurrences on both sides of the sizes at which another path takes over: one block, and several."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.checks import WrongResultError
from bench.gru import GruCase, check, make
from bench.prediction import scan
from bench.prediction.draw import log_uniform, one
from bench.prediction.scan import Scan
from bench.prediction.tune import ByNumbers
from bench.sources import Source
from cudml.enums import DataType, RecurrentNetworkDirection
from cudml.operators.gru import operator as gru
from cudml.operators.gru.activations import Activation
from cudml.operators.gru.clocks import CLOCKS
from cudml.operators.gru.layer import Layer
from cudml.operators.gru.operator import GruDesc
from cudml.operators.gru.paths import PATHS, choose_path
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc
from proof.sass.launch import zeros
from proof.sass.plan import HOPPER

#: The inputs' members, and the names that the benchmark gives them.
_NAMES = {"input_tensor": "x", "weight_tensor": "w", "recurrence_tensor": "r", "bias_tensor": "b"}

#: Paths of a GPU.
NAMES = tuple(name for name in PATHS if name not in ("serial", "panels"))

#: Numbers by the times of `python -m bench gru-shapes` on an H200.
_MEASURED = (
    *("block_fixed", "block_product", "exchange", "exchanged_bytes", "grid_fixed", "round", "round_pass"),
    *("reduction", "product_term", "l2_bytes"),
)

#: Steps: enough to make the launches a small part of the time.
NUM_STEPS = 256


def desc_of(dtype: str, num_steps: int, batch: int, hidden: int) -> GruDesc:
    """What `cudml.gru` computes, with as many inputs as hidden units and the defaults of PyTorch."""
    kind = DataType[dtype.upper()]
    return GruDesc(
        TensorDesc(kind, (1, num_steps, batch, hidden)),
        TensorDesc(kind, (1, 1, 3 * hidden, hidden)),
        TensorDesc(kind, (1, 1, 3 * hidden, hidden)),
        TensorDesc(kind, (1, 1, 1, 6 * hidden)),
        None,
        None,
        TensorDesc(kind, (num_steps, 1, batch, hidden)),
        TensorDesc(kind, (1, 1, batch, hidden)),
        (Activation.sigmoid(), Activation.tanh()),
        RecurrentNetworkDirection.FORWARD,
        True,
    )


@dataclass(frozen=True)
class Point(scan.Point):
    """A layer with as many inputs as hidden units, the defaults of PyTorch, and sequences of one length."""

    dtype: str
    batch: int
    hidden: int

    def __str__(self) -> str:
        return f"N {self.batch} H {self.hidden} {self.dtype}"

    @property
    def num_steps(self) -> int:
        """The steps, most of them extrapolated."""
        return NUM_STEPS

    @property
    def desc(self) -> GruDesc:
        """What `cudml.gru` computes."""
        return desc_of(self.dtype, NUM_STEPS, self.batch, self.hidden)

    def plan(self, path: str | None = None, limits: Limits = HOPPER.limits) -> Plan:
        """The plan on a GPU, an H200 unless told otherwise, by a path or by the chosen one."""
        return gru.plan(self.desc, limits, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """Memory that is not touched."""
        desc = self.desc
        return {name: zeros(getattr(desc, name).span_bytes) for name in self.plan().operands}

    @property
    def _case(self) -> GruCase:
        return GruCase(
            name=str(self),
            steps=NUM_STEPS,
            batch=self.batch,
            input_size=self.hidden,
            hidden_size=self.hidden,
            dtype=self.dtype,
        )

    def drawn(self, source: Source) -> dict[str, Any]:
        """As the benchmark draws them."""
        made = make(self._case, source)
        return {member: made[name].reshape(-1) for member, name in _NAMES.items()}

    def check(self, operands: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> None:
        """Every path within the benchmark's bound, because each adds in an order of its own."""
        case, hidden = self._case, self.hidden
        weights = (1, 3 * hidden, hidden)
        shapes = {"x": (NUM_STEPS, self.batch, hidden), "w": weights, "r": weights, "b": (1, 6 * hidden)}
        inputs = {
            name: operands[member].view(self.dtype).reshape(shapes[name]) for member, name in _NAMES.items()
        }
        for path, result in results.items():
            sequence = result["output_sequence_tensor"].view(self.dtype)
            single = result["output_single_tensor"].view(self.dtype)
            got = (sequence.reshape(NUM_STEPS, 1, self.batch, -1), single.reshape(1, self.batch, -1))
            try:
                check(case, inputs, got)
            except WrongResultError as error:
                raise WrongResultError(f"{path}: {error}") from None


def points() -> list[Point]:
    """The points of the committed table."""
    found = []
    for batch in (1, 8, 64, 128, 256):
        found += [Point("float32", batch, hidden) for hidden in (64, 96, 104, 128, 136, 160, 168, 192)]
    for batch in (1, 8, 32, 128, 256):
        found += [Point("float16", batch, hidden) for hidden in (64, 72, 96, 104, 128, 136, 160, 168)]
    # Several blocks on a multiprocessor, and several times as many.
    for dtype in ("float32", "float16"):
        found += [Point(dtype, batch, hidden) for batch in (512, 2048) for hidden in (8, 32, 64)]
    for batch in (2, 4, 8):
        found += [Point("float16", batch, hidden) for hidden in (264, 272, 384, 528, 536, 1056, 1064)]
    return found


def draw(random: np.random.Generator) -> Point:
    """Any batch and hidden size up to those of large models."""
    return Point(one(random, "float32", "float16"), log_uniform(random, 1, 256), log_uniform(random, 1, 2048))


def _layer_of(point: Point) -> Layer:
    return gru.layer_of(point.desc)


SCAN = Scan("gru", NAMES, Point, points, draw, ByNumbers(CLOCKS, _layer_of, choose_path, _MEASURED))
