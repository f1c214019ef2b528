"""The Hebrew diacritizer of the package nakdimon, a Keras file, as the ONNX model that tf2onnx makes of it.

An embedding, two bidirectional LSTM layers whose directions are summed, and three heads: vowels, dagesh, and
the dot of shin. Keras skips padding by a mask, which ONNX's LSTM lacks, so each direction is a Loop. Backward
Loops lie between reversals of the whole time axis: five in all, because both layers reverse the same mask.
"""

from pathlib import Path
from string import Template

import numpy as np
import onnx

_MODEL = Template("""<ir_version: 10, opset_import: ["" : 21]>
diacritizer (float[B, T] letters) => ($kind[B, T, 16] N, $kind[B, T, 3] D, $kind[B, T, 4] S) {
    front = Constant<value_ints = [-1]>()  first = Constant<value_ints = [0]>()
    second = Constant<value_ints = [1]>()  padding = Constant<value_float = 0.0>()
    numbers = Cast<to = 6>(letters)  vectors = Gather(embedding_w0, numbers)
    is_padding = Equal(letters, padding)  is_letter = Not(is_padding)  column = Unsqueeze(is_letter, front)
    mask = Transpose<perm = [1, 0, 2]>(column)  input = Transpose<perm = [1, 0, 2]>(vectors)

    sizes = Shape(mask)  steps = Gather(sizes, first)  batch = Gather(sizes, second)
    num_steps = Squeeze(steps, first)  lengths = Expand(steps, batch)
    state_sizes = Concat<axis = 0>(batch, num_units)  zeros = Expand(zero, state_sizes)
    mask_backwards = ReverseSequence<batch_axis = 1, time_axis = 0>(mask, lengths)
    $layers
    result = Transpose<perm = [1, 0, 2]>(bidirectional_1)
    common_product = MatMul(result, dense_w0)  common = Add(common_product, dense_w1)
    N_product = MatMul(common, N_w0)  N = Add(N_product, N_w1)
    D_product = MatMul(common, D_w0)  D = Add(D_product, D_w1)
    S_product = MatMul(common, S_w0)  S = Add(S_product, S_w1)
}""")

_LAYER = Template("""
    ${name}_input_backwards = ReverseSequence<batch_axis = 1, time_axis = 0>($input, lengths)
    $forward
    $backward
    ${name}_reversed = ReverseSequence<batch_axis = 1, time_axis = 0>(${name}_backward, lengths)
    $name = Add(${name}_forward, ${name}_reversed)""")

#: The gates are in Keras's order: input, forget, new cell, output.
_DIRECTION = Template("""
    ${result}_h, ${result}_c, $result = Loop (num_steps, , zeros, zeros) <body = step
      (int64 time, bool goes, $kind[B, U] h, $kind[B, U] c)
      => (bool goes_on, $kind[B, U] next_h, $kind[B, U] next_c, $kind[B, U] y) {
        goes_on = Identity(goes)  x = Gather($input, time)  is_there = Gather($mask, time)
        of_x = MatMul(x, $kernel)  of_h = MatMul(h, $recurrent)  both = Add(of_x, of_h)
        all = Add(both, $bias)  for_i, for_f, for_n, for_o = Split <axis = 1, num_outputs = 4>(all)
        i = Sigmoid(for_i)  f = Sigmoid(for_f)  n = Tanh(for_n)  o = Sigmoid(for_o)
        kept = Mul(f, c)  added = Mul(i, n)  new_c = Add(kept, added)
        bounded = Tanh(new_c)  new_h = Mul(o, bounded)
        next_h = Where(is_there, new_h, h)  next_c = Where(is_there, new_c, c)
        y = Where(is_there, new_h, zeros)
      }>""")


def hebrew_model(path: Path, dtype: type[np.floating] = np.float32) -> onnx.ModelProto:
    """The model of a Keras file; in float64, the same weights give exact results beside float32's."""
    import h5py  # which only this model needs

    kind = {np.float32: "float", np.float64: "double"}[dtype]
    with h5py.File(path) as file:
        weights = {
            f"{name}_w{i}": group[weight][:].astype(dtype)
            for name, group in file["model_weights"].items()
            for i, weight in enumerate(group.attrs["weight_names"])
        }
    layers, source = [], "input"
    for name in ("bidirectional", "bidirectional_1"):
        forward, backward = (
            _DIRECTION.substitute(
                kind=kind,
                result=f"{name}_{direction}",
                input=f"{name}_input_backwards" if backwards else source,
                mask="mask_backwards" if backwards else "mask",
                kernel=f"{name}_w{3 * backwards}",
                recurrent=f"{name}_w{3 * backwards + 1}",
                bias=f"{name}_w{3 * backwards + 2}",
            )
            for backwards, direction in enumerate(("forward", "backward"))
        )
        layers.append(_LAYER.substitute(name=name, input=source, forward=forward, backward=backward))
        source = name
    model = onnx.parser.parse_model(_MODEL.substitute(kind=kind, layers="\n".join(layers)))
    weights |= {"zero": np.zeros((), dtype), "num_units": np.array([len(weights["dense_w0"])])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    return model
