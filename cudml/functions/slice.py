"""The array function `slice`."""

from functools import lru_cache
from operator import index
from typing import Any, overload

import numpy as np

from cudml.checks import MAX_DIMENSIONS
from cudml.devices import Array
from cudml.functions.arguments import (
    all_on_device,
    as_integers,
    bits_of,
    check_order,
    check_output,
    is_wrong,
    on_stream,
)
from cudml.functions.array_types import (
    ForeignArray,
    Integers,
    NumPyArray,
    Scalar,
)
from cudml.functions.calls import Argument, CallCache, check_overlap, execute
from cudml.operators import slice as _operator
from cudml.operators.index_space import dimensions_of, merged, without_ones
from cudml.plans import Limits, Plan
from cudml.tensors import TensorDesc

#: Collections that are known to have an order without a closer look.
_SEQUENCES = (tuple, list, type(None))

_calls = CallCache()


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
        key, call = _calls.find((a,), outs, box)
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
        desc = _operator.SliceDesc(tensors["input_tensor"], tensors["output_tensor"], *box)
        return _operator.plan(desc, limits)

    return execute(function, device, [source], [target], make_plan, _calls, key)[0]


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
