"""The array functions: arrays in, arrays out, on the device that the arrays are on.

A warm call looks up what an earlier one planned for arrays of the same layouts (`CallCache`). Arguments
are checked when a call is planned; what depends on the arrays' addresses is checked each time.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from cudml.arguments import (
    all_on_device,
    as_integer,
    as_integers,
    bits_of,
    broadcasts_to,
    check_order,
    check_output,
    dtype_in,
    is_wrong,
    normalized_axis,
    on_stream,
    output_pair,
)
from cudml.array_types import (
    ForeignArray,
    HostLengths,
    IndicesT,
    Integers,
    NumPyArray,
    Scalar,
    ValuesT,
)
from cudml.calls import Argument, CallCache, check_overlap, execute, store
from cudml.checks import MAX_DIMENSIONS
from cudml.devices import Array
from cudml.dtypes import INTEGERS, ElementType, ExtendedType
from cudml.enums import AxisDirection, DataType
from cudml.operators import reverse_subsequences as _reverse_operator
from cudml.operators import slice as _slice_operator
from cudml.operators import top_k as _top_k_operator
from cudml.operators.coalesce import dimensions_of, merged, without_ones
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc, num_elements

_REALS: dict[str, ElementType] = {
    "bool": DataType.UINT8,
    **INTEGERS,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "bfloat16": ExtendedType.BFLOAT16,
}

#: Makes a named tuple without counting its members.
_new = tuple.__new__

_INT64 = np.dtype(np.int64)

#: Collections that are known to have an order without a closer look.
_SEQUENCES = (tuple, list, type(None))

_top_k_calls = CallCache()
_slice_calls = CallCache()
_reverse_calls = CallCache()


if TYPE_CHECKING:

    class TopKResult(NamedTuple, Generic[ValuesT, IndicesT]):
        values: ValuesT
        indices: IndicesT

else:  # Python 3.10 makes no generic named tuples

    class TopKResult(NamedTuple):
        """What `top_k` returns: the selected elements, and where they were along the axis, as int64."""

        values: Any
        indices: Any


@overload
def top_k(
    a: NumPyArray[Scalar],
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    out: tuple[NumPyArray[Scalar], NumPyArray[np.int64]] | None = None,
    stream: None = None,
) -> TopKResult[NumPyArray[Scalar], NumPyArray[np.int64]]: ...
@overload
def top_k(
    a: ForeignArray,
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
) -> TopKResult[Any, Any]: ...
def top_k(
    a: Any,
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
) -> TopKResult[Any, Any]:
    """The k largest or smallest elements along an axis and where they are, best first.

    Parameters
    ----------
    a : array
        At least 1-D, of bool, an integer type, float16, float32, float64 or bfloat16; any strides. A
        GPU's array (CuPy's, or one that shares its memory) is worked on by that GPU, a CPU's (NumPy's, or one
        that shares its memory) by the CPU emulator.
    k : int
        How many, from 1 to the size of the axis.
    axis : int
        Which axis; negative ones count from the end. It has at most 2**32 - 1 elements.
    mode : "largest" or "smallest"
        Which elements.
    sorted : bool
        Accepted for NumPy's sake: the results are sorted either way.
    out : (values, indices), optional
        Where to put the results: exactly of their shapes and dtypes, of any strides, not overlapping `a`
        or each other.
    stream : optional
        Whose order the work, the results and the scratch follow: a CuPy stream, an object with
        `__cuda_stream__` or the integer handle, of the GPU of `a`. None is CuPy's current stream, and all
        that a CPU takes.

    Returns
    -------
    TopKResult
        `values` of the dtype of `a` and `indices` of int64, both of the shape of `a` with k at the axis.

    Raises
    ------
    ValueError
        k, mode, an axis that is None or too long, or an `out` of another shape, read-only or overlapping.
    TypeError
        No array, an unsupported dtype, mixed devices, an `out` of another dtype, no stream.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> values, indices = cudml.top_k(np.array([[1.0, 5.0, 5.0, 2.0]]), 3)
    >>> values.tolist(), indices.tolist()
    ([[5.0, 5.0, 2.0]], [[1, 2, 3]])

    Notes
    -----
    Equal elements come in the order of their indices in both modes, and of those equal to the last the
    lowest indices are taken. NaNs come last in both modes and count as equal; so do -0.0 and +0.0, which
    keep their own bits. The same input gives the same bits on every device. Source: `numpy.top_k` for the
    signature and NaN, TOP_K1 of DirectML's documentation for the order of ties.
    """
    if stream is not None:
        with on_stream("top_k", a, stream):
            return TopKResult(*top_k(a, k, axis=axis, mode=mode, sorted=sorted, out=out))
    key = None
    if out is None or isinstance(out, tuple):
        try:
            others = index(k), index(axis), mode  # 2.0 would find the call of 2
        except TypeError:
            pass  # said below
        else:
            key, call = _top_k_calls.find((a,), out or (), others)
            if call is not None:
                return _new(TopKResult, call.run((a,), out or ()))
    with on_stream("top_k", a, None):
        return _plan_top_k(a, k, axis, mode, out, key)


def _plan_top_k(a: Any, k: Any, axis: Any, mode: Any, out: Any, key: Any) -> TopKResult[Any, Any]:
    function = "top_k"
    outs = output_pair(function, out, "values, indices")
    names = ("out[0]", "out[1]")
    given = dict(zip(names, outs, strict=False))
    arrays, device, shared, _ = all_on_device(function, {"a": a}, given)
    array = arrays.pop("a")
    if array is not a or any(arrays[name] is not given[name] for name in given):
        plain = (arrays[names[0]], arrays[names[1]]) if given else None
        with device.sharing(shared):
            result = top_k(array, k, axis=axis, mode=mode, out=plain)
        return TopKResult(*outs) if outs else result
    kind = dtype_in(function, "a", array, _REALS)
    axis = normalized_axis(function, axis, array.ndim)
    k = as_integer(function, "k", k)
    lane = array.shape[axis]
    if not 1 <= k <= lane:
        raise ValueError(is_wrong(function, "k", k, f"from 1 to the size of axis {axis}, which is {lane}"))
    is_known = isinstance(mode, str) and mode in ("largest", "smallest")
    if not is_known:
        raise ValueError(is_wrong(function, "mode", repr(mode), "'largest' or 'smallest'"))
    shape = (*array.shape[:axis], k, *array.shape[axis + 1 :])
    rows = [
        (names[0], "output_value_tensor", kind, array.dtype),
        (names[1], "output_index_tensor", DataType.INT64, _INT64),
    ]
    for name, _, _, dtype in rows:
        if name in given:
            check_output(function, name, arrays[name], shape, dtype)
    inputs = [Argument.input("a", "input_tensor", kind, array)]
    outputs = [
        Argument.output(name, member, element_type, arrays.get(name), shape, dtype)
        for name, member, element_type, dtype in rows
    ]
    if array.ndim > MAX_DIMENSIONS:
        flat = array.reshape(num_elements(shape[:axis]), lane, num_elements(shape[axis + 1 :]))
        results = [result.reshape(shape) for result in top_k(flat, k, axis=1, mode=mode)]
        return TopKResult(*store(function, device, inputs, outputs, results, made=(flat,)))
    direction = AxisDirection.DECREASING if mode == "largest" else AxisDirection.INCREASING

    def make_plan(tensors: dict[str, TensorDesc], limits: Limits) -> Plan:
        desc = _top_k_operator.TopK1Desc(**tensors, axis=axis, k=k, axis_direction=direction)
        return _top_k_operator.plan(desc, limits, nan_last=True)

    return TopKResult(*execute(function, device, inputs, outputs, make_plan, _top_k_calls, key))


@overload
def slice(
    a: NumPyArray[Scalar],
    offsets: Integers,
    sizes: Integers,
    strides: Integers | None = None,
    *,
    out: NumPyArray[Scalar] | None = None,
    stream: None = None,
) -> NumPyArray[Scalar]: ...
@overload
def slice(
    a: ForeignArray,
    offsets: Integers,
    sizes: Integers,
    strides: Integers | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any: ...
def slice(
    a: Any,
    offsets: Any,
    sizes: Any,
    strides: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """A strided box of an array: `y[c] = a[offsets + strides * c]` for every c below `sizes`.

    Parameters
    ----------
    a : array
        Of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. A GPU's array (CuPy's, or
        one that shares its memory) is worked on by that GPU, a CPU's (NumPy's, or one that shares its memory)
        by the CPU emulator.
    offsets : sequence of int
        The first element taken, in each dimension; not counted from the end. Where the size is 0, up to the
        size of the dimension.
    sizes : sequence of int
        How many elements are taken: the shape of the result. May be 0.
    strides : sequence of int, optional
        The distance between taken elements, not 0; negative ones go backwards. None is 1 everywhere.
    out : array, optional
        Where to put the result: exactly of its shape and dtype, of any strides, not overlapping `a`.
    stream : optional
        Whose order the work, the results and the scratch follow: a CuPy stream, an object with
        `__cuda_stream__` or the integer handle, of the GPU of `a`. None is CuPy's current stream, and all
        that a CPU takes.

    Returns
    -------
    array
        A new array (never a view) of shape `sizes` and the dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        An element outside of `a`, a stride of 0, arguments of another length than the rank, or an `out` of
        another shape, read-only or overlapping.
    TypeError
        No array, an unsupported dtype, mixed devices, a set or a mapping for a sequence, an `out` of another
        dtype, no stream.

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
    element taken as the offset. A box of more than 8 dimensions, neighbours that can be merged counted as
    one, is copied in several launches.
    """
    if stream is not None:
        with on_stream("slice", a, stream):
            return slice(a, offsets, sizes, strides, out=out)
    outs = () if out is None else (out,)
    key = None
    try:
        if (
            type(offsets) not in _SEQUENCES
            or type(sizes) not in _SEQUENCES
            or type(strides) not in _SEQUENCES
        ):
            for values in (offsets, sizes, strides):
                check_order(values)
        # Pure integers, so that 1.0 does not find the call of 1.
        box = (
            tuple(map(index, offsets)),
            tuple(map(index, sizes)),
            None if strides is None else tuple(map(index, strides)),
        )
    except TypeError:
        pass  # said below
    else:
        key, call = _slice_calls.find((a,), outs, box)
        if call is not None:
            return call.run((a,), outs)[0]
        offsets, sizes, strides = box  # an iterator would be at its end
    with on_stream("slice", a, None):
        return _plan_slice(a, offsets, sizes, strides, out, key)


def _plan_slice(a: Any, offsets: Any, sizes: Any, strides: Any, out: Any, key: Any) -> Any:
    function = "slice"
    arrays, device, shared, _ = all_on_device(function, {"a": a}, {} if out is None else {"out": out})
    array = arrays["a"]
    if array is not a or arrays.get("out") is not out:
        with device.sharing(shared):
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
        if size and not n:
            raise ValueError(is_wrong(function, f"sizes[{i}]", size, f"0, since dimension {i} is empty"))
        # Where nothing is taken, the end of the dimension will do, as in NumPy's a[n:n].
        largest = n - 1 if size else n
        if not 0 <= offset <= largest:
            expected = f"from 0 to {largest}, {'an element' if size else 'a place'} of dimension {i}"
            raise ValueError(is_wrong(function, f"offsets[{i}]", offset, expected))
        last = offset + (size - 1) * stride
        if size and not 0 <= last < n:
            got = f"{last} = {offset} + ({size} - 1) * {stride}"
            raise ValueError(
                is_wrong(function, f"the last element of dimension {i}", got, f"from 0 to {n - 1}")
            )
    if out is not None:
        check_output(function, "out", out, sizes, array.dtype)
    source = Argument.input("a", "input_tensor", kind, array, any_address=True)
    target = Argument.output("out", "output_tensor", kind, out, sizes, array.dtype, any_address=True)
    if array.ndim > MAX_DIMENSIONS:
        axis = _axis_to_loop_over(source.tensor, target.tensor, strides)
        if axis is not None:
            check_overlap(function, device, [source, target] if out is not None else [source], 1)
            result = device.empty(sizes, array.dtype) if out is None else out
            _slice_each(array, (offsets, sizes, strides), result, axis)
            return result
    # 0-d arrays have one element, as 1-D arrays of size 1 have.
    box = (offsets or (0,), sizes or (1,), strides or (1,))

    def make_plan(tensors: dict[str, TensorDesc], limits: Limits) -> Plan:
        desc = _slice_operator.SliceDesc(tensors["input_tensor"], tensors["output_tensor"], *box)
        return _slice_operator.plan(desc, limits)

    return execute(function, device, [source], [target], make_plan, _slice_calls, key)[0]


@lru_cache(1024)
def _axis_to_loop_over(source: TensorDesc, target: TensorDesc, strides: tuple[int, ...]) -> int | None:
    """Which axis of a box to leave to a loop; None where the kernels take all of them."""
    steps = [step * stride for step, stride in zip(strides, source.element_strides, strict=True)]
    dimensions = dimensions_of(target.sizes, steps, target.element_strides)

    def num_merged(without: int | None = None) -> int:
        kept = (d for i, d in zip(reversed(range(len(steps))), dimensions, strict=True) if i != without)
        return len(merged(without_ones(kept)))

    if 0 in target.sizes or num_merged() <= MAX_DIMENSIONS:
        return None
    # First few dimensions left, then few launches, then whole parts of memory.
    return min(range(len(steps)), key=lambda axis: (num_merged(axis), target.sizes[axis], axis))


def _slice_each(array: Array, box: tuple[tuple[int, ...], ...], out: Array, axis: int) -> None:
    """Slice once for each place of a box along an axis."""
    offset, size, stride = (numbers[axis] for numbers in box)
    rest = [numbers[:axis] + numbers[axis + 1 :] for numbers in box]
    before = (np.s_[:],) * axis
    for i in range(size):
        taken, filled = (*before, offset + i * stride), (*before, i)
        slice(array[taken], *rest, out=out[filled])


@overload
def reverse_subsequences(
    a: NumPyArray[Scalar],
    sequence_lengths: HostLengths,
    axis: SupportsIndex = -1,
    *,
    out: NumPyArray[Scalar] | None = None,
    stream: None = None,
) -> NumPyArray[Scalar]: ...
@overload
def reverse_subsequences(
    a: ForeignArray,
    sequence_lengths: ForeignArray | Sequence[Any] | SupportsIndex,
    axis: SupportsIndex = -1,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any: ...
def reverse_subsequences(
    a: Any, sequence_lengths: Any, axis: SupportsIndex = -1, *, out: Any = None, stream: Any = None
) -> Any:
    """The first elements of every lane in reverse order, the rest as they are.

    Parameters
    ----------
    a : array
        At least 1-D, of any dtype of 1, 2, 4, 8 or 16 bytes without objects; any strides. A GPU's array
        (CuPy's, or one that shares its memory) is worked on by that GPU, a CPU's (NumPy's, or one that shares
        its memory) by the CPU emulator.
    sequence_lengths : array, list or int
        How many elements of each lane are reversed, of any integer dtype; broadcasts to the shape of `a`
        with 1 at the axis. Longer than the axis is the whole lane, negative is none. A list is copied to
        the device of `a`, which a graph cannot capture.
    axis : int
        The axis that the lanes run along; negative ones count from the end.
    out : array, optional
        Where to put the result: of the shape and dtype of `a`, of any strides, overlapping neither input.
    stream : optional
        Whose order the work, the results and the scratch follow: a CuPy stream, an object with
        `__cuda_stream__` or the integer handle, of the GPU of `a`. None is CuPy's current stream, and all
        that a CPU takes.

    Returns
    -------
    array
        A new array of the shape and dtype of `a`, or `out`.

    Raises
    ------
    ValueError
        Lengths that do not broadcast, axis=None, or an `out` of another shape, read-only or overlapping.
    TypeError
        No arrays, an unsupported dtype, mixed devices, an `out` of another dtype, no stream.
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
    if stream is not None:
        with on_stream("reverse_subsequences", a, stream):
            return reverse_subsequences(a, sequence_lengths, axis, out=out)
    outs = () if out is None else (out,)
    key = None
    try:
        others = index(axis)
    except TypeError:
        pass  # said below
    else:
        key, call = _reverse_calls.find((a, sequence_lengths), outs, others)
        if call is not None:
            return call.run((a, sequence_lengths), outs)[0]
    with on_stream("reverse_subsequences", a, None):
        return _plan_reverse(a, sequence_lengths, axis, out, key)


def _plan_reverse(a: Any, sequence_lengths: Any, axis: Any, out: Any, key: Any) -> Any:
    function = "reverse_subsequences"
    inputs_given = {"a": a, "sequence_lengths": sequence_lengths}
    outs = {} if out is None else {"out": out}
    arrays, device, shared, made = all_on_device(function, inputs_given, outs)
    array, lengths = arrays["a"], arrays["sequence_lengths"]
    if array is not a or lengths is not sequence_lengths or arrays.get("out") is not out:
        with device.sharing(shared):
            result = reverse_subsequences(array, lengths, axis, out=arrays.get("out"))
        if made:
            device.keep_captured(made, (array,), (result,))
        return result if out is None else out
    kind = bits_of(function, "a", array)
    length_kind = dtype_in(function, "sequence_lengths", lengths, INTEGERS)
    axis = normalized_axis(function, axis, array.ndim)
    shape = tuple(array.shape)
    lane_shape = (*shape[:axis], 1, *shape[axis + 1 :])
    if not broadcasts_to(lengths.shape, lane_shape):
        expected = f"of a shape that broadcasts to {lane_shape}, the shape of a with 1 at the axis"
        if lengths.ndim == array.ndim - 1:
            with_axis = (*lengths.shape[:axis], 1, *lengths.shape[axis:])
            if broadcasts_to(with_axis, lane_shape):
                expected += f"; sequence_lengths[{':, ' * axis}None] is"
        raise ValueError(is_wrong(function, "sequence_lengths", f"of shape {tuple(lengths.shape)}", expected))
    if out is not None:
        check_output(function, "out", out, shape, array.dtype)
    inputs = [
        Argument.input("a", "input_tensor", kind, array, any_address=True),
        Argument.input("sequence_lengths", "sequence_lengths_tensor", length_kind, lengths, lane_shape),
    ]
    target = Argument.output("out", "output_tensor", kind, out, shape, array.dtype, any_address=True)
    if array.ndim > MAX_DIMENSIONS:
        before, after = num_elements(shape[:axis]), num_elements(shape[axis + 1 :])
        lanes = np.broadcast_to(lengths, lane_shape).reshape(before, 1, after)
        flat = array.reshape(before, shape[axis], after)
        result = reverse_subsequences(flat, lanes, 1).reshape(shape)
        return store(function, device, inputs, [target], [result], made=(flat, lanes))[0]

    def make_plan(tensors: dict[str, TensorDesc], limits: Limits) -> Plan:
        desc = _reverse_operator.ReverseSubsequencesDesc(**tensors, axis=axis)
        return _reverse_operator.plan(desc, limits)

    return execute(function, device, inputs, [target], make_plan, _reverse_calls, key)[0]
