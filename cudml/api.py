"""The array functions: arrays in, arrays out, on the device that the arrays are on.

A warm call looks up what an earlier one planned for arrays of the same layouts (`CallCache`). Arguments
are checked when a call is planned; what depends on the arrays' addresses is checked each time.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

from cudml.arrays import (
    Argument,
    CallCache,
    all_on_device,
    as_integers,
    bits_of,
    broadcasts_to,
    check_output,
    dtype_in,
    execute,
    is_wrong,
    normalized_axis,
)
from cudml.dtypes import ElementType, ExtendedType
from cudml.enums import AxisDirection, DataType
from cudml.operators import reverse_subsequences as _reverse_operator
from cudml.operators import slice as _slice_operator
from cudml.plans import Plan
from cudml.tensors import TensorDesc

_INTEGERS: dict[str, ElementType] = {
    name: DataType[name.upper()]
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}
_REALS: dict[str, ElementType] = {
    "bool": DataType.UINT8,
    **_INTEGERS,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "bfloat16": ExtendedType.BFLOAT16,
}

_DIRECTIONS = {"largest": AxisDirection.DECREASING, "smallest": AxisDirection.INCREASING}

_top_k_calls = CallCache()
_slice_calls = CallCache()
_reverse_calls = CallCache()


def slice(
    a: Any,
    offsets: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    out: Any = None,
) -> Any:
    """A strided box of an array: `y[c] = a[offsets + strides * c]` for every c below `sizes`.

    Parameters
    ----------
    a : array
        Of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. A CuPy array (or anything with
        GPU memory) is worked on by its GPU, a NumPy array by the CPU emulator.
    offsets : sequence of int
        The first element taken, in each dimension; not counted from the end.
    sizes : sequence of int
        How many elements are taken: the shape of the result. May be 0.
    strides : sequence of int, optional
        The distance between taken elements, not 0; negative ones go backwards. None is 1 everywhere.
    out : array, optional
        Where to put the result: exactly of its shape and dtype, of any strides, not overlapping `a`.

    Returns
    -------
    array
        A new array (never a view) of shape `sizes` and the dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        An element outside of `a`, a stride of 0, arguments of another length than the rank, more than 8
        dimensions that do not merge, or an `out` of another shape, read-only or overlapping.
    TypeError
        No array, an unsupported dtype, mixed devices, an `out` of another dtype.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> a = np.arange(16).reshape(4, 4)
    >>> cudml.slice(a, (1, 0), (2, 2), (2, 3)).tolist()
    [[4, 7], [12, 15]]
    >>> cudml.slice(a, (0, 3), (1, 4), (1, -1)).tolist()
    [[3, 2, 1, 0]]

    Notes
    -----
    Source: SLICE of DirectML's documentation; negative strides as SLICE1 has them, but with the first
    element taken as the offset.
    """
    outs = () if out is None else (out,)
    key = None
    try:
        # Pure integers, so that 1.0 does not find the call of 1.
        box = [tuple(map(index, numbers)) for numbers in (offsets, sizes, strides or ())]
    except TypeError:
        pass  # said below
    else:
        key, call = _slice_calls.find((a,), outs, tuple(box))
        if call is not None:
            return call.run((a,), outs)[0]
    return _plan_slice(a, offsets, sizes, strides, out, key)


def _plan_slice(a: Any, offsets: Any, sizes: Any, strides: Any, out: Any, key: Any) -> Any:
    function = "slice"
    arrays, device = all_on_device(function, {"a": a, "out": out})
    array = arrays["a"]
    if array is not a or arrays.get("out") is not out:
        result = slice(array, offsets, sizes, strides, out=arrays.get("out"))
        return result if out is None else out
    kind = bits_of(function, "a", array)
    offsets = as_integers(function, "offsets", offsets, array.ndim)
    sizes = as_integers(function, "sizes", sizes, array.ndim)
    strides = (1,) * array.ndim if strides is None else as_integers(function, "strides", strides, array.ndim)
    for i, (n, offset, size, stride) in enumerate(zip(array.shape, offsets, sizes, strides, strict=True)):
        if size < 0:
            raise ValueError(is_wrong(function, f"sizes[{i}]", size, "0 or more"))
        if stride == 0:
            raise ValueError(is_wrong(function, f"strides[{i}]", 0, "any integer but 0"))
        if not 0 <= offset < max(n, 1):
            expected = f"from 0 to {max(n - 1, 0)}, an element of dimension {i}"
            raise ValueError(is_wrong(function, f"offsets[{i}]", offset, expected))
        last = offset + (size - 1) * stride
        if size and not 0 <= last < n:
            got = f"{last} = {offset} + ({size} - 1) * {stride}"
            expected = f"from 0 to {n - 1}" if n else "left out: the dimension is empty"
            raise ValueError(is_wrong(function, f"the last element of dimension {i}", got, expected))
    if out is not None:
        check_output(function, "out", out, sizes, array.dtype)
    source = Argument.of("a", "input_tensor", kind, array, any_address=True)
    target = Argument("out", "output_tensor", kind, out, sizes, array.dtype, sizes, 1)
    # 0-d arrays have one element, as 1-D arrays of size 1 have.
    box = (offsets or (0,), sizes or (1,), strides or (1,))

    def make_plan(tensors: dict[str, TensorDesc]) -> Plan:
        desc = _slice_operator.SliceDesc(tensors["input_tensor"], tensors["output_tensor"], *box)
        return _slice_operator.plan(desc, device.limits)

    return execute(function, device, [source], [target], make_plan, _slice_calls, key)[0]


def reverse_subsequences(a: Any, sequence_lengths: Any, axis: int = -1, *, out: Any = None) -> Any:
    """The first elements of every lane in reverse order, the rest as they are.

    Parameters
    ----------
    a : array
        At least 1-D, of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. A CuPy array (or
        anything with GPU memory) is worked on by its GPU, a NumPy array by the CPU emulator.
    sequence_lengths : array
        How many elements of each lane are reversed, of any integer dtype; broadcasts to the shape of `a`
        with 1 at the axis. Longer than the axis is the whole lane, negative is none.
    axis : int
        The axis that the lanes run along; negative ones count from the end.
    out : array, optional
        Where to put the result: of the shape and dtype of `a`, of any strides, overlapping neither input.

    Returns
    -------
    array
        A new array of the shape and dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        Lengths that do not broadcast, axis=None, or an `out` of another shape, read-only or overlapping.
    TypeError
        No arrays, an unsupported dtype, mixed devices, an `out` of another dtype.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> a = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    >>> cudml.reverse_subsequences(a, np.array([[2], [9]])).tolist()
    [[2, 1, 3, 4], [8, 7, 6, 5]]

    Notes
    -----
    Source: REVERSE_SUBSEQUENCES of DirectML's documentation.
    """
    outs = () if out is None else (out,)
    key = None
    if type(axis) is int:
        key, call = _reverse_calls.find((a, sequence_lengths), outs, axis)
        if call is not None:
            return call.run((a, sequence_lengths), outs)[0]
    return _plan_reverse(a, sequence_lengths, axis, out, key)


def _plan_reverse(a: Any, sequence_lengths: Any, axis: Any, out: Any, key: Any) -> Any:
    function = "reverse_subsequences"
    arrays, device = all_on_device(function, {"a": a, "sequence_lengths": sequence_lengths, "out": out})
    array, lengths = arrays["a"], arrays["sequence_lengths"]
    if array is not a or lengths is not sequence_lengths or arrays.get("out") is not out:
        result = reverse_subsequences(array, lengths, axis, out=arrays.get("out"))
        return result if out is None else out
    kind = bits_of(function, "a", array)
    length_kind = dtype_in(function, "sequence_lengths", lengths, _INTEGERS)
    axis = normalized_axis(function, axis, array.ndim)
    shape = tuple(array.shape)
    lane_shape = (*shape[:axis], 1, *shape[axis + 1 :])
    if not broadcasts_to(lengths.shape, lane_shape):
        expected = f"of a shape that broadcasts to {lane_shape}, the shape of a with 1 at the axis"
        raise ValueError(is_wrong(function, "sequence_lengths", f"of shape {tuple(lengths.shape)}", expected))
    if out is not None:
        check_output(function, "out", out, shape, array.dtype)
    inputs = [
        Argument.of("a", "input_tensor", kind, array, any_address=True),
        Argument.of("sequence_lengths", "sequence_lengths_tensor", length_kind, lengths, lane_shape),
    ]
    target = Argument("out", "output_tensor", kind, out, shape, array.dtype, shape, 1)

    def make_plan(tensors: dict[str, TensorDesc]) -> Plan:
        desc = _reverse_operator.ReverseSubsequencesDesc(**tensors, axis=axis)
        return _reverse_operator.plan(desc, device.limits)

    return execute(function, device, inputs, [target], make_plan, _reverse_calls, key)[0]
