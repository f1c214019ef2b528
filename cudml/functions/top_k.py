"""The array function `top_k`."""

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from cudml.checks import MAX_DIMENSIONS
from cudml.devices import Device
from cudml.devices.shortcuts import new_tuple
from cudml.dtypes import ELEMENTS, INTEGERS, ElementType, ExtendedType
from cudml.enums import AxisDirection, DataType
from cudml.functions.arguments import (
    Argument,
    Arguments,
    Request,
    as_integer,
    check_output,
    choice_of,
    dtype_in,
    lengths_of_lanes,
    normalized_axis,
    output_pair,
    wrong_argument,
)
from cudml.functions.array_types import (
    ForeignArray,
    HostLengths,
    IndexScalar,
    IndicesT,
    NumPyArray,
    Scalar,
    ValuesT,
)
from cudml.functions.calls import ArrayFunction
from cudml.functions.top_k_parts import PartedTopK, load_parts
from cudml.functions.words import TOP_K, hiding_words, no_argument
from cudml.operators.top_k import operator as _operator
from cudml.operators.top_k.rows import MAX_ROW_LENGTH, worst_value
from cudml.plans import Limits
from cudml.tensors import num_elements

_REALS: dict[str, ElementType] = {
    "bool": DataType.UINT8,
    **INTEGERS,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "bfloat16": ExtendedType.BFLOAT16,
}

_INT64 = np.dtype(np.int64)

#: The index types that `out=` may have; new indices are int64.
_INDEX_TYPES = {name: INTEGERS[name] for name in ("int32", "int64", "uint32", "uint64")}

#: `mode` -> the direction of a descriptor.
_DIRECTIONS = {"largest": AxisDirection.DECREASING, "smallest": AxisDirection.INCREASING}

#: `nan` -> whether NaN ranks behind every number in both modes.
_NAN_LAST = {"last": True, "greatest": False}

_OUTPUTS = ("out[0]", "out[1]")

if TYPE_CHECKING:

    class TopKResult(NamedTuple, Generic[ValuesT, IndicesT]):
        values: ValuesT
        indices: IndicesT

else:  # Python 3.10 makes no generic named tuples

    class TopKResult(NamedTuple):
        """The result of `top_k`: the selected elements and their indices along the axis."""

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
    nan: Literal["last", "greatest"] = "last",
    lengths: HostLengths | None = None,
    out: None = None,
    stream: None = None,
) -> TopKResult[NumPyArray[Scalar], NumPyArray[np.int64]]: ...
@overload
def top_k(
    a: NumPyArray[Scalar],
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    nan: Literal["last", "greatest"] = "last",
    lengths: HostLengths | None = None,
    out: tuple[NumPyArray[Scalar], NumPyArray[IndexScalar]],
    stream: None = None,
) -> TopKResult[NumPyArray[Scalar], NumPyArray[IndexScalar]]: ...
@overload
def top_k(
    a: ForeignArray,
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    nan: Literal["last", "greatest"] = "last",
    lengths: ForeignArray | Sequence[Any] | SupportsIndex | None = None,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
) -> TopKResult[Any, Any]: ...
@hiding_words
def top_k(
    a: Any,
    k: Any = None,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: Literal["largest", "smallest"] = "largest",
    sorted: bool = True,
    nan: Literal["last", "greatest"] = "last",
    lengths: Any = None,
    out: tuple[Any, Any] | None = None,
    stream: Any = None,
    **words: Any,
) -> TopKResult[Any, Any]:
    """Select the k largest or smallest elements along an axis, best first, and their indices.

    Parameters
    ----------
    a : array
        At least 1-D, of bool, an integer type, float16, float32, float64 or bfloat16; any strides. Arrays in
        GPU memory (CuPy's, or any that share it) are processed by that GPU, arrays in CPU memory (NumPy's, or
        any that share it) by the CPU emulator.
    k : int
        Number of elements to select, from 0 to the size of the axis; all parts of a long axis together select
        at most 2**32 - 1.
    axis : int
        Axis to select along; negative values count from the end. Parts of an axis of more than 2**32 - 1
        elements are selected from in turn, and then merged.
    mode : "largest" or "smallest"
        Which elements to select.
    sorted : bool
        Accepted for compatibility with NumPy: the results are always sorted.
    nan : "last" or "greatest"
        "last" ranks NaN behind every number in both modes, as NumPy does. "greatest" ranks it above infinity,
        as torch and ONNX do: first among the largest, last among the smallest.
    lengths : array, list or int, optional
        Number of elements that count in each row along the axis, from its start, of any integer dtype;
        broadcasts to the shape of `a` with 1 at the axis. A length above the size of the axis counts all
        elements, a negative one none. Where a row has fewer than k, its results end with indices whose bits
        are all set (-1 if signed) and, whatever `nan` says, the type's worst value: -inf, False or the least
        integer; for mode="smallest" inf, True or the greatest integer. A list is copied to the device of
        `a`, which a graph cannot capture.
    out : (values, indices), optional
        Arrays to write the results to, of the shapes of the results and any strides, not overlapping `a` or
        each other: values of the dtype of `a`, indices of int32, uint32, int64 or uint64.
    stream : optional
        Orders the work, the results and the scratch memory: a CuPy stream, an object with `__cuda_stream__`,
        or an integer handle, on the GPU of `a`. None means CuPy's current stream, and is the only choice on
        a CPU.

    Returns
    -------
    TopKResult
        `values` of the dtype of `a` and `indices` of int64, or those of `out`; both have the shape of `a`
        with size k at the axis.

    Raises
    ------
    ValueError
        Invalid k, mode or nan, an axis that is None, lengths that do not broadcast, an `out` of another
        shape, read-only or overlapping, or with indices of a type that cannot hold every index of the axis.
    TypeError
        Not an array, an unsupported dtype, mixed devices, an `out` of another dtype, or not a stream.
    numpy.exceptions.AxisError
        The axis does not exist.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> values, indices = cudml.top_k(np.array([[1.0, 5.0, 5.0, 2.0]]), 3)
    >>> values.tolist(), indices.tolist()
    ([[5.0, 5.0, 2.0]], [[1, 2, 3]])
    >>> values, indices = cudml.top_k(np.array([[1.0, 5.0], [2.0, 3.0]]), 2, lengths=np.array([[2], [1]]))
    >>> values.tolist(), indices.tolist()
    ([[5.0, 1.0], [2.0, -inf]], [[1, 0], [0, -1]])

    Notes
    -----
    Ties are broken by the lower index in both modes. All NaNs are equal, and so are -0.0 and +0.0; the values
    keep their bits. The same input gives the same bits on every device. The array API's `top_k`, of the draft
    that follows version 2025.12, has `axis` and `mode` alone and says nothing of order, ties and NaN:
    `cudml.cupy.top_k` has its signature. Source: `numpy.top_k` for the
    signature and the default order of NaN, ONNX's TopK for the other one, TOP_K1 of DirectML's documentation
    for ties.
    """
    if words:
        raise no_argument(top_k, next(iter(words)), TOP_K)
    try:
        options: Any = (index(k), index(axis), mode, nan)
    except TypeError:
        options = [k, axis, mode, nan]  # the check raises the error
    outputs = () if out is None else output_pair("top_k", out, "values, indices")
    function, inputs = (_top_k, (a,)) if lengths is None else (_ragged_top_k, (a, lengths))
    call = function.find(inputs, outputs, options, stream)
    if call is None:
        return new_tuple(TopKResult, function.plan_and_run(inputs, outputs, options, stream))
    return new_tuple(TopKResult, call.run(inputs, outputs, stream))


class _TopK(ArrayFunction):
    """`top_k` without lengths."""

    name, output_names = "top_k", _OUTPUTS
    input_names: tuple[str, ...] = ("a",)
    descriptor: type[_operator.TopK1Desc] = _operator.TopK1Desc
    plan = staticmethod(_operator.plan)

    def check(self, given: Arguments, k: Any, axis: Any, mode: Any, nan: Any) -> Request:
        function = self.name
        array = given.arrays["a"]
        kind = dtype_in(function, "a", array, _REALS)
        axis = normalized_axis(function, axis, array.ndim)
        k = as_integer(function, "k", k)
        lane = array.shape[axis]
        if not 0 <= k <= lane:
            expected = f"from 0 to the size of axis {axis}, which is {lane}"
            if k < 0:
                expected += "; mode='smallest' selects the smallest"
            raise ValueError(wrong_argument(function, "k", k, expected))
        direction = choice_of(function, "mode", mode, _DIRECTIONS)
        nan_last = choice_of(function, "nan", nan, _NAN_LAST)
        shape = (*array.shape[:axis], k, *array.shape[axis + 1 :])
        outs = given.arrays.get(_OUTPUTS[0]), given.arrays.get(_OUTPUTS[1])
        index_kind: ElementType = DataType.INT64
        index_dtype = _INT64
        if outs[1] is not None:
            index_kind, index_dtype = _index_type(function, _OUTPUTS[1], outs[1], axis, lane)
        source_shape = operand_shape = None
        lengths = None
        if "lengths" in given.arrays:
            lengths = lengths_of_lanes(function, "lengths", given.arrays["lengths"], array.shape, axis)
        if array.ndim > MAX_DIMENSIONS:
            before, after = num_elements(shape[:axis]), num_elements(shape[axis + 1 :])
            source_shape, operand_shape, axis = (before, lane, after), (before, k, after), 1
        outputs = []
        for name, member, out, element_type, dtype in zip(
            _OUTPUTS,
            ("output_value_tensor", "output_index_tensor"),
            outs,
            (kind, index_kind),
            (array.dtype, index_dtype),
            strict=True,
        ):
            if out is not None:
                check_output(function, name, out, shape, dtype)
            outputs.append(
                Argument(name, member, element_type, out, shape, dtype, operand_shape=operand_shape)
            )
        source = Argument(
            "a", "input_tensor", kind, array, array.shape, array.dtype, operand_shape=source_shape
        )
        members = {"axis": axis, "k": k, "axis_direction": direction}
        has_parts = lane > MAX_ROW_LENGTH
        if lengths is None:
            return Request([source], outputs, members, (nan_last,), has_parts=has_parts)
        is_largest = direction is AxisDirection.DECREASING
        members["missing"] = worst_value(ELEMENTS[kind], is_largest=is_largest)
        if array.dtype == bool:
            members["missing"] = int(not is_largest)
        return Request([source, lengths], outputs, members, (nan_last,), has_parts=has_parts)

    def load_parts(
        self, desc: Any, options: tuple[Any, ...], device: Device, limits: Limits
    ) -> tuple[None, PartedTopK]:
        """A top-k of each part of rows that are too long for a kernel, then one of the results."""
        return None, load_parts(desc, options, device, limits, MAX_ROW_LENGTH)


class _RaggedTopK(_TopK):
    """`top_k` with lengths."""

    input_names = ("a", "lengths")
    descriptor = _operator.RaggedTopKDesc


def _index_type(function: str, name: str, array: Any, axis: int, lane: int) -> tuple[ElementType, Any]:
    """The element type and dtype of the indices in `array`.

    Raises TypeError if indices cannot have this dtype, ValueError if it cannot hold the last index.
    """
    kind = dtype_in(function, name, array, _INDEX_TYPES)
    limit = np.iinfo(array.dtype.name).max
    if lane - 1 > limit:
        expected = f"of a type that holds the last index of axis {axis}, which is {lane - 1}"
        raise ValueError(wrong_argument(function, name, f"of {array.dtype}, which ends at {limit}", expected))
    return kind, array.dtype


_top_k, _ragged_top_k = _TopK(), _RaggedTopK()
