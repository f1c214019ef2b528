"""Recurrences on both sides of the sizes at which another path takes over: one block, and several."""

from dataclasses import dataclass

import numpy as np

from bench.prediction import scan
from bench.prediction.scan import Scan
from cudml.enums import DataType, RecurrentNetworkDirection
from cudml.operators import gru
from cudml.operators.activations import Activation
from cudml.operators.gru import GruDesc
from cudml.operators.gru_paths import PATHS
from cudml.plans import Plan
from cudml.tensors import TensorDesc
from tests.machine_code.plan import HOPPER
from tests.machine_code.sass.launch import zeros

#: Paths of a GPU.
NAMES = tuple(name for name in PATHS if name not in ("serial", "panels"))

#: Steps: so many that the launches are a small part of the time.
NUM_STEPS = 256


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
        """The steps, of which only some run."""
        return NUM_STEPS

    @property
    def desc(self) -> GruDesc:
        """What `cudml.gru` computes."""
        kind, batch, hidden = DataType[self.dtype.upper()], self.batch, self.hidden
        return GruDesc(
            TensorDesc(kind, (1, NUM_STEPS, batch, hidden)),
            TensorDesc(kind, (1, 1, 3 * hidden, hidden)),
            TensorDesc(kind, (1, 1, 3 * hidden, hidden)),
            TensorDesc(kind, (1, 1, 1, 6 * hidden)),
            None,
            None,
            TensorDesc(kind, (NUM_STEPS, 1, batch, hidden)),
            TensorDesc(kind, (1, 1, batch, hidden)),
            (Activation.sigmoid(), Activation.tanh()),
            RecurrentNetworkDirection.FORWARD,
            True,
        )

    def plan(self, path: str | None = None) -> Plan:
        """The plan on an H200, by a path or by the chosen one."""
        return gru.plan(self.desc, HOPPER.limits, path=path)

    def operands(self) -> dict[str, np.ndarray]:
        """Memory that is not touched."""
        desc = self.desc
        return {name: zeros(getattr(desc, name).span_bytes) for name in self.plan().operands}


def points() -> list[Point]:
    """The committed ones."""
    found = []
    for batch in (1, 8, 64, 128, 256):
        found += [Point("float32", batch, hidden) for hidden in (64, 96, 104, 128, 136, 160, 168, 192)]
    for batch in (1, 8, 32, 128, 256):
        found += [Point("float16", batch, hidden) for hidden in (64, 72, 96, 104, 128, 136, 160, 168)]
    for batch in (2, 4, 8):
        found += [Point("float16", batch, hidden) for hidden in (264, 272, 384, 528, 536, 1056, 1064)]
    return found


SCAN = Scan("gru", NAMES, Point, points)
