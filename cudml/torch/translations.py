"""The operators of `cudml.torch` as nodes of ONNX, for `torch.onnx.export`."""

import sys
from collections.abc import Callable
from typing import Any

from cudml.torch.gru_operator import gru_operator
from cudml.torch.gru_stack_operator import gru_stack_operator
from cudml.torch.topk_operator import ragged_operator, topk_operator

#: `TensorProto.DataType` of types that ONNX's TopK lacks -> that of a type that holds their values.
_SELECTED_AS = {9: 6, 16: 1}  # bool as int32, bfloat16 as float


def onnx_translations() -> dict[Any, Callable[..., Any]]:
    """Return the translations of cudml's operators to ONNX, for `torch.onnx.export`.

    A converted model becomes an ONNX model with GRU and TopK nodes, which `cudml.onnx.Session`, ONNX Runtime
    and others run.

    Returns
    -------
    dict
        The operators of `torch.ops.cudml`, and a function for each: the `custom_translation_table` of
        `torch.onnx.export` with `dynamo=True`. Other translations may be added to it.

    Raises
    ------
    TypeError
        From `torch.onnx.export`, as the cause of its error: the model calls `topk` with `lengths` or
        `offsets`, which TopK of ONNX lacks.

    Examples
    --------
    >>> import torch, cudml.torch
    >>> model = cudml.torch.convert(torch.nn.GRU(4, 8)).requires_grad_(False)
    >>> table = cudml.torch.onnx_translations()
    >>> options = {"dynamo": True, "custom_translation_table": table}
    >>> torch.onnx.export(model, (torch.zeros(5, 2, 4),), "model.onnx", **options)  # doctest: +SKIP

    Notes
    -----
    ONNX leaves the order of NaN to the runtime; `cudml.onnx.Session` has that of `cudml.torch`. Layers of
    bfloat16 are computed in float32 there too. The exporter leaves it to the runtime to rearrange large
    weights, unless their number of elements is below both limits of
    `onnxscript.optimizer.fold_constants(program.model, input_size_limit=n, output_size_limit=n)`. Source: GRU
    and TopK of ONNX.
    """
    return {
        topk_operator: _topk,
        ragged_operator: _ragged_topk,
        gru_operator: _gru,
        gru_stack_operator: _gru_stack,
    }


def _nodes() -> Any:
    """The maker of nodes: the set of operators that PyTorch's own translations use and have loaded."""
    return sys.modules["onnxscript.onnx_opset"].opset18


def _topk(input: Any, k: Any, dim: int, largest: bool) -> Any:
    op = _nodes()
    number = [k] if isinstance(k, int) else op.Reshape(k, [1])
    own = int(input.dtype)
    given = op.Cast(input, to=_SELECTED_AS[own]) if own in _SELECTED_AS else input
    values, indices = op.TopK(given, number, axis=dim, largest=int(largest), sorted=1)
    return (op.Cast(values, to=own) if own in _SELECTED_AS else values), indices


def _ragged_topk(*arguments: Any) -> Any:
    raise TypeError("topk: lengths or offsets is in a model for ONNX, must be left out: its TopK has neither")


def _gru(
    x: Any, w: Any, r: Any, b: Any = None, h0: Any = None, lengths: Any = None, allow_tf32: bool = False
) -> Any:
    op = _nodes()
    num_directions, _, hidden = r.shape
    sequence, single = op.GRU(
        x,
        w,
        r,
        b,
        None if lengths is None else op.Cast(lengths, to=6),  # int32
        h0,
        direction="bidirectional" if num_directions == 2 else "forward",
        hidden_size=int(hidden),
        linear_before_reset=1,
    )
    # (T, D, N, H) -> (T, N, D * H), in which 0 keeps a size.
    return op.Reshape(op.Transpose(sequence, perm=[0, 2, 1, 3]), [0, 0, -1]), single


def _gru_stack(
    x: Any, w: Any, r: Any, b: Any, h0: Any = None, lengths: Any = None, allow_tf32: bool = False
) -> Any:
    """A node for each layer."""
    op = _nodes()
    num_directions, singles = r[0].shape[0], []
    for number in range(len(r)):
        state = h0
        if h0 is not None:
            first, last = number * num_directions, (number + 1) * num_directions
            state = op.Slice(h0, [first], [last], [0])
        x, single = _gru(x, w[number], r[number], b[number] if b else None, state, lengths)
        singles.append(single)
    return x, op.Concat(*singles, axis=0)
