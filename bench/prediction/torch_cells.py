"""PyTorch's GRU without cuDNN on an H200, no slower than it can be: one product for all inputs, then for each
step and direction a product with the state and the kernel of the cell, and at last a copy of all states; of
several layers, one after the other.

Nothing is executed. Products take what bytes and arithmetic allow, kernels what bytes do, and all launches
are those of a CUDA graph, as measured. PyTorch's own loop multiplies the inputs step by step, too (its
aten/src/ATen/native/RNN.cpp: `matmul_ih`, `matmul_hh`, `_thnn_fused_gru_cell`).
"""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from bench.gru import GruCase
from bench.prediction.model import FLOPS, NEXT_LAUNCH_US, Prediction, at_limits, in_order
from bench.prediction.rows import measured
from proof.sass.rates import L2_BYTES

CONTRACT = "sums in any order; not executed: no slower than launches, bytes and products allow"

#: A launch of a graph after the first, in microseconds.
GRAPH_LAUNCH_US = measured()["a kernel of a graph of 100, in order"]


def predicted(case: GruCase) -> Prediction | None:
    """The time of a case; None if PyTorch's cell has other formulas."""
    if not case.linear_before_reset:
        return None
    item = np.dtype(case.dtype).itemsize
    steps, batch, hidden = case.steps, case.batch, case.hidden_size
    gates = 3 * hidden

    def product(rows: int, depth: int, in_l2: int) -> Prediction:
        """A matrix of `rows` by the weights of a direction; `in_l2` bytes of both are in the L2."""
        num_bytes = item * (depth * (rows + gates) + rows * gates)
        seconds = 2.0 * rows * depth * gates / FLOPS[case.dtype]
        return at_limits(num_bytes, num_bytes - min(in_l2, num_bytes), seconds)

    parts: list[tuple[Hashable, Prediction]] = []
    cell_bytes = item * (batch * hidden * (6 + 1 + 1) + 2 * gates)
    cell, first = at_limits(cell_bytes, 0), product(batch, hidden, 0)
    next_one = product(batch, hidden, L2_BYTES)
    states = item * steps * batch * hidden * case.num_directions
    for layer in range(case.num_layers):
        depth = case.num_directions * hidden if layer else case.input_size
        for _ in range(case.num_directions):
            parts.append(("product of the inputs", product(steps * batch, depth, 0)))
            for step in range(steps):
                parts.append(("product of the state", next_one if step else first))
                parts.append(("cell", cell))
        parts.append(("copy", at_limits(2 * states, 0)))
    found = in_order(parts)
    saved = (found.launches - 1) * (NEXT_LAUNCH_US - GRAPH_LAUNCH_US)
    return replace(found, overhead_us=found.overhead_us - saved)
