"""The array function `top_k`.

A warm call looks up what an earlier one planned for arrays of the same layouts (`CallCache`). Arguments
are checked when a call is planned; what depends on the arrays' addresses is checked each time.
"""

from operator import index
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from cudml.checks import MAX_DIMENSIONS
from cudml.dtypes import INTEGERS, ElementType, ExtendedType
from cudml.enums import AxisDirection, DataType
from cudml.functions.arguments import (
    all_on_device,
    as_integer,
    check_output,
    dtype_in,
    is_wrong,
    normalized_axis,
    on_stream,
    output_pair,
)
from cudml.functions.array_types import (
    ForeignArray,
    IndicesT,
    NumPyArray,
    Scalar,
    ValuesT,
)
from cudml.functions.calls import Argument, CallCache, execute, store
from cudml.operators import top_k as _operator
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

_calls = CallCache()


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
            key, call = _calls.find((a,), out or (), others)
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
        desc = _operator.TopK1Desc(**tensors, axis=axis, k=k, axis_direction=direction)
        return _operator.plan(desc, limits, nan_last=True)

    return TopKResult(*execute(function, device, inputs, outputs, make_plan, _calls, key))
